"""Tests of operators and tools on every adapter found."""
