"""Scan an array that is spread over the processes of an MPI program: the states of a recurrence, on a GPU each.

Each process reduces its part on its GPU, MPI's Exscan combines the totals of the processes before it, and each scans
its part from there. The operator does not commute: it composes the steps h -> a h + b.

Run it: mpiexec -n 2 python examples/mpi_scan.py [GPUs on each machine]

It needs the package mpi4py, and an MPI library.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import gpuscan as gs

LENGTH = 100_000
# Every total is a pair of these, which MPI must not take apart.
NUMBER = np.int64


def compose(left: Any, right: Any) -> Any:
    """Return the step that does `left` and then `right`."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def compose_in_place(left: MPI.buffer, right: MPI.buffer, datatype: MPI.Datatype) -> None:
    """Replace each right total by its combination with the left one, as MPI asks of an operation."""
    before = np.frombuffer(left, NUMBER).reshape(-1, 2)
    after = np.frombuffer(right, NUMBER).reshape(-1, 2)
    after[:, 0], after[:, 1] = compose(before.T, after.T)


def main() -> None:
    """Compute the states in all processes, and compare them with the states that one process computes."""
    world = MPI.COMM_WORLD
    on_this_machine = world.Split_type(MPI.COMM_TYPE_SHARED)
    gpus = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    device = on_this_machine.rank % gpus

    rng = np.random.default_rng(world.rank)
    steps = rng.integers(-1, 2, LENGTH), rng.integers(-9, 10, LENGTH)

    total = np.array(gs.reduce(steps, compose, device=device), NUMBER)
    before = np.array([1, 0], NUMBER)  # the step that changes nothing: process 0 receives nothing
    pair = MPI.INT64_T.Create_contiguous(2).Commit()
    operation = MPI.Op.Create(compose_in_place, commute=False)
    world.Exscan([total, 1, pair], [before, 1, pair], operation)

    _, states = gs.scan(steps, compose, initial=tuple(before), device=device)

    gathered = world.gather((steps, states))
    if gathered is not None:
        a, b = (np.concatenate([part[place] for part, _ in gathered]) for place in (0, 1))
        h = 0
        for number, state in enumerate(np.concatenate([found for _, found in gathered])):
            h = a[number] * h + b[number]
            assert state == h
        print(f"{world.size} processes computed {len(a):,} states; the last one is {h}.")
    operation.Free()
    pair.Free()


if __name__ == "__main__":
    main()
