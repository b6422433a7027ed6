"""Chunks of a row that restarts at offsets or keys have the results of one scan of the row."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import count_reads
from tests.harness.scans import scan_chunks_with
from tests.oracle import AFFINE, Array, assert_same, draw_offsets, heads_along, one_by_one, words

OPTIONS: list[dict[str, Any]] = [{}, {"exclusive": True}, {"exclusive": True, "initial": (3, 5)}]


def cuts_of(rng: np.random.Generator, n: int) -> list[dict[str, Any]]:
    """Return offsets with empty segments, keys with runs that are longer than chunks, and keys that all differ."""
    runs = np.repeat(rng.integers(0, 2, n), 400)[:n]
    return [{"segments": draw_offsets(rng, n, 1 + n // 40)}, {"keys": runs}, {"keys": np.arange(n)}]


def in_chunks(places: list[int], cuts: dict[str, Array]) -> dict[str, Any]:
    return {name: np.split(cut, places) if name == "keys" else cut for name, cut in cuts.items()}


def check(where: Any, options: dict[str, Any]) -> None:
    """Scan maps that do not commute, in chunks of a few elements, of one, and of none."""
    rng = np.random.default_rng(6)
    x, places = words(rng, 2, 2_500), [0, 1, 2, 2, 700, 1_501]
    initial = options.get("initial")
    if initial is None and options.get("exclusive"):
        initial = (1, 0)  # the identity
    wanted_by = {"exclusive": "exclusive" in options, "initial": initial}
    for cuts in cuts_of(rng, 2_500):
        wanted = one_by_one(AFFINE.function, x, heads=heads_along(0, (2_500,), **cuts), **wanted_by)  # type: ignore[arg-type]
        chunks = zip(*(np.split(field, places) for field in x), strict=True)
        got = list(gs.scan_chunks(chunks, AFFINE, device=where, **in_chunks(places, cuts), **options))
        assert [len(part[0]) for part in got] == [0, 1, 1, 0, 698, 801, 999]
        for field in range(2):
            assert_same(np.concatenate([part[field] for part in got]), wanted[field], (cuts, options))


def test_on_numpy() -> None:
    for options in OPTIONS:
        check("numpy", options)


@pytest.mark.parametrize("options", OPTIONS)
def test_on_devices(device: gs.Device, options: dict[str, Any]) -> None:
    check(device, options)


def test_chunks_that_are_on_a_device_stay_there(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan chunks of a device: the carry, which is not rounded, goes from one to the next there."""
    x, places = np.random.default_rng(6).integers(0, 9, 2_500).astype(np.float16), [0, 1, 2, 2, 700, 1_501]
    chunks = [device.asarray(part) for part in np.split(x, places)]
    every: list[dict[str, Any]] = [{}, {"segments": np.array([0, 1, 600, 600, 1_600, 2_500])}]
    for cuts in every:
        with monkeypatch.context() as patched:
            reads = count_reads(patched)
            parts = list(gs.scan_chunks(chunks, exclusive=True, initial=device.asarray(np.float16(3)), **cuts))
            assert reads == []
        assert all(isinstance(part, gs.Array) for part in parts)
        wanted = gs.scan(x.astype(np.float32), exclusive=True, initial=3, device="numpy", **cuts)
        assert_same(np.concatenate([part.numpy() for part in parts]), wanted.astype(np.float16))
    other = gs.scan_chunks([chunks[-1], chunks[-1].astype(np.float32)])
    next(other)
    with pytest.raises(TypeError, match="chunk 2 has the elements float32"):
        next(other)
    with pytest.raises(ValueError, match="a call runs where its arrays are"):
        next(gs.scan_chunks(chunks, device="numpy"))


def test_on_several_devices() -> None:
    rng = np.random.default_rng(9)
    x, places = rng.integers(0, 2**32, 2_500, dtype=np.uint32), [0, 3, 1_800]
    cuts = cuts_of(rng, len(x))[1]
    chunks = gs.scan_chunks(np.split(x, places), device=gs.devices()[:2], **in_chunks(places, cuts))
    assert_same(np.concatenate(list(chunks)), gs.scan(x, device="numpy", **cuts))


