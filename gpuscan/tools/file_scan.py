"""Scans from file to file, of arrays larger than memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from gpuscan.api.scan import bundle
from gpuscan.engine.host_arrays import Progress, watched
from gpuscan.problem.problem import Problem, pose

STREAMED_BYTES = 64 << 20  # arrays larger than this are scanned from file to file


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """The path of an empty file to write; at the end it becomes `path`, which is so there whole or not at all.

    Where there was a file before, its permissions stay, and nobody else may read what is written meanwhile.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    replaces = path.exists()
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if replaces else 0o666))
        yield partial
        if replaces:
            shutil.copymode(path, partial)
        os.replace(partial, path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def scan_to_file(array: np.ndarray[Any, Any], path: Path, op: Any, progress: Progress, **options: Any) -> None:
    """Scan an array, best one that is mapped from a file, and write the result to a .npy file, piece by piece.

    Args:
        array: what to scan.
        path: what to write.
        op: as in `gpuscan.scan`.
        progress: called with the bytes of `array` that are done.
        **options: as in `gpuscan.scan`.

    Raises:
        OSError: there is no room for the result.
    """
    import gpuscan

    asked: dict[str, Any] = {name: options.get(name) for name in ("axis", "initial", "dtype", "before", "after")}
    asked |= {name: options.get(name, False) for name in ("exclusive", "reverse")}
    problem = pose(array, op, **asked)
    with written_beside(path) as partial:
        result = np.lib.format.open_memmap(partial, "w+", result_dtype(problem, array), array.shape)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and a signal where a page is written
            with open(partial, "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, partial.stat().st_size)
        with watched(progress):
            gpuscan.scan(array, op, out=result, **options)
        result.flush()
        del result


def result_dtype(problem: Problem, array: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """The dtype of the result as one array: structured where the input is."""
    leaves = [np.empty((0, *field.shape), field.scalar.dtype) for field in problem.destination.fields]
    dtype: np.dtype[Any] = bundle(problem, leaves, array).dtype
    return dtype
