"""Exported scans in a real browser: headless Chromium opens the page, and the test reads the page's own check.

Chromium's WebGPU runs on its own SwiftShader here, so no GPU is needed. Where Chromium is not installed the tests of
the page are skipped and those of the files still run; script/test installs it on Debian.
"""

from __future__ import annotations

import http.server
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuscan.api.device import Device
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.tools.export.browser_export import export
from gpuscan.tools.matrix.columns import read_columns

pytestmark = pytest.mark.usefixtures("listed_adapters")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = [
    "--headless=new",
    "--no-sandbox",  # which root cannot have
    "--disable-dev-shm-usage",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
]
SECONDS = 120
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, queue.Queue[bytes]]]:
    """Serve the folder, and yield the address and the queue of what pages post to it."""
    posted: queue.Queue[bytes] = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def do_POST(self) -> None:
            posted.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", posted
        finally:
            server.shutdown()
            thread.join()


def report_of(folder: Path, profile: Path) -> dict[str, Any]:
    """Return what the page in the folder posts after a browser has run it."""
    assert BROWSER is not None
    with served(folder) as (address, posted):
        command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", f"{address}/index.html?report"]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return json.loads(posted.get(timeout=SECONDS))  # type: ignore[no-any-return]
        finally:
            browser.terminate()
            browser.wait()


@needs_browser
@pytest.mark.parametrize(
    ("op", "dtype", "strategy"),
    [
        *(("add", "float32", strategy) for strategy in ("three_dispatch", "fallback")),
        ("maximum", "uint8", "three_dispatch"),
        ("multiply", "int64", "three_dispatch"),
        ("logical_xor", "bool", "three_dispatch"),
        ("logaddexp", "float32", "three_dispatch"),
    ],
)
def test_the_page_checks_itself(tmp_path: Path, op: str, dtype: str, strategy: str) -> None:
    export(tmp_path / "page", op, np.dtype(dtype), 50_000, strategy)
    report = report_of(tmp_path / "page", tmp_path / "profile")
    assert "error" not in report
    (tmp_path / "matrix.json").write_text(json.dumps(report), encoding="utf-8")
    (column,) = read_columns(tmp_path / "matrix.json")
    assert column.failures == ()
    assert column.total.passed == column.total.run >= 6
    assert list(column.cells["strategy"]) == [strategy]
    assert list(column.cells["element"]) == [dtype]


@needs_browser
def test_the_page_tells_a_wrong_result(tmp_path: Path) -> None:
    page = tmp_path / "page"
    export(page, "add", np.dtype(np.uint32), 1000)
    expected = bytearray((page / "check.expected").read_bytes())
    expected[4 * 500] ^= 1
    (page / "check.expected").write_bytes(expected)
    (column,) = report_of(page, tmp_path / "profile")["columns"]
    assert any("element 500" in failure for failure in column["failures"])


# ----- The files


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_files_hold_a_plan_that_compiles(device: Device, tmp_path: Path, strategy: str) -> None:
    plan = export(tmp_path, "add", np.dtype(np.float32), 1 << 20, strategy)
    described = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert [stage["name"] for stage in described["stages"]] == [stage.name for stage in plan.stages]
    for stage in described["stages"]:
        text = (tmp_path / stage["file"]).read_text(encoding="utf-8")
        assert "enable " not in text
        assert "subgroupShuffle" not in text
        assert "var<uniform> params" in text
        device.wgpu_device.create_shader_module(code=text)
        for binding in stage["bindings"]:
            assert f"@binding({binding['binding']})" in text


def test_what_no_browser_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedDtypeError, match="Export float32"):
        export(tmp_path / "page", "add", np.dtype(np.float64), 10)
    with pytest.raises(UnsupportedDtypeError, match="134217728 bytes"):
        export(tmp_path / "page", "add", np.dtype(np.float32), 1 << 28)
    assert not (tmp_path / "page").exists()
