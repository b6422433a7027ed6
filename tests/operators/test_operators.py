"""Operators: names, ufuncs, identities, what elements they take, and the user's WGSL."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpuscan.api.check_associative import check_associative
from gpuscan.elements import LEAF, Element, Structure, element_of
from gpuscan.errors import OperatorError, UnsupportedDtypeError
from gpuscan.operators.code import combine_code
from gpuscan.operators.named_operators import BUILTINS, resolve
from gpuscan.operators.operator import Operator, operator, wgsl_operator
from gpuscan.operators.user_wgsl import user_error

NAMES = (
    "add multiply minimum maximum bitwise_and bitwise_or bitwise_xor "
    "logical_and logical_or logical_xor logaddexp logaddexp2 hypot fmin fmax gcd matmul"
).split()
SUM = "fn combine(a: Element, b: Element) -> Element {\n    return a + b;\n}"


def of(dtype: Any, shape: tuple[int, ...] = ()) -> Element:
    return element_of([np.dtype(dtype)], shapes=[shape])


# ----- Names


def test_names_and_ufuncs_mean_the_same() -> None:
    assert list(BUILTINS) == NAMES
    for name in NAMES:
        assert resolve(name) is resolve(getattr(np, name))
    assert resolve("mul") is resolve("multiply")
    assert resolve("min") is resolve(np.minimum)
    assert resolve("max") is resolve(np.maximum)


def test_functions_and_operators_are_taken_as_they_are() -> None:
    def last(left: Any, right: Any) -> Any:
        return right

    assert resolve(last).function is last
    assert resolve(last).name == "last"
    made = operator(last, identity=3, name="latest")
    assert resolve(made) is made
    assert (made.name, made.identity) == ("latest", 3)


def test_operator_is_a_decorator() -> None:
    @operator(identity=0)
    def total(left: Any, right: Any) -> Any:
        return left + right

    assert isinstance(total, Operator)
    assert total.name == "total"
    assert total(2, 3) == 5  # and still what it decorates


@pytest.mark.parametrize("name", [3, 0, b"sum", ["sum"]])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(TypeError, match=f"got {re.escape(repr(name))}"):
        operator(lambda left, right: left + right, name=name)
    with pytest.raises(TypeError, match=f"got {re.escape(repr(name))}"):
        wgsl_operator(SUM, name=name)


def test_operators_are_called_as_what_they_are_made_of() -> None:
    assert BUILTINS["maximum"](np.arange(3), np.array([2, 0, 5])).tolist() == [2, 1, 5]
    wgsl = wgsl_operator("fn combine(a: Element, b: Element) -> Element { return a; }")
    with pytest.raises(OperatorError, match="'combine' was called; it is WGSL alone"):
        wgsl(1, 2)


def test_operator_refuses_what_is_no_function() -> None:
    others: list[Any] = ["add", operator(np.add)]
    for other in others:
        with pytest.raises(OperatorError, match="it makes an operator of a function of"):
            operator(other)
    for ufunc in (np.sqrt, np.divmod):
        with pytest.raises(OperatorError, match="Pass a function that takes two elements and returns one"):
            operator(ufunc)
    with pytest.raises(OperatorError, match="element_axes counts trailing axes"):
        operator(lambda l, r: l, element_axes=-1)


# ----- Identities


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "complex64"]
)
@pytest.mark.parametrize("name", NAMES)
def test_identities_are_identities(name: str, dtype: str) -> None:
    op = resolve(name)
    element = of(dtype, (2, 2) if name == "matmul" else ())
    try:
        op.check(element)
    except UnsupportedDtypeError:
        return
    identities = op.identity_for(element)
    assert identities is not None
    (identity,) = identities
    assert identity.dtype == np.dtype(dtype)
    assert op.function is not None
    values = np.array([0, 1, 1, 0]).astype(dtype)
    values = values.reshape(2, 2) if name == "matmul" else values
    if np.dtype(dtype).kind in "iu":
        values.flat[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    np.testing.assert_array_equal(op.function(values, identity), values)
    np.testing.assert_array_equal(op.function(identity, values), values)


def only_identity(name: str, dtype: Any) -> Any:
    """Return the identity of a named operator for numbers."""
    identities = resolve(name).identity_for(of(dtype))
    assert identities is not None
    (identity,) = identities
    return identity


def test_zero_is_the_identity_of_gcd_and_hypot_up_to_the_sign() -> None:
    for name, dtype in (("gcd", np.int8), ("hypot", np.float32)):
        values = np.array([-3, 4, -128], dtype)
        zero = only_identity(name, dtype)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(resolve(name)(zero, values), np.abs(values))


def test_nan_is_the_identity_of_fmin_and_fmax() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0], np.float32)
    for name in ("fmin", "fmax"):
        nan = only_identity(name, np.float32)
        np.testing.assert_array_equal(resolve(name)(nan, values), values)


def test_identity_of_bfloat16() -> None:
    element = of(ml_dtypes.bfloat16)
    assert resolve("minimum").identity_for(element) == [np.array(np.inf, ml_dtypes.bfloat16)]
    assert resolve("add").identity_for(element) == [np.array(0, ml_dtypes.bfloat16)]


def test_a_users_identity_is_shaped_as_the_element() -> None:
    structure = Structure("tuple", (0, 1), (LEAF, LEAF))
    element = element_of([np.dtype(np.float32), np.dtype(np.int8)], structure, [(2,), ()])
    identity = operator(lambda l, r: l, identity=([1, 2], 3)).identity_for(element)
    assert identity is not None
    assert [each.tolist() for each in identity] == [[1.0, 2.0], 3]
    assert [each.dtype for each in identity] == [np.float32, np.int8]
    assert operator(lambda l, r: l).identity_for(element) is None


@pytest.mark.parametrize(
    ("identity", "message"),
    [(0, "does not fit an element of 2 fields"), ((0,), "does not fit"), ((0.0, 300), "is no int8|does not fit"),
     ((0.0, 0.5), "is no int8"), (([1, 2, 3], 0), "does not fit the field f0")],
)  # fmt: skip
def test_identities_that_do_not_fit(identity: Any, message: str) -> None:
    structure = Structure("tuple", (0, 1), (LEAF, LEAF))
    element = element_of([np.dtype(np.float32), np.dtype(np.int8)], structure, [(2,), ()])
    with pytest.raises(OperatorError, match=message):
        operator(lambda l, r: l, identity=identity).identity_for(element)


# ----- The user's WGSL


def test_user_names_are_kept_apart() -> None:
    source = """// scan is my helper
