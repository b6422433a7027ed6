"""Tests of the command line, the benchmarks, the conformance matrix, the export and the package."""
