"""The matrix around the suite: cases, cells, files, merging, and the matrix. No GPU."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import gpuscan
from gpuscan import cli
from gpuscan.errors import StrategyError
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.tools.matrix import columns as matrix
from gpuscan.tools.matrix import command, conformance
from gpuscan.tools.matrix.conformance import ELEMENTS, LAYOUTS, OPERATORS, SORTS, Case, Outcome, suite
from tests.fakes import capabilities
from tests.oracle import assert_same, one_by_one
from tests.tools.command_line import fails

CASE = Case("auto", "uint32", "add", "inclusive", 33)
DEVICE: Any = SimpleNamespace(capabilities=capabilities())


# ----- The suite


@pytest.mark.parametrize("quick", [True, False])
def test_every_feature_has_its_cases(quick: bool) -> None:
    cases = suite(quick)
    assert len(set(cases)) == len(cases)
    found = {kind: {case.features()[kind] for case in cases} for kind in cases[0].features()}
    assert found["strategy"] == {"auto", *STRATEGIES}
    assert found["element"] == set(ELEMENTS)
    assert found["operator"] == {*OPERATORS, *SORTS}
    assert found["layout"] == set(LAYOUTS)


def test_the_full_suite_has_every_element_under_every_strategy_in_every_layout() -> None:
    cases = {(case.strategy, case.element, case.layout) for case in suite()}
    assert len(cases) == (1 + len(STRATEGIES)) * len(ELEMENTS) * len(LAYOUTS)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("layout", ["inclusive", "exclusive", "rows, exclusive, reverse", "backwards view", "columns"])
def test_the_expected_result_is_the_definition(name: str, layout: str) -> None:
    element = OPERATORS[name].elements[-1]
    x, options, expected = conformance._inputs_of(element, name, layout, 70)
    fields = x if isinstance(x, tuple) else (x,)
    combine = OPERATORS[name].combine
    if options.get("exclusive") and "initial" not in options:
        options = options | {"initial": conformance._identity(name, fields)}
    elif "initial" in options and not isinstance(options["initial"], tuple):
        options = options | {"initial": (options["initial"],)}
    wanted = one_by_one(combine if len(fields) > 1 else lambda l, r: (combine(l[0], r[0]),), fields, **options)
    for found, right in zip(expected, wanted, strict=True):
        if OPERATORS[name].tolerance:
            np.testing.assert_allclose(found, right, rtol=OPERATORS[name].tolerance)
        else:
            assert_same(found, right)


@pytest.mark.parametrize("element", ["float16", "float32", "float64", "complex64"])
def test_sums_of_floats_are_exact(element: str) -> None:
    given, _, (expected,) = conformance._inputs_of(element, "add", "inclusive", 5_000)
    x = np.asarray(given)
    backwards = np.add.accumulate(x[::-1].astype(np.complex128))[::-1]  # of the rest: another order of additions
    np.testing.assert_array_equal(expected.astype(np.complex128) + backwards - x, np.full(5_000, backwards[0]))


# ----- The status of a case


def outcome_of(monkeypatch: pytest.MonkeyPatch, scan: Any, case: Case = CASE) -> Outcome:
    monkeypatch.setattr(gpuscan, "scan", scan)
    return conformance.check(DEVICE, case)


def test_a_right_result_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(monkeypatch, lambda x, op, **_: np.cumsum(x, dtype=np.uint32))
    assert outcome == Outcome(CASE, "passed")


def test_one_wrong_element_fails_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(x: Any, op: Any, **_: Any) -> Any:
        result = np.cumsum(x, dtype=np.uint32)
        result[7] ^= 1
        return result

    outcome = outcome_of(monkeypatch, scan)
    assert outcome.status == "failed"
    assert "1 of 33 differ, first at (7,)" in outcome.detail


def test_a_wrong_dtype_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_of(monkeypatch, lambda x, op, **_: np.cumsum(x, dtype=np.uint64))
    assert (outcome.status, "found uint64" in outcome.detail) == ("failed", True)


@pytest.mark.parametrize(
    ("error", "status"), [(StrategyError("unsafe"), "refused"), (RuntimeError("device lost"), "failed")]
)
def test_errors(monkeypatch: pytest.MonkeyPatch, error: Exception, status: str) -> None:
    def scan(*_: Any, **__: Any) -> Any:
        raise error

    outcome = outcome_of(monkeypatch, scan)
    assert outcome.status == status
    assert str(error) in outcome.detail


def test_nan_and_tolerance() -> None:
    nan = np.array([1.0, np.nan], np.float32)
    assert conformance._difference(nan, nan.copy(), 0.0) is None
    assert conformance._difference(nan, np.array([1.0, 2.0], np.float32), 0.5) is not None
    assert conformance._difference(nan + np.float32(1e-5), nan, 1e-4) is None
    assert conformance._difference(nan + np.float32(1e-3), nan, 1e-4) is not None
    infinite = np.array([-np.inf, 2.0], np.float32)
    assert conformance._difference(infinite, infinite.copy(), 1e-4) is None
    assert conformance._difference(np.array([-9e9, 2.0], np.float32), infinite, 1e-4) is not None


# ----- Columns


@pytest.fixture
def column(monkeypatch: pytest.MonkeyPatch) -> matrix.Column:
    """Return a run with one failed case and one refused."""
    statuses = {"lookback": "refused", "fallback": "failed"}
    monkeypatch.setattr(matrix, "check", lambda _, case: Outcome(case, statuses.get(case.strategy, "passed"), "so"))
    cases = [replace(CASE, strategy=strategy) for strategy in ("auto", "lookback", "fallback", "three_dispatch")]
    return matrix.run_column(DEVICE, cases, "quick")


def test_a_column_counts(column: matrix.Column) -> None:
    assert column.cells["element"] == {"uint32": matrix.Cell(2, 3, 1)}
    assert {name: str(cell) for name, cell in column.cells["strategy"].items()} == {
        "auto": "1/1",
        "lookback": "refused",
        "fallback": "0/1",
        "three_dispatch": "1/1",
    }
    assert (column.total, column.failed) == (matrix.Cell(2, 3, 1), True)
    assert column.failures == ("fallback, add of uint32, inclusive, 33 elements: so",)


def test_a_column_in_which_nothing_ran_has_failed(column: matrix.Column) -> None:
    assert replace(column, cells={}).failed


def test_files_come_back(column: matrix.Column, tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(matrix.to_json([column]), encoding="utf-8")
    assert matrix.read_columns(path) == [column]


def test_a_column_goes_on_where_it_was(column: matrix.Column, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run only the cases that the column lacks. A column of another version is not continued."""
    ran: list[Case] = []

    def passes(_: Any, case: Case) -> Outcome:
        ran.append(case)
        return Outcome(case, "passed")

    monkeypatch.setattr(matrix, "check", passes)
    new = [replace(CASE, size=34), replace(CASE, size=35)]
    so_far: list[str] = []
    cases = [*sorted(column.cases, key=str), *new]
    more = matrix.run_column(
        DEVICE, cases, "full", lambda _, so: so_far.append(so.suite), matrix.find_column([column], DEVICE)
    )
    assert (ran, so_far, more.suite) == (new, ["part of the full"] * 2, "full")
    assert (more.total, more.cases) == (matrix.Cell(4, 5, 1), column.cases | set(new))
    assert (
        matrix.find_column(
            [replace(column, version="gpuscan 0.0.1, wgpu 0.1"), replace(column, cases=frozenset())], DEVICE
        )
        is None
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "other", "columns": []}',
        '{"format": "gpuscan matrix 1", "columns": [{}]}',
        '{"format": "gpuscan matrix 1", "columns": [{"cells": {"op": {"add": {"passed": 1e400}}}}]}',
    ],
)
def test_foreign_files_are_our_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="is not a file that"):
        matrix.read_columns(path)


