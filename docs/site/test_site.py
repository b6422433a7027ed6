"""The built site in headless Chromium. script/docs runs this after the build; it is no part of the ordinary tests."""

from __future__ import annotations

import http.server
import json
import os
import queue
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import gpuscan

SITE = Path(os.environ.get("GPUSCAN_DOCS_SITE", Path(__file__).resolve().parents[2] / "build" / "docs" / "html"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--enable-logging=stderr"]
SECONDS = 120

# The widths of the windows, in pixels: a telephone's, and a screen's.
NARROW, WIDE = 390, 1400

# Opens each page in frames of both widths, and posts what it finds.
VISITOR = """<!doctype html><title>visitor</title><script type="module">
const pages = PAGES, found = {};
for (const page of pages) {
  found[page] = {};
  for (const width of WIDTHS) {
    const frame = document.createElement("iframe");
    frame.style.width = width + "px";
    frame.style.height = "900px";
    frame.src = page;
    await new Promise((resolve) => { frame.onload = resolve; document.body.append(frame); });
    const inside = frame.contentDocument;
    found[page][width] = {
      title: inside.title,
      heading: inside.querySelector("h1")?.textContent ?? "",
      overflow: inside.documentElement.scrollWidth - inside.documentElement.clientWidth,
      missing: [...inside.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src),
      sidebar: !!inside.querySelector(".sidebar-tree a.reference"),
    };
    frame.remove();
  }
}
const frame = document.createElement("iframe");
frame.src = "/search.html?q=recurrence";
document.body.append(frame);
for (let tries = 0; tries < 100; tries++) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  found.search = [...(frame.contentDocument?.querySelectorAll("#search-results li a") ?? [])].map((a) => a.textContent);
  if (found.search.length) break;
}
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script><body></body>"""


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """Return the addresses of the site's pages."""
    assert SITE.is_dir(), f"there is no site at {SITE}; run script/docs"
    return sorted(f"/{path.relative_to(SITE).as_posix()}" for path in SITE.rglob("*.html"))


@pytest.fixture(scope="module")
def visit(pages: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Return what a browser finds on every page, and its log."""
    assert BROWSER is not None, "no Chromium or Chrome on this machine; install one"
    posted: queue.Queue[bytes] = queue.Queue()
    visited = [page for page in pages if not page.startswith("/_modules/")]
    visitor = VISITOR.replace("PAGES", json.dumps(visited)).replace("WIDTHS", json.dumps([NARROW, WIDE]))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(SITE))

        def do_GET(self) -> None:
            if self.path != "/visitor":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(visitor.encode())

        def do_POST(self) -> None:
            posted.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    log = tmp_path_factory.mktemp("browser") / "log"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, open(log, "wb") as errors:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}/visitor"
        command = [BROWSER, *FLAGS, f"--user-data-dir={log.parent / 'profile'}", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            found = json.loads(posted.get(timeout=SECONDS))
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
            thread.join()
    return found, log.read_text(encoding="utf-8", errors="replace")


def test_every_page_opens(visit: tuple[dict[str, Any], str], pages: list[str]) -> None:
    """Find a title, a heading, the sidebar and every picture, and no error in the browser's log."""
    found, log = visit
    for page, widths in found.items():
        if page == "search":
            continue
        for seen in widths.values():
            assert "gpuscan" in seen["title"], page
            assert seen["heading"] or page == "/search.html", page
            assert seen["missing"] == [], page
            assert seen["sidebar"], page
    assert not re.findall(r"CONSOLE.*(?:Uncaught|Failed|Error).*", log)
    assert {"/index.html", "/getting-started.html", "/how-to/README.html", "/api.html", "/tiles.html"} <= found.keys()


def test_no_page_is_wider_than_its_window(visit: tuple[dict[str, Any], str]) -> None:
    wide = {
        (page, width): seen["overflow"]
        for page, widths in visit[0].items()
        if page != "search"
        for width, seen in widths.items()
        if seen["overflow"] > 1
    }
    assert wide == {}


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
