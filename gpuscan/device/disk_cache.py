"""Keep JSON files in the user's cache folder, one for each key. They only save time.

A file that is damaged, unreadable or has another key counts as absent. A file that cannot be written is no error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuscan.device.backends import IN_BROWSER

# The most bytes that are read of a file. The largest that gpuscan writes has some kilobytes.
_MAX_BYTES = 1 << 20


def read(folder: str, key: Mapping[str, object]) -> Any:
    """Return the content that was written under the key, or None. Its numbers are finite."""
    try:
        kept = json.loads(_read_text(_path(folder, key)), parse_float=_finite, parse_constant=_finite)
        return kept["content"] if kept["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError, RuntimeError):
        return None


def _read_text(path: Path) -> str:
    """Return the text of a regular file. Devices have no end, and pipes wait for a writer.

    Raises:
        OSError: the file cannot be read, or is no regular file.
        ValueError: it is larger than any that gpuscan writes, or no text.
    """
    if not path.is_file():
        raise OSError(f"{path} is no regular file")
    with open(path, "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"{path} has more than {_MAX_BYTES} bytes")
    return content.decode()


def _finite(text: str) -> float:
    """Return a number of a file. Python's JSON also has NaN, the infinities, and numbers that become infinite.

    Raises:
        ValueError: the number is not finite.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text} is not finite")
    return number


def write(folder: str, key: Mapping[str, object], content: object) -> Path | None:
    """Write the content under the key, and return the path of the file, or None if it could not be written.

    Another process never reads half a file.
    """
    text = json.dumps({"key": key, "content": content}, indent=1, allow_nan=False)
    with suppress(OSError, RuntimeError):
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


def _path(folder: str, key: Mapping[str, object]) -> Path:
    """Return the path of a key's file.

    Raises:
        RuntimeError: the user has no home folder, or the program is a web page.
    """
    if IN_BROWSER:
        raise RuntimeError("a web page has no folder that outlives it")
    import platformdirs

    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    cache = Path(platformdirs.user_cache_dir("gpuscan"))
    if not cache.is_absolute():
        # The XDG specification has programs ignore a relative XDG_CACHE_HOME.
        cache = Path.home() / ".cache" / "gpuscan"
    return cache / folder / f"{digest}.json"
