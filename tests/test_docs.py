"""Run the examples of the docstrings and of the Markdown pages, and check what the pages refer to."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import itertools
import json
import logging
import os
import pkgutil
import re
import runpy
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan
from gpuscan.elements import SCALARS
from gpuscan.operators.named_operators import BUILTINS
from tests.harness.devices import hide_adapters

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("benchmarks/**/*.md")])
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Only an adapter can run examples with these names. They are skipped on a machine without one.
NEEDS_ADAPTER = re.compile(r"default_device|Device\(|devices\(\)|wgsl_operator")


def python_blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@cache
def runs_without_adapter() -> bool:
    """Return True if this machine has no adapter and the environment allows that."""
    if os.environ.get("GPUSCAN_TEST_MIN_ADAPTERS") != "0":
        return False
    try:
        gpuscan.default_device()
    except gpuscan.AdapterNotFoundError:
        return True
    return False


def run(test: doctest.DocTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one session, on NumPy if the machine has no adapter, and fail with doctest's report of the differences."""
    if runs_without_adapter():
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    report: list[str] = []
    log, level = logging.getLogger("gpuscan"), logging.getLogger("gpuscan").level
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    log.setLevel(level)  # a page tells how to change it
    if report:
        pytest.fail("".join(report), pytrace=False)


# ----- Programs

# box_blur.py needs a photograph that another package carries; script/demo runs it. tests/test_mpi.py runs mpi_scan.py.
NOT_RUN = {"box_blur.py", "mpi_scan.py"}
PROGRAMS = sorted(path for path in (CHECKOUT / "examples").glob("*.py") if path.name not in NOT_RUN)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_example_program(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a program, which checks its own result."""
    if importlib.util.find_spec("torch") is None and "import torch" in program.read_text(encoding="utf-8"):
        pytest.skip("PyTorch is not installed")
    if runs_without_adapter():
        if NEEDS_ADAPTER.search(program.read_text(encoding="utf-8")):
            pytest.skip("no adapter on this machine")
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    runpy.run_path(str(program), run_name="__main__")


# ----- Docstrings


def module_examples() -> list[doctest.DocTest]:
    """Return the docstrings of gpuscan that hold examples."""
    names = [module.name for module in pkgutil.walk_packages(gpuscan.__path__, "gpuscan.")]
    left_out = ("gpuscan.__main__", *(["gpuscan.torch"] if importlib.util.find_spec("torch") is None else []))
    modules = [importlib.import_module(name) for name in names if not name.startswith(left_out)]
    tests = [test for module in [gpuscan, *modules] for test in doctest.DocTestFinder().find(module)]
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("test", module_examples(), ids=lambda test: test.name)
def test_docstring(test: doctest.DocTest, monkeypatch: pytest.MonkeyPatch) -> None:
    if runs_without_adapter() and NEEDS_ADAPTER.search(test.docstring or ""):
        pytest.skip("no adapter on this machine")
    run(test, monkeypatch)


PUBLIC = [name for name in gpuscan.__all__ if inspect.isfunction(getattr(gpuscan, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(gpuscan, name)) or ""), f"gpuscan.{name} has no runnable example"


def test_every_method_of_an_array_has_an_example() -> None:
    """Assert that each public method and computed attribute of arrays on a device has a runnable example."""
    bare = set()
    for name, member in inspect.getmembers(gpuscan.Array):
        function: Any = member.fget if isinstance(member, property) else member
        own = str(getattr(function, "__module__", "")).startswith("gpuscan.api.")
        if own and not name.startswith("_") and ">>> " not in (inspect.getdoc(member) or ""):
            bare.add(name)
    assert bare == set()


# ----- Pages


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.name)
def test_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page as one session, in which later blocks see the names of earlier ones."""
    blocks = python_blocks(page)
    if runs_without_adapter():
        # Later blocks may use what the first one with a device made.
        blocks = list(itertools.takewhile(lambda block: not NEEDS_ADAPTER.search(block), blocks))
    for package in ("torch", "dask", "jax"):
        if importlib.util.find_spec(package) is None and any(f"import {package}" in block for block in blocks):
            pytest.skip(f"{package} is not installed")
    run(doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, page.name, 0), monkeypatch)


def test_pages_have_no_python_that_is_not_run() -> None:
    for page in PAGES:
        for block in python_blocks(page):
            assert block.startswith(">>> "), f"{page.name}: a block that doctest would pass over:\n{block}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}, but there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_named_files_exist(page: Path) -> None:
    """Find each file that a page names by its path, in the checkout or in the package."""
    for name in re.findall(r"`([\w./]+/[\w./]+\.(?:py|wgsl))`", page.read_text(encoding="utf-8")):
        assert (CHECKOUT / name).exists() or (CHECKOUT / "gpuscan" / name).exists(), f"{page.name} names {name}"


