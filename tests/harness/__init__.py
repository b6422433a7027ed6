"""The only files of the tests that know how a call runs inside gpuscan.

The tests use the public API, and these files where that is not enough: to scan with a given tile, to withhold posts, to
play a hostile scheduler, or to compare a stage with its twin on NumPy. When the inside of gpuscan changes, these files
follow, and the tests stay as they are.
"""
