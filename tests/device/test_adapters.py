"""Which adapters count, in what order, and which one a name means."""

from __future__ import annotations

import os

import numpy as np
import pytest
import wgpu

from gpuscan.device import adapters, forks
from gpuscan.errors import AdapterNotFoundError
from tests.fakes import MESA, FakeAdapter
from tests.harness.processes import python

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

LAVAPIPE = FakeAdapter("llvmpipe", "CPU", "Vulkan", frozenset({"subgroup", "shader-f64"}), about=MESA)
SWIFTSHADER = FakeAdapter("SwiftShader", "CPU", "Vulkan", frozenset({"subgroup"}), about=MESA)
LLVMPIPE = FakeAdapter("llvmpipe", "CPU", "OpenGL", about=MESA)
IRIS = FakeAdapter("Iris", "IntegratedGPU", "Vulkan")
IRIS_OPENGL = FakeAdapter("Iris", "IntegratedGPU", "OpenGL")
GEFORCE = FakeAdapter("GeForce RTX", "DiscreteGPU", "Vulkan")
OLD_OPENGL = FakeAdapter("Old", "IntegratedGPU", "OpenGL", invocations=0)
MOBILE = FakeAdapter("Mobile", "IntegratedGPU", "OpenGL", storage_buffers=4)
NARROW = FakeAdapter("Narrow", "IntegratedGPU", "OpenGL", invocations=128)


@pytest.fixture
def list_only(monkeypatch: pytest.MonkeyPatch):
    """Return a function that lets wgpu list these adapters, and no others."""

    def list_only(*found: FakeAdapter) -> None:
        monkeypatch.setattr(adapters, "_adapters", None)
        monkeypatch.setattr(forks, "_user", None)
        monkeypatch.setattr(forks, "_searched", False)
        monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: list(found))

    monkeypatch.delenv(adapters.ADAPTER_VARIABLE, raising=False)
    return list_only


def test_best_first(list_only):
    """Assert the order: discrete, integrated, CPU; Vulkan before OpenGL; more features before fewer."""
    list_only(SWIFTSHADER, LLVMPIPE, IRIS_OPENGL, LAVAPIPE, GEFORCE, IRIS)
    assert adapters.find_adapters() == [GEFORCE, IRIS, IRIS_OPENGL, LAVAPIPE, SWIFTSHADER, LLVMPIPE]


def test_adapters_without_compute_are_left_out(list_only):
    """Assert that OpenGL below 4.3 is not listed, which can only draw."""
    list_only(OLD_OPENGL, LAVAPIPE)
    assert adapters.find_adapters() == [LAVAPIPE]


def test_a_driver_listed_twice_counts_once_but_two_cards_stay_two(list_only):
    """Assert that two cards of one model are both listed, though they look like one card listed twice."""
    twin = FakeAdapter("GeForce RTX", "DiscreteGPU", "Vulkan")
    again = FakeAdapter("llvmpipe", "CPU", "Vulkan", LAVAPIPE.features, about=MESA)
    list_only(LAVAPIPE, GEFORCE, again, twin)
    assert adapters.find_adapters() == [GEFORCE, twin, LAVAPIPE]


def test_equal_cards_are_told_apart_by_a_number(list_only):
    """Give equal cards summaries of their own, which also choose them; other summaries stay as they are."""
    twin = FakeAdapter("GeForce RTX", "DiscreteGPU", "Vulkan")
    list_only(GEFORCE, twin, LAVAPIPE)
    assert adapters.choose_adapter("geforce") is GEFORCE
    summaries = [adapters.summary_of(adapter) for adapter in (GEFORCE, twin, LAVAPIPE)]
    assert summaries == [f"{GEFORCE.summary}, card 0", f"{GEFORCE.summary}, card 1", LAVAPIPE.summary]
    assert [adapters.choose_adapter(summary) for summary in summaries] == [GEFORCE, twin, LAVAPIPE]
    with pytest.raises(AdapterNotFoundError, match=r"0: GeForce RTX .*, card 0; 1: GeForce RTX .*, card 1; 2: llvm"):
        adapters.choose_adapter("radeon")


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (None, GEFORCE),
        ("LLVMPIPE", LAVAPIPE),
        ("opengl", LLVMPIPE),
        (LLVMPIPE, LLVMPIPE),
    ],
)
def test_choose(list_only, wanted, meant):
    """Choose an adapter by part of its summary in any case, or by the adapter itself."""
    list_only(LLVMPIPE, LAVAPIPE, GEFORCE)
    assert adapters.choose_adapter(wanted) is meant


@pytest.mark.parametrize(
    ("wanted", "number"),
    [("1", 1), (" 02 ", 2), (0, 0), (np.int64(3), 3), ("15.0", None), ("-1", None), ("llvmpipe 1", None), (True, None)],
)
def test_what_is_a_number(wanted, number):
    """Take digits alone for a number, and all other strings for a part of a summary."""
    assert adapters.adapter_number(wanted) == number


