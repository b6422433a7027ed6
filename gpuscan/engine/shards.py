"""Scan and reduce arrays in shards on several devices. Only the carries between shards pass through the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from gpuscan.device.device_array import DeviceArray
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.device_team import Carry, GivenUpError, raise_first, reduced, seeds_of, started
from gpuscan.engine.executor import Executor
from gpuscan.engine.host_arrays import scan_host
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
                following = total if carry is None else combined(executor, problem, [carry, total])
                carries[turn + 1].set_result(tuple(following))
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


def combined(
    executor: Executor, problem: Problem, values: Sequence[tuple[np.ndarray[Any, Any], ...]], *, whole: bool = False
) -> list[np.ndarray[Any, Any]]:
    """Return the combination of a few values of each row: an array (rows, *element shape) for each field.

    Args:
        executor: of the device to combine on.
        problem: the scan that the values belong to.
        values: for each value an array (rows, *element shape) for each field, in the order of the scan.
        whole: True to apply the scan's `after`, too.
    """
    fields = problem.element.fields
    leaves = tuple(
        np.stack([np.asarray(value[place]).astype(field.scalar.dtype) for value in values], axis=1)
        for place, field in enumerate(fields)
    )
    few = replace(
        problem,
        leaves=leaves,
        source=problem.element,
        destination=problem.destination if whole else problem.element,
        shape=leaves[0].shape[:2],
        axis=1,
        exclusive=False,
        reverse=False,
        seeds=None,
        initial=False,
        before=None,
        after=problem.after if whole else None,
        keep_last_only=True,
    )
    return scan_host(executor, few)


def _on_all(count: int, call: Callable[[int], T]) -> list[T]:
    """Return the results of a call for each number, made by a thread for each."""
    with ThreadPoolExecutor(count, thread_name_prefix="gpuscan-shard") as threads:
        jobs = [threads.submit(call, number) for number in range(count)]
        raise_first(jobs)
    return [job.result() for job in jobs]
