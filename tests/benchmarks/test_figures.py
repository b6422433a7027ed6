"""The files that the programs in benchmarks/ write."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from figures import FigureList, option_parser
from gpuscan.api.device import Device


def test_a_file_says_what_was_measured(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the path of the file, which names a place on one machine."""
    path = tmp_path / "a.json"
    monkeypatch.setattr(sys, "argv", ["/some/where/benchmarks/a.py", "--json", str(path), "--log", "3"])
    parser = option_parser("a program")
    parser.add_argument("--log")
    figures = FigureList(device)
    figures.add("one", "gpuscan", 2e-3, 1e-3)
    figures.add("one", "NumPy", 4e-3)
    figures.write(parser.parse_args().json, more=[1])
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["command"] == ["python", "benchmarks/a.py", "--log", "3"]
    assert found["device"]["summary"] == device.capabilities.summary
    assert found["more"] == [1]
    assert found["figures"] == [
        {"case": "one", "column": "gpuscan", "microseconds": 2000.0, "of_copy": 0.5},
        {"case": "one", "column": "NumPy", "microseconds": 4000.0, "of_copy": None},
    ]


def test_no_file_without_a_path(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FigureList(device).write(None)
    assert not list(tmp_path.iterdir())
