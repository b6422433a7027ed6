"""Hold every tuning constant of the planner: one frozen table for GPUs and one for adapters that are the CPU.

A constant belongs here if changing it changes only the speed, or which of several safe shapes is chosen. Each entry
names the hardware and the experiment that it comes from. "H100" is an NVIDIA H100 through Vulkan, "lavapipe" is Mesa's
software Vulkan driver, and "llvmpipe" is the rasteriser that lavapipe and Mesa's software OpenGL share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Heuristics:
    """The tuning constants for one class of adapter. The comments of `GPU` and `CPU` say what each one means."""

    # Strategies
    strategy_order: tuple[str, ...]
    lookback_tiles: range

    # Waits
    spins_per_round: int
    lookback_seconds: float
    min_lookback_spins: int
    fixed_lookback_spins: int | None
    fallback_spins: int
    folded_fallback_spins: int
    long_fallback_spins: int
    first_fallback_spins: int
    pause_divisions: int
    min_tiles_for_fold: int
    max_loop_iterations: int

    # Fold of the aggregates
    fold_blocks: int
    long_fold_blocks: int
    fold_patience_divisor: int
    fold_rest: int
    fallback_fold_looks: int
    column_posts_read: int

    # Shape of the code
    wide_words: int
    max_unrolled_words: int
    max_unrolled_words_lookahead: int
    recomputed_bytes: int
    recomputed_words: int
    moved_words_in_flight: int

    # Tiles with subgroups
    workgroup: int
    steps: tuple[int, ...]
    wide_workgroup: int
    few_steps: int
    max_words_in_wide_workgroup: int
    min_long_steps: int
    long_words: int
    widest_words: int
    tile_bytes: int
    long_steps: int
    resident_tiles: tuple[int, int]
    max_long_tile_bytes: int
    register_words: int
    wide_register_words: int
    few_register_words: int
    mask_chunk: int
    mask_steps: tuple[int, ...]
    min_tiles: int

    # Tiles without subgroups
    serial_workgroup: int
    serial_wide_workgroup: int
    serial_wide_item_words: int
    serial_chunk_words: int
    serial_wide_chunk_words: int
    serial_long_chunk: int

    # Tiles that end where rows end
    min_row: int
    row_workgroup: int
    min_row_tile: int
    min_lone_row_tile: int
    min_row_use: float
    min_row_chunk_words: int
    min_lone_row_chunk_words: int

    # Tiles of columns
    columns: int
    column_groups: int
    max_column_groups: int
    min_column_workgroup: int
    column_rows: tuple[int, ...]
    column_register_words: int
    long_column_tile: tuple[int, int, int, int] | None
    long_column_chain: int


GPU = Heuristics(
    # ----- Strategies
    # The order in which "auto" tries strategies. A scan is bound by memory on a GPU, so the order is that of traffic.
    strategy_order=("lookahead", "lookback", "fallback", "three_dispatch"),
    # The numbers of tiles for which look-back is faster than look-ahead: a few times as many as run at once, so that
    # most tiles find their prefix posted. H100: 13.3 against 14.2 us at 2^21 elements, 17.0 against 19.7 at 2^22.
    lookback_tiles=range(256, 513),
    # ----- Waits
    # Polls in one round of a wait. A long wait is a loop of short ones, so that the bound exceeds 32 bits.
    spins_per_round=4096,
    # The seconds that a tile waits for a post before it times out. Chosen for safety: 100 times the longest wait that
    # was seen on an H100 under load.
    lookback_seconds=0.5,
    # The fewest polls before a timeout, however slow polls were when other programs kept the GPU busy in the probe.
    min_lookback_spins=1 << 18,
    # None: the number of polls follows from `lookback_seconds` and the speed that the probe measured.
    fixed_lookback_spins=None,
    # Polls before a workgroup under fallback reduces the late tile itself. A few, as Smith, Levien & Owens found.
    fallback_spins=4,
    # The same where one workgroup folds for all. Measured on an H100, sums of 2^28 elements.
    folded_fallback_spins=8,
    # The same for long operators, whose tiles take longer. Measured on an H100, logaddexp of 2^28 elements.
    long_fallback_spins=32,
    # The same in the first round of a wait, for single words, whose tiles take no longer than a load. H100, 2^28.
    first_fallback_spins=1,
    # Divisions that pass the time between two polls. A GPU needs none.
    pause_divisions=0,
    # From this number of tiles on, one workgroup folds for all, which is then faster than that each tile looks back.
    # Measured on an H100 under lookback and fallback.
    min_tiles_for_fold=1024,
    # The iterations that the loops of an operator's WGSL may make in one combination. A limit against hanging shaders.
    max_loop_iterations=1 << 16,
    # ----- Fold of the aggregates
    # Blocks of aggregates that a fold reads at a time. H100: 4 blocks are 1 to 6 % slower.
    fold_blocks=2,
    # The same for vectors, matrices and long operators, whose code stands in the shader once for each block.
    long_fold_blocks=1,
    # A fold gives up a round after `spins_per_round` divided by this many looks that find nothing new.
    fold_patience_divisor=2,
    # Looks that find nothing new for tiles after the workgroup's own, before it stops folding. Measured on an H100.
    fold_rest=8,
    # Looks that find nothing new for tiles before the workgroup's own, before a fold under fallback helps. H100.
    fallback_fold_looks=32,
    # Posts that a lane reads at a time where it walks up a column of tiles. Measured on an H100.
    column_posts_read=4,
    # ----- Shape of the code
    # Items of at least this many 32-bit words are wide: their posts are interleaved and scans through workgroup memory
    # are loops. In a loop the operator stands once, and llvmpipe compiles matrices in a third of the time; narrow items
    # would run a fifth slower. Interleaving was measured on an H100.
    wide_words=3,
    # The widest item, in words, for which the scan over a block stands once for each distance. H100: as a loop, 4x4
    # matrices would be 10 % slower where the fold changes hands.
    max_unrolled_words=16,
    # The same under look-ahead. H100: 4x4 matrices compile in 0.7 of the time as a loop and are 5 % slower, as are 5x5;
    # 6x6 and 8x8 are 10 and 40 % faster.
    max_unrolled_words_lookahead=9,
    # The largest element in storage, in bytes, whose chunks are scanned twice and kept in their storage form meanwhile:
    # narrow numbers take up to four times the registers as soon as they are widened. Measured on an H100.
    recomputed_bytes=2,
    # The largest item, in words, for which chunks are scanned twice.
    recomputed_words=2,
    # Words that an invocation of a compaction loads in one iteration, so that several loads are under way. H100.
    moved_words_in_flight=4,
    # ----- Tiles with subgroups
    # Invocations in a workgroup.
    workgroup=256,
    # The numbers of steps that tiles are built with. Few, so that few pipelines are compiled.
    steps=(1, 2, 4, 6, 8, 12),
    # Invocations in a workgroup for items of several words, and for single words where look-ahead runs. Such tiles take
    # `few_steps` steps, which keeps their shaders short. Measured on an H100.
    wide_workgroup=512,
    few_steps=4,
    # The widest item, in words, in a wide workgroup. Bytes take none. Measured on an H100.
    max_words_in_wide_workgroup=9,
    # Long operators take at least this many steps, and otherwise at most `long_words` words for each invocation.
    # H100: logaddexp compiles in half the time.
    min_long_steps=2,
    long_words=16,
    # From this item on, in words, a full workgroup is faster than chunks through workgroup memory. H100, 8x8 matrices.
    widest_words=64,
    # Bytes of storage in such a tile. Below that the fold of all tiles is late. Measured on an H100.
    tile_bytes=32 << 10,
    # Tiles of `long_steps` steps are taken if their number is within `resident_tiles`, so that all run together, and
    # if they hold at most `max_long_tile_bytes`. H100: 2^21 and 2^22 words.
    long_steps=8,
    resident_tiles=(128, 256),
    max_long_tile_bytes=64 << 10,
    # Words of payload that one invocation keeps between load and store. Measured on an H100.
    register_words=48,
    # The same for elements of 4 words and more in several arrays, and for bytes that are scanned once. H100.
    wide_register_words=64,
    # The same for 64-bit numbers, for matrices in one array, and for chunks kept in their storage form. H100.
    few_register_words=32,
    # Elements of a mask in a chunk. An invocation keeps their bits and not their sums.
    mask_chunk=16,
    # The numbers of steps for masks. Measured on an H100.
    mask_steps=(1, 2, 4),
    # A small array is cut into at least this many tiles, so that every compute unit has work. Measured on an H100.
    min_tiles=64,
    # ----- Tiles without subgroups
    # Invocations in a workgroup, for items of fewer than `serial_wide_item_words` words and for wider ones.
    serial_workgroup=256,
    serial_wide_workgroup=256,
    serial_wide_item_words=4,
    # Words in a chunk, for elements of one word and for wider ones. Taken over from the CPU's.
    serial_chunk_words=64,
    serial_wide_chunk_words=64,
    # Elements in a chunk of a long operator, unless tiles end with rows. lavapipe compiles it in half the time of 64.
    serial_long_chunk=32,
    # ----- Tiles that end where rows end
    # Elements in a row. Shorter rows share tiles.
    min_row=128,
    # Invocations in a workgroup, at most.
    row_workgroup=512,
    # Elements in a tile, at least: of a row that takes several tiles, and of a row that takes one. Measured on an H100.
    min_row_tile=2048,
    min_lone_row_tile=256,
    # The share of a tile's places that must hold elements.
    min_row_use=0.75,
    # Words in a chunk, at least, of a row that takes several tiles and of a row that takes one. A GPU has no such rule.
    min_row_chunk_words=0,
    min_lone_row_chunk_words=0,
    # ----- Tiles of columns
    # Invocations side by side: a cache line of 32-bit numbers.
    columns=32,
    # Invocations one below the other where all `columns` are used, and the most where fewer are.
    column_groups=8,
    max_column_groups=16,
    # Invocations in a workgroup, at least. A GPU has no such rule.
    min_column_workgroup=1,
    # The numbers of rows that one invocation takes. Few, so that few pipelines are compiled.
    column_rows=(1, 2, 4, 8, 16),
    # Words of payload that one invocation keeps between load and store. Measured on an H100.
    column_register_words=48,
    # Columns, groups, rows and chunk of the tile for single words in chains of at least `long_column_chain` such tiles:
    # fewer tiles, one below the other. Both measured on an H100, 2^17 rows of 512 columns.
    long_column_tile=(16, 16, 24, 1),
    long_column_chain=256,
)

CPU = replace(
    GPU,
    # Workgroups are threads of the operating system, which may take the core from one workgroup for longer than another
    # can wait (llvmpipe ends a wait after 65,535 polls, half a millisecond). So "auto" prefers that no workgroup waits.
    strategy_order=("three_dispatch", "lookback", "fallback"),
    # llvmpipe ends loops after 65,535 iterations, so the number of polls is fixed below that.
    fixed_lookback_spins=57_344,
    # Polls before a workgroup reduces the late tile itself. Measured on lavapipe with two cores.
    fallback_spins=256,
    # Divisions between two polls: a poll is faster than the system's switch to another thread. Measured on lavapipe.
    pause_divisions=48,
    # In all combinations of an invocation together, since llvmpipe ends every loop after 65,535 iterations in all.
    max_loop_iterations=50_000,
    # Folds look less often, for the same reason.
    fold_patience_divisor=4,
    fold_rest=0,
    fallback_fold_looks=8,
    # llvmpipe compiles small loops sooner.
    moved_words_in_flight=1,
    # An invocation is one serial loop, so long chunks and few invocations are best. Measured on lavapipe.
    serial_workgroup=64,
    serial_wide_workgroup=32,
    serial_wide_chunk_words=128,
    # Measured on lavapipe: tiles that end with rows are faster only if their chunks are at least this long.
    min_row_chunk_words=16,
    min_lone_row_chunk_words=4,
    # With fewer invocations, llvmpipe's OpenGL never leaves the loop of fallback.
    min_column_workgroup=8,
    # An invocation keeps its rows on the stack, so it may take many. Measured on lavapipe.
    column_rows=(1, 4, 16, 64),
    column_register_words=192,
    long_column_tile=None,
)


def heuristics_for(adapter_type: str) -> Heuristics:
    """Return the table for an adapter of this type, such as ``"DiscreteGPU"`` or ``"CPU"``."""
    return CPU if adapter_type == "CPU" else GPU
