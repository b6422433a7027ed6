"""The functions of shaders/shared/arithmetic.wgsl: arithmetic with NumPy's meaning where WGSL has none or another."""

from __future__ import annotations

import re
from functools import cache

from gpuscan import templates


class _Everything:
    """Contains every name: renders all of arithmetic.wgsl."""

    def __contains__(self, name: object) -> bool:
        return True


@cache
def arithmetic_functions() -> dict[str, str]:
    """Return the text of each function of shaders/shared/arithmetic.wgsl by its name, in the order of the file."""
    text = templates.render("shared/arithmetic.wgsl", helpers=_Everything())
    bodies = re.findall(r"^fn (\w+)(.*?^\})", text, flags=re.MULTILINE | re.DOTALL)
    return {name: "fn " + name + body for name, body in bodies}


@cache
def _direct(name: str) -> frozenset[str]:
    return _called(arithmetic_functions()[name]) - {name}


def _called(source: str) -> frozenset[str]:
    # WGSL's own functions have no underscore in their names, so most operators need no look at the library.
    named = frozenset(re.findall(r"\b\w+_\w+(?=\()", source))
    return named & arithmetic_functions().keys() if named else named


def helpers_of(source: str) -> tuple[str, ...]:
    """Return the names of the functions of arithmetic.wgsl that a WGSL text calls, directly or through others."""
    needed: set[str] = set()
    waiting = set(_called(source))
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= _direct(name) - needed
    return tuple(name for name in arithmetic_functions() if name in needed) if needed else ()
