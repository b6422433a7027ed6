"""Plans scans along an axis that is not the last: neighbours in memory are columns, and tiles run down them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscan.planning.kernel import Kernel
from gpuscan.planning.tile_shapes import ColumnTile

if TYPE_CHECKING:
    from gpuscan.elements import Element
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.plan import Work

COLUMNS = 32  # invocations side by side: a cache line of 32-bit numbers
GROUPS = 8
ROWS = (1, 2, 4, 8, 16)  # that one invocation takes; few, so that few pipelines are built
LONG = ColumnTile(16, 16, 24, 1)  # for single words in long chains: fewer tiles, one below the other
LONG_CHAIN = 256  # tiles of that height; both measured on an H100
CPU_ROWS = (1, 4, 16, 64)
CPU_WORKGROUP = 8  # invocations, at least: with fewer, llvmpipe's OpenGL never leaves the loop of fallback
REGISTER_WORDS = 48  # of payload that one invocation keeps between load and store
CPU_REGISTER_WORDS = 192


def column_chunk(source: Element, destination: Element, inner: int) -> int:
    """The fewest neighbouring columns whose storage fills whole words in every field; 0 where they never do."""
    chunk = max(max(1, 4 // math.gcd(4, field.storage_bytes)) for field in (*source.fields, *destination.fields))
    return 0 if inner % chunk else chunk


def column_tile(work: Work, capabilities: Capabilities) -> ColumnTile:
    """The tile for this element and shape on this adapter."""
    chunk = max(1, column_chunk(work.source, work.destination, work.inner))
    words = work.element.words * chunk
    cpu = capabilities.adapter_type == "CPU"
    columns = min(COLUMNS, 1 << (-(-work.inner // chunk) - 1).bit_length())
    groups = max(1, CPU_WORKGROUP // columns) if cpu else min(GROUPS * COLUMNS // columns, 16)
    # One chunk an invocation in workgroup memory, and one more for each column.
    room = capabilities.limits["max-compute-workgroup-storage-size"] // (4 * words)
    while groups > 1 and columns * (groups + 2) > room:
        groups //= 2
    while columns > 1 and columns * (groups + 2) > room:
        columns //= 2
    choices, registers = (CPU_ROWS, CPU_REGISTER_WORDS) if cpu else (ROWS, REGISTER_WORDS)
    rows = 1
    for candidate in choices:
        if candidate * words <= registers and candidate * groups < 2 * work.row_length:
            rows = candidate
    long = work.row_length >= LONG_CHAIN * LONG.height and LONG.rows * words <= registers
    if not cpu and long and (columns, groups, chunk) == (COLUMNS, GROUPS, LONG.chunk):
        return LONG
    return ColumnTile(columns, groups, rows, chunk)


def column_stages(kernel: Kernel, tile: ColumnTile, work: Work) -> tuple[int, list[tuple[Kernel, int]]]:
    """How many tiles there are, and the stages, each with its number of workgroups."""
    chains = work.rows // work.inner * -(-work.inner // tile.width)
    tiles = chains * -(-work.row_length // tile.height)
    stages = [(kernel, tiles)]
    if kernel.strategy == "three_dispatch":
        totals = replace(kernel, stage="scan_totals", exclusive=False, initial=False)
        reduce = replace(kernel, stage="reduce", exclusive=False)
        stages = [(reduce, tiles), (totals, -(-chains * tile.columns // tile.workgroup_size)), *stages]
    return tiles, stages
