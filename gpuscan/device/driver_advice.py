"""Say what to install where no GPU adapter was found, from what can be seen of the machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# The variables that name the only drivers that the Vulkan loader looks at.
_LOADER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")

# How a software adapter is installed, by the name of a distribution or of one that it derives from.
_INSTALL: Mapping[str, str] = {
    "debian": "apt install mesa-vulkan-drivers",
    "ubuntu": "apt install mesa-vulkan-drivers",
    "fedora": "dnf install mesa-vulkan-drivers",
    "rhel": "dnf install mesa-vulkan-drivers",
    "suse": "zypper install libvulkan_lvp",
    "arch": "pacman -S vulkan-swrast",
}


def driver_advice(root: Path = Path("/"), system: str = sys.platform) -> str:
    """Return what to do on this machine, as the end of a sentence.

    Args:
        root: the folder that stands for ``/``.
        system: `sys.platform` of the machine.
    """
    if system == "emscripten":
        return (
            "use a browser with WebGPU, such as Chrome or Edge from 137 on, and open the page from https or localhost; "
            "chrome://gpu tells if WebGPU is switched off there"
        )
    if system == "win32":
        return "install or update the graphics driver of the GPU's vendor, for DirectX 12 or Vulkan"
    if system == "darwin":
        return "gpuscan needs a Mac with Metal; virtual machines often have none"
    software = f"without a GPU install a software adapter ({_install_command(root)})"
    for name in _LOADER_VARIABLES:
        if os.environ.get(name):
            return (
                f"{name} is set, so only the Vulkan drivers that it names are looked at; unset it, or name drivers "
                f"that exist; {software}"
            )
    if (root / "dev/nvidiactl").exists():
        return (
            "install the Vulkan part of the NVIDIA driver and libvulkan1 (in a container, start it with "
            f"NVIDIA_DRIVER_CAPABILITIES=all); {software}"
        )
    closed = [path for path in sorted(root.glob("dev/dri/renderD*")) if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return (
            f"this user may not open /dev/dri/{closed[0].name}: add the user to its group (usermod -aG render NAME) "
            f"and log in again; {software}"
        )
    return f"install the GPU's Vulkan driver; {software}"


def _install_command(root: Path) -> str:
    with suppress(OSError):
        names = platform.freedesktop_os_release() if root == Path("/") else _os_release(root)
        for name in (names.get("ID", ""), *names.get("ID_LIKE", "").split()):
            if name in _INSTALL:
                return _INSTALL[name]
    return f"Debian and Ubuntu: {_INSTALL['debian']}; Fedora: {_INSTALL['fedora']}; Arch: {_INSTALL['arch']}"


def _os_release(root: Path) -> dict[str, str]:
    lines = (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    return {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)}
