"""Which cases of a test run on which adapter where software adapters share them."""

from __future__ import annotations

from tests.conftest import has_turn


def test_every_case_runs_on_the_first_adapter_and_on_one_of_the_others() -> None:
    adapters = ["first", "second", "third"]
    asked = [("test_many", adapter) for adapter in adapters for _ in range(5)]
    turns = has_turn(asked, adapters[1:])
    assert turns == [True] * 5 + [True, False, True, False, True] + [False, True, False, True, False]


def test_few_cases_gpus_and_tests_without_an_adapter_run_everywhere() -> None:
    asked = [("test_one", "second"), ("test_one", "third"), *[("test_many", "gpu")] * 4, *[("test_cpu", None)] * 3]
    assert all(has_turn(asked, ["second", "third"]))
    assert all(has_turn([("test_many", "only")] * 3, []))
    assert all(has_turn([("test_many", "second")] * 3, ["second"]))