const WORKGROUP_SIZE = 3;
fn scan(x: Element) -> Element { let a = x; return a; }  // scan again
fn combine(a: Element, b: Element) -> Element { return scan(a) + b * WORKGROUP_SIZE + tile(b).tile; }"""
    helpers = "struct Tile { tile: f32, }\nfn tile(x: f32) -> Tile { return Tile(x); }"
    code = combine_code(wgsl_operator(source, helpers=helpers, name="mine"), of(np.float32), True)
    assert "const user_WORKGROUP_SIZE = 3;" in code.source
    assert "return user_scan(a) + b * user_WORKGROUP_SIZE + user_tile(b).tile; }" in code.source
    assert "scan is my helper" not in code.source  # shaders hold the text without its comments
    assert "fn user_tile(x: f32) -> user_Tile" in code.source
    assert code.source.count("\n") == source.count("\n") + helpers.count("\n") + 5


@pytest.mark.parametrize(
    ("source", "helpers", "message"),
    [
        ("", "", "declares no function `combine`"),
        ("fn add(a: f32, b: f32) -> f32 { return a; }", "", "declares no function `combine`"),
        ("// fn combine()", "", "declares no function `combine`"),
        (SUM + "\nvar<private> x: u32;", "", "memory of its own"),
        ("enable f16;\n" + SUM, "", "an extension"),
        (SUM, "@compute @workgroup_size(1) fn main() {}", "attribute @compute"),
        (SUM, "alias Element = f32;", "`Element`"),
        (SUM, "fn f() {}\nfn f() {}", "declares f twice"),
    ],
)
def test_wgsl_that_an_operator_may_not_have(source: str, helpers: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        wgsl_operator(source, helpers=helpers, name="mine")


def test_compile_errors_come_back_in_the_users_lines() -> None:
    op = wgsl_operator("fn combine(a: Element, b: Element) -> Element {\n    return a + c;\n}", name="my sum")
    rendered = "alias Element = f32;\n\n" + combine_code(op, of(np.float32), True).source
    naga = "Shader '' parsing error: no definition in scope for identifier: `c`\n  ┌─ wgsl:5:16\n  │\n5 │"
    tint = "Error while parsing WGSL: :5:16 error: unresolved value 'c'\n    return a + c;\n"
    assert rendered.splitlines()[4] == "    return a + c;"
    for message in (naga, tint):
        text = str(user_error(op.name, message, rendered))
        assert "'my sum' does not compile" in text
        assert "line 2 of its source: return a + c;" in text
    assert "unresolved value 'c'" in str(user_error(op.name, tint, rendered))
    assert "no definition in scope" in str(user_error(op.name, naga, rendered))


def test_compile_errors_elsewhere_keep_the_compilers_words() -> None:
    op = wgsl_operator(SUM, name="mine")
    assert "something else" in str(user_error(op.name, "something else, :1:1 error", "alias Element = f32;"))


# ----- check_associative


ELEMENTS = ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64")


@pytest.mark.parametrize("name", NAMES)
def test_the_built_in_operators_are_associative(name: str) -> None:
    shape = (2, 2) if name == "matmul" else ()
    for dtype in ELEMENTS:
        try:
            resolve(name).check(of(dtype, shape))
        except UnsupportedDtypeError:
            continue
        check_associative(name, dtype, shape=shape)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.complex64])
@pytest.mark.parametrize("size", [2, 8])
def test_matrix_products_are_associative_up_to_rounding(size: int, dtype: Any) -> None:
    """Allow for the rounding of an entry's summands, whatever its own size; wrong operators are still found."""
    for seed in range(3):
        check_associative("matmul", dtype, shape=(size, size), seed=seed)
    for wrong in (lambda l, r: np.swapaxes(l, -1, -2) @ r, lambda l, r: l @ r + l, lambda l, r: l - r):
        with pytest.raises(OperatorError, match="is not associative on"):
            check_associative(operator(wrong, element_axes=2), dtype, shape=(size, size))


