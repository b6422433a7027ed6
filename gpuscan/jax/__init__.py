"""Scans and loops of JAX arrays on any GPU, under `jit` and `vmap`, with derivatives. Install ``".[jax]"`` for it."""

from gpuscan.jax.associative_scan import associative_scan
from gpuscan.jax.loop import loop

__all__ = ["associative_scan", "loop"]
