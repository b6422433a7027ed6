"""`gs.wgsl_operator` through `gs.scan`: every kind of element, names that clash, options, and compile errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from tests.harness.scans import make_problem, scan_with
from tests.laws import any_bits, whole
from tests.oracle import AFFINE, MATRICES, assert_same, one_by_one, small_tiles, strategies_on, words

SIGNATURE = "fn combine(a: Element, b: Element) -> Element {\n"
PAIR = gs.wgsl_operator(
    SIGNATURE + "    return Element(a.f0 * b.f0, b.f0 * a.f1 + b.f1);\n}", identity=(1, 0), name="affine"
)
PRODUCT = gs.wgsl_operator(
    SIGNATURE
    + """    return Element(
        dot2(a[0], b[0], a[1], b[2]), dot2(a[0], b[1], a[1], b[3]),
        dot2(a[2], b[0], a[3], b[2]), dot2(a[2], b[1], a[3], b[3]),
    );
}""",
    helpers="fn dot2(a: u32, b: u32, c: u32, d: u32) -> u32 { return a * b + c * d; }",
    name="product",
    element_axes=1,
)


def returning(expression: str, **options: Any) -> gs.Operator:
    """Return the operator of one expression of `a` and `b`."""
    return gs.wgsl_operator(f"{SIGNATURE}    return {expression};\n}}", **options)


def test_pairs_under_every_strategy(device: gs.Device) -> None:
    """Scan exactly with an operator that does not commute; in rows, with the options in turn."""
    x = words(np.random.default_rng(0), 2, (3, 3001))
    for rotation, strategy in enumerate(strategies_on(device)):
        options: dict[str, Any] = {"axis": 1, "exclusive": rotation > 0, "reverse": rotation == 1}
        wanted = one_by_one(AFFINE.function, x, initial=(1, 0) if rotation > 0 else None, **options)
        problem = make_problem(x, PAIR, **options)
        got = scan_with(device, problem, strategy, tile=small_tiles(device)[-1])
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, strategy)


def test_vectors_are_arrays_in_wgsl(device: gs.Device) -> None:
    """Scan matrices as four numbers each, with a helper function, and exclusive with `initial`."""
    bundle = words(np.random.default_rng(1), 4, 2000)
    x = np.stack(bundle, axis=-1)
    assert_same(gs.scan(x, PRODUCT, device=device), np.stack(one_by_one(MATRICES.function, bundle), axis=-1))
    seed = tuple(field[0] for field in bundle)
    wanted = np.stack(one_by_one(MATRICES.function, bundle, exclusive=True, initial=seed), axis=-1)
    assert_same(gs.scan(x, PRODUCT, exclusive=True, initial=x[0], device=device), wanted)


KINDS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "bool": ("a != b", np.logical_xor),
    "int8": ("a + b", np.add),
    "uint16": ("max(a, b)", np.maximum),
    "int32": ("min(a, b)", np.minimum),
    "uint32": ("a * b", np.multiply),
    "int64": ("a ^ b", np.bitwise_xor),  # i64, or two words: either way the bits
    "uint64": ("a | b", np.bitwise_or),
    "float16": ("a + b", np.add),
    "bfloat16": ("max(a, b)", np.maximum),
    "float32": ("a + b", np.add),
    "complex64": ("a + b", np.add),
}


@pytest.mark.parametrize("dtype", KINDS)
def test_every_element_type(device: gs.Device, dtype: str) -> None:
    """Use the compute types that the documentation names; narrow integers wrap when they are stored."""
    expression, ufunc = KINDS[dtype]
    rng = np.random.default_rng(2)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = any_bits(rng, dtype, (1037,)) if kind.kind in "iu" else whole(rng, dtype, (1037,), -1, 1)
    (wanted,) = one_by_one(lambda l, r: (ufunc(l[0], r[0]),), (x,))
    got = gs.scan(x, returning(expression, name="mine"), device=device)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == kind


def test_types_of_elements(device: gs.Device) -> None:
    """Write out each compute type, and the fields of a bundle by the user's own names."""
    forms = {"bool": "bool", "int16": "i32", "uint8": "u32", "float16": "f32", "float32": "f32", "complex64": "vec2f"}
    forms["int64"] = "i64" if device.capabilities.native_int64 else "vec2u"
    for dtype, form in forms.items():
        source = f"fn combine(a: Element, b: Element) -> Element {{ let c: {form} = b; return c; }}"
        x = np.ones(40, dtype)
        assert_same(gs.scan(x, gs.wgsl_operator(source), device=device), x)
    bundle = {"gain": np.full(50, 3, np.uint32), "shift": np.arange(50, dtype=np.uint32)}
    op = returning("Element(a.gain * b.gain, b.gain * a.shift + b.shift)")
    wanted = one_by_one(AFFINE.function, tuple(bundle.values()))
    got = gs.scan(bundle, op, device=device)
    assert list(got) == ["gain", "shift"]
    for result, field in zip(got.values(), wanted, strict=True):
        assert_same(result, field)


