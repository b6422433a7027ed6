"""Plans of groups: a table is taken where labels are few, and everything fits the adapter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscan.elements import SCALARS
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.group_plan import GroupTable, plan_groups
from gpuscan.planning.spec import ScanSpec
from gpuscan.problem.packed_fields import STORAGE_LIMIT
from tests.fakes import LIMITS, gpu, software, spec
from tests.planning.plan_inputs import ADAPTERS, SPECS

MORE = {STORAGE_LIMIT: 8, "max-storage-buffer-binding-size": 1 << 31}


def plan(wanted: ScanSpec, groups: int, found: Capabilities, **options: Any) -> GroupTable | None:
    """Plan for labels of 32 bits, on an adapter that also has the other limits."""
    with_limits = gpu(
        **{name: getattr(found, name) for name in ("adapter_type", "subgroup_sizes", "subgroup_size")},
        limits=dict(found.limits) | MORE,
    )
    return plan_groups(wanted, SCALARS["uint32"], groups, with_limits, **options)


@pytest.mark.parametrize("known", [gpu(), software()], ids=["gpu", "cpu"])
def test_few_labels_take_a_table(known: Capabilities) -> None:
    """Assert that the number of labels and the length decide, and that rows of one section take one stage."""
    assert plan(spec("int32", row_length=1 << 22), 1000, known) is not None
    assert plan(spec("int32", row_length=1 << 20), 1 << 19, known) is None
    assert plan(spec(*["int32"] * 9, row_length=1 << 22), 1000, known) is None
    short = plan(spec("int32", rows=1000, row_length=300), 5, known)
    assert short is not None
    assert [kernel.stage for kernel in short.kernels] == ["scan_groups"]
    reduced = plan(spec("int32", rows=1000, row_length=300), 5, known, reduces=True)
    assert reduced is not None
    assert [kernel.stage for kernel in reduced.kernels] == ["combine_groups", "reduce_carries"]


def test_gpus_without_subgroups_sort() -> None:
    """Assert that a GPU takes a table only if the lanes of its subgroups can combine sections."""
    assert plan(spec("int32", row_length=1 << 22), 10, gpu(subgroup_sizes=(), subgroup_size=0)) is None
    assert plan(spec("int32", row_length=1 << 22), 10, gpu(subgroup_sizes=(8, 16, 32), subgroup_size=32)) is not None


@given(SPECS, st.integers(1, 20_000), ADAPTERS, st.booleans())
def test_tables_fit(wanted: ScanSpec, groups: int, known: Capabilities, reduces: bool) -> None:
    """Assert that sections cover the rows, and that tables and workgroups fit the adapter."""
    table = plan(wanted, groups, known, reduces=reduces)
    if table is None:
        return
    assert table.section_length * table.sections >= wanted.row_length > table.section_length * (table.sections - 1)
    assert 4 * table.words <= MORE["max-storage-buffer-binding-size"]
    for kernel in table.kernels:
        words = kernel.item_words + 1
        carries = max((kernel.capacity + 1) * max(1, kernel.copies), kernel.tile.workgroup_size * (not kernel.capacity))
        assert 4 * words * carries <= known.limits["max-compute-workgroup-storage-size"]
        assert kernel.tile.workgroup_size <= LIMITS["max-compute-invocations-per-workgroup"]
        assert kernel.capacity == 0 or kernel.capacity * table.sharers >= groups
        assert len(kernel.bindings) <= MORE[STORAGE_LIMIT]
