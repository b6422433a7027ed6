"""Adapters that are listed and cannot be opened: they leave no line in the terminal, and numbers go on without them."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

import gpuscan
from gpuscan.api import device as devices_module
from gpuscan.device.opening_log import log_unless_failed
from tests.tools.command_line import run

ERROR = "indirect-validation error: ComputePipeline(Internal)"


def test_the_log_of_a_failure_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError), log_unless_failed():  # noqa: PT012 (the line before the error is the point)
        logging.getLogger("wgpu").error(ERROR)
        raise RuntimeError
    assert caplog.messages == []


def test_the_log_of_a_success_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    with log_unless_failed():
        logging.getLogger("wgpu").error("a warning that counts")
        assert caplog.messages == []
    assert caplog.messages == ["a warning that counts"]


def test_probe_shows_nothing_of_an_adapter_that_is_left_out(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave the broken adapter out of the numbers too, although it comes first."""
    usable = gpuscan.devices()
    broken = SimpleNamespace(summary="broken OpenGL adapter")
    listed = [broken, *devices_module.find_adapters()]
    open_device = devices_module.open_device

    def open_or_fail(adapter: object = None) -> gpuscan.Device:
        if adapter is broken:
            logging.getLogger("wgpu").error(ERROR)
            raise RuntimeError("no device")
        return open_device(adapter)  # type: ignore[arg-type]

    monkeypatch.setattr(devices_module, "find_adapters", lambda: listed)
    monkeypatch.setattr(devices_module, "open_device", open_or_fail)
    code, out, err = run(capsys, "probe")
    assert (code, err, caplog.messages) == (0, "", [])
    assert "broken" not in out
    for number, device in enumerate(usable):
        assert f"{number}: {device.capabilities.name}" in out
        text = run(capsys, "shader", "--device", str(number), "--length", "100", "--strategy", "three_dispatch")[1]
        assert "===== scan" in text