CLASHING = """const TILE_SIZE = 3u;
struct Post { item: u32, ready: u32, }
struct Params { length: u32, }
alias Words = vec2<u32>;
fn join(left: u32, right: u32) -> u32 { return left + right; }
fn scan_block(state: u32) -> u32 { return state; }
fn main(params: Params) -> u32 { return params.length; }
fn combine(a: Element, b: Element) -> Element {
    let post = Post(a, b);  // join
    let words = Words(post.item, post.ready);
    return scan_block(join(words.x, main(Params(words.y)))) + TILE_SIZE - after(TILE_SIZE);
}"""


def test_names_that_gpuscan_has_too(device: gs.Device) -> None:
    """Keep the user's names apart under every strategy; members of structs keep theirs."""
    x = np.random.default_rng(3).integers(0, 2**32, 4000, dtype=np.uint32)
    op = gs.wgsl_operator(CLASHING, helpers="fn after(x: u32) -> u32 { return x; }", name="clashing")
    maps: dict[str, Any] = {"before": lambda v: v + 1, "after": lambda v: v ^ 1}
    wanted = np.cumsum(x + np.uint32(1), dtype=np.uint32) ^ np.uint32(1)
    for strategy in strategies_on(device):
        problem = make_problem(x, op, **maps)
        (got,) = scan_with(device, problem, strategy, tile=small_tiles(device)[0])
        assert_same(got, wanted, strategy)


BROKEN = [
    (SIGNATURE + "    let c = a;\n    return c + unknown;\n}", "", r"line 3 of its source: return c \+ unknown"),
    (SIGNATURE + "    return a +;\n}", "", "line 2 of its source"),
    (
        SIGNATURE + "    return twice(a);\n}",
        "\n\nfn twice(x: f32) -> f32 {\n    return x * two;\n}",
        r"line 4 of its helpers: return x \* two;",
    ),
    (
        "fn combine(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return a + b; }",
        "",
        r"it must be fn combine\(a: Element, b: Element\) -> Element, with alias Element = f32;",
    ),
]


@pytest.mark.parametrize(("source", "helpers", "message"), BROKEN)
def test_compile_errors_are_the_users_lines(device: gs.Device, source: str, helpers: str, message: str) -> None:
    """Expect an OperatorError from `scan`, after which the device goes on."""
    x = np.ones(100, np.float32)
    op = gs.wgsl_operator(source, helpers=helpers, name="mine")
    for strategy in strategies_on(device):
        with pytest.raises(gs.OperatorError, match=rf"'mine' does not compile(.|\n)*{message}"):
            gs.scan(x, op, device=device, strategy=strategy)
    assert device.memory_usage().bytes_in_use == 0
    assert_same(gs.scan(x, returning("a + b"), device=device), np.cumsum(x))


ODD_NAMES = [
    "sum\nfn combine(a: f32, b: f32) -> f32 { return 7.0; }",
    "sum\rfn",
    "sum\u2028fn",
    "sum\x85fn",
    "sum\0",
    "\ud800",
    "größe",
    "sum ",
    " ",
    "\\",
    "*/ /*",
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_names_may_hold_anything(device: gs.Device, name: str) -> None:
    """Assert that names are only in comments and labels, and that a compile error finds the user's lines."""
    x = np.arange(1000, dtype=np.float32)
    written, traced = returning("a + b", name=name), gs.operator(lambda left, right: left + right, name=name)
    for op in (written, traced):
        assert_same(gs.scan(x, op, device=device), np.cumsum(x), op.name)
    with pytest.raises(gs.OperatorError, match="at line 2 of its source"):
        gs.scan(x, returning("a + nothing", name=name), device=device)


def test_numpy_does_not_run_wgsl() -> None:
    with pytest.raises(gs.OperatorError, match=r"affine.*WGSL"):
        gs.scan(words(np.random.default_rng(4), 2, 10), PAIR, device="numpy")


def test_an_exclusive_scan_begins_with_the_identity(device: gs.Device) -> None:
    x = np.arange(1, 100, dtype=np.int32)
    op = returning("a + b", identity=0)
    assert_same(gs.scan(x, op, exclusive=True, device=device), np.cumsum(x, dtype=np.int32) - x)
    with pytest.raises(ValueError, match=r"'combine'.*no identity"):
        gs.scan(x, returning("a + b"), exclusive=True, device=device)


def test_check_associative_runs_wgsl(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the law on the device: WGSL has no other form."""
    monkeypatch.setattr("gpuscan.api.device.default_device", lambda: device)
    gs.check_associative(returning("a * b"), np.uint32)
    with pytest.raises(gs.OperatorError, match="mine is not associative on int32"):
        gs.check_associative(returning("a - b", name="mine"), np.int32)


@pytest.mark.parametrize("axes", [-1, 1.5])
def test_element_axes_are_counted(axes: Any) -> None:
    with pytest.raises(gs.OperatorError, match="element_axes counts trailing axes"):
        returning("a", element_axes=axes)
