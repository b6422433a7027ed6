"""The notebook of the examples, and how objects show in one."""

from __future__ import annotations

import ast
import json
import sys
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "gpuscan.ipynb"


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last expression, which a notebook shows."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)


class Cells(HTMLParser):
    """The texts of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


@pytest.mark.usefixtures("skip_without_adapters")
def test_the_notebook_runs() -> None:
    """Run each cell. A cell that ends in a device's object shows a table."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in notebook["cells"])
    names: dict[str, Any] = {}
    results = [run_cell(cell, names) for cell in cells]
    tables = [type(result).__name__ for result in results if hasattr(result, "_repr_html_")]
    assert tables == ["Capabilities", "Plan", "Profile"]


def test_tables_of_objects(device: gpuscan.Device) -> None:
    """Show what the objects hold, in whole HTML with every text escaped."""
    found = dict(Cells(device.capabilities._repr_html_()).rows)
    assert device.capabilities.backend in found["backend"]
    assert found.keys() >= {"driver", "subgroups", "progress", "elements", "limits"}
    assert device._repr_html_() == device.capabilities._repr_html_()
    plan = device.plan(100, np.float32, gpuscan.operator(lambda l, r: l + r, name="sum<b>"), strategy="three_dispatch")
    table = Cells(plan._repr_html_())
    assert dict(table.rows)["array"] == "float32 (100,)"
    assert "sum&lt;b&gt;" in plan._repr_html_()
    with device.profile() as profile:
        gpuscan.scan(np.ones(100, np.float32), device=device)
    head, row = Cells(profile._repr_html_()).rows
    assert head == ["stage", "strategy", "elements", "GPU time"]
    assert (row[0], row[2]) == ("scan", "100")


def test_a_notebook_without_ipywidgets_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan with a bar that cannot be shown, without rich's warning to install ipywidgets, which would be an error."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=print))
    x = np.ones(1000, np.float32)
    with gpuscan.progress_bar(x.nbytes):
        assert gpuscan.scan(x)[-1] == 1000
