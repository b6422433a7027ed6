"""No public function copies the elements of an array on a device through the CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
import gpuscan.signal
from tests.harness.builds import count_transfers
from tests.harness.devices import device_as_if
from tests.oracle import affine

# Elements of the arrays, and the most bytes that may move between a device and the CPU in a call: two reports of 88
# bytes, a count, offsets of a few segments, and an initial value. The narrowest array has 2,048 bytes.
LENGTH, MAX_BYTES = 2048, 192

# Public names that take no array on a device: they make devices and operators. `scan_chunks` gives NumPy arrays.
OTHERS = {
    "check_associative",
    "default_device",
    "devices",
    "export",
    "operator",
    "progress_bar",
    "scan_chunks",
    "wgsl_operator",
}


def decay(h: Any, x: Any) -> Any:
    return 0.5 * h + x


def heads(x: Any) -> tuple[Any, Any, Any, Any]:
    """Return the arguments of a linear attention of eight heads."""
    q, g = x.f[:144].reshape(1, 6, 8, 3), x.f[:48].reshape(1, 6, 8)
    return q, q, q, g


def channels(x: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return the arguments of a selective scan of four channels."""
    u, b = x.f[:40].reshape(2, 4, 5), x.f[:30].reshape(2, 3, 5)
    return u, u, x.f[:12].reshape(4, 3), b, b


