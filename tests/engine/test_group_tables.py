"""Groups by a table of carries: the stages leave the same words as their twins on NumPy, by every way of combining."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device.device_array import empty, upload_array
from gpuscan.engine.group_tables import (
    FewLabels,
    TabledGroups,
    plan_table,
    reduce_by_table,
    run_stages,
    scan_by_table,
)
from gpuscan.planning.group_plan import GroupTable
from gpuscan.problem.problem import make_problem
from gpuscan.reference.stages import Joiner
from tests.harness.devices import read_validation_flags
from tests.oracle import AFFINE, Array, words
from tests.twins import groups as twins

SECTION_LENGTH = 96


def ways(device: gs.Device) -> list[bool]:
    """Return whether sections are combined by subgroups: both ways where the adapter has them."""
    return [False, True] if device.capabilities.subgroup_size else [False]


def shape_of(table: GroupTable, words: Array) -> tuple[Array, Array]:
    """Return what a table on a device knows, and its carries, with the words of a carry last."""
    planes = words[: -table.results].reshape(-1, table.rows, table.sections, table.groups)
    if table.kernels[0].marked:
        return planes[0] != 0, np.moveaxis(planes[1:], 0, -1)
    return np.ones(planes.shape[1:], bool), np.moveaxis(planes, 0, -1)


@pytest.mark.parametrize("options", [{}, {"exclusive": True, "reverse": True}, {"initial": (3, 5)}], ids=str)
def test_stages(device: gs.Device, options: dict[str, Any]) -> None:
    """Assert that every stage leaves its twin's table, results and marks; the operator does not commute."""
    rng = np.random.default_rng(1)
    rows, length, groups = 2, 5 * SECTION_LENGTH - 7, 37
    x = tuple(each.reshape(rows, length) for each in words(rng, 2, rows * length))
    labels = (rng.integers(0, groups - 1, length) // 3 * 3).astype(np.uint16)
    if "initial" in options:
        options = {"initial": tuple(np.uint32(value) for value in options["initial"])}
    problem = make_problem(x, AFFINE, axis=1, **options)
    join = Joiner(problem.operator, problem.element)
    step = -1 if problem.reverse else 1
    items = tuple(each[:, ::step] for each in x)
    each_label = np.broadcast_to(labels[::step], (rows, length)).astype(np.int64)
    seeds = problem.numpy_seeds if problem.initial else None
    own = twins.combine_groups(join, items, each_label, groups, SECTION_LENGTH)
    before = twins.scan_carries(join, own, seeds)
    starts = problem.numpy_seeds if problem.exclusive else None
    results = twins.scan_groups(join, items, each_label, SECTION_LENGTH, before, starts)
    whole = twins.reduce_carries(join, own, seeds)
    few = FewLabels(upload_array(device._context, labels), groups)
    for subgroups in ways(device):
        found = plan_table(device._executor, problem, few, subgroups=subgroups, section_length=SECTION_LENGTH)
        assert found is not None
        leaves = [upload_array(device._context, each) for each in x]
        for stages, expected in ((1, own), (2, before)):
            part = replace(found, table=replace(found.table, kernels=found.table.kernels[:stages]))
            known, carries = shape_of(found.table, run(device, part, leaves)[0])
            np.testing.assert_array_equal(known, expected.has_carry)
            np.testing.assert_array_equal(carries[known], np.stack(expected.carries, -1)[known])
        alone = plan_table(device._executor, problem, few, subgroups=subgroups, section_length=length)
        assert alone is not None
        assert problem.initial or [kernel.stage for kernel in alone.table.kernels] == ["scan_groups"]
        got = [
            *run(device, found, leaves)[1:],
            *(field._read() for field in scan_by_table(device._executor, problem, alone, None)),
        ]
        for got_field, expected_field in zip(got, (*results, *results), strict=True):
            np.testing.assert_array_equal(got_field.reshape(rows, length), expected_field[:, ::step])
        if options.get("exclusive"):
            continue
        filled = replace(problem, fill=tuple(np.full(rows, value, np.uint32) for value in (7, 8)))
        reduction = plan_table(
            device._executor, filled, few, subgroups=subgroups, section_length=SECTION_LENGTH, reduces=True
        )
        assert reduction is not None
        table, *fields = run(device, reduction, leaves)
        np.testing.assert_array_equal(table[-rows * groups :].reshape(rows, groups), whole.has_carry)
        for field, expected_field, fill in zip(fields, whole.carries, (7, 8), strict=True):
            np.testing.assert_array_equal(field.reshape(rows, groups), np.where(whole.has_carry, expected_field, fill))


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("add", np.int8),
        ("minimum", np.int32),
        ("bitwise_and", np.uint32),
        ("add", np.int64),
        ("bitwise_and", np.uint64),
        ("add", np.float32),
    ],
    ids=str,
)
def test_neutral_carries(device: gs.Device, op: str, dtype: Any) -> None:
    """Assert that carries which begin with a neutral element leave the twin's table, also combined by atomics."""
    if not device.capabilities.subgroup_size:
        return
    rng = np.random.default_rng(2)
    length, groups = 3 * SECTION_LENGTH - 11, 37
    x = rng.integers(-99, 99, length).astype(dtype)
    x[:50] = -np.zeros(50, dtype)
    if x.itemsize == 8:  # low words that wrap, and many neighbours with one label
        x[50:] = rng.integers(0, 2**63, length - 50).astype(dtype) * np.array(3, dtype)
    labels = rng.integers(0, groups - 1, length).astype(np.uint8)
    labels[60:120] = 7
    problem = make_problem(x, op)
    few = FewLabels(upload_array(device._context, labels), groups)
    options: dict[str, Any] = {"subgroups": True, "section_length": SECTION_LENGTH}
    found = plan_table(device._executor, problem, few, **options)
    assert found is not None
    combine = found.spec.combine
    assert bool(found.table.kernels[0].copies) == (combine.atomic is not None)
    wide = x.astype(np.int32 if dtype == np.int8 else dtype)[None]
    join = Joiner(problem.operator, make_problem(wide, op, axis=1).element)
    own = twins.combine_groups(join, (wide,), labels[None].astype(np.int64), groups, SECTION_LENGTH)
    part = replace(found, table=replace(found.table, kernels=found.table.kernels[:1]))
    known, carries = shape_of(found.table, run(device, part, [upload_array(device._context, x)])[0])
    assert known.all()
    neutral = np.array(combine.neutral, np.uint32).view(wide.dtype)
    expected = np.where(own.has_carry, own.carries[0], neutral)
    got = np.ascontiguousarray(carries).view(wide.dtype)[..., 0]
    got, expected = got.astype(dtype), expected.astype(dtype)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))  # also of zeros
    (result,) = scan_by_table(device._executor, problem, found, None)
    scanned = gs.scan(x, op, groups=labels, device="numpy")
    np.testing.assert_array_equal(result._read(), scanned)
    np.testing.assert_array_equal(np.signbit(result._read()), np.signbit(scanned))
    identity = problem.operator.identity_for(problem.element)
    assert identity is not None
    filled = replace(problem, fill=(np.array([identity[0]]),))
    totals = gs.reduce(x, op, groups=labels, num_groups=groups, device="numpy")
    full = np.bincount(labels, minlength=groups) > 0
    for each, compared in ((filled, np.ones(groups, bool)), (problem, full)):
        for label_parts in (1, 3, 0) if combine.atomic is not None else (1,):
            reduction = plan_table(device._executor, each, few, reduces=True, label_parts=label_parts, **options)
            assert reduction is not None
            assert reduction.table.kernels[0].in_table == (label_parts == 0)
            (reduced,) = reduce_by_table(device._executor, filled, reduction, None)
            np.testing.assert_array_equal(reduced._read()[compared], totals[compared])


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int32, np.uint64], ids=lambda dtype: dtype.__name__)
def test_labels_of_reductions(device: gs.Device, dtype: Any) -> None:
    """Assert that every walk leaves out labels that are missing or wrong, and reports the wrong ones."""
    rng = np.random.default_rng(4)
    limits = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    groups = 1 if dtype == np.bool_ else 37
    x = rng.integers(0, 99, 700).astype(np.int32)
    right = rng.integers(0, groups, 700).astype(dtype)
    some = rng.random(700) < 0.1
    missing = np.where(some, -1, right.astype(np.int64)).astype(dtype) if limits[0] < 0 else right
    wrong = [limits[1], groups + 1, limits[0], -2] if limits[0] < 0 else [limits[1], groups]
    wrong_too = missing.copy()
    wrong_too[[5, 99, 98, 699][: len(wrong)]] = np.array(wrong, object).astype(dtype)
    problem = make_problem(x, "add")
    filled = replace(problem, fill=(np.zeros(1, np.int32),))
    ends = wrong_too.astype(object)
    above, below = max([n for n in ends if n >= groups], default=0), max([-n for n in ends if n < -1], default=0)
    for labels in (right, missing, wrong_too):
        kept = (labels.astype(object) >= 0) & (labels.astype(object) < groups)
        expected = np.bincount(labels[kept].astype(np.int64), x[kept], groups)
        for subgroups in ways(device):
            for label_parts in (1, 4, 0) if subgroups else (1,):
                few = FewLabels(upload_array(device._context, labels), groups)
                options: dict[str, Any] = {
                    "subgroups": subgroups,
                    "label_parts": label_parts,
                    "section_length": SECTION_LENGTH,
                }
                found = plan_table(device._executor, filled, few, reduces=True, **options)
                assert found is not None
                known = len(device._context.run_log.validation_flags)
                (result,) = reduce_by_table(device._executor, filled, found, None)
                np.testing.assert_array_equal(result._read(), expected)
                (reported,) = read_validation_flags(device, known)
                assert reported == ([min(above, 2**32 - 1), min(below, 2**32 - 1)] if labels is wrong_too else [0, 0])
    with pytest.raises(ValueError, match="label"):
        device.synchronize()


