"""The strategy for each kind of adapter, and why."""

from __future__ import annotations

import re

import pytest

from gpuscan.errors import StrategyError
from gpuscan.planning.heuristics import CPU, GPU
from gpuscan.planning.strategies import STRATEGIES, check_strategy, choose_strategy, starts_in_order, unsafe_reason
from tests.fakes import capabilities


@pytest.mark.parametrize(
    ("changes", "strategy", "because"),
    [
        ({}, "lookback", "make progress"),
        ({"vendor": "AMD", "adapter_type": "IntegratedGPU"}, "lookback", "make progress"),
        ({"vendor": "Intel"}, "lookback", "make progress"),
        ({"vendor": "Intel", "adapter_type": "IntegratedGPU"}, "fallback", "nothing published.*Intel"),
        ({"vendor": "Apple", "adapter_type": "IntegratedGPU"}, "fallback", "nothing published.*Apple"),
        ({"vendor": "ARM", "adapter_type": "IntegratedGPU"}, "fallback", "nothing published.*ARM"),
        ({"vendor": "Qualcomm", "adapter_type": "IntegratedGPU"}, "fallback", "nothing published.*Qualcomm"),
        ({"vendor": "A new one"}, "fallback", "nothing published.*A new one"),
        ({"progress_earlier": False}, "fallback", "made no progress"),
        ({"distrusted": ("lookback",)}, "fallback", "ran out of time"),
        ({"distrusted": ("lookback", "fallback")}, "three_dispatch", "no fallback: it ran out of time"),
        ({"distrusted": ("lookback", "fallback", "three_dispatch")}, "three_dispatch", "ask nothing"),
        ({"vendor": "Mesa", "adapter_type": "CPU"}, "three_dispatch", "ask nothing"),
        ({"vendor": "Google", "adapter_type": "CPU", "progress_earlier": False}, "three_dispatch", "ask nothing"),
    ],
)
def test_auto(changes, strategy, because):
    """Assert that litmus tests come first, then what is published, then what happened on this adapter."""
    found = capabilities(**({"progress_later": False} | changes))  # so look-ahead is out
    choice = choose_strategy(found)
    assert choice.strategy == strategy
    assert re.search(because, choice.reason)
    assert unsafe_reason(choice.strategy, found) is None


@pytest.mark.parametrize(("later", "strategy"), [(True, "lookahead"), (False, "lookback")])
def test_lookahead_needs_later_workgroups(later, strategy):
    """Assert that look-ahead is the first choice on a GPU where later workgroups start."""
    assert choose_strategy(capabilities(progress_later=later)).strategy == strategy


@pytest.mark.parametrize(("tiles", "strategy"), [(1, "lookahead"), (300, "lookback"), (5000, "lookahead")])
def test_a_few_hundred_tiles_are_looked_back(tiles, strategy):
    choice = choose_strategy(capabilities(progress_later=True), tiles)
    assert choice.strategy == strategy
    assert strategy == "lookahead" or "so few" in choice.reason
    distrusted = capabilities(progress_later=True, distrusted=("lookback",))
    assert choose_strategy(distrusted, tiles).strategy == "fallback"  # look-ahead rests on more than look-back


def test_tiles_go_by_number_where_that_is_published():
    """Assert that tiles are numbered by workgroup if this order is published and was seen."""
    assert starts_in_order(capabilities())
    assert not starts_in_order(capabilities(distrusted=("lookahead",)))  # another order may have caused the timeouts
    assert not starts_in_order(capabilities(starts_in_order=False))
    assert not starts_in_order(capabilities(vendor="AMD"))


def test_unsafe():
    """Assert that the strategies that the probe saw fail are refused, and no others."""
    good = capabilities()
    assert all(unsafe_reason(strategy, good) is None for strategy in STRATEGIES)

    stalls = capabilities(progress_earlier=False)
    assert [strategy for strategy in STRATEGIES if unsafe_reason(strategy, stalls)] == ["lookahead", "lookback"]

    shares = capabilities(progress_later=False, started_while_spinning=257)
    assert [strategy for strategy in STRATEGIES if unsafe_reason(strategy, shares)] == ["lookahead"]
    assert "only 257 of 8192 workgroups" in str(unsafe_reason("lookahead", shares))


def test_unknown_strategy():
    """Assert that the message lists the strategies."""
    with pytest.raises(StrategyError, match=r"'quick'.*auto, lookahead, lookback, fallback, three_dispatch"):
        check_strategy("quick")


def test_the_tables_name_strategies():
    """Assert that the table names only strategies that exist: a misspelt entry would never be chosen."""
    for order in (GPU.strategy_order, CPU.strategy_order):
        assert set(order) <= set(STRATEGIES)
        assert "three_dispatch" in order  # the one that is safe everywhere
