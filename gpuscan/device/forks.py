"""Know which process used WebGPU first: in a process that was forked from it, a new device would hang.

``import gpuscan`` imports this module alone of `device/`, since a program may use the package wgpu by itself and fork
before it uses gpuscan.
"""

from __future__ import annotations

import os
import sys

from gpuscan.device.backends import BACKENDS

# The process that first used WebGPU: this one, or one that it was forked from. None if none did.
_user: int | None = None
# True once gpuscan has searched for adapters. If it found none, WebGPU is there, but no process used a GPU.
_searched = False


def first_user() -> int | None:
    """Return the process that first used WebGPU: this one, or one that it was forked from; None if none did."""
    return _user


def note_use() -> None:
    """Note that this process uses WebGPU."""
    global _user
    _user = os.getpid()


def note_search(*, has_adapters: bool) -> None:
    """Note that this process searched for adapters, which starts their drivers if there are any."""
    global _searched
    _searched = True
    if has_adapters:
        note_use()


def _note_use_by_parent() -> None:
    """Note, in a forked process, if its parent used the package wgpu without gpuscan."""
    global _user
    used = getattr(sys.modules.get("wgpu.backends.wgpu_native._helpers"), "_the_instance", None) is not None
    if used and not _searched and _user is None:
        _user = os.getppid()


def _disarm_finalizers() -> None:
    """Let a process that was forked from a user of WebGPU drop objects without a call of the driver.

    The driver would wait for threads that only the parent has.
    """
    if _user is None:
        return
    for package in BACKENDS.values():
        classes = sys.modules.get(f"{package}._classes")
        for name in ("GPUObjectBase", "GPUAdapter"):  # The classes with a __del__ that calls the driver.
            wrapper_class = getattr(classes, name, None)
            if wrapper_class is not None:
                wrapper_class.__del__ = lambda _: None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_use_by_parent)
    os.register_at_fork(after_in_child=_disarm_finalizers)
