"""The user's own WGSL: check it, keep its names apart from gpuscan's, count its loops, and explain compile errors.

A shader holds the user's text in its plain form (see `gpuscan.operators.user_wgsl_tokens`), line for line, between
markers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from gpuscan.errors import OperatorError
from gpuscan.operators.user_wgsl_tokens import (
    Token,
    WgslFunction,
    bracket_depth,
    closing,
    functions_of,
    loop_bodies,
    outermost,
    plain_text,
    refusal,
    tokens_of,
)

# Stands before each of the user's names that is declared at module scope, except `combine`, and before each that
# gpuscan declares as well.
PREFIX = "user_"

_DECLARES = frozenset({"fn", "const", "alias", "struct"})
_REFUSED = {
    "override": "an override",
    "enable": "an extension (`enable`)",
    "requires": "a language feature (`requires`)",
    "diagnostic": "a diagnostic filter",
}
_PARTS = ("source", "helpers")
# The least size of the type `Element`, in bytes. Its true size is known when the operator meets an array.
_MIN_ELEMENT_BYTES = 4


@lru_cache(maxsize=128)
def check_source(name: str, source: str, helpers: str) -> None:
    """Refuse WGSL without `combine`, and WGSL that declares or does what an operator may not.

    Raises:
        OperatorError: the message says what is the matter, and what to do.
    """
    texts = [plain_text(name, helpers), plain_text(name, source)]
    all_tokens = [tokens_of(name, text) for text in texts]
    for tokens in all_tokens:
        for at, token in enumerate(tokens):
            if token.text == "@":
                attribute = "".join(following.text for following in tokens[at + 1 : at + 2])
                raise refusal(name, f"has the attribute @{attribute}", "remove it; an operator may have no attributes")
            if token.text in _REFUSED:
                raise _may_not(name, _REFUSED[token.text])
        if any(token.text == "var" for _, token in outermost(tokens)):
            raise _may_not(name, "memory of its own (`var` outside a function)")
    check_limits(name, texts, _MIN_ELEMENT_BYTES)
    declared = [word for tokens in all_tokens for word in _find_declarations(tokens)]
    if "combine" not in _find_declarations(all_tokens[1]):
        raise refusal(
            name, "declares no function `combine`", "write fn combine(a: Element, b: Element) -> Element { ... }"
        )
    if "Element" in declared:
        raise refusal(
            name, "declares `Element`, which is gpuscan's name for the type that is combined", "choose another name"
        )
    twice = sorted({word for word in declared if declared.count(word) > 1})
    if twice:
        raise refusal(name, f"declares {', '.join(twice)} twice", "give each declaration a name of its own")
    for text in texts:
        loop_bodies(name, text)


def _may_not(name: str, declared: str) -> OperatorError:
    return refusal(name, f"declares {declared}", "declare only functions, constants, aliases and structs")


def _find_declarations(tokens: Sequence[Token]) -> list[str]:
    """Return the names that a text declares at module scope."""
    return [tokens[at + 1].text for at, token in outermost(tokens) if token.text in _DECLARES and at + 1 < len(tokens)]


def has_loops(name: str, source: str, helpers: str) -> bool:
    """Return True if the WGSL has a loop, so that gpuscan counts its iterations."""
    return any(loop_bodies(name, plain_text(name, text)) for text in (source, helpers))


# ----- The user's text inside a shader


def label(name: str) -> str:
    """Return an operator's name as one line of ASCII, for comments and labels: it may hold any characters."""
    return ascii(name)[1:-1]


def _marker(part: str, name: str) -> str:
    return f"// ---- {part} of operator {label(name)}: line 1 follows"


def _end(name: str) -> str:
    # Rendered lines have no blank space at their ends.
    return f"// ---- end of operator {label(name)}".rstrip()


