"""Groups by a table of carries: the stages leave the same words as their twins on NumPy, by every way of combining."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device.device_array import empty, uploaded
from gpuscan.engine.group_tables import FewLabels, TabledGroups, run_stages, scan_by_table, tabled
from gpuscan.planning.group_plan import GroupTable
from gpuscan.problem.problem import make_problem
from gpuscan.reference import group_stages as twins
from gpuscan.reference.stages import Joiner
from tests.oracle import AFFINE, words

Array = np.ndarray[Any, Any]
STRETCH = 96


def ways(device: gs.Device) -> list[bool]:
    """Return whether stretches are combined by subgroups: both ways where the adapter has them."""
    return [False, True] if device.capabilities.subgroup_size else [False]


def shape_of(table: GroupTable, words: Array) -> tuple[Array, Array]:
    """Return what a table on a device knows, and its carries, with the words of a carry last."""
    planes = words[: -table.results].reshape(-1, table.rows, table.stretches, table.groups)
    if table.kernels[0].marked:
        return planes[0] != 0, np.moveaxis(planes[1:], 0, -1)
    return np.ones(planes.shape[1:], bool), np.moveaxis(planes, 0, -1)


@pytest.mark.parametrize("options", [{}, {"exclusive": True, "reverse": True}, {"initial": (3, 5)}], ids=str)
def test_stages(device: gs.Device, options: dict[str, Any]) -> None:
    """Assert that every stage leaves its twin's table, results and marks; the operator does not commute."""
    rng = np.random.default_rng(1)
    rows, length, groups = 2, 5 * STRETCH - 7, 37
    x = tuple(each.reshape(rows, length) for each in words(rng, 2, rows * length))
    labels = (rng.integers(0, groups - 1, length) // 3 * 3).astype(np.uint16)
    if "initial" in options:
        options = {"initial": tuple(np.uint32(value) for value in options["initial"])}
    problem = make_problem(x, AFFINE, axis=1, **options)
    join = Joiner(problem.operator, problem.element)
    step = -1 if problem.reverse else 1
    items = tuple(each[:, ::step] for each in x)
    each_label = np.broadcast_to(labels[::step], (rows, length)).astype(np.int64)
    seeds = problem.seeds if problem.initial else None
    own = twins.combine_groups(join, items, each_label, groups, STRETCH)
    before = twins.scan_carries(join, own, seeds)
    results = twins.scan_groups(join, items, each_label, STRETCH, before, problem.seeds if problem.exclusive else None)
    whole = twins.reduce_carries(join, own, seeds)
    few = FewLabels(uploaded(device._context, labels), groups)
    for subgroups in ways(device):
        found = tabled(device._executor, problem, few, subgroups=subgroups, stretch=STRETCH)
        assert found is not None
        leaves = [uploaded(device._context, each) for each in x]
        for stages, expected in ((1, own), (2, before)):
            part = replace(found, table=replace(found.table, kernels=found.table.kernels[:stages]))
            known, carries = shape_of(found.table, run(device, part, leaves)[0])
            np.testing.assert_array_equal(known, expected.known)
            np.testing.assert_array_equal(carries[known], np.stack(expected.carries, -1)[known])
        alone = tabled(device._executor, problem, few, subgroups=subgroups, stretch=length)
        assert alone is not None
        assert problem.initial or [kernel.stage for kernel in alone.table.kernels] == ["scan_groups"]
        got = [
            *run(device, found, leaves)[1:],
            *(field.read() for field in scan_by_table(device._executor, problem, alone, None)),
        ]
        for got_field, expected_field in zip(got, (*results, *results), strict=True):
            np.testing.assert_array_equal(got_field.reshape(rows, length), expected_field[:, ::step])
        if options.get("exclusive"):
            continue
        filled = replace(problem, fill=tuple(np.full(rows, value, np.uint32) for value in (7, 8)))
        reduction = tabled(device._executor, filled, few, subgroups=subgroups, stretch=STRETCH, reduces=True)
        assert reduction is not None
        table, *fields = run(device, reduction, leaves)
        np.testing.assert_array_equal(table[-rows * groups :].reshape(rows, groups), whole.known)
        for got, expected_field, fill in zip(fields, whole.carries, (7, 8), strict=True):
            np.testing.assert_array_equal(got.reshape(rows, groups), np.where(whole.known, expected_field, fill))


@pytest.mark.parametrize(
    ("op", "dtype"), [("add", np.int8), ("minimum", np.int32), ("bitwise_xor", np.uint32)], ids=str
)
def test_atomics(device: gs.Device, op: str, dtype: Any) -> None:
    """Assert that elements that are combined by atomics, in any order, leave the twin's table."""
    if not device.capabilities.subgroup_size:
        return
    rng = np.random.default_rng(2)
    length, groups = 3 * STRETCH - 11, 37
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, length, dtype)
    labels = rng.integers(0, groups, length).astype(np.uint8)
    problem = make_problem(x, op)
    few = FewLabels(uploaded(device._context, labels), groups)
    found = tabled(device._executor, problem, few, subgroups=True, stretch=STRETCH)
    assert found is not None
    assert found.table.kernels[0].copies
    wide = x.astype(np.uint32 if dtype == np.uint32 else np.int32)[None]
    join = Joiner(problem.operator, make_problem(wide, op, axis=1).element)
    own = twins.combine_groups(join, (wide,), labels[None].astype(np.int64), groups, STRETCH)
    part = replace(found, table=replace(found.table, kernels=found.table.kernels[:1]))
    known, carries = shape_of(found.table, run(device, part, [uploaded(device._context, x)])[0])
    assert known.all()
    atomic = found.spec.combine.atomic
    assert atomic is not None
    identity = np.array([atomic[1]], np.uint32).view(wide.dtype)[0]
    expected = np.where(own.known, own.carries[0], identity)
    np.testing.assert_array_equal(carries[..., 0].view(wide.dtype).astype(dtype), expected.astype(dtype))
    (result,) = scan_by_table(device._executor, problem, found, None)
    np.testing.assert_array_equal(result.read(), gs.scan(x, op, groups=labels, device="numpy"))


