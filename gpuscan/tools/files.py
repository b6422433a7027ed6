"""Scans and sorts from file to file; scans of arrays larger than memory piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

import gpuscan
from gpuscan import Device
from gpuscan.api.progress_bar import display_bar
from gpuscan.array_types import AnyArray
from gpuscan.device.adapters import NUMPY
from gpuscan.device.profiles import Profile
from gpuscan.engine.progress import Progress, watch_progress
from gpuscan.replaced_file import replace_file
from gpuscan.tools.array_file import read_array
from gpuscan.tools.option_types import gpu_device
from gpuscan.tools.output import table_console, usage_errors

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
    array = read_array(source)
    with show_profile(profile, device), usage_errors(target):
        if array.nbytes > STREAMED_BYTES and device != NUMPY:
            with display_bar(array.nbytes) as progress:
                scan_in_pieces(array, target, progress, device=device, **options)
        else:
            result = np.asanyarray(gpuscan.scan(array, device=device, **options))
            del array  # Windows cannot replace a file that is mapped, and the target may be the same file
            write_array(target, result)


def sort_file(
    source: Path,
    target: Path,
    profile: bool,
    device: Device | str | None,
    *,
    axis: int,
    descending: bool,
    indices: bool,
) -> None:
    """Sort the array of one .npy file into another, which may be the same file.

    Args:
        source: the file to read.
        target: the file to write, with links resolved.
        profile: True to print how long each stage took on the GPU.
        device, axis, descending: as in `gpuscan.sort`.
        indices: True to write the indices that sort the array, as `gpuscan.argsort` returns them.
    """
    array = read_array(source)
    with show_profile(profile, device), usage_errors(target):
        sort = gpuscan.argsort if indices else gpuscan.sort
        result = sort(array, axis=axis, descending=descending, device=device)
        del array  # as above
        write_array(target, result)


def unique_file(source: Path, target: Path, *, counts: bool, device: Device | str | None, profile: bool) -> None:
    """Write each value of the array of one .npy file to another, once and in order. It may be the same file.

    Args:
        source: the file to read.
        target: the file to write, with links resolved.
        counts: True to write pairs of a value and its count.
        device: as in `gpuscan.sort`.
        profile: True to print how long each stage took on the GPU.
    """
    array = read_array(source)
    with show_profile(profile, device), usage_errors(target):
        values, counted = gpuscan.unique_counts(array, device=device)
        del array  # as above
        if counts:
            pairs = np.empty(len(values), [("value", values.dtype), ("count", np.int64)])
            pairs["value"], pairs["count"] = values, counted
            values = pairs
        write_array(target, values)


def histogram_file(
    source: Path,
    target: Path | None,
    *,
    bins: int,
    limits: tuple[float, float] | None,
    device: Device | str | None,
    profile: bool,
) -> None:
    """Count the numbers of the array of a .npy file by bins; print a row for each, or write the counts to a file.

    Args:
        source: the file to read.
        target: the file to write, with links resolved; None to print.
        bins: the number of bins.
        limits: the first and the last edge (default: the least and the greatest number).
        device: as in `gpuscan.sort`.
        profile: True to print how long each stage took on the GPU.
    """
    from rich.table import Table

    array = read_array(source)
    with show_profile(profile, device), usage_errors(source if target is None else target):
        counts, edges = gpuscan.histogram(array, bins, limits, device=device)
        if target is not None:
            write_array(target, counts)
            return
        table = Table("from", "to", "count")
        for number, count in enumerate(counts):
            table.add_row(f"{edges[number]:g}", f"{edges[number + 1]:g}", str(count))
        table_console().print(table)


def write_array(target: Path, array: AnyArray) -> None:
    """Write an array to a .npy file whole or not at all."""
    with replace_file(target) as partial, open(partial, "wb") as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


@contextmanager
def show_profile(profile: bool, device: Device | str | None) -> Iterator[None]:
    """Print how long the stages inside the ``with`` took on the GPU, if asked to."""
    if not profile:
        yield
        return
    if device == NUMPY:
        raise click.BadParameter("there is no GPU time with --device numpy. Leave one out.", param_hint="'--profile'")
    with gpu_device(device).profile() as measured:
        yield
    print_profile(measured)


def print_profile(profile: Profile) -> None:
    """Print a row for each stage, in the order of the first dispatches."""
    from rich.table import Table

    table = Table("stage", "strategy", "dispatches", "elements", "GPU time")
    spans = profile.spans
    for stage, strategy in dict.fromkeys((span.stage, span.strategy) for span in spans):
        alike = [span for span in spans if (span.stage, span.strategy) == (stage, strategy)]
        seconds = [span.gpu_seconds for span in alike if span.gpu_seconds is not None]
        time = f"{sum(seconds) * 1e3:.3f} ms" if seconds else "no timestamps"
        table.add_row(stage, strategy, str(len(alike)), str(sum(span.elements for span in alike)), time)
    table_console().print(table)


def scan_in_pieces(array: AnyArray, path: Path, progress: Progress, **options: Any) -> None:
    """Scan an array that is mapped from a file, and write the result to a .npy file piece by piece.

    Args:
        array: the array to scan.
        path: the file to write.
        progress: called with the number of bytes of `array` that are done.
        **options: as in `gpuscan.scan`.

    Raises:
        OSError: there is no room for the result.
    """
    with replace_file(path) as partial:
        dtype = options.get("dtype") or array.dtype.newbyteorder("=")
        result = np.lib.format.open_memmap(partial, "w+", dtype, array.shape)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and a signal where a page is written
            with open(partial, "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, partial.stat().st_size)
        with watch_progress(progress):
            gpuscan.scan(array, out=result, **options)
        result.flush()
        del result
