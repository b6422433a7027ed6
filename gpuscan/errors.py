"""Define the errors that gpuscan raises. Each message says what was asked, what is wrong, and what to do."""

from __future__ import annotations

from reprlib import Repr
from typing import Any


class GpuscanError(Exception):
    """The base class of gpuscan's errors. Wrong arguments also raise Python's ValueError, TypeError and IndexError."""


class AdapterNotFoundError(GpuscanError):
    """No GPU adapter matches `device`, `adapter` or ``GPUSCAN_ADAPTER``, or the machine has none."""


class UnsupportedDtypeError(GpuscanError, TypeError):
    """The device cannot store the dtype, or the operator cannot combine it."""


class OperatorError(GpuscanError, ValueError):
    """A function cannot be traced or compiled, has no derivative, or is not associative."""


class LoopError(OperatorError):
    """The step of a loop has no associative form, or Newton's method did not converge."""


class StrategyError(GpuscanError, ValueError):
    """The strategy is unknown, or the probe found it unsafe on this adapter."""


class DeviceLostError(GpuscanError, RuntimeError):
    """The GPU was lost, because its driver was reset, it was removed, or the process was forked."""


class DeviceMemoryError(GpuscanError, MemoryError):
    """The device has too little memory for the call, or the call needs a larger buffer than the device allows."""


class ProgressTimeoutError(GpuscanError, RuntimeError):
    """A workgroup waited too long for another one, under a strategy chosen by name or in an earlier call."""


def smaller(rows: int) -> str:
    """Return the advice for a scan that is larger than a device can bind."""
    fewer = "Scan fewer rows at a time, or scan" if rows > 1 else "Scan"
    return f'{fewer} on NumPy: pass device="numpy", and the .numpy() of an array on a device'


# ----- Values in messages


class _Abbreviations(Repr):
    """Python's short representations, but for arrays: these are described, since half of their text says nothing."""

    def repr1(self, x: Any, level: int) -> str:
        """Return the representation of a value, at most some levels deep."""
        value_type = type(x)
        if not (hasattr(value_type, "shape") and hasattr(value_type, "dtype")):
            return super().repr1(x, level)
        # The representation of an array on a device would read from it.
        if value_type.__module__ == "numpy" and len(text := repr(x)) <= self.maxother:
            return text
        name = f"{value_type.__module__.partition('.')[0]}.{value_type.__name__}"
        return f"<{name} of shape {tuple(x.shape)} and dtype {x.dtype}>"


def abbreviate(value: object) -> str:
    """Return a short representation of a value for a message.

    Example:
        >>> import numpy as np
        >>> abbreviate([1, np.zeros((3, 4))])
        '[1, <numpy.ndarray of shape (3, 4) and dtype float64>]'
    """
    return _ABBREVIATIONS.repr(value)


_ABBREVIATIONS = _Abbreviations()
