"""Indices with arrays and masks, and NumPy's functions of indices, on a device: as NumPy's, and without the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import assert_launches, count_reads, count_waits
from tests.harness.calls import FIRST, Counted
from tests.harness.devices import as_gpu
from tests.oracle import assert_same, numbers

DTYPES = ("bool", "int8", "uint16", "float16", ml_dtypes.bfloat16, "int32", "float32", "int64", "float64", "complex64")
INDICES: tuple[Any, ...] = (
    ([0, 2],),
    ([0, -1], [1, 2]),
    (slice(None), [1, 0, 1]),
    (0, slice(None), [1, 1]),
    ([1, 0], slice(None), [1, 1]),
    (Ellipsis, [1, 0]),
    (None, [1, 0]),
    ([[0, 1], [2, 3]],),
    ([[0], [2]], [1, 3]),
    (slice(None, None, -2), [0, 2], slice(1, 3)),
    (True,),
    (False,),
    ([1, 0], True),
    (np.True_,),
    ([1, 0], np.False_),
    (range(2),),
    (slice(None), range(3, 0, -1)),
    ([],),
    (slice(1, 3), [[0, 1]], None, 1),
    (0, Ellipsis, [1, 0], [1, 1]),
    ([0], [0, 1], Ellipsis, 2),
    (1, [0, 2], 1),
)
MASKS: tuple[Any, ...] = (
    (np.arange(4) > 1,),
    (np.arange(20).reshape(4, 5) % 3 == 0,),
    (np.arange(120).reshape(4, 5, 6) % 7 < 3,),
    (slice(None), np.arange(5) % 2 == 0),
    (np.arange(4) % 2 == 0, slice(None), [0, 3]),
    (np.zeros((4, 5), bool), slice(None, 2)),
)


def on_device(device: gs.Device, index: Any, dtype: Any = np.int8) -> Any:
    """Return the index with its lists and masks on the device."""

    def move_part(part: Any) -> Any:
        if not isinstance(part, (list, np.ndarray)):
            return part
        return device.asarray(part if isinstance(part, np.ndarray) else np.asarray(part, dtype))

    return tuple(move_part(part) for part in index)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_at_indices_are_numpys(device: gs.Device, dtype: Any) -> None:
    """Take and put elements at indices of all kinds, from NumPy and from the device, of arrays and of views.

    The types take turns with the two views, and with every other index.
    """
    x = numbers(dtype, (4, 5, 6))
    a = device.asarray(x)
    rotation = DTYPES.index(dtype)
    views = [(a[::-1, 1:, ::2], x[::-1, 1:, ::2], INDICES), (a.T, x.T, INDICES)]
    for view, own, indices in ((a, x, (*INDICES, *MASKS)), views[rotation % 2]):
        for number, index in list(enumerate(indices))[rotation // 2 % 2 :: 2]:
            try:
                wanted = own[index]
            except IndexError:
                with pytest.raises(IndexError):
                    view[index]
                continue
            for given in (index, on_device(device, index, ("int8", "int32", "int64")[number % 3])):
                assert_same(view[given], wanted, given)
                target, result = view.copy(), own.copy()
                values = numbers(dtype, wanted.shape, number)
                target[given], result[index] = values, values
                assert_same(target, result, given)
                target[given], result[index] = 1, 1
                assert_same(target, result, given)


@pytest.mark.parametrize("dtype", DTYPES)
def test_writes_through_views(device: gs.Device, dtype: Any) -> None:
    """Assert that only the elements at the indices change, not their neighbours in the same words."""
    x = numbers(dtype, (7, 9))
    a = device.asarray(x)
    a[1:6, ::2].T[[4, 0]] = x[0, :5]
    x[1:6, ::2].T[[4, 0]] = x[0, :5]
    assert_same(a, x)
    if dtype != "float64" or device.capabilities.float64:
        a[[1, 3]] += a[[0, 0]]
        x[[1, 3]] += x[[0, 0]]
    assert_same(a, x)
    a[[0, 1, 2]] = a[[2, 0, 1]]
    x[[0, 1, 2]] = x[[2, 0, 1]]
    assert_same(a, x)
    a[[2, 1]] = a[:2]
    x[[2, 1]] = x[:2].copy()
    assert_same(a, x)


def test_indices_are_brought_into_arrays_of_several_lengths(device: gs.Device) -> None:
    """Compare the modes of np.take with NumPy's, for lengths that follow each other."""
    x, index = numbers("int32", 500), np.random.default_rng(1).integers(-900, 900, 70).astype(np.int32)
    a, on_device = device.asarray(x), device.asarray(index)
    modes: tuple[Any, ...] = ("wrap", "clip")
    for length in (100, 200, 300, 400):
        for mode in modes:
            assert_same(np.take(a[:length], on_device, mode=mode), np.take(x[:length], index, mode=mode))


