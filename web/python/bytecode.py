"""Adds bytecode to gpuscan's wheel for the page: of the modules and templates that a first scan loads.

Bytecode of everything would triple the download, and a first result would wait for that.

The Python of the pinned Pyodide makes the bytecode itself, in headless Chromium: no other Python of the same version is
needed. Any other Python passes over it, and compiles as ever.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import queue
import shutil
import tempfile
import zipfile
from pathlib import Path

import get_pyodide
from tests.harness.browser import Browser

SECONDS = 300

# A first scan loads modules and templates, and Python keeps what it compiles of them. The wheel's sources cannot change
# after it is unpacked, so Python need not compare the modules with their bytecode; templates are always compared.
COMPILE = """
import importlib.util, io, py_compile, sys, zipfile
from pathlib import Path

sys.dont_write_bytecode = False
import gpuscan as gs

device = gs.default_device()
assert gs.scan([3, 1, 4], device=device).tolist() == [3, 4, 8]
package = Path(gs.__file__).parent
for path in package.rglob("__pycache__/*.pyc"):
    source = importlib.util.source_from_cache(str(path))
    py_compile.compile(source, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
made = io.BytesIO()
with zipfile.ZipFile(made, "w") as archive:
    for path in sorted(package.rglob("__pycache__/*")):
        archive.write(path, path.relative_to(package.parent))
made.getvalue()
"""

PAGE = """<!doctype html><title>bytecode</title><script type="module">
let body;
try {
  const { loadPyodide } = await import("/0/pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL: "/0/" });
  await pyodide.loadPackage(["numpy", "jinja2", new URL(WHEEL, location.href).href]);
  body = (await pyodide.runPythonAsync(COMPILE)).toJs();
} catch (error) {
  body = String(error.message);
}
await fetch("/found", { method: "POST", body });
</script>"""


def add_bytecode(wheel: Path) -> None:
    """Add bytecode of the modules and templates that a first scan loads to a wheel.

    Raises:
        RuntimeError: there is no browser that runs Pyodide here, or it fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(wheel, folder)
        page = PAGE.replace("WHEEL", json.dumps(wheel.name)).replace("COMPILE", json.dumps(COMPILE))
        (folder / "index.html").write_text(page, encoding="utf-8")
        with Browser() as browser:
            browser.folders += [get_pyodide.get(), folder]
            browser.pages.put({"page": "/1/index.html", "width": 1000})
            try:
                made = browser.posted.get(timeout=SECONDS)
            except queue.Empty:
                raise RuntimeError(f"the browser posts nothing: {browser.log.read_text()[-3000:]}") from None
    if not made.startswith(b"PK"):
        raise RuntimeError(made.decode())
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        add_files(wheel, {name: archive.read(name) for name in archive.namelist()})


def add_files(wheel: Path, files: dict[str, bytes]) -> None:
    """Add files to a wheel, and to its list of files."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    (record,) = (name for name in contents if name.endswith(".dist-info/RECORD"))
    lines = io.StringIO(newline="")
    lines.write(contents.pop(record).decode())
    writer = csv.writer(lines, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(content)))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in {**contents, **files, record: lines.getvalue().encode()}.items():
            archive.writestr(name, content)
