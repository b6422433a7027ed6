"""Views of arrays on a device: as NumPy's, on the same buffer, and taken by every call without the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wgpu

import gpuscan as gs
from tests.harness.builds import count_reads
from tests.harness.devices import small_binding
from tests.oracle import assert_same, numbers, ufunc_scan

DTYPES = ("bool", "int8", "uint16", "float16", ml_dtypes.bfloat16, "int32", "float32", "int64", "float64", "complex64")
INDICES: tuple[Any, ...] = (
    np.s_[::2],
    np.s_[:, ::-1],
    np.s_[..., 1],
    np.s_[1:4, 2:5, 1:3],
    np.s_[::-1, ::-2, ::-3],
    np.s_[None, 2, ..., None, 3],
    np.s_[4, 6, 5],
    np.s_[:, 3:3, ::2],
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_are_numpys(device: gs.Device, dtype: Any) -> None:
    """Compare views, and views of views, with NumPy's; all are on one buffer."""
    x = numbers(dtype, (5, 7, 6))
    a = device.asarray(x)
    for index in INDICES:
        view, wanted = a[index], x[index]
        assert view.buffer is a.buffer
        assert (view.ndim, view.size, view.nbytes) == (wanted.ndim, wanted.size, wanted.nbytes)
        for mine, theirs in (
            (view, wanted),
            (view.T, wanted.T),
            (view.ravel(), wanted.ravel()),
            (view.reshape(1, -1), wanted.reshape(1, -1)),
        ):
            assert_same(mine, theirs, index)
    assert a.strides == x.strides
    assert a[::2, ::-1].strides == x[::2, ::-1].strides
    assert_same(a[:, ::2].copy(), x[:, ::2])
    assert_same(a[::2].T.read_async().result(30), x[::2].T)
    assert_same(a.mT[..., ::-1, 1:].flatten(), x.swapaxes(1, 2)[..., ::-1, 1:].flatten())


def test_shapes(device: gs.Device) -> None:
    """Assert that a reshape is a view where NumPy's is, that views have a length, and that they are iterated over."""
    x = numbers("int16", (4, 6, 2))
    a = device.asarray(x)
    for view in (a.reshape(4, 12), a[:, ::2].reshape(2, 2, 3, 2), a.transpose(2, 0, 1)[0].reshape(24), a.T.T, a[1:3].T):
        assert view.buffer is a.buffer
    assert a[:, ::2].reshape(4, 6).buffer is not a.buffer
    assert a.flatten().buffer is not a.buffer
    assert a.T.T.is_contiguous
    assert not a.T.is_contiguous
    assert_same(a.transpose(1, -1, 0), x.transpose(1, -1, 0))
    assert_same(a.transpose((2, 0, 1)).swapaxes(0, 1), x.transpose(2, 0, 1).swapaxes(0, 1))
    assert len(a[:, 0]) == 4
    for row, wanted in zip(a.T[1:], x.T[1:], strict=True):
        assert_same(row, wanted)
    picked = gs.compact(a, np.array([True, False, True, True]))
    assert_same(picked[::-1, 1:, 0].T, x[[0, 2, 3]][::-1, 1:, 0].T)
    one = a[0, 0, 0]
    for wrong, match in (
        (lambda: len(one), "no axes"),
        (lambda: list(one), "no axes"),
        (lambda: one.mT, "two axes"),
        (lambda: a.swapaxes(0, 5), "no such axis"),
        (lambda: a[9], "4 entries"),
        (lambda: np.array(a, copy=False), "without a copy"),
    ):
        with pytest.raises((TypeError, ValueError, IndexError), match=match):
            wrong()
    for name, value in (("shape", (8, 6)), ("dtype", np.uint16)):
        with pytest.raises(AttributeError, match="it is fixed"):
            setattr(a, name, value)
    assert_same(a, x)


