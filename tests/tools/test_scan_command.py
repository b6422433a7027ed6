"""`gpuscan scan`: options, files that are replaced, and files that cannot be scanned."""

from __future__ import annotations

import os
import stat
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import gpuscan
from tests.harness.devices import usable_adapters
from tests.harness.processes import python
from tests.tools.command_line import ARRAY, fails, run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


@pytest.mark.parametrize("device", ["numpy", "gpu"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--axis", "0"], np.cumsum(ARRAY, axis=0, dtype=np.int32)),
        (["--axis", "-1", "--op", "max"], np.maximum.accumulate(ARRAY, axis=1)),
        (["--axis", "1", "--reverse"], np.cumsum(ARRAY[:, ::-1], axis=1, dtype=np.int32)[:, ::-1]),
        (["--axis", "1", "--exclusive"], np.cumsum(ARRAY, axis=1, dtype=np.int32) - ARRAY),
        (["--axis", "0", "--dtype", "float32"], np.cumsum(ARRAY, axis=0, dtype=np.float32)),
        (["--axis", "0", "--strategy", "three_dispatch"], np.cumsum(ARRAY, axis=0, dtype=np.int32)),
        (["--axis", "1", "--initial", "-7"], np.cumsum(ARRAY, axis=1, dtype=np.int32) - 7),
        (["--axis", "1", "--initial", "10", "--exclusive"], np.cumsum(ARRAY, axis=1, dtype=np.int32) - ARRAY + 10),
        (["--axis", "0", "--initial", "0.5", "--dtype", "float32"], np.cumsum(ARRAY, axis=0, dtype=np.float32) + 0.5),
    ],
)
def test_scan(files, capsys, device, options, expected):
    """Compare each option with NumPy, and print nothing."""
    which = ["--device", "numpy"] if device == "numpy" else []
    assert run(capsys, "scan", "in.npy", "out.npy", *options, *which) == (0, "", "")
    result = np.load("out.npy", allow_pickle=False)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert sorted(os.listdir()) == ["in.npy", "out.npy"]


@pytest.mark.parametrize("streamed", [False, True])
def test_scan_with_values_from_files(files, capsys, monkeypatch, streamed):
    """Restart at offsets, and begin with one value for each row."""
    monkeypatch.setattr("gpuscan.tools.files.STREAMED_BYTES", 0 if streamed else 1 << 40)
    np.save("offsets.npy", np.array([0, 1, 1, 4]))
    np.save("seeds.npy", np.array([100, 200, 300], np.int32))
    options = ["--axis", "1", "--segments", "offsets.npy", "--initial", "seeds.npy"]
    assert run(capsys, "scan", "in.npy", "out.npy", *options)[:2] == (0, "")
    expected = ARRAY.copy()
    expected[:, 1:] = np.cumsum(ARRAY[:, 1:], axis=1)
    np.testing.assert_array_equal(np.load("out.npy"), expected + np.array([[100], [200], [300]]))


def test_initial_values_of_other_types(files, capsys):
    """Take complex numbers and bools."""
    for array, op, text, value in (
        (np.ones(3, np.complex64), "add", "1+2j", 1 + 2j),
        (np.zeros(3, bool), "logical_or", "true", True),
        (np.zeros(3, bool), "logical_or", "False", False),
    ):
        np.save("x.npy", array)
        assert run(capsys, "scan", "x.npy", "y.npy", "--op", op, "--initial", text)[0] == 0
        np.testing.assert_array_equal(np.load("y.npy"), gpuscan.scan(array, op, initial=value, device="numpy"))


WRONG_VALUES = {
    "no number": (["--initial", "seven"], "'seven' is neither a number"),
    "a number that does not fit": (["--initial", "0.5"], "int32, which cannot hold it"),
    "a file that is not there": (["--segments", "no.npy"], "there is no file no.npy"),
    "a number in place of a file": (["--segments", "3"], "there is no file 3"),
    "no .npy file": (["--segments", "text.npy"], "'--segments': text.npy is not a .npy file"),
    "offsets of floats": (["--segments", "floats.npy"], "offsets are integers"),
    "offsets that end early": (["--segments", "short.npy"], "the last 4"),
    "a file of initial values that does not fit": (["--initial", "short.npy"], "(2,)"),
}


@pytest.mark.parametrize(("options", "told"), WRONG_VALUES.values(), ids=WRONG_VALUES.keys())
def test_wrong_initial_values_and_segments(files, capsys, options, told):
    """Exit with 2, name the option, and write no file."""
    Path("text.npy").write_text("0 4")
    np.save("floats.npy", np.array([0.0, 4.0]))
    np.save("short.npy", np.array([0, 3]))
    code, err = fails(capsys, "scan", "in.npy", "out.npy", "--axis", "1", *options)
    assert (code, told in err) == (2, True), err
    assert not Path("out.npy").exists()