def enclose_source(name: str, source: str, helpers: str, element_bytes: int) -> str:
    """Return the user's WGSL for a shader: plain, with a prefix on its module-scope names, between markers.

    Raises:
        OperatorError: its arrays of elements are too large.
    """
    texts = {"helpers": plain_text(name, helpers), "source": plain_text(name, source)}
    check_limits(name, list(texts.values()), element_bytes)
    names = {word for text in texts.values() for word in _find_declarations(tokens_of(name, text))} - {"combine"}
    lines = []
    for part, text in texts.items():
        if text.strip():
            # Rendering joins blank lines, so each one becomes a comment.
            kept = [line.rstrip() or "//" for line in prefix_names(name, text, names).split("\n")]
            lines += [_marker(part, name), *kept, _end(name)]
    return "\n".join(lines)


def prefix_names(name: str, text: str, names: Collection[str]) -> str:
    """Return a plain text with `PREFIX` before these names, except where they name the member of a struct."""
    tokens = tokens_of(name, _blank_comments(text))
    members = set()
    for at, token in enumerate(tokens):
        if token.text == "struct" and at + 2 < len(tokens) and tokens[at + 2].text == "{":
            inside = range(at + 3, closing(tokens, at + 2))
            members |= {index for index in inside if tokens[index + 1].text == ":"}
    pieces, done = [], 0
    for at, token in enumerate(tokens):
        accessed = at > 0 and tokens[at - 1].text == "."
        if token.category == "name" and token.text in names and not accessed and at not in members:
            pieces += [text[done : token.start], PREFIX]
            done = token.start
    return "".join(pieces) + text[done:]


def _blank_comments(text: str) -> str:
    """Return a text of `enclose_source` without its comments, which are whole lines of ``//``."""
    return re.sub(r"(?m)^//$", "  ", text)


def isolate_user_code(rendered: str, name: str) -> str:
    """Return a rendered shader in which the user's part can name nothing of gpuscan's, with its loops counted.

    A name that gpuscan declares gets the prefix where the user's text has it. If the user declares it as well, it is
    the user's. If not, it is no name at all, and the compiler says so.

    Args:
        rendered: the whole shader, with the text of `enclose_source`.
        name: the operator's name.
    """
    lines = rendered.split("\n")
    starts = [i for i, line in enumerate(lines) if line in {_marker(part, name) for part in _PARTS}]
    spans = [(start + 1, lines.index(_end(name), start)) for start in starts]
    ours = [line for i, line in enumerate(lines) if not any(a <= i < b for a, b in spans)]
    declaration = r"\b(?:fn|const|alias|struct|override|var\s*(?:<[^>]*>)?)\s+([A-Za-z_]\w*)"
    at_module_scope = "\n".join(line for line in ours if not line.startswith((" ", "//")))
    names = set(re.findall(declaration, at_module_scope)) - {"combine", "Element"}
    texts = [prefix_names(name, "\n".join(lines[start:stop]), names) for start, stop in spans]
    loops = any(loop_bodies(name, _blank_comments(text)) for text in texts)
    for (start, stop), text in zip(spans, texts, strict=True):
        lines[start:stop] = (limit_iterations(name, text) if loops else text).split("\n")
    return "\n".join(lines)


def limit_iterations(name: str, text: str) -> str:
    """Return a text of an operator with loops, in which each iteration is counted (see shaders/shared/loop_limit.wgsl).

    One iteration too many returns from the function. The count begins where `combine` begins.
    """
    plain = _blank_comments(text)
    tokens = tokens_of(name, plain)
    inserted = [
        (at, f" if (one_turn_too_many()) {{ return {result and result + '()'}; }}")
        for at, result in loop_bodies(name, plain)
    ]
    for function in functions_of(name, plain, tokens):
        if function.name == "combine":
            inserted.append((tokens[function.body - 1].stop, " begin_turns();"))
    for at, words in sorted(inserted, reverse=True):
        text = text[:at] + words + text[at:]
    return text


# ----- Compile errors


