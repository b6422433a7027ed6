"""Filters of signals by scans: SciPy's `lfilter`, `sosfilt`, `filtfilt` and `sosfiltfilt`, pandas' weighted moments."""

from gpuscan.signal.exponential_mean import ewm_mean
from gpuscan.signal.exponential_variance import ewm_var
from gpuscan.signal.filters import lfilter, sosfilt
from gpuscan.signal.zero_phase import filtfilt, sosfiltfilt

__all__ = ["ewm_mean", "ewm_var", "filtfilt", "lfilter", "sosfilt", "sosfiltfilt"]
