"""Exported scans in a real browser: headless Chromium opens the page, and the test reads the page's own check.

Without Chromium, the tests of the page are skipped, and the tests of the files still run. On Debian, script/test
installs Chromium.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan
from gpuscan.api.device import Device
from gpuscan.browser.description import PAGE
from gpuscan.elements import SCALARS
from gpuscan.errors import StrategyError, UnsupportedDtypeError
from gpuscan.planning.strategies import STRATEGIES, Strategy
from gpuscan.tools.matrix.columns import read_columns
from tests.harness.browser import BROWSER, Browser

pytestmark = pytest.mark.usefixtures("skip_without_adapters")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


AFFINE = gpuscan.operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0), name="affine")


def latest(left: Any, right: Any) -> dict[str, Any]:
    """Return the last valid value."""
    return {
        "value": np.where(right["valid"], right["value"], left["value"]),
        "valid": left["valid"] | right["valid"],
    }


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "sums": ("add", np.float32, {}),
    "bools, single pass without subgroups": ("logical_xor", bool, {"strategy": "fallback"}),
    "reversed bytes of any length": ("add", np.uint8, {"reverse": True, "exclusive": True, "length": 50_001}),
    "halves": ("add", np.float16, {"reverse": True, "segments": True, "exclusive": True}),
    "words of 64 bits": ("multiply", np.int64, {"segments": True, "exclusive": True}),
    "matrices": ("matmul", np.int32, {"segments": True}),
    "traced, two fields": (AFFINE, (np.float32, np.float32), {"exclusive": True}),
    "traced, three dispatches": (
        AFFINE,
        (np.uint32, np.uint32),
        {"reverse": True, "segments": True, "strategy": "three_dispatch"},
    ),
    "picked by a mask": ("add", {"a": np.float64, "b": np.dtype((np.uint8, (2,)))}, {"compact": True}),
    "picked by a function": ("add", np.int16, {"compact": lambda v: v % 3 == 1}),
    "a dict of fields, no identity": (latest, {"value": np.float32, "valid": bool}, {}),
}


@needs_browser
@pytest.mark.parametrize(("op", "dtype", "options"), CASES.values(), ids=CASES.keys())
def test_the_page_checks_itself(browser: Browser, tmp_path: Path, op: Any, dtype: Any, options: dict[str, Any]) -> None:
    """Take three dispatches on this software GPU, and check the single pass by subgroups as well, if both are there."""
    gpuscan.export(tmp_path / "page", op, dtype, **{"length": 50_000} | options)
    report = browser.report_of(tmp_path / "page")
    assert "error" not in report
    (tmp_path / "matrix.json").write_text(json.dumps(report), encoding="utf-8")
    (column,) = read_columns(tmp_path / "matrix.json")
    assert column.failures == ()
    assert column.total.passed == column.total.run >= 6
    asked = options.get("strategy")
    assert list(column.cells["strategy"]) == ([asked] if asked else ["three_dispatch", "fallback"])
    assert (report["columns"][0]["subgroups"] > 0) == (asked is None)


FIXED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "sums": ("add", np.float32, {}),
    "halves": ("add", np.float16, {"segments": True, "exclusive": True}),
    "traced, two fields": (AFFINE, (np.float32, np.float32), {"exclusive": True}),
}


@needs_browser
@pytest.mark.parametrize(("op", "dtype", "options"), FIXED.values(), ids=FIXED.keys())
def test_the_same_bits_in_the_browser(
    browser: Browser, tmp_path: Path, op: Any, dtype: Any, options: dict[str, Any]
) -> None:
    """Assert that results have the bits of the definition in NumPy."""
    page = gpuscan.export(tmp_path / "page", op, dtype, **{"length": 50_000} | options, reproducible="everywhere")
    report = browser.report_of(page)
    assert "error" not in report
    (tmp_path / "matrix.json").write_text(json.dumps(report), encoding="utf-8")
    (column,) = read_columns(tmp_path / "matrix.json")
    assert column.failures == ()
    assert column.total.passed == column.total.run >= 6


@needs_browser
def test_the_page_tells_a_wrong_bit(browser: Browser, tmp_path: Path) -> None:
    page = gpuscan.export(tmp_path / "page", length=1000, reproducible="everywhere")
    expected = bytearray((page / "check.expected").read_bytes())
    expected[4 * 500] ^= 1
    (page / "check.expected").write_bytes(expected)
    assert any("element 500" in failure for failure in browser.report_of(page)["columns"][0]["failures"])


def test_a_compaction_has_no_order(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reproducible='everywhere'"):
        gpuscan.export(tmp_path, compact=True, length=10, reproducible="everywhere")


@needs_browser
def test_the_page_tells_a_wrong_result(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page"
    gpuscan.export(page, "add", np.uint32, length=1000)
    expected = bytearray((page / "check.expected").read_bytes())
    expected[4 * 500] ^= 1
    (page / "check.expected").write_bytes(expected)
    (column,) = browser.report_of(page)["columns"]
    assert any("element 500" in failure for failure in column["failures"])


@needs_browser
def test_a_page_without_a_function_to_check_with(browser: Browser, tmp_path: Path) -> None:
    """Say that nothing was checked, where the operator is WGSL only."""
    source = "fn combine(a: Element, b: Element) -> Element { return a + b + a * b; }"
    gpuscan.export(tmp_path / "page", gpuscan.wgsl_operator(source, name="circle"), np.uint32, length=1000)
    report = browser.report_of(tmp_path / "page")
    assert report["columns"] == []
    assert "has no Python function" in report["error"]


# Opens the page of an export in a frame, and posts what a visitor reads there.
READER = """<!doctype html><title>reader</title><body><script type="module">
const frame = document.createElement("iframe");
frame.style.height = "900px";
frame.src = "index.html";
document.body.append(frame);
for (;;) {
  await new Promise((resolve) => setTimeout(resolve, 50));
  if (/passed|failed/.test(frame.contentDocument?.title)) break;
}
await fetch("/found", { method: "POST", body: JSON.stringify(frame.contentDocument.body.innerText) });
</script></body>"""


@needs_browser
@pytest.mark.parametrize("wrong", [False, True])
def test_the_page_ends_in_a_sentence(browser: Browser, tmp_path: Path, wrong: bool) -> None:
    """Read how many results are right and which are not, and no JSON before it is unfolded."""
    page = gpuscan.export(tmp_path / "page", "add", np.uint32, length=1000, strategy="three_dispatch")
    if wrong:
        (page / "check.expected").write_bytes(bytes((page / "check.expected").stat().st_size))
    (page / "reader.html").write_text(READER, encoding="utf-8")
    text = browser.report_of(page, "reader.html")
    sizes = len(json.loads((page / "plan.json").read_text(encoding="utf-8"))["check"]["sizes"])
    assert f"{0 if wrong else sizes} of {sizes} by three_dispatch" in text
    assert ("element 0 of x is the first that differs" in text) == wrong
    assert "{" not in text
    assert "The run as JSON" in text


# Runs a plan of several fields over typed arrays of each kind, and posts the first numbers or the error.
KINDS = """<!doctype html><title>kinds</title><script type="module">
import { ARRAYS, Scan } from "./scan.js";
const found = { kinds: [...new Set(Object.values(ARRAYS).flat())].filter((name) => globalThis[name]), results: {} };
const outcome = async (action) => {
  try { return String((await action())[0]); } catch (error) { return String(error); }
};
const device = await Scan.device();
const scan = await Scan.create(device);
const { name, numbers } = scan.plan.fields[0];
for (const kind of [...found.kinds, "DataView"]) {
  const made = () => new globalThis[kind](kind === "DataView" ? new ArrayBuffer(64) : 4 * numbers);
  found.results[kind] = await outcome(() => scan.run(made()));
}
found.named = await outcome(async () => [(await scan.run({ [name]: new Int32Array(4) }))[name]]);
found.listed = await outcome(async () => await scan.run([new Int32Array(4)]));
found.none = await outcome(() => scan.run());
found.numbers = await outcome(() => scan.run([3, 1, 4]));
found.short = await outcome(() => scan.run(new Float32Array(3)));
found.fractions = await outcome(() => scan.run(new Float32Array(4 * numbers), { segments: [0, 1.5, 4] }));
found.bigints = await outcome(() => scan.run(new Float32Array(4 * numbers), { segments: [0n, 4n] }));
scan.destroy();
found.destroyed = await outcome(() => scan.run(new Float32Array(4 * numbers)));
found.nowhere = await outcome(() => Scan.create());
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
</script>"""


@needs_browser
def test_arrays_of_another_kind_are_refused(browser: Browser, tmp_path: Path) -> None:
    """Take the array of the field's type, and name both types for any other."""
    page = gpuscan.export(tmp_path / "page", "matmul", np.float32, length=1000, segments=True)
    (page / "kinds.html").write_text(KINDS, encoding="utf-8")
    found = browser.report_of(page, "kinds.html")
    assert set(found["kinds"]) >= {"Float32Array", "Float64Array", "Int32Array", "Uint8Array", "BigInt64Array"}
    assert found["results"].pop("Float32Array") == "0"
    for kind, outcome in found["results"].items():
        assert outcome == f"TypeError: x of float32 was passed as {kind}; pass a Float32Array"
    assert found["named"] == found["listed"] == "TypeError: x of float32 was passed as Int32Array; pass a Float32Array"
    assert found["none"] == "TypeError: x of float32 was passed as undefined; pass a Float32Array"
    assert "a list of 3 was passed" in found["numbers"]
    assert "RangeError" in found["short"]
    assert "one whole length" in found["short"]
    assert found["fractions"] == "TypeError: segments have 1.5 of type number; pass numbers without fractions"
    assert "of type bigint" in found["bigints"]
    assert found["destroyed"] == "Error: the scan was destroyed; make another with Scan.create"
    assert found["nowhere"].startswith("TypeError: no GPUDevice was passed")


