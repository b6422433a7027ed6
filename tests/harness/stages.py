"""Single stages on the device, their twins on NumPy, and their shaders as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import wgpu

import gpuscan as gs
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device.steps import Binding
from gpuscan.device.tile_state import PARAMS, parameters
from gpuscan.elements import words_of
from gpuscan.engine.plan_steps import Buffers, encode_plan
from gpuscan.operators.code import combine_code
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.kernel_parts import STATE_HEADER_WORDS
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from gpuscan.problem.problem import Problem
from gpuscan.reference import scan as reference
from tests.harness.scans import plan_with
from tests.oracle import Array

Tile = TileShape | ColumnTile

# ----- Twins on NumPy


def twin_of(problem: Problem, tile: TileShape | None = None) -> list[Array]:
    """Return the scan on NumPy, one array for each field: with a tile, by the stages of the GPU and to their bits."""
    rows = reference.accumulate(problem) if tile is None else reference.accumulate_stages(problem, tile)
    return [problem.from_rows(row) for row in rows]


@dataclass(frozen=True)
class StageRun:
    """What stages leave behind on the device.

    Attributes:
        plan: what ran.
        epoch: the number that distinguishes the run's posts from earlier ones.
        state: the 32-bit words of the tile state, without its header.
        results: one array (rows, row length) for each field.
    """

    plan: ScanPlan
    epoch: int
    state: Array
    results: list[Array]

    def posts(self, item_words: int) -> tuple[Array, Array]:
        """Return the epochs and the payloads of every post, in the order of their places.

        Each has one row for each post and one column for each word of an item. All posts' first words are side by
        side, then all second words, and so on up to the stride.
        """
        kernel = self.plan.stages[0].kernel
        words = self.state.view(np.uint64) if kernel.post_format.in_64_bits else self.state
        per_word, size = kernel.post_format.words // item_words, kernel.post_format.words * kernel.post_format.stride
        side_by_side = words[: len(words) // size * size].reshape(-1, item_words, per_word, kernel.post_format.stride)
        posted = np.moveaxis(side_by_side, 3, 1).reshape(-1, item_words, per_word)
        if kernel.post_format.in_64_bits:
            return posted >> 32, posted[..., 0].astype(np.uint32)
        return posted >> 16, (posted[..., 0] & 0xFFFF) | (posted[..., 1] << 16)


def run_stages(
    device: gs.Device,
    problem: Problem,
    strategy: str,
    tile: TileShape,
    *,
    stages: int | None = None,
    one_workgroup_folds: bool | None = None,
) -> StageRun:
    """Run the first `stages` stages of a plan, or all, on buffers of their own that are full of junk."""
    plan = plan_with(device, problem, strategy, tile=tile, one_workgroup_folds=one_workgroup_folds)
    plan = replace(plan, stages=plan.stages[:stages])
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    gpu, make = device.wgpu_device, device.wgpu_device.create_buffer_with_data
    sources = []
    for leaf in problem.leaves:
        content = problem.by_rows(np.asarray(leaf)).tobytes()
        sources.append(Binding(make(data=content + b"\xa5" * (-len(content) % 16), usage=usage)))
    results = [make(data=b"\xa5" * source.buffer.size, usage=usage) for source in sources]
    seeds = None
    if problem.seeds is not None:
        seeds = Binding(make(data=words_of(problem.element, [np.asarray(seed) for seed in problem.seeds]), usage=usage))
    encoder = gpu.create_command_encoder()
    buffers = Buffers(sources, [Binding(buffer) for buffer in results], seeds=seeds)
    run = encode_plan(device._context, plan, encoder, buffers)
    gpu.queue.submit([encoder.finish()])
    state = np.frombuffer(gpu.queue.read_buffer(run.state), np.uint32)[STATE_HEADER_WORDS:]
    fields = zip(results, problem.element.fields, strict=True)
    arrays = [np.frombuffer(gpu.queue.read_buffer(b), f.scalar.dtype)[: problem.size] for b, f in fields]
    return StageRun(plan, run.epoch, state, [a.reshape(problem.rows, problem.row_length) for a in arrays])


def run_fold(device: gs.Device, problem: Problem, tile: Tile, posted: Array) -> StageRun:
    """Run the workgroups of look-ahead that scan no tile, alone, over posts that are there before they start.

    So the fold is tested on adapters where no workgroup may wait for a later one.

    Args:
        device: the device to run on.
        problem: the scan; its arrays are not read.
        tile: the shape of its tiles.
        posted: the words of every post, in the order of their places and of `StageRun.posts`; a word of -1 is missing.
    """
    plan = plan_with(device, problem, "lookahead", tile=tile)
    assert plan.strategy == "lookahead"
    (stage,) = plan.stages
    kernel, epoch = stage.kernel, 7
    words, bits = posted.reshape(-1).astype(np.int64), kernel.post_format.payload_bits
    tagged = (epoch << bits) | ((words[:, None] >> (bits * np.arange(32 // bits))) & ((1 << bits) - 1))
    tagged[words < 0] = 0
    stride = tile.columns if isinstance(tile, ColumnTile) else kernel.post_format.stride  # from one half to the other
    tagged = tagged.reshape(-1, stride, 32 // bits).swapaxes(1, 2).reshape(-1)
    content = np.zeros(plan.state_bytes // (bits // 4), np.uint64 if bits == 32 else np.uint32)
    header = STATE_HEADER_WORDS * 4 // content.itemsize
    content[header : header + tagged.size] = tagged
    make = device.wgpu_device.create_buffer_with_data
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    state = make(data=content, usage=usage)
    params = make(data=PARAMS.pack(*parameters(plan, (plan.row_length, 0, 0), epoch)), usage=wgpu.BufferUsage.UNIFORM)
    junk = [make(data=np.zeros(leaf.nbytes // 4 + 4, np.uint32), usage=usage) for leaf in problem.leaves * 2]
    pipeline, layout = device._context.pipeline(kernel)
    bound = [params, state, *junk]
    entries = [
        {"binding": i, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
        for i, buffer in enumerate(bound)
    ]
    encoder = device.wgpu_device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, device.wgpu_device.create_bind_group(layout=layout, entries=entries), [0])
    compute.dispatch_workgroups(plan.workgroups_without_tile)
    compute.end()
    device.wgpu_device.queue.submit([encoder.finish()])
    left = np.frombuffer(device.wgpu_device.queue.read_buffer(state), np.uint32)[STATE_HEADER_WORDS:]
    return StageRun(plan, epoch, left, [])


# ----- Shaders as text


def shaders_of(
    problem: Problem, capabilities: Capabilities, tile: TileShape, form: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield a label and the WGSL text of every stage under every strategy, as for GPUs and as for CPUs.

    Args:
        problem: decides the element and the operator.
        capabilities: of the device that is to compile the text.
        tile: the tile to render.
        form: other attributes of the scan: rows, row_length, inner, exclusive, reverse, initial, carried.
    """
    work = ScanSpec(
        source=problem.source,
        element=problem.element,
        destination=problem.element,
        operator_name=problem.operator.name,
        combine=combine_code(problem.operator, problem.element, native_int64=False),
        **({"rows": 1, "row_length": 5000} | form),
    )
    for strategy, kind in product(STRATEGIES, ("CPU", "DiscreteGPU")):
        plan = plan_scan(work, replace(capabilities, adapter_type=kind), strategy, "", tile=tile)
        for stage in plan.stages:
            kernel = stage.kernel
            yield f"{kernel.stage}, {kernel.strategy}, {kernel.tile}", render_kernel(kernel)