def test_named_modules_exist() -> None:
    """Find each module that the table of docs/architecture.md names, and name each module of a package there."""
    text = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## How large it is")[0]
    rows = re.findall(r"^\| `(\w+)/` \|[^|]*\| (.*) \|$", text, re.MULTILINE)
    assert len(rows) >= 10
    for package, modules in rows:
        folder = CHECKOUT / package if package in ("benchmarks", "shaders", "tests") else CHECKOUT / "gpuscan" / package
        for module in re.findall(r"`(\w+)(/?)`", modules):
            name = module[0] + (module[1] or ".py")
            assert (folder / name).exists(), f"docs/architecture.md names {package}/{name}"
        if folder.parent.name == "gpuscan":
            missing = {path.stem for path in folder.glob("*.py")} - {"__init__", *re.findall(r"`(\w+)`", modules)}
            assert not missing, f"docs/architecture.md does not name {', '.join(sorted(missing))} of {package}/"


def test_the_reference_names_everything_public() -> None:
    reference = (CHECKOUT / "docs" / "reference.md").read_text(encoding="utf-8")
    names = set(gpuscan.__all__) - {"__version__"}
    assert not {name for name in names if not re.search(rf"\b{name}\b", reference)}


def test_the_page_of_operators_names_every_operator_and_type() -> None:
    page = (CHECKOUT / "docs" / "operators.md").read_text(encoding="utf-8")
    names, types = page.partition("## By name")[2].partition("##")[0], page.partition("## Types")[2].partition("##")[0]
    assert not [name for name in BUILTINS if f"`{name}`" not in names]
    assert not [name for name in SCALARS if f"{name}`" not in types]


def test_every_decision_is_in_the_index() -> None:
    folder = CHECKOUT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert not {page.name for page in folder.glob("[0-9]*.md") if f"({page.name})" not in index}


def test_superseded_decisions_name_each_other() -> None:
    """Find in the first lines of a superseded page the new one, which names it too, and both in the index."""
    folder = CHECKOUT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    superseded = 0
    for page in folder.glob("[0-9]*.md"):
        found = re.match(r"#.*\n\nSuperseded .*?\(((\d+)[^)]*)\)", page.read_text(encoding="utf-8"))
        marked = re.search(rf"\({re.escape(page.name)}\); partly superseded by (\d+)", index)
        assert (found and found[2]) == (marked and marked[1]), page.name
        if found:
            assert f"({page.name})" in (folder / found[1]).read_text(encoding="utf-8"), page.name
            superseded += 1
    assert superseded >= 5


def test_the_pictures_are_what_their_scripts_draw() -> None:
    script = runpy.run_path(str(CHECKOUT / "docs" / "images" / "draw_strategies.py"))
    assert script["PICTURE"].read_text(encoding="utf-8") == script["picture"]()
    for path, picture in runpy.run_path(str(CHECKOUT / "docs" / "images" / "draw_steps.py"))["pictures"]().items():
        assert path.read_text(encoding="utf-8") == picture


@cache
def made_tables() -> dict[str, Any]:
    """Return the names of benchmarks/make_tables.py."""
    return runpy.run_path(str(CHECKOUT / "benchmarks" / "make_tables.py"))


