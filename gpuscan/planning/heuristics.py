"""Hold the tuning constants of scans, reductions and arrays: one frozen table for each class of adapter.

The constants of sorts, groups and counts are in `key_heuristics`, and the constants of transfers in
`transfer_heuristics`.

A constant belongs here if changing it changes only the speed, or which of several safe shapes is chosen. Each entry
names the hardware and the experiment that it comes from, or says that it was not measured, and why that is enough. "Not
measured on record" means that the numbers were not noted. "H100" is an NVIDIA H100 through Vulkan, "H200" an NVIDIA
H200 through Vulkan, "lavapipe" is Mesa's software Vulkan driver, and "llvmpipe" is the rasteriser that lavapipe and
Mesa's software OpenGL share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class MeasuredShape:
    """A tile shape that was measured for one element type.

    Attributes:
        words: the 32-bit words of an element.
        fields: the arrays that an element is read from.
        lanes: the invocations in a workgroup.
        steps: the chunks of an invocation.
        chunk: the elements in a chunk.
        single_lead: as in `TileShape`.
        long_too: it is also for long operators, such as products of 4x4 matrices.
    """

    words: int
    fields: int
    lanes: int
    steps: int
    chunk: int
    single_lead: bool = False
    long_too: bool = False


@dataclass(frozen=True)
class Heuristics:
    """The tuning constants for one class of adapter. The defaults are for a discrete GPU."""

    # ----- Strategies
    # The order in which "auto" tries strategies. Not measured as such: a scan is bound by memory, so it is by traffic.
    strategy_order: tuple[str, ...] = ("lookahead", "lookback", "fallback", "three_dispatch")
    # The numbers of tiles for which look-back is faster than look-ahead: so few that each looks at all before it, or a
    # few times more than run at once, so that most tiles find their prefix posted. H200: 8.86 against 9.2 us at 2^20
    # elements, 128 tiles. H100: 13.3 against 14.2 us at 2^21, 17.0 against 19.7 at 2^22.
    lookback_tiles: range = range(128, 513)

    # ----- Waits
    # Polls in one round of a wait. Between rounds a tile asks whether the run was given up. Not measured: a question
    # for each 4,096 polls is lost among them.
    spins_per_round: int = 4096
    # The seconds that a tile waits for a post before it times out. A generous bound against hanging. Not measured: only
    # a run that would hang comes near it.
    lookback_seconds: float = 0.5
    # The fewest polls before a timeout, even if other programs made polls slow while the probe ran. Not measured: it is
    # far above what a run without disturbance needs.
    min_lookback_spins: int = 1 << 18
    # A time that every poll exceeds, since it waits for memory that workgroups share. H200: 180 ns.
    fastest_poll_seconds: float = 5e-9
    # None: the number of polls follows from `lookback_seconds` and the probe. Not measured: as `lookback_seconds`.
    fixed_lookback_spins: int | None = None
    # Polls before a workgroup under fallback reduces the late tile itself. H100, 2^28, every second post withheld: 0.88
    # of the unblocked speed with 4 polls, 0.76 after 2 us, 0.31 after 20 us. Smith, Levien & Owens found a few, too.
    fallback_spins: int = 4
    # The same where one workgroup folds for all. H100 under fallback, 8 polls instead of 2: 2x2 and 4x4 matrices from
    # 0.74 and 0.13 to 0.825 and 0.43 of a copy, uint8 from 0.86 to 0.90.
    folded_fallback_spins: int = 8
    # The same for long operators: their tiles take longer. H100, logaddexp of 2^28: 486 us with 32 polls, 747 with 2.
    long_fallback_spins: int = 32
    # The same in the first round of a wait, for single words: their tiles take no longer than a load. H100, uint32 of
    # 2^28, every second post withheld: 851 us with 1 and then 8 polls, 863 with 2.
    first_fallback_spins: int = 1
    # Waits without success after which a workgroup does what another one has claimed. H100, 2^25: after 4 waits the
    # unblocked scan takes 172 us instead of 106; 16 and 64 waits differ from 8 by less than runs do.
    impatient_waits: int = 8
    # Divisions that pass the time between two polls. Not measured: a GPU needs none.
    pause_divisions: int = 0
    # How often a call that asked for a strategy by name is made again after a timeout. Not measured: a GPU's wait lasts
    # as long as `lookback_seconds` says, so it is final.
    timeout_retries: int = 0
    # From this number of tiles on, one workgroup folds for all. H100 under lookback: 736 instead of 923 us at 2^28, but
    # 21.9 instead of 17.5 us at 2^22.
    min_tiles_for_fold: int = 1024
    # Up to this number of tiles, one that looks back looks at all tiles before it at once. H200,
    # uint32: 8.86 us at 2^20 and 13.25 at 2^22, where look-ahead takes 9.2 and 13.9; 512 tiles take longer at once.
    max_tiles_at_once: int = 256
    # The iterations that the loops of an operator's WGSL may make in one combination. Not measured: it is a limit
    # against hanging shaders, not a matter of speed.
    max_loop_iterations: int = 1 << 16

    # ----- Fold of the aggregates
    # Blocks of aggregates that a fold reads at a time: 1 or 2. H100, lookback, 2^28: 736 us with 2, more with 4 and 8.
    fold_blocks: int = 2
    # The same for vectors, matrices and long operators. H100, 4x4 matrices under look-ahead, measured while the shader
    # had the operator once for each block: 0.465 instead of 0.44 of a copy, compiled in 1.2 instead of 1.7 s.
    long_fold_blocks: int = 1
    # From this width of an item on, in words, all subgroups of the workgroup that folds take part, each with a block in
    # each round. H200, 4x4 matrices in 128 x 4 chunks: 269 instead of 336 us; 3x3 in 256 x 6: 249 instead of 239.
    min_words_for_rounds: int = 16
    # The same where only two subgroups meet after each round. H200, 3x3 matrices in 64 x 4 chunks of 4: 0.734 of a
    # copy, and 0.715 without rounds.
    min_words_for_rounds_of_two: int = 9
    # The widest item, in words, for which operators of medium length fold in rounds as well: one subgroup would scan
    # blocks more slowly than their tiles arrive. H200: affine loops of 10^7 steps 63 to 56 us, with a constant factor
    # 60 to 44, compensated sums of 2^25 164 to 137; but 3x3 matrices 280 to 305, and long operators up to 1.7 times
    # slower.
    max_medium_words_for_rounds: int = 4
    # A fold ends a round after `spins_per_round` divided by this many looks that find nothing new. Not measured: it
    # matters only when no tile makes progress.
    fold_patience_divisor: int = 2
    # Looks that find nothing new until the fold asks whether the run was given up. Not measured: it seldom happens.
    fold_glance: int = 64
    # Blocks from one hint, which says how far a fold is, to the next. H100 under fallback, 2^25: 2 instead of 8, and
    # `fold_rest` of 8 instead of 16, took every second post withheld from 0.83 to 0.845 of the unblocked speed.
    fold_hint_blocks: int = 2
    # Looks that find nothing new for tiles after the workgroup's own, before it stops folding. H100 under fallback,
    # 2^25: with 4 and 2 looks one tile in 7 withheld costs 1 % more; with none the unblocked scan is 16 % slower.
    fold_rest: int = 8
    # Looks that find nothing new for tiles before the workgroup's own, before a fold under fallback helps. H100, 2^25:
    # 16 and 64 looks differ from 32 by less than runs do.
    fallback_fold_looks: int = 32
    # Looks that find nothing new, before the first workgroup under look-ahead hands the fold over: about 0.2 ms. H100:
    # scans in which that does not happen are as fast as before.
    handover_looks: int = 256
    # Looks of a waiting tile at its prefix under look-ahead, for one look at whether a workgroup folds. As above.
    handover_spins: int = 16

    # ----- Shape of the code
    # Items of at least this many 32-bit words are wide: their posts are interleaved, and scans through workgroup memory
    # are loops. H100, interleaved posts: 4x4 matrices from 217 to 861 GB/s, single words from 2569 to 2309. lavapipe,
    # loops: the first scan of 4x4 matrices takes 1.0 instead of 1.9 s; single words run a fifth slower.
    wide_words: int = 3
    # The widest item, in words, for which the scan over a block stands once for each distance. H100, 4x4 matrices under
    # lookback: 360 us, and 398 as a loop. 8x8 matrices under look-ahead take 2015 instead of 3260 us as a loop.
    max_unrolled_words: int = 16
    # The same under look-ahead. H100, 4x4 matrices as a loop: 338 instead of 320 us, compiled in 0.27 and 0.39 s.
    max_unrolled_words_lookahead: int = 9
    # The largest element in storage, in bytes, for which chunks are scanned twice and kept in their storage form.
    # H100: bytes from 0.81 to 0.945 of a copy, 16-bit integers from 0.96 to 0.98, 32- and 64-bit numbers unchanged.
    recomputed_bytes: int = 2
    # The largest item, in words, for which chunks are scanned twice: an element, and a head flag. Not measured: it
    # follows from `recomputed_bytes`, with one word for the flag.
    recomputed_words: int = 2
    # Words that an invocation of a compaction loads for each of four neighbours in one iteration, so that several loads
    # are under way; partitions load half as many. H100, 2^26 words, 2 in place of 4: compacted by half 205 and 210 us,
    # partitioned in halves 305 and 434 us, run lengths of runs of 1 423 and 400 us.
    moved_words_in_flight: int = 4

    # ----- Tiles with subgroups
    # Invocations in a workgroup. Measured on an H100, sums of 2^16 to 2^28 words.
    workgroup: int = 256
    # The numbers of steps that tiles are built with. Few, so that few pipelines are compiled. Not measured: the shapes
    # that were measured below are among them.
    steps: tuple[int, ...] = (1, 2, 4, 6, 8, 12)
    # Invocations in a workgroup for items of several words, and for single words where look-ahead runs; such tiles take
    # `few_steps` steps. H100, uint32 of 2^25 under look-ahead: 2597 GB/s in 512 x 4 chunks, 2543 in 256 x 12. complex64
    # from 0.945 to 0.98 of a copy, compiled in 0.14 instead of 0.48 s.
    wide_workgroup: int = 512
    few_steps: int = 4
    # The widest item, in words, in a wide workgroup. H100: 3x3 matrices are fastest in 512 x 2 chunks, 4x4 in 256 x 2.
    max_words_in_wide_workgroup: int = 9
    # Long operators take at least this many steps, and otherwise at most `long_words` words for each invocation. H100,
    # logaddexp: 472 us in 512 x 4 chunks, 518 in 512 x 2, once chunks are joined first.
    min_long_steps: int = 2
    long_words: int = 16
    # Bytes of a chunk of long operators, at most, where others take a single load: lanes exchange their chunks in five
    # rounds, so long chunks are combined in fewer rounds. H100, logaddexp of 2^25: 434 us in chunks of 16, 494 of 8,
    # 640 of 4; rows of 1472: 556, 494 and 822 us.
    long_chunk_bytes: int = 64
    # The same for operators of medium length, which have more characters than brief ones. H100: `logaddexp` of 2^25 177
    # us in 256 x 2 chunks of 8, 198 in 256 x 4 chunks of 4; affine loops of 10^7 steps 80.6 and 84 us. Operators of 106
    # characters are faster in chunks of 4.
    max_brief_characters: int = 400
    medium_chunk_bytes: int = 32
    # Invocations of a workgroup for operators of medium length with at most this many characters. H200, loops of 10^7
    # steps by operators of 430, 430, 436 and 537 characters: affine maps, with a constant factor, of two states, and
    # with resets 51.8, 42.8, 150.8, 217.5 us in 256 x 2 chunks of 8, 47.8, 40.0, 143.0, 212.3 in 192 x 2. `logaddexp`,
    # of 788: 157.6 and 158.5; Moebius maps, of 987: 182.6 and 199.0. Affine maps take 51 us in 256 x 4 chunks of 4,
    # 52 in 256 x 3 of 4 and 320 x 2 of 8, 54 in 384 x 2 of 4 and 8, 61 in 128 x 2 of 8.
    medium_workgroup: int = 192
    max_medium_characters: int = 600
    # From this item on, in words, a full workgroup is faster than chunks through workgroup memory. H100, 8x8 matrices:
    # 1480 us in workgroups of 256, 3260 in workgroups of 128 that exchange their chunks.
    widest_words: int = 64
    # Bytes of storage in a tile. With fewer, the fold of all tiles is late. H100, rows of 100 float32: 240 us with 24
    # KiB, 227 with 32 KiB, 321 with 16 KiB.
    tile_bytes: int = 32 << 10
    # Tiles of `long_steps` steps are taken if their number is within `resident_tiles`, so that all run together, and
    # they hold at most `max_long_tile_bytes`. H100, uint32: 11.0 instead of 11.5 us at 2^21, 14.7 instead of 15.3 at
    # 2^22. 2x2 matrices of 2^20: 18.0 instead of 20.1 us. Two float32: 0.94 instead of 0.97 of a copy with 64 KiB.
    long_steps: int = 8
    resident_tiles: tuple[int, int] = (128, 256)
    max_long_tile_bytes: int = 64 << 10
    # The numbers of tiles of `long_steps` steps in workgroups of `workgroup` for which single words take them. H200,
    # uint32 in 256 x 8 chunks: 8.7 us at 2^20, 9.0 in 512 x 4; 10.3 us at 2^21, 10.7 in 512 x 8.
    few_single_tiles: tuple[int, int] = (128, 256)
    # The steps of tiles of single words, in workgroups of `workgroup`, and the fewest such tiles. H200, uint32 under
    # look-ahead, as shares of a copy: 0.949 at 2^25 and 0.987 at 2^28 in 256 x 12 chunks; 0.907 and 0.942 in 512 x 4.
    # At 2^24: 44.7 us in 256 x 10 chunks, 44.3 in 512 x 4.
    deep_steps: int = 12
    min_deep_tiles: int = 2048
    # Shapes for many elements of several words. H200, 2^26 pairs of float32, affine maps and positions of maxima: 277
    # and 300 us in 256 x 5 chunks, 277 and 404 in 128 x 10, 287 and 330 in 256 x 4. As shares of a copy: 4 float32
    # 0.937 in 128 x 6, 0.918 in 128 x 5; 2x2 matrices 0.857 in 256 x 10, 0.778 in 512 x 4; 3x3 matrices 0.734 in 64 x 4
    # chunks of 4, 0.589 in 256 x 6; 4x4 matrices 0.532 in 128 x 5, 0.414 in 256 x 2.
    measured_shapes: tuple[MeasuredShape, ...] = (
        MeasuredShape(words=2, fields=2, lanes=256, steps=5, chunk=4),
        MeasuredShape(words=4, fields=4, lanes=128, steps=6, chunk=4),
        MeasuredShape(words=4, fields=1, lanes=256, steps=10, chunk=1),
        MeasuredShape(words=9, fields=1, lanes=64, steps=4, chunk=4, single_lead=True),
        MeasuredShape(words=16, fields=1, lanes=128, steps=5, chunk=1, long_too=True),
    )
    # The fewest tiles of such a shape. Not measured: the shapes were measured for arrays of many tiles.
    min_measured_tiles: int = 1024
    # Words of payload that one invocation keeps between load and store. Measured on an H100, uint32 of 2^25 and 2^28.
    register_words: int = 48
    # The same for elements of 4 words and more in several arrays, and for bytes that are scanned once. H100.
    wide_register_words: int = 64
    # The same for 64-bit numbers, for matrices in one array, and for chunks kept in their storage form. H100: 64-bit
    # numbers from 0.95 to 0.97 of a copy with 8 steps instead of 6; bytes 0.94 with 8 steps of 16.
    few_register_words: int = 32
    # Short vectors that fill no whole accesses: the most words of a chunk, and of all chunks of an invocation. H200,
    # 2^25 numbers in 3, 5 and 13 columns: `uint8` 67, 74, 124 us in chunks of 4 rows, 48, 47, 101 in chunks of 16, 16,
    # 8; `int16` 98, 95, 215 in chunks of 2 rows, 58, 68, 114 in chunks of 8; `float32` in 5 columns 116 in chunks of 1,
    # 95 in chunks of 4.
    vector_chunk_words: int = 104
    vector_register_words: int = 80
    # Elements of a mask in a chunk. An invocation keeps their bits, not their sums. Not measured on record: one load.
    mask_chunk: int = 16
    # The numbers of steps for masks. Not measured on record: `mask_chunk` makes tiles large with few steps.
    mask_steps: tuple[int, ...] = (1, 2, 4)
    # A small array is cut into at least this many tiles, so that every compute unit has work. Not measured: such a scan
    # takes hardly longer than its submission.
    min_tiles: int = 64

    # ----- Tiles without subgroups
    # Invocations in a workgroup, for items of fewer than `serial_wide_item_words` words and for wider ones. Not
    # measured on a GPU: almost all GPUs have subgroups.
    serial_workgroup: int = 256
    serial_wide_workgroup: int = 256
    serial_wide_item_words: int = 4
    # Words in a chunk, for elements of one word and for wider ones. Not measured on a GPU, but taken over from CPU
    # adapters: almost all GPUs have subgroups.
    serial_chunk_words: int = 64
    serial_wide_chunk_words: int = 64
    # Elements in a chunk if a function of them is long. Not measured on a GPU: almost all GPUs have subgroups.
    serial_long_chunk: int = 32

    # ----- Tiles that end where rows end
    # Elements in a row, at least. Shorter rows share tiles. Not measured on record: a row of four words for each lane
    # of a subgroup is the least that fills one.
    min_row: int = 128
    # Bytes and words of items of a tile that holds a whole row, at least, if rows could share tiles that end with rows.
    # H200, 2^25 elements in rows of 256 float32: 85 us, and 72 in shared tiles; 256 float16 86 and 55, 512 uint8 46 and
    # 30; but 512 float16 48 and 55, 512 float32 68 and 72, 256 int64 132 and 141.
    min_whole_row_bytes: int = 1024
    min_whole_row_words: int = 512
    # Invocations in a workgroup, at most. Not measured on record: it is the workgroup of other tiles, `wide_workgroup`.
    row_workgroup: int = 512
    # Elements in a tile, at least: of a row that takes several tiles, and of a row that takes one. H100, sums of rows
    # of 128: 1660 GB/s in tiles of their own, 1818 in tiles that rows share. (12288, 8192) recurrences: 3003 and 1712.
    min_row_tile: int = 2048
    min_lone_row_tile: int = 256
    # The same for a row that takes one tile, where shared tiles cost more: an invocation keeps more than one word of an
    # element, or rows are read backwards. H200, 2^24 elements in rows of 150, in shared tiles and in tiles of 192:
    # gradients of recurrences 204 and 113 us, int64 101 and 78, reversed sums of float32 115 and 89; but sums of
    # float32 56 and 76.
    min_lone_wide_row_tile: int = 128
    # The numbers of steps of tiles that end with rows, in arrays of at least `min_fitted_elements`. They are many, so
    # that some tile fits each row. Smaller arrays take `steps`, so that fewer kernels are compiled for rows of many
    # lengths. H200, 2^24 elements: recurrences in rows of 3,012 take 56 us in 256 x 3 chunks of four, 74 in tiles that
    # rows share; gradients in rows of 561 take 130 us in 128 x 5 chunks of one, 200 in shared tiles.
    row_steps: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 12)
    min_fitted_elements: int = 1 << 21
    # More steps are better up to these numbers: for elements of one word, for longer elements in chunks of one, and for
    # longer elements in longer chunks. H200, 2^24 elements in 64 x 12, 128 x 6 and 256 x 3 chunks of one in rows of
    # 733: gradients of recurrences 148, 118 and 117 us, gradients of maxima 156, 115 and 119, recurrences 70, 63 and
    # 67, sums 44, 43 and 51; in 64 x 6, 128 x 3 and 256 x 2 chunks of four in rows of 1,460: 102, 92 and 91; 100, 90
    # and 95; 57, 56 and 58; 40, 39 and 39.
    single_word_row_steps: int = 8
    single_row_steps: int = 6
    few_row_steps: int = 3
    # The least share of a tile that elements must fill: for brief operators, and for others, which take so long that
    # lanes without work cost time. H200, 2^24 elements in rows of 1,460, in tiles of 256 x 2 chunks of four (0.71 of
    # them filled) and in tiles that rows share: recurrences 58 and 74 us, their gradients 91 and 146. But `logaddexp`
    # in rows of 4,500 takes 140 us in 512 x 3 chunks (0.73 of them filled) and 103 in shared tiles.
    min_row_use: float = 0.65
    min_long_row_use: float = 0.9
    # Of the tiles that are filled at least this well, as a share of the best one, the largest is taken. Not measured:
    # at most a tenth of the lanes is lost by it.
    row_use_tolerance: float = 0.9
    # Words in a chunk, at least, of a row in several tiles and of a row in one. Not measured: a GPU has no such rule.
    min_row_chunk_words: int = 0
    min_lone_row_chunk_words: int = 0

    # ----- Tiles of columns
    # Invocations side by side: a cache line of 32-bit numbers, 128 bytes on NVIDIA's. Not measured: fewer waste it.
    columns: int = 32
    # Invocations one below the other where all `columns` are used, and the most where fewer are used. Not measured:
    # with `columns` they make the workgroups of other tiles.
    column_groups: int = 8
    max_column_groups: int = 16
    # Invocations in a workgroup, at least. Not measured: a GPU has no such rule.
    min_column_workgroup: int = 1
    # The numbers of rows that one invocation takes. Few, so that few pipelines are compiled. Not measured: each is
    # twice the one before, so that no tile is more than half empty.
    column_rows: tuple[int, ...] = (1, 2, 4, 8, 16)
    # Of columns that a workgroup holds as a whole: the words that an invocation keeps; the numbers of rows that it
    # takes, few, so that few pipelines are compiled; the most invocations one below the other; and the invocations of a
    # scan, at least, unless there are as many one below the other as there may be. H200, sums of float32, us in 32 x 8
    # invocations with powers of two of rows, and with few groups: along axis 1, (4, 5, 1677721) 402 and 74, (8, 10,
    # 419430) 138 and 74; along axis 0, (3, 11184810) 361 and 71, (24, 1398101) 120 and 80, (61, 546101) 113 and 85,
    # (170, 7, 28197) 128 and 102. In 16 groups of 16 columns (500, 67109) take 151, and 119 in tiles of long columns,
    # but (300, 111848) 84 and 89; and (200, 100, 1677) take 91 in two groups of 50 rows, 85 in tiles of long columns.
    # With half the number of invocations (10, 100000) take 11.7 in place of 8.6.
    short_column_words: int = 48
    short_column_rows: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 38, 44)
    short_column_groups: int = 8
    min_short_column_invocations: int = 1 << 17
    # The words of an element, and the rows that one invocation takes of it if the results have at most two words and
    # columns are at least `min_deep_column` such tiles long; or if there are `min_large_columns` elements, and the last
    # tiles are nearly full: as many times as many rows are there as are missing. H200, of a copy: maxima of (8, 2048,
    # 1536), unpaired, 0.814 with 24 rows, 0.721 with 22, 0.773 with 16; recurrences of (8, 2048, 1536) and (4, 4096,
    # 2048) 0.926 and 0.957 with 22, 0.90 and 0.92 with 16; gradients of maxima, 4 words, 0.804 with 12, 0.719 with 8.
    # Maxima with positions of (21, 517, 772) and (8, 1024, 1024) 49 and 45 us with 22 rows, 61 and 50 with 16; affine
    # maps with two results 44 and 40, 48 and 42; of (1, 16384, 512) 47 and 45; int64 of (21, 517, 1544) 78 and 88.
    deep_column_rows: tuple[tuple[int, int], ...] = ((1, 24), (2, 22), (4, 12))
    min_deep_column: int = 8
    # The most rows that one invocation takes of columns that are all cut at the same places. H200, uint32 of (16384,
    # 4096) in pairs of columns: 161 us with 20 rows, 170 with 16, 199 with 24.
    max_cut_column_rows: int = 20
    # Invocations one below the other where each also keeps its rows' neighbours, and the words that one keeps. H200,
    # gradients of recurrences of (8, 2048, 1536) and (4, 4096, 2048): 0.900 and 0.948 of a copy with 16 x 8 rows that
    # wait in chains, 0.840 and 0.891 with 8 x 16 rows.
    neighbour_column_groups: int = 16
    neighbour_register_words: int = 24
    # From this number of chains on, a tile only waits for the tile above. H200, of a copy: recurrences of (2, 2048,
    # 1536), 96 chains, 0.757 instead of 0.729, their gradients 0.849 instead of 0.793; sums of (8, 2048, 1536), 192
    # chains, 0.841 instead of 0.827. With 48 chains sums take 1 % longer, and with 32 recurrences 4 %.
    min_waiting_chains: int | None = 96
    # Words of payload that one invocation keeps between load and store. Not measured, but taken over from
    # `register_words`: the registers are the same.
    column_register_words: int = 48
    # In long chains of tiles, a tile waits 0.29 us for the one above, so more chains side by side are faster, although
    # fewer neighbours are read together. Tiles have as few of these columns as make the number of chains, and one chain
    # more for some columns, which are fewer for 8- and 16-bit numbers. Chains have this number of tiles at least.
    # Neighbours that are read together have at least `min_chained_bytes` in each array. H200, 2^25 float32 in 32 and 16
    # columns of single words: 333 columns 120 and 124 us, 433 columns 112 and 125, 255 columns 132 and 125; 2^24
    # recurrences of 499 columns 66 and 79; but 2^25 uint8 in 1195 columns 193 and 95, in 2001 columns 136 and 95.
    chained_columns: tuple[int, ...] = (32, 16, 8, 4)
    min_chains: int = 8
    columns_for_chain: int = 12
    narrow_columns_for_chain: int = 3
    min_chained_tiles: int = 16
    min_chained_bytes: int = 32
    # The rows that an invocation takes of them, by the words that it keeps of each; and where these are two columns.
    # H200, 2^25 float32 in pairs of columns, in 16, 20 and 24 rows: 130 columns 130, 114 and 143 us, 256 columns 101,
    # 94 and 113. Recurrences of 2^24 in 256 columns, in 16, 22 and 24 rows: 79, 73 and 99 us.
    chained_rows: tuple[tuple[int, int], ...] = ((1, 24), (2, 22))
    paired_chained_rows: int = 20
    # The same, at most, of 16-bit numbers in rows that begin within words. H200, 2^25 float16 in 197 and 399 columns:
    # 175 and 150 us; with 12 rows 235 and 209. 8-bit numbers in 99 and 109 columns: 155 and 143; with 12 rows 134, 123.
    unaligned_chained_rows: int = 8
    # A look-back passes as many tiles as a tile has groups. From this number of groups on, fewer chains are enough, if
    # the tiles that all chains pass in one look-back read and write this many bytes. H200: a look-back takes 0.8 to 1.1
    # us. 2^24 int64 in 53, 64 and 100 columns in tiles of 4, 8 and 16 columns take 157, 129, 105 us, and 114, 98, 100
    # in tiles of 16, which pass 5 MB or more at a time. 2^25 float32 in pairs of 64 and 96 columns take 120 and 105 us
    # in tiles of 16 pairs, which pass 2.6 and 3.9 MB, and 116 and 114 of 8. 2^25 uint8 in 53 columns pass 0.6 MB and
    # take 233 us in place of 138.
    min_look_back_groups: int = 16
    min_look_back_bytes: int = 3_500_000
    # The part of the lanes that have columns, up to which a tile gets fewer columns instead, so that nearly all have.
    # H100, uint8 (14, 99864, 24), with 6 in place of 8 columns: 86 us in place of 139; uint8 (19, 4041, 437), 28 in
    # place of 32: 111 and 120; recurrences (4, 6921, 303), 31 in place of 32: 62 and 53.
    max_busy_lanes: float = 0.875
    # The neighbouring columns that an invocation takes at least of single-word elements where rows begin within words.
    # H100, float16 (16, 2317, 905): 134 us in chunks of 4, 247 in chunks of 2. uint8 (19, 4041, 437): 120 in chunks of
    # 4, 137 of 8.
    unaligned_chunk: int = 4
    # Words that an invocation of such a tile keeps if it also keeps its rows' neighbours. H200, gradients of
    # recurrences of (1, 131072, 512): 0.866 of a copy with 20 rows of 3 words, 0.836 with 16, 0.634 with 22.
    long_neighbour_register_words: int = 60
    # The elements of an array of single words, at least, from which on an invocation takes two neighbouring columns if
    # rows begin with pairs, and else a tile more neighbours and the second number of rows, if there are as many chains.
    # H200, sums of float32 along columns: (8, 2048, 1536) 64.5 instead of 73.4 us in pairs, (2, 2048, 1536) 22.4 and
    # 23.0, (63072, 532) 97 and 117, (3, 33000, 338) 95 and 108; in 64 columns, (23, 1025, 1423) 91 and 118, (11, 9385,
    # 325) 103 and 120, (7, 9587, 499) 98 and 111, (3, 33000, 337) 99 and 109. In 8 chains (70051, 479) take 121 and
    # 110, and with 20 segments (25751, 1303) 156 and 115.
    min_large_columns: int | None = 3 << 21
    wide_columns: int = 64
    wide_rows: int = 16
    min_wide_chains: int = 16
    # Invocations one below the other for 8-bit numbers in rows that begin within words, and for operators of as many
    # characters of WGSL, if there are as many chains. H200, sums of uint8 (390, 86014), (354, 319, 297), (19, 4041,
    # 437), (486, 69037): 61, 67, 85 and 67 us; in groups of 8 74, 79, 106 and 77. logaddexp of (2867, 11700), (40, 833,
    # 1007), (45, 3655, 204): 143, 149 and 147; in groups of 8 172, 172 and 165; but of (65536, 512), 16 chains, 239 and
    # 185.
    slow_groups: int = 4
    min_slow_characters: int = 600
    min_slow_chains: int = 64

    # ----- Reductions in any order, of contiguous rows and of few columns
    # Bytes of a row, at least; and the bytes from which on an invocation loads a vector of four words at a time, else a
    # word. H100, sums of rows of 98 and 240 bytes: 15.9 and 60 us by words, 21.7 and 52 us by vectors. Maxima of rows
    # of 3 int32, sums of rows of 10 uint8: 71 and 35 us, and 133 and 124 us in the tiles of scans.
    min_folded_row_bytes: int = 4
    min_vector_row_bytes: int = 192
    # Workgroups that rows of whole parts fill, at least. H100, sums of (3, 20000) float32: 8.2 us, and 7.1 us in the
    # tiles of scans; of (100, 10001) float32 7.5 and 10.4 us.
    min_folding_workgroups: int = 32
    # Bytes of a short row for each invocation that shares it, at most, until there are `short_row_lanes`; and words of
    # a long row for each invocation, at least. H100, sums of (342393, 98) uint8 with 1, 2, 4 and 8 invocations: 15.9,
    # 16.3, 23 and 38 us; of (332219, 101) int32 62, 62, 57 and 60 us; of (262144, 128) uint8 with one 39 us. Maxima of
    # (1529, 21937) uint8 with 16, 32 and 64 words: 17.3, 15.1 and 12.4 us.
    short_lane_bytes: int = 112
    short_row_lanes: int = 8
    long_lane_words: int = 64
    # Words of a row for each invocation, at most: then sums of floats stay close. Not measured: the second dispatch
    # takes a small share of the time that such rows take.
    max_lane_words: int = 256
    # The number of workgroups below which rows are cut into parts, and about how many parts there are then. H100, sums
    # of (336, 99864) uint8: 13.0 us with a workgroup for each row, 23 us in parts by two dispatches. With 396, 528 and
    # 792 parts by look-back, sums of (47, 713927) uint8: 14.4, 14.6 and 15.9 us. H200, with 264, 396, 528 and 1056
    # parts by two dispatches, sums of 2^25 float32: 38.6, 38.6, 39.1 and 40.1 us; of float16 25.0, 24.9, 25.0 and 26.0.
    min_row_workgroups: int = 264
    row_part_workgroups: int = 396
    # The loads of a whole workgroup that a row takes, at least, before it is cut. Not measured: they take about as long
    # as the second dispatch.
    min_row_batches: int = 8
    # Bytes of a single row, at least. H200, sums in 396 parts and in the tiles of scans: 8 MiB of float32 9.3 and 9.3
    # us, 16 MiB 10.7 and 11.2, of float16 10.3 and 11.7; 128 MiB of float32 38.6 and 46.4, 64 MiB of float16 24.9 and
    # 38.3.
    min_single_row_bytes: int = 12 << 20
    # Bytes of the columns of a row, at most; and about how many parts of columns there are. H100, 132, 264 and 528
    # parts: sums of (3355443, 10) uint8 21.7, 20.4 and 20.6 us, maxima of (1118481, 30) float16 66, 49 and 44 us. Sums
    # of 154 columns of float32 take longer than in tiles of columns.
    max_folded_line_bytes: int = 127
    column_part_workgroups: int = 528

    # ----- Reductions down columns
    # Invocations in a workgroup. Not measured: it is the workgroup of other tiles.
    reduced_workgroup: int = 256
    # Rows for each invocation, at least, before the rows of a tile are divided among several. Not measured: these
    # loads are under way together.
    min_reduced_rows: int = 16
    # Rows of an invocation, at least and at most; and the number of tiles from which on an invocation takes more rows
    # than the least. H200, 528, 1056, 2112 and 4096 tiles: sums of float32 (500812, 67) 49, 56, 53, 55 us, of float16
    # (3, 360800, 31) 51, 47, 48, 47, of int32 (5, 111848, 60) 51, 54, 51, 51; 512 invocations change as little.
    reduced_rows: int = 64
    max_reduced_rows: int = 1 << 15
    reduced_tiles: int = 4096
    # The loads side by side, at least, for which an invocation takes more neighbouring columns. Not measured: they fill
    # a quarter of an H200's invocations.
    min_wide_lines: int = 1 << 16
    # Words that an invocation loads before it combines them, so that several loads are under way; and the same for long
    # operators, which the shader has once for each of them. Not measured.
    reduced_words_in_flight: int = 16
    long_words_in_flight: int = 4
    # The chains of tiles from which on a tile holds whole columns, and the rows of an invocation then, at most, so that
    # sums of floats stay close. H100, maxima of (534, 62804) float32: 56 us, and 66 in parts of columns.
    min_whole_chains: int = 264
    max_whole_rows: int = 1024
    # Bytes of the neighbouring columns of a row, at least; narrower arrays may be reduced as vectors. Not measured:
    # half a sector of NVIDIA's caches.
    min_reduced_line_bytes: int = 16

    # ----- Columns as vectors
    # Few and long columns are scanned as one column of vectors. The four limits are: the elements of a column, at
    # least; the columns of the whole array, unless there are pairs of neighbours; the words of a vector; its numbers
    # if a function stands in the shader once for each. H200, 2^26 int32: in 2, 3, 16 and 32 columns 0.15, 0.22, 0.22
    # and 0.55 ms, and 31, 22, 4.4 and 1.5 ms in chains of tiles. In 64 columns 1.27 and 0.80 ms. In 64 x 3 and 64 x 8
    # columns 0.36 and 0.38 ms, and 0.48 and 0.22 ms. In 4096 x 2 columns 0.15 and 0.55 ms. H100, 2^25 numbers, since
    # tiles of columns look back together: float32 in 20, 3 x 23 and 32 columns 216, 341 and 279 us, in chains 254, 185
    # and 202; int64 in 12 columns 720 and in chains 123, uint8 in 27 columns 694 and 223 us.
    min_vector_rows: int = 1 << 13
    max_vector_columns: int = 192
    max_vector_words: int = 20
    max_function_vector: int = 16
    # The numbers of a vector with a long operator, or the operators of as many characters. The operator stands in the
    # shader once for each number. H100, `logaddexp` of 6 columns along axis 0: 1,350 us as vectors, 809 us by columns.
    max_long_vector: int = 3

    # ----- Parts of arrays, and memory
    # NumPy arrays up to this many bytes are scanned in one piece. H200, 32 MiB: 4.6 ms in one piece, 8.9 in four.
    single_piece_bytes: int = 32 << 20
    # Bytes of the elements of one piece, at most. Larger pieces overlap less at both ends of the array, and each piece
    # costs the CPU some time. H200, 512 MiB: 25.2 GB/s in and out with 64 MiB, 22.1 with 32, 13.7 with 16, 10.1 with 8.
    piece_bytes: int = 64 << 20
    # Bytes of the elements of one piece, at least, unless the array is shorter. H200, 64 and 128 MiB: 7.9 and 16 ms
    # with 32 MiB, 11.3 and 26 with 16, 15 and 25 with 8.
    min_piece_bytes: int = 32 << 20
    # An array is cut into at least this many pieces if they are large enough, so that the first upload and the last
    # download, which nothing overlaps, are short. H200, 256 MiB: 25 ms with 4 pieces, 31 with 8.
    pieces_wanted: int = 4
    # Bytes of the largest field in a slab. Not measured on record: such a slab keeps the bus busy and fits any GPU.
    slab_bytes: int = 128 << 20
    # The same for memory-mapped files, which may be larger than memory. Not measured on record: it bounds memory.
    mapped_slab_bytes: int = 16 << 20
    # A NumPy array of another memory order is brought into C order on the device if it has at least this many bytes.
    # None: always on the CPU. Not measured on record: a smaller copy takes no longer than a submission.
    min_transposed_bytes: int | None = 1 << 20
    # The smallest copy on the device, in bytes, that a kernel makes and not the driver. None: always the driver. H200,
    # 1 GiB: the driver takes 2.7 ms, and 10 ms from byte 20 on.
    min_kernel_copy_bytes: int | None = 1 << 20
    # The smallest copy, in bytes, that goes through tiles in workgroup memory where neighbours in the result are far
    # apart in the source. None: no copy does. H100, (5793, 5793) float32 transposed: 142 us, and 435 without tiles. The
    # limit is not measured: smaller arrays stay in the caches of a GPU.
    min_tiled_copy_bytes: int | None = 1 << 18
    # Bytes of free buffers that a device keeps, or the bytes in use on a discrete GPU, if these are more. H200: to
    # create a buffer of 1 GiB takes 25 ms, fifty times as long as to scan it.
    max_free_bytes: int = 2 << 30


GPU = Heuristics()

# A GPU that shares the computer's memory.
INTEGRATED_GPU = replace(
    GPU,
    # Not measured: the numbers for CPU adapters are taken, which share the memory as well.
    single_piece_bytes=4 << 20,
    min_piece_bytes=2 << 20,
    pieces_wanted=8,
    # A copy to the GPU's memory gains nothing, since it is the same memory. Not measured: it would be a copy more.
    min_transposed_bytes=None,
    # Free buffers take memory from other programs. Not measured: it is a share of the memory, not a matter of speed.
    max_free_bytes=64 << 20,
)

CPU = replace(
    GPU,
    # Workgroups are threads of the operating system, which may take the core from one workgroup for longer than another
    # can wait (llvmpipe ends a wait after 65,535 polls, half a millisecond). So "auto" prefers that no workgroup waits.
    # lavapipe, 2^20: 2.7 ms with three dispatches, 9.9 ms with look-back.
    strategy_order=("three_dispatch", "lookback", "fallback"),
    # llvmpipe ends loops after 65,535 iterations, so the number of polls is fixed below that.
    fixed_lookback_spins=57_344,
    # Polls before a workgroup reduces the late tile itself. Not measured on record: "auto" has no waits here.
    fallback_spins=256,
    # Divisions between two polls, since a poll is faster than the system's switch to another thread. They are written
    # out, since loops count against llvmpipe's limit. lavapipe: a first sum by look-back takes 1.1, 1.4 and 4.0 s with
    # 8, 48 and 192, and 2^22 sums take 80 ms with 48, with 192 and with 768.
    pause_divisions=16,
    # Times that a call is made again which asked for a strategy by name: other programs on the cores can stop a
    # workgroup for longer than one wait lasts (0.03 s on lavapipe).
    timeout_retries=8,
    # In all combinations of an invocation together, since llvmpipe ends every loop after 65,535 iterations in all.
    max_loop_iterations=50_000,
    # Folds look less often, for the same reason.
    fold_patience_divisor=4,
    fold_rest=0,
    fallback_fold_looks=8,
    # llvmpipe compiles small loops sooner. Not measured on record: one load at a time is the shortest loop.
    moved_words_in_flight=1,
    # An invocation is one serial loop, so long chunks and few invocations are best, but the text of a chunk is not a
    # loop, and drivers take long to compile it. lavapipe, chunks of 64, 32 and 16 words: a first sum with three
    # dispatches takes 0.92, 0.59 and 0.43 s, with fallback 2.4, 1.6 and 1.3 s; 2^22 sums take 50, 54 and 65 ms.
    # SwiftShader: 0.54, 0.20 and 0.19 s; 160, 228 and 381 ms. Wider elements likewise, in chunks twice as long.
    serial_workgroup=64,
    serial_wide_workgroup=32,
    serial_chunk_words=32,
    # The first logaddexp in chunks of 1, 4 and 8 takes 2.1, 2.5 and 4.6 s on lavapipe, and 3.7, 4.5 and 9.4 s on
    # SwiftShader, where it takes minutes in chunks of 32. 2^20 elements take 0.45, 0.15 and 0.20 s, and 12, 6.3 and
    # 4.7 s.
    serial_long_chunk=4,
    # Tiles that end with rows are taken only if their chunks are at least this long. Measured on lavapipe.
    min_row_chunk_words=16,
    min_lone_row_chunk_words=4,
    # The same as for functions that do not take long. Not measured on record: an invocation is a serial loop, and has
    # no lanes without work.
    min_long_row_use=0.65,
    # With fewer invocations, llvmpipe's OpenGL never leaves the loop of fallback.
    min_column_workgroup=8,
    # An invocation keeps its rows on the stack, so it may take many. Not measured on record: few need them.
    column_rows=(1, 4, 16, 64),
    # Not measured: the tiles of longer columns are taken.
    short_column_rows=(),
    column_register_words=192,
    deep_column_rows=(),
    min_waiting_chains=None,
    chained_columns=(),
    min_large_columns=None,
    # 0: rows and columns are reduced in the order of the scan. Not measured.
    row_part_workgroups=0,
    reduced_workgroup=32,
    min_reduced_rows=1 << 12,
    reduced_rows=256,
    reduced_tiles=64,
    min_wide_lines=1 << 32,
    reduced_words_in_flight=1,
    long_words_in_flight=1,
    # Not measured: a CPU adapter has few tiles.
    min_whole_chains=1 << 30,
    # lavapipe, 2^22 int32 in 2, 3, 4 and 8 columns: 25, 30, 28 and 52 ms, and 48, 72, 41 and 68 ms in chains; in 16
    # columns 69 and 57 ms.
    max_vector_columns=8,
    max_vector_words=8,
    max_function_vector=4,
    max_long_vector=4,
    # Smaller pieces stay in the caches of the CPU. Not measured on record: common caches are as large.
    single_piece_bytes=4 << 20,
    piece_bytes=8 << 20,
    min_piece_bytes=2 << 20,
    pieces_wanted=8,
    # Not measured: as for an integrated GPU.
    min_transposed_bytes=None,
    # Not measured: a kernel would copy by the same cores as NumPy.
    min_kernel_copy_bytes=None,
    # Not measured: an invocation is one serial loop, and the caches hold what it reads again.
    min_tiled_copy_bytes=None,
    max_free_bytes=64 << 20,
)


def heuristics_for(adapter_type: str) -> Heuristics:
    """Return the table for an adapter of this type, such as ``"DiscreteGPU"`` or ``"CPU"``."""
    if adapter_type == "IntegratedGPU":
        return INTEGRATED_GPU
    return CPU if adapter_type == "CPU" else GPU


# ----- Arrays: copies, maps and selective scans


@dataclass(frozen=True)
class ArrayHeuristics:
    """The tuning constants for arrays, on every adapter."""

    # The distance between two rows of a view, in lengths of a row, up to which kernels read it where it is. Up to 2, no
    # strategy moves more bytes than with a copy: three dispatches read 2 * 2n and write n, and with a copy they move 2n
    # + n + 3n. Not measured, since it follows from this count.
    max_pitch: int = 2
    # The most states of a selective scan that are computed at a time. A device holds up to eight arrays of this size.
    # Not measured: it is a share of the memory, not a matter of speed.
    max_states: int = 1 << 25
    # The invocations of a workgroup of a selective scan, each for four states of a channel; the steps that are loaded
    # together; and the states that are computed at a time. H200, 16 states: (8, 2048, 4096) 1.09 ms, 1.27 with 64
    # invocations, 1.30 with 128, 1.67 with 32 steps; (1, 1024, 1024) 0.05 ms.
    selective_invocations: int = 32
    selective_times: int = 16
    selective_states: int = 16
    # For its gradient: the channels, the steps of a tile, the steps of an interval, and the steps that are summed over
    # the channels at a time. The first entry that fits is taken. They need 48, 18 and 14 kB. H200, (8, 2048, 4096) with
    # 16 states, the gradient alone: 4.4 ms, 4.8 in (32, 16, 8, 2), 6.1 in (32, 16, 8, 8), 4.8 in (64, 16, 4, 4).
    selective_gradient_tiles: tuple[tuple[int, int, int, int], ...] = ((64, 16, 8, 4), (32, 16, 8, 2), (16, 16, 4, 4))
    # The fewest channels of a sum of the gradient. Not measured: fewer would sum the rest in another kernel.
    min_summed_channels: int = 32
    # The fewest states of all rows, 16 of each at most, for which a GPU computes the gradient by one kernel instead of
    # several over all states. H200: 0.77 and 1.32 ms for 2^11 rows of 16 states; of 2^10 rows of 64, 4.9 and 2.4 ms.
    min_selective_gradient_states: int = 1 << 15
    # The most steps of that gradient, which bound the time that an invocation takes: 45 ms on an H200.
    max_selective_gradient_length: int = 1 << 16
    # The invocations that a selective scan should have on a GPU. If it has fewer, the steps are cut into chunks, which
    # takes a second pass. H200, 16 states: (4, 2048, 2048) 0.29 ms with 2^15 and 0.42 with 2^16; (1, 1024, 1024) 0.05,
    # 0.06 with 2^14, 0.09 with 2^13; (1, 64, 65536) 0.17, 0.24, 0.41; (2, 1024, 4096) with 4 states 0.16, 0.20, 0.34.
    min_selective_invocations: int = 1 << 15
    # The least and the most steps of such a chunk. Not measured: they bound the time of an invocation, and its loops.
    min_selective_chunk: int = 128
    max_selective_chunk: int = 1 << 13
    # The most bytes of the input of a selective scan or an attention that go to a device at a time. While one piece is
    # computed, the next is uploaded. H200, a selective scan: 48 ms with 64 MiB, 47 with 128, 62 with 32.
    piece_bytes: int = 64 << 20
    # The numbers of all states of a window of a gated linear attention, and its most chunks of 32 steps. A device
    # holds two arrays of this size. Not measured: longer windows take fewer dispatches and more memory, and a
    # dispatch has to end within a second.
    attention_state_numbers: int = 1 << 24
    max_attention_chunks: int = 64


ARRAYS = ArrayHeuristics()
