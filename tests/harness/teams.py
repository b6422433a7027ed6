"""Teams of devices: pairs on one adapter, and stripes that are short enough for small arrays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuscan.engine import device_team, shards
from gpuscan.planning import partition
from gpuscan.planning.transfer_heuristics import TEAMS


def cut_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut arrays of some kilobytes into many stripes."""
    fine = replace(TEAMS, stripe_bytes=2048, min_stripe_bytes=64, whole_places=16)
    monkeypatch.setattr(partition, "TEAMS", fine)
    monkeypatch.setattr(device_team, "TEAMS", fine)


def set_speeds(monkeypatch: pytest.MonkeyPatch, *speeds: int) -> None:
    """Let devices have these relative speeds."""
    monkeypatch.setattr("gpuscan.api.team.relative_speeds", lambda executors: list(speeds))


def cut_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let arrays of any size on several devices be divided as large ones are: the first device gets two stretches."""
    ordered = replace(TEAMS, min_ordered_length=0, whole_places=4)
    monkeypatch.setattr(partition, "TEAMS", ordered)
    monkeypatch.setattr(shards, "TEAMS", ordered)
