"""Masks that are computed when something needs them: `np.where` compares and chooses in one kernel."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis
import numpy as np
import pytest
import wgpu
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.api import ufuncs
from gpuscan.api.launches import launchable
from gpuscan.engine.kept_programs import launch_before
from tests.harness.calls import Counted, count_stages
from tests.harness.devices import device_as_if
from tests.harness.scans import record_and_submit
from tests.oracle import Array, assert_same, limit_examples

SIDE = 4
# Pairs of dtypes that NumPy combines without float64.
PAIRS = [
    *(("float32", "float32"), ("float32", "float16"), ("float32", "int8"), ("float16", "bool"), ("int32", "uint8")),
    *(("int64", "int32"), ("uint64", "uint32"), ("uint8", "bool")),
]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
COMBINATIONS = [operator.and_, operator.or_, operator.xor]
VIEWS: list[Callable[[Any], Any]] = [
    lambda a: a,
    lambda a: a,
    lambda a: a.T,
    lambda a: a[::-1, ::2][:, [0, 1, 0, 1]],
    lambda a: a[:, 1:2],
    lambda a: a[1],
    lambda a: np.broadcast_to(a[2], (SIDE, SIDE)),
]
# Each call is recorded, then launched, and launched again over what the pool has by then.
ROUNDS = 3

Program = list[tuple[Any, ...]]


@st.composite
def programs(draw: st.DrawFn, dtypes: tuple[str, str]) -> tuple[list[Array], Program]:
    """Draw two arrays, and steps that compare, choose, combine, change, read and drop."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    values = [rng.integers(0, 3, (SIDE, SIDE)).astype(dtype) for dtype in dtypes]
    is_float = values[0].dtype.kind == "f"
    if is_float:
        values[0][rng.random((SIDE, SIDE)) < 0.2] = np.nan
        values[0][rng.random((SIDE, SIDE)) < 0.2] = -0.0
    numbers = [0, 1, 2, True, values[0].dtype.type(1)] + [0.5, -0.0, np.nan, np.float16(0.5)] * is_float
    view = st.integers(0, len(VIEWS) - 1)
    # NumPy combines the numbers with these arrays without float64.
    first = st.tuples(st.just("array"), st.just(0), view)
    array = st.one_of(first, st.tuples(st.just("array"), st.just(1), view))
    number = st.tuples(st.just("number"), st.sampled_from(numbers))
    mask = st.integers(0, 2)
    operands = st.one_of(st.tuples(array, array), st.tuples(first, number), st.tuples(number, first))
    comparison = st.tuples(st.sampled_from(COMPARISONS), operands)
    if is_float:
        comparison = st.one_of(comparison, st.tuples(st.just(np.isnan), st.tuples(first)))
    chosen = st.one_of(operands, st.tuples(array, st.tuples(st.just("mask"), mask)))
    step = st.one_of(
        st.tuples(st.just("compare"), comparison, mask),
        st.tuples(st.just("compare"), comparison, mask),
        st.tuples(st.just("choose"), comparison, chosen),
        st.tuples(st.just("choose by"), mask, chosen, st.booleans()),
        st.tuples(st.just("choose by"), mask, chosen, st.booleans()),
        st.tuples(st.just("combine"), st.sampled_from(COMBINATIONS), mask, mask, mask),
        st.tuples(st.just("invert"), mask, mask),
        st.tuples(st.just("match"), mask, st.sampled_from([0, 1, True]), mask),
        st.tuples(st.sampled_from(["drop", "read", "turn", "set"]), mask),
        st.tuples(st.sampled_from(["change", "write"]), st.integers(0, 1)),
    )
    return values, draw(st.lists(step, min_size=3, max_size=10))


