"""The libraries that gpuscan is measured against. None is needed: one that is missing is a row that says so.

Each module has ``contenders(case)``: the ways in which that library does the case, or none. Libraries are imported
when a contender is made ready, never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from gpuscan.tools.bench.cases import Case
from gpuscan.tools.bench.measuring import Contender

PEERS: Mapping[str, str] = {
    "cub": "cub",
    "cupy": "cupy_peer",
    "torch": "torch_peer",
    "jax": "jax_peer",
    "triton": "triton_peer",
    "accelerated-scan": "accelerated_scan_peer",
    "numpy": "numpy_peer",
}  # name -> module


def peer_contenders(names: Sequence[str], case: Case) -> list[Contender]:
    """The ways of these libraries to do the case."""
    found = []
    for name in names:
        found += importlib.import_module(f"{__name__}.{PEERS[name]}").contenders(case)
    return found
