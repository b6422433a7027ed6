"""What an operator's WGSL may be: bounds within which compilers come back, and the loops whose turns are counted.

Compilers parse by recursion and run in this process: brackets 10,000 deep overflow their stack and end it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gpuscan.errors import OperatorError

LONGEST_TEXT = 1 << 16  # characters
DEEPEST_BRACKETS = 64
LONGEST_STATEMENT = 4000  # words and signs between two of ; { }
MOST_STATEMENTS = 2000
MOST_BRANCHES = 256  # `else`
MOST_CALLS = 2000  # of functions of the operator's own, as many as compilers would copy in
ARRAY_BYTES = 1024  # of one array or struct
ARRAYS_BYTES = 8192  # of all arrays that functions name

NAME = r"[^\W\d]\w*"
_TOKEN = re.compile(rf"\d[\w.]*|{NAME}|\S")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_TOGETHER = re.compile(  # what an invocation does not do alone
    r"(?:\w*Barrier|workgroupUniformLoad|subgroup[A-Z]\w*|quad[A-Z]\w*|atomic\w*|texture\w*|dpd[xy]\w*|fwidth\w*)"
)


def uncommented(text: str, *, keep_lines: bool = False) -> str:
    """The text with blanks for its comments, line for line; `keep_lines` leaves those that begin with ``//``.

    WGSL ends a line, and so a comment, at more characters than the line feed, and lets ``/* */`` nest.

    Raises:
        OperatorError: a comment does not end.
    """
    text = "\n".join((text + "\n").splitlines())
    result: list[str] = []
    at = 0
    for start in re.finditer(r"//|/\*", text):
        if start.start() < at:
            continue
        end = text.find("\n", start.start()) if start.group() == "//" else _end_of_block(text, start.start())
        end = len(text) if end < 0 else end
        comment = text[start.start() : end]
        kept = keep_lines and start.group() == "//"
        result += [text[at : start.start()], comment if kept else re.sub(r"[^\n]", " ", comment)]
        at = end
    return "".join(result) + text[at:]


def _end_of_block(text: str, start: int) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise OperatorError("a comment in an operator's WGSL does not end; close it with */")


def tokens_of(text: str) -> list[str]:
    """Words, numbers and signs of a text without comments."""
    return _TOKEN.findall(text)


def check_limits(name: str, texts: Sequence[str]) -> None:
    """Refuses what compilers may not survive, and what no single invocation does.

    Raises:
        OperatorError: says which bound, and by how much.
    """

    def most(found: int, allowed: int, what: str) -> None:
        if found > allowed:
            raise OperatorError(f"the WGSL of the operator {name!r} has {found:,} {what}; {allowed:,} are allowed")

    most(sum(map(len, texts)), LONGEST_TEXT, "characters")
    for text in texts:
        tokens = tokens_of(uncommented(text))
        most(_deepest(name, tokens), DEEPEST_BRACKETS, "brackets in each other")
        most(_longest_statement(tokens), LONGEST_STATEMENT, "words and signs in one statement")
        most(tokens.count(";"), MOST_STATEMENTS, "statements")
        most(tokens.count("else"), MOST_BRANCHES, "branches (else)")
        for token in tokens:
            if _TOGETHER.fullmatch(token):
                raise OperatorError(
                    f"the WGSL of the operator {name!r} uses {token}; an operator combines two elements by itself, "
                    "without memory or other invocations"
                )
    clean = "\n".join(map(uncommented, texts))
    most(_calls(name, clean), MOST_CALLS, "calls, those in the functions that are called included")
    largest, together = _array_bytes(name, clean)
    most(largest, ARRAY_BYTES, "bytes in one array or struct")
    most(together, ARRAYS_BYTES, "bytes in all arrays together")


def _deepest(name: str, tokens: Sequence[str]) -> int:
    open_: list[str] = []
    deepest = 0
    for token in tokens:
        if token in _OPENING:
            open_.append(_OPENING[token])
            deepest = max(deepest, len(open_))
        elif token in _OPENING.values() and (not open_ or open_.pop() != token):
            raise OperatorError(f"the WGSL of the operator {name!r} does not compile: a {token} closes no bracket")
    if open_:
        raise OperatorError(f"the WGSL of the operator {name!r} does not compile: a {open_[-1]} is missing")
    return deepest


def _longest_statement(tokens: Sequence[str]) -> int:
    longest = length = 0
    for token in tokens:
        length = 0 if token in (";", "{", "}") else length + 1
        longest = max(longest, length)
    return longest


# ----- Functions


def functions_of(text: str) -> list[tuple[str, str, int, int]]:
    """Each function: its name, the type it returns (or nothing), and where its body begins and ends."""
    found = []
    for match in re.finditer(rf"\bfn\s+({NAME})\s*\(", text):
        start = _closing(text, match.end() - 1)
        body = text.find("{", start)
        if body < 0:
            continue
        arrow = text[start + 1 : body].strip()
        found.append((match.group(1), arrow.removeprefix("->").strip(), body + 1, _closing(text, body)))
    return found


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at `opening` is closed."""
    depth = 0
    for mark in re.compile(r"[()\[\]{}]").finditer(text, opening):
        depth += 1 if mark.group() in _OPENING else -1
        if depth == 0:
            return mark.start()
    return len(text)


