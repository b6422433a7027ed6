"""What ``import gpuscan`` imports, each time in a process of its own."""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import wgpu

import gpuscan
from tests.harness.processes import python


def run_code(code: str) -> list[str]:
    """Run the code in a Python process, and return the lines that it prints."""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_import_waits_for_its_first_use() -> None:
    """Assert that ``import gpuscan`` imports no other package, and a scan by NumPy neither wgpu nor Jinja2."""
    code = """if True:
        import sys
        before = set(sys.modules)
        import gpuscan
        print(*sys.modules.keys() - before)
        import numpy
        before = set(sys.modules)
        print(gpuscan.scan([1, 2, 3], device="numpy").tolist())
        heavy = {"wgpu", "jinja2", "numpy.ma", "numpy.polynomial", "gpuscan.api.numpy_functions", "gpuscan.api.unique"}
        print(heavy & (sys.modules.keys() - before))
    """
    imported, result, heavy = run_code(code)
    names = set(imported.split())
    own = {name for name in names if name.partition(".")[0] == "gpuscan"}
    assert len(own) <= 10
    assert not any(name.startswith(("gpuscan.api", "gpuscan.engine", "gpuscan.operators")) for name in own)
    packages = {name.partition(".")[0] for name in names - own}
    assert packages <= set(sys.stdlib_module_names)
    assert not packages & {"asyncio", "concurrent", "dataclasses", "hashlib", "inspect", "ssl", "tempfile"}
    assert (result, heavy) == ("[1, 3, 6]", "set()")


def test_arrays_answer_the_protocols_of_numpy(adapter: wgpu.GPUAdapter) -> None:
    """Assert that NumPy's functions take arrays of a device in a process that used nothing else."""
    code = f"""if True:
        import numpy as np
        import gpuscan
        array = gpuscan.Device({adapter.summary!r}).asarray(np.arange(4, dtype=np.int32))
        print(np.cumsum(array).numpy().tolist(), np.add(array, array).numpy().tolist(), array[[0, 2]].tolist())
    """
    assert run_code(code) == ["[0, 1, 3, 6] [0, 2, 4, 6] [0, 2]"]


def test_extrema_of_floats_need_no_other_package(adapter: wgpu.GPUAdapter) -> None:
    """Assert that maxima are computed where ml_dtypes is missing, as in a web page."""
    code = f"""if True:
        import sys
        sys.modules["ml_dtypes"] = None
        import numpy as np
        import gpuscan
        x = np.array([2, 1, 3], np.float32)
        print(gpuscan.scan(x, "maximum", device=gpuscan.Device({adapter.summary!r})).tolist())
    """
    assert run_code(code) == ["[2.0, 2.0, 3.0]"]


def test_public_names() -> None:
    """Assert that every public name has a module, that type checkers read the same ones, and that all are listed."""
    tree = ast.parse(Path(gpuscan.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    modules = {alias.name: node.module for node in checked.body for alias in node.names}  # type: ignore[attr-defined]
    assert modules == gpuscan._MODULES
    assert {*modules, "__version__"} == set(gpuscan.__all__) <= set(dir(gpuscan))
    for name, module in modules.items():
        assert getattr(gpuscan, name) is getattr(import_module(module), name)
    assert not {"Any", "import_module", "sys"} & set(dir(gpuscan))
    with pytest.raises(AttributeError, match="module 'gpuscan' has no attribute 'scann'") as caught:
        gpuscan.scann  # noqa: B018
    # Python then asks whether scan was meant.
    assert (caught.value.name, caught.value.obj) == ("scann", gpuscan)


@pytest.mark.parametrize(("name", "advice"), gpuscan._NAMES_ELSEWHERE.items())
def test_names_of_other_libraries(name: str, advice: str) -> None:
    """Assert that the error names what to write, and that gpuscan has that."""
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Write {re.escape(advice)}$") as caught:
        getattr(gpuscan, name)
    assert (caught.value.name, caught.value.obj) == (name, gpuscan)
    named = re.findall(r"gpuscan\.(\w+)\(", advice)
    assert named
    assert set(named) <= set(gpuscan.__all__)
    assert not hasattr(gpuscan, name)


def test_cumsum_is_advised() -> None:
    """Assert that the name which most people type first leads to both functions that give running sums."""
    with pytest.raises(AttributeError, match=r"gpuscan\.scan\(x\) or gpuscan\.cumulative_sum\(x\)"):
        gpuscan.cumsum  # noqa: B018


def test_packages_are_imported_at_their_first_use() -> None:
    """Assert that ``gpuscan.signal`` needs no import of its own, and that the error names a package that is missing."""
    code = """if True:
        import sys
        import gpuscan
        print("signal" in dir(gpuscan), gpuscan.signal.__name__, "signal" in dir(gpuscan))
        sys.modules["torch"] = None
        try:
            gpuscan.torch
        except AttributeError as error:
            print(error)
    """
    first, second = run_code(code)
    assert first == "False gpuscan.signal True"
    assert second == "gpuscan.torch was asked for, but it needs the package torch; install that"
