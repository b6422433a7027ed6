"""Copies between NumPy and a device: every size near the edges of pieces, and errors in the middle."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device import transfer
from gpuscan.device.transfer import copy, download, start_call, upload
from gpuscan.engine.endpoints import StridedRows, is_mapped_file
from gpuscan.planning.transfer_heuristics import TRANSFERS
from tests.harness.builds import small_transfers
from tests.harness.devices import pool_of, queue_of

PIECE = 4096


def random_bytes(n: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8)


@pytest.mark.parametrize("n", [1, 3, 4, 5, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 7 * PIECE + 13])
def test_every_size_and_offset(device: gs.Device, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upload by one write and in pieces; the bytes before and after stay unchanged."""
    x = random_bytes(n)
    for single_write in (0, 1 << 20):
        small_transfers(monkeypatch, PIECE, single_write)
        for offset in (0, 4, 260):
            held = device.asarray(np.full(n + 600, 7, np.uint8))
            upload(queue_of(device), x, held.buffer, offset, pool_of(device))
            whole = held.numpy()
            np.testing.assert_array_equal(whole[offset : offset + n], x)
            assert (whole[:offset] == 7).all()
            assert (whole[offset + n + -n % 4 :] == 7).all()
            back = np.zeros_like(x)
            download(queue_of(device), pool_of(device), held.buffer, offset, back)
            np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", ">f4", "float64"])
def test_arrays_of_any_strides(device: gs.Device, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upload views and broadcast arrays in pieces, without a copy of the whole array before."""
    x = np.random.default_rng(4).integers(0, 200, (5, 36, 7, 44)).astype(dtype)
    rows = x[0, :, 0]
    views = [x.T, x[::-1, :, :, ::-1], x[:, ::2], x[..., 1:], x.swapaxes(0, 1), x[:, :1], x.reshape(-1)[::3]]
    views += [np.broadcast_to(rows, (9, *rows.shape)), np.broadcast_to(rows[:, :1], (36, 900)), rows[3:4]]
    views.append(np.broadcast_to(x.reshape(-1)[1], (3, 1, 700, 4)))
    for single_write in (0, 1 << 20):
        small_transfers(monkeypatch, PIECE, single_write)
        for view in views:
            np.testing.assert_array_equal(device.asarray(view).numpy(), view)


def test_an_error_in_the_middle_leaves_the_device_in_order(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that half-mapped buffers are not used again after a KeyboardInterrupt between two pieces."""
    small_transfers(monkeypatch, PIECE, 0)
    x = random_bytes(9 * PIECE)
    calls = 0

    def interrupt_fifth_copy(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        copy(*arguments)

    held = device.asarray(x)
    before = device.memory_usage()
    monkeypatch.setattr(transfer, "copy", interrupt_fifth_copy)
    for move in (
        lambda: upload(queue_of(device), x, held.buffer, 0, pool_of(device)),
        lambda: download(queue_of(device), pool_of(device), held.buffer, 0, np.empty_like(x)),
    ):
        calls = 0
        with pytest.raises(KeyboardInterrupt):
            move()
        assert device.memory_usage().bytes_in_use == before.bytes_in_use
    monkeypatch.setattr(transfer, "copy", copy)
    np.testing.assert_array_equal(device.asarray(x).numpy(), x)


def test_copies_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TRANSFERS", replace(TRANSFERS, min_copy_share_bytes=1000))
    monkeypatch.setattr(transfer, "_THREADS", 8)
    shares: list[Callable[[], object]] = []

    def start(threads: Any, call: Callable[[], object]) -> Future[object]:
        shares.append(call)
        return start_call(threads, call)

    monkeypatch.setattr(transfer, "start_call", start)
    rows = random_bytes(9000).reshape(90, -1)
    # The longest axis is shared, whichever it is.
    for x, others in (
        (random_bytes(1), 0),
        (random_bytes(8001), 7),
        (rows[:, ::2], 7),
        (rows.T[:1], 0),
        (random_bytes(9000).reshape(2, -1)[:, ::2], 7),
        (random_bytes(70)[::-1], 0),
    ):
        shares.clear()
        into = np.zeros(x.shape, np.uint16)
        copy(into, x)
        np.testing.assert_array_equal(into, x)
        assert len(shares) == others, x.shape


def test_an_interrupted_copy_leaves_no_thread_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that no thread still writes when memory is unmapped, which would end the process."""
    done: list[int] = []

    def slow(into: Any, source: Any, casting: str) -> None:
        time.sleep(0.1)
        done.append(len(into))

    def interrupt_wait(future: Future[None]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "TRANSFERS", replace(TRANSFERS, min_copy_share_bytes=1000))
    monkeypatch.setattr(transfer, "_THREADS", 8)
    monkeypatch.setattr(np, "copyto", slow)
    monkeypatch.setattr(Future, "result", interrupt_wait)
    with pytest.raises(KeyboardInterrupt):
        copy(np.zeros(8000, np.uint8), random_bytes(8000))
    assert done == [1000] * 8


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_as_a_thread_takes_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that Ctrl-C inside the thread pool, which would break its locks, is raised after all shares are done."""
    threads = transfer._copy_threads()

    class Interrupted:
        def submit(self, call: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return threads.submit(call)

    monkeypatch.setattr(transfer, "TRANSFERS", replace(TRANSFERS, min_copy_share_bytes=1000))
    monkeypatch.setattr(transfer, "_THREADS", 8)
    monkeypatch.setattr(transfer, "_copy_threads", Interrupted)
    x, into = random_bytes(8000), np.zeros(8000, np.uint8)
    with pytest.raises(KeyboardInterrupt):
        copy(into, x)
    np.testing.assert_array_equal(into, x)


def test_what_lies_in_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert is_mapped_file(mapped)
    assert is_mapped_file(np.asarray(mapped)[2:].reshape(2, 4).T)
    assert not is_mapped_file(np.array(mapped))


@pytest.mark.parametrize("shape", [(60,), (4, 15), (3, 4, 5), (5, 1, 12)])
def test_walks_read_and_write_any_order(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for axis in range(len(shape)):
        for order in "CF":
            x = np.asarray(rng.integers(0, 1000, (*shape, 2)), np.int32, order=order)  # type: ignore[call-overload]
            flat = np.moveaxis(x, axis, len(shape) - 1).reshape(-1, 2)
            y = np.zeros_like(x)
            for start, count in ((0, 60), (7, 30), (13, 2), (59, 1), (15, 15)):
                data = np.empty(8 * count, np.uint8)
                StridedRows(x, shape, axis, x.dtype).read(start, data)
                np.testing.assert_array_equal(data.view(np.int32).reshape(-1, 2), flat[start : start + count])
                StridedRows(y, shape, axis, y.dtype).write(start, data)
            np.testing.assert_array_equal(y, x)
