"""Scan and reduce arrays in shards on several devices. Only the carries between shards pass through the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from gpuscan.device.device_array import DeviceArray
from gpuscan.engine.carries import Carry, combined, joined, reduced, seeds_of, started
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.device_team import GivenUpError, raise_first
from gpuscan.engine.executor import Executor
from gpuscan.problem.problem import Problem

T = TypeVar("T")


def scan_shards(executors: Sequence[Executor], problems: Sequence[Problem], strategy: str) -> list[list[DeviceArray]]:
    """Return the scan of shards that follow each other along the scan's axis: for each, an array for each field.

    Every device but the last one reduces its shard; each takes the carry of the shard before and scans.

    Args:
        executors: of the shards' devices.
        problems: the scan of each shard, in the order of the array, all with the seeds of the whole scan.
        strategy: as in `gpuscan.scan`.

    Raises:
        GpuscanError: of any device. No thread of this call runs on after it.
    """
    carries: list[Future[Carry]] = [Future() for _ in problems]
    order = list(range(len(problems)))
    if problems[0].reverse:
        order.reverse()
    carries[0].set_result(None)

    def scan(turn: int) -> list[DeviceArray]:
        executor, problem = executors[order[turn]], problems[order[turn]]
        try:
            if turn + 1 < len(order):
                # The first shard's reduction begins with the seeds, so its total is the carry of the second one.
                total = reduced(executor, problem, None if turn else seeds_of(problem))
                carry = carries[turn].result()
                carries[turn + 1].set_result(joined(executor, problem, carry, total))
            return scan_device(executor, started(problem, carries[turn].result()), strategy)
        except BaseException:
            if turn + 1 < len(order) and not carries[turn + 1].done():
                carries[turn + 1].set_exception(GivenUpError())
            raise

    found = _on_all(len(order), scan)
    return [found[order.index(number)] for number in range(len(order))]


def reduce_shards(executors: Sequence[Executor], problems: Sequence[Problem]) -> list[np.ndarray[Any, Any]]:
    """Return the reduction along the shards' axis: an array (rows, *element shape) for each field.

    Args:
        executors: of the shards' devices.
        problems: the reduction of each shard, in order, all with the seeds of the whole one.

    Raises:
        GpuscanError: as `scan_shards`.
    """
    totals = _on_all(len(problems), lambda number: reduced(executors[number], problems[number], None))
    return combined(executors[0], problems[0], [*filter(None, [seeds_of(problems[0])]), *totals], whole=True)


def scan_apart(executors: Sequence[Executor], problems: Sequence[Problem], strategy: str) -> list[list[DeviceArray]]:
    """Return the scans, or reductions, of shards that do not depend on each other."""
    return _on_all(len(problems), lambda number: scan_device(executors[number], problems[number], strategy))


def _on_all(count: int, call: Callable[[int], T]) -> list[T]:
    """Return the results of a call for each number, made by a thread for each."""
    with ThreadPoolExecutor(count, thread_name_prefix="gpuscan-shard") as threads:
        jobs = [threads.submit(call, number) for number in range(count)]
        raise_first(jobs)
    return [job.result() for job in jobs]
