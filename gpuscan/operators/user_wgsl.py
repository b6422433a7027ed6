"""The user's own WGSL: check it, keep its names apart from gpuscan's, count its loops, and explain compile errors.

A shader holds the user's text in its plain form (see `gpuscan.operators.user_wgsl_tokens`), line for line, between
markers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from gpuscan.errors import OperatorError
from gpuscan.operators.user_wgsl_limits import check_limits
from gpuscan.operators.user_wgsl_tokens import (
    Token,
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


def check_source(name: str, source: str, helpers: str) -> None:
    """Refuse WGSL without `combine`, and WGSL that declares or does what an operator may not.

    Args:
        name: the operator's name, for messages.
        source: the WGSL that declares `combine`.
        helpers: further WGSL.

    Raises:
        OperatorError: the message says what is the matter, and what to do.
    """
    if not isinstance(source, str) or not isinstance(helpers, str):
        raise OperatorError(f"the operator {name!r} was given WGSL that is not text; pass a str")
    texts = [plain_text(name, helpers), plain_text(name, source)]
    all_tokens = [tokens_of(name, text) for text in texts]
    for tokens in all_tokens:
        for at, token in enumerate(tokens):
            if token.text == "@":
                attribute = "".join(each.text for each in tokens[at + 1 : at + 2])
                raise refusal(name, f"has the attribute @{attribute}", "remove it; an operator may have no attributes")
            if token.text in _REFUSED:
                raise _may_not(name, _REFUSED[token.text])
        if any(token.text == "var" for _, token in outermost(tokens)):
            raise _may_not(name, "memory of its own (`var` outside a function)")
    check_limits(name, texts, _MIN_ELEMENT_BYTES)
    declared = [word for tokens in all_tokens for word in _declared(tokens)]
    if "combine" not in _declared(all_tokens[1]):
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


def _declared(tokens: Sequence[Token]) -> list[str]:
    """Return the names that a text declares at module scope."""
    found = [tokens[at + 1].text for at, token in outermost(tokens) if token.text in _DECLARES and at + 1 < len(tokens)]
    return found


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


def contained(name: str, source: str, helpers: str, element_bytes: int) -> str:
    """Return the user's WGSL for a shader: plain, with a prefix on its module-scope names, between markers.

    Args:
        name: the operator's name.
        source: the WGSL that declares `combine`.
        helpers: further WGSL.
        element_bytes: size of the type ``Element``.

    Raises:
        OperatorError: its arrays of elements are too large.
    """
    texts = {"helpers": plain_text(name, helpers), "source": plain_text(name, source)}
    check_limits(name, list(texts.values()), element_bytes)
    names = {word for text in texts.values() for word in _declared(tokens_of(name, text))} - {"combine"}
    lines = []
    for part, text in texts.items():
        if text.strip():
            # Rendering joins blank lines, so each one becomes a comment.
            kept = [line.rstrip() or "//" for line in prefixed(name, text, names).split("\n")]
            lines += [_marker(part, name), *kept, _end(name)]
    return "\n".join(lines)


def prefixed(name: str, text: str, names: Collection[str]) -> str:
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
        if token.kind == "name" and token.text in names and not accessed and at not in members:
            pieces += [text[done : token.start], PREFIX]
            done = token.start
    return "".join(pieces) + text[done:]


def _blank_comments(text: str) -> str:
    """Return a text of `contained` without its comments, which are whole lines of ``//``."""
    return re.sub(r"(?m)^//$", "  ", text)


def kept_apart(rendered: str, name: str) -> str:
    """Return a rendered shader in which the user's part can name nothing of gpuscan's, with its loops counted.

    A name that gpuscan declares gets the prefix where the user's text has it. If the user declares it as well, it is
    the user's. If not, it is no name at all, and the compiler says so.

    Args:
        rendered: the whole shader, with the text of `contained`.
        name: the operator's name.
    """
    lines = rendered.split("\n")
    starts = [i for i, line in enumerate(lines) if line in {_marker(part, name) for part in _PARTS}]
    spans = [(start + 1, lines.index(_end(name), start)) for start in starts]
    ours = [line for i, line in enumerate(lines) if not any(a <= i < b for a, b in spans)]
    declaration = r"\b(?:fn|const|alias|struct|override|var\s*(?:<[^>]*>)?)\s+([A-Za-z_]\w*)"
    at_module_scope = "\n".join(line for line in ours if not line.startswith((" ", "//")))
    names = set(re.findall(declaration, at_module_scope)) - {"combine", "Element"}
    texts = [prefixed(name, "\n".join(lines[start:stop]), names) for start, stop in spans]
    loops = any(loop_bodies(name, _blank_comments(text)) for text in texts)
    for (start, stop), text in zip(spans, texts, strict=True):
        lines[start:stop] = (counted(name, text) if loops else text).split("\n")
    return "\n".join(lines)


def counted(name: str, text: str) -> str:
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
    found = re.findall(r"error:\s*([^\n]+)", message)
    return _own_words(found[-1].strip() if found else message.strip())
