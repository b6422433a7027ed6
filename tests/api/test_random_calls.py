"""Random calls of the whole public interface: each gives what NumPy gives, or one of gpuscan's errors.

The same call with ``device="numpy"`` says which. Whatever comes out, no input is changed, an `out` only by a call that
succeeds, nothing stays in use on the device, and the device goes on.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import ml_dtypes
import numpy as np
import pytest
import wgpu
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.planning.strategies import STRATEGIES
from tests.oracle import AFFINE, MATRICES, strategies_on
from tests.strategies import numbers

Array = np.ndarray[Any, Any]

ALLOWED = (gs.GpuscanError, ValueError, TypeError)
NIGHTLY = hypothesis.settings().max_examples > 500


def examples(count: int) -> hypothesis.settings:
    """So many cases by default, forty times as many in the nightly profile."""
    # The one fixture is the same for all cases.
    checks = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]
    return hypothesis.settings(max_examples=count * (40 if NIGHTLY else 1), suppress_health_check=checks)


# ----- What is drawn

DTYPES = [
    "int32",
    "uint32",
    "float32",
    "uint8",
    "int16",
    "int64",
    "float16",
    "bfloat16",
    "bool",
    "complex64",
    "float64",
]
STRANGE_DTYPES = ["complex128", "object", "U3", "datetime64[s]", "longdouble", "V8"]
EXACT = ["add", "multiply", "minimum", "max", "bitwise_xor", "logical_or", np.maximum, np.add, "mul"]
STRANGE_OPERATORS: list[Any] = [
    "plus", "", None, 3, np.sin, np.subtract, sum, [], lambda l: l, lambda l, r: l if l > r else r,
    lambda l, r: (l, r), lambda l, r: None, lambda l, r: l + 0.5, lambda l, r: 1 / 0, lambda l, r: "text",
    lambda l, r: l[0], lambda l, r: l.nothing, lambda l, r: np.linalg.norm(l), "matmul", AFFINE, MATRICES,
]  # fmt: skip
STRANGE: list[Any] = ["text", 1.5, True, [], {}, object(), np.nan, 2**70, -1, b"\x00", (), np.zeros((0, 3)), 3 + 2j]
BEFORE: list[Any] = [lambda v: v + 1, lambda v: -v, lambda v: v * v]
STRANGE_MAPS: list[Any] = [lambda v: (v, v), lambda v: None, lambda v: v.nothing, 3, lambda v: v or 1, lambda: 1]


def rarely(draw: st.DrawFn, usual: Any, strange: st.SearchStrategy[Any], one_in: int) -> Any:
    """What is usual, and once in so many times something strange."""
    return draw(strange) if draw(st.integers(1, one_in)) == one_in else draw(usual)


def array(draw: st.DrawFn, dtype: str, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if dtype == "bfloat16":
        x = rng.integers(-1, 2, shape).astype(ml_dtypes.bfloat16)
    elif dtype in STRANGE_DTYPES:
        return np.zeros(shape, dtype)
    elif np.dtype(dtype).kind in "fc":
        x = rng.choice(np.array([1, -1], dtype), shape)  # of which sums and products are exact
    else:
        x = numbers(rng, dtype, shape)
    x = np.asarray(x)
    form = draw(st.sampled_from(["C", "F", "strided", "backwards", "swapped", "read-only"]))
    if form == "strided" and x.ndim:
        wide = np.repeat(x, 2, axis=-1)
        x = wide[..., ::2]
    elif form == "backwards" and x.ndim:
        x = x[::-1]
    elif form == "swapped" and dtype != "bfloat16":
        x = x.astype(x.dtype.newbyteorder())
    elif form == "F":
        x = np.asfortranarray(x)
    elif form == "read-only":
        x.flags.writeable = False
    return x


SHAPES = st.one_of(
    st.sampled_from([(0,), (1,), (2,), (31,), (33,), (257,), (1025,)]),
    st.sampled_from([(3, 40), (40, 3), (5, 0), (0, 5), (2, 3, 4), (1, 1), (2, 2, 2)]),
)


def drawn_input(draw: st.DrawFn) -> Any:
    shape = rarely(draw, SHAPES, st.sampled_from([(), (2,) * 5]), 12)
    dtype = rarely(draw, st.sampled_from(DTYPES), st.sampled_from(STRANGE_DTYPES), 12)
    form = rarely(draw, st.just("array"), st.sampled_from(["tuple", "dict", "ragged", "record", "list", "strange"]), 4)
    x = array(draw, dtype, shape)
    if form == "tuple":
        return x, array(draw, dtype, shape)
    if form == "dict":
        return {"a": x, "b": array(draw, dtype, shape)}
    if form == "ragged":
        return x, array(draw, dtype, (7,))
    if form == "record":
        record = np.zeros(shape, [("a", "u4"), ("b", "u4")])
        record["a"] = 3
        return record
    if form == "list":
        return x.tolist()
    return draw(st.sampled_from([*STRANGE, [[1, 2], [3]], None])) if form == "strange" else x


def shape_of(x: Any) -> tuple[int, ...]:
    leaf = next(iter(x.values() if isinstance(x, dict) else x), 0) if isinstance(x, (tuple, dict)) else x
    try:
        return np.shape(leaf)
    except ValueError:
        return ()


def drawn_options(draw: st.DrawFn, x: Any) -> dict[str, Any]:
    """Options of a scan, most of which fit."""
    shape = shape_of(x)
    length = shape[0] if shape else 1
    rng = np.random.default_rng(length)
    options: dict[str, Any] = {}
    if len(shape) > 1 or draw(st.integers(0, 9)) == 0:
        axis = st.integers(-len(shape), len(shape) - 1) if shape else st.just(0)
        options["axis"] = rarely(draw, axis, st.sampled_from([9, -9, 1.5, "0", True, None]), 8)
    for name in ("exclusive", "reverse"):
        if draw(st.integers(0, 2)) == 0:
            options[name] = True
    choice = draw(st.sampled_from(["initial", "segments", "keys", "dtype", "before", "after", *[None] * 5]))
    if choice == "initial":
        options["initial"] = rarely(draw, st.sampled_from([0, 1, np.uint8(1)]), st.sampled_from(STRANGE), 2)
    elif choice == "segments":
        fitting = np.sort(np.concatenate([[0, length], rng.integers(0, length + 1, 3)]))
        strange = [[], [0], [0, 2, 1, length], [1, length], [0, length + 1], [0.0, length], [[0, length]], [-1, length]]
        options["segments"] = rarely(draw, st.just(fitting), st.sampled_from([*strange, *STRANGE]), 2)
    elif choice == "keys":
        fitting = rng.integers(0, 3, length)
        strange = [fitting[1:], fitting[:, None], fitting > 0, fitting.astype("U3"), fitting.astype(object)]
        options["keys"] = rarely(draw, st.just(fitting), st.sampled_from([*strange, *STRANGE]), 2)
    elif choice == "dtype":
        strange = st.sampled_from([*STRANGE_DTYPES, "nothing", 7, np.zeros(3)])
        options["dtype"] = rarely(draw, st.sampled_from(["int32", "float32", "uint64"]), strange, 3)
    elif choice in ("before", "after"):
        options[choice] = rarely(draw, st.sampled_from(BEFORE), st.sampled_from(STRANGE_MAPS), 2)
    return options


def drawn_operator(draw: st.DrawFn, x: Any) -> Any:
    if isinstance(x, tuple) and len(x) == 2:
        return rarely(draw, st.just(AFFINE), st.sampled_from([*EXACT, *STRANGE_OPERATORS]), 2)
    return rarely(draw, st.sampled_from(EXACT), st.sampled_from(STRANGE_OPERATORS), 5)


Call = tuple[str, Callable[..., Any], list[Any], dict[str, Any]]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A function's name, the function of inputs and options, and those."""
    x = drawn_input(draw)
    name = draw(st.sampled_from(["scan"] * 6 + ["reduce", "sum", "prod", "recurrence", "vjp", "compact", "chunks"]))
    options = drawn_options(draw, x)
    if name == "scan":
        return name, gs.scan, [x, drawn_operator(draw, x)], options
    if name == "reduce":
        kept = {k: v for k, v in options.items() if k in ("axis", "initial", "dtype")}
        return name, gs.reduce, [x, drawn_operator(draw, x)], kept
    if name in ("sum", "prod"):
        kept = {k: v for k, v in options.items() if k in ("axis", "dtype")} | {"include_initial": draw(st.booleans())}
        return name, gs.cumulative_sum if name == "sum" else gs.cumulative_prod, [x], kept
    if name == "compact":
        shape = shape_of(x)
        mask = np.random.default_rng(3).random(shape[:1] or (1,)) < 0.5
        return name, gs.compact, [x, rarely(draw, st.just(mask), st.sampled_from([mask[1:], *STRANGE]), 4)], {}
    if name == "chunks":
        kept = {k: v for k, v in options.items() if k in ("exclusive", "initial", "dtype", "before", "after")}
        pieces = [x, rarely(draw, st.just(x), st.sampled_from([np.zeros(3, np.int8), None, "text"]), 3), x]
        return name, lambda *args, **more: list(gs.scan_chunks(*args, **more)), [pieces, drawn_operator(draw, x)], kept
    other = rarely(draw, st.just(x), st.sampled_from([np.zeros(3, "f4"), *STRANGE]), 3)
    kept = {k: v for k, v in options.items() if k in ("axis", "initial", "reverse")}
    if name == "recurrence":
        return name, gs.linear_recurrence, [x, other], kept
    return name, gs.linear_recurrence_vjp, [x, x, other], kept