def test_affine_maps_are_associative() -> None:
    affine = operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0), name="affine")
    check_associative(affine, (np.int32, np.int32))
    check_associative(affine, (np.float32, np.float32))
    check_associative(affine, (np.uint64, np.uint64), samples=50, seed=3)


def test_structured_dtypes_and_dicts() -> None:
    wanted = np.dtype([("n", np.int32), ("m", np.int16, (2,))])
    check_associative(lambda l, r: {"n": l["n"] + r["n"], "m": np.maximum(l["m"], r["m"])}, wanted)
    check_associative(lambda l, r: {"x": r["x"]}, {"x": np.float32})
    check_associative(lambda l, r: {"n": l["n"] + r["n"], "m": r["m"]}, [("n", np.int32), ("m", np.int16)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32])
def test_the_smallest_counterexample(dtype: Any) -> None:
    with pytest.raises(OperatorError) as caught:
        check_associative(lambda l, r: l - r, dtype)
    shown = str(caught.value)
    one = "1.0" if dtype is np.float32 else "1"
    assert f"c = {one}\n" in shown
    assert shown.count("= 0") == 2 or shown.count("= 0.0") == 2
    assert "op(op(a, b), c) = " in shown


def test_counterexamples_of_bundles_have_their_shape() -> None:
    with pytest.raises(OperatorError, match=r"a = \{'x': .*'y': .*\}, b = "):
        check_associative(lambda l, r: {"x": l["x"] - r["x"], "y": l["y"]}, {"x": np.int32, "y": np.float32})


def test_elements_with_axes_of_their_own_are_asked_for() -> None:
    product = operator(lambda l, r: l @ r, element_axes=2)
    with pytest.raises(OperatorError, match=r"of 2 axes, but .* shape \(\) .*Pass shape=..., such as \(2, 2\)"):
        check_associative(product, np.float32)
    check_associative(product, np.float32, shape=(2, 2))


@pytest.mark.parametrize("shape", [[2, 2], np.array([2, 2]), (0, 0)])
def test_shapes_of_elements(shape: Any) -> None:
    """Take shapes as lists, too; elements without entries are never wrong."""
    check_associative("matmul", np.float32, shape=shape)


@pytest.mark.parametrize("shape", [3, np.int64(3), (0,)])
def test_shapes_of_vectors(shape: Any) -> None:
    check_associative(operator(lambda l, r: l + r, element_axes=1), np.int32, shape=shape)
    check_associative("add", np.int32, shape=shape)


def test_averages_are_not_associative() -> None:
    with pytest.raises(OperatorError, match="is not associative on float32"):
        check_associative(lambda l, r: (l + r) * np.float32(0.5), np.float32)


