"""Python processes of their own, which find this gpuscan and are killed if they hang."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpuscan

# Seconds after which a child process is killed. On a busy machine it takes a while to open a device.
CHILD_SECONDS = 120


def start(
    *arguments: str,
    cwd: Path | None = None,
    stdin: Any = subprocess.DEVNULL,
    stdout: Any = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start Python with these arguments and environment variables."""
    path = os.pathsep.join([str(Path(gpuscan.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | dict(environment or {}),
    )


def python(*arguments: str, seconds: float = CHILD_SECONDS, **options: Any) -> subprocess.CompletedProcess[str]:
    """Start Python as `start` does, wait for its end, at most `seconds`, and return the exit code and the output."""
    process = start(*arguments, **options)
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)