def test_the_tables_are_those_of_the_files() -> None:
    """Make each block of measurements again, and find a few numbers without the script."""
    script = made_tables()
    blocks = []
    for page in script["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert text == script["page_text"](page), f"run benchmarks/make_tables.py: {page.name}"
        blocks += [found.group(2, 3) for found in script["BLOCK"].finditer(text)]
    assert len(blocks) >= 8
    data = json.loads((CHECKOUT / "benchmarks" / "results" / "h100-sums.json").read_text(encoding="utf-8"))
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| gpuscan \(`lookahead`\) \| (.+) \|$", readme, re.MULTILINE)
    speeds = {
        each["length"]: each["gigabytes_per_second"] for each in data["measurements"] if each["name"] == "lookahead"
    }
    assert [int(cell) for cell in row.split(" | ")] == [round(speeds[1 << power]) for power in (20, 25, 28)]
    assert f"h100-sums.json), {data['date'][:10]})" in readme


def test_the_demo_shows_the_speed_of_a_gpu() -> None:
    """Find the times of a GPU's file in the rows that the demo shows where a CPU plays the GPU."""
    demo = runpy.run_path(str(CHECKOUT / "examples" / "box_blur.py"), run_name="demo")
    data = json.loads(demo["FIGURES"].read_text(encoding="utf-8"))
    (kept,) = [
        each
        for each in data["measurements"]
        if (each["name"], each["length"]) == ("lookahead", demo["LENGTH"]) and each["microseconds"]
    ]
    rows = demo["speeds_of_a_gpu"]()
    assert [name.partition(", ")[2] for name, _, _ in rows] == ["memory to memory", "in the GPU's memory"]
    assert rows[1][1] == f"{kept['microseconds'] / 1e3:.3g} ms"
    assert int(rows[1][2].replace(",", "")) == round(demo["LENGTH"] / kept["microseconds"])


def test_pages_cite_figures_only_in_blocks() -> None:
    """Find no link to a file of figures, and no plot, that the script does not make."""
    script = made_tables()
    for page in PAGES:
        outside = script["BLOCK"].sub("", page.read_text(encoding="utf-8"))
        assert not re.findall(r"\]\([^)]*benchmarks/results/[^)]*\.(?:json|png)\)", outside), page.name


def test_the_script_makes_every_table_of_performance() -> None:
    """Find no table that was typed, and no file of figures that no page shows."""
    script = made_tables()
    text = (CHECKOUT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert not [line for line in script["BLOCK"].sub("", text).splitlines() if line.startswith("|")]
    shown = {Path(path).name for path in re.findall(r"\]\([^)]*benchmarks/results/([^)]*\.json)\)", text)}
    assert shown == {path.name for path in script["RESULTS"].glob("*.json")}


def test_cells_of_figures(tmp_path: Path) -> None:
    """Write the times of a file in one unit, with the shares of a copy's speed that it has."""
    figures = [
        {"case": "short", "column": "ours", "microseconds": 1500.0, "of_copy": 0.5},
        {"case": "long", "column": "ours", "microseconds": 250000.0, "of_copy": None},
        {"case": "long", "column": "theirs", "microseconds": 3210000.0, "of_copy": 0.25},
    ]
    device = {"summary": "A GPU (DiscreteGPU) via Vulkan", "driver": "1.0 (x)"}
    record = {"date": "2026-01-02T03:04:05Z", "command": ["python", "a.py"], "device": device, "figures": figures}
    path = tmp_path / "gpu-a.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    script = made_tables()
    text = script["KINDS"]["figures"]([script["Figures"](path, tmp_path / "page.md")])
    assert text.splitlines() == [
        "**A GPU**, driver 1.0, 2026-01-02, `python a.py` ([figures](gpu-a.json)). Milliseconds:",
        "",
        "| | ours | theirs |",
        "| --- | --- | --- |",
        "| short | 1.50 (0.50) | |",
        "| long | 250 | 3,210 (0.25) |",
    ]


def test_the_plots_are_those_of_the_files() -> None:
    """Find in each plot the digest of the file that it was drawn from."""
    script = made_tables()
    files = sorted((CHECKOUT / "benchmarks" / "results").glob("*-sums.json"))
    assert len(files) >= 2
    for path in files:
        source = f"{path.name} {script['digest_of'](path)}".encode()
        assert source in path.with_suffix(".png").read_bytes(), f"run benchmarks/make_tables.py: {path.name}"


def test_every_how_to_page_is_in_the_index() -> None:
    folder = CHECKOUT / "docs" / "how-to"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert not {page.name for page in folder.glob("[!R]*.md") if f"({page.name})" not in index}


# The functions in the table of docs/getting-started.md on machines without an adapter, by their names.
ON_NUMPY: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: gpuscan.scan(x, groups=[0, 1, 0]),
    "scan_chunks": lambda x: list(gpuscan.scan_chunks([x, x])),
    "reduce": gpuscan.reduce,
    "reduce_by_key": lambda x: gpuscan.reduce_by_key(x, x),
    "cumulative_sum": gpuscan.cumulative_sum,
    "cumulative_prod": gpuscan.cumulative_prod,
    "compact": lambda x: gpuscan.compact(x, x > 1),
    "partition_by": lambda x: gpuscan.partition_by(x, x > 1)[0],
    "sort": gpuscan.sort,
    "argsort": gpuscan.argsort,
    "sort_by_key": lambda x: gpuscan.sort_by_key(x, x),
    "unique_values": gpuscan.unique_values,
    "unique_counts": lambda x: gpuscan.unique_counts(x).counts,
    "unique_inverse": lambda x: gpuscan.unique_inverse(x).inverse_indices,
    "unique_all": lambda x: gpuscan.unique_all(x).indices,
    "run_length_encode": lambda x: gpuscan.run_length_encode(x).counts,
    "repeat": lambda x: gpuscan.repeat(x, 2),
    "searchsorted": lambda x: gpuscan.searchsorted(np.sort(x), x),
    "bincount": lambda x: gpuscan.bincount(x.astype(np.int32)),
    "histogram": lambda x: gpuscan.histogram(x)[0],
    "top_k": lambda x: gpuscan.top_k(x, 2)[1],
    "quantile": lambda x: gpuscan.quantile(x, 0.5),
    "median": gpuscan.median,
    "map": lambda x: gpuscan.map(lambda v: 2 * v, x),
    "linear_recurrence": lambda x: gpuscan.linear_recurrence(x, x),
    "gated_delta_rule": lambda x: gpuscan.gated_delta_rule(*[x.reshape(1, 3, 1, 1)] * 3, *[x.reshape(1, 3, 1)] * 2),
    "gated_linear_attention": lambda x: gpuscan.gated_linear_attention(*[x.reshape(1, 3, 1, 1)] * 4),
    "selective_scan": lambda x: gpuscan.selective_scan(*[x.reshape(1, 1, 3)] * 2, *[x[:1].reshape(1, 1)] * 3),
}
WITHOUT_ADAPTER: dict[str, Callable[[Any], Any]] = {
    "export": lambda x: gpuscan.export(Path(tempfile.mkdtemp()) / "page", length=10),
    "check_associative": lambda x: gpuscan.check_associative("add", x.dtype),
    "operator": lambda x: gpuscan.operator(lambda l, r: l + r),
    "devices": lambda x: gpuscan.devices(),
}
RAISES: dict[str, Callable[[Any], Any]] = {
    "default_device": lambda x: gpuscan.default_device(),
    "Device": lambda x: gpuscan.Device(),
    "ShardedArray": lambda x: gpuscan.ShardedArray.from_numpy(x, [0, 1]),
    "device=": lambda x: gpuscan.scan(x, device=0),
}


def test_what_runs_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the names in the rows of the table, and run each of them on a machine without an adapter."""
    text = (CHECKOUT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(r"^\| (runs on NumPy|needs no adapter|raises `AdapterNotFoundError`) \| (.*) \|$", text, re.M)
    )
    names = [re.findall(r"`([\w=]+)`", row.partition(";")[0]) for row in rows.values()]
    assert names[:2] == [list(ON_NUMPY), list(WITHOUT_ADAPTER)]
    assert set(RAISES) <= set(re.findall(r"`([\w=]+)`", rows["raises `AdapterNotFoundError`"]))
    x = np.array([3, 1, 4], np.float32)
    for name, call in ON_NUMPY.items():
        hide_adapters(monkeypatch)
        with pytest.warns(RuntimeWarning, match="runs on NumPy"):
            assert np.size(call(x)) > 0, name
    assert [call(x) for call in WITHOUT_ADAPTER.values()][-1] == []
    for name, call in RAISES.items():
        with pytest.raises(gpuscan.AdapterNotFoundError):
            print(name, call(x))


def test_the_citation_has_the_version() -> None:
    citation = (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {gpuscan.__version__}\n" in citation
    assert {"cff-version", "message", "title", "authors", "license"} <= set(re.findall(r"^([\w-]+):", citation, re.M))


# ----- The site, which script/docs builds and tests


def test_the_site_has_every_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage the site without building it, and without git: each page is in the contents, each link leads to a file."""
    monkeypatch.setenv("PATH", "")
    script = runpy.run_path(str(CHECKOUT / "docs" / "site" / "build.py"))
    script["stage"](tmp_path / "source", False)
    staged = {str(path.relative_to(tmp_path / "source").with_suffix("")) for path in tmp_path.rglob("*.md")}
    listed = {"index"}
    for page in tmp_path.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            names = [re.sub(r".*<(.+)>", r"\1", name) for name in names]
            listed |= {os.path.relpath(page.parent / name, tmp_path / "source") for name in names}
        for link in re.findall(r"\]\(([^)\s#]+)", text):
            assert re.match(r"https?:", link) or (page.parent / link).exists(), f"{page.name} links to {link}"
    assert listed == staged


def test_every_example_has_a_picture(tmp_path: Path) -> None:
    """Draw a picture for each example that writes none itself, and each differs from the others."""
    script = runpy.run_path(str(CHECKOUT / "docs" / "site" / "thumbnails.py"))
    names = {path.stem for path in (CHECKOUT / "examples").glob("*.py")} - {"box_blur"}
    assert set(script["PICTURES"]) == names, "draw the picture of a new example in docs/site/thumbnails.py"
    for name in names:
        script["draw_picture"](name, tmp_path / f"{name}.png")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == len(names)


def test_the_site_replaces_no_files_of_others(tmp_path: Path) -> None:
    """Build into a new or empty folder, and over an earlier build."""
    clear = runpy.run_path(str(CHECKOUT / "docs" / "site" / "build.py"))["clear"]
    folder = tmp_path / "site"
    for name in (None, "html", "html"):
        clear(folder)
        assert len(list(folder.iterdir())) == 1
        if name:
            (folder / name).mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SystemExit, match="Name another folder"):
        clear(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
