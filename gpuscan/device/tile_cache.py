"""Keep tuned tile shapes on disk, one file for each adapter (see disk_cache.py).

A file with a shape that this device cannot run counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from gpuscan._version import __version__
from gpuscan.device import disk_cache
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tuned_tiles import TUNED_FIELDS, UNTUNED, Tuned, runs_on

FOLDER = "tuning"

# The longest array that is accepted from a file.
MAX_LENGTH = 1 << 62

# The fields of the capabilities that must agree for a file to apply.
KEY_FIELDS = ("name", "vendor", "driver", "backend", "adapter_type", "implementation", "subgroup_size")


def load(capabilities: Capabilities) -> Tuned:
    """Return the shapes that were kept for this adapter; none if there are none."""
    try:
        shapes = disk_cache.read(FOLDER, key_of(capabilities))
        return MappingProxyType(dict(_entry(row, capabilities) for row in shapes or ()))
    except (ValueError, TypeError):
        return UNTUNED


def store(capabilities: Capabilities, tuned: Tuned) -> Path | None:
    """Keep the shapes, and return the path of their file, or None if it could not be written."""
    rows = [
        [words, length, tile.workgroup_size, tile.subgroup_size, tile.steps, tile.chunk, tile.bands]
        for (words, length), tile in sorted(tuned.items(), key=lambda entry: entry[0])
    ]
    return disk_cache.write(FOLDER, key_of(capabilities), rows)


def _entry(row: Sequence[int], capabilities: Capabilities) -> tuple[tuple[int, int], TileShape]:
    """Read one row of the file.

    Raises:
        ValueError, TypeError: the row is malformed, or its shape does not run here.
    """
    words, length, workgroup_size, subgroup_size, steps, chunk, bands = row
    if any(type(number) is not int for number in row):
        raise TypeError(f"expected integers, found {row!r}")
    tile = TileShape(workgroup_size, subgroup_size, steps, chunk, bands=bands)
    if words not in TUNED_FIELDS or not 1 <= length <= MAX_LENGTH or not runs_on(tile, words, capabilities):
        raise ValueError(f"{row!r} is no shape for {capabilities.summary}")
    return (words, length), tile


def key_of(capabilities: Capabilities) -> dict[str, object]:
    """Return the key of findings about an adapter. Equal cards share it."""
    return {name: getattr(capabilities, name) for name in KEY_FIELDS} | {"gpuscan": __version__}
