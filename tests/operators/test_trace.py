"""Tracing: what WGSL a Python function becomes, and what is said of functions that cannot be traced."""

from __future__ import annotations

import inspect
import math
import re
from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpuscan.elements import LEAF, Element, Structure, element_of
from gpuscan.errors import GpuscanError, OperatorError
from gpuscan.operators.code import combine_code, map_code
from gpuscan.operators.operator import operator

Pair = namedtuple("Pair", "gain shift")


def of(*dtypes: Any, structure: Structure | None = None, shapes: Any = None) -> Element:
    """Return the element of one dtype, or of a tuple of them."""
    if structure is None:
        structure = LEAF if len(dtypes) == 1 else Structure("tuple", tuple(range(len(dtypes))), (LEAF,) * len(dtypes))
    return element_of([np.dtype(dtype) for dtype in dtypes], structure, shapes)


def trace_body(function: Any, *dtypes: Any, **options: Any) -> str:
    """Return the lines of the function's body."""
    source = combine_code(operator(function), of(*dtypes, **options), native_int64=False).source
    return inspect.cleandoc(source.removeprefix("fn combine(a: Element, b: Element) -> Element {").removesuffix("}"))


def find_refusal(function: Any, *dtypes: Any, **options: Any) -> str:
    with pytest.raises(OperatorError) as caught:
        combine_code(operator(function, name="mine"), of(*dtypes, **options), native_int64=True)
    return str(caught.value)


# ----- What the WGSL looks like


def test_a_short_expression_stands_in_the_return() -> None:
    assert trace_body(lambda l, r: l * 2 + r, np.int32) == "return a * 2i + b;"


def test_a_common_subexpression_is_computed_once() -> None:
    body = trace_body(lambda l, r: (l - r) * (l - r) + (l - r), np.float32)
    assert body == "let v0 = a - b;\nreturn v0 * v0 + v0;"


def test_long_expressions_are_broken_into_lets() -> None:
    body = trace_body(
        lambda l, r: np.where(l * r + l - r > 3 * l - 7, np.exp(l) * r, np.sqrt(r) - l * r * l), np.float32
    )
    assert all(len(line) <= 100 for line in body.splitlines())
    assert body.count("let ") == 1
    assert "var " not in body


def test_dead_fields_are_dropped() -> None:
    body = trace_body(lambda l, r: (l[0] + r[0], (np.exp(l[1]), r[1])[1]), np.float32, np.float32)
    assert body == "return Element(a.f0 + b.f0, b.f1);"


def test_closures_are_constants_of_the_other_sides_type() -> None:
    scale = 3
    assert trace_body(lambda l, r: l + scale * r, np.float32) == "return a + b * 3.0f;".replace("b * 3.0f", "3.0f * b")
    assert trace_body(lambda l, r: l + scale * r, np.uint32) == "return a + 3u * b;"


def test_constants_are_folded_by_numpy() -> None:
    assert trace_body(lambda l, r: l + r + np.float32(1) / np.float32(3), np.float32).endswith("+ 0.33333334f;")
    assert trace_body(lambda l, r: l + r * np.zeros_like(l) ** 0, np.int32) == "return a + b * 1i;"


def test_constants_without_a_literal_come_from_their_bits() -> None:
    assert "f32_from_bits(0x7f800000u)" in trace_body(lambda l, r: np.where(l > r, l, np.inf), np.float32)
    assert "f32_from_bits(0x1u)" in trace_body(lambda l, r: l + r + np.float32(1e-45), np.float32)
    assert "i32(-2147483648)" in trace_body(lambda l, r: np.maximum(l, r) + np.int32(-(2**31)), np.int32)


def test_comparisons_between_commas_do_not_read_as_templates() -> None:
    body = trace_body(lambda l, r: (l[0] < r[0], l[1] > r[1]), *[bool] * 2, structure=None)
    assert body == "return Element(!a.f0 & b.f0, !b.f1 & a.f1);"


def test_narrow_integers_wrap() -> None:
    """Wrap each result, unless every operation needs only the low bits of its arguments: then the store wraps."""
    assert trace_body(lambda l, r: np.maximum(l + r, r), np.int8) == "return max(extractBits(a + b, 0u, 8u), b);"
    assert trace_body(lambda l, r: np.minimum(l * r, r), np.uint16) == "return min((a * b) & 0xffffu, b);"
    assert trace_body(lambda l, r: l + r, np.int8) == "return a + b;"
    assert trace_body(lambda l, r: (l * r) ^ r, np.uint16) == "return (a * b) ^ b;"
    assert trace_body(lambda l, r: l & r, np.int8) == "return a & b;"