def test_in_many_pieces(device: gs.Device) -> None:
    """Assert that pieces, which cut chunks anywhere, have the bits of the whole."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(40_000).astype(np.float32)
    cuts, places = cuts_of(rng, len(x))[1], [1, 20_001, 20_002]
    got = list(scan_chunks_with(device, np.split(x, places), piece_bytes=1, **in_chunks(places, cuts)))
    assert_same(np.concatenate(got), gs.scan(x, device=device, **cuts))
    assert device.memory_usage().bytes_in_use == 0


def test_keys_may_be_read_into_one_array(device: gs.Device) -> None:
    """Assert that the last key of a chunk is kept, although the caller fills the array again."""
    keys = np.empty(3, np.int8)

    def refill_keys() -> Any:
        for number in range(4):
            keys[:] = number // 2
            yield keys

    for where in (device, "numpy"):
        got = gs.scan_chunks(itertools.repeat(np.ones(3, np.uint8), 4), keys=refill_keys(), device=where)
        assert [part.tolist() for part in got] == [[1, 2, 3], [4, 5, 6]] * 2


def test_kinds_of_keys() -> None:
    """Compare keys as NumPy's `!=` does: words of any length, and NaN, which differs from itself."""
    ones = np.ones(2, np.int32)
    for keys, wanted in (
        ([["a", "bb"], ["bb", "ccc"]], [[1, 1], [2, 1]]),
        ([[1.0, np.nan], [np.nan, np.nan]], [[1, 1], [1, 1]]),
        ([np.array([1, 1], np.int8), np.array([1, 257])], [[1, 2], [3, 1]]),
    ):
        got = gs.scan_chunks([ones, ones], keys=keys, device="numpy")
        assert [part.tolist() for part in got] == wanted


FOUR = np.ones(4, np.uint32)
WRONG_AT_ONCE: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"segments": [0, 5, 4]}, ValueError, "segments decrease from 5 at index 1 to 4"),
    ({"segments": [1, 8]}, ValueError, "segments from 1 on were passed for chunks"),
    ({"segments": []}, ValueError, r"segments of shape \(0,\) were passed for the chunks"),
    ({"segments": [0.0, 8.0]}, TypeError, "segments of dtype float64"),
    ({"segments": [0, 8], "keys": [FOUR, FOUR]}, ValueError, "segments= and keys= were both passed"),
    ({"keys": FOUR}, TypeError, "keys must be an iterable of arrays"),
    ({"keys": 3}, TypeError, "keys=3 was passed for chunks"),
]
WRONG_LATER: list[tuple[dict[str, Any], type[Exception], str, int]] = [
    ({"keys": [FOUR]}, ValueError, "there is a chunk 2", 1),
    ({"keys": [FOUR, None]}, ValueError, r"keys of shape \(\) were passed for chunk 2", 1),
    ({"keys": [FOUR, FOUR, None]}, ValueError, "keys for more than 2 chunks", 2),
    ({"keys": [FOUR] * 3}, ValueError, "keys for more than 2 chunks", 2),
    ({"keys": [FOUR, FOUR[1:]]}, ValueError, r"keys of shape \(3,\) were passed for chunk 2", 1),
    ({"keys": [FOUR, FOUR * 1.5]}, TypeError, "keys of dtype float64 were passed for chunk 2", 1),
    ({"segments": [0, 5]}, ValueError, "chunk 2 ends after 8 elements, but segments up to 5", 1),
    ({"segments": [0, 9]}, ValueError, "segments up to 9 were passed, but the 2 chunks have 8 elements", 2),
]


def test_cuts_that_do_not_fit(device: gs.Device) -> None:
    """Assert that wrong arguments raise at once, and wrong chunks after the results of all chunks before them."""
    gc.collect()  # arrays of earlier tests
    before = device.memory_usage().bytes_in_use
    for cuts, kind, message in WRONG_AT_ONCE:
        with pytest.raises(kind, match=message):
            gs.scan_chunks([FOUR, FOUR], device=device, **cuts)
    for where in (device, "numpy"):
        for late, kind, message, results in WRONG_LATER:
            scanned = gs.scan_chunks([FOUR, FOUR], device=where, **late)
            assert len(list(itertools.islice(scanned, results))) == results
            with pytest.raises(kind, match=message):
                next(scanned)
    assert device.memory_usage().bytes_in_use <= before
