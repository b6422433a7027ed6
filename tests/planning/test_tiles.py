"""Tiles fit the adapter and the element, and have the shape that was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.elements import LEAF, Structure, element_of, min_chunk
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.operators.code import combine_code, map_code
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.operators.operator import Operator
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.column_tiles import column_tile
from gpuscan.planning.heuristics import CPU, GPU
from gpuscan.planning.kernel_parts import InjectedFaults
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.planning.tile_shapes import SPAN, ColumnTile, TileShape
from gpuscan.planning.tiles import tile_shape
from gpuscan.planning.workgroup_memory import check_workgroup_memory, workgroup_bytes
from tests.fakes import LIMITS, gpu, software, spec
from tests.harness.scans import make_problem
from tests.planning.plan_inputs import ADAPTERS, SPECS


@given(SPECS, ADAPTERS)
def test_a_tile_fits_the_adapter_and_the_element(asked: ScanSpec, adapter: Capabilities) -> None:
    tile = tile_shape(asked, adapter)
    assert tile == tile_shape(asked, adapter)
    size = tile.workgroup_size
    assert size & (size - 1) == 0
    assert size <= adapter.limits["max-compute-invocations-per-workgroup"]
    assert tile.subgroup_size in (0, adapter.subgroup_size)
    if tile.subgroup_size:
        assert size % tile.subgroup_size == 0
    else:
        assert tile.steps == 1
    for field in (*asked.source.fields, *asked.destination.fields):
        assert tile.chunk * field.storage_bytes % 4 == 0, "a chunk fills whole words of storage"
    scratch = 0 if tile.subgroup_size >= tile.block and asked.item_words >= GPU.widest_words else size
    items = scratch + 2 * tile.subgroups_per_workgroup + 1
    assert 4 * asked.item_words * items <= adapter.limits["max-compute-workgroup-storage-size"]


@given(SPECS, ADAPTERS)
def test_tiles_that_end_with_rows(asked: ScanSpec, adapter: Capabilities) -> None:
    """Assert that a row is whole chunks in at most a block of mostly full tiles, with subgroups if without them."""
    tile = tile_shape(asked, adapter)
    assert tile.per_row >= tile_shape(asked, adapter, subgroups=False).per_row
    if tile.per_row:
        tiles = -(-asked.row_length // tile.tile_size)
        assert asked.rows > 1
        assert asked.row_length % tile.chunk == 0
        assert tiles <= tile.block
        assert asked.row_length >= GPU.min_row_use * tiles * tile.tile_size


def test_rows_get_tiles_of_their_own() -> None:
    for adapter in (gpu(), software()):
        for length in (1024, 2048, 4096, 8192):
            assert tile_shape(spec(rows=4096, row_length=length), adapter).per_row
        assert not tile_shape(spec(rows=4096, row_length=40), adapter).per_row, "short rows share tiles"
        assert not tile_shape(spec(rows=2, row_length=1 << 24), adapter).per_row, "long ones need more blocks"
        assert not tile_shape(spec(row_length=8192), adapter).per_row, "there is one row"
        assert not tile_shape(spec("int8", rows=4096, row_length=1023), adapter).per_row, "rows share words"


def test_long_rows_of_any_length_get_tiles_of_their_own() -> None:
    """Assert the exceptions: pairs and narrow numbers, for which head flags cost less than short chunks."""
    for length in (104_206, 33_555):
        rows = {"rows": (1 << 25) // length, "row_length": length}
        for dtypes in (["float32"], ["int64"]):
            tile = tile_shape(spec(*dtypes, **rows), gpu())
            assert tile.per_row
            assert -(-length // tile.tile_size) <= tile.block
        assert not tile_shape(spec("float32", "float32", **rows), gpu()).per_row
        assert not tile_shape(spec("float16", **rows), gpu(packs_halves=True)).per_row
        assert not tile_shape(spec(**rows), gpu(), subgroups=False).per_row


def test_short_columns_are_held_as_a_whole() -> None:
    """Assert that no tile waits for another, and that invocations exchange few totals where there are enough."""

    def tile(length: int, inner: int, outer: int = 1, **options: Any) -> ColumnTile:
        return column_tile(spec(rows=outer * inner, row_length=length, inner=inner, **options), gpu())

    for length in (1, 2, 3, 7, 10, 33, 50, 61, 170, 300):
        many, few = tile(length, (1 << 23) + 1), tile(length, 1001)
        assert min(many.height, few.height) >= length
        assert many.groups <= few.groups
    assert tile(10, 1 << 23).groups == 1
    assert tile(10, 1 << 23).height == 10
    assert tile(300, 7).columns < GPU.columns, "other columns would be empty"
    assert tile(10, 7, outer=1 << 20).columns == tile(10, 7 << 20).columns, "lanes take columns of several arrays"
    marked = tile(50, 1 << 23, has_segment_bits=True)
    assert marked.height >= 50
    assert marked.rows <= 32, "the marks of an invocation are one word"


def test_gradients_down_columns_take_more_invocations() -> None:
    """Assert that adapters with small workgroups keep the invocations of other scans."""
    scan = spec("float32", "float32", rows=1536, row_length=2048, inner=1536)
    gradient = replace(scan, source=spec(*["float32"] * 3).source, field_offsets=(0, 0, 1))
    small = gpu(limits=LIMITS | {"max-compute-invocations-per-workgroup": 256})
    assert column_tile(gradient, gpu()).workgroup_size > column_tile(scan, gpu()).workgroup_size
    assert column_tile(gradient, small).workgroup_size == column_tile(scan, small).workgroup_size


def test_tiles_in_many_chains_of_columns_wait_for_the_one_above() -> None:
    assert GPU.min_waiting_chains is not None
    for inner in (32 * GPU.min_waiting_chains - 32, 32 * GPU.min_waiting_chains):
        asked = spec("uint64", rows=inner, row_length=2048, inner=inner)
        policies = {
            strategy: plan_scan(asked, gpu(), strategy, "").stages[-1].kernel.wait_policy.chained
            for strategy in ("lookahead", "lookback", "fallback", "three_dispatch")
        }
        many = inner == 32 * GPU.min_waiting_chains
        assert policies == {"lookahead": many, "lookback": many, "fallback": False, "three_dispatch": False}
        assert not plan_scan(asked, software(), "lookback", "").stages[-1].kernel.wait_policy.chained


def test_single_words_of_many_columns_go_in_pairs() -> None:
    def chunk(*dtypes: str, inner: int, outer: int = 8) -> int:
        return column_tile(spec(*dtypes, rows=outer * inner, row_length=2048, inner=inner), gpu()).chunk

    assert chunk("float32", inner=1536) == 2
    assert chunk("float32", inner=1537) == 1, "pairs would begin within others"
    assert chunk("float32", inner=1536, outer=1) == 1, "few chains are left"
    assert chunk("float32", "float32", inner=1536) == 1
    assert column_tile(spec(rows=8 * 1536, row_length=2048, inner=1536), software()).chunk == 1


def test_a_tile_that_holds_a_row_stands_alone() -> None:
    asked = spec(rows=4096, row_length=2048)
    for strategy in ("lookahead", "lookback", "fallback", "three_dispatch"):
        plan = plan_scan(asked, gpu(), strategy, "")
        assert [stage.kernel.strategy for stage in plan.stages] == ["alone"]
        assert plan.tiles == 4096
        assert not plan.posts


@pytest.mark.parametrize(("row_length", "alone"), [(8, True), (12, True), (14, False), (256, True), (1000, True)])
def test_tiles_that_end_with_rows_stand_alone(row_length: int, alone: bool) -> None:
    """Assert that rows share tiles of as many steps as it takes to end with a row, if there are such tiles."""
    asked = spec(rows=100_000, row_length=row_length)
    planned = plan_scan(asked, gpu(), "lookahead", "")
    assert (planned.stages[0].kernel.strategy == "alone") == alone
    assert planned.tile.tile_size % row_length == 0 or not alone or planned.tile.per_row
    in_pieces = plan_scan(replace(asked, carry_out=True), gpu(), "lookahead", "", piece=100_000)
    assert in_pieces.stages[0].kernel.strategy == "alone" or not planned.tile.per_row


def test_tiles_that_hold_columns_stand_alone() -> None:
    """Assert that short columns are scanned without posts, which would take more memory than the array."""
    for strategy in ("lookahead", "lookback", "fallback", "three_dispatch"):
        for length in (1, 2, 8):
            asked = spec(rows=1 << 22, row_length=length, inner=1 << 22)
            plan = plan_scan(asked, gpu(), strategy, "")
            assert [stage.kernel.strategy for stage in plan.stages] == ["alone"]
            assert not plan.posts
            assert plan.state_bytes < 64
        assert plan_scan(spec(rows=64, row_length=10_000, inner=64), gpu(), strategy, "").posts == (
            strategy != "three_dispatch"
        )


def test_chunks_fill_whole_words() -> None:
    chunks = {name: min_chunk(spec(name).source) for name in ("int8", "float16", "uint32", "int64", "bool")}
    assert chunks == {"int8": 4, "float16": 2, "uint32": 1, "int64": 1, "bool": 4}
    assert min_chunk(spec("int8", "int32").source) == 4
    assert min_chunk(spec("uint8", shapes=[(3,)]).source) == 4
    assert min_chunk(spec("uint8", shapes=[(2,)]).source) == 2


def test_long_operators_take_few_steps_and_join_once() -> None:
    element = element_of([np.dtype(np.float32)], LEAF)
    short, long = (combine_code(BUILTINS[name], element, native_int64=True) for name in ("add", "logaddexp"))
    assert (short.long, long.long) == (False, True)
    for adapter in (gpu(progress_later=True), gpu(progress_later=False)):
        assert not tile_shape(spec(row_length=2**25, combine=short), adapter).single_lead
        tile = tile_shape(spec(row_length=2**25, combine=long), adapter)
        assert tile.single_lead
        assert tile.steps < tile_shape(spec(row_length=2**25, combine=short), adapter).steps
    medium = combine_code(BUILTINS["maximum"], element, native_int64=True)
    assert tile_shape(spec(row_length=2**25, combine=medium), gpu()).single_lead, "operators of medium length join once"
    few, many = (tile_shape(spec(row_length=length, combine=long), gpu()) for length in (2**14, 2**25))
    assert few.chunk < many.chunk, "few tiles would have elements"
    assert tile_shape(spec(row_length=2**25, combine=long), software()).chunk == CPU.serial_long_chunk


def test_shapes_that_were_measured_are_for_many_tiles() -> None:
    """Assert that they are not taken for few tiles, for items with a head flag, or where lanes are too few."""
    for shape in GPU.measured_shapes:
        shapes = [(shape.words,)] if shape.fields == 1 else None
        many = GPU.min_measured_tiles * shape.lanes * shape.steps * shape.chunk
        asked = spec(*["float32"] * shape.fields, shapes=shapes, row_length=many)
        wanted = TileShape(shape.lanes, 32, shape.steps, shape.chunk, single_lead=shape.single_lead)
        assert tile_shape(asked, gpu()) == wanted
        for other, adapter in (
            (replace(asked, row_length=asked.row_length // 2), gpu()),
            (replace(asked, rows=asked.row_length // 100, row_length=100), gpu()),
            (asked, gpu(limits=LIMITS | {"max-compute-invocations-per-workgroup": shape.lanes // 2})),
            (asked, gpu(subgroup_size=128 if shape.lanes == 64 else 512)),
        ):
            assert replace(tile_shape(other, adapter), subgroup_size=32) != wanted


@pytest.mark.parametrize(
    ("rows", "row_length", "inner"), [(1, 1 << 25, 1), (1000, 1 << 15, 1), (1 << 15, 1 << 10, 1 << 15)]
)
def test_a_reduction_with_a_long_last_step_loads_as_much_at_a_time(rows: int, row_length: int, inner: int) -> None:
    """Assert that a mean loads as a sum does. Its last step is a quotient, which a long function rounds."""
    element = element_of([np.dtype(np.float32)], LEAF)
    sums = combine_code(BUILTINS["add"], element, native_int64=True)
    whole = replace(spec(rows=rows, row_length=row_length, keep_last_only=True), combine=sums, inner=inner)
    quotient = map_code(lambda x: np.sqrt(x) / x, element, "after", native_int64=True, result_type="Result")
    assert quotient.long
    loads = [
        plan_scan(asked, gpu(), "three_dispatch", "").stages[0].kernel.loads_at_once
        for asked in (whole, replace(whole, after=quotient), replace(whole, before=quotient))
    ]
    assert loads[0] == loads[1] != loads[2]


def test_prefixes_have_the_words_that_results_depend_on() -> None:
    pair, one = (
        element_of([np.dtype(np.float32)] * 2, Structure("tuple", (0, 1), (LEAF, LEAF))),
        element_of([np.dtype(np.float32)], LEAF),
    )
    affine = combine_code(Operator("affine", lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])), pair, native_int64=True)
    swap = combine_code(Operator("swap", lambda a, b: (a[1] + b[0], a[0] + b[1])), pair, native_int64=True)
    second = map_code(lambda x: x[1], pair, "after", native_int64=True, result_type="Result")
    numbers = combine_code(BUILTINS["add"], one, native_int64=True)
    for rows in (1, 1000):  # the last word of items in rows is a head flag
        for combine, after, dtypes, wanted in (
            (affine, second, ("float32", "float32"), (1,)),
            (swap, second, ("float32", "float32"), (0, 1)),
            (affine, None, ("float32", "float32"), (0, 1)),
            (numbers, None, ("float32",), (0,)),
        ):
            asked = replace(spec(*dtypes, rows=rows, row_length=2**24 // rows + 1), combine=combine, after=after)
            kernel = plan_scan(asked, gpu(), "lookahead", "").stages[0].kernel
            assert kernel.prefix_words == wanted
            assert (kernel.prefix_post == "prefix") == (len(wanted) < kernel.item_words)


def test_narrow_integers_are_kept_as_they_lie_in_storage() -> None:
    kinds = (("uint8", True), ("int16", True), ("float16", False), ("float16", True), ("uint32", False))
    for name, narrow in kinds:  # halves where the GPU's own conversions will do, and are cheap
        asked, adapter = spec(name, row_length=2**25), gpu(packs_halves=narrow)
        (kernel,) = (stage.kernel for stage in plan_scan(asked, adapter, "lookahead", "").stages)
        assert kernel.keeps_storage_form == narrow
        assert ("fn again(" in render_kernel(kernel)) == narrow
    stages = plan_scan(spec("uint8", row_length=2**25), gpu(), "three_dispatch", "").stages
    assert {stage.kernel.stage: stage.kernel.keeps_storage_form for stage in stages} == {
        "reduce": False,
        "scan_totals": False,
        "scan": True,
    }


def test_narrow_numbers_in_rows_that_share_tiles_are_joined_once() -> None:
    """Assert the exceptions: 16-bit rows of whole chunks, a single row, and tiles that end with rows."""
    cases = [("uint8", 100, True), ("uint8", 64, True), ("int16", 100, True), ("int16", 64, False)]
    cases += [("uint32", 63, False), ("float16", 63, True), ("uint8", 2048, False)]
    for name, row_length, once in cases:
        asked, adapter = spec(name, rows=2**26 // row_length, row_length=row_length), gpu(packs_halves=True)
        tiles = set()
        for reverse in (False, True):  # in the same tiles, for the same bits
            plan = plan_scan(replace(asked, reverse=reverse), adapter, "lookahead", "")
            kernel = plan.stages[-1].kernel
            assert kernel.tile.single_lead == once, (name, row_length)
            assert not (kernel.tile.single_lead and kernel.keeps_storage_form)
            tiles.add(plan.tile)
        assert len(tiles) == 1, (name, row_length)


def test_elements_that_take_several_accesses_are_staged() -> None:
    """Assert that chunks go through workgroup memory if there is room and lanes then access neighbours."""

    def is_staged(asked: ScanSpec, adapter: Capabilities, strategy: str = "lookahead", **options: Any) -> bool:
        kernel = plan_scan(asked, adapter, strategy, "", **options).stages[-1].kernel
        text = render_kernel(kernel)
        assert kernel.exchanges_chunks == ("var<workgroup> stage:" in text)
        return kernel.exchanges_chunks

    for shape, wide in (((2,), False), ((2, 2), False), ((3,), True), ((3, 3), True), ((4, 4), True), ((8, 8), True)):
        asked = spec(shapes=[shape], row_length=2**20)
        staged = is_staged(asked, gpu(limits=LIMITS | {"max-compute-workgroup-storage-size": 1 << 20}))
        assert staged == wide, shape
    matrices = spec(shapes=[(4, 4)], row_length=2**20)
    assert is_staged(matrices, gpu())
    for strategy in ("lookback", "fallback", "three_dispatch"):
        assert is_staged(matrices, gpu(), strategy)
    scarce = gpu(limits=LIMITS | {"max-compute-workgroup-storage-size": 16384})
    assert is_staged(matrices, scarce), "of a smaller workgroup"
    assert not is_staged(matrices, scarce, tile=TileShape(256, 32, 2, 1))
    assert not is_staged(matrices, gpu(), subgroups=False)
    assert not is_staged(matrices, software())
    assert not is_staged(spec("float32", "float32", shapes=[(4, 4), (4,)], row_length=2**20), gpu())
    rows = spec(shapes=[(3,)], rows=2**10, row_length=2**10)
    assert not is_staged(rows, gpu(), "lookback"), "its tiles end where rows do"
    assert is_staged(spec("uint8", shapes=[(5,)], row_length=2**20), gpu()), "begins within a word"
    assert not is_staged(spec("uint8", shapes=[(13,)], row_length=2**20), gpu()), "too long"
    assert not is_staged(spec("uint8", row_length=2**20), gpu()), "one access for a chunk"


def test_the_widest_elements_get_full_workgroups() -> None:
    """Assert that wide items have full workgroups if only totals of subgroups are in workgroup memory."""
    asked = spec(shapes=[(8, 8)], row_length=2**20)
    for available_bytes in (16384, 49152):
        adapter = gpu(limits=LIMITS | {"max-compute-workgroup-storage-size": available_bytes})
        assert tile_shape(asked, adapter).workgroup_size == GPU.workgroup
        for strategy in ("lookahead", "three_dispatch"):
            for stage in plan_scan(asked, adapter, strategy, "").stages:
                assert workgroup_bytes(stage.kernel) <= available_bytes
    assert tile_shape(asked, gpu(subgroup_size=16)).workgroup_size < GPU.workgroup, "scans go through it"
    narrower = spec(shapes=[(6, 6)], row_length=2**20)
    assert tile_shape(narrower, gpu()).workgroup_size < GPU.workgroup, "a smaller one is staged"


@pytest.mark.parametrize(("words", "subgroup_size", "available_bytes"), [(50, 4, 65536), (120, 0, 16384)])
def test_elements_that_leave_no_room_to_wait(words: int, subgroup_size: int, available_bytes: int) -> None:
    """Assert that a clear error says if the prefix of a tile does not fit workgroup memory."""
    adapter = gpu(
        limits=LIMITS | {"max-compute-workgroup-storage-size": available_bytes},
        subgroup_size=subgroup_size,
        subgroup_sizes=(),
    )
    asked = spec(shapes=[(words,)], rows=64, row_length=2**14)
    (stage,) = plan_scan(asked, adapter, "fallback", "", one_workgroup_folds=True).stages
    assert workgroup_bytes(stage.kernel) <= available_bytes
    with pytest.raises(UnsupportedDtypeError, match="Pass smaller elements"):
        check_workgroup_memory(stage.kernel, adapter)


def test_subgroups_can_be_left_out() -> None:
    assert tile_shape(spec(), gpu(), subgroups=False).subgroup_size == 0
    plan = plan_scan(spec(), gpu(), "lookback", "", subgroups=False)
    assert not plan.stages[0].kernel.subgroups


def test_tiles_go_by_number_where_workgroups_start_in_order() -> None:
    """Assert that tiles take tickets if the order of workgroups is unknown or a test build needs tickets."""
    for strategy in ("lookahead", "lookback", "fallback"):
        ordered, delayed = (
            plan_scan(spec(row_length=2**24), gpu(), strategy, "", test_build=InjectedFaults(scheduler=s))
            for s in ("", "random")
        )
        assert ordered.stages[0].kernel.tiles_by_number
        assert delayed.stages[0].kernel.tiles_by_number
        assert "atomicAdd" not in render_kernel(ordered.stages[0].kernel)
        for adapter, scheduler in (
            (gpu(vendor="AMD"), ""),
            (gpu(starts_in_order=False), ""),
            (gpu(), "serial"),
            (gpu(), "bursts"),
        ):
            by_ticket = plan_scan(
                spec(row_length=2**24), adapter, strategy, "", test_build=InjectedFaults(scheduler=scheduler)
            )
            assert "atomicAdd(&state.ticket" in render_kernel(by_ticket.stages[0].kernel)


@pytest.mark.parametrize("many", [False, True])
def test_a_fallback_on_the_cpu_helps_no_sooner_at_first(many: bool) -> None:
    software = gpu(adapter_type="CPU")
    kernel = (
        plan_scan(spec("uint32", row_length=2**20), software, "fallback", "", one_workgroup_folds=many).stages[0].kernel
    )
    assert kernel.wait_policy.first_spins == kernel.wait_policy.spins_per_round


def test_nobody_folds_where_loops_are_left_by_force() -> None:
    """Assert that one workgroup folds, in a long loop over all tiles, only if the driver ends no loops."""
    for strategy in ("lookback", "fallback"):
        folds = [
            plan_scan(spec(row_length=2**26), adapter, strategy, "").stages[0].kernel.wait_policy.one_workgroup_folds
            for adapter in (gpu(), gpu(loop_iterations=65_533), software())
        ]
        assert folds == [True, False, False]


def test_a_shape_that_is_passed_is_taken() -> None:
    tile = TileShape(64, 32, 3, 2)
    plan = plan_scan(spec(row_length=10_000), gpu(), "fallback", "", tile=tile)
    assert plan.tile == tile
    assert plan.tiles == math.ceil(10_000 / (64 * 3 * 2))


# ----- The canonical order


def test_tiles_look_back_where_a_span_fits_workgroup_memory() -> None:
    four = np.zeros(3 * SPAN, [(name, np.float32) for name in "abcd"])

    def add_four(left: Any, right: Any) -> Any:
        return {name: left[name] + right[name] for name in "abcd"}

    for size, strategy in ((1 << 15, "lookback"), (1 << 14, "three_dispatch")):
        limits = dict(gpu().limits) | {"max-compute-workgroup-storage-size": size}
        capabilities = replace(gpu(), limits=limits)
        asked = scan_spec(make_problem(four, add_four, reproducible="everywhere"), capabilities)
        plan = plan_scan(asked, capabilities, "lookahead", "")
        assert plan.strategy == strategy
        check_workgroup_memory(plan.stages[-1].kernel, capabilities)


def test_products_in_the_canonical_order_take_three_dispatches() -> None:
    x = np.zeros(SPAN, np.float32)
    for operator, strategy in (("add", "lookback"), ("multiply", "three_dispatch")):
        asked = scan_spec(make_problem(x, operator, reproducible="everywhere"), gpu())
        assert plan_scan(asked, gpu(), "lookahead", "").strategy == strategy
