"""The benchmarks of ``gpuscan bench`` and the tile search of ``gpuscan tune``.

A case gets inputs and expected results (`cases`). Contenders of gpuscan (`contenders`) and of other libraries (`peers`)
are timed (`timing`) and checked, and `results` shows the measurements. `calls` measures what calls from Python take.
benchmarks/compare.py in the repository measures more libraries with the same code.
"""
