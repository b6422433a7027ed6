"""examples/mpi_scan.py with two processes, on machines with MPI and the package mpi4py."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
INSTALLED = shutil.which("mpiexec") is not None and importlib.util.find_spec("mpi4py") is not None
# Open MPI refuses root, and more processes than cores, unless these are set. Other libraries do not know them.
OPEN_MPI = dict.fromkeys(
    ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"), "1"
)


@pytest.mark.skipif(not INSTALLED, reason="no MPI, or no mpi4py, on this machine")
def test_two_processes() -> None:
    """Run the program, which compares the states of two processes with the states of one."""
    found = subprocess.run(
        ["mpiexec", "-n", "2", sys.executable, "examples/mpi_scan.py"],
        cwd=CHECKOUT,
        env=os.environ | OPEN_MPI | {"PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert "2 processes computed 200,000 states" in found.stdout