def test_bundles_keep_their_names() -> None:
    structure = Structure("named", ("gain", "shift"), (LEAF, LEAF), Pair)
    body = trace_body(lambda l, r: Pair(l.gain * r.gain, r.gain * l.shift + r.shift), "f4", "f4", structure=structure)
    assert body == "return Element(a.gain * b.gain, b.gain * a.shift + b.shift);"
    structure = Structure("dict", ("n", "sum"), (LEAF, LEAF))
    body = trace_body(lambda l, r: {"sum": l["sum"] + r["sum"], "n": l["n"] + r["n"]}, "u4", "f4", structure=structure)
    assert body == "return Element(a.n + b.n, a.sum + b.sum);"


def test_a_nested_bundle() -> None:
    inner = Structure("tuple", (0, 1), (LEAF, LEAF))
    structure = Structure("dict", ("p", "q"), (inner, LEAF))
    body = trace_body(
        lambda l, r: {"p": (l["p"][0], r["p"][1]), "q": l["q"] + r["q"]}, *["f4"] * 3, structure=structure
    )
    assert body == "return Element(a.p_0, b.p_1, a.q + b.q);"


def test_a_vector() -> None:
    cross = combine_code(
        operator(lambda l, r: np.stack([l[..., 1] * r[..., 0], l[..., 0] + r[..., 1]], axis=-1), element_axes=1),
        of(np.float32, shapes=[(2,)]),
        False,
    )
    assert "return Element(a[1] * b[0], a[0] + b[1]);" in cross.source


def test_writing_into_an_own_array() -> None:
    def double_sum(l: Any, r: Any) -> Any:
        result = np.empty_like(l)
        result[..., 0] = l[..., 0] + r[..., 0]
        result[..., 1] = l[..., 1]
        result *= 2
        return result

    body = trace_body(double_sum, np.int32, shapes=[(2,)])
    assert body == "return Element((a[0] + b[0]) * 2i, a[1] * 2i);"


def test_a_map_may_change_type_and_fields() -> None:
    code = map_code(lambda x: (x, x.astype(np.float32) ** 2), of(np.int16), "before", True, result_type="Element")
    assert code.source.startswith("fn before(x: Element) -> Element {")
    assert [field.scalar.name for field in code.result.fields] == ["int16", "float32"]
    assert code.result.structure.container == "tuple"
    single = map_code(
        lambda x: x[1] / x[0], of("f4", "f4"), "after", True, argument_type="Element", result_type="Result"
    )
    assert single.source == "fn after(x: Element) -> Result {\n    return f32_divide(x.f1, x.f0);\n}"
    assert single.result.single


def test_a_map_may_return_a_named_tuple_and_numpy_constants() -> None:
    code = map_code(lambda x: Pair(x, np.int32(1)), of("f4"), "before", True, result_type="Element")
    assert code.source.endswith("return Element(x, 1i);\n}")
    assert code.result.structure.unflatten([1, 2]) == Pair(1, 2)


def test_16_bit_floats_may_come_back_as_float32() -> None:
    assert trace_body(lambda l, r: l + np.float32(0.5) * r, np.float16) == "return a + 0.5f * b;"


def test_python_numbers_beside_16_bit_floats_are_float32() -> None:
    """Keep constants in float32, as 16-bit floats are combined, unless NumPy or an astype has rounded them."""
    assert trace_body(lambda l, r: l * 0.1 + r, np.float16) == "return a * 0.1f + b;"
    assert trace_body(lambda l, r: l * np.float16(0.1) + r, np.float16) == "return a * 0.099975586f + b;"
    rounded = np.float32(np.float16(0.1))
    for function in (
        lambda l, r: l + np.full_like(r, 0.1).astype(np.float16).astype(np.float32),
        lambda l, r: l + np.full_like(r, 0.1, dtype=np.float16).astype(np.float32),
    ):
        assert trace_body(function, np.float32) == f"return a + {rounded!s}f;"
    bits = trace_body(lambda l, r: l + np.full_like(r, 0.1, dtype=np.float16).view(np.uint16), np.uint32)
    assert bits == f"return a + {np.float16(0.1).view(np.uint16)}u;"
    back = trace_body(lambda l, r: l + np.full_like(r, 0x3C01, dtype=np.uint16).view(np.float16), np.float32)
    assert back == f"return a + {np.float32(np.uint16(0x3C01).view(np.float16))!s}f;"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_bits_of_16_bit_floats(dtype: Any) -> None:
    """Assert that only casts have 16-bit floats' bits: arguments are combined in 32 bits."""
    for function in (
        lambda l, r: l.view(np.uint16).astype(np.float32),
        lambda l, r: (np.maximum(l, 0) + r).view(np.int16).astype(np.float32),
        lambda l, r: l.view(np.uint32).astype(np.float32),
    ):
        assert "write .astype(np.float32).view(np.uint32)" in find_refusal(function, dtype)
    body = trace_body(lambda l, r: (l.astype(np.float32) + r).view(np.uint32).astype(np.float32), dtype)
    assert body == "return f32(bitcast<u32>(a + b));"
    rounded = trace_body(lambda l, r: ((l + r).astype(dtype) * 2).view(np.uint16).astype(np.float32), np.float32)
    assert f"f32_to_{np.dtype(dtype).name}_bits" in rounded


