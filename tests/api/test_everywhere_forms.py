"""``reproducible="everywhere"`` for chunks on a device: the bits of one scan on one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.tile_shapes import SPAN
from tests.api.test_everywhere import (
    CUTS,
    EVERYWHERE,
    LENGTH,
    OFFSETS,
    SPANS,
    normal,
    product_and_sum,
    scan_of_spans,
    special,
    tiny,
)
from tests.harness.scans import scan_chunks_with


@pytest.fixture
def pair(device: gs.Device) -> list[gs.Device]:
    """Return two devices on one adapter, which stand in for two GPUs."""
    return [device, gs.Device(device)]


# ----- Chunks on a device


def assert_chunks(device: gs.Device, x: Any, op: Any = "add", *, cuts: Any, **options: Any) -> None:
    """Assert that chunks on the device, between these places, give the bits that NumPy gives the whole array."""
    bundle = isinstance(x, tuple)
    leaves = x if bundle else (x,)
    pieces = list(zip(*(np.split(leaf, cuts) for leaf in leaves), strict=True))
    # All chunks are read into the same arrays, which is allowed because the stream copies them.
    buffers = [device.empty(len(leaf), leaf.dtype) for leaf in leaves]

    def chunks() -> Any:
        for piece in pieces:
            parts = [buffer[: len(part)] for buffer, part in zip(buffers, piece, strict=True)]
            for part, content in zip(parts, piece, strict=True):
                part[...] = content
            yield tuple(parts) if bundle else parts[0]

    whole = dict(options)
    if "keys" in options:
        options["keys"] = np.split(options["keys"], cuts)
    found = list(gs.scan_chunks(chunks(), op, **options, **EVERYWHERE))
    wanted = gs.scan(x, op, device="numpy", **whole, **EVERYWHERE)
    for number, result in enumerate(wanted if bundle else (wanted,)):
        own = [part[number] if bundle else part for part in found]
        assert all(isinstance(part, gs.Array) and part.device is device for part in own)
        assert [len(part) for part in own] == [len(piece[0]) for piece in pieces]
        assert np.concatenate([part.numpy() for part in own]).tobytes() == result.tobytes()


def add_all(left: Any, right: Any) -> Any:
    return tuple(a + b for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(
    ("x", "op", "options"),
    [
        (tiny(1), "add", {}),
        (tiny(1), "add", {"exclusive": True, "initial": np.float32(1e-40)}),
        (special(2), "multiply", {"segments": OFFSETS}),
        (special(2), "maximum", {"keys": np.arange(LENGTH) // 61, "exclusive": True}),
        (special(2).clip(-9, 9).astype(np.float16), "add", {"segments": OFFSETS}),
        (100 * normal(0), "add", {"compensated": True}),
        ((normal(12), special(13), normal(14)), product_and_sum, {"before": lambda v: (v[0], -v[1], v[2])}),
        # More arrays than a shader binds.
        (tuple(normal(seed, 300) for seed in range(9)), add_all, {}),
    ],
    ids=["sum", "initial", "segments", "keys", "float16", "compensated", "bundle", "packed"],
)
def test_chunks_on_a_device(device: gs.Device, x: Any, op: Any, options: dict[str, Any]) -> None:
    assert_chunks(device, x, op, cuts=[0, 1, 34, 34, 257], **options)


def test_chunks_with_an_initial_value_on_the_device(device: gs.Device) -> None:
    x, initial = normal(0), device.asarray(np.float32(0.1))
    found = gs.scan_chunks(map(device.asarray, np.split(x, [9, 700])), initial=initial, **EVERYWHERE)
    first = next(found)
    initial[...] = 7
    parts = [np.asarray(part) for part in (first, *found)]
    wanted = gs.scan(x, initial=np.float32(0.1), device="numpy", **EVERYWHERE)
    assert np.concatenate(parts).tobytes() == wanted.tobytes()


def test_chunks_of_several_spans_on_a_device(device: gs.Device) -> None:
    """Assert that a piece takes its elements from several chunks, and a chunk its results from several pieces."""
    parts = np.split(normal(1, SPANS), CUTS)
    found = scan_chunks_with(device, map(device.asarray, parts), piece_bytes=4 * SPAN, on_device=True, **EVERYWHERE)
    results = [result._read() for result in found]
    assert [len(result) for result in results] == [len(part) for part in parts]
    assert np.concatenate(results).tobytes() == scan_of_spans().tobytes()


def test_chunks_of_both_kinds(device: gs.Device) -> None:
    """Assert that chunks of NumPy are uploaded if the first chunk is on a device, and that views are taken."""
    x = normal(0, 30)
    first, last = device.asarray(x[9::-1]), device.asarray(x.reshape(15, 2))[5:, 1]
    found = list(gs.scan_chunks([first, x[10:20], last], **EVERYWHERE))
    assert all(isinstance(part, gs.Array) for part in found)
    wanted = gs.scan(np.concatenate([x[9::-1], x[10:20], x[11::2]]), device="numpy", **EVERYWHERE)
    assert b"".join(part.numpy().tobytes() for part in found) == wanted.tobytes()


def test_chunks_that_do_not_fit_on_a_device(pair: list[gs.Device]) -> None:
    x = normal(0, 9)
    device, other = pair
    for second, error in ((other.asarray(x), ValueError), (device.asarray(x.astype(np.float16)), TypeError)):
        found = gs.scan_chunks([device.asarray(x), second], **EVERYWHERE)
        assert next(found).numpy().tobytes() == gs.scan(x, device="numpy", **EVERYWHERE).tobytes()
        with pytest.raises(error):
            next(found)