def test_the_variable_may_hold_a_number(monkeypatch):
    """Read the variable only where the caller names no adapter."""
    monkeypatch.setenv(adapters.ADAPTER_VARIABLE, "1")
    assert adapters.adapter_number(None) == 1
    assert adapters.adapter_number("llvmpipe") is None
    monkeypatch.delenv(adapters.ADAPTER_VARIABLE)
    assert adapters.adapter_number(None) is None


@pytest.mark.parametrize("wanted", [1.5, object(), True, b"llvmpipe"])
def test_what_is_no_adapter(list_only, wanted):
    """Assert that a TypeError says which values name an adapter."""
    list_only(LAVAPIPE)
    with pytest.raises(TypeError, match=r"was passed as an adapter\. Pass a part of its name"):
        adapters.choose_adapter(wanted)


def test_the_variable_names_the_default_but_does_not_overrule(list_only, monkeypatch):
    """Assert that GPUSCAN_ADAPTER counts only if the caller names no adapter."""
    list_only(LAVAPIPE, GEFORCE)
    monkeypatch.setenv(adapters.ADAPTER_VARIABLE, " llvm ")
    assert adapters.choose_adapter() is LAVAPIPE
    assert adapters.choose_adapter("geforce") is GEFORCE
    monkeypatch.setenv(adapters.ADAPTER_VARIABLE, "")
    assert adapters.choose_adapter() is GEFORCE


@pytest.mark.parametrize("wanted", ["cpu", "CPU"])
def test_cpu_could_mean_numpy(list_only, wanted):
    """Assert that "cpu" chooses no software adapter, and that the message names the choices."""
    list_only(LAVAPIPE, GEFORCE)
    assert wanted.casefold() in LAVAPIPE.summary.casefold()
    with pytest.raises(AdapterNotFoundError, match="could mean NumPy") as error:
        adapters.choose_adapter(wanted)
    assert 'device="numpy"' in str(error.value)
    assert LAVAPIPE.summary in str(error.value)
    assert adapters.choose_adapter("(cpu)") is LAVAPIPE


@pytest.mark.parametrize("wanted", ["radeon", "GeForce 2"])
def test_no_such_adapter(list_only, wanted):
    """Assert that the message has the request, the adapters of the machine, and the way out."""
    list_only(LAVAPIPE, GEFORCE)
    with pytest.raises(AdapterNotFoundError) as error:
        adapters.choose_adapter(wanted)
    message = str(error.value)
    assert repr(wanted) in message
    assert f"0: {GEFORCE.summary}; 1: {LAVAPIPE.summary}" in message
    assert "install" in message


def test_the_variable_is_named_where_it_is_wrong(list_only, monkeypatch):
    """Assert that the message names the environment variable, which the caller may not know about."""
    list_only(LAVAPIPE)
    monkeypatch.setenv(adapters.ADAPTER_VARIABLE, "radeon")
    with pytest.raises(AdapterNotFoundError, match=r"'radeon' \(from GPUSCAN_ADAPTER\)"):
        adapters.choose_adapter()


@pytest.mark.parametrize("found", [[], [LAVAPIPE]])
def test_the_variable_that_asks_for_no_gpu(list_only, monkeypatch, found):
    """Assert that a call for an adapter gets an error about the variable, not about drivers."""
    list_only(*found)
    monkeypatch.setenv(adapters.ADAPTER_VARIABLE, "NumPy")
    with pytest.raises(
        AdapterNotFoundError, match="GPUSCAN_ADAPTER=numpy asks for no GPU; unset the variable"
    ) as error:
        adapters.choose_adapter()
    assert "install" not in str(error.value)
    if found:
        assert adapters.choose_adapter("llvm") is LAVAPIPE


def test_no_adapter_at_all(list_only, monkeypatch):
    """Assert that the message says what to install."""
    list_only()
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    with pytest.raises(AdapterNotFoundError, match=r"no GPU adapter at all; install.*mesa-vulkan-drivers.*numpy"):
        adapters.choose_adapter()


@pytest.mark.skipif(os.name != "posix", reason="the variable and its message are libwayland's")
def test_finding_adapters_is_silent(monkeypatch):
    """Assert that libwayland does not complain about XDG_RUNTIME_DIR, and that the variable stays unset."""
    code = "import os, gpuscan.device.adapters as a; a.find_adapters(); print(os.environ.get('XDG_RUNTIME_DIR'))"
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("None\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_where_there_is_no_adapter_a_fork_changes_nothing(list_only, monkeypatch):
    """Assert that a child of a process that used no GPU falls back to NumPy as its parent does."""
    list_only()
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    adapters.find_adapters()
    child = os.fork()
    if child == 0:
        try:
            adapters.choose_adapter()
        except AdapterNotFoundError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_adapters_below_the_minimum_of_webgpu_are_left_out(list_only):
    list_only(MOBILE, NARROW, LLVMPIPE)
    assert adapters.find_adapters() == [LLVMPIPE]
