"""The workers of a cluster: how many threads they have, and a GPU for each of them."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from gpuscan.device.adapters import ADAPTER_VARIABLE, NUMPY, best_adapters

if TYPE_CHECKING:
    from distributed import Client, Worker


def use_one_device_each(client: Client) -> None:
    """Give each worker of a cluster its own GPU, on machines that have several.

    If the last number in a worker's name is i, and its machine has n GPUs of the best type, the worker uses GPU number
    ``i % n`` of `gpuscan.devices()`: its ``GPUSCAN_ADAPTER`` is set to this number. This also holds for workers that
    start later. Start as many workers on a machine as it has GPUs.

    Args:
        client: a `distributed.Client`. Its workers must be separate processes, as they are by default.

    Raises:
        ValueError: a worker's name has no number. Without ``--name``, ``dask worker`` names a worker by its address, in
            which no number is read. Workers of a `LocalCluster` are numbered from 0.

    Example:
        >>> from distributed import Client, LocalCluster
        >>> client = Client(LocalCluster(n_workers=4, threads_per_worker=1))  # doctest: +SKIP
        >>> gpuscan.dask.use_one_device_each(client)  # doctest: +SKIP
    """
    from distributed.diagnostics.plugin import WorkerPlugin

    class OneDeviceEach(WorkerPlugin):  # type: ignore[misc]
        name = "gpuscan-one-device-each"

        def setup(self, worker: Worker) -> None:
            os.environ[ADAPTER_VARIABLE] = adapter_for(worker.name)

    client.register_plugin(OneDeviceEach())


def threads() -> int:
    """Return the number of threads that compute dask's graphs, in the current cluster or on this machine."""
    from dask import config
    from dask.system import CPU_COUNT

    distributed = sys.modules.get("distributed")
    if distributed is not None and config.get("scheduler", None) in (None, "distributed", "dask.distributed"):
        try:
            cluster = distributed.get_client().scheduler_info()
        except ValueError:  # there is no cluster
            pass
        else:
            # Clients that are asynchronous know the total only.
            count = cluster.get("total_threads") or sum(worker["nthreads"] for worker in cluster["workers"].values())
            return int(count)
    return int(config.get("num_workers", None) or CPU_COUNT)


def adapter_for(worker: object) -> str:
    """Return the value of GPUSCAN_ADAPTER for a worker of this name.

    Raises:
        ValueError: the name has no number.
    """
    if "://" in str(worker) or not (numbers := re.findall(r"\d+", str(worker))):
        raise ValueError(
            f"a GPU of its own was asked for the worker {worker!r}, but its name has no number. Start workers with "
            "names that end in numbers from 0 on, as in: dask worker --name gpu --nworkers 4"
        )
    count = best_adapters()
    return str(int(numbers[-1]) % count) if count else NUMPY
