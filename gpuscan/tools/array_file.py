"""Reads the arrays of .npy files."""

from __future__ import annotations

import warnings
from pathlib import Path

import click
import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.tools.output import fail_to_read

NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"


def read_array(path: Path, hint: str = "'IN.npy'") -> AnyArray:
    """Map the array of a .npy file into memory. Pickled objects are refused.

    Args:
        path: the file.
        hint: the argument that names it, for messages.

    Raises:
        click.BadParameter: the file is no .npy file, is damaged, or holds structured elements.
        click.ClickException: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            magic = file.read(len(NPY_MAGIC))
        if magic != NPY_MAGIC:
            raise _bad(f"{path} is not a .npy file. {_conversion(path, magic)}", hint)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of a shape that overflows, which is an error as well
            array = np.lib.format.open_memmap(path, mode="r")
    except click.BadParameter:
        raise
    except OSError as error:
        fail_to_read(path, error)
    except Exception as error:  # a damaged header makes NumPy raise nearly anything: SyntaxError, OverflowError, …
        if "Python objects" in str(error):
            raise _bad(
                f"{path} holds Python objects, which are never loaded. Save an array of numbers.", hint
            ) from error
        reason = str(error).rstrip(".")
        raise _bad(f"{path} is a .npy file that cannot be read: {reason}. Save the array again.", hint) from error
    if array.dtype.names is not None:
        raise _bad(
            f"{path} holds records of the fields {', '.join(array.dtype.names)}, and the commands take single numbers. "
            f"Save one field: np.save('in.npy', np.load('{path.name}')['{array.dtype.names[0]}']); or in Python, scan "
            "the records by gpuscan.scan with a function that combines each field.",
            hint,
        )
    return array


def _bad(message: str, hint: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint=hint)


def _conversion(path: Path, magic: bytes) -> str:
    """Say how to make a .npy file of the file."""
    if magic.startswith(ZIP_MAGIC):
        return f"It may be an archive of several arrays; save one: np.save('in.npy', np.load('{path.name}')['NAME'])"
    return f"Convert it first; a table of text: np.save('in.npy', np.loadtxt('{path.name}', delimiter=','))"
