"""`gpuscan.map`: functions of every element, compared with the same functions on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device.context import DeviceContext
from tests.harness.builds import count_reads, count_shader_modules
from tests.harness.devices import small_binding
from tests.oracle import assert_same

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def numbers(dtype: Any, shape: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(1, 60, shape).astype(dtype)


# A function of exact operations, and the arrays that it takes.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "broadcast": (lambda a, b: a * b + 1, (numbers("float32", (13, 1)), numbers("int8", (7,), 1))),
    "several": (
        lambda a, b: (a > b, {"narrow": (a + b).astype(np.uint8), "wide": a.astype(np.int64) - 2**40}),
        (numbers("float32", (5, 1, 7)), numbers("int16", (3, 7), 1)),
    ),
    "views": (lambda a, b: a - b, (numbers("int64", (9, 8))[::-2, 1::3], numbers("int64", (8, 5)).T[:, ::3])),
    "packed": (lambda a, b, c: np.where(c, a ^ b, a), tuple(numbers(t, 1037) for t in ("uint8", "uint8", "bool"))),
    "wide": (lambda a, b: (a * 3, a > b, np.stack([b, b], -1)), (numbers("int64", 1), numbers("int16", 1, 1))),
    "few": (lambda a, b: (a * b, a), (numbers("uint64", 5), numbers("int8", 5, 1).astype("uint8"))),
    "half": (lambda a, k: a * k, (numbers("float16", (3, 5)), 2.5)),
    "bfloat": (lambda a: (a * 2).astype(BFLOAT16), (numbers("float32", 33),)),
    "complex": (lambda a, b: a * 2 + b, (numbers("complex64", (4, 3)), numbers("float32", 3))),
    "number": (lambda a, b: a + b, (numbers("uint16", ()), numbers("uint16", ()))),
    "vector": (lambda a: np.stack([a, a * 2, a // 3], axis=-1), (numbers("int16", (3, 5)),)),
    "ignored": (lambda a, b: (np.float32(3), b), (numbers("int8", (4, 1)), numbers("int8", 5))),
    "bundle": (
        lambda p, k: p["u"] * k + p["v"],
        ({"u": numbers("float32", 9), "v": numbers("int8", (2, 9))}, np.float32(2)),
    ),
    "empty": (lambda a, b: a * b, (numbers("float32", (0, 3)), numbers("float32", 3))),
}


def flat(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else None
    return [value] if parts is None else [leaf for part in parts for leaf in flat(part)]


def place_on_device(value: Any, device: gs.Device) -> Any:
    """Return the arguments on a device; views stay views, and numbers numbers."""
    if isinstance(value, dict):
        return {name: place_on_device(part, device) for name, part in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    if value.base is None or value.base.shape == value.shape:
        return device.asarray(value)
    return device.asarray(value.repeat(2, axis=-1))[..., ::2]


@pytest.mark.parametrize("name", CASES)
def test_functions_of_arrays(device: gs.Device, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    function, arrays = CASES[name]
    with np.errstate(all="ignore"):
        wanted = flat(function(*arrays))
    shape = np.broadcast_shapes(*(leaf.shape for array in arrays for leaf in flat(array) if np.ndim(leaf)))
    for given, options in ((arrays, {"device": device}), (arrays, {"device": "numpy"})):
        for mine, theirs in zip(flat(gs.map(function, *given, **options)), wanted, strict=True):
            whole = np.asarray(theirs)
            assert_same(mine, np.broadcast_to(whole, shape + whole.shape[len(shape) :] if whole.ndim else shape))
    there = [place_on_device(array, device) for array in arrays]
    with monkeypatch.context() as patched:
        reads = count_reads(patched)
        got = flat(gs.map(function, *there))
        assert reads == []
    for mine, theirs in zip(got, flat(gs.map(function, *arrays, device="numpy")), strict=True):
        assert isinstance(mine, gs.Array)
        assert_same(mine, theirs)


def test_results_are_written_to_out(device: gs.Device) -> None:
    """Assert that `out` may be an input, a view, and a bundle, and that nothing around it changes."""
    x, y = numbers("uint8", (6, 50)), numbers("uint8", (6, 50), 1)
    a, b = device.asarray(x), device.asarray(y)
    assert gs.map(lambda a, b: a * 3 + b, a, b, out=a) is a
    assert_same(a, x * 3 + y)
    gs.map(lambda a, b: (b, a), a[0], a[1:2, ::-1].reshape(50), out=(a[0], a[2]))
    wanted = x * 3 + y
    wanted[0], wanted[2] = wanted[1, ::-1].copy(), wanted[0].copy()
    assert_same(a, wanted)
    gs.map(lambda a: a + 1, b[::2, 1::3], out=b[1::2, 1::3])
    later = y.copy()
    later[1::2, 1::3] = later[::2, 1::3] + 1
    assert_same(b, later)
    here = x.copy()
    gs.map(lambda a: a + 1, here[:, :-1], out=here[:, 1:], device=device)
    assert_same(here[:, 1:], x[:, :-1] + 1)
    gs.map(lambda a: a + 1, x, out=here[:], device="numpy")
    assert_same(here, x + 1)


def test_constants_share_their_shader(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a = device.asarray(numbers("float32", 5))
    made = count_shader_modules(device, monkeypatch)
    for factor in (0.5, 0.25, 3.0):
        assert_same(gs.map(lambda v, k=factor: v * v * k, a), a.numpy() ** 2 * np.float32(factor))
    assert len(made) <= 1


def test_arrays_that_exceed_a_binding(adapter: wgpu.GPUAdapter) -> None:
    """Assert that pieces are computed right, also of views with rows that exceed a binding."""
    limit = small_binding(adapter)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": limit})
    x, y = numbers("int32", (3, limit // 8 + 5)), numbers("int8", (limit // 8 + 5,))
    a, b = small.asarray(x), small.asarray(y)
    for mine, theirs in (
        (gs.map(lambda a, b: a * b, a, b), x * y),
        (gs.map(lambda a, b: a + b, a[:, ::-1], a.reshape(-1)[: y.size]), x[:, ::-1] + x.reshape(-1)[: y.size]),
        (gs.map(lambda a: (a % 7).astype(np.int8), a.T), (x.T % 7).astype(np.int8)),
        (gs.map(lambda a, b: a * b, a.reshape(-1), a.reshape(-1)[::-1]), x.reshape(-1) * x.reshape(-1)[::-1]),
    ):
        assert_same(mine, theirs)
    gs.map(lambda a, b: a * b, a, b, out=a)
    assert_same(a, x * y)


def test_numpy_arrays_go_in_pieces(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuscan.api.map._PIECE_BYTES", 1000)
    x, y = numbers("int16", (4, 301)), numbers("int16", (301,))
    assert_same(gs.map(lambda a, b: a * b, x, y, device=device), x * y)
    assert_same(gs.map(lambda a, b: a * b, x.T, y[:, None], device=device), (x * y).T)


def test_errors(device: gs.Device) -> None:
    untyped: Any = gs
    a = device.asarray(np.ones((2, 3), np.float32))
    for call, error, match in (
        (lambda: untyped.map(3, a), TypeError, "function=3 was passed"),
        (lambda: untyped.map(lambda: 1), TypeError, "without an array"),
        (lambda: gs.map(lambda k: k, 3.0), TypeError, "without an array"),
        (
            lambda: gs.map(lambda a, b: a + b, a, np.ones(2, np.float32)),
            ValueError,
            r"\(2, 3\), \(2,\).*do not broadcast",
        ),
        (lambda: gs.map(lambda a: a, a, a), gs.OperatorError, "takes 1 positional argument"),
        (lambda: gs.map(lambda a: a if a > 1 else 0, a), gs.OperatorError, r"np\.where"),
        (lambda: gs.map(lambda a: a, a, out=device.empty(3, np.float32)), ValueError, r"out of shape \(3,\)"),
        (lambda: gs.map(lambda a: a, a, out=device.empty((2, 3), np.int32)), TypeError, "out of dtype int32"),
        (lambda: gs.map(lambda a: a, a, out=np.empty((2, 3), np.float32)), TypeError, r"gpuscan\.Array"),
        (lambda: gs.map(lambda a: (a, a), a, out=(a[0], a)), ValueError, "out of shape"),
        (lambda: gs.map(lambda a: (a, a), a, out=(a, a)), ValueError, "share memory"),
        (lambda: gs.map(lambda a: a, a, device="numpy"), ValueError, "runs where its arrays are"),
    ):
        with pytest.raises(error, match=match):
            call()
    if device.capabilities.limits["max-storage-buffers-per-shader-stage"] < 99:
        with pytest.raises(gs.GpuscanError, match="binds"):
            gs.map(lambda *v: sum(v), *[a[:, i % 3] for i in range(99)])
    if not device.capabilities.float64:
        with pytest.raises(gs.UnsupportedDtypeError, match="has no 64-bit floats"):
            gs.map(lambda a: a * 2, device.asarray(np.ones(3)))


def test_one_kernel_computes_all(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a = device.asarray(numbers("float32", (40, 30)))
    stages: list[str] = []
    stage = DeviceContext.stage

    def note_stage(self: DeviceContext, name: str, **options: Any) -> Any:
        stages.append(name)
        return stage(self, name, **options)

    monkeypatch.setattr(DeviceContext, "stage", note_stage)
    gs.map(lambda a, b: ((a - b) * a, np.abs(a + b)), a[::2], a[1::2, ::-1])
    assert stages == ["arrays/map_elements.wgsl"]
