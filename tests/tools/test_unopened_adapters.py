"""Adapters that are listed and cannot be opened: they leave no line in the terminal, and numbers go on without them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping

import numpy as np
import pytest

import gpuscan
from gpuscan.api import device as devices_module
from gpuscan.device import adapters as adapters_module
from gpuscan.device.adapters import find_adapters
from gpuscan.device.backends import webgpu
from gpuscan.device.webgpu_log import libraries_quiet
from tests.tools.command_line import run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

ERROR = "indirect-validation error: ComputePipeline(Internal)"


def test_what_libraries_log_is_a_detail(caplog: pytest.LogCaptureFixture) -> None:
    """Pass it on at level DEBUG inside the block, whether or not the adapter opens, and leave later lines alone."""
    webgpu()
    caplog.set_level(logging.DEBUG, logger="gpuscan")
    with libraries_quiet():
        logging.getLogger("wgpu").error(ERROR)
    logging.getLogger("wgpu").error("a later line")
    assert [(each.name, each.levelname, each.message) for each in caplog.records] == [
        ("gpuscan", "DEBUG", f"wgpu: {ERROR}"),
        ("wgpu", "ERROR", "a later line"),
    ]


def test_drivers_are_quiet_only_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that quiet drivers, unless the user has set them, and take them back."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("EGL_LOG_LEVEL", "debug")
    with libraries_quiet():
        inside = os.environ.get("XDG_RUNTIME_DIR"), os.environ["EGL_LOG_LEVEL"]
    assert inside == ("/" if os.name == "posix" else None, "debug")
    assert "XDG_RUNTIME_DIR" not in os.environ


class Unopenable:
    """An adapter that a driver lists and cannot open."""

    summary = "broken OpenGL adapter"
    features: frozenset[str] = frozenset()
    limits: Mapping[str, int] = {"max-storage-buffer-binding-size": 1 << 27, "max-buffer-size": 1 << 28}
    info: Mapping[str, str] = {"adapter_type": "Unknown", "backend_type": "OpenGL"}

    def request_device_sync(self, **_: object) -> None:
        logging.getLogger("wgpu").error(ERROR)
        raise RuntimeError("Request device failed:\n no")


def test_an_adapter_that_cannot_be_opened(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name it in the error where it was asked for, and take the next one where none was."""
    monkeypatch.delenv("GPUSCAN_ADAPTER", raising=False)
    webgpu()
    with pytest.raises(
        gpuscan.AdapterNotFoundError, match=r"broken OpenGL .* cannot do it \(Request device failed: no"
    ):
        gpuscan.Device(Unopenable())
    assert caplog.messages == []
    usable = find_adapters()
    for module in (devices_module, adapters_module):
        monkeypatch.setattr(module, "find_adapters", lambda: [Unopenable(), *usable])
    assert gpuscan.default_device() is gpuscan.devices()[0]
    assert gpuscan.scan(np.array([1, 2])).tolist() == [1, 3]
    for module in (devices_module, adapters_module):
        monkeypatch.setattr(module, "find_adapters", lambda: [Unopenable()])
    monkeypatch.setattr(devices_module, "_warned", threading.Event())
    with pytest.warns(RuntimeWarning, match="broken OpenGL adapter was to be opened"):
        assert gpuscan.scan(np.array([1, 2])).tolist() == [1, 3]


def test_probe_shows_nothing_of_an_adapter_that_is_left_out(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave the broken adapter out of the numbers too, although it comes first."""
    usable = gpuscan.devices()
    broken = Unopenable()
    listed = [broken, *find_adapters()]
    monkeypatch.setattr(devices_module, "find_adapters", lambda: listed)
    code, out, err = run(capsys, "probe")
    assert (code, err, caplog.messages) == (0, "", [])
    assert "broken" not in out
    for number, device in enumerate(usable):
        assert f"{number}: {device.capabilities.name}" in out
        text = run(capsys, "shader", "--device", str(number), "--length", "100", "--strategy", "three_dispatch")[1]
        assert "===== scan" in text