def play(program: Program, arrays: list[Any]) -> list[Any]:
    """Return the results of a program, over arrays of NumPy or of a device."""
    masks: list[Any] = [arrays[0] != arrays[0], arrays[1] == arrays[1], arrays[1].astype(bool)]
    results: list[Any] = []

    def find(operand: tuple[Any, ...]) -> Any:
        kind, which, *view = operand
        return VIEWS[view[0]](arrays[which]) if kind == "array" else masks[which] if kind == "mask" else which

    def compare(comparison: tuple[Any, Any]) -> Any:
        function, operands = comparison
        return function(*map(find, operands))

    for name, *given in program:
        if name == "compare":
            masks[given[1]] = compare(given[0])
        elif name == "choose":
            results.append(np.where(compare(given[0]), *map(find, given[1])))
        elif name == "choose by":
            condition = masks[given[0]][::-1] if given[2] else masks[given[0]]
            results.append(np.where(condition, *map(find, given[1])))
        elif name == "combine":
            masks[given[3]] = given[0](masks[given[1]], masks[given[2]])
        elif name == "match":
            masks[given[2]] = masks[given[0]] == given[1]
        elif name == "invert":
            masks[given[1]] = ~masks[given[0]]
        elif name == "drop":
            masks[given[0]] = arrays[1] == arrays[1]
        elif name == "read":
            results.append(np.array(np.asarray(masks[given[0]])))
        elif name == "turn":
            masks[given[0]] = masks[given[0]].T
        elif name == "set":
            masks[given[0]][..., 0] = True
        elif name == "change":
            arrays[given[0]][1:, 0] = arrays[given[0]][0, 1]
        elif name == "write":
            write_outside(arrays[given[0]])
    return [*results, *masks]


def write_outside(array: Any) -> None:
    """Write other numbers to an array; on a device, past its functions."""
    values = np.arange(SIDE * SIDE).reshape(SIDE, SIDE).astype(array.dtype)
    if isinstance(array, gs.Array):
        array.device.wgpu_device.queue.write_buffer(array.buffer, array.offset, values)
    else:
        array[...] = values


@pytest.mark.parametrize("dtypes", PAIRS)
@limit_examples(40)
@hypothesis.given(data=st.data())
def test_random_programs(device: gs.Device, dtypes: tuple[str, str], data: st.DataObject) -> None:
    values, program = data.draw(programs(dtypes))
    wanted = play(program, [value.copy() for value in values])
    for _ in range(ROUNDS):
        got = play(program, [device.asarray(value) for value in values])
        for result, expected in zip(got, wanted, strict=True):
            assert_same(result, expected)


CHOICES: dict[str, Callable[[Any, Any], Any]] = {
    "greater": lambda a, b: np.where(a > 0, a, 0),
    "operands": lambda a, b: np.where(a <= b, a, b),
    "reversed": lambda a, b: np.where(np.greater(0.5, a), b, a),
    "not a number": lambda a, b: np.where(np.isnan(a), 0, a),
    "view": lambda a, b: np.where(a[::-1] == b, a, 1),
    "broadcast": lambda a, b: np.where(a[:1] != b, a, 1),
    "range": lambda a, b: np.where((a > 0) & (a < 2), a, 0),
    "not": lambda a, b: np.where(~(a > 0), a, 0),
    "with a number": lambda a, b: np.where((a > 0) == 0, a, 0),
    "masks": lambda a, b: np.where(a > 0, b > 0, b < 1),
    "not computed before": lambda a, b: np.where(a > 0, a < b, True),
    "of this element": lambda a, b: np.where(a[0] > 0, 1.5, b),
}


def two_arrays(device: gs.Device, length: int = 1000) -> list[Any]:
    rng = np.random.default_rng(length)
    return [device.asarray(rng.integers(-1, 4, length).astype(np.float32)) for _ in range(2)]


def in_numpy(call: Callable[..., Any], *arrays: Any) -> Any:
    return call(*(array.numpy() for array in arrays))


