"""Wrong command lines: one line on standard error, exit code 2, and no file is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.tools.command_line import fails

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

BAD_LINES = {
    "no such file": (["nope.npy", "out.npy"], "'nope.npy' does not exist"),
    "a folder to read": ([".", "out.npy"], "is a directory"),
    "a folder to write": (["in.npy", "."], "is a directory"),
    "an array to print": (["in.npy", "-"], "cannot be written to standard output"),
    "no folder to write in": (["in.npy", "no/out.npy"], "there is no folder"),
    "one file": (["in.npy"], "Missing argument 'OUT.npy'"),
    "unknown option": (["in.npy", "out.npy", "--fast"], "--fast"),
    "unknown operator": (["in.npy", "out.npy", "--op", "plus"], "'plus' is not an operator; choose add"),
    "unknown dtype": (["in.npy", "out.npy", "--dtype", "quad"], "quad"),
    "odd dtype": (["in.npy", "out.npy", "--dtype", "f4,("], "--dtype"),
    "a dtype for no GPU": (["in.npy", "out.npy", "--dtype", "complex128"], "complex128"),
    "a dtype for no file": (["in.npy", "out.npy", "--dtype", "bfloat16"], "bfloat16"),
    "unknown strategy": (["in.npy", "out.npy", "--strategy", "quick"], "'quick' is not one of 'auto'"),
    "no such device": (["in.npy", "out.npy", "--device", "abacus"], "'abacus'"),
    "no such number": (["in.npy", "out.npy", "--device", "99"], "99"),
    "no axis": (["in.npy", "out.npy"], "without --axis"),
    "no such axis": (["in.npy", "out.npy", "--axis", "2"], "axis 2"),
    "an axis in words": (["in.npy", "out.npy", "--axis", "rows"], "'rows' is not a valid integer"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_wrong_command_line(files, capsys, arguments, message):
    """Exit with 2, and write no file."""
    code, err = fails(capsys, "scan", *arguments)
    assert code == 2
    assert message in err
    assert os.listdir() == ["in.npy"]


WRONG_LINES = ["dance", "probe extra", "shader --length 0", "--fast", "shader --op add --dtype bool"]
WRONG_LINES += ["bench --peers jax --sizes 1000", "tune --seconds nan"]


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_command(capsys, line):
    """Exit with 2 in every command."""
    assert fails(capsys, *line.split())[0] == 2


@pytest.mark.parametrize("arguments", [["shader"], ["export", "web"]])
@pytest.mark.parametrize("length", ["2147483648", "9223372036854775807", "99999999999999999999"])
def test_a_length_beyond_every_shader(files, capsys, arguments, length):
    """Name the largest length."""
    code, err = fails(capsys, *arguments, "--length", length)
    assert (code, "1<=x<=2147483647" in err) == (2, True)


@pytest.mark.skipif(os.name != "posix", reason="a device file")
def test_a_device_file_is_not_replaced(files, capsys):
    """Refuse a device file, which a rename would destroy."""
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
    """Exit with 2 before the work, and leave the folder as it is."""

    def work(*_, **__):
        raise AssertionError("the work began")

    monkeypatch.setattr("gpuscan.tools.bench.command.measure_all", work)
    monkeypatch.setattr("gpuscan.tools.matrix.command.run_all", work)
    monkeypatch.setattr("gpuscan.tools.bench.command.need_matplotlib", lambda: None)
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
        "a folder for others": "cannot be written",
    }[kind]
    assert (code, message in err) == (2, True)
    assert sorted(os.listdir()) == before
    assert kind != "a pipe" or stat.S_ISFIFO(os.stat("target").st_mode)
