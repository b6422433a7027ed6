"""The process of a command: signals, standard output that is closed or full, and the exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import gpuscan
from gpuscan import cli
from tests.harness.processes import python
from tests.tools.command_line import DEFAULT_SIGNALS

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_interrupted_from_the_keyboard(files):
    """End with 130 and one line."""
    code = (
        DEFAULT_SIGNALS + "import gpuscan, os\n"
        "from gpuscan import cli\n"
        "gpuscan.scan = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT) or signal.pause()\n"
        "cli.main(['scan', 'in.npy', 'out.npy', '--axis', '0'])\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "gpuscan: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("name", ["gpuscan", "-m"])
def test_interrupted_during_the_imports(files, name):
    """End with 130 and one line, and leave Ctrl-C alone in programs that import the package."""
    code = (
        DEFAULT_SIGNALS + "import os, sys\n"
        "class Interrupter:\n"
        "    def find_spec(self, module, *_):\n"
        "        module == 'numpy' and os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupter())\n"
        f"sys.argv, sys.orig_argv = [{name!r}, 'probe'], ['python', '-m', 'gpuscan', 'probe']\n"
    )
    done = python("-c", code + "import gpuscan.cli")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "gpuscan: interrupted\n")
    done = python(
        "-c",
        code + "sys.argv[0] = 'program.py'\ntry: from gpuscan import scan\nexcept KeyboardInterrupt: print('mine')",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize(("name", "exit_code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_streamed_scan_that_is_stopped(files, name, exit_code):
    """Remove the partial file, even if SIGTERM comes twice as from `timeout`, and keep OUT.npy."""
    np.save("in.npy", np.ones(4 << 20, np.uint32))
    Path("out.npy").write_bytes(b"old")
    code = (
        DEFAULT_SIGNALS + "import contextlib, os, pathlib\n"
        "from gpuscan import cli\n"
        "from gpuscan.tools import files\n"
        "files.STREAMED_BYTES = 1 << 20\n"
        "def stop(done):\n"
        "    assert len(os.listdir()) == 3\n"
        f"    os.kill(os.getpid(), signal.{name})\n"
        "unlink = pathlib.Path.unlink\n"
        "def unlink_late(path, **options):\n"
        f"    signal.{name} == signal.SIGTERM and os.kill(os.getpid(), signal.SIGTERM)\n"
        "    unlink(path, **options)\n"
        "pathlib.Path.unlink = unlink_late\n"
        "files.display_bar = lambda total: contextlib.nullcontext(stop)\n"
        "cli.main(['scan', 'in.npy', 'out.npy'])\n"
    )
    done = python("-c", code)
    told = "interrupted" if name == "SIGINT" else "terminated"
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", f"gpuscan: {told}\n")
    assert sorted(os.listdir()) == ["in.npy", "out.npy"]
    assert Path("out.npy").read_bytes() == b"old"


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_sigterm_stays_the_callers_own_in_the_library():
    """Handle the signal only in the process of the command line."""
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
    """Print nothing on standard error: `gpuscan … | head` is no failure to report."""
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
    """Do the work, and print nothing."""
    command = [sys.executable, "-m", "gpuscan", *arguments.split()]
    done = python("-c", f"import os; os.close(1); os.execv({command[0]!r}, {command!r})")
    assert (done.returncode, done.stderr == "") == (code, code == 0)
    assert "NoneType" not in done.stderr
    assert Path("out.npy").exists() == (arguments == "scan in.npy out.npy --axis 0")


def test_a_failing_disk_where_standard_output_is_closed(files, capsys, monkeypatch):
    """Report the error of the work."""

    def shader(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gpuscan, "default_device", shader)
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.run(["shader"]) == 1
    assert "No space left" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output():
    """Print one line, and no second one from Python at exit."""
    with open("/dev/full", "w") as full:
        done = python("-m", "gpuscan", "probe", "--json", stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("gpuscan: ")
    assert done.stderr.count("\n") == 1
