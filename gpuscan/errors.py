"""The errors gpuscan raises. Each message says what was asked, what was found, and what to do."""


class GpuscanError(Exception):
    """The base of every error that gpuscan raises on its own account."""


class AdapterNotFoundError(GpuscanError):
    """No GPU adapter answers to the request."""


class UnsupportedDtypeError(GpuscanError, TypeError):
    """The element type cannot be held or combined on this device."""


class OperatorError(GpuscanError, ValueError):
    """The operator cannot be traced, compiled, or is not associative."""


class StrategyError(GpuscanError, ValueError):
    """The strategy is unknown, or the probe found it unsafe on this adapter."""


class DeviceLostError(GpuscanError, RuntimeError):
    """The GPU went away: driver reset, unplugged, or its process was forked."""


class DeviceMemoryError(GpuscanError, MemoryError):
    """The device has no room for the buffers that the call needs."""


class ProgressTimeoutError(GpuscanError, RuntimeError):
    """A tile waited longer than its bound for another tile's post."""


def smaller(rows: int) -> str:
    """Return what a caller can do when the device cannot bind so many rows."""
    fewer = "Scan fewer rows at a time, or scan" if rows > 1 else "Scan"
    return f'{fewer} on NumPy: pass device="numpy", and the .numpy() of an array on a device'
