"""Tests of the WGSL text, most of which need no GPU."""
