"""The built site in headless Chromium. script/docs runs this after the build; it is no part of the ordinary tests."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import get_pyodide
import gpuscan
from gpuscan.tools.matrix.columns import read_columns
from tests.harness.browser import Browser

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = Path(os.environ.get("GPUSCAN_DOCS_SITE", CHECKOUT / "build" / "docs" / "html"))

# The results that the page of the site measured in this machine's browser.
MATRIX = SITE.parent / "matrix-browser.json"

# The widths of the windows, in pixels: a telephone's, and a screen's.
NARROW, WIDE = 390, 1400

# Opens each page in a frame, makes it narrow and wide, and posts what it finds.
VISITOR = """<!doctype html><title>visitor</title><body><script type="module">
const found = {};
const frame = document.createElement("iframe");
frame.style.height = "900px";
document.body.append(frame);
for (const page of PAGES) {
  frame.style.width = WIDTHS.at(-1) + "px";
  await new Promise((resolve) => { frame.onload = resolve; frame.src = "/0" + page; });
  const inside = frame.contentDocument;
  found[page] = {
    title: inside.title,
    heading: inside.querySelector("h1")?.textContent ?? "",
    missing: [...inside.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src),
    shown: [...inside.images].filter((image) => image.clientWidth > 100).length,
    sidebar: !!inside.querySelector(".sidebar-tree a.reference"),
    overflow: {},
  };
  for (const width of WIDTHS) {
    frame.style.width = width + "px";
    found[page].overflow[width] = inside.documentElement.scrollWidth - inside.documentElement.clientWidth;
  }
}
frame.src = "/0/search.html?q=recurrence";
for (let tries = 0; tries < 100; tries++) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  found.search = [...(frame.contentDocument?.querySelectorAll("#search-results li a") ?? [])].map((a) => a.textContent);
  if (found.search.length) break;
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script></body>"""


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """Return the addresses of the site's pages."""
    assert SITE.is_dir(), f"there is no site at {SITE}; run script/docs"
    return sorted(f"/{path.relative_to(SITE).as_posix()}" for path in SITE.rglob("*.html"))


@pytest.fixture(scope="module")
def browser(pages: list[str]) -> Iterator[Browser]:
    with Browser() as opened:
        opened.folders.append(SITE)
        yield opened


