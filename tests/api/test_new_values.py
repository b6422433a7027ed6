"""Calls with other values each time launch the program of earlier calls: other floats, and other arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import assert_no_waits
from tests.harness.calls import EACH_RESULT, EACH_STAGE, FIRST, Counted, assign, count_stages, results_of
from tests.harness.devices import count_programs
from tests.oracle import Array, affine, assert_same

N = 1024
RNG = np.random.default_rng(7)
INTEGERS = RNG.integers(-9, 9, N).astype(np.int32)
# The numbers are small integers, so that sums are exact in any order.
X = INTEGERS.astype(np.float32)
SIGNS = RNG.choice([-1, 1], N).astype(np.float32)


class Arrays:
    """Arrays on a device, or the same in NumPy.

    Args:
        put: brings an array there.
        on: the options of a call that computes there.
    """

    def __init__(self, put: Callable[[Array], Any], on: dict[str, Any]) -> None:
        self.on = on
        self.x, self.i, self.signs = put(X), put(INTEGERS), put(SIGNS)
        self.rows, self.others = put(X.reshape(32, 32)), put(SIGNS.reshape(32, 32))
        self.sorted, self.positive = put(np.sort(INTEGERS)), put(X > 0)
        self.groups, self.offsets = put(np.arange(N, dtype=np.uint8) % 7), put(np.array([0, 100, 300, N], np.int32))
        self.out, self.part, self.few = put(X), put(X[:100]), put(INTEGERS[:40])
        self.heads, self.decays = put(X.reshape(1, 32, 4, 8)), put(np.zeros((1, 32, 4), np.float32))
        self.channels, self.weights = put(X.reshape(1, 32, 32)), put(X[:128].reshape(1, 4, 32))
        self.states, self.rates = put(X[:128].reshape(1, 32, 4)), put(np.zeros((32, 4), np.float32))
        self.token, self.weight = put(SIGNS[None, :32]), put(X[None, :4])


# What makes a value: each time another one.
MAKERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "float": lambda rng: float(rng.integers(-50, 50)) / 4,
    "integer": lambda rng: int(rng.integers(-50, 50)),
    "count": lambda rng: int(rng.integers(1, 20)),
    "int32": lambda rng: np.int32(rng.integers(-50, 50)),
    "float32": lambda rng: np.float32(rng.integers(-50, 50)) / 4,
    "one": lambda rng: np.array(rng.integers(-50, 50), np.float32),
    "share": lambda rng: rng.integers(0, 64) / 64,
    "shares": lambda rng: rng.integers(0, 64, 3) / 64,
    "edges": lambda rng: np.sort(rng.choice(np.arange(-20, 20), 9, replace=False)) + 0.5,
    "sign": lambda rng: float(rng.integers(-1, 2)),
    "row": lambda rng: rng.integers(-9, 9, 32).astype(np.float32),
    "doubles": lambda rng: rng.integers(-9, 9, 32).astype(np.float64),
    "signs": lambda rng: rng.choice([-1, 1], (32, 1)).astype(np.float32),
    "many_signs": lambda rng: rng.choice([-1, 1], (32, 32)).astype(np.float32),
    "square": lambda rng: np.asfortranarray(rng.integers(-9, 9, (32, 32)).astype(np.float32)),
    "array": lambda rng: rng.integers(-9, 9, N).astype(np.float32),
    "strided": lambda rng: rng.integers(-9, 9, 200).astype(np.int16)[::-2],
    "indices": lambda rng: rng.integers(-32, 32, 40),
    "unique": lambda rng: rng.permutation(N)[:40],
    "list": lambda rng: rng.permutation(N)[:40].tolist(),
    "offsets": lambda rng: np.array([0, *np.sort(rng.choice(np.arange(1, N), 5, replace=False)), N]),
    "listed_offsets": lambda rng: [0, *np.sort(rng.choice(np.arange(1, N), 5, replace=False)).tolist(), N],
    "labels": lambda rng: rng.permutation(N) % 9,
    "few_labels": lambda rng: rng.permutation(100) % 9,
    "keys": lambda rng: np.sort(rng.integers(0, 9, 100)),
    "mask": lambda rng: rng.permutation(N) < N // 2,
    "counts": lambda rng: rng.permutation(N) % 3,
}


def copy_where(array: Any, value: Any, mask: Any) -> Any:
    """Return the array after a copy to the elements of a mask."""
    np.copyto(array, value, where=mask)
    return array


ADD_VECTORS = gs.operator(lambda l, r: l + r, element_axes=1)
# Each call, and the values that it takes.
Call: TypeAlias = tuple[Callable[..., Any], str]
CALLS: dict[str, Call] = {
    "initial": (lambda a, k: gs.scan(a.x, initial=k, **a.on), "float"),
    "integer as initial": (lambda a, k: gs.scan(a.i, initial=k, **a.on), "integer"),
    "integers as initial": (
        lambda a, k, j: gs.scan((a.others, a.rows), affine, axis=1, initial=(k, j), **a.on),
        "integer integer",
    ),
    "integer of groups": (lambda a, k: gs.scan(a.i, groups=a.groups, exclusive=True, initial=k, **a.on), "integer"),
    "integer and a reduction": (lambda a, k: gs.reduce(a.x, "maximum", initial=k, **a.on), "integer"),
    "integer among integers": (lambda a, k: a.i + k, "integer"),
    "integer among bytes": (lambda a, k: a.groups * k, "count"),
    "integer on the left": (lambda a, k: k - a.x, "integer"),
    "float among floats": (lambda a, k: a.x * k, "float"),
    "NumPy's float on the left": (lambda a, k: k - a.x, "float32"),
    "float as an exponent": (lambda a, k: abs(a.signs) ** (k / 64), "float"),
    "float of a function": (lambda a, k: np.maximum(a.x, k), "float"),
    "choice of a float": (lambda a, k: np.where(a.positive, a.x, k), "float"),
    "bounds": (lambda a, k: np.clip(a.x, -abs(k), abs(k)), "float"),
    "exponent": (lambda a, k: a.signs ** (k + 5), "count"),
    "remainder": (lambda a, k: a.i % k, "count"),
    "comparison": (lambda a, k: a.i < k, "integer"),
    "comparison of floats": (lambda a, k: a.x == k, "integer"),
    "NumPy's integer": (lambda a, k: a.i * k, "int32"),
    "NumPy's integer as initial": (lambda a, k: gs.scan(a.i, initial=k, **a.on), "int32"),
    "choice of an integer": (lambda a, k: np.where(a.positive, a.i, k), "integer"),
    "choice of a float or an integer": (lambda a, k: np.where(a.positive, a.x, k), "integer"),
    "integers as bounds": (lambda a, k, j: np.clip(a.i, -k, j), "count count"),
    "integers as bounds of floats": (lambda a, k, j: np.clip(a.x, -k, j), "count count"),
    "one bound": (lambda a, k: np.clip(a.i, None, k), "integer"),
    "filled with an integer": (lambda a, k: np.full_like(a.i, k), "integer"),
    "diff after an integer": (lambda a, k: np.diff(a.i, prepend=k), "integer"),
    "integer as first state": (lambda a, k: gs.linear_recurrence(a.signs, a.x, initial=k, **a.on), "integer"),
    "loop of an integer": (lambda a, k: gs.loop(lambda h, x: h + x * k, 0, a.i, **a.on)[:2], "integer"),
    "loop up to an integer": (
        lambda a, k: gs.loop(lambda h, x: np.minimum(h + x, k), 0, a.i, **a.on)[:2],
        "integer",
    ),
    "loop from an integer": (lambda a, k: gs.loop(lambda h, x: h + x, k, a.i, **a.on)[:2], "integer"),
    "integer as an argument of a map": (lambda a, k: gs.map(lambda v, j: v * j, a.i, k, **a.on), "integer"),
    "integer of a map": (lambda a, k: gs.map(lambda v: np.where(v > k, v, k + 1), a.i, **a.on), "integer"),
    "integer of a mask": (lambda a, k: gs.compact(a.i, lambda v: v > k, **a.on), "integer"),
    "integer into out": (lambda a, k: np.multiply(a.x, k, out=a.out), "integer"),
    "initial of NumPy's": (lambda a, k: gs.scan(a.x, exclusive=True, initial=k, **a.on), "one"),
    "initial of rows": (lambda a, k: gs.scan(a.rows, axis=1, initial=k, **a.on), "row"),
    "initial of rows from the end": (lambda a, k: gs.scan(a.rows, axis=1, reverse=True, initial=k, **a.on), "row"),
    "initial of columns": (lambda a, k: gs.scan(a.rows, axis=0, initial=k, **a.on), "doubles"),
    "initial of pairs": (
        lambda a, k, j: gs.scan((a.others, a.rows), affine, axis=1, initial=(k, j), **a.on),
        "float32 float",
    ),
    "initial of groups": (lambda a, k: gs.scan(a.x, groups=a.groups, initial=k, **a.on), "float"),
    "initial of segments": (lambda a, k: gs.scan(a.x, segments=a.offsets, initial=k, **a.on), "float"),
    "initial and a total": (lambda a, k: gs.scan(a.x, initial=k, return_total=True, **a.on), "float"),
    "initial everywhere": (lambda a, k: gs.scan(a.x, initial=k, reproducible="everywhere", **a.on), "float"),
    "initial of a compensated sum": (lambda a, k: gs.scan(a.x, initial=k, compensated=True, **a.on), "float"),
    "initial of half": (lambda a, k: gs.scan(a.x.astype(np.float16), "minimum", initial=k, **a.on), "float"),
    "initial of complex": (lambda a, k: gs.scan(a.x.astype(np.complex64), initial=k, **a.on), "float"),
    "initial of vectors": (lambda a, k: gs.scan(a.rows, ADD_VECTORS, initial=k, **a.on), "float"),
    "initial of exponents": (
        lambda a, k: gs.scan(a.x, np.logaddexp, after=lambda v: v > 10, initial=k, **a.on),
        "float",
    ),
    "initial with maps": (
        lambda a, k: gs.scan(a.x, initial=k, before=lambda v: v * 2, after=lambda v: v + 1, **a.on),
        "float",
    ),
    "reduce": (lambda a, k: gs.reduce(a.x, "maximum", initial=k, **a.on), "float"),
    "reduce rows": (lambda a, k: gs.reduce(a.rows, axis=1, initial=k, **a.on), "row"),
    "reduce groups from a number": (
        lambda a, k: gs.reduce(a.x, groups=a.groups, num_groups=9, initial=k, **a.on),
        "float",
    ),
    "reduce many groups": (
        lambda a, k: gs.reduce(a.x, groups=a.groups, num_groups=50_000, initial=k, **a.on),
        "float",
    ),
    "reduce segments from a number": (lambda a, k: gs.reduce(a.x, segments=a.offsets, initial=k, **a.on), "float"),
    "gradient of a scan": (
        lambda a, k: gs.scan_vjp(a.rows, np.cumsum(a.rows, axis=1), a.rows, axis=1, initial=k),
        "row",
    ),
    "gradient of a product": (lambda a, k: gs.scan_vjp(a.signs, a.x, a.x, "multiply", initial=k), "float"),
    "listed initial": (lambda a, k, j: gs.scan(a.rows[:2], axis=1, initial=[k, j], **a.on), "float float"),
    "sum of columns": (lambda a, k: np.sum(a.rows, axis=0, initial=k), "float"),
    "gate": (lambda a, k: gs.linear_recurrence(k, a.x, **a.on), "sign"),
    "gate of columns": (lambda a, k: gs.linear_recurrence(k, a.rows, axis=0, reverse=True, **a.on), "sign"),
    "gate of half": (lambda a, k: gs.linear_recurrence(k, (a.signs / 8).astype(np.float16), **a.on), "sign"),
    "gates": (lambda a, k: gs.linear_recurrence(k, a.rows, axis=1, **a.on), "signs"),
    "gradient of a gate": (
        lambda a, k: gs.linear_recurrence_vjp(k, a.rows, a.others, axis=1)[:2],
        "sign",
    ),
    "long gates": (lambda a, k: gs.linear_recurrence(k, a.rows, axis=1, **a.on), "many_signs"),
    "gates of a gradient": (lambda a, k: gs.linear_recurrence_vjp(k, a.rows, a.others, axis=1), "many_signs"),
    "first state": (lambda a, k: gs.linear_recurrence(a.signs, a.x, initial=k, **a.on), "float"),
    "first states": (lambda a, k: gs.linear_recurrence(a.others, a.rows, axis=1, initial=k, **a.on), "row"),
    "gradient of first states": (
        lambda a, k: gs.linear_recurrence_vjp(a.others, a.rows, a.rows, axis=1, initial=k),
        "row",
    ),
    "loop": (lambda a, k: gs.loop(lambda h, x: np.clip(h + x, -20, 20), k, a.x, **a.on)[:2], "float"),
    "loop of a tuple": (
        lambda a, k: gs.loop(lambda h, x: (np.maximum(h[0], x), h[1] - x), (k, k), a.x, **a.on)[:2],
        "float32",
    ),
    "loop of rows": (lambda a, k: gs.loop(lambda h, x: h + x, k, a.rows, axis=1, **a.on)[:2], "row"),
    "loop from the end": (lambda a, k: gs.loop(lambda h, x: (h + x, h), k, a.x, reverse=True, **a.on)[:2], "float"),
    "sequential loop": (
        lambda a, k: gs.loop(lambda h, x: abs(h - x), k, a.x, method="sequential", **a.on)[:2],
        "float",
    ),
    "map": (lambda a, x: gs.map(lambda v, w: v - w, a.x, x, **a.on), "array"),
    "map of rows": (lambda a, x: gs.map(lambda v, w: v - w, a.rows, x, **a.on), "row"),
    "map of a list": (lambda a, x: gs.map(lambda v, w: v * w, a.few, x, **a.on), "list"),
    "map of a square": (lambda a, x: gs.map(lambda v, w: v - w, x, a.rows, **a.on), "square"),
    "ufunc": (lambda a, x: x - a.rows, "row"),
    "ufunc into out": (lambda a, x: np.maximum(a.x, x, out=a.out), "array"),
    "where": (lambda a, m, x: np.where(m, a.x, x), "mask array"),
    "concatenate": (lambda a, x: np.concatenate([a.x, x]), "row"),
    "scan of segments": (lambda a, o: gs.scan(a.x, segments=o, **a.on), "offsets"),
    "scan of listed segments": (lambda a, o: gs.scan(a.x, segments=o, **a.on), "listed_offsets"),
    "scan of a tuple in segments": (
        lambda a, o: gs.scan((a.signs, a.x), affine, segments=o, **a.on),
        "offsets",
    ),
    "scan of groups": (lambda a, g: gs.scan(a.x, groups=g, **a.on), "labels"),
    "scan of few labels": (lambda a, g: gs.scan(a.part, groups=g, **a.on), "few_labels"),
    "scan of keys": (lambda a, g: gs.scan(a.part, keys=g, **a.on), "keys"),
    "reduce segments": (lambda a, o: gs.reduce(a.x, segments=o, **a.on), "offsets"),
    "reduce groups": (lambda a, g: gs.reduce(a.part, groups=g, **a.on), "few_labels"),
    "index": (lambda a, i: a.x[i], "indices"),
    "listed index": (lambda a, i: a.x[i], "list"),
    "index of columns": (lambda a, i: a.rows[:, i], "indices"),
    "index of both axes": (lambda a, i, j: a.rows[i, j], "indices indices"),
    "index in a row": (lambda a, i: a.rows[3, ..., i], "indices"),
    "index by a mask": (lambda a, m: a.x[m], "mask"),
    "assigned number": (lambda a, i, k: assign(a.out, i, k), "indices float"),
    "assigned integer": (lambda a, i, k: assign(a.out, i, k), "indices integer"),
    "assigned to a part": (lambda a, k: assign(a.i, np.s_[3:35:2], k), "integer"),
    "assigned to a mask of integers": (lambda a, m, k: assign(a.i, m, k), "mask integer"),
    "copied to a mask": (lambda a, k: copy_where(a.out, k, a.positive), "float"),
    "assigned numbers": (lambda a, i, x: assign(a.out, i, x[:10].repeat(4)), "unique row"),
    "assigned to a list": (lambda a, i, k: assign(a.out, i, k), "list float"),
    "assigned to a mask": (lambda a, m, k: assign(a.out, m, k), "mask float"),
    "float assigned to a slice": (lambda a, k: assign(a.out, np.s_[3:9], k), "float"),
    "float assigned to columns": (lambda a, k: assign(a.others, np.s_[:, 3], k), "float"),
    "assigned to half": (lambda a, k: assign(a.x.astype(np.float16), ..., k), "float"),
    "assigned to complex": (lambda a, k: assign(a.x.astype(np.complex64), np.s_[::2], k), "float"),
    "filled with a float": (lambda a, k: np.full_like(a.x, k), "float"),
    "assigned to a slice": (lambda a, x: assign(a.out, np.s_[3:35], x), "doubles"),
    "quantile": (lambda a, q: gs.quantile(a.x, q, **a.on), "share"),
    "quantiles": (lambda a, q: gs.quantile(a.rows, q, axis=1, **a.on), "shares"),
    "NumPy's quantile": (lambda a, q: np.quantile(a.rows, q, axis=0), "share"),
    "histogram": (lambda a, k, j: gs.histogram(a.x, 10, (-abs(k), abs(j) + 1), **a.on), "float float"),
    "histogram between integers": (lambda a, k, j: gs.histogram(a.x, 10, (-k, j), **a.on), "count count"),
    "weighted histogram": (lambda a, k: gs.histogram(a.x, 10, (-20, abs(k)), weights=a.i, **a.on), "float"),
    "histogram of edges": (lambda a, e: gs.histogram(a.x, e, **a.on), "edges"),
    "compact": (lambda a, m: gs.compact(a.x, m, **a.on), "mask"),
    "partition_by": (lambda a, m: gs.partition_by(a.x, m, **a.on), "mask"),
    "searchsorted": (lambda a, x: gs.searchsorted(a.sorted, x.astype(np.int32), **a.on), "strided"),
    "searchsorted of doubles": (lambda a, x: np.searchsorted(a.sorted, x + 0.5), "doubles"),
    "searchsorted of an integer": (lambda a, k: gs.searchsorted(a.sorted, k, **a.on), "integer"),
    "searchsorted of a number": (lambda a, k: gs.searchsorted(a.sorted, k, **a.on), "int32"),
    "NumPy's searchsorted of a float": (lambda a, k: np.searchsorted(a.sorted, k), "float"),
    "sort segments": (lambda a, o: gs.sort(a.x, segments=o, **a.on), "offsets"),
    "isclose": (lambda a, k: np.isclose(a.x, k), "float"),
    "isclose within a tolerance": (lambda a, k, x: np.isclose(a.rows, x, atol=abs(k)), "float row"),
    "diff after a number": (lambda a, k: np.diff(a.x, prepend=k), "float32"),
    "diff between rows": (lambda a, x, y: np.diff(a.x, prepend=x, append=y), "row row"),
    "repeat": (lambda a, c: np.repeat(a.x, c), "counts"),
    "attention": (
        lambda a, k: gs.gated_linear_attention(a.heads, a.heads, a.heads, a.decays, scale=k, **a.on),
        "float",
    ),
    "attention of queries in NumPy": (
        lambda a, x: gs.gated_linear_attention(x.reshape(1, 32, 4, 8), a.heads, a.heads, a.decays, scale=1.0, **a.on),
        "array",
    ),
    "selective scan of steps in NumPy": (
        lambda a, x: gs.selective_scan(a.channels, x.reshape(1, 32, 32), a.rates, a.weights, a.weights, **a.on),
        "array",
    ),
    "selective step of a token in NumPy": (
        lambda a, x: gs.selective_state_update(a.states.copy(), x[None], a.token, a.rates, a.weight, a.weight),
        "row",
    ),
    "take": (lambda a, i: np.take(a.rows, i, axis=1), "indices"),
    "take_along_axis": (lambda a, i: np.take_along_axis(a.rows, i.reshape(20, 2)[:, :1], 0), "indices"),
    "gradient of a loop": (
        lambda a, k: gs.loop_vjp(lambda h, x: (h * x, h - x), k, a.signs, a.x),
        "float",
    ),
    "sort_by_key": (lambda a, x: gs.sort_by_key(a.i, x), "array"),
    "power of an integer": (lambda a, k: a.i**k, "count"),
    "sum as floats": (lambda a, k: np.add(a.i, k, dtype=np.float32), "integer"),
    "greatest integer": (lambda a, k: np.max(a.i, initial=k), "integer"),
    "least integers of columns": (lambda a, k: np.min(a.i.reshape(-1, 4), axis=0, initial=k), "integer"),
    "sum from an integer": (lambda a, k: np.add.reduce(a.i, initial=k, dtype=np.int32), "integer"),
    "sum with a list": (lambda a, x: a.i[:40] + x, "list"),
    "complex factor": (lambda a, k: a.x.astype(np.complex64) * complex(k, 1), "float"),
    "complex number of a map": (
        lambda a, k: gs.map(lambda v, j=complex(1, k): v - j, a.x.astype(np.complex64), **a.on),
        "float",
    ),
    "number of a module": (lambda a, k: map_by_module(a.x, k), "float"),
    "loop modulo an integer": (
        lambda a, k: gs.loop(lambda h, x: (h + x) % k, 0, a.i, **a.on)[:2],
        "count",
    ),
    "hash modulo an integer": (
        lambda a, k: gs.loop(lambda h, x: (3 * h + x) % (k + 1000), 0, a.i, **a.on)[:2],
        "count",
    ),
    "loop of few states": (
        lambda a, k: gs.loop(lambda h, x: np.where(x > k, (h + 1) % 3, 0), 0, a.i, **a.on)[:2],
        "integer",
    ),
}


def map_by_module(array: Any, number: float) -> Any:
    """Return the array times a number that a function reads by its name."""
    global of_module
    of_module = number
    return gs.map(lambda v: v * of_module, array, device=None if isinstance(array, gs.Array) else "numpy")


of_module = 0.0


# Calls for which NumPy computes something at each call.
WITH_NUMPY = {
    "take",
    "take_along_axis",
    "searchsorted of doubles",
    "loop of few states",
    "loop modulo an integer",
    "hash modulo an integer",
}


@pytest.mark.parametrize("name", CALLS)
def test_new_values(device: gs.Device, name: str) -> None:
    """Assert that other values need no other program, no wait and few Python calls, and have NumPy's results."""
    call, kinds = CALLS[name]
    makers = [MAKERS[kind] for kind in kinds.split()]
    arrays, in_numpy = Arrays(device.asarray, {}), Arrays(np.copy, {"device": "numpy"})
    rng = np.random.default_rng(1)
    device.synchronize()
    # The first calls compile, find out how large subgroups are, and bind buffers.
    for _ in range(12):
        call(arrays, *(make(rng) for make in makers))
    device.synchronize()
    known, calls = count_programs(device), []
    arrays = Arrays(device.asarray, {})
    for _ in range(6):
        values = [make(rng) for make in makers]
        wanted = results_of(call(in_numpy, *values))
        found: list[Any] = []
        with assert_no_waits(device):
            calls.append(Counted().of(lambda into=found, given=values: into.append(call(arrays, *given))))  # type: ignore[misc]
        for got, expected in zip(results_of(found[0]), wanted, strict=True):
            assert_same(got, expected.astype(got.dtype), name)
    assert count_programs(device) == known
    values = [make(rng) for make in makers]
    # To write a value takes as much as a stage.
    stages = count_stages(device, call, arrays, *values) + len(values)
    # NumPy computes edges of bins and rounds numbers by functions of its own, and it hands its functions over.
    more = 100 if "histogram" in name else 20 if name in WITH_NUMPY else 0
    most = FIRST + EACH_STAGE * (stages - 1) + EACH_RESULT * (len(wanted) - 1) + more
    assert min(calls) <= most, (calls, stages)