# The functions of `gpuscan` by their names, then NumPy's and the methods of arrays. `x` has arrays of int32 (i), of
# float32 (f), of two axes (rows), of bools (mask), of labels, and one to write (out).
CALLS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "scan": (
        lambda x: gs.scan(x.i, out=x.out),
        lambda x: gs.scan(x.i, initial=3, return_total=True),
        lambda x: gs.scan(x.rows.T, axis=1),
        lambda x: gs.scan(x.i[::-3]),
        lambda x: gs.scan(x.i, segments=[0, 5, 5, LENGTH]),
        lambda x: gs.scan(x.i, keys=x.labels),
        lambda x: gs.scan(x.i, groups=x.labels),
        lambda x: gs.scan(x.f, compensated=True),
        lambda x: gs.scan((x.f, x.f[::-1]), affine),
    ),
    "reduce": (
        lambda x: gs.reduce(x.i),
        lambda x: gs.reduce(x.rows[:, 3:], axis=(0, 1), keepdims=True),
        lambda x: gs.reduce(x.rows, "maximum", axis=0, out=x.out[:256]),
        lambda x: gs.reduce(x.i, segments=[0, 5, 5, LENGTH]),
        lambda x: gs.reduce(x.i, groups=x.labels),
    ),
    "reduce_by_key": (lambda x: gs.reduce_by_key(x.labels, x.i),),
    "cumulative_sum": (lambda x: gs.cumulative_sum(x.i, include_initial=True),),
    "cumulative_prod": (lambda x: gs.cumulative_prod(x.rows, axis=1),),
    "linear_recurrence": (
        lambda x: gs.linear_recurrence(x.f, x.f),
        lambda x: gs.linear_recurrence(0.5, x.f, initial=1.0, reverse=True),
    ),
    "selective_scan": (lambda x: gs.selective_scan(*channels(x), D=x.f[:4], z=channels(x)[0], delta_softplus=True),),
    "selective_scan_vjp": (lambda x: gs.selective_scan_vjp(*channels(x), channels(x)[0], D=x.f[:4]),),
    "selective_state_update": (
        lambda x: gs.selective_state_update(
            x.f[:24].reshape(2, 4, 3), *[*[x.f[:8].reshape(2, 4)] * 2, channels(x)[2], *[x.f[:6].reshape(2, 3)] * 2]
        ),
    ),
    "gated_delta_rule": (lambda x: gs.gated_delta_rule(*heads(x), x.f[:48].reshape(1, 6, 8), output_final_state=True),),
    "gated_delta_rule_vjp": (lambda x: gs.gated_delta_rule_vjp(*heads(x), x.f[:48].reshape(1, 6, 8), heads(x)[2]),),
    "gated_linear_attention": (lambda x: gs.gated_linear_attention(*heads(x)),),
    "gated_linear_attention_vjp": (lambda x: gs.gated_linear_attention_vjp(*heads(x), heads(x)[2]),),
    "linear_recurrence_vjp": (lambda x: gs.linear_recurrence_vjp(x.f, x.f, x.f),),
    "scan_vjp": (lambda x: gs.scan_vjp(x.f, x.f, x.f, "multiply"),),
    "compact": (
        lambda x: gs.compact(x.i, x.mask),
        lambda x: gs.compact(x.i, lambda v: v > 4, out=x.out),
        lambda x: gs.compact(x.i[:-2].reshape(-1, 3), x.mask[:682]),
    ),
    "map": (lambda x: gs.map(lambda a, b: a - b, x.i, x.out, out=x.out),),
    "sort": (lambda x: gs.sort(x.i), lambda x: gs.sort(x.rows, axis=0)),
    "argsort": (lambda x: gs.argsort(x.f, descending=True),),
    "sort_by_key": (lambda x: gs.sort_by_key(x.i, (x.f, x.i)),),
    "loop": (lambda x: gs.loop(decay, 0.0, x.f), lambda x: gs.loop(decay, 0.0, x.f, method="sequential")),
    "loop_form": (lambda x: gs.loop_form(decay, 0.0, x.f),),
    "loop_vjp": (lambda x: gs.loop_vjp(decay, 0.0, x.f, x.f),),
    "unique_values": (lambda x: gs.unique_values(x.i),),
    "unique_counts": (lambda x: gs.unique_counts(x.i),),
    "unique_inverse": (lambda x: gs.unique_inverse(x.i),),
    "unique_all": (lambda x: gs.unique_all(x.i).values.shape,),
    "run_length_encode": (lambda x: gs.run_length_encode(x.i),),
    "repeat": (lambda x: gs.repeat(x.i, 3), lambda x: gs.repeat(x.i, x.labels).shape),
    "searchsorted": (lambda x: gs.searchsorted(x.i, x.i[::2], side="right"),),
    "bincount": (lambda x: gs.bincount(x.labels), lambda x: gs.bincount(x.labels, x.f, 12)),
    "histogram": (lambda x: gs.histogram(x.f, 4), lambda x: gs.histogram(x.f, [0.0, 2.0, 8.0], weights=x.f)),
    "top_k": (lambda x: gs.top_k(x.f, 5), lambda x: gs.top_k(x.rows, 3, axis=0, largest=False)),
    "partition_by": (lambda x: gs.partition_by(x.i, x.mask),),
    "quantile": (lambda x: gs.quantile(x.f, 0.25), lambda x: gs.quantile(x.rows, 0.5, axis=1)),
    "median": (lambda x: gs.median(x.rows, axis=0),),
    "NumPy": (
        lambda x: np.where(x.mask, x.i * 2 + 1, 0),
        lambda x: np.maximum.accumulate(x.rows, axis=1),
        lambda x: np.add.reduceat(x.i, [0, 5, 9]),
        lambda x: np.cumsum(x.i),
        lambda x: np.sum(x.rows, axis=0),
        lambda x: np.concatenate([x.i, x.i[::-1]]),
        lambda x: np.sort(x.rows, axis=1),
        lambda x: np.array_equal(x.i, x.i),
        lambda x: np.round(np.clip(x.f, 0, 1)),
    ),
    "Array": (
        lambda x: x.i.astype(np.float32),
        lambda x: x.rows.T.copy(),
        lambda x: x.rows.T.flatten(),
        lambda x: x.rows.T.reshape(4, -1),
        lambda x: x.out.__setitem__(np.s_[3:], x.i[:-3]),
        lambda x: x.out.__setitem__(x.mask, 5),
    ),
    "Plan": (lambda x: x.plan(x.i[1:]), lambda x: x.plan(x.i[1:], out=x.out[:-1])),
    "signal": (
        lambda x: gpuscan.signal.lfilter([1.0], [1.0, -0.5], x.f),
        lambda x: gpuscan.signal.ewm_mean(x.f, alpha=0.5),
    ),
}


def test_every_function_is_called() -> None:
    functions = {name for name in gs.__all__ if callable(getattr(gs, name)) and not isinstance(getattr(gs, name), type)}
    assert functions - OTHERS == set(CALLS) - {"NumPy", "Array", "Plan", "signal"}


@pytest.mark.parametrize("name", CALLS)
def test_elements_stay_on_the_device(device: gs.Device, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    device = device_as_if(device)  # it reads no reports of plans that other tests have recorded
    numbers = np.random.default_rng(0).integers(0, 9, LENGTH).astype(np.int32)
    i = device.asarray(numbers)
    arrays = SimpleNamespace(
        i=i,
        f=device.asarray(numbers.astype(np.float32)),
        rows=i.reshape(8, -1),
        mask=device.asarray(numbers > 4),
        labels=device.asarray(numbers % 5),
        out=device.empty(LENGTH, np.int32),
        plan=device.plan(LENGTH - 1, np.int32),
    )
    for number, call in enumerate(CALLS[name]):
        with monkeypatch.context() as patched:
            moved = count_transfers(patched, device)
            call(arrays)
            assert sum(moved) <= MAX_BYTES, (name, number, moved)
    device.synchronize()  # unread reports would keep memory
