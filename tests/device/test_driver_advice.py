"""What to install, from what can be seen of a machine without an adapter."""

from __future__ import annotations

import os

import pytest

from gpuscan.device import backends
from gpuscan.device.driver_advice import driver_advice
from gpuscan.errors import AdapterNotFoundError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that makes a machine of files."""
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(name, raising=False)

    def make(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian", "(apt install mesa-vulkan-drivers)"),
        ('ID=mint\nID_LIKE="ubuntu debian"', "(apt install mesa-vulkan-drivers)"),
        ("ID=fedora", "(dnf install mesa-vulkan-drivers)"),
        ("ID=arch", "(pacman -S vulkan-swrast)"),
        ("ID=plan9", "Debian and Ubuntu: apt install"),
    ],
)
def test_the_distribution_decides_the_command(machine, release, command):
    root = machine(**{"etc__os-release": release})
    assert driver_advice(root, "linux").startswith("install the GPU's Vulkan driver; without a GPU install")
    assert command in driver_advice(root, "linux")


def test_what_is_there_decides_the_advice(machine, monkeypatch):
    """Name the variable that hides drivers, the permission that is missing, or the part of a driver that is."""
    root = machine(dev__dri__renderD128="")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "/dev/dri/renderD128: add the user to its group" in driver_advice(root, "linux")
    machine(dev__nvidiactl="")
    assert "NVIDIA_DRIVER_CAPABILITIES=all" in driver_advice(root, "linux")
    monkeypatch.setenv("VK_DRIVER_FILES", "/nonexistent")
    assert driver_advice(root, "linux").startswith("VK_DRIVER_FILES is set")
    assert "DirectX 12" in driver_advice(root, "win32")
    assert "Metal" in driver_advice(root, "darwin")
    assert "Chrome or Edge from 137 on" in driver_advice(root, "emscripten")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", "'wgpu' is the default, but the package nowhere"),
        ("wgpu", r"'wgpu' was asked for \(from GPUSCAN_BACKEND\)"),
    ],
)
def test_a_package_that_is_missing(monkeypatch, asked, found):
    """Say where the request came from."""
    monkeypatch.setenv("GPUSCAN_BACKEND", asked)
    monkeypatch.setattr(backends, "BACKENDS", {"wgpu": "nowhere"})
    monkeypatch.setattr(backends, "_load", backends._load.__wrapped__)
    with pytest.raises(AdapterNotFoundError, match=f"{found}.*pip install nowhere"):
        backends.webgpu()
