"""Scans from file to file, in one go or, for arrays larger than memory, piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np

import gpuscan
from gpuscan import Device
from gpuscan.api.progress_bar import displayed
from gpuscan.device.adapters import NUMPY
from gpuscan.engine.progress import Progress, watched
from gpuscan.replaced_file import replaced_file
from gpuscan.tools.array_file import read_array
from gpuscan.tools.exit_codes import fail_to_write
from gpuscan.tools.option_types import gpu_device
from gpuscan.tools.profile_table import print_profile

# Arrays of more bytes than this are read and written piece by piece.
STREAMED_BYTES = 64 << 20


def scan_file(source: Path, target: Path, profile: bool, device: Device | str | None, **options: Any) -> None:
    """Scan the array of one .npy file into another, which may be the same file.

    Args:
        source: the file to read.
        target: the file to write, with links resolved.
        profile: True to print how long each stage took on the GPU.
        device: as in `gpuscan.scan`.
        **options: the other options of `gpuscan.scan`.
    """
    if profile and device == NUMPY:
        raise click.BadParameter("there is no GPU time with --device numpy. Leave one out.", param_hint="'--profile'")
    array = read_array(source)
    with gpu_device(device).profile() if profile else nullcontext() as profiled, usage_errors(target):
        if array.nbytes > STREAMED_BYTES and device != NUMPY:
            with displayed(array.nbytes) as progress:
                scan_in_pieces(array, target, progress, device=device, **options)
        else:
            result = np.asanyarray(gpuscan.scan(array, device=device, **options))
            del array  # Windows cannot replace a file that is mapped, and the target may be the same file
            with replaced_file(target) as partial, open(partial, "wb") as file:
                np.lib.format.write_array(file, result, allow_pickle=False)
    if profiled is not None:
        print_profile(profiled)


@contextmanager
def usage_errors(target: Path) -> Iterator[None]:
    """Say which errors of a scan are the command line's: its options do not go with the array."""
    try:
        yield
    except gpuscan.GpuscanError:
        raise
    except OSError as error:
        fail_to_write(target, error)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def scan_in_pieces(array: np.ndarray[Any, Any], path: Path, progress: Progress, **options: Any) -> None:
    """Scan an array that is mapped from a file, and write the result to a .npy file piece by piece.

    Args:
        array: the array to scan.
        path: the file to write.
        progress: called with the number of bytes of `array` that are done.
        **options: as in `gpuscan.scan`.

    Raises:
        OSError: there is no room for the result.
    """
    with replaced_file(path) as partial:
        dtype = options.get("dtype") or array.dtype.newbyteorder("=")
        result = np.lib.format.open_memmap(partial, "w+", dtype, array.shape)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and a signal where a page is written
            with open(partial, "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, partial.stat().st_size)
        with watched(progress):
            gpuscan.scan(array, out=result, **options)
        result.flush()
        del result
