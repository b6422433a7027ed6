"""gpuscan under Pyodide in headless Chromium: the conformance suite, the examples, and the page "Python on your GPU".

script/browser runs this; it is no part of the ordinary tests. It takes about half an hour on two cores, most of
it for SwiftShader to compile shaders. $MATRIX_OUTPUT names a folder for the column of the matrix.
"""

from __future__ import annotations

import json
import os
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import build_page
import get_pyodide
from gpuscan.tools.matrix.columns import read_columns
from gpuscan.tools.probe import FORMAT
from tests.harness.browser import Browser

CHECKOUT = build_page.CHECKOUT
MATRIX = Path(os.environ.get("MATRIX_OUTPUT") or CHECKOUT / "build" / "browser") / "matrix-pyodide.json"
# Cases between two turns of the page, and the seconds that a page may take to post something.
CASES_AT_A_TIME, SECONDS = 50, 1200
# Examples that need another package, or wgpu itself.
ELSEWHERE = {
    "associative_recall",
    "box_blur",
    "draw_a_walk",
    "inside_an_encoder",
    "mpi_scan",
    "selective_copying",
    "train_recurrent_layer",
}

# Runs programs in a worker. After each it posts what they printed so far, and the value that the last one ended with.
RUNNER = """<!doctype html><title>runner</title><script type="module">
import { Python } from "/0/python.js";
const found = { lines: [], steps: [], left: CODES.length };
const post = () => fetch("/found", { method: "POST", body: JSON.stringify(found) });
try {
  const python = new Python();
  for (const code of CODES) {
    found.steps.push(await python.run(code, ({ text }) => found.lines.push(text)));
    found.value = VALUE && (await python.evaluate(VALUE));
    found.left -= 1;
    await post();
  }
} catch (error) {
  found.error = String(error.message);
  await post();
}
</script>"""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser with a server of three folders: the built page, Pyodide, and the wheel without bytecode."""
    page = build_page.build(tmp_path_factory.mktemp("page") / "python")
    pure = tmp_path_factory.mktemp("pure")
    (pure / "config.json").write_text(json.dumps({"wheel": build_page.build_wheel(pure)}), encoding="utf-8")
    with Browser() as opened:
        opened.folders += [page, get_pyodide.get(), pure]
        yield opened


def open_page(browser: Browser, folder: Path, text: str) -> Any:
    """Open a page that uses the folders of the browser's server, and return what it posts."""
    (folder / "opened.html").write_text(text, encoding="utf-8")
    browser.folders.append(folder)
    number = len(browser.folders) - 1
    browser.pages.put({"page": f"/{number}/opened.html?pyodide=/1/", "width": 1000})
    return wait_for_post(browser)


def wait_for_post(browser: Browser) -> Any:
    """Return the next JSON that the open page posts."""
    try:
        return json.loads(browser.posted.get(timeout=SECONDS))
    except queue.Empty:
        raise AssertionError(f"the page posts nothing; the browser says {browser.log.read_text()[-3000:]}") from None