def user_error(name: str, compile_message: str, rendered_wgsl: str) -> OperatorError:
    """Return what the compiler said of a shader as an error in the lines of the user's WGSL.

    Args:
        name: the operator's name.
        compile_message: the compiler's message, in naga's form or in Tint's.
        rendered_wgsl: the whole shader.
    """
    lines = rendered_wgsl.split("\n")
    for match in re.finditer(r"(?:wgsl|\s|^|\"):?(\d+):(\d+)", compile_message):
        number = int(match.group(1))
        for part in _PARTS:
            if _marker(part, name) not in lines:
                continue
            # The number of the user's line 1.
            start = lines.index(_marker(part, name)) + 2
            end = lines.index(_end(name), start - 1) + 1
            if start <= number < end:
                return OperatorError(
                    f"the WGSL of the operator {name!r} does not compile: {_cause(compile_message)}\n"
                    f"  at line {number - start + 1} of its {part}: {_own_words(lines[number - 1].strip())}"
                )
    element = re.search(r"^(?:alias|struct) Element\b[^;}]*[;}]", rendered_wgsl, re.MULTILINE)
    hint = f"; it must be fn combine(a: Element, b: Element) -> Element, with {element.group(0)}" if element else ""
    return OperatorError(f"the WGSL of the operator {name!r} does not compile{hint}\n{compile_message.strip()}")


def _own_words(text: str) -> str:
    """Return a line with the user's names as the user wrote them, without the code that counts iterations."""
    text = re.sub(r" (?:begin_turns\(\);|if \(one_turn_too_many\(\)\) \{ return [^;]*; \})", "", text)
    return re.sub(rf"\b{PREFIX}(?=\w)", "", text)


def _cause(message: str) -> str:
    """Return the compiler's own sentence, which in naga's messages and in Tint's follows the last "error:"."""
    errors = re.findall(r"error:\s*([^\n]+)", message)
    return _own_words(errors[-1].strip() if errors else message.strip())


# ----- Bounds
#
# Bound user WGSL, so that compilers return and do not end the process.
#
# Compilers run in this process and parse by recursion: brackets that nest 10,000 deep overflow their stack.


# Characters of the operator's source and helpers together.
MAX_CHARACTERS = 1 << 16
# Brackets in brackets. Compilers recurse for each one.
MAX_BRACKET_DEPTH = 64
# Signs of one operand, such as the two of `!-x`. Compilers recurse for each one.
MAX_PREFIX_SIGNS = 16
# Words and signs between two of `;`, `{` and `}`. Compilers recurse over long chains of operations.
MAX_STATEMENT_TOKENS = 4000
# Statements of one text, counted by their semicolons.
MAX_STATEMENTS = 2000
# `else` branches of one text. A chain of them nests.
MAX_BRANCHES = 256
# Words and signs of one function after every call is written out, as compilers do it.
MAX_EXPANDED_TOKENS = 40_000
# Bytes of one array or struct. The size of two elements is allowed on top.
MAX_ARRAY_BYTES = 1024
# Bytes of all arrays in the variables of one function and of the functions that it calls. The size of eight elements
# is allowed on top.
MAX_VARIABLE_BYTES = 8192

# Functions and types that reach other invocations or memory outside the operator.
_NOT_ALONE = re.compile(
    r"\w*Barrier|workgroupUniformLoad|subgroup[A-Z]\w*|quad[A-Z]\w*|atomic\w*|texture\w*|dpd[xy]\w*|fwidth\w*"
)
# Types with parameters in ``< >``.
_GENERATOR = re.compile(r"array|ptr|vec[234]|mat[234]x[234]|bitcast")


