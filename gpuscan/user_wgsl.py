"""The user's own WGSL: kept apart from ours by its names, and its compile errors brought back to its own lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuscan.errors import OperatorError

if TYPE_CHECKING:
    from gpuscan.operators import Operator

PREFIX = "user_"  # of every module-scope name that the user declares, `combine` aside

_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|@\w+|[A-Za-z_]\w*|\S", re.DOTALL)
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
    tokens = [token for token in _TOKEN.findall(source) if not token.startswith(("//", "/*"))]
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
    """Refuses WGSL without `combine`, and what an operator may not declare."""
    if not isinstance(source, str) or not isinstance(helpers, str):
        raise OperatorError(f"the operator {name!r} takes WGSL as text (str)")
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
            if word.startswith("@"):
                raise OperatorError(f"the WGSL of the operator {name!r} has the attribute {word}; it may have none")
            if word in _DECLARES and following == "Element":
                raise OperatorError(
                    f"the WGSL of the operator {name!r} declares `Element`, which is gpuscan's name of what is combined"
                )
    both = _declared(source) + _declared(helpers)
    twice = sorted({each for each in both if both.count(each) > 1})
    if twice:
        raise OperatorError(f"the WGSL of the operator {name!r} declares {', '.join(twice)} twice")


_PARTS = ("source", "helpers")


def _label(name: str) -> str:
    return re.sub(r"\s+", " ", name)


def _marker(part: str, name: str) -> str:
    return f"// ---- {part} of operator {_label(name)}: line 1 follows"


def contained(name: str, source: str, helpers: str) -> str:
    """The user's WGSL with its module-scope names prefixed, line for line, between markers."""
    names = {each for each in _declared(source) + _declared(helpers) if each != "combine"}

    def replace(match: re.Match[str]) -> str:
        comment, word = match.group(1), match.group(2)
        return match.group(0) if comment or word not in names else PREFIX + word

    def renamed(text: str) -> str:
        # A word after a dot is a member. Comments stay as they are, and blank lines become some, lest they be dropped.
        text = re.sub(r"(//[^\n]*|/\*.*?\*/)|(?<![.\w])([A-Za-z_]\w*)", replace, text, flags=re.DOTALL)
        return "\n".join(line if line.strip() else "//" for line in text.split("\n"))

    end = f"// ---- end of operator {_label(name)}"
    parts = [_marker("helpers", name), renamed(helpers), end] if helpers.strip() else []
    return "\n".join([*parts, _marker("source", name), renamed(source), end])


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
            end = lines.index(f"// ---- end of operator {_label(name)}", start - 1) + 1
            if start <= number < end:
                return OperatorError(
                    f"the WGSL of the operator {name!r} does not compile: {_cause(compile_message)}\n"
                    f"  at line {number - start + 1} of its {part}: {_own_words(lines[number - 1].strip())}"
                )
    element = re.search(r"^(?:alias|struct) Element\b[^;}]*[;}]", rendered_wgsl, re.MULTILINE)
    hint = f"; it must be fn combine(a: Element, b: Element) -> Element, with {element.group(0)}" if element else ""
    return OperatorError(f"the WGSL of the operator {name!r} does not compile{hint}\n{compile_message.strip()}")


def _own_words(text: str) -> str:
    """The user's names as the user wrote them."""
    return re.sub(rf"\b{PREFIX}(?=\w)", "", text)


def _cause(message: str) -> str:
    """The compiler's own sentence, which in naga's messages and in Tint's follows the last "error:"."""
    found = re.findall(r"error:\s*([^\n]+)", message)
    return _own_words(found[-1].strip() if found else message.strip())