def ran(
    browser: Browser,
    folder: Path,
    *codes: str,
    value: str = "",
    note: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Run programs in turn in one Python, and return what the runner found. `note` gets what it found so far."""
    found: dict[str, Any] = open_page(
        browser, folder, RUNNER.replace("CODES", json.dumps(codes)).replace("VALUE", json.dumps(value))
    )
    while "error" not in found and found["left"]:
        note(found)
        found = wait_for_post(browser)
    assert "error" not in found, found["error"]
    note(found)
    return found


# ----- The library


BEGIN = """
import gpuscan as gs
from gpuscan.tools.matrix.columns import run_column, to_json
from gpuscan.tools.matrix.conformance import suite

device, cases, column = gs.default_device(), suite(False), None
"""
CONTINUE = """
column = run_column(device, cases[:{stop}], "full", start=column)
print(column.total)
"""


def test_the_conformance_suite(browser: Browser, tmp_path: Path) -> None:
    """Compare at least 1,000 results with NumPy's, to the bit, and keep the column for docs/matrix.md."""
    MATRIX.parent.mkdir(parents=True, exist_ok=True)

    def keep(found: dict[str, Any]) -> None:
        assert all(found["steps"]), "\n".join(found["lines"])
        if found["value"]:
            MATRIX.write_text(found["value"], encoding="utf-8")
            print(f"conformance: {found['lines'][-1]}", flush=True)

    stops = range(CASES_AT_A_TIME, 2_000, CASES_AT_A_TIME)
    ran(
        *(browser, tmp_path, BEGIN, *(CONTINUE.format(stop=stop) for stop in stops)),
        value="to_json([column]) if column else ''",
        note=keep,
    )
    (column,) = read_columns(MATRIX)
    assert column.failures == ()
    assert column.total.passed == column.total.run >= 1_000
    assert "by Pyodide" in column.implementation


def examples() -> list[str]:
    names = {path.stem for path in (CHECKOUT / "examples").glob("*.py")}
    assert names >= ELSEWHERE
    return sorted(names - ELSEWHERE)


def test_the_examples(browser: Browser, tmp_path: Path) -> None:
    """Run every example that needs no other package. Each compares its results with NumPy itself."""
    names = examples()
    assert len(names) >= 12
    codes = [(CHECKOUT / "examples" / f"{name}.py").read_text(encoding="utf-8") for name in names]
    found = ran(browser, tmp_path, *codes)
    assert found["steps"] == [True] * len(names), "\n".join(found["lines"])


SMALL = """
import asyncio, json, warnings
import numpy as np
import gpuscan as gs

device = gs.default_device()
found = {}
bits = np.random.default_rng(0).integers(0, 2**32, 200_003, np.uint32)
for dtype in (np.uint32, np.int32, np.uint8, np.int64):
    x = bits.view(np.int32).astype(dtype)
    same = np.array_equal(gs.scan(x), gs.scan(x, device="numpy")) and np.array_equal(gs.sort(x), np.sort(x))
    found[np.dtype(dtype).name] = same
y = bits.view(np.int32).astype(np.float32)
found["floats"] = gs.scan(y, "maximum").tobytes() == np.maximum.accumulate(y).tobytes()


async def several(length):
    x = bits[:length]
    for _ in range(3):
        if not np.array_equal(gs.scan(x), np.cumsum(x, dtype=np.uint32)):
            return False
        await asyncio.sleep(0)
    return True


# Calls of several tasks take turns while they wait.
found["tasks"] = all(await asyncio.gather(several(100), several(200_003), several(5_000)))
found["later"] = bool((device.asarray(bits).read_async().result() == bits).all())
with device.profile() as profile:
    gs.scan(bits, device=device)
found["spans"] = len(profile.spans) > 0
"""

WRONG = """
import numpy as np
import gpuscan as gs


def broken(l, r):
    return l + r if l > 0 else r


gs.scan(np.ones(9, np.float32), broken)
"""


def test_results_have_the_bits_of_numpy(browser: Browser, tmp_path: Path) -> None:
    """Compare types, calls of several tasks, later reads and timestamps."""
    found = ran(browser, tmp_path, SMALL, value="json.dumps(found)")
    assert found["steps"] == [True], found["lines"]
    assert all(json.loads(found["value"]).values()), found["value"]


def test_what_a_page_lacks_is_said(browser: Browser, tmp_path: Path) -> None:
    """Show the error of a program by its own lines, and run on NumPy, with a warning, where a call cannot wait."""
    sync = """
import warnings
import js
from pyodide.code import run_js
import gpuscan as gs
results = []
def call():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results.append((gs.scan([1, 2, 3]).tolist(), [str(each.message) for each in caught]))
from pyodide.ffi import create_once_callable
run_js("(call) => call()")(create_once_callable(call))
print(results)
"""
    found = ran(browser, tmp_path, sync, WRONG)
    assert found["steps"] == [True, False]
    text = "\n".join(found["lines"])
    assert "[1, 3, 6]" in text
    assert "pyodide.runPythonAsync" in text
    assert 'File "program.py", line 10, in <module>' in text
    assert "gpuscan.errors.OperatorError" in text
    assert "_pyodide" not in text


MICROPIP = """<!doctype html><title>micropip</title><script type="module">
const found = {};
try {
  const { loadPyodide } = await import("/1/pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL: "/1/" });
  await pyodide.loadPackage("micropip");
  const { wheel } = await (await fetch("/FOLDER/config.json")).json();
  const start = performance.now();
  pyodide.globals.set("wheel", `${location.origin}/FOLDER/${wheel}`);
  await pyodide.runPythonAsync("import micropip; await micropip.install(wheel)");
  found.sums = await pyodide.runPythonAsync("import gpuscan as gs; str(gs.scan([3, 1, 4]).tolist())");
  found.seconds = (performance.now() - start) / 1000;
  found.packages = await pyodide.runPythonAsync("' '.join(sorted(micropip.list()))");
} catch (error) {
  found.error = String(error.message);
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script>"""


def size_of_wheel(folder: Path) -> int:
    (wheel,) = folder.glob("*.whl")
    return wheel.stat().st_size


def install(browser: Browser, folder: Path, number: int) -> float:
    """Let micropip install the wheel of a folder with all that it needs, scan, and return the seconds of it."""
    found = open_page(browser, folder, MICROPIP.replace("FOLDER", str(number)))
    assert "error" not in found, found["error"]
    assert found["sums"] == "[3, 4, 8]"
    assert not {"click", "platformdirs", "rich", "wgpu"} & set(found["packages"].split())
    return float(found["seconds"])


def test_micropip_installs_the_wheel(browser: Browser, tmp_path: Path) -> None:
    """Install the page's wheel in the page itself, and scan there."""
    seconds = install(browser, tmp_path, 0)
    print(f"wheel: {size_of_wheel(browser.folders[0]):,} bytes; a first result {seconds:.1f} s after Pyodide")
    # It takes 2 to 3 s; a busy machine may take twice as long.
    assert seconds < 8


def test_micropip_installs_the_wheel_without_bytecode(browser: Browser, tmp_path: Path) -> None:
    """Install the wheel as it goes to PyPI. The page's wheel is twice as large."""
    size = size_of_wheel(browser.folders[2])
    assert size < 2_000_000
    assert size_of_wheel(browser.folders[0]) < 3_000_000
    seconds = install(browser, tmp_path, 2)
    print(f"wheel without bytecode: {size:,} bytes; a first result {seconds:.1f} s after Pyodide")


# Installs the wheel of a folder without importing it, and runs a program.
BYTECODE = """<!doctype html><title>bytecode</title><script type="module">
const found = {};
try {
  const { loadPyodide } = await import("/1/pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL: "/1/" });
  const { wheel } = await (await fetch("/FOLDER/config.json")).json();
  await pyodide.loadPackage(["numpy", "jinja2", new URL(`/FOLDER/${wheel}`, location.href).href]);
  Object.assign(found, JSON.parse(await pyodide.runPythonAsync(CODE)));
} catch (error) {
  found.error = String(error.message);
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script>"""
COMPILED = """
import importlib.util, json, sys
from pathlib import Path

compiled = []


def note_compilation(event, arguments):
    if event == "compile" and "/gpuscan/" in str(arguments[1]):
        compiled.append(str(arguments[1]))


package = Path(importlib.util.find_spec("gpuscan").origin).parent
stale = []
for path in package.rglob("__pycache__/*.pyc"):
    source = Path(importlib.util.source_from_cache(str(path))).read_bytes()
    # The version of Python, "by a hash that is not compared", and the hash.
    head = importlib.util.MAGIC_NUMBER + b"\\1\\0\\0\\0" + importlib.util.source_hash(source)
    if path.read_bytes()[:16] != head:
        stale.append(str(path))
sys.addaudithook(note_compilation)
import gpuscan as gs

sums = gs.scan([3, 1, 4], device=gs.default_device()).tolist()
json.dumps({"stale": stale, "compiled": compiled, "sums": sums})
"""


def compilations(browser: Browser, folder: Path, number: int) -> list[str]:
    """Return the modules and templates that Python compiles for a first scan with the wheel of a folder."""
    text = BYTECODE.replace("FOLDER", str(number)).replace("CODE", json.dumps(COMPILED))
    found = open_page(browser, folder, text)
    assert "error" not in found, found["error"]
    assert found["sums"] == [3, 4, 8]
    assert found["stale"] == []
    return list(found["compiled"])


def test_a_first_scan_compiles_nothing(browser: Browser, tmp_path: Path) -> None:
    """Assert that the page's wheel has the bytecode of its own sources for Pyodide's Python, which uses it."""
    assert compilations(browser, tmp_path, 0) == []


def test_a_wheel_without_bytecode_is_compiled(browser: Browser, tmp_path: Path) -> None:
    names = [Path(name).name for name in compilations(browser, tmp_path, 2)]
    assert {"__init__.py", "scan.py", "scan.wgsl"} <= set(names)


# ----- The page


VISITOR = """<!doctype html><title>visitor</title><body><script type="module">
const found = {};
try {
  const frame = document.createElement("iframe");
  Object.assign(frame.style, { width: WIDTH + "px", height: "900px", border: "0" });
  frame.src = "/0/index.html?pyodide=/1/&longest=12&brief";
  document.body.append(frame);
  while (!frame.contentWindow?.gpuscanPage) await new Promise((resolve) => setTimeout(resolve, 50));
  const page = frame.contentWindow.gpuscanPage;
  const terminal = () => page.root.querySelector(".terminal").textContent;
  found.examples = page.examples.length;
  found.first = [await page.run(), terminal()];
  page.named("code").value = WRONG;
  found.wrong = [await page.run(), terminal()];
  page.named("code").value = "while True: pass";
  const endless = page.run();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  page.named("stop").click();
  found.stopped = [await endless, page.root.querySelector(".status").textContent];
  found.points = (await page.measure()).length;
  found.lines = page.root.querySelectorAll("figure polyline").length;
  found.report = await page.report();
  found.offered = page.root.querySelector(".offer a")?.download;
  const { scrollWidth, clientWidth } = frame.contentDocument.documentElement;
  found.overflow = scrollWidth - clientWidth;
} catch (error) {
  found.error = String(error.stack ?? error.message);
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script></body>"""


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page(browser: Browser, tmp_path: Path, width: int) -> None:
    """Run the first example, an error and an endless loop; measure speeds; and make the report."""
    found = open_page(browser, tmp_path, VISITOR.replace("WIDTH", str(width)).replace("WRONG", json.dumps(WRONG)))
    assert "error" not in found, found["error"]
    assert found["examples"] >= 12
    right, text = found["first"]
    assert right is True, text
    assert "via WebGPU" in text
    right, text = found["wrong"]
    assert right is False
    assert text.startswith("Traceback (most recent call last):\n")
    assert 'File "program.py", line 10' in text
    assert found["stopped"] == [None, "stopped"]
    assert (found["points"], found["lines"]) == (2, 3)
    assert found["report"]["content"]["format"] == FORMAT
    assert found["report"]["content"]["matrix"]["failures"] == []
    assert found["offered"] == found["report"]["name"]
    assert found["overflow"] <= 1
