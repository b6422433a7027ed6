"""The libraries that only the published figures are measured against. ``gpuscan bench`` has NumPy, PyTorch and CuPy.

Each module has a function ``contenders(case)``, which returns the library's contenders for the case, if any. A module
imports its library when a contender loads the inputs, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuscan.tools.bench.cases import RecurrenceCase, ScanCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.peers import PEERS as USUAL_PEERS
from peers import accelerated_scan_peer, cub, jax_peer, triton_peer

# The contenders of each library, by its name on the command line.
PEERS: Mapping[str, Callable[[ScanCase | RecurrenceCase], list[Contender]]] = {
    **USUAL_PEERS,
    "cub": cub.contenders,
    "jax": jax_peer.contenders,
    "triton": triton_peer.contenders,
    "accelerated-scan": accelerated_scan_peer.contenders,
}
