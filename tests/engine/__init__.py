"""Tests of `gpuscan.engine`."""