def test_the_last_of_equal_indices_counts(device: gs.Device) -> None:
    """Put values at random indices, most of them more than once, and compare with NumPy's loop."""
    rng = np.random.default_rng(1)
    for dtype in ("int8", "uint16", "float32", "int64"):
        index, values = rng.integers(-50, 50, 5000), numbers(dtype, 5000)
        x = np.zeros(50, dtype)
        a = device.asarray(x)
        x[index] = values
        a[device.asarray(index)] = values
        assert_same(a, x)
        a[index] = device.asarray(values[::-1].copy())
        x[index] = values[::-1]
        assert_same(a, x)


def test_indices_stay_on_the_device(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that nothing is read by indexing with arrays on the device, a mask included."""
    x = numbers("float32", 1000)
    a, order = device.asarray(x), gs.argsort(device.asarray(x))
    mask = a > 25
    reads = count_reads(monkeypatch)
    ordered, picked = a[order], a[mask]
    a[order] = ordered[::-1]
    a[mask] = -1.0
    np.take(a, order)
    assert not reads
    monkeypatch.undo()
    assert_same(ordered, np.sort(x))
    assert_same(picked, x[x > 25])


def test_wrong_indices(device: gs.Device) -> None:
    """Assert what is raised at once, what at the next read, and that wrong indices on a device write nothing."""
    x = numbers("float32", (4, 5))
    a = device.asarray(x)
    for wrong, match in (
        ([4], "index 4 was asked for along axis 0, which has 4 entries; pass indices from -4 to 3"),
        ((slice(None), [0, -6]), "index -6 .* along axis 1, which has 5 entries"),
        ([1.5], "dtype float64"),
        ("x", "index 'x' was asked for"),
        (1.5, "index 1.5 was asked for"),
        (np.float32, "index <class 'numpy.float32'> was asked for"),
        (([0], np.float32(1)), r"index np.float32\(1.0\) was asked for"),
        (device.asarray(x), r"an index of dtype float32"),
        (np.ones(3, bool), r"a mask of shape \(3,\)"),
        (device.asarray(np.ones((5, 4), bool)), r"a mask of shape \(5, 4\)"),
        (([0, 1], [0, 1, 2]), "have to broadcast"),
        (([0], 0, 0), "3 indices"),
        ((Ellipsis, [0], Ellipsis), "2 ellipses"),
    ):
        for call in (lambda index=wrong: a[index], lambda index=wrong: a.__setitem__(index, 0)):
            with pytest.raises(IndexError, match=match) as caught:
                call()
            assert "..." not in str(caught.value).replace("slices, ..., None", "").replace("ellipses (...)", "")
    with pytest.raises(TypeError, match="a ShardedArray was passed"):
        a[gs.ShardedArray.from_numpy(np.arange(2), [device])]
    with pytest.raises(ValueError, match=r"shape \(7,\) .* shape \(2, 5\)"):
        a[[0, 1]] = np.ones(7)
    for index in (np.array([1, 4]), np.array([-5, 0]), np.array([2**40, 0]), np.array([-(2**40), 1])):
        b = a.copy()
        b[device.asarray(index)] = 7
        with pytest.raises(IndexError, match="along axis 0, which has 4 entries"):
            b.numpy()
        wanted = x.copy()
        wanted[[i for i in index if -4 <= i < 4]] = 7
        assert_same(b, wanted)
    taken = a[device.asarray(np.array([9, -9]))]
    with pytest.raises(IndexError, match="index 9 "):
        device.synchronize()
    assert_same(taken, np.zeros((2, 5), np.float32))
    with pytest.raises(IndexError, match="0 entries"):
        a[:0][device.asarray(np.array([0]))]
    assert_same(a[:0][device.asarray(np.array([], np.int32))], x[:0])


def test_functions_of_indices(device: gs.Device) -> None:
    """Compare `np.take` and `np.take_along_axis` along every axis, in all modes, with indices of both kinds."""
    x = np.random.default_rng(2).permutation(120).reshape(4, 5, 6).astype(np.float32)
    a: Any = device.asarray(x)
    index = np.random.default_rng(3).integers(-4, 4, (2, 3))
    for given in (index, device.asarray(index), index.tolist()):
        for axis in (None, 0, 1, 2, -1):
            assert_same(np.take(a, given, axis), np.take(x, index, axis))
            assert_same(a.take(given, axis, mode="clip"), x.take(index, axis, mode="clip"))
            if not isinstance(given, list):
                assert_same(np.take(a, given * 9, axis, mode="wrap"), np.take(x, index * 9, axis, mode="wrap"))
    assert_same(np.take(a, 3), np.take(x, 3))
    assert_same(np.take(a, -1, 1), np.take(x, -1, 1))
    out: Any = device.empty((2, 5, 6), np.float32)
    assert np.take(a, [1, 0], 0, out=out) is out
    assert_same(out, x[[1, 0]])
    places: Any
    for axis in (0, 1, -1, None):
        order = np.argsort(x, axis)
        for places in (order, gs.argsort(a, axis=axis)):
            assert_same(np.take_along_axis(a, places, axis), np.take_along_axis(x, order, axis))
    one = np.random.default_rng(4).integers(-5, 5, (1, 3, 6))
    assert_same(np.take_along_axis(a, one, 1), np.take_along_axis(x, one, 1))
    places = device.asarray(one.T)
    assert_same(np.take_along_axis(a.T, places, 1), np.take_along_axis(x.T, one.T, 1))
    half: Any = [0.5]
    near: Any = "near"
    floats: Any = np.zeros((1, 1, 1))
    for wrong, error in (
        (lambda: np.take(a, [7], 0), IndexError),
        (lambda: np.take(a, half, 0), TypeError),
        (lambda: np.take(a, [0], 0, mode=near), ValueError),
        (lambda: np.take_along_axis(a, np.zeros(3, int), 0), ValueError),
        (lambda: np.take_along_axis(a, floats, 0), IndexError),
        (lambda: np.take_along_axis(a, np.zeros((3, 5, 6), int), 1), IndexError),
    ):
        with pytest.raises(error):
            wrong()


def test_deviations(device: gs.Device) -> None:
    """Compare `std` and `var` with NumPy's, along one axis, several and all, of floats of all sizes and of complex."""
    x = np.random.default_rng(5).normal(3, 2, (4, 5, 6)).astype(np.float32)
    for dtype, tolerance in (("float32", 1e-5), ("float16", 2e-3), ("complex64", 1e-5)):
        own = (x + 1j * x[::-1]).astype(dtype) if dtype == "complex64" else x.astype(dtype)
        a = device.asarray(own)
        for axis in (None, 0, -1, (0, 2)):
            kinds: list[dict[str, Any]] = [{}, {"ddof": 1, "keepdims": True}]
            for options in kinds:
                for function in (np.std, np.var):
                    found, wanted = function(a, axis, **options), function(own, axis, **options)
                    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
                    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, tolerance)
    out = device.empty((4, 5), np.float32)
    assert device.asarray(x).std(2, out=out) is out
    np.testing.assert_allclose(out.numpy(), x.std(2), 1e-5)
    with pytest.raises(TypeError, match=r"float64; pass dtype=np\.float32"):
        device.asarray(np.arange(3)).var()


