"""Read user WGSL as tokens, from a text that every compiler reads in the same way.

WGSL allows many kinds of blank space, of line break and of letter, and compilers differ in what they know of it. So
the text is first made plain: printable ASCII, spaces and line feeds, without comments. Everything that checks or
changes user WGSL works on the plain text, and the compiler gets the plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpuscan.errors import OperatorError

# Every line break of WGSL's grammar. Each one also ends a `//` comment.
_LINE_BREAK = re.compile("\r\n|[\n\v\f\r\x85\u2028\u2029]")
# The other code points that WGSL's grammar calls blank space.
_BLANK = re.compile("[\t\u200e\u200f]")
_COMMENT = re.compile(r"//|/\*")
_ALLOWED = re.compile(r"[\n -~]*")
_NUMBER = r"(?:0[xX][\da-fA-F]*\.?[\da-fA-F]*(?:[pP][+-]?\d+)?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?:l[iuf]|[iufh])?"
_TOKEN = re.compile(rf"(?P<number>{_NUMBER})|(?P<name>[A-Za-z_]\w*)|(?P<sign>[^\s\w])", re.ASCII)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A word, a number or one sign of a plain text.

    Attributes:
        text: the characters of the token.
        category: ``"name"`` (keywords included), ``"number"`` or ``"sign"``.
        start: the position of its first character in the text.
    """

    text: str
    category: str
    start: int

    @property
    def stop(self) -> int:
        """The position after its last character."""
        return self.start + len(self.text)


def refusal(name: str, matter: str, advice: str) -> OperatorError:
    """Return the error for the WGSL of the operator `name`: what is the matter with it, and what to do."""
    return OperatorError(f"the WGSL of the operator {name!r} {matter}; {advice}")


def plain_text(name: str, text: str) -> str:
    """Return the text in printable ASCII, line for line, with spaces in place of comments.

    Raises:
        OperatorError: a comment does not end, or a character outside comments is not ASCII.
    """
    text = _without_comments(name, _BLANK.sub(" ", _LINE_BREAK.sub("\n", text)))
    for number, line in enumerate(text.split("\n"), 1):
        end = _ALLOWED.match(line).end()  # type: ignore[union-attr]  # the pattern matches the empty string
        if end < len(line):
            raise refusal(
                name,
                f"has the character {line[end]!a} in line {number}, outside comments",
                "write names in ASCII letters, digits and _, and blank space as spaces",
            )
    return text


def _without_comments(name: str, text: str) -> str:
    result: list[str] = []
    done = 0
    # Each search begins where the last comment ended: the slash that closes one comment opens no other.
    while (start := _COMMENT.search(text, done)) is not None:
        result.append(text[done : start.start()])
        if start.group() == "//":
            done = text.find("\n", start.start())
            done = len(text) if done < 0 else done
        else:
            done = _end_of_block(name, text, start.start())
        result.append(re.sub(r"[^\n]", " ", text[start.start() : done]))
    return "".join(result) + text[done:]


def _end_of_block(name: str, text: str, start: int) -> int:
    """Return the position after a ``/* */`` comment; such comments nest."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise refusal(name, "has a comment that does not end", "close it with */")


def tokens_of(name: str, text: str) -> list[Token]:
    """Return the tokens of a plain text.

    Raises:
        OperatorError: a number runs into a word, which compilers may divide in different places.
    """
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        token = Token(match.group(), str(match.lastgroup), match.start())
        if tokens and tokens[-1].category == "number" and token.category != "sign" and tokens[-1].stop == token.start:
            raise refusal(
                name, f"has the malformed number {tokens[-1].text + token.text!r}", "put a space between them"
            )
        tokens.append(token)
    return tokens


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the bracket that closes the one at index `opening`, or the count of tokens."""
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].text in _CLOSING:
            depth += 1
        elif tokens[index].text in _CLOSING.values():
            depth -= 1
            if depth == 0:
                return index
    return len(tokens)


def bracket_depth(name: str, tokens: Sequence[Token]) -> int:
    """Return how deep the brackets nest.

    Raises:
        OperatorError: the brackets do not match.
    """
    expected: list[str] = []
    deepest = 0
    for token in tokens:
        if token.text in _CLOSING:
            expected.append(_CLOSING[token.text])
            deepest = max(deepest, len(expected))
        elif token.text in _CLOSING.values() and (not expected or expected.pop() != token.text):
            raise refusal(name, f"does not compile: a {token.text} closes no bracket", "remove it, or open a bracket")
    if expected:
        raise refusal(name, f"does not compile: a {expected[-1]} is missing", "close every bracket")
    return deepest


def outermost(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside all brackets, each with its index."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.text in _CLOSING:
            depth += 1
        elif token.text in _CLOSING.values():
            depth -= 1
        elif depth == 0:
            yield index, token


class WgslFunction(NamedTuple):
    """A function of a plain text; positions are indices of tokens.

    Attributes:
        name: the function's name.
        start: its first parameter.
        result: the text of the type that it returns; empty if it returns nothing.
        body: the first token of its body.
        stop: the bracket that closes its body.
    """

    name: str
    start: int
    result: str
    body: int
    stop: int


def functions_of(name: str, text: str, tokens: Sequence[Token]) -> list[WgslFunction]:
    """Return the functions that a plain text declares.

    Raises:
        OperatorError: a declaration has no name, no parameters or no body, or stands inside another one.
    """
    functions: list[WgslFunction] = []
    declarations = [index for index, token in outermost(tokens) if token.text == "fn"]
    if len(declarations) != sum(token.text == "fn" for token in tokens):
        raise refusal(name, "does not compile: it has a function inside brackets", "declare it outside of all brackets")
    for index in declarations:
        parameters = index + 2
        after = closing(tokens, parameters) + 1
        body = next((at for at in range(after, len(tokens)) if tokens[at].text in "{;"), len(tokens))
        if (
            parameters >= len(tokens)
            or tokens[index + 1].category != "name"
            or tokens[parameters].text != "("
            or body == len(tokens)
            or tokens[body].text != "{"
        ):
            raise refusal(
                name, "does not compile: a function is not complete", "write fn name(a: type) -> type { ... }"
            )
        arrow = text[tokens[after].start : tokens[body].start].strip()
        result = arrow.removeprefix("->").strip().replace("\n", " ")
        functions.append(WgslFunction(tokens[index + 1].text, parameters + 1, result, body + 1, closing(tokens, body)))
    return functions


LOOPS = frozenset({"for", "while", "loop"})


def loop_bodies(name: str, text: str) -> list[tuple[int, str]]:
    """Return the position after the ``{`` of each loop in a plain text, and the type that its function returns.

    Raises:
        OperatorError: a loop has no body, or stands outside the functions.
    """
    tokens = tokens_of(name, text)
    loops = [index for index, token in enumerate(tokens) if token.text in LOOPS]
    bodies = []
    for function in functions_of(name, text, tokens):
        for index in loops:
            if function.body <= index < function.stop:
                # No expression of WGSL has a curly bracket, so the next one opens the body.
                body = next((at for at in range(index, function.stop) if tokens[at].text == "{"), None)
                if body is not None:
                    bodies.append((tokens[body].stop, function.result))
    if len(bodies) != len(loops):
        raise refusal(name, "does not compile: a loop has no body", "write the body of every loop in { }")
    return bodies
