"""Random calls of the whole public interface: each gives what NumPy gives, or one of gpuscan's errors.

The same call with ``device="numpy"`` says which. Whatever comes out, no input is changed, an `out` only by a call that
succeeds, nothing stays in use on the device, and the device goes on.
"""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import numpy as np
import pytest
import wgpu
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.planning.strategies import STRATEGIES
from tests.api.random_calls import STRANGE_MAPS, STRANGE_OPERATORS, Call, calls, rarely
from tests.harness.devices import as_gpu
from tests.harness.scans import record_and_submit
from tests.oracle import Array
from tests.strategies import numbers

ALLOWED = (gs.GpuscanError, ValueError, TypeError)
NIGHTLY = hypothesis.settings().max_examples > 500


def examples(count: int) -> hypothesis.settings:
    """Return settings for this number of cases, or forty times that in the nightly profile."""
    # The one fixture is the same for all cases.
    checks = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]
    return hypothesis.settings(max_examples=count * (40 if NIGHTLY else 1), suppress_health_check=checks)


# ----- What comes of a call


def leaves_of(value: Any) -> list[Array]:
    """Return the arrays in a value of any form."""
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves_of(part)]
    if isinstance(value, dict):
        return leaves_of(list(value.values()))
    if isinstance(value, gs.Array):
        return [value.numpy()]
    return [np.asarray(value)] if isinstance(value, (np.ndarray, np.generic)) else []


def outcome(call: Callable[[], Any]) -> tuple[Any, type[BaseException] | None, str]:
    """Return the result, or the class and text of an allowed error; other errors pass on."""
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
    """Return True if an error is about the adapter: NumPy need not raise it."""
    return any(words in text for words in ("64-bit floats", "64-bit numbers", "asks for an adapter"))


@pytest.fixture
def chosen(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return the default device of the process, on every adapter in turn."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    return gs.default_device()


def on_device(device: gs.Device, x: Any) -> Any:
    """Copy the input's arrays to the device if it takes them."""
    if isinstance(x, tuple):
        return tuple(on_device(device, part) for part in x)
    if isinstance(x, dict):
        return {key: on_device(device, part) for key, part in x.items()}
    return device.asarray(x) if isinstance(x, np.ndarray) and not x.dtype.names else x


def bytes_in_use(device: gs.Device) -> int:
    if device.memory_usage().bytes_in_use:
        gc.collect()  # errors hold frames, and those hold arrays
    return device.memory_usage().bytes_in_use


@contextmanager
def left_in_order(device: gs.Device) -> Iterator[None]:
    """Assert that nothing more is in use on the device after the block, and that the device still works."""
    in_use = bytes_in_use(device)
    yield
    assert bytes_in_use(device) == in_use
    x = np.arange(100, dtype=np.uint32)
    np.testing.assert_array_equal(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))


@examples(120)
@hypothesis.given(call=calls(), there=st.booleans(), strategy=st.sampled_from(["auto", "auto", "quick", *STRATEGIES]))
def test_random_calls(chosen: gs.Device, call: Call, there: bool, strategy: str) -> None:
    with left_in_order(chosen):
        check_call(chosen, *call, there=there, strategy=strategy)


def strange(given: list[Any], options: dict[str, Any]) -> bool:
    """Return True if there is a function that NumPy can run but that may not become a shader."""
    functions = [value for value in (*given, *options.values()) if callable(value)]
    return any(function in (*STRANGE_OPERATORS, *STRANGE_MAPS) for function in functions)


def check_call(
    device: gs.Device,
    name: str,
    function: Callable[..., Any],
    given: list[Any],
    options: dict[str, Any],
    *,
    there: bool,
    strategy: str,
) -> None:
    """Require that the device, for NumPy or device arrays, does what NumPy does."""
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
def test_random_outs(chosen: gs.Device, form: str, length: int, options: dict[str, Any], fails: bool) -> None:
    with left_in_order(chosen):
        check_out(chosen, form, length, options, fails)


def check_out(device: gs.Device, form: str, length: int, options: dict[str, Any], fails: bool) -> None:
    """Assert that only a call that succeeds writes to `out`, and writes all of it, overlapping the input or not."""
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
def test_random_arrays(chosen: gs.Device, data: st.DataObject) -> None:
    """Assert that slices, views, `from_buffer` and `reshape` give NumPy's answer, or an error."""
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    buffer = chosen.wgpu_device.create_buffer(size=1024, usage=usage)
    with left_in_order(chosen):
        check_arrays(chosen, buffer, data.draw)
    buffer.destroy()


