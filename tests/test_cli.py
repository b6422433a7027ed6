"""The command line: what it prints and writes, and that every error is one line and the right exit code."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan
from gpuscan import cli
from gpuscan.device.adapters import find_adapters
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.tools.matrix import table as matrix

ARRAY = np.array([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]], np.int32)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with in.npy."""
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", ARRAY)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command line."""
    code = cli.run(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and message of a command line that fails in one line."""
    code, out, err = run(capsys, *arguments)
    assert out == ""
    assert err.startswith("gpuscan: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return code, err


def python(*arguments: str, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, with this gpuscan, wherever it runs."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(gpuscan.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    }
    return subprocess.run(
        [sys.executable, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment
    )


# ----- gpuscan scan


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
    ],
)
def test_scan(files, capsys, device, options, expected):
    """Each option against NumPy, and nothing is printed."""
    which = ["--device", "numpy"] if device == "numpy" else []
    assert run(capsys, "scan", "in.npy", "out.npy", *options, *which) == (0, "", "")
    result = np.load("out.npy", allow_pickle=False)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert sorted(os.listdir()) == ["in.npy", "out.npy"]


def test_scan_of_compensated_sums(files, capsys):
    """The exact sums, where float32 loses every step; and only of float32."""
    x = np.ones(5, np.float32)
    x[0] = 2**24
    np.save("x.npy", x)
    assert run(capsys, "scan", "x.npy", "out.npy", "--compensated") == (0, "", "")
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(x, dtype=np.float64).astype(np.float32))
    code, err = fails(capsys, "scan", "in.npy", "no.npy", "--axis", "0", "--compensated")
    assert (code, "float32" in err) == (1, True)
    assert sorted(os.listdir()) == ["in.npy", "out.npy", "x.npy"]


def test_scan_by_number(files, capsys):
    """A device may be named by its place in `gpuscan probe`."""
    for index in range(len(find_adapters())):
        assert run(capsys, "scan", "in.npy", f"{index}.npy", "--axis", "0", "--device", str(index))[0] == 0
        np.testing.assert_array_equal(np.load(f"{index}.npy"), np.cumsum(ARRAY, axis=0))


def test_scan_onto_itself(files, capsys):
    """IN and OUT may be one file."""
    assert run(capsys, "scan", "in.npy", "in.npy", "--axis", "0")[0] == 0
    np.testing.assert_array_equal(np.load("in.npy"), np.cumsum(ARRAY, axis=0))


@pytest.mark.parametrize("shape", [(0,), (1,), (7,)])
def test_scan_of_short_and_fortran_arrays(files, capsys, shape):
    """An empty file is an array too."""
    values = np.asfortranarray(np.arange(np.prod(shape), dtype=np.uint32).reshape(shape))
    np.save("short.npy", values)
    assert run(capsys, "scan", "short.npy", "out.npy") == (0, "", "")
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(values, dtype=np.uint32))


@pytest.mark.skipif(os.name != "posix", reason="POSIX links and permissions")
def test_scan_writes_through_a_link_and_leaves_the_usual_permissions(files, capsys):
    """The link stays a link."""
    Path("real.npy").write_bytes(b"old")
    Path("link.npy").symlink_to("real.npy")
    assert run(capsys, "scan", "in.npy", "link.npy", "--axis", "0")[0] == 0
    assert Path("link.npy").is_symlink()
    assert np.load("real.npy").shape == ARRAY.shape
    assert stat.S_IMODE(os.stat("real.npy").st_mode) == stat.S_IMODE(os.stat("in.npy").st_mode)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("streamed", [False, True])
def test_scan_keeps_the_permissions_of_a_file_that_it_replaces(files, capsys, monkeypatch, streamed):
    """Nobody else may read it meanwhile."""
    Path("in.npy").chmod(0o600)
    monkeypatch.setattr("gpuscan.tools.file_scan.STREAMED_BYTES", 0 if streamed else 1 << 40)
    seen = []
    replace = os.replace
    monkeypatch.setattr("os.replace", lambda a, b: (seen.append(stat.S_IMODE(os.stat(a).st_mode)), replace(a, b)))
    assert run(capsys, "scan", "in.npy", "in.npy", "--axis", "0")[0] == 0
    assert seen == [0o600]
    assert stat.S_IMODE(os.stat("in.npy").st_mode) == 0o600


@pytest.mark.parametrize("streamed", [False, True])
def test_a_profile_that_cannot_be_printed_costs_no_result(files, capsys, monkeypatch, streamed):
    """What is said is not that OUT.npy cannot be written."""
    monkeypatch.setattr("gpuscan.tools.file_scan.STREAMED_BYTES", 0 if streamed else 1 << 40)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli, "_print_profile", full)
    code, err = fails(capsys, "scan", "in.npy", "out.npy", "--axis", "0", "--profile")
    assert (code, "cannot be written" in err) == (1, False)
    np.testing.assert_array_equal(np.load("out.npy"), np.cumsum(ARRAY, axis=0, dtype=ARRAY.dtype))


# ----- Errors

BAD_LINES = {
    "no such file": (["nope.npy", "out.npy"], "'nope.npy' does not exist"),
    "a folder to read": ([".", "out.npy"], "is a directory"),
    "a folder to write": (["in.npy", "."], "is a directory"),
    "an array to print": (["in.npy", "-"], "is ./-"),
    "no folder to write in": (["in.npy", "no/out.npy"], "there is no folder"),
    "one file": (["in.npy"], "Missing argument 'OUT.npy'"),
    "unknown option": (["in.npy", "out.npy", "--fast"], "--fast"),
    "unknown operator": (["in.npy", "out.npy", "--op", "plus"], "'plus'; choose add"),
    "unknown dtype": (["in.npy", "out.npy", "--dtype", "quad"], "quad"),
    "odd dtype": (["in.npy", "out.npy", "--dtype", "f4,("], "--dtype"),
    "a dtype for no GPU": (["in.npy", "out.npy", "--dtype", "complex128"], "complex128"),
    "a dtype for no file": (["in.npy", "out.npy", "--dtype", "bfloat16"], "bfloat16"),
    "unknown strategy": (["in.npy", "out.npy", "--strategy", "quick"], "'quick' is not one of 'auto'"),
    "no such device": (["in.npy", "out.npy", "--device", "abacus"], "'abacus'"),
    "no such number": (["in.npy", "out.npy", "--device", "99"], "99"),
    "no axis": (["in.npy", "out.npy"], "without axis"),
    "no such axis": (["in.npy", "out.npy", "--axis", "2"], "axis 2"),
    "an axis in words": (["in.npy", "out.npy", "--axis", "rows"], "'rows' is not a valid integer"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_wrong_command_line(files, capsys, arguments, message):
    """Exit code 2, and no file."""
    code, err = fails(capsys, "scan", *arguments)
    assert code == 2
    assert message in err
    assert os.listdir() == ["in.npy"]


WRONG_LINES = ["dance", "probe extra", "shader --length 0", "--fast", "shader --op add --dtype bool"]
WRONG_LINES += ["bench --batch 2 --sizes 1000", "bench --sequence 9 --op minimum --rows 2", "tune --seconds nan"]


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_command(capsys, line):
    """Exit code 2 as well."""
    assert fails(capsys, *line.split())[0] == 2


@pytest.mark.parametrize("arguments", [["shader"], ["export", "web"]])
@pytest.mark.parametrize("length", ["2147483648", "9223372036854775807", "99999999999999999999"])
def test_a_length_beyond_every_shader(files, capsys, arguments, length):
    """The message says what is the most."""
    code, err = fails(capsys, *arguments, "--length", length)
    assert (code, "1<=x<=2147483647" in err) == (2, True)


@pytest.mark.skipif(os.name != "posix", reason="a device file")
def test_a_device_file_is_not_replaced(files, capsys):
    """A rename onto it would be the end of it."""
    assert fails(capsys, "scan", "in.npy", os.devnull, "--axis", "0")[0] == 2
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


WRITERS = {
    "bench --json": ("bench", "--sizes", "1000", "--json"),
    "bench --plot": ("bench", "--sizes", "1000", "--plot"),
    "matrix --json": ("matrix", "--quick", "--json"),
    "matrix --markdown": ("matrix", "--quick", "--markdown"),
}


@pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "no folder", "a folder for others"])
def test_a_target_is_looked_at_before_the_work(files, capsys, monkeypatch, arguments, kind):
    """Exit code 2, and what is there stays as it is."""

    def work(*_, **__):
        raise AssertionError("the work began")

    monkeypatch.setattr("gpuscan.tools.bench.session.run_request", work)
    monkeypatch.setattr("gpuscan.tools.matrix.table.run_all", work)
    monkeypatch.setattr("gpuscan.tools.bench.plot.need_matplotlib", lambda: None)
    if kind == "a pipe":
        if os.name != "posix":
            pytest.skip("POSIX pipes")
        os.mkfifo("target")
    elif kind == "a folder":
        Path("target").mkdir()
    elif kind == "a folder for others":  # asked of the system, which refuses root nothing
        monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK or Path(path) != Path.cwd())
    before = sorted(os.listdir())
    code, err = fails(capsys, *arguments, "no/target" if kind == "no folder" else "target")
    message = {
        "a pipe": "is not a regular file",
        "a folder": "is a directory",
        "no folder": "there is no folder",
        "a folder for others": "nothing may be written in the folder",
    }[kind]
    assert (code, message in err) == (2, True)
    assert sorted(os.listdir()) == before
    assert kind != "a pipe" or stat.S_ISFIFO(os.stat("target").st_mode)


def test_an_export_into_what_is_no_folder(files, capsys):
    """Exit code 2 where a file is in the way, and 1 where one cannot be written."""
    code, err = fails(capsys, "export", "in.npy/web")
    assert (code, "in.npy is not a folder" in err) == (2, True)
    Path("web/scan.js").mkdir(parents=True)
    code, err = fails(capsys, "export", "web")
    assert (code, "web cannot be written: " in err) == (1, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--op", "matmul"], "2 axes of their own"),
        (["--dtype", "float64"], "no 64-bit"),
        (["--op", "bitwise_or"], "float32"),
    ],
)
def test_an_export_of_what_no_browser_runs(files, capsys, options, told):
    code, err = fails(capsys, "export", "web", *options)
    assert (code, told in err) == (2, True)
    assert not Path("web").exists()


def test_an_export_leaves_nothing_of_the_one_before(files, capsys):
    for strategy, stages in (("three_dispatch", 3), ("fallback", 1)):
        assert run(capsys, "export", "web", "--strategy", strategy)[0] == 0
        assert len(list(Path("web").glob("*.wgsl"))) == stages, strategy


def header(text: bytes) -> bytes:
    """A .npy file's beginning with this header."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


BAD_FILES = {
    "empty": b"",
    "text": b"1 2 3\n" * 10,
    "magic only": b"\x93NUMPY",
    "version 9": b"\x93NUMPY\x09\x00" + b"\x00" * 100,
    "no header": header(b""),
    "header that is no dict": header(b"[1, 2]\n"),
    "header that is no Python": header(b"{'descr': \n"),
    "header that calls": header(b"__import__('os').system('true')\n"),
    "header of nulls": header(b"\x00" * 50),
    "dtype unknown": header(b"{'descr': '<q9', 'fortran_order': False, 'shape': (1,)}\n"),
    "negative shape": header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}\n"),
    "shape beyond memory": header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (9999999999999,)}\n"),
    "shape beyond integers": header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (" + b"9" * 30 + b",)}\n"),
    "cut short": header(b"{'descr': '<i4', 'fortran_order': False, 'shape': (1000,)}\n") + b"\x00" * 10,
    "objects": header(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n") + b"\x80\x04N.",
    "a zip": b"PK\x03\x04" + b"\x00" * 30,
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_is_no_array(files, capsys, content):
    """Exit code 1, and no file."""
    Path("bad.npy").write_bytes(content)
    code, err = fails(capsys, "scan", "bad.npy", "out.npy")
    assert code == 1
    assert "bad.npy" in err
    assert sorted(os.listdir()) == ["bad.npy", "in.npy"]


def test_an_array_of_strings(files, capsys):
    """It is an array, but not for a GPU."""
    np.save("words.npy", np.array(["a", "b"]))
    assert fails(capsys, "scan", "words.npy", "out.npy")[0] == 1


def test_an_array_of_records(files, capsys):
    """The command line takes no functions, and says who does."""
    np.save("records.npy", np.zeros(3, [("a", "i4"), ("b", "f4")]))
    code, err = fails(capsys, "scan", "records.npy", "out.npy")
    assert (code, "records of the fields a, b" in err, "by gpuscan.scan with a function" in err) == (1, True, True)
    assert sorted(os.listdir()) == ["in.npy", "records.npy"]


def test_an_unsafe_strategy(files, capsys, monkeypatch):
    """The probe's verdict holds here as well."""
    monkeypatch.setattr("gpuscan.api.device.unsafe_reason", lambda *_: "it stalled")
    code, err = fails(capsys, "scan", "in.npy", "out.npy", "--axis", "0", "--strategy", "lookback")
    assert code == 1
    assert "it stalled" in err


@pytest.mark.parametrize(
    "failure",
    [
        OSError(28, "No space left on device"),
        PermissionError(13, "Permission denied"),
        OSError("12 requested and 4 written"),  # as NumPy says of a full disk, without strerror
    ],
)
def test_a_result_that_cannot_be_written(files, capsys, monkeypatch, failure):
    """The old file stays, and nothing lies beside it."""

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


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_a_matrix_that_cannot_be_written(files, capsys, monkeypatch, option):
    """The old file stays, and nothing lies beside it."""

    def rename(*_):
        raise OSError(28, "No space left on device")

    Path("runs.json").write_text(matrix.to_json([]), encoding="utf-8")
    Path("old").write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "replace", rename)
    code, err = fails(capsys, "matrix", "--merge", "runs.json", option, "old")
    assert (code, "old cannot be written: No space left on device" in err) == (1, True)
    assert Path("old").read_text(encoding="utf-8") == "old"
    assert sorted(os.listdir()) == ["in.npy", "old", "runs.json"]


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
    """One line whatever it is."""

    def scan(*_, **__):
        raise failure

    monkeypatch.setattr(gpuscan, "scan", scan)
    assert fails(capsys, "scan", "in.npy", "out.npy", "--axis", "0") == (code, f"gpuscan: {message}\n")
    assert os.listdir() == ["in.npy"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_interrupted_from_the_keyboard(files):
    """The process ends with 130 and one line."""
    code = (
        "import gpuscan, os, signal\n"
        "from gpuscan import cli\n"
        "gpuscan.scan = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT) or signal.pause()\n"
        "cli.main(['scan', 'in.npy', 'out.npy', '--axis', '0'])\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "gpuscan: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize(("name", "exit_code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_streamed_scan_that_is_stopped(files, name, exit_code):
    """What lies beside OUT.npy is taken away, also where SIGTERM comes twice, as from `timeout`; OUT.npy stays."""
    np.save("in.npy", np.ones(4 << 20, np.uint32))
    Path("out.npy").write_bytes(b"old")
    code = (
        "import os, signal\n"
        "from gpuscan import cli, files\n"
        "files.STREAMED_BYTES = 1 << 20\n"
        "def stop(done):\n"
        "    assert len(os.listdir()) == 3\n"
        f"    os.kill(os.getpid(), signal.{name})\n"
        "unlink = cli.Path.unlink\n"
        "def unlink_late(path, **options):\n"
        f"    signal.{name} == signal.SIGTERM and os.kill(os.getpid(), signal.SIGTERM)\n"
        "    unlink(path, **options)\n"
        "cli.Path.unlink = unlink_late\n"
        "cli._progress_bar = lambda total: cli.nullcontext(stop)\n"
        "cli.main(['scan', 'in.npy', 'out.npy'])\n"
    )
    done = python("-c", code)
    told = "interrupted" if name == "SIGINT" else "terminated"
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", f"gpuscan: {told}\n")
    assert sorted(os.listdir()) == ["in.npy", "out.npy"]
    assert Path("out.npy").read_bytes() == b"old"


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_sigterm_stays_the_callers_own_in_the_library():
    """Only the command line's process catches it."""
    code = (
        "import gpuscan, signal\n"
        "from gpuscan import cli\n"
        "cli.run(['--version'])\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
    )
    assert python("-c", code).stdout.endswith("True\n")


@pytest.mark.skipif(os.name != "posix", reason="POSIX pipes")
@pytest.mark.parametrize("arguments", [["probe"], ["probe", "--json"], ["--help"]])
def test_a_reader_that_leaves(arguments):
    """`gpuscan … | head` says nothing on standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.closing(os.fdopen(writing, "w")) as pipe:
        done = python("-m", "gpuscan", *arguments, stdout=pipe)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(os.name != "posix", reason="closed by a POSIX shell")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("scan in.npy out.npy --axis 0", 0),
        ("probe", 0),
        ("probe --json", 0),
        ("--help", 0),
        ("scan in.npy no/out.npy", 2),
    ],
)
def test_a_closed_standard_output(files, arguments, code):
    """What is printed goes nowhere, and the work is done all the same."""
    done = python(
        "-c", f"import os; os.close(1); os.execl({sys.executable!r}, 'python', '-m', 'gpuscan', *{arguments.split()})"
    )
    assert (done.returncode, done.stderr == "") == (code, code == 0)
    assert "NoneType" not in done.stderr
    assert Path("out.npy").exists() == (arguments == "scan in.npy out.npy --axis 0")


def test_a_failing_disk_where_standard_output_is_closed(files, capsys, monkeypatch):
    """The error of the work is what is told."""

    def shader(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gpuscan, "default_device", shader)
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.run(["shader"]) == 1
    assert "No space left" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output():
    """One line, though Python would add its own at exit."""
    with open("/dev/full", "w") as full:
        done = python("-m", "gpuscan", "probe", "--json", stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("gpuscan: ")
    assert done.stderr.count("\n") == 1


def test_without_an_adapter(files, capsys, monkeypatch):
    """NumPy does the work; one line says so."""
    monkeypatch.setattr("gpuscan.device.adapters._found", [])
    monkeypatch.setattr("gpuscan.api.scan._warned", threading.Event())
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
    """One line that says which there are, and no file."""
    code = "import os; os.environ['GPUSCAN_BACKEND'] = 'foo'; from gpuscan import cli; cli.main()"
    for arguments in (["scan", "in.npy", "out.npy", "--axis", "0"], ["probe"], ["shader"]):
        done = python("-c", code, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "'foo'" in done.stderr
        assert "wgpu, dawn" in done.stderr
    assert os.listdir() == ["in.npy"]


# ----- gpuscan probe


def test_probe_names_every_adapter(capsys, monkeypatch):
    """In 80 columns, each with its strategy."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, "probe")
    assert (code, err) == (0, "")
    assert all(len(line) <= 80 for line in out.splitlines())
    for index, adapter in enumerate(find_adapters()):
        assert f"{index}: {adapter.info['device']}" in out
    for title in ("driver", "backend", "subgroups", "progress", "strategy", "elements", "limits"):
        assert out.count(f"│ {title} ") == len(find_adapters())


def test_probe_as_data(capsys):
    """The same, and more, for programs."""
    code, out, err = run(capsys, "probe", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [each["summary"] for each in found] == [adapter.summary for adapter in find_adapters()]
    for each in found:
        assert each["strategy"] in STRATEGIES
        assert each["reason"]
        assert {"uint32", "int32", "float32"} <= set(each["element_types"])
        assert ("float64" in each["element_types"]) == each["float64"]
        assert each["limits"]["max-buffer-size"] > 0


# ----- gpuscan shader, --version


def test_shader_prints_every_stage(capsys):
    """Three dispatches have three."""
    arguments = ["--op", "maximum", "--dtype", "int32", "--strategy", "three_dispatch"]
    code, out, err = run(capsys, "shader", *arguments)
    assert (code, err) == (0, "")
    assert [line.split()[2] for line in out.splitlines() if line.startswith("// =====")] == [
        "reduce",
        "scan_totals",
        "scan",
    ]
    assert out.count("@compute") == 3
    assert "i32" in out


def test_shader_of_matrices(capsys):
    """They are elements of two axes."""
    code, out, err = run(capsys, "shader", "--op", "matmul")
    assert (code, err) == (0, "")
    assert "matmul, float32)" in out


def test_shader_needs_a_gpu(capsys):
    """NumPy has none to show."""
    assert fails(capsys, "shader", "--device", "numpy")[0] == 2


def test_version_and_help(capsys):
    """As a process, the way a user runs it."""
    done = python("-m", "gpuscan", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert gpuscan.__version__ in done.stdout
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: gpuscan")
