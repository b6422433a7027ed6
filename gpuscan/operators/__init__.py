"""Associative operators: named ones, Python functions traced into WGSL, and WGSL that users write."""