def test_memory(device: gs.Device) -> None:
    """Assert that other values fill neither the memory of the device nor its cache of programs."""
    arrays = Arrays(device.asarray, {})
    chosen = [CALLS[name] for name in ("initial", "initial of rows", "loop", "ufunc", "index", "scan of segments")]
    rng = np.random.default_rng(2)

    def reserve() -> tuple[int, int]:
        for call, kinds in chosen:
            for _ in range(40):
                call(arrays, *(MAKERS[kind](rng) for kind in kinds.split()))
        device.synchronize()
        return device.memory_usage().bytes_reserved, count_programs(device)

    reserve()
    assert reserve() == reserve()


def test_integers_that_do_not_fit(device: gs.Device) -> None:
    """Assert that integers with equal bits are different arguments, and that large ones raise the errors of NumPy."""
    x = np.arange(9, dtype=np.uint8)
    a, f = device.asarray(x), device.asarray(x.astype(np.float32))
    for number in (3, 200, -1, 300, True, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, 5):
        for call in (lambda v, k=number: v + k, lambda v, k=number: np.maximum(k, v), lambda v, k=number: v == k):
            try:
                wanted = call(x)
            except OverflowError:
                with pytest.raises((OverflowError, TypeError)):
                    call(a)
                continue
            if isinstance(number, bool) or 0 <= number < 256:
                assert_same(call(a), wanted)
        b, y = device.asarray(x), x.copy()
        try:
            y[2:5] = number
        except OverflowError:
            with pytest.raises(OverflowError):
                b[2:5] = number
        else:
            b[2:5] = number
        assert_same(b, y)
        if abs(number) < 2**63:
            assert_same(f * number, x.astype(np.float32) * number)
        if isinstance(number, bool) or 0 <= number < 256:
            assert_same(gs.scan(a, "maximum", initial=number), np.maximum.accumulate(np.maximum(x, np.uint8(number))))
        else:
            with pytest.raises(TypeError, match=f"initial {number} "):
                gs.scan(a, "maximum", initial=number)
