"""The public functions and classes."""

from gpuscan.api.array import answer_protocols


def _load_answers() -> None:
    """Import the modules that answer the protocols of arrays. Most scans need none of them."""
    from gpuscan.api import array_indices, numpy_functions, ufuncs  # noqa: F401, PLC0415


answer_protocols(load=_load_answers)