# ----- What comes of a call


def leaves_of(value: Any) -> list[Array]:
    """The arrays in a value of any form."""
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves_of(part)]
    if isinstance(value, dict):
        return leaves_of(list(value.values()))
    if isinstance(value, gs.Array):
        return [value.numpy()]
    return [np.asarray(value)] if isinstance(value, (np.ndarray, np.generic)) else []


def outcome(call: Callable[[], Any]) -> tuple[Any, type[BaseException] | None, str]:
    """The result, or the error's class and text; any other error passes on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(), None, ""
        except ALLOWED as error:
            return None, type(error), str(error)


def assert_alike(got: Any, wanted: Any) -> None:
    first, second = leaves_of(got), leaves_of(wanted)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype.names:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_array_equal(np.asarray(a, "c16"), np.asarray(b, "c16")) if a.dtype.kind in "fcV" else (
                np.testing.assert_array_equal(a, b)
            )


def of_the_device(text: str) -> bool:
    """Whether an error tells of the adapter, so that NumPy need not have it."""
    return any(words in text for words in ("64-bit floats", "64-bit numbers", "asks for an adapter"))


@pytest.fixture
def chosen(device: Device, adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device, as that of functions without ``device=``."""
    monkeypatch.setattr("gpuscan.api.device.default_device", lambda: device)
    return device


