"""The folders that tests of the command line work in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tools.command_line import ARRAY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(folder: Path) -> Path:
    """Work in an empty folder with the file in.npy."""
    np.save("in.npy", ARRAY)
    return folder
