"""The user's WGSL at its worst: loops without end, what compilers do not survive, and names of gpuscan's.

Each call ends in an OperatorError, or in what the text means, and the device goes on. A call that hangs fails by
pytest's timeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.heuristics import CPU, GPU
from tests.harness.scans import make_problem, record_and_submit, scan_with
from tests.oracle import assert_same, half_of, pick_strategies, small_tiles, strategies_on

SIGNATURE = "fn combine(a: Element, b: Element) -> Element {\n"
X = np.arange(5000, dtype=np.uint32)
SUMS = np.cumsum(X, dtype=np.uint32)


def combining(body: str, **options: Any) -> gs.Operator:
    return gs.wgsl_operator(SIGNATURE + body + "\n}", **options)


@pytest.fixture(autouse=True)
def device_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """Assert after every test that no byte stays in use and that the device still scans."""
    yield
    if "device" in request.fixturenames:
        device = request.getfixturevalue("device")
        assert device.memory_usage().bytes_in_use == 0
        assert_same(gs.scan(X, device=device), SUMS)


# ----- Loops

ENDLESS = {
    "loop": "loop { }\n return a + b;",
    "while": "var i = 0u;\n while (true) { i += 1u; }\n return a + b + i;",
    "for": "var s = a;\n for (var i = 0u; i < 4000000000u; i++) { s = s * 1664525u + i; }\n return s + b;",
    "for ever": "var s = a;\n for (;;) { s += 1u; if (s == 0u && a == 1u && b == 0u) { break; } }\n return s;",
    "continuing": "var i = b;\n loop { i += 2u; continuing { break if i == 0xffffffffu && a == 77u; } }\n return i;",
    "nested": "for (var i = 0u; i < 60000u; i++) { for (var j = 0u; j < 60000u; j++) { if (a + i == 1u + j * b)"
    " { continue; } } }\n return a + b;",
    "by the data": "var i = a;\n while (i != 3u) { i = i ^ b; }\n return i + 1u;",
    "returns alone": "var i = a;\n loop { if (i == 0xffffffffu) { return b; } i = i * 2u; }\n return a;",
    "in a condition": "var n = 0u;\n while (select(a, b, n < (3u)) < 0xffffffffu) { n += 1u; }\n return n;",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_loop_without_end_is_left_and_told(device: gs.Device, body: str) -> None:
    with pytest.raises(gs.OperatorError, match="'endless' was asked for, but a loop in its WGSL did not end"):
        gs.scan(X[:300], combining(body, name="endless"), device=device)


HELPERS = """
fn forever(x: u32) -> u32 { var i = x; while (i < 0xffffffffu) { i = i | 0x100u; } return i; }
fn nothing(x: ptr<function, u32>) { loop { *x = *x | 1u; } }
struct Pair { a: u32, b: array<u32, 3>, }
fn pair(x: u32) -> Pair { for (;;) { } return Pair(x, array<u32, 3>()); }
"""


@pytest.mark.parametrize("call", ["forever(b)", "pair(b).b[1]", "forever(pair(b).a)"])
def test_loops_of_helpers_count_too(device: gs.Device, call: str) -> None:
    with pytest.raises(gs.OperatorError, match="did not end"):
        gs.scan(X[:99], combining(f"return a + {call};", helpers=HELPERS), device=device)
    with pytest.raises(gs.OperatorError, match="did not end"):
        gs.scan(X[:99], combining("var c = a; nothing(&c); return c;", helpers=HELPERS), device=device)


@pytest.mark.parametrize("blank", [" ", "\u200e", "\u200f", "\x85", "/**/", "//\u2028"], ids=ascii)
def test_loops_count_behind_any_blank_space(device: gs.Device, blank: str) -> None:
    helpers = "fn h(x: u32) -> u32 { var i=x; loop { i=i*3u+1u; if (i==0u) {break;} } return i; }".replace(" ", blank)
    with pytest.raises(gs.OperatorError, match="did not end"):
        gs.scan(X[:99], combining("return a | h(b);", helpers=helpers), device=device)


def test_a_loop_of_a_helper_alone_begins_its_count_with_each_combination(device: gs.Device) -> None:
    """Assert that many combinations with a few iterations each do not count as an endless loop."""
    helper = "fn sum(x: u32, y: u32) -> u32 { var s = x; for (var i = 0u; i < 300u; i++) { s += y / 300u; } return s; }"
    x = np.full(20_000 if device.capabilities.adapter_type != "CPU" else 500, 300, np.uint32)
    op = combining("return sum(a, b);", helpers=helper)
    assert_same(gs.scan(x, op, device=device), np.cumsum(x, dtype=np.uint32))


def test_every_path_tells(device: gs.Device) -> None:
    """Try every strategy, arrays in pieces and on the device, chunks, reductions, columns and a recorded plan."""
    op = combining(ENDLESS["while"], name="endless", identity=0)
    few, wide = X[:600], np.ones((4, 64), np.uint32)
    on_device = device.asarray(few)
    calls: list[Callable[[], Any]] = [
        *(lambda s=s: gs.scan(few, op, strategy=s, device=device) for s in half_of(device, strategies_on(device))),
        lambda: scan_with(device, make_problem(X, op), tile=small_tiles(device)[0], piece_bytes=1),
        lambda: gs.scan(on_device, op),
        lambda: gs.reduce(few, op, device=device),
        lambda: gs.scan(wide, op, axis=0, device=device),
        lambda: list(gs.scan_chunks([few, few], op, device=device)),
        lambda: device.plan(few.shape, few.dtype, op)(on_device),
    ]
    for call in calls:
        with pytest.raises(gs.OperatorError, match="did not end"):
            call()
    assert device.capabilities.distrusted == ()  # no strategy is to blame
    plan, result = device.plan(few.shape, few.dtype, op), device.empty(few.shape, few.dtype)
    record_and_submit(device.wgpu_device, plan, on_device, result)
    with pytest.raises(gs.OperatorError, match="did not end"):
        device.synchronize()
    device.synchronize()


GCD = """fn combine(a: Element, b: Element) -> Element {
    var x = a;
    var y = b;
    loop {
        if (y == 0u) { return x; }
        let rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}"""


def test_loops_that_end_give_what_they_mean(device: gs.Device) -> None:
    """Compute greatest common divisors by Euclid's loop, and a product by shifts in nested loops."""
    x = np.random.default_rng(0).integers(1, 50, 3000).astype(np.uint32) * 2 ** np.uint32(6) * 3
    for strategy in pick_strategies(device, 0):
        assert_same(
            gs.scan(x, gs.wgsl_operator(GCD, name="gcd"), device=device, strategy=strategy), np.gcd.accumulate(x)
        )
    product = combining(
        """    var sum = 0u;
    for (var i = 0u; i < 4u; i++) {
        var j = 0u;
        while (j < 8u) { sum += (a << (8u * i + j)) * ((b >> (8u * i + j)) & 1u); j++; }
    }
    return sum;"""
    )
    assert_same(gs.scan(x, product, device=device), np.cumprod(x, dtype=np.uint32))


def test_long_loops_that_end(device: gs.Device) -> None:
    """Make thousands of iterations in one combination, and few combinations, to stay within an invocation's bound."""
    turns = 2000 if device.capabilities.adapter_type == "CPU" else 50_000
    heuristics = CPU if device.capabilities.adapter_type == "CPU" else GPU
    assert turns < heuristics.max_loop_iterations
    op = combining(f"var c = a; for (var i = 0u; i < {turns}u; i++) {{ c = c * 3u; }} return c / 1u + b;")
    with np.errstate(all="ignore"):
        factor = np.uint32(pow(3, turns, 2**32))
        assert_same(gs.scan(X[1:3], op, device=device), np.array([1, np.uint32(factor + np.uint32(2))], np.uint32))


# ----- What compilers do not survive

DEADLY = {
    "brackets": "return a + " + "(" * 20_000 + "b" + ")" * 20_000 + ";",
    "short brackets": "return a + " + "(" * 65 + "b" + ")" * 65 + ";",
    "blocks": "{" * 5000 + "}" * 5000 + "return a + b;",
    "signs": "return a + " + "~" * 30_000 + "b;",
    "a chain": "return a" + "+b" * 20_000 + ";",
    "an index": "var p: array<u32, 2>; return p" + "[p" * 5000 + "[0]" + "]" * 5000 + ";",
    "branches": "if (a > 0u) {}" + "else if (a > 1u) {}" * 3000 + "return a + b;",
    "types": "var p: " + "array<" * 4000 + "u32" + ",1>" * 4000 + "; return a + b;",
    "statements": "var c = a;" + "c += b;" * 6000 + "return c;",
    "text": "return a + b; //" + "x" * 100_000,
    "an array": "var p: array<u32, 20000>; p[a % 20000u] = b; return p[b % 20000u] + a;",
    "a huge array": "var p: array<u32, 4000000000>; return p[b] + a;",
    "arrays": "".join(f"var p{i}: array<u32, 250>; p{i}[a % 250u] = b;" for i in range(9)) + "return p0[b % 250u];",
    "an array by an expression": "var p: array<u32, 200 * 200>; return p[b % 7u] + a;",
    "an array without end": "var p: array<u32>; return p[b % 7u] + a;",
    "a list": "let p = array(" + "1u, " * 1500 + "1u); return p[b % 7u] + a;",
    "a barrier": "if (a > 3u) { workgroupBarrier(); } return a + b;",
    "an atomic": "atomicStore(&state[0], 77u); return a + b;",
    "subgroups": "return a + subgroupAdd(b);",
    "brackets that cross": "return a + (b];",
    "a bracket too many": "return a + b; } }",
    "a bracket too few": "{ return a + b;",
    "a comment that does not end": "return a + b; /* /* */",
}
TYPES = "".join(f"alias T{i} = array<{'u32' if i == 0 else f'T{i - 1}'}, 100>;\n" for i in range(8))
STRUCTS = "".join(
    f"struct S{i} {{ a: {'u32' if i == 0 else f'S{i - 1}'}, b: {'u32' if i == 0 else f'S{i - 1}'} }}\n"
    for i in range(20)
)
DOUBLING = "".join(
    f"fn f{i}(a: u32) -> u32 {{ return {'a' if i == 0 else f'f{i - 1}(a) + f{i - 1}(a + 1u)'}; }}\n" for i in range(40)
)
DEADLY_HELPERS = {
    "types in types": (TYPES, "var p: T7; return a + p[0][0][0][0][0][0][0][0];"),
    "a constant": ("const X = array<u32, 100000000>();", "return a + X[3];"),
    "a struct": ("struct S { x: array<vec4f, 99999>, }", "var s: S; return a + u32(s.x[b].x);"),
    "structs in structs": (STRUCTS, "var s: S19; s.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = b; return a;"),
    "an array of structs": (
        "struct S { " + ", ".join(f"x{i}: vec4f" for i in range(50)) + " }\n",
        "var s: array<S, 50>; return a + u32(s[b % 50u].x3.x);",
    ),
    "calls by the billion": (DOUBLING, "return f39(a) + b;"),
    "itself": ("fn f(a: u32) -> u32 { return g(a); }\nfn g(a: u32) -> u32 { return f(a); }", "return f(a);"),
    "a type of itself": ("alias T = array<T, 2>;\nstruct S { s: S, }", "var t: T; return a;"),
}


@pytest.mark.parametrize("body", DEADLY.values(), ids=DEADLY.keys())
def test_what_compilers_do_not_survive_never_reaches_them(device: gs.Device, body: str) -> None:
    with pytest.raises(gs.OperatorError):
        gs.scan(X, combining(body), device=device)


@pytest.mark.parametrize(("helpers", "body"), DEADLY_HELPERS.values(), ids=DEADLY_HELPERS.keys())
def test_nor_in_helpers(device: gs.Device, helpers: str, body: str) -> None:
    with pytest.raises(gs.OperatorError):
        gs.scan(X, combining(body, helpers=helpers), device=device)


def test_what_is_near_the_bounds_still_compiles(device: gs.Device) -> None:
    table = ", ".join(f"{3 * i}u" for i in range(8))
    op = combining(
        "return lookup(7u) + " + "(" * 60 + "b" + ")" * 60 + " + a" + " - a + a" * 40 + " - 21u;",
        helpers=f"const N = 8;\nconst TABLE = array<u32, N>({table});\n"
        "fn lookup(x: u32) -> u32 { return TABLE[x % 8u]; }",
    )
    assert_same(gs.scan(X, op, device=device), SUMS)


# ----- Out of bounds, and what has no meaning


@pytest.mark.parametrize(
    "body",
    [
        "var p: array<u32, 4>; p[a] = b; return p[b * 4000000000u] + a;",
        "var p: array<u32, 4>; p[i32(a) - 2147483647] = b; return p[a - 5u];",
        "return a / (b - b) + a % (b - b);",
        "return (a << (b + 100u)) + (a >> (b | 64u));",
        "return u32(f32(a) / f32(b - b)) + u32(i32(-2147483648) / i32(b - b - 1u));",
    ],
)
def test_numbers_without_meaning_harm_nobody(device: gs.Device, body: str) -> None:
    """Leave the result to the adapter, and assert that nothing else changes."""
    x = np.random.default_rng(1).integers(0, 2**32, 3000, dtype=np.uint32)
    before = x.copy()
    neighbour = device.asarray(SUMS)
    try:
        result = gs.scan(x, combining(body), device=device)
    except gs.OperatorError:
        pass  # a compiler that finds out before
    else:
        assert (result.shape, result.dtype) == (x.shape, x.dtype)
    np.testing.assert_array_equal(x, before)
    assert_same(neighbour.numpy(), SUMS)
    del neighbour


@pytest.mark.parametrize(
    "body",
    [
        "return a + b",
        "let c = a return c;",
        "return p[7];",
        "var p: array<u32, 4>; return p[7] + a;",
        "return 1.5;",
        "return a + b + 99999999999u;",
        "a = b; return a;",
        "return combine(a, b);",
        "return unknown(a);",
        "discard; return a;",
        "@ const x = 3; return a;",
        "return a + b\0;",
        "return \u0661 + b; \u202e",
        "asm { }; return a;",
    ],
)
def test_wgsl_that_is_none(device: gs.Device, body: str) -> None:
    with pytest.raises(gs.OperatorError, match="'mine'"):
        gs.scan(X, combining(body, name="mine"), device=device)


# ----- Ways out of the operator's room


@pytest.mark.parametrize(
    "line_end", ["\r", "\v", "\f", "\x85", "\u2028", "\u2029", "\r\n"], ids=lambda text: f"{ord(text[0]):#x}"
)
def test_comments_end_where_wgsl_ends_them(line_end: str) -> None:
    """Assert that a declaration after any line break of WGSL is checked."""
    hidden = "@group(0) @binding(9) var<storage, read_write> mine: array<u32, 4>;"
    with pytest.raises(gs.OperatorError, match="attribute @group"):
        gs.wgsl_operator(f"{SIGNATURE}return a + b; }}\n// {line_end}{hidden}")


def test_comments_nest_as_those_of_wgsl(device: gs.Device) -> None:
    with pytest.raises(gs.OperatorError, match="memory of its own"):
        gs.wgsl_operator("/* /* */ { */ var<private> x: u32; /* } */" + SIGNATURE + "return a + b; }")
    op = gs.wgsl_operator("/* { /* ( */ @ [ */" + SIGNATURE + "/* } */ return a /* // */ + b; // { [ /*\n}")
    assert_same(gs.scan(X, op, device=device), SUMS)


def test_markers_of_ours_in_comments(device: gs.Device) -> None:
    end = "// ---- end of operator mine"
    begin = "// ---- source of operator mine: line 1 follows"
    op = combining(f"{end}\n let state = a;\n{end}\n return state + b;\n {begin}", name="mine")
    assert_same(gs.scan(X, op, device=device), SUMS)
    with pytest.raises(gs.OperatorError, match="line 3 of its source: return state"):
        gs.scan(X, combining(f"{end}\n return state + b;", name="mine"), device=device)


def names_of_ours(device: gs.Device) -> list[str]:
    """Return every name that gpuscan's shaders of this device declare at module scope."""
    found: set[str] = set()
    for strategy in strategies_on(device):
        plan = device.plan((100_000,), np.uint32, combining("return a + b;", name="mine"), strategy=strategy)
        for text in plan.wgsl.values():
            found.update(re.findall(r"^(?:fn|const|alias|struct|(?:@.*)?var<.*?>) (\w+)", text, re.MULTILINE))
    return sorted(found - {"combine", "Element"})


def test_names_of_ours_mean_nothing_to_an_operator(device: gs.Device) -> None:
    """Assert that none of gpuscan's names can be read, written or called, a few at a time."""
    names = names_of_ours(device)
    assert {"params", "state", "source0", "main", "join", "load_chunk", "WORKGROUP_SIZE"} <= set(names)
    for name in ("params", "state", "source0", "join", "load_chunk", "TILE_SIZE", "Item"):
        with pytest.raises(gs.OperatorError, match=f"line 2 of its source: _ = {name};"):
            gs.scan(X, combining(f"_ = {name};\n return a + b;", name="mine"), device=device)


def test_names_of_ours_are_free_for_an_operator(device: gs.Device) -> None:
    """Use all of them at once: as functions, constants, local names, arguments and members of a struct."""
    names = names_of_ours(device)
    functions = "\n".join(f"fn {name}(x: u32) -> u32 {{ return x + 1u; }}" for name in names)
    calls = " + ".join(f"{name}(0u)" for name in names)
    op = combining(f"return a + b + {calls} - {len(names)}u;", helpers=functions, name="mine")
    assert_same(gs.scan(X, op, device=device), SUMS)
    members = ", ".join(f"{name}: u32" for name in names)
    lets = "\n".join(f"let {name} = Mine({', '.join(['1u'] * len(names))}).{name};" for name in names)
    op = combining(f"{lets}\n return a + b + {' + '.join(names)} - {len(names)}u;",
                   helpers=f"struct Mine {{ {members} }}", name="mine")  # fmt: skip
    assert_same(gs.scan(X, op, device=device), SUMS)


def test_names_of_the_counting_are_free_too(device: gs.Device) -> None:
    """Run a loop in an operator that declares the names of the counting itself."""
    op = combining(
        "let turns = 1u;\n let one_turn_too_many = turns;\n var c = a;\n"
        " for (var begin_turns = 0u; begin_turns < 4u; begin_turns++) { c += one_turn_too_many; }\n return c + b - 4u;",
        helpers="const MAX_LOOP_ITERATIONS = 1u;\nfn report() -> u32 { return MAX_LOOP_ITERATIONS; }",
    )
    assert_same(gs.scan(X, op, device=device), SUMS)


def test_fields_keep_their_names(device: gs.Device) -> None:
    """Scan a bundle with fields that have names of gpuscan's."""
    x = {"state": X, "params": X[::-1].copy()}
    op = combining("return Element(a.state + b.state, max(a.params, b.params));")
    got = gs.scan(x, op, device=device)
    assert_same(got["state"], SUMS)
    assert_same(got["params"], np.maximum.accumulate(X[::-1]))
