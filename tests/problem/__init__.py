"""Tests of `gpuscan.problem`."""
