"""The libraries that gpuscan is measured against. None is required: the table says which are missing.

Each module has a function ``contenders(case)``, which returns the library's contenders for the case, if any. A module
imports its library when a contender loads the inputs, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuscan.tools.bench.cases import Case, RecurrenceCase, ScanCase, SortCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.peers import cupy_peer, numpy_peer, torch_peer
from gpuscan.tools.bench.peers.sort_peers import SORTS

# The contenders of each library, by its name on the command line.
PEERS: Mapping[str, Callable[[ScanCase | RecurrenceCase], list[Contender]]] = {
    "cupy": cupy_peer.contenders,
    "torch": torch_peer.contenders,
    "numpy": numpy_peer.contenders,
}


def peer_contenders(names: Sequence[str], case: Case) -> list[Contender]:
    """Return the contenders of these libraries for the case."""
    if isinstance(case, SortCase):
        return [SORTS[name] for name in names if name in SORTS]
    return [contender for name in names for contender in PEERS[name](case)]
