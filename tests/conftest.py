"""What all tests share: the adapters that they run on, a cache folder of their own, and hypothesis's settings.

Environment:
    GPUSCAN_TEST_MIN_ADAPTERS: the run fails unless tests passed on this many adapters. With 0, a machine without an
        adapter passes.
    GPUSCAN_TEST_IN_TURN: with 1, the software adapters share the cases of a test: each case runs on one of them, in
        turn. Of the tests of the engine and the device each adapter runs a case, and of the tests of generated code
        each backend does. GPUs run every case. Most tests also give software adapters shorter chunks than users get,
        since most of their time goes to compiling. In `TESTS_WITH_PLANS_OF_GPUS`, lavapipe takes turns a second time,
        as a device that plans as a GPU does.
    HYPOTHESIS_PROFILE: ``default`` or ``nightly`` (many more cases).
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import platformdirs
import pytest
import wgpu

import gpuscan as gs
from tests.harness.builds import plan_short_chunks, wait_with_pauses
from tests.harness.devices import (
    all_adapters,
    can_open,
    clean_devices_as_if,
    forget_plans,
    plan_as_gpu,
    usable_adapters,
)
from tests.harness.tint import TintCheck

IN_TURN = os.environ.get("GPUSCAN_TEST_IN_TURN") == "1"
MIN_ADAPTERS = os.environ.get("GPUSCAN_TEST_MIN_ADAPTERS")

# Chromium brings SwiftShader, a Vulkan driver for the CPU. The Vulkan loader finds it by this file.
SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
DRIVER_VARIABLES = ("VK_ADD_DRIVER_FILES", "VK_DRIVER_FILES", "VK_ICD_FILENAMES")
if SWIFTSHADER.exists() and not any(name in os.environ for name in DRIVER_VARIABLES):
    os.environ["VK_ADD_DRIVER_FILES"] = str(SWIFTSHADER)

# Tests that run the chunks that users of software adapters get, 8 times as long as in all other tests. Programs that
# tests start have them too.
TESTS_OF_WHAT_USERS_GET = ("api.test_scan.", "api.test_contract.", "codegen.", "planning.", "test_docs.", "tools.")

# Each software adapter runs a case of these tests. What they test depends on subgroups, limits and schedulers, in which
# two adapters of one backend differ. Tests of other folders run the same kernels through the public functions.
TESTS_OF_ADAPTERS = ("tests/engine/", "tests/device/")
# Each backend runs a case of these tests. They compile unusual code, which naga translates for each backend.
TESTS_OF_BACKENDS = ("tests/codegen/", "tests/loops/", "tests/operators/")

# In these tests of the public functions, lavapipe also plans as a GPU does: other tiles, strategies and submissions.
# Others test what software adapters do, or wait for tiles for longer than a busy machine lets them.
TESTS_WITH_PLANS_OF_GPUS = (
    "tests/signal/",
    *(
        f"tests/api/test_{name}.py::"
        for name in (
            *("array_indices", "bundles", "compact", "compensated", "counting", "cumulative_sums", "cut_plans", "cuts"),
            *("element_types", "group_reductions", "groups", "indexed_maps", "labels", "linear_attention"),
            *("linear_recurrence", "log_sums", "map", "maps", "masks", "narrow_arrays", "new_shapes"),
            "numpy_protocols",
            *("offsets_on_devices", "plan", "random_calls", "random_operators", "reduce", "reduce_by_key"),
            *("reproducible", "results_in_views", "scan_vjp", "segment_reductions", "segments", "selecting", "sort"),
            *("state_space", "structured", "totals", "transfers", "unique", "views"),
        )
    ),
)
PLANS_OF_GPU = " with the plans of a GPU"

# The devices that the fixture `device` has opened.
SESSION_DEVICES: list[gs.Device] = []

# The files, with their content, that the first `own_device` of an adapter left in its empty cache folder.
NEW_CACHES: dict[wgpu.GPUAdapter, dict[Path, bytes]] = {}

# There is no deadline, because the first run of a shader compiles it. A failure that was seen once is seen again.
hypothesis.settings.register_profile("default", max_examples=150, deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("nightly", max_examples=1000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# ----- A cache folder of the tests' own


def pytest_configure(config: pytest.Config) -> None:
    """Point gpuscan's cache at an empty folder.

    Pip keeps the user's: the test of the wheel installs from it. So does Mesa, which finds there what earlier runs have
    compiled, and what the processes that tests start have.
    """
    gc.disable()  # until the tests are collected: nothing of them is garbage
    if not hasattr(config, "workerinput"):  # workers inherit the variables
        os.environ.setdefault("PIP_CACHE_DIR", platformdirs.user_cache_dir("pip", appauthor=False))
        caches = platformdirs.user_cache_dir()
        if os.access(caches, os.W_OK):
            os.environ.setdefault("MESA_SHADER_CACHE_DIR", caches)
        folder = tempfile.mkdtemp(prefix="gpuscan-tests-")
        os.environ["XDG_CACHE_HOME"] = os.environ["WIN_PD_OVERRIDE_LOCAL_APPDATA"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.pluginmanager.register(AdapterReport())


# ----- Adapters


def adapter_id(adapter: wgpu.GPUAdapter) -> str:
    """Return a short name for test ids, such as ``lavapipe-vulkan`` or ``nvidia-vulkan``."""
    backend = adapter.info["backend_type"].lower()
    device = re.sub(r"[^a-z0-9]+", " ", adapter.info["device"].lower()).split()[0]
    return f"{'lavapipe' if (device, backend) == ('llvmpipe', 'vulkan') else device}-{backend}"


def adapter_parameters(*, with_gpu_plans: bool = False) -> list[Any]:
    """Return the pytest parameters of each adapter, or skipped ones if there is none and none is required.

    Args:
        with_gpu_plans: True for lavapipe a second time, with the plans of a GPU.
    """
    parameters: list[Any] = []
    seen: dict[str, int] = {}
    for adapter in usable_adapters():
        name = adapter_id(adapter)
        seen[name] = seen.get(name, 0) + 1
        parameters.append(pytest.param(adapter, False, id=name if seen[name] == 1 else f"{name}-{seen[name]}"))
        if with_gpu_plans and name == "lavapipe-vulkan":
            parameters.append(pytest.param(adapter, True, id=f"{name}-as-gpu"))
    if not parameters and MIN_ADAPTERS == "0":
        skipped = pytest.mark.skip(reason="no adapter on this machine")
        parameters.append(pytest.param(None, False, id="none", marks=skipped))
    return parameters


@pytest.fixture(scope="session")
def adapter(request: pytest.FixtureRequest) -> wgpu.GPUAdapter:
    """Return every wgpu adapter of the machine in turn."""
    return request.param


@pytest.fixture(scope="session")
def plans_of_gpu(request: pytest.FixtureRequest) -> bool:
    """Return True if the device of the test plans as a GPU does."""
    return bool(request.param)


@pytest.fixture(scope="session")
def device(adapter: wgpu.GPUAdapter, plans_of_gpu: bool) -> gs.Device:
    """Return a `gpuscan.Device` on every adapter in turn, one for the whole session."""
    opened = gs.Device(adapter)
    if plans_of_gpu:
        plan_as_gpu(opened)
    SESSION_DEVICES.append(opened)
    return opened


@pytest.fixture(autouse=True)
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a software adapter with the plans of a GPU wait as software adapters do."""
    if plans_as_gpu(request.node):
        wait_with_pauses(monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def chunks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let software adapters that share cases take short chunks, except in tests of what users get."""
    name = request.module.__name__.removeprefix("tests.") + "."
    for opened in SESSION_DEVICES:
        forget_plans(opened)
    if any(opened.memory_usage().bytes_in_use for opened in SESSION_DEVICES):
        gc.collect()  # errors that tests caught refer to arrays, and tests of memory expect that none is left
    with pytest.MonkeyPatch.context() as patch:
        if IN_TURN and not name.startswith(TESTS_OF_WHAT_USERS_GET):
            plan_short_chunks(patch)
        yield


@pytest.fixture
def skip_without_adapters() -> None:
    """Skip a test of what is said about the machine's adapters if there is none, and none is required."""
    if not usable_adapters() and MIN_ADAPTERS == "0":
        pytest.skip("no adapter on this machine")


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Collect no garbage: a call that takes memory first gives the memory of garbage back to the pool."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def own_device(adapter: wgpu.GPUAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return a device with a cache folder of its own, so that it may learn to distrust a strategy.

    Only the first one of an adapter measures it.
    """
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    files = NEW_CACHES.get(adapter)
    for path, content in (files or {}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    opened = gs.Device(adapter, unsafe=True)
    if files is None:
        found = [path for path in tmp_path.rglob("*") if path.is_file()]
        NEW_CACHES[adapter] = {path.relative_to(tmp_path): path.read_bytes() for path in found}
    return opened


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that asks for `adapter` or `device` once on every adapter."""
    if "plans_of_gpu" in metafunc.fixturenames:
        twice = IN_TURN and metafunc.definition.nodeid.startswith(TESTS_WITH_PLANS_OF_GPUS)
        given = adapter_parameters(with_gpu_plans=twice)
        metafunc.parametrize(("adapter", "plans_of_gpu"), given, indirect=True, scope="session")
    elif "adapter" in metafunc.fixturenames:
        given = [pytest.param(given.values[0], id=given.id, marks=given.marks) for given in adapter_parameters()]
        metafunc.parametrize("adapter", given, indirect=True, scope="session")


# ----- The shaders of the tests


@pytest.fixture(autouse=True)
def devices_as_if() -> Iterator[None]:
    """Leave no memory to the devices that a test has made for other capabilities."""
    yield
    clean_devices_as_if()


@pytest.fixture(scope="session", autouse=True)
def tint() -> Iterator[TintCheck]:
    """Compile the shaders of all tests of this process by Tint at the end; see `tests/harness/tint.py`."""
    with pytest.MonkeyPatch.context() as patch:
        check = TintCheck()
        check.watch(patch)
        yield check
    if refused := check.find_refusals():
        pytest.fail(
            f"Tint refuses {len(refused)} shaders that naga takes.\n\n" + "\n\n".join(refused[:5]), pytrace=False
        )


# ----- Signals


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Let SIGINT and SIGHUP act as usual, in this process and in processes that the test starts.

    A shell that starts the run in the background ignores SIGINT, and ``nohup`` ignores SIGHUP. Child processes inherit
    that, and a test that interrupts them would fail.
    """
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# ----- What was tested


def adapter_of(item: pytest.Item) -> wgpu.GPUAdapter | None:
    """Return the adapter that a test runs on, or None if it needs none."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("adapter")


def plans_as_gpu(item: pytest.Item) -> bool:
    """Return True if the test runs on a software adapter with the plans of a GPU."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and bool(callspec.params.get("plans_of_gpu"))


def turn_of(item: pytest.Item) -> str | None:
    """Return what has the test's turn: the summary of its adapter, and its plans; None if it needs no adapter."""
    adapter = adapter_of(item)
    return None if adapter is None else adapter.summary + PLANS_OF_GPU * plans_as_gpu(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note each test's adapter in its report, which workers send on, and deselect cases that run on another adapter."""
    for item in items:
        if (adapter := adapter_of(item)) is not None:
            kind = "pretender" if plans_as_gpu(item) else "adapter"
            item.user_properties.append((kind, f"{adapter_id(adapter)} ({turn_of(item)})"))
    if IN_TURN:
        found = usable_adapters()
        software = {a.summary: a.info["backend_type"] for a in found if a.info["adapter_type"] == "CPU"}
        software |= {summary + PLANS_OF_GPU: backend for summary, backend in software.items()}
        asked = [(item.nodeid.partition("[")[0], turn_of(item)) for item in items]
        turns = has_turn(asked, software)
        config.hook.pytest_deselected(items=[item for item, turn in zip(items, turns, strict=True) if not turn])
        items[:] = [item for item, turn in zip(items, turns, strict=True) if turn]


def pytest_collection_finish() -> None:
    """Collect garbage from now on, and do not look for it among the thousands of collected tests each time."""
    gc.freeze()
    gc.enable()


def has_turn(asked: Sequence[tuple[str, str | None]], sharing: dict[str, str]) -> list[bool]:
    """Return, for each case of a test on an adapter, whether it runs.

    Adapters in `sharing` take the cases of a test in turn, so that every case runs on one of them. With as many cases
    as adapters, every test runs on each. A test of fewer cases begins with an adapter that depends on its name. But
    tests of adapters and of backends take more turns: where there are two cases and three adapters, the first case has
    a second one, and a single case runs on every adapter, or on one of each backend. Other adapters run every case.

    Args:
        asked: for each case, the test and the summary of the adapter, or None.
        sharing: the backends of the adapters that share cases, by the adapters' summaries. Those share the cases of a
            test for which the test is asked.
    """
    cases, seen, turns = Counter(asked), Counter[tuple[str, str | None]](), []
    for case in asked:
        test, adapter = case
        order = [name for name in sharing if (test, name) in cases]
        count = cases[case]
        if adapter not in sharing:
            turns.append(True)
        elif count < len(order) and not test.startswith(TESTS_OF_ADAPTERS + TESTS_OF_BACKENDS):
            turns.append(adapter == order[(first_turn(test) + seen[case]) % len(order)])
        elif count == 1 and test.startswith(TESTS_OF_BACKENDS):
            turns.append(adapter == pick_adapter(test, {name: sharing[name] for name in order}, sharing[adapter]))
        else:
            turns.append(seen[case] % len(order) == order.index(adapter) % min(count, len(order)))
        seen[case] += 1
    return turns


def pick_adapter(test: str, sharing: dict[str, str], backend: str) -> str:
    """Return the adapter of the backend that a test of one case runs on, which is always the same one."""
    adapters = [adapter for adapter, its_backend in sharing.items() if its_backend == backend]
    return adapters[first_turn(test) % len(adapters)]


def first_turn(test: str) -> int:
    """Return a number that is always the same for the test, and differs between tests."""
    return zlib.crc32(test.encode())


class AdapterReport:
    """Collect the adapters on which a test passed, name them at the end, and require a minimum number."""

    def __init__(self) -> None:
        self.tested: set[str] = set()
        self.pretenders: set[str] = set()

    def pytest_report_header(self) -> str:
        """Return the adapters found."""
        found = [a.summary + ("" if can_open(a) else " (cannot be opened)") for a in all_adapters()]
        return "adapters found: " + ("; ".join(found) or "none")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a passed test's adapter."""
        if report.when == "call" and report.passed:
            self.tested.update(str(value) for name, value in report.user_properties if name == "adapter")
            self.pretenders.update(str(value) for name, value in report.user_properties if name == "pretender")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run that saw fewer adapters than required."""
        if exitstatus == pytest.ExitCode.OK and len(self.tested) < int(MIN_ADAPTERS or 0):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the adapters tested."""
        if self.tested or self.pretenders:
            terminalreporter.write_line(
                "adapters tested: " + "; ".join([*sorted(self.tested), *sorted(self.pretenders)])
            )
        if len(self.tested) < int(MIN_ADAPTERS or 0):
            message = f"FAILED: tests passed on {len(self.tested)} adapters, at least {MIN_ADAPTERS} were asked for"
            terminalreporter.write_line(message, red=True)
