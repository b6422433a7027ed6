"""The probe's findings on disk: one file an adapter (see cache_files.py). What is no findings counts as absent."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gpuscan._version import __version__
from gpuscan.device import disk_cache as cache_files
from gpuscan.planning.capabilities import Capabilities

FOLDER = "probe"

# What must agree for the findings to hold: the adapter, its driver, what runs WebGPU, and the features asked for.
_KEY_FIELDS = ("summary", "name", "vendor", "driver", "backend", "adapter_type", "implementation", "features")


def load(described: dict[str, Any]) -> Capabilities | None:
    """The findings kept for the adapter that the described fields name, or None."""
    try:
        return Capabilities.from_json(cache_files.read(FOLDER, _key(described)))
    except (ValueError, TypeError, KeyError):
        return None


def store(capabilities: Capabilities) -> None:
    """Keep the findings."""
    described = {each.name: getattr(capabilities, each.name) for each in fields(capabilities)}
    cache_files.write(FOLDER, _key(described), capabilities.to_json())


def _key(described: dict[str, Any]) -> dict[str, Any]:
    key = {name: described[name] for name in _KEY_FIELDS} | {"gpuscan": __version__}
    return key | {"features": sorted(key["features"])}
