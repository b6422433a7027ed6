"""Filters of signals by scans: SciPy's `lfilter` and `sosfilt`, and pandas' exponentially weighted mean."""

from gpuscan.signal.exponential_mean import ewm_mean
from gpuscan.signal.filters import lfilter, sosfilt

__all__ = ["ewm_mean", "lfilter", "sosfilt"]
