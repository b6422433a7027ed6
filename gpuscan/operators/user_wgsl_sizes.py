"""Measure the arrays and structs of user WGSL in bytes. A size that is not certain is taken too large."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import NamedTuple

from gpuscan.operators.user_wgsl_tokens import Token, WgslFunction, closing, outermost, refusal

# Types inside types that are followed.
MAX_TYPE_DEPTH = 64
# Bytes of the largest type of WGSL that is neither an array nor a struct: a 4 x 4 matrix of float64.
MAX_PLAIN_BYTES = 128
# Bytes up to which a variable does not count as an array or struct: compilers keep it in registers.
MAX_REGISTER_BYTES = 16

_LENGTH = re.compile(r"(0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)(?:[iu]|li|lu)?")
_VECTOR = re.compile(r"vec([234])([fiuh])?")
_MATRIX = re.compile(r"mat([234])x([234])([fh])?")
_SCALARS = {"bool": 4, "f16": 2, "f32": 4, "i32": 4, "u32": 4, "f64": 8, "i64": 8, "u64": 8}


class Size(NamedTuple):
    """The size of a type: the bytes of the whole, and of the arrays in it."""

    whole: int
    arrays: int


def array_bytes(
    name: str,
    all_tokens: Sequence[Sequence[Token]],
    all_functions: Sequence[Sequence[WgslFunction]],
    element_bytes: int,
) -> tuple[int, dict[str, int]]:
    """Return the bytes of the largest array or struct, and for each function those of its own arrays and copies.

    A struct of numbers counts as nothing in a variable: compilers keep its members in registers.

    Args:
        name: the operator's name, for messages.
        all_tokens: the tokens of its source and helpers.
        all_functions: the functions that they declare.
        element_bytes: size of the type ``Element``.

    Raises:
        OperatorError: the length of an array is not a plain number.
    """
    types = _Types(name, all_tokens, element_bytes)
    largest = max((size.whole for tokens in all_tokens for size in types.sizes_in(tokens)), default=0)
    everything = [each for functions in all_functions for each in functions]
    plain = {each.name for each in everything if re.fullmatch(r"\w*", each.result) and not types.is_known(each.result)}
    variables = {}
    for tokens, functions in zip(all_tokens, all_functions, strict=True):
        for each in functions:
            used = tokens[each.start : each.stop]
            copied = max(largest, element_bytes)
            copies = 0 if copied <= MAX_REGISTER_BYTES else copied * _untyped_copies(types, used, everything, plain)
            arrays = sum(size.arrays for size in types.sizes_in(used))
            variables[each.name] = arrays + element_bytes * _element_variables(used) + copies
    return largest, variables


def _element_variables(tokens: Sequence[Token]) -> int:
    """Count the variables and values that are declared to be an ``Element``."""
    words = [token.text for token in tokens]
    typed = [words[at : at + 4] for at, word in enumerate(words) if word in ("var", "let")]
    return sum(each[2:] == [":", "Element"] for each in typed)


def _untyped_copies(
    types: _Types, tokens: Sequence[Token], functions: Sequence[WgslFunction], plain: Container[str]
) -> int:
    """Count the variables and values without a type that may hold a copy of an array or a struct.

    A `let` counts as well: compilers copy an array into a variable to index it.

    Args:
        types: the types of the operator.
        tokens: the tokens of a function.
        functions: all functions of the operator.
        plain: names of those that return neither an array nor a struct.
    """
    names = {function.name for function in functions}
    count = 0
    for index, token in enumerate(tokens):
        if token.text not in ("var", "let"):
            continue
        stop = next((at for at in range(index, len(tokens)) if tokens[at].text == ";"), len(tokens))
        equals = next((at for at in range(index, stop) if tokens[at].text in "=:"), stop)
        value = tokens[equals + 1 : stop]
        if equals == stop or tokens[equals].text == ":" or not value:
            continue
        first = value[0]
        is_call = first.kind == "name" and len(value) > 1 and value[1].text in "(<"
        operators = {each.text for _, each in outermost(value)} & frozenset("+-/%|^~!=&*<>")
        if is_call:
            # WGSL's own functions return numbers, and `_Types.sizes_in` finds the types that are constructed.
            count += first.text == "Element" or (first.text in names and first.text not in plain)
        elif value[-1].text == "]" and not types.nests:
            continue
        else:
            count += first.kind != "number" and (not operators or first.text == "*")
    return count


class _Types:
    """The sizes of the types that an operator declares and names."""

    def __init__(self, name: str, all_tokens: Sequence[Sequence[Token]], element_bytes: int) -> None:
        self.name = name
        self.element_bytes = element_bytes
        self._declared: dict[str, tuple[str, Sequence[Token]]] = {}
        self._numbers: dict[str, list[str]] = {}
        self._known: dict[str, Size] = {}
        for tokens in all_tokens:
            for index, token in outermost(tokens):
                if token.text in ("alias", "struct") and index + 2 < len(tokens):
                    self._declared[tokens[index + 1].text] = token.text, _definition(tokens, index + 2)
            for index, token in enumerate(tokens):
                if token.text == "const" and index + 2 < len(tokens):
                    self._numbers.setdefault(tokens[index + 1].text, []).append(_constant(tokens, index + 2))
        self.nests = any(
            second.text == "<" and (third.text in ("array", "Element") or third.text in self._declared)
            for tokens in all_tokens
            for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False)
            if first.text == "array"
        ) or any(kind == "struct" for kind, _ in self._declared.values())

    def is_known(self, word: str) -> bool:
        """Return True if a word is the name of a type that the operator declares, or ``Element``."""
        return word == "Element" or word in self._declared

    def sizes_in(self, tokens: Sequence[Token]) -> list[Size]:
        """Return the size of each array type and of each declared type that the tokens name."""
        sizes = []
        at = 0
        while at < len(tokens):
            token, start = tokens[at], at
            at += 1
            is_member = start > 0 and tokens[start - 1].text == "."
            is_label = at < len(tokens) and tokens[at].text == ":"
            if token.kind != "name" or is_member or is_label:
                continue
            if token.text == "array":
                size, at = self._array(tokens, at, 0)
                sizes.append(size)
            elif token.text in self._declared:
                sizes.append(self._named(token.text, 0))
        return sizes

    def _type(self, tokens: Sequence[Token], at: int, depth: int) -> tuple[Size, int]:
        """Return the size of the type that begins at an index, and the index after it."""
        if depth > MAX_TYPE_DEPTH:
            raise refusal(self.name, f"has types inside types, over {MAX_TYPE_DEPTH} deep", "use fewer levels")
        word = tokens[at].text if at < len(tokens) else ""
        if word == "array":
            return self._array(tokens, at + 1, depth)
        entry, after = 0, at + 1
        if after < len(tokens) and tokens[after].text == "<":
            after = _end_of_template(tokens, after)
            entry = max(_SCALARS.get(each.text, 0) for each in tokens[at + 1 : after])
        if word in self._declared:
            return self._named(word, depth), after
        if word == "Element":
            found = self.element_bytes
        elif (vector := _VECTOR.fullmatch(word)) is not None:
            found = (4 if vector[1] == "3" else int(vector[1])) * (entry or (4 if vector[2] else 8))
        elif (matrix := _MATRIX.fullmatch(word)) is not None:
            rows = 4 if matrix[2] == "3" else int(matrix[2])
            found = int(matrix[1]) * rows * (entry or (4 if matrix[3] else 8))
        else:
            found = _SCALARS.get(word, MAX_PLAIN_BYTES)
        return Size(found, 0), after

    def _named(self, word: str, depth: int) -> Size:
        if word not in self._known:
            # A type that holds itself counts as nothing here: the compiler refuses it.
            self._known[word] = Size(0, 0)
            kind, tokens = self._declared[word]
            starts = [0] if kind == "alias" else [at + 1 for at, token in enumerate(tokens) if token.text == ":"]
            sizes = [self._type(tokens, start, depth + 1)[0] for start in starts]
            self._known[word] = Size(sum(size.whole for size in sizes), sum(size.arrays for size in sizes))
        return self._known[word]

    def _array(self, tokens: Sequence[Token], at: int, depth: int) -> tuple[Size, int]:
        """Return the size of an array type, and the index after it; `at` is the index after the word ``array``."""
        if at >= len(tokens) or tokens[at].text != "<":
            raise refusal(self.name, "has an array without the type of its entries", "write array<u32, 3>(1, 2, 3)")
        entry, at = self._type(tokens, at + 1, depth + 1)
        words = [token.text for token in tokens[at : at + 4]]
        if words[:1] != [","] or words[2:3] == []:
            raise refusal(self.name, "has an array without a length", "write array<u32, 3>")
        length = self._length(words[1])
        after = 3 if words[2] == "," else 2
        if words[after : after + 1] != [">"]:
            raise self._unknown_length(" ".join(words[1:]))
        return Size(entry.whole * length, entry.whole * length), at + after + 1

    def _length(self, word: str) -> int:
        values = [_LENGTH.fullmatch(value) for value in self._numbers.get(word, [word])]
        if not all(values):
            raise self._unknown_length(word)
        return max(int(value[1], 0) for value in values if value is not None)

    def _unknown_length(self, words: str) -> Exception:
        return refusal(
            self.name,
            f"has an array of {words!r} entries, and gpuscan must know its size",
            "write a number, or the name of a constant that is a number",
        )


def _definition(tokens: Sequence[Token], at: int) -> Sequence[Token]:
    """Return the tokens of a declaration after its name: those between brackets, or up to the semicolon."""
    if tokens[at].text == "{":
        return tokens[at + 1 : closing(tokens, at)]
    stop = next((index for index in range(at, len(tokens)) if tokens[index].text == ";"), len(tokens))
    return tokens[at + 1 : stop] if tokens[at].text == "=" else tokens[at:stop]


def _constant(tokens: Sequence[Token], at: int) -> str:
    """Return the number that a constant is declared as, or ``""``; `at` is the index after its name."""
    words = [token.text for token in tokens[at : at + 6]]
    words = words[2:] if words[0] == ":" else words
    return words[1] if words[0] == "=" and words[2:3] == [";"] else ""


def _end_of_template(tokens: Sequence[Token], opening: int) -> int:
    """Return the index after the ``>`` that closes the ``<`` at index `opening`."""
    depth = 0
    for index in range(opening, len(tokens)):
        depth += {"<": 1, ">": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index + 1
    return len(tokens)
