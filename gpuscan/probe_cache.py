"""The probe's findings on disk: one JSON file an adapter, in the user's cache folder.

A file that is damaged, unreadable or another adapter's counts as absent, and one that cannot be written is done
without: the cache only saves time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from gpuscan._version import __version__
from gpuscan.capabilities import Capabilities

# What must agree for the findings to hold: the adapter, its driver, what runs WebGPU, and the features asked for.
_KEY_FIELDS = ("summary", "name", "vendor", "driver", "backend", "adapter_type", "implementation", "features")


def load(described: dict[str, Any]) -> Capabilities | None:
    """The findings kept for the adapter that the described fields name, or None."""
    key = _key(described)
    try:
        kept = json.loads(_path(key).read_text(encoding="utf-8"))
        if kept["key"] != key:
            return None
        return Capabilities.from_json(kept["capabilities"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def store(capabilities: Capabilities) -> None:
    """Keep the findings, whole or not at all: another process never reads half a file."""
    key = _key({each.name: getattr(capabilities, each.name) for each in fields(capabilities)})
    text = json.dumps({"key": key, "capabilities": capabilities.to_json()}, indent=1)
    with suppress(OSError):
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise


def _key(described: dict[str, Any]) -> dict[str, Any]:
    key = {name: described[name] for name in _KEY_FIELDS} | {"gpuscan": __version__}
    return key | {"features": sorted(key["features"])}


def _path(key: dict[str, Any]) -> Path:
    import platformdirs

    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("gpuscan")) / "probe" / f"{digest}.json"