@pytest.fixture(scope="module")
def visit(pages: list[str], browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Return what a browser finds on every page, and its log."""
    visited = [page for page in pages if not page.startswith("/_modules/")]
    folder = tmp_path_factory.mktemp("visitor")
    visitor = VISITOR.replace("PAGES", json.dumps(visited)).replace("WIDTHS", json.dumps([NARROW, WIDE]))
    (folder / "visitor.html").write_text(visitor, encoding="utf-8")
    found = browser.report_of(folder, "visitor.html")
    return found, browser.log.read_text(encoding="utf-8", errors="replace")


def test_every_page_opens(visit: tuple[dict[str, Any], str], pages: list[str]) -> None:
    """Find a title, a heading, the sidebar and every picture, and no error in the browser's log.

    The page that runs Python fills its window, so it has no sidebar.
    """
    found, log = visit
    for page, seen in found.items():
        if page == "search":
            continue
        assert "gpuscan" in seen["title"], page
        assert seen["heading"] or page == "/search.html", page
        assert seen["missing"] == [], page
        assert seen["sidebar"] != page.startswith("/_static/"), page
    assert not re.findall(r"CONSOLE.*(?:Uncaught|Failed|Error).*", log)
    assert {"/index.html", "/getting-started.html", "/how-to/README.html", "/api.html", "/tiles.html"} <= found.keys()


def test_no_page_is_wider_than_its_window(visit: tuple[dict[str, Any], str]) -> None:
    wide = {
        (page, width): overflow
        for page, seen in visit[0].items()
        if page != "search"
        for width, overflow in seen["overflow"].items()
        if overflow > 1
    }
    assert wide == {}


def test_the_page_scans_on_the_gpu_of_its_visitor(browser: Browser) -> None:
    """Find speeds that were drawn, conformance cases that passed, and a file for the matrix, which script/matrix takes.

    SwiftShader takes a minute for 2^24 numbers, so the test asks for up to 2^18.
    """
    found = browser.report_of(SITE, "try.html?report&longest=18", NARROW)
    assert "error" not in found, found["error"]
    seen = found.pop("seen")
    assert "All conformance cases passed" in seen["status"]
    assert (seen["lines"], seen["rows"], seen["offered"]) == (3, 4, True)
    assert seen["overflow"] <= 1
    assert found["speeds"][-1]["length"] == 1 << 18
    assert all(min(speed["milliseconds"]) > 0 for speed in found["speeds"])
    MATRIX.write_text(json.dumps(found), encoding="utf-8")
    (column,) = read_columns(MATRIX)
    assert column.failures == ()
    assert column.total.passed == column.total.run > 50
    assert set(column.cells["operator"]) >= {"add", "affine", "compact", "latest", "matmul", "maximum", "multiply"}


def test_the_page_says_what_a_browser_lacks(browser: Browser, tmp_path: Path) -> None:
    """Take WebGPU away, and find an error that names browsers which have it."""
    folder = shutil.copytree(SITE / "_static" / "try", tmp_path / "_static" / "try").parents[1]
    page = (SITE / "try.html").read_text(encoding="utf-8")
    without = '<script>Object.defineProperty(navigator, "gpu", { value: undefined });</script>'
    (folder / "try.html").write_text(page.replace("<head>", f"<head>{without}", 1), encoding="utf-8")
    found = browser.report_of(folder, "try.html?report")
    assert "no WebGPU" in found["error"]
    assert "Chrome" in found["seen"]["status"]
    assert (found["seen"]["lines"], found["seen"]["offered"]) == (0, False)


# Runs the cells of a page in a frame, all by the button of the last one, and posts what they show.
CELLS = """<!doctype html><title>cells</title><body><script type="module">
const frame = document.createElement("iframe");
frame.style.width = "390px";
frame.src = PAGE;
document.body.append(frame);
while (!frame.contentWindow?.gpuscanCells) await new Promise((resolve) => setTimeout(resolve, 50));
const { cells, run } = frame.contentWindow.gpuscanCells;
if (cells.length) await run(cells.length - 1);
const { scrollWidth, clientWidth } = frame.contentDocument.documentElement;
const shown = cells.map((cell) => [cell.code, cell.done, cell.shown.textContent]);
const found = { shown, overflow: scrollWidth - clientWidth };
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script></body>"""


def test_how_to_pages_run_on_the_gpu_of_their_visitor(browser: Browser, tmp_path: Path) -> None:
    """Run the examples of a page, and find the output that the page shows; offer none where a package is missing."""
    browser.folders.append(get_pyodide.get(CHECKOUT / ".venv" / f"pyodide-{get_pyodide.VERSION}"))
    pyodide = len(browser.folders) - 1

    def visit_page(page: str) -> dict[str, Any]:
        address = json.dumps(f"/0/how-to/{page}.html?pyodide=/{pyodide}/")
        (tmp_path / f"{page}.html").write_text(CELLS.replace("PAGE", address), encoding="utf-8")
        found: dict[str, Any] = browser.report_of(tmp_path, f"{page}.html")
        return found

    found = visit_page("replace-cumsum")
    assert len(found["shown"]) >= 1
    for code, done, output in found["shown"]:
        assert done, output
        expected = [line for line in code.splitlines() if not line.startswith((">>> ", "... ", ">>>", "..."))]
        assert [line for line in output.splitlines() if line] == [line for line in expected if line]
    assert found["overflow"] <= 1
    assert visit_page("pytorch")["shown"] == []


def test_the_search_finds(visit: tuple[dict[str, Any], str]) -> None:
    assert any("recurrence" in title.lower() for title in visit[0]["search"]), visit[0]["search"]


def test_everything_public_has_its_docstring() -> None:
    """Find each public name, with its signature, on the page that is made from docstrings."""
    text = (SITE / "api.html").read_text(encoding="utf-8")
    names = set(gpuscan.__all__) - {"__version__"}
    assert not {name for name in names if f'id="gpuscan.{name}"' not in text}


def test_examples_were_run(pages: list[str]) -> None:
    """Find the output of each program."""
    programs = [page for page in pages if page.startswith("/gallery/") and not page.endswith("/index.html")]
    assert len(programs) >= 5
    for page in programs:
        assert "sphx-glr-script-out" in (SITE / page[1:]).read_text(encoding="utf-8"), page


def test_the_gallery_shows_pictures(visit: tuple[dict[str, Any], str]) -> None:
    """See a picture of its own for each example, and the demo's photograph before its blurred copy."""
    cards = (SITE / "gallery" / "index.html").read_text(encoding="utf-8").count('class="sphx-glr-thumbcontainer"')
    assert visit[0]["/gallery/index.html"]["shown"] == cards >= 5
    thumbnails = sorted((SITE / "_images").glob("sphx_glr_*_thumb.png"))
    assert len({path.read_bytes() for path in thumbnails}) == len(thumbnails) >= 5
    before, after = ((SITE / "_images" / f"sphx_glr_box_blur_00{number}.png") for number in (1, 2))
    assert before.stat().st_size > 2 * after.stat().st_size