def test_merging_keeps_the_latest_run_of_an_adapter(column: matrix.Column) -> None:
    older = replace(column, date="2020-01-01", suite="full")
    dawn = replace(column, implementation="Dawn")
    assert matrix.merge_columns([column, older, dawn]) == [column, dawn]
    assert matrix.merge_columns([older, column]) == [column]
    assert matrix.merge_columns([column, replace(column, cases=frozenset())]) == [column]


# ----- Tables


def test_the_tables_show_every_cell(column: matrix.Column) -> None:
    other = replace(column, adapter="Other", cells={"strategy": {"auto": matrix.Cell(5, 5)}}, failures=())
    text = matrix.markdown([column, other])
    assert "| fallback | **0/1** | – |" in text
    assert "| auto | 1/1 | 5/5 |" in text
    assert "| lookback | refused | – |" in text
    assert "| **all** | **2/3 (1 refused)** | **5/5** |" in text
    assert "- 1: fallback, add of uint32" in text
    output = io.StringIO()
    Console(width=80, file=output).print(*matrix.table([column, other]), sep="\n")
    shown = output.getvalue()
    assert all(word in shown for word in ("1. GeForce", "2. Other", "0/1", "5/5", "refused"))
    (total,) = (line for line in shown.splitlines() if line.startswith(" all"))
    assert total.split() == ["all", "2/3", "-1", "5/5"]
    assert max(map(len, shown.splitlines())) <= 80


