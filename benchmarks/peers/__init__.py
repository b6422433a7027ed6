"""The libraries that only the published figures are measured against. ``gpuscan bench`` has NumPy, PyTorch and CuPy.

Each module has a function ``contenders(case)``, which returns the library's contenders for the case, if any. A module
imports its library when a contender loads the inputs, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuscan.tools.bench.cases import SORT, ScanCase
from gpuscan.tools.bench.contenders import Contender
from gpuscan.tools.bench.peers import PEERS as USUAL_PEERS
from peers import accelerated_scan_peer, cub, jax_peer, triton_peer
from recurrences import RecurrenceCase, numpy_contenders

# The contenders of each library for scans, and for linear recurrences.
SCANS: Mapping[str, Callable[[ScanCase], list[Contender]]] = {
    "cub": cub.contenders,
    **USUAL_PEERS,
    "jax": jax_peer.contenders,
    "triton": triton_peer.contenders,
}
RECURRENCES: Mapping[str, Callable[[Any], list[Contender]]] = {
    "jax": jax_peer.contenders,
    "triton": triton_peer.contenders,
    "accelerated-scan": accelerated_scan_peer.contenders,
    "numpy": numpy_contenders,
}
# Every library, by its name on the command line.
PEERS = tuple(dict.fromkeys([*SCANS, *RECURRENCES]))


def peer_contenders(names: Sequence[str], case: ScanCase) -> list[Contender]:
    """Return the contenders of these libraries for the case."""
    makers = RECURRENCES if isinstance(case, RecurrenceCase) else USUAL_PEERS if case.op == SORT else SCANS
    return [contender for name in names if name in makers for contender in makers[name](case)]
