"""Sorts from file to file."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np

import gpuscan
from gpuscan import Device
from gpuscan.device.adapters import NUMPY
from gpuscan.replaced_file import replaced_file
from gpuscan.tools.array_file import read_array
from gpuscan.tools.file_scan import usage_errors
from gpuscan.tools.option_types import gpu_device
from gpuscan.tools.profile_table import print_profile


def sort_file(
    source: Path,
    target: Path,
    *,
    axis: int,
    descending: bool,
    indices: bool,
    profile: bool,
    device: Device | str | None,
) -> None:
    """Sort the array of one .npy file into another, which may be the same file.

    Args:
        source: the file to read.
        target: the file to write, with links resolved.
        axis, descending, device: as in `gpuscan.sort`.
        indices: True to write the indices that sort the array, as `gpuscan.argsort` returns them.
        profile: True to print how long each stage took on the GPU.
    """
    if profile and device == NUMPY:
        raise click.BadParameter("there is no GPU time with --device numpy. Leave one out.", param_hint="'--profile'")
    array = read_array(source)
    with gpu_device(device).profile() if profile else nullcontext() as profiled, usage_errors(target):
        sort = gpuscan.argsort if indices else gpuscan.sort
        result = sort(array, axis=axis, descending=descending, device=device)
        del array  # Windows cannot replace a file that is mapped, and the target may be the same file
        with replaced_file(target) as partial, open(partial, "wb") as file:
            np.lib.format.write_array(file, result, allow_pickle=False)
    if profiled is not None:
        print_profile(profiled)