# ----- The files


def test_the_module_knows_the_array_of_every_type() -> None:
    """Find gpuscan's element types in scan.js and in its declarations, with arrays of numbers of the same width."""
    # The numbers of complex64 are floats of half its width.
    widths = {name: scalar.dtype.itemsize for name, scalar in SCALARS.items()} | {"complex64": 4}
    module = (PAGE / "scan.js").read_text(encoding="utf-8")
    types = (PAGE / "scan.d.ts").read_text(encoding="utf-8")
    tables = {
        "scan.js": dict(re.findall(r'^  (\w+): \[("\w+Array".*)\],$', module, re.MULTILINE)),
        "scan.d.ts": dict(re.findall(r"^  (\w+): (\w+Array.*);$", types, re.MULTILINE)),
    }
    for name, table in tables.items():
        assert set(table) == set(SCALARS), name
        for scalar, arrays in table.items():
            bits = {int(found) for found in re.findall(r"(?:Int|Uint|Float)(\d+)", arrays)}
            assert bits == {8 * widths[scalar]}, f"{name}: {scalar}"


TAKEN = {
    "one field": (
        "add",
        np.float32,
        'ArrayTypes["float32"] | [ArrayTypes["float32"]] | { "x": ArrayTypes["float32"] }',
    ),
    "a tuple": (
        AFFINE,
        (np.uint32, np.uint32),
        '[ArrayTypes["uint32"], ArrayTypes["uint32"]] | { "0": ArrayTypes["uint32"]; "1": ArrayTypes["uint32"] }',
    ),
    "a dict": (
        latest,
        {"value": np.float16, "valid": bool},
        '[ArrayTypes["float16"], ArrayTypes["bool"]] | { "value": ArrayTypes["float16"]; "valid": ArrayTypes["bool"] }',
    ),
}


