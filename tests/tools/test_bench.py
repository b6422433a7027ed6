"""The benchmarks' inputs, checks, tables and peers. test_bench_on_adapters.py has what runs on adapters."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from gpuscan import cli
from gpuscan.errors import GpuscanError
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.tools.bench import results, timing
from gpuscan.tools.bench.cases import SORT, Inputs, ScanCase, takes
from gpuscan.tools.bench.command import Request
from gpuscan.tools.bench.contenders import Contender, Unsupported, measure, run_suite
from gpuscan.tools.bench.peers import PEERS, numpy_contenders, peer_contenders
from gpuscan.tools.bench.results import Measurement, failures, ratio_to_copy, report, tables
from gpuscan.tools.output import table_console
from tests.fakes import capabilities
from tests.oracle import one_by_one

U32, F32 = np.dtype(np.uint32), np.dtype(np.float32)
DTYPES = [np.dtype(name) for name in ("bool", "int8", "uint16", "uint32", "int64", "float16", "float32", "complex64")]
CASES = [
    ScanCase(op, dtype, 1200, rows)
    for op in (*BUILTINS, "affine")
    for dtype in DTYPES
    for rows in (1, 3)
    if takes(op, dtype)
]


def full(case: ScanCase, inputs: Inputs) -> list[np.ndarray[Any, Any]]:
    """Scan the elements of the case one by one, in the widest type."""
    floats = case.dtype.kind in "fc"
    wide = np.result_type(case.dtype, np.float64) if floats else case.dtype
    function: Any = case.operator.function
    bundle = tuple(array.astype(wide) for array in inputs.arrays)
    if len(bundle) == 1:
        single = function
        function = lambda l, r: (single(l[0], r[0]),)  # noqa: E731
    return [field.astype(case.dtype) for field in one_by_one(function, bundle, axis=1)]


# ----- Inputs and what is expected of them


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.series)
def test_expected_values_are_those_of_the_definition(case: ScanCase) -> None:
    """Check the last element and about 1,000 others."""
    inputs = case.inputs()
    assert inputs.indices[-1] == case.elements - 1
    assert len(inputs.indices) > 1000
    results = [result.reshape(case.elements, *case.element_shape) for result in full(case, inputs)]
    assert inputs.error([result[inputs.indices] for result in results]) <= inputs.tolerance


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.series)
def test_a_wrong_result_is_told(case: ScanCase) -> None:
    """Refuse the input itself, a constant, and integers with one wrong bit."""
    inputs = case.inputs()
    flat = [array.reshape(case.elements, *case.element_shape) for array in inputs.arrays]
    assert inputs.error([array[inputs.indices] for array in flat]) > inputs.tolerance
    still = [np.broadcast_to(wanted[-1], wanted.shape) for wanted in inputs.expected]
    assert inputs.error(still) > inputs.tolerance
    spoiled = [wanted.copy() for wanted in inputs.expected]
    spoiled[-1].reshape(-1)[7] = ~spoiled[-1].reshape(-1)[7] if case.dtype.kind in "biu" else np.nan
    assert inputs.error(spoiled) == float("inf")


def test_inputs_are_the_same_every_time() -> None:
    """Make the same inputs twice, so that two runs can be compared."""
    case = ScanCase("add", F32, 5000)
    np.testing.assert_array_equal(case.inputs().arrays[0], case.inputs().arrays[0])


def test_inputs_of_sorts() -> None:
    """Expect NumPy's order of each row."""
    case = ScanCase(SORT, F32, 700, 3)
    inputs = case.inputs()
    ordered = np.sort(inputs.arrays[0], axis=1).reshape(-1)
    assert inputs.error([ordered[inputs.indices]]) == 0.0
    assert inputs.error([inputs.arrays[0].reshape(-1)[inputs.indices]]) > inputs.tolerance


# ----- Measuring


class FakeSubject:
    """A contender that takes `taken` seconds and has the error `off`."""

    clock, note = "timestamps", "made up"

    def __init__(self, taken: float = 1e-3, off: float = 0.0, fails: Exception | None = None) -> None:
        self.taken, self.off, self.fails = taken, off, fails
        self.closed = False

    def seconds(self) -> float:
        """Return the time, or fail."""
        if self.fails is not None:
            raise self.fails
        return self.taken

    def error(self, inputs: Inputs) -> float:
        """Return the error."""
        return self.off

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


