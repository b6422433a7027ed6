"""`gpuscan unique` and `gpuscan histogram`: options, and files with numbers that have no order."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.tools.command_line import ARRAY, fails, run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


@pytest.mark.parametrize("device", ["numpy", "gpu"])
def test_unique(files, capsys, device):
    """Write the values of a file, and records of values and counts."""
    which = ["--device", "numpy"] if device == "numpy" else []
    values, counts = np.unique(ARRAY, return_counts=True)
    assert run(capsys, "unique", "in.npy", "out.npy", *which) == (0, "", "")
    found = np.load("out.npy", allow_pickle=False)
    assert found.dtype == ARRAY.dtype
    np.testing.assert_array_equal(found, values)
    assert run(capsys, "unique", "in.npy", "out.npy", "--counts", *which) == (0, "", "")
    found = np.load("out.npy", allow_pickle=False)
    np.testing.assert_array_equal(found["value"], values)
    np.testing.assert_array_equal(found["count"], counts)


@pytest.mark.parametrize("device", ["numpy", "gpu"])
def test_histogram(files, capsys, device):
    """Write the counts of bins, or print a row for each."""
    options = ["--bins", "4", "--range", "1", "7", *(["--device", "numpy"] if device == "numpy" else [])]
    counts, edges = np.histogram(ARRAY, 4, (1, 7))
    assert run(capsys, "histogram", "in.npy", "out.npy", *options) == (0, "", "")
    np.testing.assert_array_equal(np.load("out.npy", allow_pickle=False), counts)
    code, out, err = run(capsys, "histogram", "in.npy", *options)
    assert (code, err) == (0, "")
    rows = [line for line in out.splitlines() if any(f"{edge:g}" in line for edge in edges)]
    assert len(rows) >= len(counts)


def test_wrong_arrays(files, capsys):
    """Say what does not go with the array, and write nothing."""
    np.save("complex.npy", np.ones(3, np.complex64))
    for command in ("unique", "histogram"):
        code, err = fails(capsys, command, "complex.npy", "out.npy")
        assert (code, "no order" in err) == (2, True)
    code, _ = fails(capsys, "histogram", "in.npy", "out.npy", "--range", "3", "1")
    assert code == 2
    assert sorted(os.listdir()) == ["complex.npy", "in.npy"]
