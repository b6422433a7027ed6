"""Tests of `gpuscan.device`."""
