"""The totals that scans return on request equal the results of reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.oracle import AFFINE, assert_same, one_by_one, words


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_every_axis(device: gs.Device, exclusive: bool, reverse: bool) -> None:
    """Return totals with an operator that does not commute, of NumPy arrays and arrays on the device."""
    rng = np.random.default_rng(0)
    x, initial = words(rng, 2, (3, 20, 4)), words(rng, 2, (3, 4))
    options: dict[str, Any] = {"axis": 1, "exclusive": exclusive, "reverse": reverse, "initial": initial}
    options["return_total"] = True
    scanned = one_by_one(AFFINE.function, x, axis=1, reverse=reverse, initial=initial)
    wanted = [field[:, 0 if reverse else -1] for field in scanned]
    for call_device in (device, "numpy"):
        _, totals = gs.scan(x, AFFINE, device=call_device, **options)
        for total, field in zip(totals, wanted, strict=True):
            assert_same(total, field)
    there = tuple(device.asarray(field) for field in x)
    results, totals = gs.scan(there, AFFINE, out=there, **options)
    assert results is there
    for total, field in zip(totals, wanted, strict=True):
        assert isinstance(total, gs.Array)
        assert_same(total, field)


def test_float_bits_are_those_of_the_reduction(device: gs.Device) -> None:
    x = np.random.default_rng(1).normal(size=(3, 5000)).astype(np.float32)
    cases: list[dict[str, Any]] = [{"axis": 1}, {"axis": 1, "exclusive": True, "initial": 2.0}]
    for options in [*cases, {"axis": 0, "after": lambda v: v * 2}]:
        result, total = gs.scan(x, return_total=True, device=device, **options)
        again: dict[str, Any] = {name: value for name, value in options.items() if name != "exclusive"}
        np.testing.assert_allclose(total, gs.reduce(x, device=device, **again), rtol=1e-5)
        if not options.get("exclusive"):
            assert_same(total, result.take(-1, options["axis"]))


def test_exclusive_scans_read_their_input_once(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete the last results by the last elements, of narrow numbers, converted ones, and matrices."""
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (2, 33)).astype(np.int8)
    matrices = rng.integers(0, 99, (7, 2, 2), dtype=np.int32)
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        (x, "multiply", {"axis": 1, "initial": 3}),
        (x, "add", {"axis": 1, "dtype": np.int64, "reverse": True}),
        (matrices, "matmul", {"axis": 0}),
    ]
    for given, op, options in cases:
        turned = np.flip(given, options["axis"]) if options.get("reverse") else given
        wanted = gs.reduce(turned, op, device="numpy", **{k: v for k, v in options.items() if k != "reverse"})
        arrays_and_devices: list[tuple[Any, Any]] = [(given, "numpy"), (given, device)]
        with monkeypatch.context() as patch:
            patch.setattr("gpuscan.api.scan.reduce_in_order", None)
            if op != "matmul":
                arrays_and_devices.append((device.asarray(given), device))
            for array, call_device in arrays_and_devices:
                _, total = gs.scan(array, op, exclusive=True, return_total=True, device=call_device, **options)
                assert_same(total, wanted, (op, options))
    zero = np.array([-0.0], np.float32)
    assert np.signbit(gs.scan(zero, exclusive=True, return_total=True, device=device)[1])


def test_of_cuts_numbers_and_no_elements(device: gs.Device) -> None:
    x = np.arange(1, 7, dtype=np.int32)
    for call_device in (device, "numpy"):
        result, total = gs.scan(x, segments=[0, 2, 6], return_total=True, device=call_device)
        assert_same(result, np.array([1, 3, 3, 7, 12, 18], np.int32))
        assert total == 21
        assert isinstance(total, np.int32)
        result, total = gs.scan(x[:0], "multiply", return_total=True, device=call_device)
        assert result.shape == (0,)
        assert total == 1
        record = np.zeros(3, [("a", np.int32), ("b", np.float32)])
        record["a"] = 5
        _, total = gs.scan(
            record, lambda l, r: {"a": l["a"] + r["a"], "b": r["b"]}, return_total=True, device=call_device
        )
        assert total["a"] == 15
    with pytest.raises(ValueError, match="no identity"):
        gs.scan(x[:0], lambda l, r: l, return_total=True, device="numpy")
    wrong: Any = "yes"
    with pytest.raises(TypeError, match="return_total='yes' was passed"):
        gs.scan(x, return_total=wrong, device="numpy")


def test_reversed_with_indices(device: gs.Device) -> None:
    """Assert that the total of a reversed scan is of the same mapped elements as its results."""
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    for call_device in (device, "numpy"):
        for options in ({"exclusive": True}, {"keys": np.array([0, 0, 1])}):
            _, total = gs.scan(
                x, axis=1, reverse=True, before=lambda v, i: v * i, return_total=True, device=call_device, **options
            )
            assert_same(total, np.array([8, 17], np.int32))
