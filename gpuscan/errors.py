"""Define the errors that gpuscan raises. Each message says what was asked, what is wrong, and what to do."""


class GpuscanError(Exception):
    """The base class of gpuscan's own errors."""


class AdapterNotFoundError(GpuscanError):
    """No GPU adapter matches the request."""


class UnsupportedDtypeError(GpuscanError, TypeError):
    """The element type cannot be held or combined on this device."""


class OperatorError(GpuscanError, ValueError):
    """The operator cannot be traced, compiled, or is not associative."""


class StrategyError(GpuscanError, ValueError):
    """The strategy is unknown, or the probe found it unsafe on this adapter."""


class DeviceLostError(GpuscanError, RuntimeError):
    """The GPU was lost: its driver was reset, it was removed, or the process was forked."""


class DeviceMemoryError(GpuscanError, MemoryError):
    """The device has too little memory for the buffers that the call needs."""


class ProgressTimeoutError(GpuscanError, RuntimeError):
    """A tile waited too long for another tile's post."""


def smaller(rows: int) -> str:
    """Return the advice for a scan that is larger than a device can bind."""
    fewer = "Scan fewer rows at a time, or scan" if rows > 1 else "Scan"
    return f'{fewer} on NumPy: pass device="numpy", and the .numpy() of an array on a device'