def test_a_wrong_identity_is_found() -> None:
    with pytest.raises(OperatorError, match=r"the identity of total changes an element:\n  a = .*identity = 1"):
        check_associative(operator(lambda l, r: l + r, identity=1, name="total"), np.int32)


@pytest.mark.parametrize(
    ("op", "options", "error", "said"),
    [
        (lambda l, r: l if l > r else r, {}, OperatorError, r"write np\.where\(condition"),
        (lambda l, r: (l, r), {}, OperatorError, "returns 2 fields, but its arguments are single values"),
        (lambda l, r: l[0] + r, {}, OperatorError, "indexes 0 into one int32 number"),
        (lambda l, r: l + 0.5 * r, {}, OperatorError, "gives float64 .*its elements are int32"),
        ("add", {"samples": "a"}, TypeError, "samples is a number, got 'a'"),
        ("add", {"samples": 0}, ValueError, "samples must be at least 1"),
        ("add", {"seed": 0.5}, TypeError, r"seed is a number, got 0\.5"),
        ("add", {"seed": -1}, ValueError, "seed must be at least 0"),
        ("add", {"dtype": None}, TypeError, "dtype None was passed"),
        ("add", {"dtype": []}, ValueError, r"dtype=\[\] was passed, which has no fields"),
        ("add", {"samples": True}, TypeError, "samples is a number, got True"),
        (
            "add",
            {"samples": [0.5]},
            TypeError,
            r"samples \[0\.5\] of dtype float64 was passed for elements of dtype int32",
        ),
        ("add", {"samples": []}, TypeError, r"samples \[\] of dtype float64"),
        ("add", {"samples": np.zeros(0, int)}, ValueError, "0 samples were passed; pass one or more"),
        ("add", {"samples": np.zeros((2, 2), int)}, ValueError, r"samples of shape \(2, 2\) .* elements of shape \(\)"),
        ("add", {"samples": lambda rng, count: [1]}, ValueError, "1 samples were passed; pass 1000, as asked for"),
        (lambda l, r: l, {"samples": ([1], [2, 3]), "dtype": (int, int)}, ValueError, "1 and 2 samples were passed"),
        (lambda l, r: l, {"samples": ([1],), "dtype": (int, int)}, ValueError, "its structure is another one"),
        ("matmul", {"shape": 2}, OperatorError, r"elements of shape \(2,\) were asked for"),
        ("matmul", {"shape": (2, 2.5)}, TypeError, r"shape is a tuple of sizes, such as \(2, 2\), got \(2, 2\.5\)"),
        ("matmul", {"shape": "22"}, TypeError, "shape is a tuple of sizes"),
        ("matmul", {"shape": (2, -2)}, ValueError, "must be at least 0"),
    ],
)
def test_what_check_associative_cannot_try(op: Any, options: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        check_associative(op, **({"dtype": np.int32} | options))


def clamp_sum(l: Any, r: Any) -> Any:
    return np.clip(l + r, 0, 100)


def test_samples_of_the_callers_domain() -> None:
    """Try an operator on the elements that it is for, as values and by a function."""
    with pytest.raises(OperatorError, match="is not associative"):
        check_associative(clamp_sum, np.int32)
    for samples in ([0, 3, 60], np.arange(100), lambda rng, count: rng.integers(0, 99, count)):
        check_associative(clamp_sum, np.int32, samples)
    turns = [np.array([[0, -1], [1, 0]], np.int8), np.eye(2, dtype=np.int8)]
    check_associative("matmul", np.float32, np.array(turns), shape=(2, 2))
    affine = operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0))
    check_associative(affine, (np.float32, np.float32), (np.array([2, -1]), np.array([0.5, 3.0])))
    record = np.zeros(4, [("n", np.int32), ("m", np.int16)])
    check_associative(lambda l, r: {"n": l["n"] + r["n"], "m": r["m"]}, record.dtype, record)


def test_counterexamples_are_samples() -> None:
    for samples in ([7, 12], np.full(2000, 7), lambda rng, count: rng.choice([7, 12], count)):
        with pytest.raises(OperatorError, match=r"a = (7|12), b = (7|12), c = (7|12)\n"):
            check_associative(lambda l, r: l - r, np.int32, samples)


def test_check_associative_is_the_same_every_time() -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(OperatorError) as caught:
            check_associative(lambda l, r: l // (r | 1), np.int16, seed=4)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
