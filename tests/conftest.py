"""What all tests share: the adapters they run on, a cache folder of their own, and how long hypothesis searches.

Environment:
    GPUSCAN_TEST_MIN_ADAPTERS: tests must have passed on at least so many adapters, or the run fails; 0 lets a
        machine without any adapter pass.
    GPUSCAN_TEST_IN_TURN: 1 shares a test's cases among the software adapters: each case runs on one of them, and
        tests of fewer cases than there are of those on all. GPUs run all.
    HYPOTHESIS_PROFILE: ``default`` or ``nightly`` (many more cases).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import platformdirs
import pytest

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device

MIN_ADAPTERS = os.environ.get("GPUSCAN_TEST_MIN_ADAPTERS")

# Chromium carries SwiftShader, a Vulkan driver for the CPU; the Vulkan loader has to be told of it.
SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
DRIVER_VARIABLES = ("VK_ADD_DRIVER_FILES", "VK_DRIVER_FILES", "VK_ICD_FILENAMES")
if SWIFTSHADER.exists() and not any(name in os.environ for name in DRIVER_VARIABLES):
    os.environ["VK_ADD_DRIVER_FILES"] = str(SWIFTSHADER)

# No deadline: the first run of a shader compiles it. Derandomised: a failure seen once is seen again.
hypothesis.settings.register_profile("default", max_examples=150, deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("nightly", max_examples=1000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# ----- A cache folder of the tests' own


def pytest_configure(config: pytest.Config) -> None:
    """Points gpuscan's cache at an empty folder, but leaves pip the user's, for the wheel test to install from."""
    if not hasattr(config, "workerinput"):  # workers inherit the variables
        os.environ.setdefault("PIP_CACHE_DIR", platformdirs.user_cache_dir("pip", appauthor=False))
        folder = tempfile.mkdtemp(prefix="gpuscan-tests-")
        os.environ["XDG_CACHE_HOME"] = os.environ["WIN_PD_OVERRIDE_LOCAL_APPDATA"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.pluginmanager.register(AdapterReport())


# ----- Adapters


def adapter_id(adapter: wgpu.GPUAdapter) -> str:
    """A short name for test ids, such as ``lavapipe-vulkan`` or ``nvidia-vulkan``."""
    backend = adapter.info["backend_type"].lower()
    device = re.sub(r"[^a-z0-9]+", " ", adapter.info["device"].lower()).split()[0]
    return f"{'lavapipe' if (device, backend) == ('llvmpipe', 'vulkan') else device}-{backend}"


@cache
def opens(adapter: wgpu.GPUAdapter) -> bool:
    """Whether the driver lets the adapter be used: some list an OpenGL adapter that they then refuse."""
    from gpuscan.device.capability_probe import wanted_features, wanted_limits

    try:
        adapter.request_device_sync(
            required_features=wanted_features(adapter), required_limits=wanted_limits(adapter)
        ).destroy()
    except RuntimeError:
        return False
    return True


def found_adapters() -> list[wgpu.GPUAdapter]:
    """The adapters that open; the header names the others."""
    from gpuscan.device.adapters import find_adapters

    return [adapter for adapter in find_adapters() if opens(adapter)]


def adapter_parameters() -> list[Any]:
    """One pytest parameter for each adapter; a skipped one where there is none and none is asked for."""
    parameters: list[Any] = []
    seen: dict[str, int] = {}
    for adapter in found_adapters():
        name = adapter_id(adapter)
        seen[name] = seen.get(name, 0) + 1
        parameters.append(pytest.param(adapter, id=name if seen[name] == 1 else f"{name}-{seen[name]}"))
    if not parameters and MIN_ADAPTERS == "0":
        parameters.append(pytest.param(None, id="none", marks=pytest.mark.skip(reason="no adapter on this machine")))
    return parameters


@pytest.fixture(scope="session")
def adapter(request: pytest.FixtureRequest) -> wgpu.GPUAdapter:
    """Every wgpu adapter of the machine in turn."""
    return request.param


@pytest.fixture(scope="session")
def device(adapter: wgpu.GPUAdapter) -> Device:
    """A `gpuscan.Device` on every adapter in turn, one for the whole session."""
    from gpuscan.api.device import Device

    return Device(adapter)


@pytest.fixture
def own_device(adapter: wgpu.GPUAdapter, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device that may come to distrust a strategy: what it learns is kept in a cache of its own."""
    from gpuscan.api.device import Device

    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    return Device(adapter, unsafe=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test that asks for `adapter` or `device` once on every adapter."""
    if "adapter" in metafunc.fixturenames:
        metafunc.parametrize("adapter", adapter_parameters(), indirect=True, scope="session")


# ----- What was tested


def adapter_of(item: pytest.Item) -> wgpu.GPUAdapter | None:
    """The adapter that a test runs on, if it needs one."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("adapter")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Notes the adapter of each test in its report, which travels from the workers, and leaves out what has no turn."""
    for item in items:
        if (adapter := adapter_of(item)) is not None:
            item.user_properties.append(("adapter", f"{adapter_id(adapter)} ({adapter.summary})"))
    if os.environ.get("GPUSCAN_TEST_IN_TURN") == "1":
        software = [a.summary for a in found_adapters() if a.info["adapter_type"] == "CPU"]
        asked = [(item.nodeid.partition("[")[0], getattr(adapter_of(item), "summary", None)) for item in items]
        turns = has_turn(asked, software)
        config.hook.pytest_deselected(items=[item for item, turn in zip(items, turns, strict=True) if not turn])
        items[:] = [item for item, turn in zip(items, turns, strict=True) if turn]


def has_turn(asked: list[tuple[str, str | None]], sharing: list[str]) -> list[bool]:
    """For each case of a test on an adapter, whether it runs.

    All do but on those that are `sharing`: of these every case runs on one, in turn, so that every test runs on each;
    and on all where cases are too few for that.
    """
    cases, seen, turns = Counter(asked), Counter[tuple[str, str | None]](), []
    for case in asked:
        few = case[1] not in sharing or cases[case] < len(sharing)
        turns.append(few or seen[case] % len(sharing) == sharing.index(case[1]))
        seen[case] += 1
    return turns


class AdapterReport:
    """Collects the adapters on which a test passed, names them at the end, and holds the run to the floor."""

    def __init__(self) -> None:
        self.tested: set[str] = set()

    def pytest_report_header(self) -> str:
        """The adapters found."""
        from gpuscan.device.adapters import find_adapters

        found = [a.summary + ("" if opens(a) else " (cannot be opened)") for a in find_adapters()]
        return "adapters found: " + ("; ".join(found) or "none")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes note of a passed test's adapter."""
        if report.when == "call" and report.passed:
            self.tested.update(value for name, value in report.user_properties if name == "adapter")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fails a run that saw fewer adapters than asked for."""
        if exitstatus == pytest.ExitCode.OK and len(self.tested) < int(MIN_ADAPTERS or 0):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names the adapters tested."""
        if self.tested:
            terminalreporter.write_line("adapters tested: " + "; ".join(sorted(self.tested)))
        if len(self.tested) < int(MIN_ADAPTERS or 0):
            message = f"FAILED: tests passed on {len(self.tested)} adapters, at least {MIN_ADAPTERS} were asked for"
            terminalreporter.write_line(message, red=True)
