"""`gpuscan sort`: options, and files that cannot be sorted."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.tools.command_line import ARRAY, fails, run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


@pytest.mark.parametrize("device", ["numpy", "gpu"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], np.sort(ARRAY)),
        (["--axis", "0", "--descending"], np.sort(ARRAY, axis=0)[::-1]),
        (["--axis", "0", "--indices"], np.argsort(ARRAY, axis=0, kind="stable")),
    ],
)
def test_sort(files, capsys, device, options, expected):
    """Compare each option with NumPy, and print nothing."""
    which = ["--device", "numpy"] if device == "numpy" else []
    assert run(capsys, "sort", "in.npy", "out.npy", *options, *which) == (0, "", "")
    result = np.load("out.npy", allow_pickle=False)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert sorted(os.listdir()) == ["in.npy", "out.npy"]


def test_sort_in_place(files, capsys):
    """Replace the input by its result, and print the stages."""
    code, out, err = run(capsys, "sort", "in.npy", "in.npy", "--profile")
    assert code == 0
    assert "exchange_rows" in out + err
    np.testing.assert_array_equal(np.load("in.npy"), np.sort(ARRAY))


def test_wrong_sorts(files, capsys):
    """Say what does not go with the array, and write nothing."""
    code, err = fails(capsys, "sort", "in.npy", "out.npy", "--axis", "2")
    assert (code, "axis" in err) == (2, True)
    np.save("complex.npy", np.ones(3, np.complex64))
    code, err = fails(capsys, "sort", "complex.npy", "out.npy")
    assert (code, "no order" in err) == (2, True)
    assert sorted(os.listdir()) == ["complex.npy", "in.npy"]