@pytest.mark.parametrize("name", CHOICES)
def test_one_kernel_compares_and_chooses(device: gs.Device, name: str) -> None:
    call, arrays = CHOICES[name], two_arrays(device)
    for _ in range(ROUNDS):
        assert_same(call(*arrays), in_numpy(call, *arrays))
    assert count_stages(device, call, *arrays) == 1


def test_a_mask_that_is_used_again_is_computed(device: gs.Device) -> None:
    def choose_three_times(a: Any, b: Any) -> Any:
        mask = a > b
        return np.where(mask, a, 0), np.where(mask, b, 0), np.where(mask, b, a)

    arrays = two_arrays(device)
    for _ in range(ROUNDS):
        for got, wanted in zip(choose_three_times(*arrays), in_numpy(choose_three_times, *arrays), strict=True):
            assert_same(got, wanted)
    assert count_stages(device, choose_three_times, *arrays) == 4


def test_calls_cost_no_more_than_with_a_mask_in_memory(device: gs.Device) -> None:
    a, _ = two_arrays(device)

    def count(call: Callable[[], Any]) -> int:
        """Return the Python calls of a call that does not submit, make bind groups, or give memory back as well."""
        counts = []
        for _ in range(5):
            device.flush()
            counts.append(Counted().of(call))
        return min(counts)

    together = count(lambda: np.where(a > 0, a, 0))
    mask = a > 0
    device.flush()
    assert together <= count(lambda: a > 0) + count(lambda: np.where(mask, a, 0))


@pytest.mark.parametrize("name", ["assignment", "out", "plan", "write", "scan", "encoder"])
def test_a_mask_is_of_the_numbers_that_were_compared(device: gs.Device, name: str) -> None:
    gpu, plan = device.wgpu_device, device.plan(1000, np.float32)
    new = np.full(1000, -1, np.float32)
    source = device.asarray(new)

    def encode(a: Any) -> None:
        encoder = gpu.create_command_encoder()
        encoder.copy_buffer_to_buffer(source.buffer, 0, a.buffer, a.offset, a.nbytes)
        gpu.queue.submit([encoder.finish()])

    changes: dict[str, Callable[[Any], object]] = {
        "assignment": lambda a: a.__setitem__(slice(None), -1),
        "out": lambda a: np.negative(a, out=a),
        "plan": lambda a: record_and_submit(gpu, plan, source, a),
        "write": lambda a: gpu.queue.write_buffer(a.buffer, a.offset, new),
        "scan": lambda a: gs.scan(source, "maximum", out=a),
        "encoder": encode,
    }
    for _ in range(ROUNDS):
        a, b = two_arrays(device)
        before = a.numpy()
        mask = a > 0
        changes[name](a)
        assert_same(np.where(mask, b, 0), np.where(before > 0, b.numpy(), 0))
        assert_same(mask, before > 0)


def test_a_mask_is_right_after_it_was_used(device: gs.Device) -> None:
    for _ in range(ROUNDS):
        a, b = two_arrays(device)
        before = a.numpy()
        mask = a > 0
        chosen = np.where(mask, a, b)
        a[...] = 7
        assert_same(mask, before > 0)
        assert_same(chosen, np.where(before > 0, before, b.numpy()))


@pytest.mark.parametrize("turned", [False, True])
def test_views_of_a_mask_and_the_mask_in_one_call(device: gs.Device, turned: bool) -> None:
    for _ in range(ROUNDS):
        a, b = two_arrays(device)
        mask = b > a
        views = (mask[::-1], mask) if turned else (mask, mask[::-1])
        chosen = np.where(views[0], views[1], False)
        assert_same(chosen, np.where(views[0].numpy(), views[1].numpy(), False))
        mask = b > a
        assert_same(np.where(mask.reshape(20, 50), mask.reshape(20, 50), False), mask.reshape(20, 50))