def test_tracing_is_deep() -> None:
    def chain(l: Any, r: Any) -> Any:
        for _ in range(3000):
            l = l * r + l
        return l

    assert trace_body(chain, np.int32).count("let ") == 2999


def test_a_function_of_too_many_operations_is_refused_while_it_is_traced() -> None:
    def chain(l: Any, r: Any) -> Any:
        for _ in range(10**9):
            l = l * r + l
        return l

    message = find_refusal(chain, np.int32)
    assert "more than 10,000 operations" in message
    assert "use smaller elements, fewer steps" in message
    check_line(message, "l = l * r + l")


# ----- What cannot be traced, and what the message says


def check_line(message: str, text: str) -> None:
    """Assert that the message quotes this line of this file."""
    assert f"{__file__}:" in message
    assert text in message


def test_if_on_a_traced_value() -> None:
    def clamp(l: Any, r: Any) -> Any:
        if l > r:
            return l
        return r

    message = find_refusal(clamp, np.float32)
    assert "np.where(condition, a, b)" in message
    check_line(message, "if l > r:")


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda l, r: l and r, "& | ~"),
        (lambda l, r: max(l, r), "np.maximum"),
        (lambda l, r: l if 0 < l < 5 else r, "np.where"),
        (lambda l, r: math.exp(l) * r, "np.exp"),
        (lambda l, r: int(l) + r, ".astype(np.int32)"),
        (lambda l, r: l[r], "np.take_along_axis"),
        (lambda l, r: l[0] + r[0], "only a bundle has fields"),
        (lambda l, r: np.sort([l, r])[0], "np.stack([a, b], axis=-1)"),
        (lambda l, r: np.linalg.inv(l), "np.linalg.inv is not traced; write it with NumPy's ufuncs"),
        (lambda l, r: np.transpose(l), "write np.swapaxes(x, -1, -2)"),
        (lambda l, r: np.broadcast_to(l, (3,)), "x[..., None]"),
        (lambda l, r: np.mean(l.astype(np.int32), axis=-1), "write .astype(np.float32)"),
        (lambda l, r: np.floor(l.astype(np.complex64)), "from x.real and x.imag"),
        (lambda l, r: l.astype(np.complex64) ** 0.5, "from x.real and x.imag"),
        (lambda l, r: np.add.accumulate(l), "np.add.accumulate"),
        (lambda l, r: np.array([l, r]), "np.stack([a, b], axis=-1)"),
        (lambda l, r: np.exp(l).fft(), "no attribute 'fft'"),
        (lambda l, r: next(iter(l)), "x[..., 0]"),
        (lambda l, r: {0: l}[r], "np.select([i == 0, i == 1, ...], values)"),
        (lambda l, r: l if l in {1.0, 2.0} else r, "(i == 0) | (i == 1) for a set"),
        (lambda l, r: np.max(l, axis=-1), "with axis=-1 for one number, which has no such axis"),
        (lambda l, r: l * len(r), "x.shape[-1]"),
        (lambda l, r: (l, r), "2 fields, but its arguments are single values"),
        (lambda l, r: l < r, ".astype(np.float32)"),
        (lambda l, r: l * np.float64(2), "np.float32"),
        (lambda l, r: np.where(l > r, 1.0, 0.0), "float64 in NumPy"),
        (lambda l, r: l + r.astype(np.int32), "float64 in NumPy"),
        (lambda l, r: l & r, "not defined for float32"),
        (lambda l, r: None, "None, not a number"),
        (lambda l, r: l.undefined, "no attribute 'undefined'"),
        (lambda l, r: l + dict[str, Any]()["x"], "KeyError"),
        (
            lambda l, r: np.nextafter(l, r),
            "np.nextafter is not traced; write it with those that are: absolute, add,",
        ),
        (lambda l, r: np.reciprocal(l.astype(np.int32)), "np.reciprocal of int32 has no form on a GPU; write .astype"),
        (lambda l, r: l.T, "no attribute 'T'"),
        (lambda l, r: l * 1j, "write .astype(np.float32)"),
        (lambda l, r: np.where(l > r), "only on the GPU"),
    ],
)
def test_refusals_say_what_to_write(function: Any, advice: str) -> None:
    message = find_refusal(function, np.float32)
    assert advice in message
    assert f"{__file__}:" in message