def test_turns_and_parts(device: gs.Device) -> None:
    """Assert that subgroups smaller than planned take turns, and that invocations share the scan of a table."""
    if not device.capabilities.subgroup_size:
        return
    lanes = 2 * min(device.capabilities.subgroup_sizes)
    rng = np.random.default_rng(3)
    length = 200 * 5 - 3
    x, labels = words(rng, 2, length), rng.integers(0, 5, length).astype(np.int64)
    problem = make_problem(x, AFFINE, exclusive=True)
    few = FewLabels(upload_array(device._context, labels), 5)
    found = plan_table(device._executor, problem, few, subgroups=True, section_length=5)
    assert found is not None
    planned: tuple[Any, ...] = found.table.kernels
    kernels = tuple(
        replace(each, tile=replace(each.tile, workgroup_size=lanes, subgroup_size=lanes), max_subgroups=2)
        if each.capacity
        else replace(each, tile=replace(each.tile, workgroup_size=256), parts=32, carry_loads=4)
        for each in planned
    )
    several = replace(found, table=replace(found.table, kernels=kernels))
    got = scan_by_table(device._executor, problem, several, None)
    for one, other in zip(got, gs.scan(x, AFFINE, groups=labels, exclusive=True, device="numpy"), strict=True):
        np.testing.assert_array_equal(one._read(), other)


def run(device: gs.Device, groups: TabledGroups, leaves: list[Any]) -> list[Array]:
    """Return the words of the table, and the results; all memory holds junk before."""
    context, table = device._context, groups.table
    count = table.results if table.kernels[-1].stage == "reduce_carries" else groups.problem.size
    stores = table.kernels[-1].stores_results
    results = [upload_array(context, np.full(count, 0xA5A5A5A5, np.uint32)) for _ in range(2 if stores else 0)]
    junk = empty(context, (table.words,), np.uint32)
    context.wgpu_device.queue.write_buffer(junk.buffer, junk.offset, np.full(table.words, 0xA5A5A5A5, np.uint32))
    memory = run_stages(context, groups, leaves, results, junk)
    return [memory._read(), *(result._read() for result in results)]