@pytest.mark.parametrize("dtype", ["int8", "float32", "int64", "float64"])
def test_assignments(device: gs.Device, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Compare assignments of numbers, arrays and views, overlapping ones too, with NumPy's."""
    x = numbers(dtype, (5, 7, 6))
    a = device.asarray(x)
    row = np.arange(6, dtype=np.int16)
    reads = count_reads(monkeypatch)
    for index in INDICES:
        a[index] = x[index] = 3
    a[1] = x[1] = row
    a[2:, ::2] = x[2:, ::2] = row.reshape(1, 1, 1, 6)
    a[...], x[...] = a[::-1], x[::-1].copy()
    a[1:], x[1:] = a[:-1], x[:-1].copy()
    a[:, 0], x[:, 0] = device.asarray(row) + 1, row + 1
    a[0, 0], x[0, 0] = a[1, 1], x[1, 1]
    if dtype != "float64":  # Only some adapters compute in it.
        a[::-2, 1:] += 2
        x[::-2, 1:] += 2
    assert reads == []
    assert_same(a, x)


def test_assignments_that_do_not_fit(device: gs.Device) -> None:
    """Assert that each raises its own error and changes nothing."""
    x = numbers("int16", (4, 6))
    a = device.asarray(x)
    wrong: tuple[tuple[Any, Any, type[Exception], str], ...] = (
        (0, np.ones(5), ValueError, r"shape \(5,\) were assigned to elements of shape \(6,\)"),
        (0, 2**15, OverflowError, "out of bounds for int16.* Pass numbers"),
        (0, [0, 0, 0, 0, 0, 2**15], OverflowError, "out of bounds for int16.* Pass numbers"),
        (0, None, TypeError, "None was assigned to elements of int16"),
        (0, "ab", ValueError, "'ab' was assigned to elements of int16"),
        (int, 1, IndexError, "indices are integers"),
        (9, 1, IndexError, "pass one from -4 to 3"),
        ([0, 9], 1, IndexError, "index 9 was asked for"),
        (x == x, np.ones(2), ValueError, "do not broadcast"),
        (np.ones(5, bool), 1, IndexError, "one bool for each element"),
    )
    for index, value, error, match in wrong:
        with pytest.raises(error, match=match):
            a[index] = value
    with pytest.raises(ValueError, match="elements that share memory"):
        gs.scan(a[0], out=np.broadcast_to(a[0, :1], (6,)))
    assert_same(a, x)
    floats = device.asarray(numbers("float32", 4))
    for index, value in ((0, 1j), (slice(2), [1, 1j]), ([0, 2], 2 + 0j), (floats > 0, 1j)):
        before = floats.numpy()
        with pytest.raises(TypeError, match=r"was assigned to elements of float32, which cannot hold it"):
            floats[index] = value
        assert_same(floats, before)


def test_broadcast_views_are_not_written_to(device: gs.Device) -> None:
    """Assert that each way to assign is refused, as by NumPy, and changes nothing."""
    x = np.arange(4, dtype=np.float32)
    a = device.asarray(x)
    z = device.asarray(np.zeros((4, 4), np.float32))
    ways: list[Callable[[Any], Any]] = [
        lambda view: view.__setitem__(slice(None), z[:, : view.shape[1]]),
        lambda view: view.__setitem__((0, 0), 1.0),
        lambda view: view.__setitem__(view > 1, 1.0),
        lambda view: np.copyto(view, z[:, : view.shape[1]]),
        lambda view: np.copyto(view, 1.0, where=view > 1),
        lambda view: np.add(view, 1.0, out=view),
        lambda view: view.__iadd__(1.0),
    ]
    for view in (np.broadcast_to(a, (4, 4)), np.broadcast_to(a[:1], (4, 4)), np.broadcast_to(a, (4, 4)).T[::-1, 1:]):
        for way in ways:
            with pytest.raises(ValueError, match="share memory"):
                way(view)
    assert_same(a.numpy(), x)
    np.broadcast_to(a, (1, 4))[:] = 7  # no two elements are one
    assert_same(a.numpy(), np.full(4, 7, np.float32))


def test_every_call_takes_views(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare calls on views with the same calls on NumPy arrays. No element may go through the CPU."""
    x, y = numbers("float32", (40, 6, 3)), numbers("float32", (40, 6, 3), 1)
    a, b = device.asarray(x), device.asarray(y)
    mask = numbers("int8", 80) % 2 == 0
    mask_there = device.asarray(mask)[::-2]
    plan = device.plan((6, 20), np.float32, axis=0, reverse=True)
    p, q = np.s_[::-2, :, 1], np.s_[1::2, ::-1, 0]
    matrices = np.s_[::3, :2, 1:]

    def affine(l: Any, r: Any) -> Any:
        return l[0] * r[0], r[0] * l[1] + r[1]

    def calls(a: Any, b: Any, mask: Any) -> list[Any]:
        numpy: dict[str, Any] = {"device": "numpy"} if isinstance(a, np.ndarray) else {}
        return [
            gs.scan(a[p], axis=0, **numpy),
            gs.scan(a[p], axis=1, exclusive=True, reverse=True, initial=2, dtype=np.int32, **numpy),
            gs.scan(a[p].T, "maximum", axis=0, before=lambda v: -v, **numpy),
            gs.scan((a[p], b[q]), affine, axis=1, **numpy)[1],
            gs.scan(a[:, 0, 0], keys=b[::-1, 1, 2], **numpy),
            gs.scan(a[matrices], "matmul", axis=0, initial=np.eye(2, dtype=np.float32), **numpy),
            gs.reduce(a[p], axis=0, **numpy),
            gs.reduce(a[p], "maximum", **numpy),
            gs.linear_recurrence(a[p], b[q], axis=0, **numpy),
            gs.compact(a[::-1, :, 1], mask),
            gs.compact(a[:, ::2], mask),
            gs.cumulative_sum(a[q], axis=1, include_initial=True),
            a[p].astype(np.int16),
            gs.sort(a[p], axis=0, **numpy),
            gs.sort(a[p].astype(np.int8).T, axis=1, descending=True, **numpy),
            gs.sort_by_key(a[::-1, 0, 1], b[:, 1:3, 0])[1],
            gs.map(lambda u, v: u - v, a[p], b[q], **numpy),
            gs.scan(a[p], axis=1, keys=b[q], **numpy),
            gs.scan(a[p].T, axis=0, return_total=True, **numpy)[1],
            gs.scan(a[:, 1, 1], groups=b[:, 2, 0].astype(np.uint8), **numpy),
            gs.reduce(a[p], axis=0, groups=b[:20, 1, 2].astype(np.int32), num_groups=60, **numpy),
        ]

    with monkeypatch.context() as patched:
        reads = count_reads(patched)
        got = [*calls(a, b, mask_there), plan(a[p].T)]
        grads = gs.linear_recurrence_vjp(a[p], b[q], b[p], axis=0)
        # Labels are checked on the device, and one word says if they are right.
        assert max(reads, default=0) <= 4
    wanted = [*calls(x, y, mask[::-2]), gs.scan(x[p].T, axis=0, reverse=True, device="numpy")]
    for number, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        assert isinstance(mine, gs.Array)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, err_msg=str(number))
    for mine, theirs in zip(grads[:2], gs.linear_recurrence_vjp(x[p], y[q], y[p], axis=0), strict=False):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert_same(a, x)
    encoder = device.wgpu_device.create_command_encoder()
    with pytest.raises(ValueError, match=r"dst is a view of shape \(6, 20\).*array\.copy\(\)"):
        plan.record(encoder, a[:20, :, 0].copy().T.copy(), a[:20, :, 0].T)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "complex64"])
def test_results_are_written_to_views(device: gs.Device, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Assert that `out` may be any view, also of the input, and that nothing around it changes."""
    x, before = numbers(dtype, (5, 7, 6)), numbers(dtype, (5, 7, 6), 1)
    a = device.asarray(x)
    for index in INDICES[:5]:
        for turned in (lambda v: v, lambda v: v.T):
            wanted, target = before.copy(), device.asarray(before)
            out = turned(target[index])
            with monkeypatch.context() as patched:
                reads = count_reads(patched)
                assert gs.scan(turned(a[index]), axis=0, out=out) is out
                assert reads == []
            turned(wanted[index])[...] = ufunc_scan("add", turned(x[index]))
            assert_same(target, wanted, index)
    target, wanted = device.asarray(x), x.copy()
    gs.scan(target[:, ::-1, 0], axis=1, out=target[:, :, 0])
    wanted[:, :, 0] = ufunc_scan("add", x[:, ::-1, 0], axis=1)
    gs.scan(target[..., 1].T, axis=1, out=target[..., 1].T)
    wanted[..., 1] = ufunc_scan("add", x[..., 1])
    assert_same(target, wanted)


def test_the_columns_of_a_table_are_the_results_of_a_bundle(device: gs.Device) -> None:
    x = numbers("uint8", (100, 5))
    a, table = device.asarray(x), device.asarray(np.zeros((100, 5), np.uint8))
    both = (table[:, 3], table[:, 0])
    gs.scan((a[:, 1], a[:, 2]), lambda l, r: (l[0] + r[0], np.maximum(l[1], r[1])), out=both)
    wanted = np.zeros((100, 5), np.uint8)
    wanted[:, 3], wanted[:, 0] = ufunc_scan("add", x[:, 1]), ufunc_scan("maximum", x[:, 2])
    assert_same(table, wanted)
    with pytest.raises(ValueError, match="share memory"):
        gs.scan((a[:, 1], a[:, 2]), lambda l, r: l, out=(table[:, 3], table[::-1, 3]))


def test_views_of_arrays_that_exceed_a_binding(adapter: wgpu.GPUAdapter) -> None:
    limit = small_binding(adapter)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": limit})
    x = np.random.default_rng(3).integers(0, 100, (3, limit // 8, 2), dtype=np.int32)
    a = small.asarray(x)
    for index in (np.s_[:, ::-1, 1], np.s_[::-1, 1:, ::-1]):
        assert_same(a[index], x[index])
        assert_same(a[index].T, x[index].T)
        target, wanted = small.asarray(x), x.copy()
        gs.scan(a[index], axis=1, out=target[index])
        wanted[index] = ufunc_scan("add", x[index], axis=1)
        assert_same(target, wanted)