def test_wrong_fields() -> None:
    assert "returns 1 fields; its arguments have 2 fields (0, 1)" in find_refusal(lambda l, r: (l[0],), "f4", "f4")
    assert "returns one value; its arguments have 2 fields" in find_refusal(lambda l, r: l[0], "f4", "f4")
    structure = Structure("dict", ("p", "q"), (LEAF, LEAF))
    message = find_refusal(lambda l, r: {"p": l["p"], "s": r["q"]}, "f4", "f4", structure=structure)
    assert "returns the fields p, s; its arguments have 2 fields (p, q)" in message
    assert "IndexError" in find_refusal(lambda l, r: (l[0], l[2]), "f4", "f4")


def test_wrong_types_name_the_field() -> None:
    message = find_refusal(lambda l, r: (l[0] + r[0], l[1] / r[1]), "i4", "i2")
    assert "float32" in message or "float64" in message
    message = find_refusal(lambda l, r: (l[0] + r[0], l[0]), "i4", "i2")
    assert "field f1" in message
    assert ".astype(np.int16)" in message
    assert "-1 does not fit uint8" in find_refusal(lambda l, r: -1, "u1")
    assert "0.5, the element is int32" in find_refusal(lambda l, r: 0.5, "i4")


def test_true_division_of_integers_is_float64_in_numpy() -> None:
    assert "write .astype(np.float32)" in find_refusal(lambda l, r: (l / r).astype(np.int32), np.int32)


def test_signed_and_unsigned_integers_of_64_bits_are_float64_in_numpy() -> None:
    for dtype in (np.int64, np.int8):
        message = find_refusal(lambda l, r: (l[0] + r[1], l[1] + r[1]), np.uint64, dtype)
        assert ".astype(np.int64) on the unsigned number" in message


def test_python_numbers_that_do_not_fit() -> None:
    assert "300 does not fit int8" in find_refusal(lambda l, r: l + 300, np.int8)
    assert "-1 does not fit uint32" in find_refusal(lambda l, r: l + -1, np.uint32)


def test_side_effects_are_found() -> None:
    calls: list[int] = []

    def counting(l: Any, r: Any) -> Any:
        calls.append(1)
        return l + r * len(calls)

    assert "depends on more than its arguments" in find_refusal(counting, np.int32)
    random = np.random.default_rng()
    assert "depends on more" in find_refusal(lambda l, r: l + r * random.random(dtype=np.float32), np.float32)
    kept: list[Any] = []

    def keeping(l: Any, r: Any) -> Any:
        kept.append(l)
        return kept[0] + r

    assert "a value of an earlier call" in find_refusal(keeping, np.int32)


def test_arguments_are_not_written_to() -> None:
    def inplace(l: Any, r: Any) -> Any:
        l += r
        return l

    message = find_refusal(inplace, np.float32)
    assert "writes into its argument" in message
    check_line(message, "l += r")


def test_axes_that_mean_something_else_on_arrays_are_refused() -> None:
    vector = {"shapes": [(3,)]}
    assert "write [..., 0]" in find_refusal(lambda l, r: l[0], np.float32, **vector)
    assert "counted from the end" in find_refusal(lambda l, r: np.sum(l, axis=0), np.float32, **vector)
    assert "counted from the end" in find_refusal(lambda l, r: l.sum(), np.float32, **vector)
    assert "counted from the end" in find_refusal(lambda l, r: np.stack([l[..., 0], r[..., 0]]), np.float32, **vector)
    assert "write x[..., None]" in find_refusal(lambda l, r: l * r[..., 0], np.float32, **vector)
    assert "m, v[..., None]" in find_refusal(lambda l, r: l @ r, np.float32, **vector)
    assert "shape ()" in find_refusal(lambda l, r: l[..., 0], np.float32, **vector)