def loop_bodies(text: str) -> list[tuple[int, str]]:
    """Where the body of each loop begins, and the type that its function returns; the text has no comments."""
    bodies = []
    for _, result, start, stop in functions_of(text):
        for loop in re.compile(r"(?<![.\w])(?:for|while|loop)\b").finditer(text, start, stop):
            at = loop.end()
            if loop.group() == "for":
                at = _closing(text, text.find("(", at))
            body = _body(text, at)
            if 0 <= body < stop:
                bodies.append((body + 1, result))
    return bodies


def _body(text: str, start: int) -> int:
    """The next ``{`` outside round and square brackets."""
    depth = 0
    for mark in re.compile(r"[()\[\]{]").finditer(text, start):
        if mark.group() == "{" and depth <= 0:
            return mark.start()
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(mark.group(), 0)
    return -1


def _calls(name: str, text: str) -> int:
    """How many calls `combine` comes to once every call is written out."""
    functions = {each: text[start:stop] for each, _, start, stop in functions_of(text)}
    called = {
        each: Counter(word for word in re.findall(rf"({NAME})\s*\(", body) if word in functions)
        for each, body in functions.items()
    }
    totals: dict[str, int] = {}
    waiting = list(functions)
    while waiting:
        missing = [each for each in waiting if all(other in totals for other in called[each])]
        if not missing:
            raise OperatorError(
                f"the WGSL of the operator {name!r} does not compile: {waiting[0]} calls itself; write a loop"
            )
        for each in missing:
            totals[each] = sum(count * (1 + totals[other]) for other, count in called[each].items())
        waiting = [each for each in waiting if each not in totals]
    return max(totals.values(), default=0)


# ----- Arrays


def _array_bytes(name: str, text: str) -> tuple[int, int]:
    """Bytes of the largest array or struct, and of all types with arrays that functions name together."""
    numbers = dict(re.findall(rf"\bconst\s+({NAME})\s*(?::\s*\w+\s*)?=\s*(\w+)\s*;", text))
    named: dict[str, str] = dict(re.findall(rf"\balias\s+({NAME})\s*=([^;]*);", text))
    named |= dict(re.findall(rf"\bstruct\s+({NAME})\s*\{{([^}}]*)\}}", text))
    known: dict[str, tuple[int, int]] = {}
    largest = 0

    def count(length: str) -> int:
        value = numbers.get(length, length)
        if not re.fullmatch(r"(?:0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)[iu]?", value):
            raise OperatorError(
                f"the WGSL of the operator {name!r} has an array of {length!r} entries; write their number, or a "
                "constant that is a number"
            )
        return int(value.rstrip("iu"), 0)

    def measured(types: str, depth: int = 0) -> tuple[int, int]:
        """Bytes of the arrays, and of all, that the types in a text have together; of a name what it stands for."""
        nonlocal largest
        if depth > DEEPEST_BRACKETS:
            raise OperatorError(f"the WGSL of the operator {name!r} has types in types, over {DEEPEST_BRACKETS} deep")
        arrays = whole = at = 0
        for match in re.finditer(NAME, types):
            word, rest = match.group(), types[match.end() :].lstrip()
            if match.start() < at:
                continue
            if word == "array" and rest.startswith("("):
                opening = types.index("(", match.end())
                found = 4 + 4 * types.count(",", opening, _closing(types, opening))
                arrays, whole = arrays + found, whole + found
            elif word == "array" and rest.startswith("<"):
                inner, at = _template(types, types.index("<", match.end()))
                entry, _, length = inner.rstrip(", ").rpartition(",")
                if not entry:
                    raise OperatorError(f"the WGSL of the operator {name!r} has an array without a length")
                found = max(measured(entry, depth + 1)[1], _scalar_bytes(entry.strip())) * count(length.strip())
                arrays, whole = arrays + found, whole + found
            elif word in named:
                if word not in known:
                    known[word] = 0, 0  # of a type in itself, which the compiler refuses
                    inside = measured(named[word], depth + 1)
                    members = [w for w in re.findall(rf":\s*({NAME})", named[word]) if w not in (*named, "array")]
                    known[word] = inside[0], inside[1] + sum(map(_scalar_bytes, members))
                found = known[word][1]
                arrays, whole = arrays + known[word][0], whole + found
            else:
                continue
            largest = max(largest, found)
        return arrays, whole

    measured(text)
    together = sum(measured(text[start:stop])[0] for _, _, start, stop in functions_of(text))
    return largest, together


def _scalar_bytes(word: str) -> int:
    if word in ("u32", "i32", "f32", "bool"):
        return 4
    if word in ("u64", "i64", "f64") or word.startswith("vec2"):
        return 8
    return 64 if word.startswith("mat") else 16


def _template(text: str, opening: int) -> tuple[str, int]:
    """What stands between ``<`` and its ``>``, and where it ends."""
    depth = 0
    for mark in re.compile(r"[<>;{]").finditer(text, opening):
        if mark.group() in ";{":
            break
        depth += 1 if mark.group() == "<" else -1
        if depth == 0:
            return text[opening + 1 : mark.start()], mark.end()
    return "", len(text)
