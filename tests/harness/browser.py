"""Headless Chromium, which opens one page after the other, and a server of these pages.

Chromium's WebGPU runs on its own SwiftShader here, so no GPU is needed. One browser opens all pages: starting one takes
longer than most pages do.
"""

from __future__ import annotations

import http.server
import json
import queue
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = [
    "--headless=new",
    "--no-sandbox",  # which root cannot have
    "--disable-dev-shm-usage",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--enable-logging=stderr",
]
SECONDS = 120

# The page that stays open: it asks for the next page, and opens it in a frame.
OPENER = """<!doctype html><title>opener</title><body><script type="module">
for (;;) {
  const { page, width } = await (await fetch("/next")).json();
  document.querySelector("iframe")?.remove();
  const frame = document.createElement("iframe");
  Object.assign(frame.style, { width: width + "px", height: "900px" });
  frame.src = page;
  document.body.append(frame);
}
</script></body>"""


class Browser:
    """A browser that opens pages of folders, and takes what they post. Use it in a `with` statement."""

    def __enter__(self) -> Browser:
        assert BROWSER is not None, "no Chromium or Chrome on this machine; install one"
        self.folders: list[Path] = []
        self.pages: queue.Queue[dict[str, Any]] = queue.Queue()
        self.posted: queue.Queue[bytes] = queue.Queue()
        self.own = tempfile.TemporaryDirectory(prefix="gpuscan-browser-", ignore_cleanup_errors=True)
        self.log = Path(self.own.name) / "log"
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{self.server.server_address[1]}/"
        command = [BROWSER, *FLAGS, f"--user-data-dir={self.own.name}/profile", address]
        with open(self.log, "wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self.pages.put({})  # ends the request that waits
        self.server.shutdown()
        self.server.server_close()
        self.own.cleanup()

    def report_of(self, folder: Path, page: str = "index.html?report", width: int = 1000) -> Any:
        """Open a page of the folder in a frame of this many pixels, and return the JSON that it posts."""
        self.folders.append(folder)
        self.pages.put({"page": f"/{len(self.folders) - 1}/{page}", "width": width})
        return json.loads(self.posted.get(timeout=SECONDS))


def handler_of(browser: Browser) -> type[http.server.SimpleHTTPRequestHandler]:
    """Return the request handler of a browser's server: each folder has its number as its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/next":
                self.answer("application/json", json.dumps(browser.pages.get()).encode())
            elif self.path == "/":
                self.answer("text/html", OPENER.encode())
            else:
                super().do_GET()

        def do_POST(self) -> None:
            browser.posted.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def answer(self, kind: str, content: bytes) -> None:
            with suppress(ConnectionError):  # the browser has been closed
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(content)

        def translate_path(self, path: str) -> str:
            number, _, rest = path.removeprefix("/").partition("/")
            self.directory = str(browser.folders[int(number)]) if number.isdecimal() else browser.own.name + "/none"
            return super().translate_path(f"/{rest}")

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