@pytest.mark.parametrize(("op", "dtype", "taken"), TAKEN.values(), ids=TAKEN.keys())
def test_the_types_allow_only_what_fits(tmp_path: Path, op: Any, dtype: Any, taken: str) -> None:
    gpuscan.export(tmp_path, op, dtype, length=100)
    (line,) = re.findall(r"^export type Elements = (.*);$", (tmp_path / "scan.d.ts").read_text(), re.MULTILINE)
    assert line == taken


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_files_hold_a_plan_that_compiles(device: Device, tmp_path: Path, strategy: Strategy) -> None:
    gpuscan.export(tmp_path, "add", np.float32, length=1 << 20, strategy=strategy)
    described = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    (variant,) = described["variants"]
    assert (variant["strategy"], variant["subgroup_size"]) == (strategy, 0)
    for stage in variant["stages"]:
        text = (tmp_path / stage["file"]).read_text(encoding="utf-8")
        assert "enable " not in text
        assert "subgroupShuffle" not in text
        assert "var<uniform> params" in text
        device.wgpu_device.create_shader_module(code=text)
        for binding in stage["bindings"]:
            assert f"@binding({binding['binding']})" in text


def test_the_files_hold_a_plan_for_each_size_of_subgroups(tmp_path: Path) -> None:
    gpuscan.export(tmp_path, length=1 << 20, reverse=True)
    described = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    sizes = [(variant["strategy"], variant["subgroup_size"]) for variant in described["variants"]]
    assert sizes == [("three_dispatch", 0), *(("fallback", size) for size in (4, 8, 16, 32, 64))]
    for variant in described["variants"][1:]:
        text = (tmp_path / variant["stages"][0]["file"]).read_text(encoding="utf-8")
        assert text.count("enable subgroups;") == 1
        assert f"const SUBGROUP_SIZE = {variant['subgroup_size']}u;" in text
    assert {path.name for path in tmp_path.glob("*.wgsl")} == {
        "subgroups.wgsl",
        *(stage["file"] for variant in described["variants"] for stage in variant["stages"]),
    }


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "floats of 64 bits": (("add", np.float64), {}, UnsupportedDtypeError, "Export float32"),
    "too long": (("add", np.float32), {"length": 1 << 28}, UnsupportedDtypeError, "134217728 bytes"),
    "too wide": (("matmul", np.dtype((np.float32, (3, 3)))), {}, UnsupportedDtypeError, "9 32-bit words"),
    "a structure": (("add", np.dtype([("a", "f4")])), {}, UnsupportedDtypeError, "Export a dict"),
    "too many buffers": (
        (gpuscan.operator(lambda l, r: (l[0] + r[0], *r[1:]), identity=(0,) * 4, name="four"), (np.uint8,) * 4),
        {"exclusive": True, "segments": True},
        UnsupportedDtypeError,
        "binds 11 buffers",
    ),
    "no identity": ((latest, {"value": np.float32, "valid": bool}), {"exclusive": True}, ValueError, "no identity"),
    "no length": (("add",), {"length": 0}, ValueError, "length=0"),
    "half a length": (("add",), {"length": 1.5}, TypeError, "length=1.5"),
    "no such strategy": (("add",), {"strategy": "quick"}, StrategyError, "'quick'"),
    "no flag": (("add",), {"segments": [0, 3]}, TypeError, "segments"),
    "not combined": (("bitwise_or", np.float32), {}, TypeError, "bitwise_or"),
    "no mask": (("add",), {"compact": 1}, TypeError, "compact=1"),
    "picked and combined": (("maximum",), {"compact": True}, ValueError, "Leave out op"),
    "picked and reversed": (("add",), {"compact": True, "reverse": True}, ValueError, "Leave out reverse"),
    "picked by no bool": (
        ("add",),
        {"compact": lambda v: v},
        TypeError,
        "compact= was passed as a function",
    ),
    "picked by floats of 64 bits": (
        ("add", np.float64),
        {"compact": lambda v: v > 0},
        UnsupportedDtypeError,
        "Export float32",
    ),
}


@pytest.mark.parametrize(("arguments", "options", "error", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_no_browser_takes_is_refused(
    tmp_path: Path, arguments: Any, options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        gpuscan.export(tmp_path / "page", *arguments, **{"length": 10} | options)
    assert not (tmp_path / "page").exists()