def contender(subject: Any, library: str = "gpuscan") -> Contender:
    """Return a contender that is this subject."""
    return Contender(library, "way", lambda inputs: subject)


CASE = ScanCase("add", U32, 2048)
INPUTS = CASE.inputs()


def test_measure() -> None:
    """Find the time, the speed of bytes read and written, and the check."""
    subject = FakeSubject(taken=1e-6)
    found = measure(contender(subject), CASE, INPUTS)
    assert (found.seconds, found.right, found.error, found.note) == (1e-6, True, 0.0, "made up")
    assert found.bytes_per_second == pytest.approx(2 * 4 * 2048 / 1e-6)
    assert subject.closed


def test_wrong_results_of_gpuscan_are_failures() -> None:
    """Count wrong results of gpuscan as failures, and only show wrong results of a peer."""
    ours = measure(contender(FakeSubject(off=0.5)), CASE, INPUTS)
    theirs = measure(contender(FakeSubject(off=0.5), "torch"), CASE, INPUTS)
    assert ours.wrong
    assert theirs.wrong
    assert failures([ours, theirs]) == [ours]


@pytest.mark.parametrize("error", [RuntimeError("no\n  luck"), Unsupported("no luck")])
def test_a_failure_is_a_row_that_says_why(error: Exception) -> None:
    """Keep the reason, and close the subject."""
    subject = FakeSubject(fails=error)
    found = measure(contender(subject), CASE, INPUTS)
    assert found.seconds is None
    assert found.note.endswith("no luck")
    assert subject.closed


def test_a_contender_that_cannot_be_made_ready_is_a_row() -> None:
    """Keep the reason, cut off where it is long."""

    def prepare(inputs: Inputs) -> Any:
        raise ImportError("broken " * 100)

    found = measure(Contender("torch", "way", prepare), CASE, INPUTS)
    assert found.note.startswith("ImportError: broken")
    assert len(found.note) < 250


def test_suite_tells_of_every_step() -> None:
    """Call the callbacks for each contender on each case, in order."""
    told: list[str] = []
    shown: list[Measurement] = []
    cases = [ScanCase("add", U32, 10), ScanCase("maximum", F32, 3)]
    two = [contender(FakeSubject()), contender(FakeSubject())]
    found = run_suite([(case, two) for case in cases], told.append, shown.append)
    assert [m.case for m in found] == [cases[0], cases[0], cases[1], cases[1]]
    assert shown == found
    assert len(told) == 6


# ----- What is shown


def measurements() -> list[Measurement]:
    """Return a copy, a scan at half its speed, a wrong peer and a missing one, at two sizes."""
    rows = []
    for length in (1 << 16, 1 << 20):
        case = ScanCase("add", U32, length)
        rows += [
            Measurement(case, "copy", "kernel", 2e-6, "timestamps", 0.0, True),
            Measurement(case, "gpuscan", "lookback", 4e-6, "timestamps", 0.0, True, "256x12x4/32"),
            Measurement(case, "torch", "cumsum", 8e-6, "CUDA events", 0.25, False, "PyTorch 9"),
            Measurement(case, "cupy", "cumsum").with_reason("cupy is not installed"),
        ]
    return rows


def test_ratio_to_the_copy_of_the_same_bytes() -> None:
    """Compare with the copy of the same size, if there is one."""
    rows = measurements()
    assert [ratio_to_copy(rows, m) for m in rows[:4]] == [1.0, 0.5, 0.25, None]
    assert ratio_to_copy(rows[1:2], rows[1]) is None


