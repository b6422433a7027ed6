"""Rewrites the library's messages in the words of the command line: ``--dtype float32`` for ``dtype=np.float32``."""

from __future__ import annotations

import re

# Advice that names an argument which the command line does not have. The clause is dropped.
_NOT_HERE = (
    r",? or open the device with unsafe=True",
    r"; open the device with unsafe=True[^.;]*",
    r",? and of an array on a device its \.numpy\(\)",
    r", the NumPy ufunc of such a name, a gs\.Operator, or a function of \(left, right\)",
    r"\.? Convert the array with \.astype\(\.\.\.\) first",
    r",? or x\.reshape\(-1\)[^.;]*",
    r"\.? Pass x\[np\.newaxis\][^.;]*",
)

# A clause that suggests NumPy, for commands that run on GPU adapters only.
_NUMPY_CLAUSE = r"(?:[,:;]? or|[;:,.])\s[^,;.:]*\bdevice=\"numpy\"[^,;.]*"

_SPELLINGS = (
    (r"\bdtype=(?:np\.)?(\w+)", r"--dtype \1"),
    (r"\b(device|strategy)=\"(\w+)\"", r"--\1 \2"),
    (r"\baxis=(-?\d+)", r"--axis \1"),
    (r"\b(axis|dtype)=(?!\S*[\w\"])", r"--\1"),
    (r"\bop='(\w+)'", r"--op \1"),
    (r"\bcompact=(?:True)?", r"--compact"),
    (r"\b(exclusive|reverse|compensated|segments|force)=True", r"--\1"),
    (r"\b(exclusive|reverse|compensated)=False", r"no --\1"),
)


def in_command_words(message: str, numpy: bool) -> str:
    """Return the message with Python's spelling of arguments replaced by options.

    Args:
        message: what an error of the library says.
        numpy: True if the command takes ``--device numpy``. Otherwise a clause that suggests it is dropped.
    """
    for clause in _NOT_HERE if numpy else (*_NOT_HERE, _NUMPY_CLAUSE):
        message = re.sub(clause, "", message)
    for pattern, option in _SPELLINGS:
        message = re.sub(pattern, option, message)
    return message
