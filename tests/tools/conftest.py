"""The folder that tests of the command line work in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tools.command_line import ARRAY


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with the file in.npy."""
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", ARRAY)
    return tmp_path
