"""The user's own WGSL: kept apart from ours by its names, and its compile errors brought back to its own lines.

What it may be is checked in `gpuscan.operators.user_wgsl_limits`, before any compiler sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuscan.errors import OperatorError
from gpuscan.operators.user_wgsl_limits import NAME, check_limits, loop_bodies, tokens_of, uncommented

if TYPE_CHECKING:
    from gpuscan.operators.operator import Operator

PREFIX = "user_"  # of every name of the user's that gpuscan has too, or that stands at module scope; not of `combine`

_DECLARES = frozenset({"fn", "const", "alias", "struct"})
_REFUSED = {
    "var": "memory of its own (`var` outside a function)",
    "override": "an override",
    "enable": "an extension (`enable`)",
    "requires": "a language feature (`requires`)",
    "diagnostic": "a diagnostic filter",
}


def _outermost(source: str) -> Iterator[tuple[str, str]]:
    """The words outside all brackets, each with the word that follows it; comments are left out."""
    tokens = tokens_of(uncommented(source))
    depth = 0
    for token, following in zip(tokens, [*tokens[1:], ""], strict=False):
        if token in ("{", "(", "["):
            depth += 1
        elif token in ("}", ")", "]"):
            depth -= 1
        elif depth == 0:
            yield token, following


def _declared(source: str) -> list[str]:
    return [following for word, following in _outermost(source) if word in _DECLARES]


def check_source(name: str, source: str, helpers: str) -> None:
    """Refuses WGSL without `combine`, what an operator may not declare, and what compilers do not survive."""
    if not isinstance(source, str) or not isinstance(helpers, str):
        raise OperatorError(f"the operator {name!r} takes WGSL as text (str)")
    check_limits(name, [helpers, source])
    if "combine" not in _declared(source):
        raise OperatorError(
            f"the WGSL of the operator {name!r} declares no function `combine`; "
            "write fn combine(a: Element, b: Element) -> Element { … }"
        )
    for text in (source, helpers):
        for word, following in _outermost(text):
            if word in _REFUSED:
                raise OperatorError(f"the WGSL of the operator {name!r} declares {_REFUSED[word]}; it may declare "
                                    "functions, constants, aliases and structs")  # fmt: skip
            if word == "@":
                raise OperatorError(
                    f"the WGSL of the operator {name!r} has the attribute @{following}; it may have none"
                )
            if word in _DECLARES and following == "Element":
                raise OperatorError(
                    f"the WGSL of the operator {name!r} declares `Element`, which is gpuscan's name of what is combined"
                )
    both = _declared(source) + _declared(helpers)
    twice = sorted({each for each in both if both.count(each) > 1})
    if twice:
        raise OperatorError(f"the WGSL of the operator {name!r} declares {', '.join(twice)} twice")


_PARTS = ("source", "helpers")


def label(name: str) -> str:
    """An operator's name in one line of ASCII, for comments and labels: it may hold anything."""
    return ascii(name)[1:-1]


def _marker(part: str, name: str) -> str:
    return f"// ---- {part} of operator {label(name)}: line 1 follows"


def _end(name: str) -> str:
    return f"// ---- end of operator {label(name)}".rstrip()  # as rendered lines are


def contained(name: str, source: str, helpers: str) -> str:
    """The user's WGSL with its module-scope names prefixed, line for line, between markers."""
    names = {each for each in _declared(source) + _declared(helpers) if each != "combine"}

    def lines(text: str) -> str:
        # Blank lines become comments, lest they be dropped. Comments that look like our markers lose their dashes.
        kept = prefixed(uncommented(text, keep_lines=True), names).split("\n")
        return "\n".join(line.replace("// ----", "//") if line.strip() else "//" for line in kept)

    parts = [_marker("helpers", name), lines(helpers), _end(name)] if helpers.strip() else []
    return "\n".join([*parts, _marker("source", name), lines(source), _end(name)])


