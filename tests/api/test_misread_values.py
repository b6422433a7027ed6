"""Values that NumPy would take for something else, or for more memory than there is, are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs

X = np.arange(5, dtype=np.int32)
MASKED = np.ma.array([1, 2, 3, 4], mask=[False, True, False, False], dtype=np.int32)
# For calls that a type checker refuses.
UNTYPED: Any = gs


@pytest.mark.usefixtures("skip_without_adapters")
@pytest.mark.parametrize(
    "call",
    [
        lambda: gs.scan(MASKED),
        lambda: gs.scan(MASKED, device="numpy"),
        lambda: gs.scan((MASKED, X[:4]), lambda l, r: (l[0] + r[0], l[1] + r[1])),
        lambda: gs.scan(X[:4], keys=MASKED),
        lambda: gs.scan(X[:4], segments=MASKED),
        lambda: gs.scan(X[:4], out=MASKED.copy()),
        lambda: gs.reduce(MASKED),
        lambda: gs.cumulative_sum(MASKED),
        lambda: gs.linear_recurrence(MASKED, MASKED),
        lambda: gs.compact(MASKED, X[:4] > 1),
        lambda: gs.compact(X[:4], MASKED > 1),
        lambda: list(gs.scan_chunks([MASKED])),
        lambda: gs.default_device().asarray(MASKED),
    ],
)
def test_masked_arrays_are_refused(call: Any) -> None:
    """Refuse a masked array wherever one can be passed: its mask would be dropped."""
    with pytest.raises(TypeError, match=r"masked array|MaskedArray"):
        call()


@pytest.mark.usefixtures("skip_without_adapters")
def test_a_bundle_is_not_one_array() -> None:
    """NumPy would stack the arrays, and convert them all to float64."""
    with pytest.raises(TypeError, match=r"a bundle and not one array\. Pass each of them"):
        gs.default_device().asarray((np.ones(3, np.int32), np.ones(3, np.float32)))
    with pytest.raises(TypeError, match=r"a dict was passed.*each of its arrays: \{name: device\.asarray\(part\)"):
        gs.default_device().asarray({"a": np.ones(3, np.int32)})


@pytest.mark.parametrize(
    "call",
    [
        gs.cumulative_sum,
        gs.unique_values,
        gs.run_length_encode,
        gs.bincount,
        gs.histogram,
        gs.median,
        lambda x: gs.searchsorted(x, 3),
        lambda x: gs.top_k(x, 2),
        lambda x: gs.linear_recurrence(0.5, x),
    ],
)
def test_an_array_is_no_single_object(call: Any) -> None:
    """Name what was passed, where NumPy makes an array of dtype object and no axes of it."""
    with pytest.raises(TypeError, match=r"a dict of arrays was passed.* x\[name\]"):
        call({"a": X})
    with pytest.raises(TypeError, match=r"\{1, 2\} was passed.* list\(x\) of a set"):
        call({1, 2})
    with pytest.raises(gs.UnsupportedDtypeError, match=r"'x\.npy' was passed.* np\.load"):
        call("x.npy")


def test_lists_of_different_lengths() -> None:
    """Name what was passed and a way out, where NumPy speaks of inhomogeneous shapes."""
    for call in (gs.scan, gs.sort, gs.reduce, gs.cumulative_sum):
        with pytest.raises(ValueError, match=r"\[\[1, 2\], \[3\]\] was passed.* equally long.* segments="):
            call([[1, 2], [3]], axis=0, device="numpy")


def test_bundles_that_nest_too_deep() -> None:
    """Raise a ValueError, not a RecursionError, also where a bundle contains itself."""
    itself: dict[str, Any] = {}
    itself["itself"] = itself
    deep: Any = X
    for _ in range(3000):
        deep = (deep,)
    for bundle in (itself, deep):
        for device in (None, "numpy"):
            with pytest.raises(ValueError, match="nested more than 100 levels deep"):
                gs.scan(bundle, device=device)


@pytest.mark.usefixtures("skip_without_adapters")
def test_arrays_larger_than_memory() -> None:
    """Raise a MemoryError of some kind before anything is computed."""
    huge = np.broadcast_to(np.float32(1), 1 << 46)
    for device in (None, "numpy"):
        with pytest.raises(MemoryError):
            gs.scan(huge, device=device)
    with pytest.raises(gs.DeviceMemoryError, match="asked for"):
        gs.default_device().empty(1 << 46, np.float32)


@pytest.mark.usefixtures("skip_without_adapters")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: UNTYPED.scan_chunks(5), "chunks=5 was passed.*iterable of arrays"),
        (lambda: gs.scan_chunks(gs.default_device().asarray(X)), r"shape \(5,\) was passed as chunks"),
        (lambda: UNTYPED.sort(X, device=[0]), "a list, but this function runs on one"),
        (lambda: UNTYPED.Device(0, unsafe="yes"), "unsafe='yes' was passed"),
        (lambda: gs.scan(X.astype(np.complex64), "logaddexp"), r"does not combine complex numbers.*x\.real"),
        (lambda: gs.scan(X.astype(np.complex64), "bitwise_or"), r"does not combine complex numbers.*x\.real"),
        # Arrays, and the classes of integers, have an __index__ but are no integers.
        (lambda: UNTYPED.scan(X, axis=X), "axis=<numpy.ndarray of shape .*an axis is an integer"),
        (lambda: UNTYPED.reduce(X, groups=X, num_groups=int), "num_groups=.*pass an integer"),
        (lambda: UNTYPED.scan(X, device=X), "device=.*neither a gpuscan.Device nor"),
        (lambda: UNTYPED.export("page", length=X), "length=.*pass the number of elements"),
        (lambda: UNTYPED.default_device().empty((2, None), int), r"shape=\(2, None\) was passed.*integers"),
        (lambda: gs.default_device().asarray(X).reshape(2.5), "shape=2.5 was passed.*integers"),
        (lambda: gs.default_device().asarray(X).transpose("x"), "axes='x' was passed.*integers"),
        (lambda: UNTYPED.Device(0, required_limits=X), "required_limits of type ndarray"),
    ],
)
def test_values_of_the_wrong_kind(call: Any, message: str) -> None:
    """Say at the call, and in its words, what was passed."""
    with pytest.raises(TypeError, match=message):
        call()


def test_a_file_is_no_folder() -> None:
    with pytest.raises(FileExistsError, match=r"folder='.*' was passed, which is a file; pass the path of a folder"):
        gs.export(__file__, length=5)
