"""Scan and reduce dask arrays block by block, on the GPUs of a cluster. It needs ``pip install ".[dask]"``."""

from gpuscan.dask.scans import reduce, scan
from gpuscan.dask.workers import use_one_device_each

__all__ = ["reduce", "scan", "use_one_device_each"]
