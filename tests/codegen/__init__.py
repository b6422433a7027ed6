"""Test the WGSL text, mostly without a GPU."""
