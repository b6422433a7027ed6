"""`gpuscan shader`, `--version` and `--help`."""

from __future__ import annotations

import pytest

import gpuscan
from tests.harness.processes import python
from tests.tools.command_line import fails, run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


def test_shader_prints_every_stage(capsys):
    """Print the three stages of three_dispatch."""
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
    """Show elements with two axes."""
    code, out, err = run(capsys, "shader", "--op", "matmul")
    assert (code, err) == (0, "")
    assert "matmul, float32)" in out


def test_shader_needs_a_gpu(capsys):
    """Refuse NumPy, which runs no shaders."""
    assert fails(capsys, "shader", "--device", "numpy")[0] == 2


def test_version_and_help(capsys):
    """Run as a process, the way a user does."""
    done = python("-m", "gpuscan", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert gpuscan.__version__ in done.stdout
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: gpuscan")
