"""Replace a file whole or not at all, and remove what killed processes left behind."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, which refuses to remove a file that is open
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield the path of an empty partial file that replaces `path` at the end, or is removed after an error.

    The partial file is in the same folder. A file that is replaced keeps its permissions, and until then no other user
    can read the partial file. A symbolic link at `path` is replaced itself; resolve the path to write its target.

    Raises:
        OSError: a file cannot be written.
    """
    _remove_leftovers(path)
    replaces = path.exists() and not path.is_symlink()
    partial, descriptor = _find_unused_name(path), None
    try:
        # Inside the ``try``, since an interrupt may come as soon as the file is there.
        while (descriptor := _open_locked(partial, 0o600 if replaces else 0o666)) is None:
            partial = _find_unused_name(path)
        yield partial
        if replaces:
            shutil.copymode(path, partial)
        if fcntl is None:  # an open file cannot be renamed there
            os.close(descriptor)
            descriptor = None
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _prefix(path: Path) -> str:
    """Return what the names of all partial files for `path` start with. Its length does not depend on the path's."""
    return f".gpuscan-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}-"


def _find_unused_name(path: Path) -> Path:
    """Return a name for a partial file that no file has. It is random, so no other process takes it meanwhile."""
    while True:
        partial = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}.partial")
        if not os.path.lexists(partial):
            return partial


def _open_locked(partial: Path, mode: int) -> int | None:
    """Create a file and hold it locked, which shows that its process lives.

    Return None if another process took it for a leftover before it was locked, and removes it.
    """
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
    if _locks(descriptor) is not False and partial.exists():
        return descriptor
    os.close(descriptor)
    return None


def _remove_leftovers(path: Path) -> None:
    """Remove partial files for `path` of processes that were killed. A living process holds its own locked."""
    for leftover in path.parent.glob(f"{_prefix(path)}*.partial"):
        with suppress(OSError):
            if fcntl is None:
                leftover.unlink()
                continue
            descriptor = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _locks(descriptor) and stat.S_ISREG(os.fstat(descriptor).st_mode):
                    leftover.unlink()
            finally:
                os.close(descriptor)


def _locks(descriptor: int) -> bool | None:
    """Lock an open file without waiting. Return False if another process holds it, None if it cannot be locked."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True