def check_arrays(device: gs.Device, buffer: wgpu.GPUBuffer, draw: Any) -> None:
    dtype = draw(st.sampled_from(["uint8", "int16", "uint32", "float16"]))
    x = numbers(np.random.default_rng(5), dtype, (draw(st.sampled_from([1, 8, 96])), draw(st.sampled_from([1, 3, 4]))))
    place = draw(st.one_of(st.integers(-3, 1030), st.sampled_from([2**31, 2**63, -(2**40)])))
    shape: Any = rarely(draw, st.just(x.shape), st.sampled_from([(-1,), (2**40,), (2**33, 2**33), 1.5, "x", ()]), 4)
    view, failed, _ = outcome(lambda: gs.Array.from_buffer(device, buffer, shape, dtype, place))
    if failed is None:
        np.testing.assert_array_equal(view.numpy(), np.zeros(view.shape, dtype))
    held = device.asarray(x)
    strange = st.sampled_from(["a", 1.5, None, ..., (0, 0), True, 2**70])
    slices_of_one = st.slices(len(x)).filter(lambda s: s.step in (None, 1))
    index = rarely(draw, slices_of_one, st.one_of(st.integers(-200, 200), st.slices(len(x)), strange), 2)
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
def test_random_plans(chosen: gs.Device, call: Call, where: int) -> None:
    with left_in_order(chosen):
        check_plan(chosen, call[2], call[3], where)


def check_plan(device: gs.Device, given: list[Any], options: dict[str, Any], where: int) -> None:
    """Assert that a plan refuses what the scan refuses, and that a recorded plan is right or refused."""
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


def test_plans_of_nothing(device: gs.Device) -> None:
    """Assert that empty plans run, and record no command."""
    cases = [
        ((0,), "int64", 0),
        ((0, 5), "int32", 0),
        ((5, 0), "uint8", 1),
        ((0, 5), "uint8", 1),
        ((2, 0, 5), "int32", 1),
    ]
    for (shape, dtype, axis), planner in itertools.product(cases, (device, as_gpu(device))):
        planner.plan(shape, dtype, axis=axis, reverse=True)
        plan = planner.plan(shape, dtype, axis=axis)
        assert plan(np.zeros(shape, dtype)).shape == shape
        assert plan(planner.asarray(np.zeros(shape, dtype))).shape == shape
        source, target = (planner.asarray(np.full(4, 7, dtype)) for _ in range(2))
        record_and_submit(planner.wgpu_device, plan, source, target)
        np.testing.assert_array_equal(target.numpy(), np.full(4, 7))


def test_recurrences_of_nothing_and_of_both_byte_orders(chosen: gs.Device) -> None:
    nothing = np.zeros((3, 0), np.float32)
    for reverse in (False, True):
        grad_a, grad_b, start = gs.linear_recurrence_vjp(nothing, nothing, nothing, initial=1, reverse=reverse)
        assert (grad_a.shape, grad_b.shape) == ((3, 0), (3, 0))
        assert start.shape == ()
        assert start == 0
    a = np.full(5, 2, np.int32)
    states = gs.linear_recurrence(chosen.asarray(a), a.astype(">i4"))
    np.testing.assert_array_equal(states.numpy(), [2, 6, 14, 30, 62])


def test_sums_of_no_rows_with_their_begin(chosen: gs.Device) -> None:
    sums = gs.cumulative_sum(chosen.asarray(np.zeros((0, 5), np.int32)), axis=1, include_initial=True)
    assert sums.numpy().shape == (0, 6)


def test_what_numpy_did_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    assert gs.compact(np.arange(4, dtype=">i4"), np.ones(4, bool)).dtype.isnative
    with pytest.raises(TypeError, match="chunk 2 has the elements int8"):
        list(gs.scan_chunks([np.zeros(2, np.int32), np.zeros(2, np.int8)]))
    with pytest.raises(gs.OperatorError, match=r"raised ZeroDivisionError while (.|\n)*lambda l, r: l \+ 1 / 0"):
        gs.scan(np.ones(3, np.float32), lambda l, r: l + 1 / 0)
