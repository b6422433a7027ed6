"""`gpuscan.scan` without a GPU: what each argument means, what each error says, and the NumPy path."""

from __future__ import annotations

import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import gpuscan as gs
from tests.harness.devices import all_adapters, forget_adapters, hide_adapters
from tests.oracle import AFFINE, LATER, Array, assert_same, assert_scans, one_by_one, words
from tests.strategies import scans

X = np.array([3, 1, 4, 1, 5], np.int32)
TABLE = np.arange(6, dtype=np.int32).reshape(2, 3)
Pair = namedtuple("Pair", "gain shift")


def scan(x: Any, op: Any = "add", **options: Any) -> Any:
    """Scan on NumPy."""
    return gs.scan(x, op, device="numpy", **options)


# ----- The NumPy path


@given(scans())
def test_any_array_and_any_options(asked: tuple[Array, str, int, dict[str, Any]]) -> None:
    assert_scans(*asked, "numpy")


def test_lists_and_memory_maps_are_arrays(tmp_path: Any) -> None:
    assert_same(scan([1, 2, 3]), np.array([1, 3, 6]))
    np.save(tmp_path / "x.npy", X)
    assert_same(scan(np.load(tmp_path / "x.npy", mmap_mode="r")), np.cumsum(X, dtype=np.int32))


@pytest.mark.parametrize("op", ["add", np.add, lambda l, r: l + r, gs.operator(lambda l, r: l + r, identity=0)])
def test_operators_are_named_in_four_ways(op: Any) -> None:
    assert_same(scan(X, op), np.array([3, 4, 8, 9, 14], np.int32))


def test_floats_of_a_function_are_combined_in_a_tree_of_their_own() -> None:
    x = np.random.default_rng(0).random(100_000, np.float32)
    np.testing.assert_allclose(scan(x, lambda l, r: l + r), np.cumsum(x, dtype=np.float64), rtol=1e-5)


def test_the_result_has_the_kind_of_x() -> None:
    a, b = words(np.random.default_rng(1), 2, 50)
    wanted = one_by_one(LATER.function, (a, b))
    results = {
        "tuple": scan((a, b), LATER),
        "named": tuple(scan(Pair(a, b), LATER)),
        "dict": tuple(scan({"u": a, "v": b}, _later_dict).values()),
        "record": _fields(scan(_record(a, b), _later_dict)),
    }
    assert type(scan(Pair(a, b), lambda l, r: Pair(r.gain, l.shift | r.shift))) is Pair
    assert list(scan({"v": a, "u": b}, _later_dict)) == ["v", "u"]
    for kind, fields in results.items():
        for got, field in zip(fields, wanted, strict=True):
            assert_same(got, field, kind)


def _later_dict(l: Any, r: Any) -> Any:
    return {"u": np.where(r["v"] != 0, r["u"], l["u"]), "v": l["v"] | r["v"]}


def _record(a: Any, b: Any) -> Any:
    record = np.empty(len(a), [("u", a.dtype), ("v", b.dtype)])
    record["u"], record["v"] = a, b
    return record


