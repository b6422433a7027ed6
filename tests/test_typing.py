"""What type checkers see. script/test lets mypy read tests/typing, which has the types of results and wrong calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_args, get_overloads, is_typeddict

import pytest

import gpuscan
from gpuscan.api import annotations as public_types
from gpuscan.api.counting import Side
from gpuscan.api.loop import Method
from gpuscan.api.selecting import QuantileMethod
from gpuscan.errors import StrategyError
from gpuscan.planning.strategies import STRATEGIES, Strategy, check_strategy


def find_overloads() -> dict[str, Callable[..., Any]]:
    """Return the public functions that have overloads, by their names."""
    functions = {name: getattr(gpuscan, name) for name in gpuscan.__all__ if inspect.isfunction(getattr(gpuscan, name))}
    return {name: each for name, each in functions.items() if get_overloads(inspect.unwrap(each))}


@pytest.mark.parametrize("name", sorted(find_overloads()))
def test_overloads_take_what_the_function_takes(name: str) -> None:
    """Compare a function's argument names with the argument names of all its overloads together."""
    function = inspect.unwrap(getattr(gpuscan, name))
    known: set[str] = set()
    for each in get_overloads(function):
        for parameter in inspect.signature(each).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                known.add(parameter.name)
                continue
            options = getattr(public_types, re.fullmatch(r"Unpack\[(\w+)\]", parameter.annotation)[1])  # type: ignore[index]
            assert is_typeddict(options)
            known |= options.__optional_keys__
    wanted = set(inspect.signature(function).parameters)
    if name == "map":
        wanted |= {"x", "y", "z"}  # the first of *arrays
    assert known == wanted


def test_names_of_choices_are_those_that_are_taken() -> None:
    """Assert that the functions take the values that a type checker accepts."""
    for strategy in get_args(Strategy):
        check_strategy(strategy)
    assert set(get_args(Strategy)) == {"auto", *STRATEGIES}
    with pytest.raises(StrategyError):
        check_strategy("look-back")
    x = [3.0, 1.0, 2.0]
    assert [gpuscan.searchsorted([1, 2, 2], 2, side=side, device="numpy") for side in get_args(Side)] == [1, 3]
    for method in get_args(QuantileMethod):
        assert 1 <= gpuscan.quantile(x, 0.4, method=method, device="numpy") <= 3
    for method in get_args(Method):
        carry, _ = gpuscan.loop(lambda h, v: 0.5 * h + v, 0.0, x, method=method, device="numpy")
        assert carry == pytest.approx(3.25)