def check_limits(name: str, texts: Sequence[str], element_bytes: int) -> None:
    """Refuse WGSL that compilers may not survive, and WGSL that no single invocation runs by itself.

    Raises:
        OperatorError: the message says which limit is exceeded, and by how much.
    """

    def at_most(count: int, allowed: int, what: str, advice: str = "shorten or simplify it") -> None:
        if count > allowed:
            raise refusal(name, f"has {count:,} {what}, and {allowed:,} are allowed", advice)

    at_most(sum(map(len, texts)), MAX_CHARACTERS, "characters")
    all_tokens = [tokens_of(name, text) for text in texts]
    for tokens in all_tokens:
        words = [token.text for token in tokens]
        at_most(bracket_depth(name, tokens), MAX_BRACKET_DEPTH, "brackets inside each other")
        at_most(_template_depth(words), MAX_BRACKET_DEPTH, "types inside each other")
        at_most(_longest_run(words, frozenset("~!-&*")), MAX_PREFIX_SIGNS, "signs in a row")
        at_most(_longest_statement(words), MAX_STATEMENT_TOKENS, "words and signs in one statement")
        at_most(words.count(";"), MAX_STATEMENTS, "statements")
        at_most(words.count("else"), MAX_BRANCHES, "branches (else)", "use a switch or an array of constants")
        for word in words:
            if _NOT_ALONE.fullmatch(word):
                raise refusal(
                    name,
                    f"uses {word}",
                    "an operator combines two elements by itself, without memory or other invocations",
                )
    all_functions = [functions_of(name, text, tokens) for text, tokens in zip(texts, all_tokens, strict=True)]
    called: dict[str, Counter[str]] = {}
    lengths: dict[str, int] = {}
    for tokens, functions in zip(all_tokens, all_functions, strict=True):
        for function in functions:
            called[function.name] = _words_called(tokens, function)
            lengths[function.name] = function.stop - function.start
    at_most(
        max(_sum_over_calls(name, lengths, called).values(), default=0),
        MAX_EXPANDED_TOKENS,
        "words and signs, those of the functions that are called included",
        "call fewer functions, or call them in a loop",
    )
    largest, variables = array_bytes(name, all_tokens, all_functions, element_bytes)
    at_most(largest, MAX_ARRAY_BYTES + 2 * element_bytes, "bytes in one array or struct", "use a smaller one")
    at_most(
        max(_sum_over_calls(name, variables, called).values(), default=0),
        MAX_VARIABLE_BYTES + 8 * element_bytes,
        "bytes in arrays and copies, those of the functions that are called included",
        "use fewer or smaller ones, and write the type of each variable and value: let x: f32 = ...",
    )


def _template_depth(words: Sequence[str]) -> int:
    """Return how deep types such as ``vec2<...>`` and ``ptr<...>`` nest. A ``<`` after any other word compares."""
    deepest = depth = 0
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if following == "<" and _GENERATOR.fullmatch(word):
            depth += 1
            deepest = max(deepest, depth)
        elif word == ">":
            depth = max(depth - 1, 0)
        elif word in (";", "{", "}"):
            depth = 0
    return deepest


def _longest_run(words: Sequence[str], signs: frozenset[str]) -> int:
    longest = length = 0
    for word in words:
        length = length + 1 if word in signs else 0
        longest = max(longest, length)
    return longest


def _longest_statement(words: Sequence[str]) -> int:
    longest = length = 0
    for word in words:
        length = 0 if word in (";", "{", "}") else length + 1
        longest = max(longest, length)
    return longest


def _words_called(tokens: Sequence[Token], function: WgslFunction) -> Counter[str]:
    """Count the words before a ``(`` in the body of a function."""
    return Counter(
        tokens[index].text
        for index in range(function.body, function.stop)
        if tokens[index].category == "name" and tokens[index + 1].text == "("
    )


def _sum_over_calls(name: str, own: Mapping[str, int], called: Mapping[str, Counter[str]]) -> dict[str, int]:
    """Return the sum of `own` over each function and, once for each call, over the functions that it calls.

    Raises:
        OperatorError: a function calls itself.
    """
    totals: dict[str, int] = {}
    waiting = list(own)
    while waiting:
        ready = [
            function for function in waiting if all(word in totals or word not in own for word in called[function])
        ]
        if not ready:
            raise refusal(name, f"does not compile: {waiting[0]} calls itself", "write a loop")
        for function in ready:
            calls = called[function].items()
            totals[function] = own[function] + sum(count * totals[word] for word, count in calls if word in own)
        waiting = [function for function in waiting if function not in totals]
    return totals


