"""The benchmarks of ``gpuscan bench`` and the tile search of ``gpuscan tune``.

A case (`cases`) gets inputs and expected results (`inputs`). Contenders (`copies`, `scans`, `recurrences`, `peers`) are
timed (`timer`) and checked (`contender`). `suite` runs them all, `session` adds the progress bar, and `tables`, `plot`
and `results` show the measurements. `tile_search` measures the same cases with many tile shapes.
"""
