"""The wheel: what is in it, and that it works in an empty environment away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import gpuscan

CHECKOUT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that knows nothing of the checkout and must succeed. Return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    result = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"{command} exited {result.returncode}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the sdist of the checkout, and return its path."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, CHECKOUT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def command_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a fresh environment, and return the folder of its commands."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "env")
    commands = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    # A pip of the environment's own, and compiling all packages, would take twice as long as the rest.
    install = ("--python", commands / "python", "install", "--quiet", "--no-compile", wheel)
    run(sys.executable, "-m", "pip", *install, cwd=folder)
    return commands


def test_wheel_carries_shaders_and_cli(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("gpuscan/cli.py") == (CHECKOUT / "cli.py").read_bytes()
    for folder, target in (("shaders", "gpuscan/shaders"), ("gpuscan", "gpuscan")):
        for path in (CHECKOUT / folder).rglob("*"):
            if path.suffix in (".py", ".wgsl", ".typed"):
                assert names.count(f"{target}/{path.relative_to(CHECKOUT / folder).as_posix()}") == 1
    assert {name.split("/")[0] for name in names} == {"gpuscan", f"gpuscan-{gpuscan.__version__}.dist-info"}


def test_installed_wheel_scans(command_folder: Path, tmp_path: Path) -> None:
    code = "import numpy, gpuscan as gs; print(gs.__file__); print(gs.scan(numpy.arange(1000, dtype='u4'), 'add')[-1])"
    file, total = run(command_folder / "python", "-W", "ignore", "-c", code, cwd=tmp_path).split("\n")[:2]
    assert not Path(file).is_relative_to(CHECKOUT)
    assert int(total) == 999 * 1000 // 2


def test_installed_commands(command_folder: Path, tmp_path: Path) -> None:
    by_name = run(command_folder / "gpuscan", "probe", "--json", cwd=tmp_path)
    by_module = run(command_folder / "python", "-m", "gpuscan", "probe", "--json", cwd=tmp_path)
    assert json.loads(by_name) == json.loads(by_module)
    assert gpuscan.__version__ in run(command_folder / "gpuscan", "--version", cwd=tmp_path)


def test_checkout_runs_without_an_install() -> None:
    # -m puts the folder it is called in before anything installed.
    assert gpuscan.__version__ in run(sys.executable, "-m", "gpuscan", "--version", cwd=CHECKOUT)


@pytest.mark.parametrize("module", ["gpuscan", "gpuscan.cli"])
def test_import_loads_no_slow_package(module: str, tmp_path: Path) -> None:
    """Assert that the import loads no slow package; benchmarks/startup.py measures the rest."""
    slow = {"wgpu", "torch", "jinja2", "rich", "matplotlib", "triton"} | ({"click"} if module == "gpuscan" else set())
    code = f"import sys, {module}; print(*sorted({slow!r} & set(sys.modules)))"
    assert run(sys.executable, "-c", code, cwd=CHECKOUT).split() == []