def test_parts_of_complex_numbers(device: gs.Device) -> None:
    """Read and write real and imaginary parts through views."""
    x = numbers("float32", (3, 4)) + np.complex64(1j) * numbers("float32", (3, 4), 1)
    a = device.asarray(x)
    assert a.real.buffer is a.imag.buffer is a.buffer
    for mine, own in ((a, x), (a.T, x.T), (a[::2, 1:], x[::2, 1:])):
        assert_same(mine.real, own.real)
        assert_same(np.imag(mine), own.imag)
        assert_same(gs.scan(mine.imag, axis=0), np.cumsum(own.imag, 0))
    a.real, x.real = 2, 2
    a.imag[1:], x.imag[1:] = x.real[1:], x.real[1:]
    assert_same(a, x)
    real = a.real.copy()
    assert real.real is real
    assert_same(real.imag, np.zeros((3, 4), np.float32))
    with pytest.raises(TypeError, match="astype"):
        real.imag = 1


def test_rolls_and_tiles(device: gs.Device) -> None:
    x = numbers("int16", (4, 5, 6))
    a = device.asarray(x)
    rolls: list[tuple[Any, Any]] = [(1, None), (-2, None), (7, 1), ((1, 2), (0, 1)), ((1, 2), 0), (1, (0, 1)), (0, 1)]
    for shift, axis in (*rolls, (-13, (0, -1))):
        assert_same(np.roll(a, shift, axis), np.roll(x, shift, axis))
        assert_same(np.roll(a[:0], shift, axis), np.roll(x[:0], shift, axis))
    for counts in (2, (2, 1), (1, 2, 3), (2, 1, 1, 2), 0, (2, 0, 1), ()):
        assert_same(np.tile(a, counts), np.tile(x, counts))
        assert_same(np.tile(a[0, ::-1, 0], counts), np.tile(x[0, ::-1, 0], counts))


