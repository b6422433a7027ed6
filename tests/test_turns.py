"""Which cases of a test run on which adapter where software adapters share them."""

from __future__ import annotations

from tests.conftest import has_turn


def test_every_case_runs_on_one_adapter_and_every_test_on_each() -> None:
    adapters = ["first", "second", "third"]
    asked = [("test_many", adapter) for adapter in adapters for _ in range(5)]
    turns = has_turn(asked, adapters)
    first, second, third = turns[:5], turns[5:10], turns[10:]
    assert first == [True, False, False, True, False]
    assert second == [False, True, False, False, True]
    assert third == [False, False, True, False, False]


def test_few_cases_have_several_turns() -> None:
    adapters = ["first", "second", "third"]
    assert has_turn([("test_two", adapter) for adapter in adapters for _ in range(2)], adapters) == [
        *(True, False),
        *(False, True),
        *(True, False),
    ]


def test_single_cases_gpus_and_tests_without_an_adapter_run_everywhere() -> None:
    asked = [("test_one", "second"), ("test_one", "third"), *[("test_many", "gpu")] * 4, *[("test_cpu", None)] * 3]
    assert all(has_turn(asked, ["second", "third"]))
    assert all(has_turn([("test_many", "only")] * 3, []))
    assert all(has_turn([("test_many", "second")] * 3, ["second"]))
