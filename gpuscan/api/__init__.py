"""The public functions and classes."""

from gpuscan.api import array_indices, numpy_functions, ufuncs  # noqa: F401 (they answer the protocols of arrays)
