"""Tests of `gpuscan.api`."""
