"""Keep JSON files in the user's cache folder, one for each key. They only save time.

A file that is damaged, unreadable or has another key counts as absent. A file that cannot be written is no error.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs


def read(folder: str, key: dict[str, Any]) -> Any:
    """Return the content that was written under the key, or None."""
    try:
        kept = json.loads(_path(folder, key).read_text(encoding="utf-8"))
        return kept["content"] if kept["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def write(folder: str, key: dict[str, Any], content: Any) -> Path | None:
    """Write the content under the key, and return the path of the file, or None if it could not be written.

    Another process never reads half a file.
    """
    text = json.dumps({"key": key, "content": content}, indent=1)
    with suppress(OSError):
        path = _path(folder, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
            return path
        except OSError:
            os.unlink(temporary)
            raise
    return None


def _path(folder: str, key: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    cache = Path(platformdirs.user_cache_dir("gpuscan"))
    if not cache.is_absolute():
        # The XDG specification has programs ignore a relative XDG_CACHE_HOME.
        cache = Path.home() / ".cache" / "gpuscan"
    return cache / folder / f"{digest}.json"
