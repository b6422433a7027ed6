"""Groups of devices: pairs on one adapter, and round-robin chunks that are short enough for small arrays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuscan.engine import executor_group, shards
from gpuscan.planning import partition
from gpuscan.planning.transfer_heuristics import DEVICE_GROUPS


def cut_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut arrays of some kilobytes into many round-robin chunks."""
    fine = replace(DEVICE_GROUPS, round_robin_bytes=2048, min_round_robin_bytes=64, whole_places=16)
    monkeypatch.setattr(partition, "DEVICE_GROUPS", fine)
    monkeypatch.setattr(executor_group, "DEVICE_GROUPS", fine)


def set_speeds(monkeypatch: pytest.MonkeyPatch, *speeds: int) -> None:
    """Let devices have these relative speeds."""
    monkeypatch.setattr("gpuscan.api.device_group.relative_speeds", lambda executors: list(speeds))


def cut_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let arrays of any size on several devices be divided as large ones are: the first device gets two stretches."""
    ordered = replace(DEVICE_GROUPS, min_ordered_length=0, whole_places=4)
    monkeypatch.setattr(partition, "DEVICE_GROUPS", ordered)
    monkeypatch.setattr(shards, "DEVICE_GROUPS", ordered)