# ----- Sizes
#
# Measure the arrays and structs of user WGSL in bytes. A size that is not certain is taken too large.


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
    """Return the bytes of the largest array or struct, and the bytes of each function's own arrays and copies.

    A struct of numbers counts as nothing in a variable: compilers keep its members in registers.

    Raises:
        OperatorError: the length of an array is not a plain number.
    """
    types = _Types(name, all_tokens, element_bytes)
    largest = max((size.whole for tokens in all_tokens for size in types.sizes_in(tokens)), default=0)
    everything = [function for functions in all_functions for function in functions]
    plain = {
        function.name
        for function in everything
        if re.fullmatch(r"\w*", function.result) and not types.is_known(function.result)
    }
    variables = {}
    for tokens, functions in zip(all_tokens, all_functions, strict=True):
        for function in functions:
            used = tokens[function.start : function.stop]
            copied = max(largest, element_bytes)
            copies = (
                0 if copied <= MAX_REGISTER_BYTES else copied * _count_untyped_copies(types, used, everything, plain)
            )
            arrays = sum(size.arrays for size in types.sizes_in(used))
            variables[function.name] = arrays + element_bytes * _element_variables(used) + copies
    return largest, variables


def _element_variables(tokens: Sequence[Token]) -> int:
    """Count the variables and values that are declared to be an ``Element``."""
    words = [token.text for token in tokens]
    typed = [words[at : at + 4] for at, word in enumerate(words) if word in ("var", "let")]
    return sum(declaration[2:] == [":", "Element"] for declaration in typed)


def _count_untyped_copies(
    types: _Types, tokens: Sequence[Token], functions: Sequence[WgslFunction], plain: Container[str]
) -> int:
    """Count the variables and values without a type that may hold a copy of an array or a struct.

    A `let` counts as well: compilers copy an array into a variable to index it.

    Args:
        types: the types of the operator.
        tokens: the tokens of a function.
        functions: all functions of the operator.
        plain: the names of the functions that return neither an array nor a struct.
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
        is_call = first.category == "name" and len(value) > 1 and value[1].text in "(<"
        operators = {outer_token.text for _, outer_token in outermost(value)} & frozenset("+-/%|^~!=&*<>")
        if is_call:
            # WGSL's own functions return numbers, and `_Types.sizes_in` finds the types that are constructed.
            count += first.text == "Element" or (first.text in names and first.text not in plain)
        elif value[-1].text == "]" and not types.nests:
            continue
        else:
            count += first.category != "number" and (not operators or first.text == "*")
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
        ) or any(keyword == "struct" for keyword, _ in self._declared.values())

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
            if token.category != "name" or is_member or is_label:
                continue
            if token.text == "array":
                size, at = self._array(tokens, at, 0)
                sizes.append(size)
            elif token.text in self._declared:
                sizes.append(self._find_size(token.text, 0))
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
            entry = max(_SCALARS.get(argument.text, 0) for argument in tokens[at + 1 : after])
        if word in self._declared:
            return self._find_size(word, depth), after
        if word == "Element":
            nbytes = self.element_bytes
        elif (vector := _VECTOR.fullmatch(word)) is not None:
            nbytes = (4 if vector[1] == "3" else int(vector[1])) * (entry or (4 if vector[2] else 8))
        elif (matrix := _MATRIX.fullmatch(word)) is not None:
            rows = 4 if matrix[2] == "3" else int(matrix[2])
            nbytes = int(matrix[1]) * rows * (entry or (4 if matrix[3] else 8))
        else:
            nbytes = _SCALARS.get(word, MAX_PLAIN_BYTES)
        return Size(nbytes, 0), after

    def _find_size(self, word: str, depth: int) -> Size:
        if word not in self._known:
            # A type that holds itself counts as nothing here: the compiler refuses it.
            self._known[word] = Size(0, 0)
            keyword, tokens = self._declared[word]
            starts = [0] if keyword == "alias" else [at + 1 for at, token in enumerate(tokens) if token.text == ":"]
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