def test_scan_of_compensated_sums(files, capsys):
    """Find the exact sums of float32 values, and refuse other types."""
    x = np.ones(5, np.float32)
    x[0] = 2**24
    np.save("x.npy", x)
    assert run(capsys, "scan", "x.npy", "out.npy", "--compensated") == (0, "", "")
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(x, dtype=np.float64).astype(np.float32))
    code, err = fails(capsys, "scan", "in.npy", "no.npy", "--axis", "0", "--compensated")
    assert (code, "float32" in err) == (2, True)
    assert sorted(os.listdir()) == ["in.npy", "out.npy", "x.npy"]


def test_scan_by_number(files, capsys):
    """Take the adapter with this number in `gpuscan probe`."""
    for index in range(len(usable_adapters())):
        assert run(capsys, "scan", "in.npy", f"{index}.npy", "--axis", "0", "--device", str(index))[0] == 0
        np.testing.assert_array_equal(np.load(f"{index}.npy"), np.cumsum(ARRAY, axis=0))


def test_numpy_in_any_case(files, capsys):
    """Take NumPy in upper or lower case."""
    assert run(capsys, "scan", "in.npy", "out.npy", "--axis", "0", "--device", "NumPy") == (0, "", "")
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(ARRAY, axis=0))


def test_scan_onto_itself(files, capsys):
    """Take one file as IN and OUT."""
    assert run(capsys, "scan", "in.npy", "in.npy", "--axis", "0")[0] == 0
    np.testing.assert_array_equal(np.load("in.npy"), np.cumsum(ARRAY, axis=0))


@pytest.mark.parametrize("shape", [(0,), (1,), (7,)])
def test_scan_of_short_and_fortran_arrays(files, capsys, shape):
    """Scan arrays of few or no elements."""
    values = np.asfortranarray(np.arange(np.prod(shape), dtype=np.uint32).reshape(shape))
    np.save("short.npy", values)
    assert run(capsys, "scan", "short.npy", "out.npy") == (0, "", "")
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(values, dtype=np.uint32))


@pytest.mark.skipif(os.name != "posix", reason="POSIX links and permissions")
def test_scan_writes_through_a_link_and_leaves_the_usual_permissions(files, capsys):
    """Keep the link, and replace its target."""
    Path("real.npy").write_bytes(b"old")
    Path("link.npy").symlink_to("real.npy")
    assert run(capsys, "scan", "in.npy", "link.npy", "--axis", "0")[0] == 0
    assert Path("link.npy").is_symlink()
    assert np.load("real.npy").shape == ARRAY.shape
    assert stat.S_IMODE(os.stat("real.npy").st_mode) == stat.S_IMODE(os.stat("in.npy").st_mode)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("streamed", [False, True])
def test_scan_keeps_the_permissions_of_a_file_that_it_replaces(files, capsys, monkeypatch, streamed):
    """Let no other user read the file meanwhile."""
    Path("in.npy").chmod(0o600)
    monkeypatch.setattr("gpuscan.tools.files.STREAMED_BYTES", 0 if streamed else 1 << 40)
    seen: list[int] = []
    replace = os.replace

    def note_mode_and_replace(a: str, b: str) -> None:
        seen.append(stat.S_IMODE(os.stat(a).st_mode))
        replace(a, b)

    monkeypatch.setattr("os.replace", note_mode_and_replace)
    assert run(capsys, "scan", "in.npy", "in.npy", "--axis", "0")[0] == 0
    assert seen == [0o600]
    assert stat.S_IMODE(os.stat("in.npy").st_mode) == 0o600


@pytest.mark.parametrize("streamed", [False, True])
def test_a_profile_that_cannot_be_printed_costs_no_result(files, capsys, monkeypatch, streamed):
    """Keep the result, and do not say that OUT.npy cannot be written."""
    monkeypatch.setattr("gpuscan.tools.files.STREAMED_BYTES", 0 if streamed else 1 << 40)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpuscan.tools.files.print_profile", full)
    code, err = fails(capsys, "scan", "in.npy", "out.npy", "--axis", "0", "--profile")
    assert (code, "cannot be written" in err) == (1, False)
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(ARRAY, axis=0, dtype=ARRAY.dtype))


# ----- Files that cannot be scanned