def test_commands_of_a_caller_read_a_mask_that_is_gone(device: gs.Device) -> None:
    gpu, plan = device.wgpu_device, device.plan(1000, bool, "logical_xor")
    for _ in range(ROUNDS):
        a, _ = two_arrays(device)
        mask, result = a > 0, device.empty(1000, bool)
        encoder = gpu.create_command_encoder()
        plan.record(encoder, mask, result)
        del mask
        gpu.queue.submit([encoder.finish()])
        assert_same(result, np.logical_xor.accumulate(a.numpy() > 0))


def test_masks_of_one_program_have_numbers_of_their_own(device: gs.Device) -> None:
    for _ in range(ROUNDS):
        a, b = two_arrays(device)
        masks = [a > number for number in (0.5, 1.5, 2.5)]
        for mask, number in zip(masks, (0.5, 1.5, 2.5), strict=True):
            assert_same(mask, a.numpy() > number)
        assert_same(np.where((a > 0.5) & (b > 1.5), a, b), in_numpy(both, a, b))


def both(a: Any, b: Any) -> Any:
    return np.where((a > 0.5) & (b > 1.5), a, b)


def test_a_mask_that_nobody_reads_is_not_computed(device: gs.Device) -> None:
    a, _ = two_arrays(device)
    for _ in range(ROUNDS):
        _ = a > 0
    device.flush()
    with device.profile() as profile:
        _ = a > 0
        del _
        a + 1
    assert len(profile.spans) == 1
    with device.profile() as profile:
        mask = a > 0
    assert len(profile.spans) == 1
    assert_same(mask, a.numpy() > 0)


def test_no_kernel_binds_more_arrays_than_a_device_can(device: gs.Device) -> None:
    limit = "max-storage-buffers-per-shader-stage"
    limits = {**device.capabilities.limits, limit: 8}
    arrays = two_arrays(device_as_if(device, limits=limits)) * 4

    def choose_by_all(*arrays: Any) -> Any:
        masks = [left > right for left, right in zip(arrays[::2], arrays[1::2], strict=True)]
        return np.where((masks[0] | masks[1]) == (masks[2] | masks[3]), *arrays[:2])

    def choose_masks(a: Any, b: Any, *others: Any) -> Any:
        return np.where(a > b, a < others[0], others[1] == others[2])

    for call in (choose_by_all, choose_masks):
        for _ in range(ROUNDS):
            assert_same(call(*arrays), in_numpy(call, *arrays))


def test_what_a_mask_is_made_of_is_given_back(device: gs.Device, without_collections: None) -> None:
    a = two_arrays(device, 50_000)[0]
    for _ in range(ROUNDS):
        mask = a * 2 > 0
        del mask
        mask = a * 2 > 0
        before = device.memory_usage().bytes_in_use
        device.flush()
        assert device.memory_usage().bytes_in_use <= before - a.nbytes
    assert_same(mask, a.numpy() > 0)


@launchable
def choose(mask: Any, a: Any) -> Any:
    """Return a result of `np.where` that is a part of another call."""
    return np.where(mask, a, 0) + 1


def test_a_program_of_another_call_reads_the_mask_that_it_gets(device: gs.Device) -> None:
    a, b = two_arrays(device)
    masks: list[Callable[[Any, Any], Any]] = [lambda a, b: a > 0, lambda a, b: b > a]
    for _ in range(ROUNDS):
        for make in masks:
            make(a, b)
    for make in masks * ROUNDS:
        assert_same(choose(make(a, b), a), np.where(in_numpy(make, a, b), a.numpy(), 0) + np.float32(1))


def test_errors_come_with_the_call_that_is_wrong(device: gs.Device) -> None:
    for _ in range(ROUNDS):
        a, b = two_arrays(device)
        mask = a > 0
        with pytest.raises(ValueError, match=r"shapes \(1000,\), \(10,\)"):
            np.where(mask, b[:10], 0)
        with pytest.raises(ValueError, match="do not broadcast"):
            a > b[:10]  # noqa: B015
        with pytest.raises(gs.UnsupportedDtypeError, match="no array of numbers"):
            np.where(a > 0, "text", b)
        with pytest.raises(TypeError, match="number of its results"):
            np.where(a > 0)