def test_table() -> None:
    """Fit 80 columns, mark wrong results, and name a missing library once."""
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*tables(measurements()), sep="\n")
    text = console.export_text()
    assert text.count("cupy is not installed") == 1
    assert text.count("WRONG 2e-01") == 2
    line = next(line for line in text.splitlines() if "gpuscan lookback" in line)
    assert "4.0" in line
    assert "0.500" in line
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("columns", [None, "80"])
def test_table_in_a_file(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keep every measurement on one line where no terminal limits the width, unless COLUMNS does."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    note = "PyTorch 2.9.0, with a note that is longer than the rest of eighty columns, wall clock"
    table_console().print(*tables([replace(m, note=note) if m.seconds else m for m in measurements()]), sep="\n")
    lines = capsys.readouterr().out.splitlines()
    assert any(note in line for line in lines) == (columns is None)
    assert columns is None or max(map(len, lines)) <= 80


def test_report_is_json() -> None:
    """Write microseconds and GB/s, with the command and the device."""

    class FakeDevice:
        pass

    device: Any = FakeDevice()
    device.capabilities = capabilities()
    rows = measurements()
    rows.append(replace(rows[0], error=float("inf"), right=False))
    data = json.loads(json.dumps(report(device, rows, ["gpuscan", "bench", "--peers"]), allow_nan=False))
    assert data["command"] == ["gpuscan", "bench", "--peers"]
    assert data["device"]["summary"] == device.capabilities.summary
    scan, missing = data["measurements"][1], data["measurements"][3]
    assert (scan["microseconds"], scan["of_copy"], scan["op"], scan["length"]) == (4.0, 0.5, "add", 65536)
    assert scan["gigabytes_per_second"] == pytest.approx(2 * 4 * 65536 / 4e-6 / 1e9, abs=1e-3)
    assert (missing["microseconds"], missing["note"]) == (None, "cupy is not installed")


def test_plot(tmp_path: Path) -> None:
    """Write a PNG, and raise an error if there is nothing to draw."""
    results.save_plot(tmp_path / "speed.png", measurements(), "made up", source="made-up.json 123")
    content = (tmp_path / "speed.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert b"Source\0made-up.json 123" in content
    with pytest.raises(GpuscanError, match="nothing to draw"):
        results.save_plot(tmp_path / "none.png", measurements()[3:4], "made up")


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GpuscanError, match="pip install matplotlib"):
        results.need_matplotlib()


# ----- Peers


@pytest.mark.parametrize("case", [c for c in CASES if numpy_contenders(c)], ids=lambda case: case.series)
def test_numpy_peer(case: ScanCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass the check; 16-bit floats may round on the way."""
    monkeypatch.setattr("gpuscan.tools.bench.peers.wall_seconds", lambda run: (run(), 1e-3)[1])
    (one,) = numpy_contenders(case)
    found = measure(one, case, case.inputs())
    assert found.seconds == 1e-3
    assert found.right or case.dtype == np.float16, found


@pytest.mark.parametrize("case", [ScanCase("add", F32, 300), ScanCase(SORT, F32, 100, 3)], ids=str)
def test_a_library_that_is_missing_is_a_row(case: ScanCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Need none of the libraries but NumPy."""
    for module in ("cupy", "torch"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(timing, "WARM_SECONDS", 0.0)
    inputs = case.inputs()
    found = {one.library: measure(one, case, inputs) for one in peer_contenders(list(PEERS), case)}
    assert found.keys() == PEERS.keys()
    assert found.pop("numpy").right
    for m in found.values():
        assert m.seconds is None
        assert "is not installed" in m.note


# ----- The command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "2^x"], "not a number of elements"),
        (["--sizes", "0"], "not a number of elements"),
        (["--sizes", "10^100000000"], "too many"),
        (["--sizes", "1000,7^999999999"], "too many"),
        (["--sizes", "2^40"], "The largest size is 2^40 - 1"),
        (["--sizes", "2^-3"], "not a number of elements"),
        (["--sizes=-2^2"], "not a number of elements"),
        (["--sizes", "0^-1"], "not a number of elements"),
        (["--sizes", "0^0"], "not a number of elements"),
        (["--op", "nonsense"], "nonsense"),
        (["--dtype", "float33"], "float33"),
        (["--peers", "scipy"], "not one of"),
        (["--strategy", "fastest"], "not one of"),
        (["--device", "numpy"], "GPU adapter"),
        (["--peers", "cub"], "not one of"),
        (["--json", "no/such/folder.json"], "no folder"),
    ],
)
def test_wrong_command_lines(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Fail with one line and exit code 2, before anything is measured."""
    assert cli.run(["bench", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("adapter_type", "exponents"), [("CPU", (12, 16, 20, 22)), ("DiscreteGPU", (16, 18, 20, 22, 25, 28))]
)
def test_sizes_that_are_measured_by_default(adapter_type: str, exponents: tuple[int, ...]) -> None:
    limits = {"max-buffer-size": 2**40, "max-storage-buffer-binding-size": 2**40}
    known = capabilities(adapter_type=adapter_type)
    device: Any = SimpleNamespace(capabilities=replace(known, limits=limits))
    cases = Request(["add"], [np.dtype(np.uint32)]).cases(device)
    assert [case.length for case in cases] == [2**exponent for exponent in exponents]
