"""Arrays in pieces and in chunks have the bits of one scan, and keep the pages that they are in."""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.problem.problem import Problem
from tests.harness.devices import count_timeouts, force_strategy
from tests.harness.scans import make_problem, origin_of_piece, scan_chunks_with, scan_with, single_piece_bytes
from tests.laws import dtype_of
from tests.oracle import AFFINE, NO_IDENTITY, assert_same, half_of, small_tiles, strategies_in_turn, ufunc_scan, words


def problems(n: int) -> Iterator[tuple[str, Problem]]:
    """Yield float sums, rows that pieces cut, packed elements, and an operator without identity."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype(np.float32)
    yield "one row", make_problem(x, initial=2.5)
    yield "backwards", make_problem(x, exclusive=True, reverse=True)
    seeds = rng.standard_normal(n // 4).astype(np.float32)
    yield "short rows", make_problem(x[: n // 4 * 4].reshape(-1, 4), axis=1, exclusive=True, initial=seeds)
    yield "long rows", make_problem(x[: n // 3 * 3].reshape(3, -1), axis=1, reverse=True, initial=seeds[:3])
    yield "bytes", make_problem(rng.integers(0, 256, n, dtype=np.uint8), reverse=True)
    yield "a bundle", make_problem(words(rng, 4, n), NO_IDENTITY["matrices"][0])


def test_pieces_have_the_bits_of_the_whole(device: gs.Device) -> None:
    for tile in small_tiles(device)[-1:]:
        for rotation, (note, problem) in half_of(device, enumerate(problems(50_001))):
            wanted = scan_with(device, problem, "three_dispatch", tile=tile)
            in_turn = strategies_in_turn(device, rotation // 2)
            for strategy in in_turn if note in ("short rows", "long rows") else ["three_dispatch"]:
                try:
                    got = scan_with(device, problem, strategy, tile=tile, piece_bytes=30_000)
                except gs.ProgressTimeoutError:
                    assert strategy == "lookback"  # asked for by name, and a software adapter may be late
                    continue
                for result, field in zip(got, wanted, strict=True):
                    assert_same(result, field, (tile, note, strategy))


def test_large_arrays_by_themselves(device: gs.Device) -> None:
    """Assert that large arrays are scanned in pieces, into memory that the caller gives and in place."""
    x = np.random.default_rng(0).integers(0, 2**32, single_piece_bytes(device) // 4 * 5 // 4 + 77, dtype=np.uint32)
    wanted = ufunc_scan("add", x)
    assert_same(gs.scan(x, device=device), wanted)
    out = np.zeros((len(x), 2), np.uint32)[:, 1]  # every other element
    assert gs.scan(x, device=device, out=out) is out
    assert_same(out, wanted)
    assert gs.scan(x, device=device, out=x) is x
    assert_same(x, wanted)
    assert device.memory_usage().bytes_in_use == 0


def test_a_piece_that_timed_out_is_done_again(
    own_device: gs.Device, device: gs.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that "auto" continues with another strategy after a piece that times out, as posts are withheld."""
    force_strategy(own_device, monkeypatch, "lookback", then="three_dispatch")
    problem = make_problem(np.random.default_rng(1).standard_normal(60_000).astype(np.float32))
    tile = small_tiles(own_device)[0]
    (got,) = scan_with(own_device, problem, tile=tile, piece_bytes=1, withheld=2)
    assert count_timeouts(own_device) == {"lookback": 1}
    (wanted,) = scan_with(device, problem, "three_dispatch", tile=tile)
    assert_same(got, wanted)


def test_rows_longer_than_32_bits() -> None:
    """Assert that the parameters of a piece give each element its row and its offset in it."""
    for row_length in (3, 1000, 2**31 - 1, 2**31, 2**32 + 5, 2**33):
        for start in (0, 1, 999, row_length - 1, row_length, 5 * row_length + 7, 3 * row_length - 2):
            first_row, row_offset, length = origin_of_piece(start, row_length)
            for index in (0, 1, 2, 5, 998):
                row, offset = divmod(start + index, row_length)
                at = index + row_offset
                assert at < 2**32
                assert first_row + at // length == row, (row_length, start, index)
                assert (at % length == 0) == (offset == 0), (row_length, start, index)
            assert length <= 2**31


# ----- Chunks