def on_device(device: Device, x: Any) -> Any:
    """The input's arrays brought to the device, where it takes them."""
    if isinstance(x, tuple):
        return tuple(on_device(device, part) for part in x)
    if isinstance(x, dict):
        return {key: on_device(device, part) for key, part in x.items()}
    return device.asarray(x) if isinstance(x, np.ndarray) and not x.dtype.names else x


def bytes_in_use(device: Device) -> int:
    if device.memory_usage().bytes_in_use:
        gc.collect()  # errors hold frames, and those hold arrays
    return device.memory_usage().bytes_in_use


@contextmanager
def left_in_order(device: Device) -> Iterator[None]:
    """Afterwards nothing more is in use on the device than before, and it goes on."""
    in_use = bytes_in_use(device)
    yield
    assert bytes_in_use(device) == in_use
    x = np.arange(100, dtype=np.uint32)
    np.testing.assert_array_equal(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))


@examples(120)
@hypothesis.given(call=calls(), there=st.booleans(), strategy=st.sampled_from(["auto", "auto", "quick", *STRATEGIES]))
def test_random_calls(chosen: Device, call: Call, there: bool, strategy: str) -> None:
    with left_in_order(chosen):
        check_call(chosen, *call, there=there, strategy=strategy)


def strange(given: list[Any], options: dict[str, Any]) -> bool:
    """Whether there is a function that NumPy runs on arrays, and that may not be a shader."""
    functions = [value for value in (*given, *options.values()) if callable(value)]
    return any(function in (*STRANGE_OPERATORS, *STRANGE_MAPS) for function in functions)


