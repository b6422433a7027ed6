"""Tests of `gpuscan.reference`."""