def test_sizes_stand_in_order(column: matrix.Column) -> None:
    cells = {"size": {size: matrix.Cell(1, 1) for size in ("1,000", "2", "33")}}
    assert [feature for _, feature, _ in matrix.rows([replace(column, cells=cells)])] == ["2", "33", "1,000"]


# ----- The command


def test_the_command_merges_and_tells_failure(column: matrix.Column, tmp_path: Path, capsys: Any) -> None:
    good = replace(column, cells={"strategy": {"auto": matrix.Cell(5, 5)}}, failures=(), implementation="Dawn")
    for name, runs in (("bad", [column]), ("good", [good])):
        (tmp_path / f"{name}.json").write_text(matrix.to_json(runs), encoding="utf-8")
    bad, fine, both = (str(tmp_path / f"{name}.json") for name in ("bad", "good", "both"))
    assert cli.run(["matrix", "--merge", fine, "--markdown", str(tmp_path / "matrix.md")]) == 0
    assert "| auto | 5/5 |" in (tmp_path / "matrix.md").read_text(encoding="utf-8")
    assert cli.run(["matrix", "--merge", bad, fine, "--json", both]) == 1
    assert len(json.loads(Path(both).read_text(encoding="utf-8"))["columns"]) == 2
    assert cli.run(["matrix", "--merge"]) == 2
    assert cli.run(["matrix", fine]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Keep what has run when Ctrl-C comes, and run the rest the next time."""
    cases = [replace(CASE, size=size) for size in range(5)]
    ran: list[int] = []
    tried: set[int] = set()

    def check(_: Any, case: Case) -> Outcome:
        if case.size == 3 and 3 not in tried:
            tried.add(3)
            raise KeyboardInterrupt
        ran.append(case.size)
        return Outcome(case, "passed")

    path = tmp_path / "runs.json"
    monkeypatch.setattr(matrix, "check", check)
    monkeypatch.setattr(command, "suite", lambda quick: cases)
    monkeypatch.setattr(command, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(gpuscan, "devices", lambda: [DEVICE])
    assert cli.run(["matrix", "--add", str(path)]) != 0
    assert [(len(column.cases), column.suite) for column in matrix.read_columns(path)] == [(3, "part of the full")]
    assert cli.run(["matrix", "--add", str(path)]) == 0
    assert ran == [0, 1, 2, 3, 4]
    assert [(len(column.cases), column.suite) for column in matrix.read_columns(path)] == [(5, "full")]
    assert cli.run(["matrix", "--add", str(path), "--merge", str(path)]) == 2


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_a_matrix_that_cannot_be_written(files, capsys, monkeypatch, option):
    """Keep the old file, and leave no partial file."""

    def rename(*_):
        raise OSError(28, "No space left on device")

    Path("runs.json").write_text(matrix.to_json([]), encoding="utf-8")
    Path("old").write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "replace", rename)
    code, err = fails(capsys, "matrix", "--merge", "runs.json", option, "old")
    assert (code, "old cannot be written: No space left on device" in err) == (1, True)
    assert Path("old").read_text(encoding="utf-8") == "old"
    assert sorted(os.listdir()) == ["in.npy", "old", "runs.json"]
