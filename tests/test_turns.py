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


def test_few_cases_of_tests_of_adapters_have_several_turns() -> None:
    for folder in ("engine", "operators"):
        test = f"tests/{folder}/test_rows.py::test_two"
        assert has_turn([(test, adapter) for adapter in ADAPTERS for _ in range(2)], ADAPTERS) == [
            *(True, False),
            *(False, True),
            *(True, False),
        ]
    assert all(has_turn([("tests/engine/test_rows.py::test_one", adapter) for adapter in ADAPTERS], ADAPTERS))


def test_few_cases_of_other_tests_run_once() -> None:
    """Assert that each case runs on one adapter, and that tests begin with different ones."""
    for count in (1, 2):
        begun = set()
        for name in map(str, range(20)):
            turns = has_turn([(name, adapter) for adapter in ADAPTERS for _ in range(count)], ADAPTERS)
            of_cases = [turns[case::count] for case in range(count)]
            assert all(each.count(True) == 1 for each in of_cases)
            assert len({each.index(True) for each in of_cases}) == count
            begun.add(of_cases[0].index(True))
        assert begun == {0, 1, 2}


def test_a_single_case_of_generated_code_runs_on_each_backend() -> None:
    names = [f"tests/operators/test_{number}.py::test_one" for number in range(20)]
    turns = {tuple(has_turn([(name, adapter) for adapter in ADAPTERS], ADAPTERS)) for name in names}
    assert turns == {(True, True, False), (False, True, True)}


def test_a_test_that_not_all_are_asked_for_is_shared_by_the_others() -> None:
    two = list(ADAPTERS)[:2]
    assert has_turn([("test_many", adapter) for adapter in two for _ in range(3)], ADAPTERS) == [
        *(True, False, True),
        *(False, True, False),
    ]
    for number in range(4):
        test = f"tests/operators/test_{number}.py::test_one"
        assert has_turn([(test, adapter) for adapter in two], ADAPTERS) == [True, True]


def test_gpus_and_tests_without_an_adapter_run_everywhere() -> None:
    asked = [*[("test_many", "gpu")] * 4, *[("test_cpu", None)] * 3]
    assert all(has_turn(asked, {"second": "OpenGL", "third": "Vulkan"}))
    assert all(has_turn([("test_many", "only")] * 3, {}))
    assert all(has_turn([("test_many", "second")] * 3, {"second": "OpenGL"}))