def prefixed(text: str, names: set[str]) -> str:
    """The text with `PREFIX` before these names; words after a dot and the members that a struct declares stay."""

    def replace(match: re.Match[str]) -> str:
        word = match.group(2)
        if word is None or word not in names or any(a <= match.start() < b for a, b in members):
            return match.group(0)
        return PREFIX + word

    members = [
        (body.start(1) + member.start(), body.start(1) + member.end())
        for body in re.finditer(r"\bstruct\s+\w+\s*\{([^}]*)\}", text)
        for member in re.finditer(rf"{NAME}(?=\s*:)", body.group(1))
    ]
    return re.sub(rf"(//[^\n]*|\d[\w.]*|\.\s*{NAME})|({NAME})", replace, text)


def kept_apart(rendered: str, name: str) -> str:
    """A rendered shader in whose user's part no name of ours can be meant, and every loop is counted.

    A name that gpuscan declares, and the user's text uses, gets the prefix: one that the user declares as well is the
    user's, and any other is no name at all, which the compiler says.
    """
    lines = rendered.split("\n")
    starts = [i for i, line in enumerate(lines) if line in {_marker(part, name) for part in _PARTS}]
    spans = [(start + 1, lines.index(_end(name), start)) for start in starts]
    ours = [line for i, line in enumerate(lines) if not any(a <= i < b for a, b in spans)]
    declaration = rf"\b(?:fn|const|alias|struct|override|var\s*(?:<[^>]*>)?)\s+({NAME})"
    names = set(re.findall(declaration, "\n".join(line for line in ours if not line.startswith((" ", "//")))))
    for start, stop in spans:
        text = "\n".join(lines[start:stop])
        lines[start:stop] = counted(prefixed(text, names - {"combine", "Element"})).split("\n")
    return "\n".join(lines)


def counted(text: str) -> str:
    """The text with each turn of each loop counted: one too many returns from the function. See loop_limit.wgsl."""
    clean = uncommented(text)
    inserted = [(at, f" if (one_turn_too_many()) {{ return {result and result + '()'}; }}")
                for at, result in loop_bodies(clean)]  # fmt: skip
    if inserted:
        combine = re.search(r"\bfn\s+combine\s*\([^{]*\{", clean)
        if combine is not None:
            inserted.append((combine.end(), " begin_turns();"))
    for at, words in sorted(inserted, reverse=True):
        text = text[:at] + words + text[at:]
    return text


def has_loops(operator: Operator) -> bool:
    """Whether the operator is WGSL with a loop, whose turns are counted."""
    return operator.wgsl is not None and any(
        loop_bodies(uncommented(text)) for text in (operator.helpers, operator.wgsl)
    )


def user_error(operator: Operator | str, compile_message: str, rendered_wgsl: str) -> OperatorError:
    """What the compiler said of a shader, as an error in the lines of the user's WGSL that the shader contains.

    Args:
        operator: the operator, or its name.
        compile_message: the compiler's message, in naga's form or in Tint's.
        rendered_wgsl: the whole shader.
    """
    name = operator if isinstance(operator, str) else operator.name
    lines = rendered_wgsl.split("\n")
    for match in re.finditer(r"(?:wgsl|\s|^|\"):?(\d+):(\d+)", compile_message):
        number = int(match.group(1))
        for part in _PARTS:
            if _marker(part, name) not in lines:
                continue
            start = lines.index(_marker(part, name)) + 2  # the number of the user's line 1
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
    """The user's names as the user wrote them, without our counting."""
    text = re.sub(r" (?:begin_turns\(\);|if \(one_turn_too_many\(\)\) \{ return [^;]*; \})", "", text)
    return re.sub(rf"\b{PREFIX}(?=\w)", "", text)


def _cause(message: str) -> str:
    """The compiler's own sentence, which in naga's messages and in Tint's follows the last "error:"."""
    found = re.findall(r"error:\s*([^\n]+)", message)
    return _own_words(found[-1].strip() if found else message.strip())
