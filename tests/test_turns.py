"""Which cases of a test run on which adapter where software adapters share them."""

from __future__ import annotations

from tests.conftest import has_turn

ADAPTERS = {"first": "Vulkan", "second": "OpenGL", "third": "Vulkan"}


def test_every_case_runs_on_one_adapter_and_every_test_on_each() -> None:
    asked = [("test_many", adapter) for adapter in ADAPTERS for _ in range(5)]
    turns = has_turn(asked, ADAPTERS)
    first, second, third = turns[:5], turns[5:10], turns[10:]
    assert first == [True, False, False, True, False]
    assert second == [False, True, False, False, True]
    assert third == [False, False, True, False, False]


def test_few_cases_have_several_turns() -> None:
    assert has_turn([("test_two", adapter) for adapter in ADAPTERS for _ in range(2)], ADAPTERS) == [
        *(True, False),
        *(False, True),
        *(True, False),
    ]


def test_a_single_case_runs_on_each_backend() -> None:
    """Assert that adapters of one backend share the tests of one case, but not the tests of adapters."""
    turns = {name: has_turn([(name, adapter) for adapter in ADAPTERS], ADAPTERS) for name in map(str, range(20))}
    assert {tuple(each) for each in turns.values()} == {(True, True, False), (False, True, True)}
    assert all(has_turn([("tests/engine/test_rows.py::test_one", adapter) for adapter in ADAPTERS], ADAPTERS))


def test_gpus_and_tests_without_an_adapter_run_everywhere() -> None:
    asked = [("test_one", "second"), ("test_one", "third"), *[("test_many", "gpu")] * 4, *[("test_cpu", None)] * 3]
    assert all(has_turn(asked, {"second": "OpenGL", "third": "Vulkan"}))
    assert all(has_turn([("test_many", "only")] * 3, {}))
    assert all(has_turn([("test_many", "second")] * 3, {"second": "OpenGL"}))