def _fields(record: Any) -> Any:
    return [record[name] for name in record.dtype.names]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_empty_arrays_have_empty_results(shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        assert_same(scan(np.empty(shape, np.float32), axis=axis), np.empty(shape, np.float32))
        assert_same(scan(np.empty(shape, np.int8), "min", axis=axis, exclusive=True), np.empty(shape, np.int8))


def test_axes_of_one_element() -> None:
    assert_same(scan(np.array([7])), np.array([7]))
    assert_same(scan(np.array([7]), exclusive=True), np.array([0]))
    assert_same(scan(TABLE[:, :1], axis=1, initial=2), TABLE[:, :1] + np.int32(2))


def test_initial_is_in_inclusive_results_and_begins_exclusive_ones() -> None:
    assert_same(scan(X, initial=10), np.array([13, 14, 18, 19, 24], np.int32))
    assert_same(scan(X, initial=10, exclusive=True), np.array([10, 13, 14, 18, 19], np.int32))
    assert_same(scan(X, initial=10, reverse=True), np.array([24, 21, 20, 16, 15], np.int32))
    assert_same(scan(X, exclusive=True, reverse=True), np.array([11, 10, 6, 5, 0], np.int32))


def test_initial_is_the_left_operand() -> None:
    x = words(np.random.default_rng(2), 2, 20)
    for reverse in (False, True):
        wanted = one_by_one(AFFINE.function, x, reverse=reverse, initial=(5, 7))
        for got, field in zip(scan(x, AFFINE, reverse=reverse, initial=(5, 7)), wanted, strict=True):
            assert_same(got, field)


def test_no_silent_promotion() -> None:
    for dtype in ("int8", "uint16", "int64", "float16", "float64", "complex64"):
        assert scan(np.ones(3, dtype)).dtype == dtype
    assert_same(scan(np.full(3, 100, np.int8)), np.array([100, -56, 44], np.int8))
    assert_same(scan(np.full(3, 100, np.int8), dtype=np.int16), np.array([100, 200, 300], np.int16))
    assert_same(scan(np.array([True, True]), dtype=np.uint8), np.array([1, 2], np.uint8))
    assert_same(scan(np.array([False, True, False]), "logical_or"), np.array([False, True, True]))


def test_out_is_filled_and_returned() -> None:
    out = np.zeros((3, 4), np.int32)[:, ::2].T
    assert scan(TABLE, axis=1, out=out) is out
    assert_same(out, np.cumsum(TABLE, axis=1, dtype=np.int32))
    x = X.copy()
    assert scan(x, out=x) is x
    assert_same(x, np.cumsum(X, dtype=np.int32))
    both = (np.empty_like(X), np.empty_like(X))
    assert scan((X, X), AFFINE, out=both) is both
    assert_same(both[0], np.cumprod(X, dtype=np.int32))


# ----- Errors: what was asked, what was found, what to do


def message(error: type[Exception], x: Any = X, op: Any = "add", **options: Any) -> str:
    """Return the text of the call's error, and require that the caller's arrays are unchanged."""
    arrays = [a for a in (x, *options.values()) if isinstance(a, np.ndarray)]
    before = [a.copy() for a in arrays]
    with pytest.raises(error) as raised:
        gs.scan(x, op, **({"device": "numpy"} | options))
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    return str(raised.value)


def assert_says(text: str, *parts: str) -> None:
    __tracebackhide__ = True
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in: {text}"


def test_a_missing_axis() -> None:
    assert_says(message(ValueError, TABLE), "(2, 3)", "axis=", "0, 1", "reshape(-1)")


def test_an_axis_out_of_range() -> None:
    for axis in (2, -3):
        assert_says(message(np.exceptions.AxisError, TABLE, axis=axis), f"axis={axis}", "(2, 3)", "0, 1", "-2, -1")


def test_no_axes_at_all() -> None:
    assert_says(message(ValueError, np.int32(5)), "shape ()", "at least one axis", "np.newaxis")


def test_exclusive_without_identity() -> None:
    text = message(ValueError, X, gs.operator(lambda l, r: l, name="first"), exclusive=True)
    assert_says(text, "exclusive", "'first'", "no identity", "initial=")


def test_bool_with_add() -> None:
    for op in ("add", np.multiply):
        assert_says(message(TypeError, np.array([True, False]), op), "bool", "dtype=np.int32")


def test_an_operator_of_another_dtype() -> None:
    assert_says(message(TypeError, np.ones(3, np.float32), "bitwise_xor"), "bitwise_xor", "float32", "dtype=")
    assert_says(message(TypeError, X, "logical_and"), "logical_and", "int32", "dtype=bool")
    assert_says(message(TypeError, X, "logaddexp"), "logaddexp", "int32", "dtype=np.float32")
    assert_says(message(TypeError, np.ones(3, np.complex64), "maximum"), "maximum", "complex64", "order")


def test_an_unknown_operator() -> None:
    assert_says(message(gs.OperatorError, X, "plus"), "'plus'", "add", "maximum", "matmul", "function of (left, right)")
    assert_says(message(gs.OperatorError, X, np.subtract), "np.subtract", "add", "lambda l, r")
    for ufunc, name in ((np.sin, "op=np.sin"), (np.frompyfunc(lambda l, r: l, 2, 1), "op=<ufunc '<lambda>")):
        text = message(gs.OperatorError, X, ufunc)
        assert_says(text, name, "add")
        assert "lambda l, r" not in text
    assert_says(message(gs.OperatorError, X, 7), "7", "add", "function of (left, right)")


def test_an_unknown_strategy() -> None:
    text = message(gs.StrategyError, strategy="fastest")
    assert_says(text, "'fastest'", "auto", "lookback", "fallback", "three_dispatch")
    wrong: Any = np.array(["auto", "auto"])
    assert_says(message(gs.StrategyError, strategy=wrong), "array(['auto'", "Pass auto")


def test_out_of_another_shape() -> None:
    assert_says(message(ValueError, out=np.zeros(4, np.int32)), "out", "(4,)", "(5,)")


def test_out_of_another_dtype() -> None:
    assert_says(message(TypeError, out=np.zeros(5, np.int64)), "out", "int64", "int32", "dtype=")


def test_out_that_cannot_be_written() -> None:
    out = np.zeros(5, np.int32)
    out.flags.writeable = False
    assert_says(message(ValueError, out=out), "a read-only out", "can be written")


def test_fields_of_out_lie_apart() -> None:
    def pairs(l: Any, r: Any) -> Any:
        return l[0] + r[0], l[1] + r[1]

    both = np.zeros((5, 2), np.int32)
    scan((X, X), pairs, out=(both[:, 0], both[:, 1]))
    assert_same(both[:, 1], X.cumsum(dtype=np.int32))
    before = both.copy()
    for out in ((both[:, 0], both[:, 0]), (both.reshape(-1)[:5], both.reshape(-1)[4:9])):
        with pytest.raises(ValueError, match="share memory"):
            scan((X, X), pairs, out=out)
    assert_same(both, before)


def test_complex_products_round_alike_wherever_they_lie() -> None:
    """Assert what NumPy's own products do not fulfil, if reversed or of two elements alone."""
    rng = np.random.default_rng(0)
    for shape in [(2, 1), (2, 7), (3, 5), (40, 3)] * 20:
        x = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
        for axis, exclusive in ((0, False), (1, True)):
            wanted = gs.scan(np.flip(x, axis), "multiply", axis=axis, exclusive=exclusive, device="numpy")
            got = gs.scan(x, "multiply", axis=axis, exclusive=exclusive, reverse=True, device="numpy")
            assert_same(np.ascontiguousarray(got), np.ascontiguousarray(np.flip(wanted, axis)))
        row = x.reshape(-1)
        chunks = gs.scan_chunks([row[:2], row[2:3], row[3:]], "multiply", device="numpy", initial=1 + 2j)
        assert_same(np.concatenate(list(chunks)), gs.scan(row, "multiply", device="numpy", initial=1 + 2j))


def test_out_that_is_no_array() -> None:
    assert_says(message(TypeError, out=[0] * 5), "out", "NumPy array", "list")
    assert_says(message((TypeError, ValueError), (X, X), AFFINE, out=np.zeros(5, np.int32)), "out")  # type: ignore[arg-type]
    assert_says(message((TypeError, ValueError), (X, X), AFFINE, out=(np.zeros(5, np.int32),)), "out", "2")  # type: ignore[arg-type]


def test_arrays_of_a_bundle_with_several_shapes() -> None:
    assert_says(message(ValueError, (X, X[:3]), AFFINE), "one shape", "(5,)", "(3,)")
    empty: Any
    for empty in ((), {}):
        assert_says(message(ValueError, empty, AFFINE), "bundle", "one array or more")


def test_a_built_in_operator_of_a_bundle() -> None:
    assert_says(message(gs.OperatorError, (X, X), "add"), "'add'", "2 fields", "lambda l, r")


@pytest.mark.parametrize(
    ("x", "way_out"),
    [
        (np.array(["a"]), "np.unique(x, return_inverse=True)"),
        (np.array([None]), ".astype(...)"),
        (np.array(["2024-01-01"], "M8[D]"), "x.view(np.int64)"),
        (np.ones(2, "c16"), "dtype=np.complex64"),
    ],
)
def test_dtypes_that_no_gpu_has(x: Any, way_out: str) -> None:
    assert_says(message(gs.UnsupportedDtypeError, x), str(x.dtype), "float32", way_out)
    with pytest.raises(TypeError):
        scan(x)


def test_matrices_that_are_not_square() -> None:
    text = message(gs.OperatorError, np.ones((4, 2, 3), np.float32), "matmul", axis=0)
    assert_says(text, "'matmul'", "square", "(2, 3)")


def test_initial_that_does_not_broadcast() -> None:
    assert_says(message(ValueError, TABLE, axis=1, initial=np.zeros(3, np.int32)), "initial", "(3,)", "(2,)")


def test_initial_of_another_kind() -> None:
    assert_says(message(TypeError, X, initial=1.5), "initial", "1.5", "int32")


@pytest.mark.parametrize("value", ["no", None, 2, 0.0, np.array([True, False]), [True]], ids=repr)
def test_options_that_are_neither_on_nor_off(value: Any) -> None:
    calls: dict[str, Any] = {
        "exclusive": lambda **flag: scan(X, **flag),
        "reverse": lambda **flag: scan(X, **flag),
        "compensated": lambda **flag: scan(X.astype(np.float32), **flag),
        "include_initial": lambda **flag: gs.cumulative_sum(X, **flag),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError) as caught:
            call(**{name: value})
        assert_says(str(caught.value), f"{name}={value!r}", f"{name}=True")
    with pytest.raises(TypeError, match="exclusive="):
        gs.scan_chunks([X], exclusive=value, device="numpy")
    floats = X.astype(np.float32)
    with pytest.raises(TypeError, match="reverse="):
        gs.linear_recurrence_vjp(floats, floats, floats, reverse=value)


def test_options_that_are_on_as_numpy_has_it() -> None:
    for on in (1, np.True_):
        assert_same(scan(X, exclusive=on), scan(X, exclusive=True))


@pytest.mark.parametrize("dtype", ["no such", (np.int32, np.float32), {"a": np.int32}, [np.int32]], ids=repr)
def test_dtypes_that_are_none(dtype: Any) -> None:
    assert_says(message(TypeError, X, dtype=dtype), repr(dtype), "np.float32", "structured")
    with pytest.raises(TypeError, match="structured"):
        gs.cumulative_sum(X, dtype=dtype)


def test_devices_that_are_none() -> None:
    assert_says(message(TypeError, device=3.5), "device=3.5", "gpuscan.Device", "string")
    text = message(gs.AdapterNotFoundError, device="no such adapter")
    assert_says(text, "'no such adapter'")
    for adapter in all_adapters():
        assert adapter.summary in text


def test_every_error_is_a_gpuscan_error_and_a_builtin_one() -> None:
    for error, builtin in [
        (gs.UnsupportedDtypeError, TypeError),
        (gs.OperatorError, ValueError),
        (gs.StrategyError, ValueError),
        (gs.DeviceLostError, RuntimeError),
        (gs.DeviceMemoryError, MemoryError),
        (gs.ProgressTimeoutError, RuntimeError),
        (gs.AdapterNotFoundError, Exception),
    ]:
        assert issubclass(error, gs.GpuscanError)
        assert issubclass(error, builtin)


# ----- Which device


@pytest.fixture
def no_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let gpuscan see a machine without any adapter."""
    hide_adapters(monkeypatch)


@pytest.mark.usefixtures("no_adapters")
def test_without_adapters_numpy_runs_and_says_so_once() -> None:
    with pytest.warns(RuntimeWarning, match=r"no adapter.*install.*NumPy") as caught:
        assert_same(gs.scan(X), np.array([3, 4, 8, 9, 14], np.int32))
    assert [warning.filename for warning in caught] == [__file__]  # it points at the call
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(gs.scan(X, "maximum"), np.array([3, 3, 4, 4, 5], np.int32))


@pytest.mark.usefixtures("no_adapters")
def test_numpy_that_was_asked_for_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan(X)
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
        assert_same(gs.scan(X), np.array([3, 4, 8, 9, 14], np.int32))


@pytest.mark.usefixtures("no_adapters")
def test_an_adapter_that_was_asked_for_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gs.AdapterNotFoundError, match=r"GeForce"):
        gs.scan(X, device="GeForce")
    monkeypatch.setenv("GPUSCAN_ADAPTER", "GeForce")
    with pytest.raises(gs.AdapterNotFoundError, match=r"GeForce.*GPUSCAN_ADAPTER"):
        gs.scan(X)


@pytest.mark.parametrize("looked_before", [False, True])
@pytest.mark.usefixtures("no_adapters")
def test_an_unknown_implementation_is_an_error(monkeypatch: pytest.MonkeyPatch, looked_before: bool) -> None:
    if not looked_before:
        forget_adapters(monkeypatch)
    monkeypatch.setenv("GPUSCAN_BACKEND", "foo")
    for call in (lambda: gs.scan(X), lambda: gs.scan(X, initial=1), lambda: list(gs.scan_chunks([X]))):
        with pytest.raises(gs.AdapterNotFoundError, match=r"'foo'.*GPUSCAN_BACKEND.*wgpu, dawn.*unset"):
            call()


@pytest.mark.usefixtures("no_adapters")
def test_an_implementation_without_adapters_leaves_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_BACKEND", "wgpu")
    with pytest.warns(RuntimeWarning, match="NumPy"):
        assert_same(gs.scan(X), np.array([3, 4, 8, 9, 14], np.int32))