@pytest.mark.parametrize(
    ("name", "message"),
    [("table.csv", "np.loadtxt('table.csv'"), ("arrays.npz", "np.load('arrays.npz')"), ("text.npy", "not a .npy file")],
)
def test_a_file_of_another_format(files, capsys, name, message):
    """Say how to convert the file."""
    if name.endswith(".npz"):
        np.savez(name, a=ARRAY)
    else:
        Path(name).write_text("1,2\n3,4\n")
    code, err = fails(capsys, "scan", name, "out.npy")
    assert (code, message in err) == (2, True)


def test_an_output_that_is_no_npy_file(files, capsys):
    """Refuse other endings, which would hide the format."""
    for name in ("out.csv", "out.npz", "out"):
        code, err = fails(capsys, "scan", "in.npy", name, "--axis", "0")
        assert (code, "does not end in .npy" in err) == (2, True)
    assert os.listdir() == ["in.npy"]


def test_an_array_of_records(files, capsys):
    """Name the fields, a way to save one of them, and the function that scans them."""
    np.save("records.npy", np.zeros(3, [("a", "i4"), ("b", "f4")]))
    for command in ("scan", "sort", "unique", "histogram"):
        code, err = fails(capsys, command, "records.npy", "out.npy")
        assert (code, "records of the fields a, b" in err, "gpuscan.scan with a function" in err) == (2, True, True)
        assert "np.load('records.npy')['a']" in err
    assert sorted(os.listdir()) == ["in.npy", "records.npy"]


# ----- Failures of the work


def test_an_unsafe_strategy(files, capsys, monkeypatch):
    """Refuse a strategy that the probe found unsafe."""
    monkeypatch.setattr("gpuscan.device.context.unsafe_reason", lambda *_: "it stalled")
    code, err = fails(capsys, "scan", "in.npy", "out.npy", "--axis", "0", "--strategy", "lookback")
    assert code == 2
    assert "it stalled" in err
    assert "--strategy auto" in err
    assert "unsafe=True" not in err


@pytest.mark.parametrize(
    "failure",
    [
        OSError(28, "No space left on device"),
        PermissionError(13, "Permission denied"),
        OSError("12 requested and 4 written"),  # as NumPy says of a full disk, without strerror
    ],
)
def test_a_result_that_cannot_be_written(files, capsys, monkeypatch, failure):
    """Keep the old file, and leave no partial file."""

    def write_half(file, array, allow_pickle):
        file.write(b"half")
        raise failure

    monkeypatch.setattr(np.lib.format, "write_array", write_half)
    before = Path("in.npy").read_bytes()
    code, err = fails(capsys, "scan", "in.npy", "in.npy", "--axis", "0")
    assert code == 1
    assert f"cannot be written: {failure.strerror or failure}\n" in err
    assert os.listdir() == ["in.npy"]
    assert Path("in.npy").read_bytes() == before


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (gpuscan.DeviceLostError("the GPU\nwent away"), 1, "the GPU went away"),
        (MemoryError(), 1, "MemoryError"),
        (RuntimeError("odd"), 1, "odd"),
    ],
)
def test_failures_on_the_way(files, capsys, monkeypatch, failure, code, message):
    """Print one line for every kind of failure."""

    def scan(*_, **__):
        raise failure

    monkeypatch.setattr(gpuscan, "scan", scan)
    assert fails(capsys, "scan", "in.npy", "out.npy", "--axis", "0") == (code, f"gpuscan: {message}\n")
    assert os.listdir() == ["in.npy"]


def test_without_an_adapter(files, capsys, monkeypatch):
    """Run on NumPy, and say so in one line."""
    monkeypatch.setattr("gpuscan.device.adapters._adapters", [])
    monkeypatch.setattr("gpuscan.api.device._warned", threading.Event())
    monkeypatch.delenv("GPUSCAN_ADAPTER", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, out, err = run(capsys, "scan", "in.npy", "out.npy", "--axis", "0")
    assert (code, out) == (0, "")
    assert err.startswith("gpuscan: warning: ")
    assert err.count("\n") == 1
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(ARRAY, axis=0))

    assert run(capsys, "probe", "--json") == (0, "[]\n", "")
    assert "gpuscan runs on NumPy" in run(capsys, "probe")[1]
    assert fails(capsys, "shader")[0] == 1


def test_an_implementation_that_there_is_not(files):
    """Name the choices in one line, and write no file."""
    code = "import os; os.environ['GPUSCAN_BACKEND'] = 'foo'; from gpuscan import cli; cli.main()"
    for arguments in (["scan", "in.npy", "out.npy", "--axis", "0"], ["probe"], ["shader"]):
        done = python("-c", code, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "'foo'" in done.stderr
        assert "wgpu, dawn" in done.stderr
    assert os.listdir() == ["in.npy"]
