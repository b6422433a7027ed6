"""Bound the blocks that are computed ahead of a sequential scan: each waits for an earlier block's carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dask._task_spec import Task, TaskRef, convert_legacy_graph
from dask.base import clone_key

# The graph of a dask array, or a part of one.
Graph = dict[Any, Any]


class CarryTask(Task):  # type: ignore[misc]
    """A task that is never fused with those that wait for it: they would get the whole block that it belongs to."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


def waiting_graph(
    name: str, arrays: Sequence[Any], blocks: Sequence[Sequence[Any]], carries: Sequence[Any]
) -> tuple[Graph, Graph]:
    """Return the graph of dask arrays in which blocks wait for carries, and its keys by those of the arrays.

    Args:
        name: what the new keys are made from.
        arrays: the arrays. Their own graphs do not change.
        blocks: the keys of each block of the scan, in its order.
        carries: the key of the carry that each of the last blocks waits for. The blocks before do not wait.
    """
    graph = {key: task for array in arrays for key, task in dict(array.dask).items()}
    tasks = convert_legacy_graph(graph)
    # What else there is are futures of a cluster, which are computed already.
    futures = {key: task for key, task in graph.items() if key not in tasks}
    first = _first_blocks(tasks, blocks)
    names = {key: clone_key(key, name) for key in first}
    twins: Graph = {}
    for key, block in first.items():
        task = tasks[key].substitute(names, key=names[key])
        waits = block - (len(blocks) - len(carries))
        # A task that takes another one's result of the same block waits with that one.
        own = (tasks.get(dependency) for dependency in tasks[key].dependencies if first.get(dependency) == block)
        if waits >= 0 and isinstance(task, Task) and not any(isinstance(each, Task) for each in own):
            # As a producer of data it may run on any idle worker, not only on the one that has the carry.
            task = Task(names[key], _after, TaskRef(carries[waits]), task, _data_producer=True)
        twins[names[key]] = task
    return twins | futures, names


def _first_blocks(tasks: Mapping[Any, Any], blocks: Sequence[Sequence[Any]]) -> dict[Any, int]:
    """Return the number of the first block that needs each task."""
    first: dict[Any, int] = {}
    for number, keys in enumerate(blocks):
        left = list(keys)
        while left:
            key = left.pop()
            if key in tasks and key not in first:
                first[key] = number
                left.extend(tasks[key].dependencies)
    return first


def _after(carry: Any, value: Any) -> Any:
    return value
