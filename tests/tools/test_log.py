"""What gpuscan logs, and the option --verbose."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import gpuscan
from tests.harness.devices import distrust
from tests.tools.command_line import run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


def test_levels_of_the_log(caplog):
    """Log the device at INFO, plans and compilations at DEBUG, and a time-out at WARNING."""
    caplog.set_level(logging.DEBUG, logger="gpuscan")
    device = gpuscan.Device()
    gpuscan.scan(np.arange(7, dtype=np.int32), device=device)
    lines = {(each.levelname, each.message.split(" ")[0]) for each in caplog.records if each.name == "gpuscan"}
    assert {("INFO", "opened"), ("DEBUG", "add"), ("DEBUG", "compiled")} <= lines
    assert any(" by " in each for each in caplog.messages)


def test_timeouts_are_a_warning(caplog):
    """Assert that only timeouts for which a strategy is given up warn, and say that others may use the GPU."""
    caplog.set_level(logging.INFO, logger="gpuscan")
    device = gpuscan.Device()
    caplog.clear()
    distrust(device, "lookback")
    assert [each.levelname for each in caplog.records] == ["INFO", "INFO", "WARNING"]
    assert "'lookback' timed out 3 times within 60 s" in caplog.text
    assert "Other programs that use the GPU" in caplog.text


@pytest.mark.parametrize(("flags", "levels"), [([], set()), (["-v"], {"info"}), (["-vv"], {"info", "debug"})])
@pytest.mark.parametrize("first", [True, False])
def test_verbose_in_every_place(files, capsys, flags, levels, first):
    """Show more with -v and all with -vv, before or after the command, and nothing without; then be quiet again."""
    command = [*flags, "scan"] if first else ["scan", *flags]
    gpuscan.api.device._open.clear()
    code, out, err = run(capsys, *command, "in.npy", "out.npy", "--axis", "1", "--device", "0")
    assert (code, out) == (0, "")
    assert {line.split(": ")[1] for line in err.splitlines()} == levels
    assert logging.getLogger("gpuscan").level == logging.NOTSET
