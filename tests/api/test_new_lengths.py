"""Calls of new lengths: each costs little more than a repeated one, and computes with the programs of other lengths."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.api.test_launches import KINDS, Arguments
from tests.harness.builds import assert_no_waits, take_columns_as_vectors
from tests.harness.calls import NEW_EACH_RESULT, NEW_EACH_STAGE, NEW_FIRST, Counted, count_stages, results_of
from tests.harness.devices import as_gpu_of_programs, count_programs
from tests.oracle import assert_same

# Kinds that are planned again for each length: they compute positions, counts or results of the length on the host.
PLANNED_AGAIN = {"sort segments", "repeat", "sums of nothing", "groups of nothing", "nothing into out"}


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in PLANNED_AGAIN])
def test_a_new_length(device: gs.Device, kind: str) -> None:
    """Assert that a call of a new length gives the long way's results, waits for nothing, and takes few calls."""
    assert_new_lengths_take_few_calls(device, kind)


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("kind", ["scan of columns", "reduce columns", "scan of rows", "selective_scan_vjp"])
def test_a_new_length_on_a_gpu(device: gs.Device, kind: str) -> None:
    """Assert the same of GPUs."""
    assert_new_lengths_take_few_calls(as_gpu_of_programs(device), kind)


def assert_new_lengths_take_few_calls(device: gs.Device, kind: str) -> None:
    """Assert it of two lengths. On GPUs some lengths of columns have tiles of their own, and need another shader."""
    call, seen = KINDS[kind], []
    for rows in (32, 32, 32, 36, 36, 40):  # the first calls compile, and see how large subgroups are
        call(Arguments(device, rows, (rows, 32)))
    known = count_programs(device)
    for rows in range(44, 68, 4):
        arguments = Arguments(device, rows, (rows, 32))
        device.synchronize()
        with assert_no_waits(device):
            results: list[Any] = []
            calls = Counted().of(lambda given=arguments, into=results: into.append(call(given)))  # type: ignore[misc]
        stages, found = count_stages(device, call, arguments), results_of(results[0])
        most = NEW_FIRST + NEW_EACH_STAGE * (stages - 1) + NEW_EACH_RESULT * (len(found) - 1)
        seen.append((calls, most))
        if sum(calls <= most for calls, most in seen) == 2:
            break
    else:
        pytest.fail(f"{seen} calls")
    assert count_programs(device) > known
    device.memory_cleanup()  # drops the programs
    for array, expected in zip(found, results_of(call(arguments)), strict=True):
        assert_same(array, expected, kind)


@pytest.mark.usefixtures("without_collections")
def test_a_new_length_beside_a_new_number(device: gs.Device) -> None:
    """Assert that lengths and integers change in one program, where a buffer of it holds both."""
    x = np.random.default_rng(3).random(4096, dtype=np.float32)
    a = device.asarray(x)
    for number in range(6):
        gs.histogram(a, 10, (0, number + 1))
    calls, results = [], []
    for number in range(8):
        part, limits = a[: 2000 + 37 * number], (0, number % 3 + 2)
        calls.append(Counted().of(lambda x=part, to=limits: results.append(gs.histogram(x, 10, to)[0])))  # type: ignore[misc]
        assert_same(results[-1].numpy(), np.histogram(part.numpy(), 10, limits)[0].astype(results[-1].dtype))
    assert max(calls[4:]) <= NEW_FIRST + NEW_EACH_STAGE, calls


@pytest.mark.usefixtures("without_collections")
def test_kernels_of_the_first_lengths(device: gs.Device) -> None:
    """Assert that calls launch programs although the first ones had kernels of their own, and waited to see them."""
    gpu = as_gpu_of_programs(device)
    a, b = (gpu.asarray(np.ones(4096, np.float32)) for _ in range(2))
    # Rows of other alignments have other kernels.
    for number in range(10):
        part = slice(0, 1100 + 7 * number)
        calls = Counted().of(partial(gs.linear_recurrence_vjp, a[part], a[part], b[part]))
    assert calls <= NEW_FIRST + 2 * NEW_EACH_RESULT, calls


def test_a_new_length_of_matrices(device: gs.Device) -> None:
    """Assert that calls of other lengths and of other matrices compute with kernels that earlier calls have made."""
    rng = np.random.default_rng(4)
    for length, width in ((91, 2), (91, 3), (120, 3)):
        x = rng.integers(-1, 2, (length, width, width)).astype(np.int32)
        a = device.asarray(x)
        for part, there in ((x, a), (x[3:], a[3:])):
            assert_same(gs.scan(there, "matmul").numpy(), gs.scan(part, "matmul", device="numpy"), (length, width))
            assert_same(gs.reduce(there, "matmul").numpy(), gs.reduce(part, "matmul", device="numpy"), (length, width))


def test_a_new_length_of_few_columns(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert the same of columns that are scanned as vectors, by kernels that are made for their number."""
    take_columns_as_vectors(monkeypatch)
    gpu, rng = as_gpu_of_programs(device), np.random.default_rng(4)
    for shape in ((32, 12), (32, 16), (5, 65), (255, 5), (255, 5)):
        x = rng.integers(-1, 2, shape).astype(np.int32)
        a = gpu.asarray(x)
        assert_same(gs.scan(a, axis=0).numpy(), np.cumsum(x, axis=0, dtype=np.int32), shape)
        wanted = gs.linear_recurrence(x, x, axis=0, device="numpy")
        assert_same(gs.linear_recurrence(a, a, axis=0).numpy(), wanted, shape)