def test_devices_hold_masks_of_their_own(device: gs.Device, own_device: gs.Device) -> None:
    for _ in range(ROUNDS):
        masks, arrays = [], []
        for each in (device, own_device):
            arrays.append(two_arrays(each)[0])
            masks.append(arrays[-1] > 0)
        for mask, a in zip(masks, arrays, strict=True):
            assert_same(np.where(mask, a, 0), np.where(a.numpy() > 0, a.numpy(), 0))
        with pytest.raises(ValueError, match="device"):
            np.where(arrays[0] > 0, arrays[1], 0)


def test_a_mask_of_a_lost_device(own_device: gs.Device) -> None:
    a, _ = two_arrays(own_device)
    for _ in range(ROUNDS):
        mask = a > 0
    own_device.wgpu_device.destroy()
    with pytest.raises(gs.DeviceLostError):
        mask.numpy()
    with pytest.raises(gs.DeviceLostError):
        np.where(mask, a, 0)


def write_zeros(array: gs.Array) -> None:
    """Write to an array past its functions."""
    array.device.wgpu_device.queue.write_buffer(array.buffer, array.offset, np.zeros(array.nbytes, np.uint8))


def test_threads_share_masks(device: gs.Device) -> None:
    def work(seed: int) -> None:
        for step in range(30):
            a, b = two_arrays(device, 1000 + seed)
            before = a.numpy()
            mask = a > 0
            read = mask.read_async() if step % 3 == 0 else None
            chosen = np.where(mask, a, b)
            if step % 2:
                write_zeros(a)
            again = np.where(mask & (b > 0), b, 0)
            assert_same(chosen, np.where(before > 0, before, b.numpy()))
            assert_same(again, np.where((before > 0) & (b.numpy() > 0), b.numpy(), 0))
            if read is not None:
                assert_same(read.result(), before > 0)

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(work, seed) for seed in range(4)]:
            future.result()


def test_a_mask_may_be_computed_while_it_is_about_to_be_used(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_before(*arguments: Any) -> Any:
        write_zeros(a)
        return launch_before(*arguments)

    monkeypatch.setattr(ufuncs, "launch_before", write_before)
    for _ in range(ROUNDS):
        a, b = two_arrays(device)
        before = a.numpy()
        assert_same(np.where(a > 0, b, 0), np.where(before > 0, b.numpy(), 0))


def test_memory_that_only_a_held_run_needs_is_given_back_where_there_is_no_other(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch, without_collections: None
) -> None:
    a, _ = two_arrays(device, 100_000)
    pool, create = device._context.pool, device.wgpu_device.create_buffer
    attempts: list[bool] = []

    def create_in_the_end(**options: Any) -> Any:
        usage = pool.usage()
        attempts.append(usage.bytes_reserved == usage.bytes_in_use)
        if len(attempts) == 1:
            raise wgpu.GPUOutOfMemoryError("no room")
        return create(**options)

    for _ in range(ROUNDS):
        mask = a * 2 > 0
    with monkeypatch.context() as patched:
        patched.setattr(device.wgpu_device, "create_buffer", create_in_the_end)
        other = device.empty(150_000, np.float32)
    assert len(other) == 150_000
    # No free memory was left.
    assert attempts[1]
    assert_same(mask, a.numpy() > 0)


def test_a_thread_changes_what_another_one_has_compared(device: gs.Device) -> None:
    for _ in range(ROUNDS):
        a, b = two_arrays(device)
        before = a.numpy()
        mask = a > 0
        write = threading.Thread(target=write_zeros, args=(a,))
        write.start()
        write.join()
        assert_same(np.where(mask, b, 0), np.where(before > 0, b.numpy(), 0))
