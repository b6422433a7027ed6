"""Keep the probe's findings on disk, one file for each adapter (see disk_cache.py).

A file with anything else in it counts as absent.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from gpuscan._version import __version__
from gpuscan.device import disk_cache
from gpuscan.planning.capabilities import Capabilities

FOLDER = "probe"

# The fields that must agree for the findings to apply.
_KEY_FIELDS = ("name", "vendor", "driver", "backend", "adapter_type", "implementation", "features")


def load(described: dict[str, Any]) -> Capabilities | None:
    """Return the findings for the adapter that `described` identifies, or None."""
    try:
        found = Capabilities.from_json(disk_cache.read(FOLDER, _key(described)))
        return replace(found, distrusted=())  # a process learns that for itself
    except (ValueError, TypeError, KeyError):
        return None


def store(capabilities: Capabilities) -> None:
    """Write the findings to disk."""
    described = {each.name: getattr(capabilities, each.name) for each in fields(capabilities)}
    disk_cache.write(FOLDER, _key(described), capabilities.to_json())


def _key(described: dict[str, Any]) -> dict[str, Any]:
    key = {name: described[name] for name in _KEY_FIELDS} | {"gpuscan": __version__}
    return key | {"features": sorted(key["features"])}