def check_call(
    device: Device,
    name: str,
    function: Callable[..., Any],
    given: list[Any],
    options: dict[str, Any],
    *,
    there: bool,
    strategy: str,
) -> None:
    """The same on the device, or from arrays on the device, as on NumPy."""
    inputs = leaves_of([given, options])
    before = [leaf.copy() for leaf in inputs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUSCAN_ADAPTER", "numpy")
        wanted, refused, why = outcome(lambda: function(*given, **options))
    moved = False
    if there and refused is None and name != "chunks":
        arguments, failed, _ = outcome(lambda: [on_device(device, given[0]), *given[1:]])
        moved = failed is None
        given = arguments if moved else given
    asked: dict[str, Any] = {"strategy": strategy} if name in ("scan", "chunks") else {}
    if name in ("scan", "chunks", "reduce", "recurrence") and not moved:
        asked["device"] = device
    got, failed, said = outcome(lambda: function(*given, **options, **asked))
    if failed is None:
        assert refused is None, f"NumPy refuses: {why}"
        assert_alike(got, wanted)
    elif refused is None:
        by_strategy = issubclass(failed, gs.StrategyError) and strategy != "auto"
        untraced = issubclass(failed, gs.OperatorError) and strange(given, options)
        assert by_strategy or untraced or of_the_device(said) or (moved and "on gpuscan.Device" in said), said
    for leaf, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(leaf, copy)


OUTS: dict[str, Callable[[Array], Any]] = {
    "fits": np.zeros_like,
    "x itself": lambda x: x,
    "x backwards": lambda x: x[::-1],
    "shifted": lambda x: x[1:],
    "every other": lambda x: np.zeros(2 * len(x), x.dtype)[::2],
    "Fortran": lambda x: np.zeros((len(x), 2), x.dtype, order="F")[:, 0],
    "other dtype": lambda x: np.zeros(len(x), "i2"),
    "other byte order": lambda x: np.zeros(len(x), x.dtype.newbyteorder()),
    "other shape": lambda x: np.zeros((2, len(x)), x.dtype),
    "read-only": lambda x: np.frombuffer(bytes(x.nbytes), x.dtype),
    "a list": lambda x: x.tolist(),
    "a tuple": lambda x: (x.copy(),),
    "a broadcast one": lambda x: np.broadcast_to(x[:1], x.shape),
    "nothing of ours": lambda x: "text",
    "an array on the device": lambda x: gs.default_device().asarray(x),
}
FITTING = ("fits", "x itself", "x backwards", "every other", "Fortran")


@examples(30)
@hypothesis.given(
    form=st.sampled_from(list(OUTS)),
    length=st.sampled_from([1, 2, 33, 700]),
    options=st.fixed_dictionaries({"exclusive": st.booleans(), "reverse": st.booleans()}),
    fails=st.booleans(),
)
def test_random_outs(chosen: Device, form: str, length: int, options: dict[str, bool], fails: bool) -> None:
    with left_in_order(chosen):
        check_out(chosen, form, length, options, fails)


def check_out(device: Device, form: str, length: int, options: dict[str, bool], fails: bool) -> None:
    """Only a call that succeeds writes to `out`, and it writes all of it, overlapping the input or not."""
    x = np.random.default_rng(length).integers(0, 2**32, length, dtype=np.uint32)
    wanted = gs.scan(x.copy(), device="numpy", **options)
    out = OUTS[form](x)
    held = [(leaf, leaf.copy()) for leaf in [x, *leaves_of(out)]]
    op: Any = (lambda l, r: l.nothing) if fails else "add"
    got, failed, _ = outcome(lambda: gs.scan(x, op, out=out, device=device, **options))
    if failed is None:
        assert not fails
        assert got is out
        np.testing.assert_array_equal(np.asarray(out), wanted)
    else:
        assert fails or form not in FITTING
        for leaf, copy in held:
            np.testing.assert_array_equal(leaf, copy)


# ----- Arrays on the device


@examples(30)
@hypothesis.given(data=st.data())
def test_random_arrays(chosen: Device, data: st.DataObject) -> None:
    """Slices, views, `from_buffer` and `reshape` with any numbers: NumPy's answer, or an error."""
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    buffer = chosen.wgpu_device.create_buffer(size=1024, usage=usage)
    with left_in_order(chosen):
        check_arrays(chosen, buffer, data.draw)
    buffer.destroy()


def check_arrays(device: Device, buffer: wgpu.GPUBuffer, draw: Any) -> None:
    dtype = draw(st.sampled_from(["uint8", "int16", "uint32", "float16"]))
    x = numbers(np.random.default_rng(5), dtype, (draw(st.sampled_from([1, 8, 96])), draw(st.sampled_from([1, 3, 4]))))
    place = draw(st.one_of(st.integers(-3, 1030), st.sampled_from([2**31, 2**63, -(2**40)])))
    shape: Any = rarely(draw, st.just(x.shape), st.sampled_from([(-1,), (2**40,), (2**33, 2**33), 1.5, "x", ()]), 4)
    view, failed, _ = outcome(lambda: gs.Array.from_buffer(device, buffer, shape, dtype, place))
    if failed is None:
        np.testing.assert_array_equal(view.numpy(), np.zeros(view.shape, dtype))
    held = device.asarray(x)
    strange = st.sampled_from(["a", 1.5, None, ..., (0, 0), True, 2**70])
    stretches = st.slices(len(x)).filter(lambda s: s.step in (None, 1))
    index = rarely(draw, stretches, st.one_of(st.integers(-200, 200), st.slices(len(x)), strange), 2)
    try:
        part = held[index]
    except (TypeError, IndexError):
        pass
    else:
        np.testing.assert_array_equal(part.numpy(), x[index])
        for axis in range(part.ndim):
            sums = gs.scan(part, "maximum", axis=axis)
            np.testing.assert_array_equal(sums.numpy(), np.maximum.accumulate(x[index], axis=axis))
    form = draw(st.sampled_from([-1, (2, -1), (7, 7), (-1, -1), "a"]))
    wanted, refused, _ = outcome(lambda: x.reshape(form))
    got, failed, _ = outcome(lambda: held.reshape(form).numpy())
    assert (failed is None) == (refused is None)
    if refused is None:
        np.testing.assert_array_equal(got, wanted)


@examples(30)
@hypothesis.given(call=calls(), where=st.sampled_from([-4, 0, 4, 64, 256, 1020, 2**40]))
def test_random_plans(chosen: Device, call: Call, where: int) -> None:
    with left_in_order(chosen):
        check_plan(chosen, call[2], call[3], where)


def check_plan(device: Device, given: list[Any], options: dict[str, Any], where: int) -> None:
    """A plan refuses what the scan refuses, and gives what it gives; recorded at any place, it is right or refused."""
    x, *rest = given
    options = {name: value for name, value in options.items() if name not in ("include_initial", "dtype")}
    x = x if isinstance(x, np.ndarray) and x.dtype.isnative else np.ones(40, np.uint32)
    op = rest[0] if rest and not isinstance(rest[0], (np.ndarray, tuple, dict, list)) else "add"
    wanted, refused, why = outcome(lambda: gs.scan(x, op, device="numpy", **options))
    plan, failed, said = outcome(lambda: device.plan(x.shape, x.dtype, op, **options))
    if failed is not None:
        uncalled = x.size == 0  # NumPy did not try the operator
        assert refused is not None or of_the_device(said) or strange(rest, options) or uncalled, said
        return
    assert refused is None, why
    assert_alike(plan(x), wanted)
    assert_alike(plan(device.asarray(x)), wanted)
    source, target = (device.asarray(np.zeros(300, np.uint32)) for _ in range(2))
    encoder = device.wgpu_device.create_command_encoder()
    outcome(lambda: plan.record(encoder, (source.buffer, where), target))
    device.wgpu_device.queue.submit([encoder.finish()])
    device.synchronize()


# ----- What the random calls have found


def test_plans_of_nothing(device: Device) -> None:
    """They run, and record no command."""
    for shape, dtype, axis in [((0,), "int64", 0), ((0, 5), "int32", 0), ((5, 0), "uint8", 1)]:
        plan = device.plan(shape, dtype, axis=axis)
        assert plan(np.zeros(shape, dtype)).shape == shape
        assert plan(device.asarray(np.zeros(shape, dtype))).shape == shape
        source, target = (device.asarray(np.full(4, 7, dtype)) for _ in range(2))
        encoder = device.wgpu_device.create_command_encoder()
        plan.record(encoder, source, target)
        device.wgpu_device.queue.submit([encoder.finish()])
        np.testing.assert_array_equal(target.numpy(), np.full(4, 7))


def test_recurrences_of_nothing_and_of_both_byte_orders(chosen: Device) -> None:
    nothing = np.zeros((3, 0), np.float32)
    for reverse in (False, True):
        grad_a, grad_b, start = gs.linear_recurrence_vjp(nothing, nothing, nothing, initial=1, reverse=reverse)
        assert (grad_a.shape, grad_b.shape) == ((3, 0), (3, 0))
        assert start.shape == ()
        assert start == 0
    a = np.full(5, 2, np.int32)
    states = gs.linear_recurrence(chosen.asarray(a), a.astype(">i4"))
    np.testing.assert_array_equal(states.numpy(), [2, 6, 14, 30, 62])


def test_sums_of_no_rows_with_their_begin(chosen: Device) -> None:
    sums = gs.cumulative_sum(chosen.asarray(np.zeros((0, 5), np.int32)), axis=1, include_initial=True)
    assert sums.numpy().shape == (0, 6)


@pytest.mark.parametrize(("dtype", "inner"), [("int32", 2), ("int32", 3), ("int64", 2)])
def test_few_columns_under_every_strategy(device: Device, dtype: str, inner: int) -> None:
    x = numbers(np.random.default_rng(6), dtype, (300, inner))
    for strategy in strategies_on(device):
        got = gs.scan(x, axis=0, strategy=strategy, device=device)
        np.testing.assert_array_equal(got, np.cumsum(x, axis=0, dtype=dtype))


def test_what_numpy_did_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    assert gs.compact(np.arange(4, dtype=">i4"), np.ones(4, bool)).dtype.isnative
    with pytest.raises(TypeError, match="chunk 2 has the elements int8"):
        list(gs.scan_chunks([np.zeros(2, np.int32), np.zeros(2, np.int8)]))
    with pytest.raises(gs.OperatorError, match=r"raised ZeroDivisionError while (.|\n)*lambda l, r: l \+ 1 / 0"):
        gs.scan(np.ones(3, np.float32), lambda l, r: l + 1 / 0)