def cut(x: np.ndarray[Any, Any], pieces: int) -> list[np.ndarray[Any, Any]]:
    """Cut the array into chunks of random lengths, some of them empty."""
    places = np.sort(np.random.default_rng(2).integers(0, len(x), pieces))
    return np.split(x, [0, *places, places[-1]])


def test_chunks_have_the_bits_of_their_concatenation(device: gs.Device) -> None:
    rng = np.random.default_rng(3)
    for n in (1, 100, 300_000):
        x = rng.standard_normal(n).astype(np.float32)
        for options in ({}, {"exclusive": True}, {"initial": 3.0, "after": lambda v: v * 2}):
            chunks = cut(x, 9)
            got = list(gs.scan_chunks(iter(chunks), device=device, **options))
            assert [len(part) for part in got] == [len(chunk) for chunk in chunks]
            assert_same(np.concatenate(got), gs.scan(x, device=device, **options), (n, options))
    bundle = words(rng, 2, 5000)
    parts = list(gs.scan_chunks(zip(*(np.split(f, [1000, 1001]) for f in bundle), strict=True), AFFINE, device=device))
    wanted = gs.scan(bundle, AFFINE, device=device)
    for field in range(2):
        assert_same(np.concatenate([part[field] for part in parts]), wanted[field])
    assert device.memory_usage().bytes_in_use == 0


def test_chunks_of_elements_without_numbers(device: gs.Device) -> None:
    chunks = [np.zeros((count, 0, 0), np.float32) for count in (3, 0, 2)]
    results = list(gs.scan_chunks(chunks, "matmul", device=device))
    assert [result.shape for result in results] == [chunk.shape for chunk in chunks]


def test_chunks_may_be_read_into_one_array(device: gs.Device) -> None:
    """Assert that a chunk that was taken is not read again, since a caller may fill one buffer again and again."""

    def chunks() -> Any:
        buffer = np.empty(300, np.int32)
        for number in range(40):
            buffer[:] = number
            yield buffer

    wanted = np.repeat(np.arange(40, dtype=np.int32), 300).cumsum(dtype=np.int32)
    assert_same(np.concatenate(list(gs.scan_chunks(chunks(), device=device))), wanted)


def test_chunks_in_many_pieces(device: gs.Device) -> None:
    """Assert that the scan starts before the chunks end, if they are long enough to decide the tile."""
    x = np.random.default_rng(4).integers(0, 2**32, 700_000, dtype=np.uint32)
    taken = 0

    def chunks() -> Iterator[np.ndarray[Any, Any]]:
        nonlocal taken
        for chunk in np.array_split(x, 20):
            taken += 1
            yield chunk

    got, early = [], 0
    for part in scan_chunks_with(device, chunks(), piece_bytes=1):
        early += taken < 20
        got.append(part)
    assert_same(np.concatenate(got), ufunc_scan("add", x))
    if device.capabilities.adapter_type == "CPU":
        assert early > 0  # results come before the last chunk is taken
    several = scan_chunks_with(device, chunks(), piece_bytes=1)
    next(several)
    several.close()  # a consumer that has seen enough
    assert device.memory_usage().bytes_in_use == 0


def test_chunks_that_do_not_fit(device: gs.Device) -> None:
    ones = np.ones(3, np.float32)
    unknown: Any = "fast"
    for where in (device, "numpy"):
        assert list(gs.scan_chunks([], device=where)) == []
        with pytest.raises(ValueError, match="a chunk has one axis"):
            list(gs.scan_chunks([np.ones((2, 2), np.float32)], device=where))
        with pytest.raises(TypeError, match="chunk 2 has the elements int32"):
            list(gs.scan_chunks([ones, ones.astype(np.int32)], device=where))
        with pytest.raises(gs.OperatorError, match="op='sum' was passed, and no operator has that name"):
            gs.scan_chunks([], "sum", device=where)
        with pytest.raises(gs.StrategyError, match="strategy 'fast' was asked for"):
            gs.scan_chunks([ones], device=where, strategy=unknown)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_chunks_carry_what_is_not_rounded(device: gs.Device, dtype: str) -> None:
    """Assert that the carry is right although it is a number that 16-bit types cannot hold."""
    x = np.array([60_000, 3, 60_000, 1, -60_000, -60_000, 5], dtype_of(dtype))
    bytes_ = np.full(700, 255, np.uint8)
    for where in (device, "numpy"):
        for options in ({}, {"exclusive": True}, {"after": lambda v: v.astype(np.float32) * 2}):
            got = list(gs.scan_chunks([x[:2], x[2:4], x[4:]], device=where, **options))
            assert_same(np.concatenate(got), gs.scan(x, device=where, **options), options)
        maps: dict[str, Any] = {"before": lambda v: v.astype(np.float16), "after": lambda v: v.astype(np.float32)}
        got = list(gs.scan_chunks([bytes_[:300], bytes_[300:]], device=where, **maps))
        assert_same(np.concatenate(got), (np.arange(1, 701) * 255).astype(np.float32))


