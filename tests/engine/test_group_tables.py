"""Groups by a table of carries: the stages leave the same words as their twins on NumPy, by every way of combining."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device.device_array import empty, uploaded
from gpuscan.engine.group_tables import FewLabels, TabledGroups, run_stages, tabled
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
    return planes[0] != 0, np.moveaxis(planes[1:], 0, -1)


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
        for got, expected_field in zip(run(device, found, leaves)[1:], results, strict=True):
            np.testing.assert_array_equal(got.reshape(rows, length), expected_field[:, ::step])
        if options.get("exclusive"):
            continue
        filled = replace(problem, fill=tuple(np.full(rows, value, np.uint32) for value in (7, 8)))
        reduction = tabled(device._executor, filled, few, subgroups=subgroups, stretch=STRETCH, reduces=True)
        assert reduction is not None
        table, *fields = run(device, reduction, leaves)
        np.testing.assert_array_equal(table[-rows * groups :].reshape(rows, groups), whole.known)
        for got, expected_field, fill in zip(fields, whole.carries, (7, 8), strict=True):
            np.testing.assert_array_equal(got.reshape(rows, groups), np.where(whole.known, expected_field, fill))


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
