"""Hypothesis strategies of what the planner decides by: scans and adapters."""

from __future__ import annotations

from hypothesis import strategies as st

from gpuscan.elements import SCALARS
from tests.fakes import LIMITS, gpu, spec

SPECS = st.builds(
    lambda dtypes, rows, row_length, reverse: spec(*dtypes, rows=rows, row_length=row_length, reverse=reverse),
    st.lists(st.sampled_from(sorted(SCALARS)), min_size=1, max_size=8),
    st.sampled_from([1, 2, 1000]),
    st.integers(1, 1 << 20),
    st.booleans(),
)
ADAPTERS = st.builds(
    lambda kind, size, most, memory: gpu(
        adapter_type=kind,
        subgroup_size=size,
        limits=LIMITS
        | {
            "max-compute-invocations-per-workgroup": most,
            "max-compute-workgroup-size-x": most,
            "max-compute-workgroup-storage-size": memory,
        },
    ),
    st.sampled_from(["DiscreteGPU", "IntegratedGPU", "CPU"]),
    st.sampled_from([0, 4, 8, 16, 32, 64, 128]),
    st.sampled_from([128, 256, 1024]),
    st.sampled_from([16384, 32768, 65536]),
)