def test_picked_values_are_written_with_one_wait(device: gs.Device) -> None:
    """Assert that the numbers of elements and of values are read together, and that both are checked."""
    x, y = np.arange(12, dtype=np.int32), np.arange(100, 112, dtype=np.int32)
    a, b = device.asarray(x), device.asarray(y)
    for least in range(6):
        mask, others = x % 6 > least, y % 6 > least
        wanted = x.copy()
        wanted[mask] = y[others]
        there, other = device.asarray(mask), device.asarray(others)
        target = a.copy()
        with count_waits(device) as waits:
            target[there] = b[other]
            assert len(waits) == 1
        assert_same(target.numpy(), wanted)
        target[there] = b[:1]
        wanted[mask] = y[:1]
        target[there] = device.asarray(np.int32(7))
        wanted[mask] = 7
        assert_same(target.numpy(), wanted)
    with pytest.raises(ValueError, match="broadcast"):
        target[a > 3] = b[b > 105]
    with pytest.raises(IndexError, match="mask of shape"):
        target[a[:3] > 1] = b[b > 103]
    assert_same(target.numpy(), wanted)


@pytest.mark.parametrize("form", ["rows", "columns", "grid", "mask"])
def test_other_indices_of_numpy_launch_a_program(device: gs.Device, form: str) -> None:
    """Assert that other indices of NumPy need no further program and no wait, and are checked at each call."""
    rng = np.random.default_rng(6)
    x = numbers(np.int32, (60, 70))
    a = device.asarray(x)

    def make_index() -> Any:
        places = rng.integers(-60, 60, 400)
        if form == "mask":
            return rng.permutation(np.arange(60 * 70) < 900).reshape(60, 70)
        return {"rows": places, "columns": (slice(None, None, 2), places), "grid": (places[:, None], places)}[form]

    for _ in range(40):
        a[make_index()]
    indices = [make_index() for _ in range(5)]
    for index in indices:
        with assert_launches(device):
            found = a[index]
        assert_same(found.numpy(), x[index])
    del found
    calls = min(Counted().of(lambda index=index: a[index]) for index in indices)  # type: ignore[misc]
    assert calls <= 5 * FIRST, calls
    if form != "mask":
        with pytest.raises(IndexError, match="index 99 "):
            a[np.full(400, 99)]


def test_a_call_raises_earlier_errors_before_it_writes(device: gs.Device) -> None:
    """Assert that a call in place changes nothing if it raises the error of an earlier call, since many are unread."""
    device.synchronize()
    array = device.asarray(np.zeros(400, np.int32))
    array[device.asarray(np.array([400], np.int32))] = 1
    written = 0

    def write() -> None:
        nonlocal written
        for length in range(1, 400):
            array[device.asarray(np.arange(length, dtype=np.int32))] = length
            written = length

    with pytest.raises(IndexError, match="index 400"):
        write()
    assert array[0].item() == written > 1


def test_a_call_that_waits_raises_earlier_errors_before_it_writes(device: gs.Device) -> None:
    device = as_gpu(device)
    values = np.arange(50_000, dtype=np.int32)
    array, other = device.asarray(values), device.asarray(values)
    other[device.asarray(np.array([50_000], np.int32))] = 1
    wanted = np.cumsum(values, dtype=np.int32)
    try:
        gs.scan(array, "add", out=array)
    except IndexError:
        # The call waits for the report of its first run.
        wanted = values
    else:
        with pytest.raises(IndexError, match="index 50000"):
            device.synchronize()
    assert_same(array.numpy(), wanted)
