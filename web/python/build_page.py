"""Builds the page "Python on your GPU" into a folder that any static host serves.

Usage: python web/python/build_page.py FOLDER

The folder gets the page, the examples, and gpuscan's wheel. Pyodide comes from its own address, unless config.json or
the page's query `?pyodide=` names another one.

The wheel gets bytecode from Pyodide in headless Chromium. Where that cannot run, the page works without it.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
sys.path.insert(0, str(CHECKOUT))  # this file may be run as a program

from bytecode import add_bytecode  # noqa: E402

FILES = ("index.html", "page.js", "python.js", "worker.js", "cells.js", "style.css", "helpers.py")
# The programs of examples/ that the page offers. They need no other package and compile fast.
EXAMPLES = (
    "argmax_so_far",
    "exponential_average",
    "fill_gaps",
    "forward_fill",
    "group_statistics",
    "integral_image",
    "maximum_drawdown",
    "advantage_estimation",
    "advantages_by_a_loop",
    "bucket_with_a_lid",
    "stream_of_chunks",
    "weighted_sampling",
)


def example(name: str) -> dict[str, str]:
    """Return the title and the code of an example. The title is the first sentence of its docstring."""
    code = (CHECKOUT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    title = (ast.get_docstring(ast.parse(code)) or name).split("\n\n")[0].replace("\n", " ")
    return {"name": name, "title": title.split(":")[0].rstrip("."), "code": code}


def build_wheel(folder: Path) -> str:
    """Build gpuscan's wheel into a folder, and return its name."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", temporary, str(CHECKOUT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(temporary).glob("*.whl")
        shutil.copy(wheel, folder)
        return wheel.name


def build(folder: Path) -> Path:
    """Write the page into a folder, which is replaced, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(HERE / name, folder)
    config = {"wheel": build_wheel(folder)}
    try:
        add_bytecode(folder / config["wheel"])
    except (AssertionError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"The wheel gets no bytecode, and a first result in the page takes longer: {error}", file=sys.stderr)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "examples.json").write_text(json.dumps([example(name) for name in EXAMPLES]), encoding="utf-8")
    return folder


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
