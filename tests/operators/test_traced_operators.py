"""Operators as the GPU computes them: random expressions, bundles, element axes, the user's WGSL, both compilers."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import wgpu

from gpuscan.elements import LEAF, Element, Structure, element_of
from gpuscan.operators.code import arithmetic_functions, combine_code, helpers_of
from gpuscan.operators.named_operators import BUILTINS, resolve
from gpuscan.operators.operator import operator, wgsl_operator
from gpuscan.operators.user_wgsl import user_error
from gpuscan.templates import render
from tests.conftest import MIN_ADAPTERS
from tests.operators.evaluate import evaluate_combine, evaluate_map, has_int64, open_device, shader
from tests.operators.numbers import INTEGERS
from tests.oracle import Array

Expression = Callable[[Any, Any], Any]

# ----- Random expressions, exact on every adapter


UNARY: dict[str, Callable[[Any], Any]] = {
    "-": lambda x: -x,
    "abs": abs,
    "sign": np.sign,
    "~": lambda x: ~x,
    "square": np.square,
    "<<": lambda x: x << 3,
    ">>": lambda x: x >> 2,
    "%": lambda x: x % 7,
    "//": lambda x: x // 5,
    "bool": lambda x: (x != 0).astype(x.dtype),
    "narrow": lambda x: x.astype(np.int8).astype(x.dtype),
    "widen": lambda x: (x.astype(np.int64) * 3).astype(x.dtype),
}
BINARY: dict[str, Expression] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "min": np.minimum,
    "max": np.maximum,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "<<": lambda x, y: x << (y & 3),
    ">>": lambda x, y: x >> y,
    "fmod": np.fmod,
    "where<": lambda x, y: np.where(x < y, x, y),
    "where==": lambda x, y: np.where((x == y) | (x > 3), y, x),
}


@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> Any:
    """Draw an expression as a nested tuple, so that a failure shows it."""
    kind = draw(st.sampled_from("lrc" if depth == 0 else "lrcubbb"))
    if kind == "u":
        return (draw(st.sampled_from(sorted(UNARY))), draw(trees(depth - 1)))
    if kind == "b":
        return (draw(st.sampled_from(sorted(BINARY))), draw(trees(depth - 1)), draw(trees(depth - 1)))
    return draw(st.integers(0, 100)) if kind == "c" else kind


def value_of(tree: Any, left: Any, right: Any) -> Any:
    if isinstance(tree, int):
        return np.full_like(left, tree)
    if isinstance(tree, str):
        return left if tree == "l" else right
    name, *args = tree
    values = [value_of(arg, left, right) for arg in args]
    return UNARY[name](*values) if len(values) == 1 else BINARY[name](*values)


@hypothesis.settings(max_examples=max(12, hypothesis.settings().max_examples // 5))
@hypothesis.given(
    trees=st.lists(trees(), min_size=6, max_size=6), dtype=st.sampled_from(INTEGERS), seed=st.integers(0, 99)
)
def test_random_integer_expressions(adapter: wgpu.GPUAdapter, trees: list[Any], dtype: str, seed: int) -> None:
    generator, limits = np.random.default_rng(seed), np.iinfo(dtype)
    full = generator.integers(limits.min, limits.max, (2, 150), dtype=dtype, endpoint=True)
    small = generator.integers(0, 9, (2, 150), dtype=dtype)
    left, right = np.hstack([full, small, full, small])[0], np.hstack([full, small, small, full])[1]
    edge = [limits.min, limits.max, 0]
    left, right = np.append(left, np.array(edge * 3, dtype)), np.append(right, np.repeat(np.array(edge, dtype), 3))

    def expressions(x: Any) -> Any:
        return tuple(value_of(tree, *x) for tree in trees)

    with np.errstate(all="ignore"):
        expected = expressions((left, right))
    for native in {has_int64(adapter), False}:
        results = evaluate_map(open_device(adapter), expressions, (left, right), native_int64=native)
        for tree, result, value in zip(trees, results, expected, strict=True):
            np.testing.assert_array_equal(result, value, err_msg=f"{tree} native_int64={native}")


@hypothesis.settings(max_examples=max(8, hypothesis.settings().max_examples // 20))
@hypothesis.given(trees=st.lists(trees(depth=3), min_size=6, max_size=6), seed=st.integers(0, 99))
def test_random_float_expressions(adapter: wgpu.GPUAdapter, trees: list[Any], seed: int) -> None:
    """Use whole numbers that are exact in float32, and operations that floats have."""
    exact = {"-", "abs", "sign", "square", "bool", "+", "*", "min", "max", "where<", "where=="}

    def keep_exact(tree: Any) -> Any:
        if not isinstance(tree, tuple):
            return tree % 8 if isinstance(tree, int) else tree
        name, *args = tree
        return (name if name in exact else ("abs" if len(args) == 1 else "max"), *(keep_exact(arg) for arg in args))

    trees = [keep_exact(tree) for tree in trees]
    left, right = np.random.default_rng(seed).integers(-3, 4, (2, 300)).astype(np.float32)

    def expressions(x: Any) -> Any:
        return tuple(value_of(tree, *x) for tree in trees)

    results = evaluate_map(open_device(adapter), expressions, (left, right), native_int64=has_int64(adapter))
    for tree, result, value in zip(trees, results, expressions((left, right)), strict=True):
        inexact = np.abs(value) >= 2**24
        np.testing.assert_array_equal(result[~inexact], value[~inexact], err_msg=str(tree))


# ----- Named operators


def element(dtype: Any, shape: tuple[int, ...] = ()) -> Element:
    return element_of([np.dtype(dtype)], shapes=[shape])


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, "float32", "complex64"])
def test_named_operators(adapter: wgpu.GPUAdapter, dtype: str) -> None:
    generator = np.random.default_rng(23)
    numbers = generator.integers(-9, 10, (2, 200)).astype(dtype)
    for name, op in BUILTINS.items():
        kind = element(dtype).fields[0].scalar.kind
        if op.kinds is None or kind not in op.kinds:
            continue
        assert op.function is not None
        shape = (2, 2) if name == "matmul" else ()
        left, right = (side.reshape(-1, *shape) for side in numbers)
        for native in {has_int64(adapter), False}:
            (result,) = evaluate_combine(
                open_device(adapter), op, element(dtype, shape), [left], [right], native_int64=native
            )
            expected: Any = op.function(left, right)
            if name in ("logaddexp", "logaddexp2", "hypot"):
                np.testing.assert_allclose(result, expected, rtol=2e-6)
            else:
                np.testing.assert_array_equal(result, expected, err_msg=f"{name} {dtype} native_int64={native}")


# ----- Element axes and bundles


def whole_numbers(*shape: int) -> Array:
    return np.random.default_rng(29).integers(-5, 6, shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_matmul_of_square_matrices(adapter: wgpu.GPUAdapter, size: int) -> None:
    left, right = whole_numbers(2, 90, size, size)
    (result,) = evaluate_combine(
        open_device(adapter), resolve("matmul"), element(np.float32, (size, size)), [left], [right], native_int64=False
    )
    np.testing.assert_array_equal(result, left @ right)


def min_plus(left: Any, right: Any) -> Any:
    """Return the product of matrices over (min, +)."""
    return np.min(left[..., :, :, None] + right[..., None, :, :], axis=-2)


def compose_permutations(left: Any, right: Any) -> Any:
    """Return the composition of permutations: first the left one, then the right one."""
    return np.take_along_axis(right, left, axis=-1)


def quaternion(left: Any, right: Any) -> Any:
    a, b, c, d = (left[..., i] for i in range(4))
    e, f, g, h = (right[..., i] for i in range(4))
    return np.stack(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ],
        axis=-1,
    )


def rotate_and_scale(left: Any, right: Any) -> Any:
    result = np.empty_like(left)
    result[..., 0] = left[..., 1] * right[..., 0]
    result[..., 1:] = np.roll(left, 1, axis=-1)[..., 1:] + np.flip(right, -1)[..., 1:]
    return np.concatenate([result[..., :2], np.swapaxes(left[..., None], -1, -2)[..., 0, 2:]], axis=-1)


def reductions(left: Any, right: Any) -> Any:
    total = np.sum(left * right, axis=-1, keepdims=True)
    largest = np.max(left, axis=-1, keepdims=True)
    chosen = np.where(np.any(left > right, axis=-1)[..., None], total, largest)
    return chosen + np.prod(right, axis=-1, keepdims=True) * np.ones_like(left)


@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
        (min_plus, (3, 3), np.float32),
        (lambda l, r: (l @ r) % 7, (2, 2), np.uint32),
        (lambda l, r: l @ np.array([[1, 2], [3, 4]], np.int64) + r.mT, (2, 2), np.int64),
        (quaternion, (4,), np.float32),
        (rotate_and_scale, (4,), np.float32),
        (reductions, (3,), np.float32),
        (lambda l, r: l * np.arange(6, dtype=np.int16) + r, (6,), np.int16),
        (lambda l, r: np.clip(l + r, -3, 3), (17,), np.float32),
    ],
)
def test_vectors_and_matrices(adapter: wgpu.GPUAdapter, function: Expression, shape: Any, dtype: Any) -> None:
    with np.errstate(all="ignore"):
        left, right = whole_numbers(2, 100, *shape).astype(dtype)
        expected = function(left, right)
    op = operator(function, element_axes=len(shape))
    for native in {has_int64(adapter), False}:
        (result,) = evaluate_combine(
            open_device(adapter), op, element(dtype, shape), [left], [right], native_int64=native
        )
        np.testing.assert_array_equal(result, expected)


def test_permutations(adapter: wgpu.GPUAdapter) -> None:
    generator = np.random.default_rng(31)
    left, right = (np.array([generator.permutation(5) for _ in range(80)], np.uint8) for _ in range(2))
    (result,) = evaluate_combine(
        open_device(adapter),
        operator(compose_permutations),
        element(np.uint8, (5,)),
        [left],
        [right],
        native_int64=False,
    )
    np.testing.assert_array_equal(result, compose_permutations(left, right))


def max_subarray(left: Any, right: Any) -> Any:
    """Combine sum, best prefix, best suffix and best run."""
    return (
        left[0] + right[0],
        np.maximum(left[1], left[0] + right[1]),
        np.maximum(right[2], right[0] + left[2]),
        np.maximum(np.maximum(left[3], right[3]), left[2] + right[1]),
    )


def argmax(left: Any, right: Any) -> Any:
    takes_right = (right["value"] > left["value"]) | np.isnan(right["value"]) & ~np.isnan(left["value"])
    return {
        "value": np.where(takes_right, right["value"], left["value"]),
        "at": np.where(takes_right, right["at"], left["at"]),
    }


def test_bundles(adapter: wgpu.GPUAdapter) -> None:
    generator = np.random.default_rng(37)
    for native in {has_int64(adapter), False}:
        structure = Structure("tuple", (0, 1, 2, 3), (LEAF,) * 4)
        left, right = generator.integers(-99, 99, (2, 4, 150), dtype=np.int64)
        results = evaluate_combine(
            open_device(adapter), operator(max_subarray), element_of([left.dtype] * 4, structure), left, right,
            native_int64=native,
        )  # fmt: skip
        np.testing.assert_array_equal(results, max_subarray(left, right))

        structure = Structure("dict", ("at", "value"), (LEAF, LEAF))
        values = generator.integers(0, 9, (2, 150)).astype(np.float32)
        places = generator.integers(0, 1 << 40, (2, 150), dtype=np.uint64)
        sides = [[places[k], values[k]] for k in range(2)]
        results = evaluate_combine(
            open_device(adapter), operator(argmax), element_of([places.dtype, values.dtype], structure), *sides,
            native_int64=native,
        )  # fmt: skip
        expected = argmax(*({"at": side[0], "value": side[1]} for side in sides))
        np.testing.assert_array_equal(results[0], expected["at"])
        np.testing.assert_array_equal(results[1], expected["value"])


def test_a_bundle_with_a_matrix_field(adapter: wgpu.GPUAdapter) -> None:
    """Scan maps x -> A x + b in a structured dtype."""

    def compose_maps(left: Any, right: Any) -> Any:
        moved = (right["A"] @ left["b"][..., None])[..., 0]
        return {"A": right["A"] @ left["A"], "b": moved + right["b"]}

    structure = Structure("structured", ("A", "b"), (LEAF, LEAF))
    whole = element_of([np.dtype(np.float32)] * 2, structure, [(2, 2), (2,)])
    matrices, vectors = whole_numbers(2, 70, 2, 2), whole_numbers(2, 70, 2)
    sides = [[matrices[k], vectors[k]] for k in range(2)]
    results = evaluate_combine(open_device(adapter), operator(compose_maps), whole, *sides, native_int64=False)
    expected = compose_maps(*({"A": side[0], "b": side[1]} for side in sides))
    np.testing.assert_array_equal(results[0], expected["A"])
    np.testing.assert_array_equal(results[1], expected["b"])


# ----- The user's WGSL


CLASHING = """const WORKGROUP_SIZE = 2.0;
struct Params { factor: f32, }
fn f32_isnan(x: Element) -> Element { return x * WORKGROUP_SIZE; }
fn combine(a: Element, b: Element) -> Element {
    let params = Params(3.0);
    return f32_isnan(a) + scan(b) * params.factor;
}"""


def test_user_wgsl_runs_whatever_its_names(adapter: wgpu.GPUAdapter) -> None:
    op = wgsl_operator(CLASHING, helpers="fn scan(x: f32) -> f32 { return -x; }", name="mine")
    left, right = whole_numbers(2, 64)
    (result,) = evaluate_combine(open_device(adapter), op, element(np.float32), [left], [right], native_int64=False)
    np.testing.assert_array_equal(result, left * 2 - right * 3)


SIGNATURE = "fn combine(a: Element, b: Element) -> Element {\n"
BROKEN = [
    (SIGNATURE + "    let c = a;\n    return c + unknown;\n}", "", "line 3 of its source"),
    (SIGNATURE + "    return vec2<f32>(a, b);\n}", "", "line [12] of its source"),
    (SIGNATURE + "    return a +;\n}", "", "line 2 of its source"),
    (
        SIGNATURE + "    return twice(a);\n}",
        "\n\n\nfn twice(x: f32) -> f32 {\n    return x * two;\n}",
        r"line 5 of its helpers: return x \* two;",
    ),
]


def broken_shader(source: str, helpers: str) -> tuple[Any, str]:
    op = wgsl_operator(source, helpers=helpers, name="mine")
    code = combine_code(op, element(np.float32), False)
    return op, shader(code, "combine(1.0f, 2.0f)", [("Element", element(np.float32))], [], False)


@pytest.mark.parametrize(("source", "helpers", "place"), BROKEN)
def test_compile_errors_name_the_users_line(adapter: wgpu.GPUAdapter, source: str, helpers: str, place: str) -> None:
    op, text = broken_shader(source, helpers)
    with pytest.raises(wgpu.GPUValidationError) as caught:
        open_device(adapter).create_shader_module(code=text)
    assert re.search(place, str(user_error(op.name, str(caught.value), text)))


# ----- Dawn


@pytest.fixture(scope="module")
def dawn_device() -> Any:
    """Return a device of Dawn on any Vulkan driver of the machine. Browsers use its compiler (Tint)."""
    wgpudawn = importlib.import_module("wgpudawn")  # a second WebGPU implementation, loaded only for its tests

    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
    if not wgpudawn.gpu.enumerate_adapters_sync() and MIN_ADAPTERS == "0":
        pytest.skip("no adapter on this machine")
    return wgpudawn.gpu.request_adapter_sync().request_device_sync()


def compile_text(device: Any, text: str) -> None:
    module = device.create_shader_module(code=text)
    device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})


def test_dawn_takes_all_of_the_arithmetic(dawn_device: Any) -> None:
    names = [name for name in arithmetic_functions() if not re.search(r"[fiu]64", name)]
    called = helpers_of(" ".join(f"{name}(" for name in names))
    begin = "struct Params { epoch: u32 }\n@group(0) @binding(0) var<uniform> params: Params;\n"
    end = "\n@compute @workgroup_size(1)\nfn main() {}\n"
    for branches in (False, True):
        text = render("shared/arithmetic.wgsl", helpers=called, native_int64=False, branches=branches)
        compile_text(dawn_device, begin + text + end)
    assert len(called) > 70


@pytest.mark.parametrize(("source", "helpers", "place"), BROKEN)
def test_dawns_errors_name_the_users_line(dawn_device: Any, source: str, helpers: str, place: str) -> None:
    op, text = broken_shader(source, helpers)
    with pytest.raises(Exception, match="error") as caught:
        dawn_device.create_shader_module(code=text)
    assert re.search(place, str(user_error(op.name, str(caught.value), text)))
