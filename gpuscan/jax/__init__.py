"""Scans of JAX arrays on any GPU, under `jit` and `vmap`, with derivatives. It needs ``pip install ".[jax]"``."""

from gpuscan.jax.associative_scan import associative_scan

__all__ = ["associative_scan"]
