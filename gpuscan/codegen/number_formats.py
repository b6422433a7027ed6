"""Write the WGSL expressions that convert one number from one form into another.

`gpuscan.elements` defines the three forms: storage, compute and words. These small expressions are Python because they
depend on the number's format alone. The templates under ``shaders/`` hold the statements around them (see
docs/decisions/221-wgsl-in-templates.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuscan.elements import Field, Scalar

# The names of 16-bit floats in the functions of shaders/shared/small_floats.wgsl.
_SMALL_FLOATS = {"float16": "half", "bfloat16": "bfloat"}


def conversions_of(loaded: Iterable[Field], stored: Iterable[Field]) -> tuple[str, ...]:
    """Return the names of the conversions of 16-bit floats that loads and stores of these fields call."""
    loads = [f"{_SMALL_FLOATS[f.scalar.name]}_to_float" for f in loaded if f.scalar.name in _SMALL_FLOATS]
    stores = [f"float_to_{_SMALL_FLOATS[f.scalar.name]}" for f in stored if f.scalar.name in _SMALL_FLOATS]
    return tuple(dict.fromkeys(loads + stores))


def to_words(scalar: Scalar, native_int64: bool, value: str) -> tuple[str, ...]:
    """Return the 32-bit words of a number in compute form."""
    if scalar.kind == "bool":
        return (f"select(0u, 1u, {value})",)
    if scalar.kind == "complex":
        return (f"bitcast<u32>({value}.x)", f"bitcast<u32>({value}.y)")
    if scalar.bits == 64:
        if scalar.kind != "float" and not native_int64:
            return (f"{value}.x", f"{value}.y")
        wide = value if scalar.kind == "unsigned" else f"bitcast<u64>({value})"
        return (f"u32({wide} & 0xfffffffflu)", f"u32({wide} >> 32u)")
    return (value,) if scalar.kind == "unsigned" else (f"bitcast<u32>({value})",)


def from_words(scalar: Scalar, native_int64: bool, words: Sequence[str]) -> str:
    """Return the number in compute form that consists of these words: the inverse of `to_words`."""
    if scalar.kind == "bool":
        return f"({words[0]} != 0u)"
    if scalar.kind == "complex":
        return f"bitcast<vec2<f32>>(vec2<u32>({words[0]}, {words[1]}))"
    if scalar.bits == 64:
        if scalar.kind != "float" and not native_int64:
            return f"vec2<u32>({words[0]}, {words[1]})"
        wide = f"(u64({words[0]}) | (u64({words[1]}) << 32u))"
        return wide if scalar.kind == "unsigned" else f"bitcast<{scalar.wgsl(native_int64)}>({wide})"
    return words[0] if scalar.kind == "unsigned" else f"bitcast<{scalar.wgsl(native_int64)}>({words[0]})"


def from_storage(scalar: Scalar, native_int64: bool, words: Sequence[str], index: int) -> str:
    """Return number `index` of the numbers that are stored in these words."""
    if not scalar.packed:
        return from_words(scalar, native_int64, words[index * scalar.words : (index + 1) * scalar.words])
    word = words[index // scalar.per_word]
    offset = (index % scalar.per_word) * scalar.bits
    if scalar.kind == "signed":
        return f"extractBits(bitcast<i32>({word}), {offset}u, {scalar.bits}u)"
    bits = f"extractBits({word}, {offset}u, {scalar.bits}u)"
    if scalar.kind == "bool":
        return f"({bits} != 0u)"
    if scalar.kind == "float":
        return f"{_SMALL_FLOATS[scalar.name]}_to_float({bits})"
    return bits


def to_storage(scalar: Scalar, native_int64: bool, values: Sequence[str]) -> list[str]:
    """Return the storage words of neighbouring numbers in compute form: the inverse of `from_storage`."""
    if not scalar.packed:
        return [word for value in values for word in to_words(scalar, native_int64, value)]
    mask = "0xffu" if scalar.bits == 8 else "0xffffu"
    words = []
    for start in range(0, len(values), scalar.per_word):
        parts = []
        for position, value in enumerate(values[start : start + scalar.per_word]):
            if scalar.kind == "float":
                bits = f"float_to_{_SMALL_FLOATS[scalar.name]}({value})"
            else:
                bits = f"({to_words(scalar, native_int64, value)[0]} & {mask})"
            parts.append(f"({bits} << {position * scalar.bits}u)" if position else bits)
        words.append(" | ".join(parts))
    return words


def across_words(low: str, high: str, shift: str) -> str:
    """Return the word that begins `shift` bits into the word `low` and ends in the next word, `high`.

    In WGSL a shift by 32 bits is none, so the high word is shifted twice. Then a `shift` of 0 gives `low`.
    """
    return f"(({low} >> {shift}) | (({high} << (31u - {shift})) << 1u))"