def test_reductions_of_nothing() -> None:
    """Assert that they give what NumPy gives, and that an error names the axis where NumPy has no result."""
    vector = {"shapes": [(3,)]}
    for call in (
        lambda v: np.max(v, axis=-1),
        lambda v: v.argmax(axis=-1),
        lambda v: np.argmin(v, axis=-1),
        lambda v: np.hypot.reduce(v, axis=-1),
        lambda v: np.take_along_axis(v, np.ones_like(v, np.int32), axis=-1),
    ):
        refusal = find_refusal(lambda l, r, call=call: r + call(l[..., :0])[..., None], np.float32, **vector)
        assert "with axis=-1 on an array of shape (0,), but this axis has no entries" in refusal
    for wanted, call in (
        (0, lambda v: np.sum(v, axis=-1, keepdims=True)),
        (1, lambda v: np.prod(v, axis=-1)[..., None]),
        (0, lambda v: np.any(v != 0, axis=-1)[..., None]),
        (1, lambda v: np.all(v != 0, axis=-1)[..., None]),
        (0, lambda v: np.einsum("...i,...i->...", v, v)[..., None]),
        (0, lambda v: (v[..., None, :] @ v[..., :, None])[..., 0]),
    ):
        bodies = [
            trace_body(lambda l, r, value=value: r * l + value(l[..., :0]), np.float32, **vector)
            for value in (call, lambda v, wanted=wanted: np.float32(wanted))
        ]
        assert bodies[0] == bodies[1]


def test_ufuncs_reduce_along_axes_of_the_element_only() -> None:
    vector = {"shapes": [(3,)]}
    body = trace_body(lambda l, r: r * np.hypot.reduce(l, axis=-1)[..., None], np.float32, **vector)
    assert body.count("hypot") == 2
    for options in ({"axis": 0}, {}, {"axis": -2}, {"axis": -1, "keepdims": True}):
        refusal = find_refusal(lambda l, r, given=options: np.hypot.reduce(l, **given), np.float32, **vector)
        assert "np.hypot.reduce(" in refusal
        assert "(axis=-1)" in refusal


def test_traced_values_say_what_they_are_when_they_are_printed() -> None:
    shown = set()

    def add(l: Any, r: Any) -> Any:
        shown.add(f"{l} {l[..., 0]}")
        return l + r

    trace_body(add, np.int16, shapes=[(2,)])
    assert shown == {
        "<an array of shape (2,) of int16, known only on the GPU> <a number of int16, known only on the GPU>"
    }


def test_unknown_dtypes_are_refused() -> None:
    assert "complex128" in find_refusal(lambda l, r: l.astype(np.complex128), np.float32)
    assert "changes the shape" in find_refusal(lambda l, r: l.view(np.int8), np.float32)


def test_a_map_returning_a_python_number_is_told_to_give_a_dtype() -> None:
    with pytest.raises(OperatorError, match=r"write np\.float32\(1\)"):
        map_code(lambda x: (x, 1), of("f4"), "before", True, result_type="Element")


def test_float64_asks_for_64_bit_numbers() -> None:
    op = operator(lambda l, r: (l.astype(np.float64) + r).astype(np.float32))
    assert combine_code(op, of(np.float32), True).source.endswith("return f32(f64(a) + f64(b));\n}")
    with pytest.raises(OperatorError, match="computes in float64"):
        combine_code(op, of(np.float32), False)


def test_every_refusal_is_a_gpuscan_error() -> None:
    assert issubclass(OperatorError, GpuscanError)
    assert issubclass(OperatorError, ValueError)


def test_functions_of_another_number_of_arguments_are_told_their_parameters() -> None:
    functions: list[tuple[Any, str]] = [(lambda v: v, "(v)"), (lambda a, b, c: a, "(a, b, c)"), (lambda: 0, "()")]
    for function, parameters in functions:
        with pytest.raises(
            OperatorError, match=re.escape(f"has the parameters {parameters}, but gpuscan calls it with 2")
        ):
            trace_body(function, np.int32)
    # A TypeError of the function's own is quoted.
    with pytest.raises(OperatorError, match="raised TypeError while it was traced"):
        trace_body(lambda left, right: len(3), np.int32)  # type: ignore[arg-type]


def test_a_result_of_one_value_is_not_called_a_field() -> None:
    with pytest.raises(OperatorError, match=r"^what .* returns is None, not a number or an array"):
        trace_body(lambda left, right: None, np.int32)


def test_generators_and_coroutines_are_named() -> None:
    def generator(left: Any, right: Any) -> Any:
        yield left + right

    async def coroutine(left: Any, right: Any) -> Any:
        return left + right

    functions: list[Any] = [generator, coroutine, lambda left, right: (each for each in (left, right))]
    for function in functions:
        with pytest.raises(OperatorError, match=r"is a generator or coroutine .* Return a number"):
            trace_body(function, np.int32)