def test_turns_and_parts(device: gs.Device) -> None:
    """Assert that subgroups smaller than planned take turns, and that invocations share the scan of a table."""
    if not device.capabilities.subgroup_size:
        return
    lanes = 2 * min(device.capabilities.subgroup_sizes)
    rng = np.random.default_rng(3)
    length = 200 * 5 - 3
    x, labels = words(rng, 2, length), rng.integers(0, 5, length).astype(np.int64)
    problem = make_problem(x, AFFINE, exclusive=True)
    few = FewLabels(uploaded(device._context, labels), 5)
    found = tabled(device._executor, problem, few, subgroups=True, stretch=5)
    assert found is not None
    kernels = tuple(
        replace(each, tile=replace(each.tile, workgroup_size=lanes, subgroup_size=lanes), turns=2)
        if each.capacity
        else replace(each, tile=replace(each.tile, workgroup_size=256), parts=32, carry_loads=4)
        for each in found.table.kernels
    )
    several = replace(found, table=replace(found.table, kernels=kernels))
    got = scan_by_table(device._executor, problem, several, None)
    for one, other in zip(got, gs.scan(x, AFFINE, groups=labels, exclusive=True, device="numpy"), strict=True):
        np.testing.assert_array_equal(one.read(), other)


def run(device: gs.Device, groups: TabledGroups, leaves: list[Any]) -> list[Array]:
    """Return the words of the table, and the results; all memory holds junk before."""
    context, table = device._context, groups.table
    count = table.results if table.kernels[-1].stage == "reduce_carries" else groups.problem.size
    stores = table.kernels[-1].stores_results
    results = [uploaded(context, np.full(count, 0xA5A5A5A5, np.uint32)) for _ in range(2 if stores else 0)]
    junk = empty(context, (table.words,), np.uint32)
    context.wgpu_device.queue.write_buffer(junk.buffer, junk.offset, np.full(table.words, 0xA5A5A5A5, np.uint32))
    memory = run_stages(context, groups, leaves, results, junk)
    return [memory.read(), *(result.read() for result in results)]