@pytest.mark.parametrize("wrong", ["raises", "another dtype", "two axes"])
def test_results_come_before_what_went_wrong(device: gs.Device, wrong: str) -> None:
    """Assert that an error of one chunk comes after the results of all earlier chunks, as on NumPy."""

    def chunks() -> Any:
        yield np.ones(3, np.float32)
        yield np.ones(4, np.float32)
        if wrong == "raises":
            raise LookupError("no more")
        yield np.ones(3, np.int32) if wrong == "another dtype" else np.ones((2, 2), np.float32)

    for where in ("numpy", device):
        results = gs.scan_chunks(chunks(), device=where)
        assert [part.tolist() for part in itertools.islice(results, 2)] == [[1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises((LookupError, TypeError, ValueError), match=r"no more|chunk 3 has|a chunk has one axis"):
            next(results)
    assert device.memory_usage().bytes_in_use == 0


def test_chunks_on_numpy() -> None:
    x = np.random.default_rng(5).integers(0, 100, 1000).astype(np.int32)
    for options in ({}, {"exclusive": True}, {"initial": 7}, {"after": lambda v: v * 2}):
        got = gs.scan_chunks(cut(x, 5), device="numpy", **options)
        assert_same(np.concatenate(list(got)), gs.scan(x, device="numpy", **options), options)
    chunk = np.zeros(5, np.int32)

    def refill_chunk() -> Iterator[np.ndarray[Any, Any]]:
        for _ in range(3):
            chunk[:] = 1
            yield chunk

    for options in ({}, {"exclusive": True}, {"after": lambda v: v}, {"after": lambda v: (v, v)}):
        for number, result in enumerate(gs.scan_chunks(refill_chunk(), device="numpy", **options)):
            for field in result if isinstance(result, tuple) else [result]:
                assert_same(field, np.arange(5, dtype=np.int32) + number * 5 + ("exclusive" not in options), options)
                field[:] = 99  # the caller's to write to, as the chunk is
            chunk[:] = 50
    both = gs.scan(x, device="numpy", after=lambda v: (v, v))
    assert not np.shares_memory(*both)
    for result in gs.scan_chunks(cut(x, 5), device="numpy", after=lambda v: (v, np.float32(3))):
        assert_same(result[1], np.full(len(result[0]), 3, np.float32))


# ----- Pages


def test_copy_on_write_pages_are_kept(device: gs.Device, tmp_path: Path) -> None:
    x = np.ones(2 << 20, np.float32)
    np.save(tmp_path / "in.npy", x)
    private = np.load(tmp_path / "in.npy", mmap_mode="c")
    private[5] = 100
    got = gs.scan(private, device=device)
    assert got[-1] == len(x) + 99
    assert private[5] == 100


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="POSIX maps")
@pytest.mark.parametrize("shape", [(2 << 20,), (64, 1000)])
def test_pages_that_no_file_holds_are_kept(device: gs.Device, shape: tuple[int, ...]) -> None:
    """Assert that the pages of a plain map stay, since it may be private and they exist nowhere else."""

    def map_pages() -> Any:
        pages = mmap.mmap(-1, 4 * math.prod(shape), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.ndarray(shape, np.uint32, buffer=pages)

    x, out = map_pages(), map_pages()
    x[...], out[...] = 1, 7
    expected = np.cumsum(x, axis=0, dtype=np.uint32)
    got = gs.scan(x, axis=0, out=out, device=device)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(out, expected)
    assert gs.reduce(x, axis=0, device=device).sum() == x.size
    assert (x == 1).all()
