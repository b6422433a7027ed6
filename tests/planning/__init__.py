"""Tests of the planner, which need no GPU."""
