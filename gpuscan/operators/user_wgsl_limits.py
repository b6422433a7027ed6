"""Bound user WGSL, so that compilers return and do not end the process.

Compilers run in this process and parse by recursion: brackets that nest 10,000 deep overflow their stack.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from gpuscan.operators.user_wgsl_sizes import array_bytes
from gpuscan.operators.user_wgsl_tokens import Token, WgslFunction, bracket_depth, functions_of, refusal, tokens_of

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
# Bytes of all arrays in the variables of one function and of those that it calls. The size of eight elements is
# allowed on top.
MAX_VARIABLE_BYTES = 8192

# Functions and types that reach other invocations or memory outside the operator.
_NOT_ALONE = re.compile(
    r"\w*Barrier|workgroupUniformLoad|subgroup[A-Z]\w*|quad[A-Z]\w*|atomic\w*|texture\w*|dpd[xy]\w*|fwidth\w*"
)
# Types with parameters in ``< >``.
_GENERATOR = re.compile(r"array|ptr|vec[234]|mat[234]x[234]|bitcast")


def check_limits(name: str, texts: Sequence[str], element_bytes: int) -> None:
    """Refuse WGSL that compilers may not survive, and WGSL that no single invocation runs by itself.

    Args:
        name: the operator's name, for messages.
        texts: its source and helpers as plain texts.
        element_bytes: size of the type ``Element``.

    Raises:
        OperatorError: the message says which limit is exceeded, and by how much.
    """

    def at_most(found: int, allowed: int, what: str, advice: str = "shorten or simplify it") -> None:
        if found > allowed:
            raise refusal(name, f"has {found:,} {what}, and {allowed:,} are allowed", advice)

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
        max(_expanded(name, lengths, called).values(), default=0),
        MAX_EXPANDED_TOKENS,
        "words and signs, those of the functions that are called included",
        "call fewer functions, or call them in a loop",
    )
    largest, variables = array_bytes(name, all_tokens, all_functions, element_bytes)
    at_most(largest, MAX_ARRAY_BYTES + 2 * element_bytes, "bytes in one array or struct", "use a smaller one")
    at_most(
        max(_expanded(name, variables, called).values(), default=0),
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
        if tokens[index].kind == "name" and tokens[index + 1].text == "("
    )


def _expanded(name: str, own: Mapping[str, int], called: Mapping[str, Counter[str]]) -> dict[str, int]:
    """Return the sum of `own` over each function and, once for each call, over the functions that it calls.

    Raises:
        OperatorError: a function calls itself.
    """
    totals: dict[str, int] = {}
    waiting = list(own)
    while waiting:
        ready = [each for each in waiting if all(word in totals or word not in own for word in called[each])]
        if not ready:
            raise refusal(name, f"does not compile: {waiting[0]} calls itself", "write a loop")
        for each in ready:
            calls = called[each].items()
            totals[each] = own[each] + sum(count * totals[word] for word, count in calls if word in own)
        waiting = [each for each in waiting if each not in totals]
    return totals
