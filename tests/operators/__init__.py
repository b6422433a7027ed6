"""Tests of gpuscan.operators."""
