"""`gpuscan.dask` gives what `gpuscan.scan` and `gpuscan.reduce` give of the whole array, in threads and in clusters."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import time
import weakref
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import wgpu
import xarray
import zarr
from distributed import Client, LocalCluster

import gpuscan as gs
import gpuscan.dask
import gpuscan.jax
from gpuscan.dask.scans import METHODS
from gpuscan.dask.workers import adapter_for
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.problem import make_problem
from tests.harness.devices import hide_adapters
from tests.oracle import affine, assert_same

Pair = namedtuple("Pair", "gate state")

RNG = np.random.default_rng(29)
X = RNG.integers(-9, 9, (6, 11, 7)).astype(np.int32)
CHUNKS = ((2, 4), (3, 1, 6, 1), (5, 2))


@pytest.fixture
def on_numpy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute blocks on NumPy, in this thread."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    with dask.config.set(scheduler="synchronous"):
        yield


# ----- Against gpuscan.scan


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("on_numpy")
def test_any_axis_direction_and_start(method: str) -> None:
    x = da.from_array(X, chunks=CHUNKS)
    for axis in range(3):
        shape = X.shape[:axis] + X.shape[axis + 1 :]
        for initial in (None, np.int32(5), RNG.integers(-9, 9, shape).astype(np.int32)):
            for reverse, exclusive in ((False, False), (True, False), (False, True), (True, True)):
                options: dict[str, Any] = {"reverse": reverse, "exclusive": exclusive, "initial": initial}
                found = gpuscan.dask.scan(x, axis=axis - 3, method=method, **options)
                assert (found.chunks, found.dtype) == (x.chunks, x.dtype)
                assert_same(found.compute(), gs.scan(X, axis=axis, **options))
    # No rows, in several chunks.
    no_rows = da.zeros((0, 6), chunks=((0, 0), 3), dtype=np.int32)
    found = gpuscan.dask.scan(no_rows, axis=1, method=method, initial=np.zeros(0, np.int32))
    assert (found.chunks, found.compute().shape) == (no_rows.chunks, (0, 6))


@pytest.mark.parametrize("method", [*METHODS, "reduce"])
def test_operators_that_do_not_commute(adapter: wgpu.GPUAdapter, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan and reduce matrices and bundles on a device, in threads."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    matrices = RNG.integers(-2, 3, (23, 2, 2)).astype(np.int32)
    cut = da.from_array(matrices, chunks=(6, 1, 2))
    gates, inputs = RNG.integers(-2, 3, (2, 50)).astype(np.int32)
    pair = Pair(da.from_array(gates, chunks=7), da.from_array(inputs, chunks=10))
    if method == "reduce":
        assert_same(gpuscan.dask.reduce(cut, "matmul").compute(), gs.reduce(matrices, "matmul", device="numpy"))
        found = dask.compute(*gpuscan.dask.reduce(pair, affine), scheduler="threads")
        assert found == gs.reduce((gates, inputs), affine, device="numpy")
        return
    assert_same(
        gpuscan.dask.scan(cut, "matmul", method=method, reverse=True).compute(scheduler="threads"),
        gs.scan(matrices, "matmul", reverse=True, device="numpy"),
    )
    scanned = gpuscan.dask.scan(pair, affine, method=method, initial=Pair(np.int32(1), np.int32(4)))
    assert isinstance(scanned, Pair)
    wanted = gs.scan((gates, inputs), affine, initial=(np.int32(1), np.int32(4)), device="numpy")
    for part, whole in zip(dask.compute(*scanned, scheduler="threads"), wanted, strict=True):
        assert_same(part, whole)


@pytest.mark.usefixtures("on_numpy")
@pytest.mark.parametrize("method", METHODS)
def test_arrays_of_other_kinds(method: str) -> None:
    """Scan chunks of unknown and of no length, records, and other types of result."""
    flat = X.ravel()
    some = da.from_array(flat, chunks=13)
    picked = some[some > 6]
    assert_same(
        gpuscan.dask.scan(picked, exclusive=True, method=method).compute(), gs.scan(flat[flat > 6], exclusive=True)
    )
    empty = da.from_array(flat[:9], chunks=((0, 4, 0, 5, 0),))
    for reverse in (False, True):
        found = gpuscan.dask.scan(empty, dtype=np.int64, reverse=reverse, method=method)
        assert_same(found.compute(), gs.scan(flat[:9], dtype=np.int64, reverse=reverse))
    records = np.zeros(20, [("gate", "i4"), ("state", "i4")])
    records["gate"], records["state"] = RNG.integers(-2, 3, (2, 20))

    def step(left: Any, right: Any) -> Any:
        return {"gate": left[0] * right[0], "state": left["state"] * right["gate"] + right["state"]}

    for options in ({}, {"initial": (1, 2)}, {"initial": records[3], "exclusive": True, "reverse": True}):
        found = gpuscan.dask.scan(da.from_array(records, chunks=(6, 0, 14)), step, method=method, **options)
        assert_same(found.compute(), gs.scan(records, step, **options))
    # Lists are bundles, nested as deep as you like; a list of numbers is an array.
    cut = [da.from_array(flat, chunks=100), [da.from_array(flat, chunks=77)]]
    (one, (other,)) = gpuscan.dask.scan(cut, add_and_first, method=method, initial=[3, [np.int32(4)]])
    assert_same(one.compute(), 3 + np.cumsum(flat, dtype=np.int32))
    assert_same(other.compute(), np.full_like(flat, 4))
    assert_same(gpuscan.dask.scan([3, 1, 4], method=method).compute(), np.array([3, 4, 8]))


def count_and_sum(v: Any) -> Any:
    return v > 2, v.astype(np.float32)


# Maps on load and on store, an operator, and an initial value for what is combined.
MAPS: dict[str, tuple[Any, Any, Any, Any]] = {
    "numbers": (lambda v: v * v, "add", lambda y: y + 1, 5),
    "only after": (None, "maximum", lambda y: -y, 3),
    "a tuple": (count_and_sum, lambda l, r: (l[0] | r[0], l[1] + r[1]), None, (True, np.float32(2))),
    "a tuple and one result": (count_and_sum, lambda l, r: (l[0] | r[0], l[1] + r[1]), lambda y: y[1] * 2, None),
    "the index": (lambda v, i: v * i, "add", None, 7),
    "the place of the maximum": (
        lambda v, i: (v, i),
        lambda l, r: (np.maximum(l[0], r[0]), np.where(r[0] > l[0], r[1], l[1])),
        lambda y: {"place": y[1]},
        (np.int32(-99), np.int32(-1)),
    ),
    "vectors": (lambda v: np.stack([v, v * v], axis=-1), "add", None, None),
    "vectors and sums of them": (
        lambda v: np.stack([v, v * v], axis=-1),
        "add",
        lambda y: np.sum(y, axis=-1),
        np.array([1, 2], np.int32),
    ),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("on_numpy")
def test_maps_on_load_and_store(method: str, name: str) -> None:
    before, op, after, initial = MAPS[name]
    for axis, reverse, exclusive in ((0, False, False), (1, True, False), (1, False, initial is not None)):
        x = da.from_array(X, chunks=CHUNKS)
        options = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "before": before, "after": after}
        options["initial"] = initial if exclusive or reverse else None
        found = gpuscan.dask.scan(x, op, method=method, **options)
        wanted = gs.scan(X, op, **options)
        for part, whole in zip(leaves_of(found), leaves_of(wanted), strict=True):
            assert part.dtype == whole.dtype
            assert part.chunks[:3] == x.chunks
            assert_same(part.compute(), whole)
    each = RNG.integers(-9, 9, (6, 7)).astype(np.int32)
    if name in ("numbers", "only after", "the index"):
        found = gpuscan.dask.scan(x, op, axis=1, initial=each, method=method, before=before, after=after)
        assert_same(found.compute(), gs.scan(X, op, axis=1, initial=each, before=before, after=after))


def leaves_of(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else [value]


@pytest.mark.usefixtures("on_numpy")
@pytest.mark.parametrize("method", METHODS)
def test_maps_of_bundles_and_dtypes(method: str) -> None:
    gates, inputs = RNG.integers(-2, 3, (2, 50)).astype(np.int32)
    pair = Pair(da.from_array(gates, chunks=7), da.from_array(inputs, chunks=10))
    options: dict[str, Any] = {"before": lambda p: (-p.gate, p.state), "after": lambda p: p[1], "dtype": np.int64}
    found = gpuscan.dask.scan(pair, affine, method=method, **options)
    assert found.dtype == np.int64
    assert_same(found.compute(), gs.scan(Pair(gates, inputs), affine, **options))
    indexed = gpuscan.dask.scan(pair, affine, method=method, before=lambda p, i: (p.gate, p.state + i))
    wanted = gs.scan(Pair(gates, inputs), affine, before=lambda p, i: (p.gate, p.state + i))
    for part, whole in zip(indexed, wanted, strict=True):
        assert_same(part.compute(), whole)


def add_and_first(left: Any, right: Any) -> Any:
    return [left[0] + right[0], [left[1][0]]]


@pytest.mark.usefixtures("on_numpy")
def test_the_same_bits_everywhere() -> None:
    x = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    blocks = da.from_array(x, chunks=(7, 11))
    options: dict[str, Any] = {"axis": 0, "initial": 2, "reproducible": "everywhere"}
    found = gpuscan.dask.scan(blocks, **options)
    assert found.chunks == blocks.chunks
    assert found.compute().tobytes() == gs.scan(x, device="numpy", **options).tobytes()
    with pytest.raises(ValueError, match="unknown lengths"):
        gpuscan.dask.scan(blocks[blocks[:, 0] > 0], **options)
    with pytest.raises(gs.OperatorError, match="remainder"):
        gpuscan.dask.scan(blocks, after=lambda value: np.remainder(value, 3), **options)


@pytest.mark.usefixtures("on_numpy")
@pytest.mark.parametrize("axis", [None, 0, 2, (0, 2), (-1, 1)])
def test_reductions_with_the_same_bits_everywhere(axis: Any) -> None:
    x = np.random.default_rng(0).standard_normal((9, 8, 70)).astype(np.float32)
    blocks = da.from_array(x, chunks=(2, 3, 11))
    options: dict[str, Any] = {"axis": axis, "reproducible": "everywhere"}
    found = gpuscan.dask.reduce(blocks, **options)
    assert found.chunks == blocks.sum(axis).chunks
    assert np.asarray(found.compute()).tobytes() == gs.reduce(x, device="numpy", **options).tobytes()
    pair = gpuscan.dask.reduce((blocks, blocks + 1), add_both, **options)
    wanted = gs.reduce((x, x + 1), add_both, device="numpy", **options)
    assert [part.compute().tobytes() for part in pair] == [part.tobytes() for part in wanted]
    with pytest.raises(ValueError, match="unknown lengths"):
        gpuscan.dask.reduce(blocks[blocks[:, 0, 0] > 0], **options)
    with pytest.raises(gs.OperatorError, match="remainder"):
        gpuscan.dask.reduce(blocks, lambda left, right: np.remainder(left, 3) + right, **options)


def add_both(left: Any, right: Any) -> Any:
    return left[0] + right[0], left[1] + right[1]


@pytest.mark.usefixtures("on_numpy")
def test_reductions() -> None:
    x = da.from_array(X, chunks=CHUNKS)
    for axis in range(3):
        found = gpuscan.dask.reduce(x, "maximum", axis=axis)
        assert found.chunks == x.chunks[:axis] + x.chunks[axis + 1 :]
        assert_same(found.compute(), X.max(axis))
    matrices = RNG.integers(-2, 3, (3, 4, 5, 2, 2)).astype(np.int32)
    whole = gpuscan.dask.reduce(da.from_array(matrices, chunks=(2, 3, 2, 2, 1)), "matmul")
    assert_same(whole.compute(), gs.reduce(matrices, "matmul"))
    gates, inputs = RNG.integers(-2, 3, (2, 50)).astype(np.int32)
    pair = gpuscan.dask.reduce({"a": da.from_array(gates, chunks=7), "b": da.from_array(inputs, chunks=9)}, by_name)
    assert dask.compute(pair) == (gs.reduce({"a": gates, "b": inputs}, by_name),)
    # Several axes are combined in C order, also where others are between them.
    table = da.from_array(X, chunks=CHUNKS)
    assert_same(gpuscan.dask.reduce(table, lambda l, r: r, axis=(0, -1)).compute(), X[-1, :, -1])
    (only,) = gpuscan.dask.reduce([da.from_array(gates, chunks=7)], lambda l, r: [l[0] + r[0]])
    assert int(only.compute()) == gates.sum()
    nothing = da.zeros((0,), dtype=np.int32)
    assert int(gpuscan.dask.reduce(nothing).compute()) == 0
    with pytest.raises(ValueError, match=r"no identity\. Pass initial="):
        gpuscan.dask.reduce(nothing, lambda l, r: l).compute()


def by_name(left: Any, right: Any) -> Any:
    return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}


def test_wrong_arguments() -> None:
    """Refuse a call when it is made, not when it is computed."""
    x = da.from_array(X, chunks=CHUNKS)
    scan, rows = gpuscan.dask.scan, np.zeros((1, 7), int)
    untyped: Any = scan
    for error, message, call in (
        (ValueError, r"shape \(6, 11, 7\) was passed without axis=.*Pass one of 0, 1, 2", lambda: scan(x)),
        (ValueError, "axis=3 was passed", lambda: scan(x, axis=3)),
        (TypeError, "pass dtype=np.int32", lambda: scan(x > 0, axis=0)),
        (ValueError, "which has no identity", lambda: scan(x, lambda l, r: l, axis=0, exclusive=True)),
        (ValueError, "must have one shape", lambda: scan((x, x[1:]), affine, axis=0)),
        (ValueError, r"does not broadcast to \(11, 7\)", lambda: scan(x, axis=0, initial=np.zeros((3, 3), int))),
        (TypeError, "cannot hold it", lambda: scan(x, axis=0, initial=1.5)),
        (ValueError, "its structure is not that of the elements", lambda: scan((x, x), affine, axis=0, initial=3)),
        (ValueError, r"pass one of \('totals', 'sequential'\)", lambda: scan(x, axis=0, method="blelloch")),
        (TypeError, "before=3 was passed", lambda: untyped(x, axis=0, before=3)),
        (TypeError, "after='abs' was passed", lambda: untyped(x, axis=0, after="abs")),
        (ValueError, "takes the index of each element", lambda: scan(x[x > 0], before=lambda v, i: v + i)),
        (gs.OperatorError, "no operator has that name", lambda: gpuscan.dask.reduce(x, "mean")),
        (ValueError, "their shapes cannot be compared", lambda: scan((x[x[:, 0, 0] > 0], x), affine, axis=0)),
        (ValueError, "each axis once", lambda: gpuscan.dask.reduce(x, axis=(0, -3))),
        (gs.UnsupportedDtypeError, "dtype object", lambda: scan(x.astype(object), axis=0)),
        (ValueError, r"compute_chunk_sizes\(\)", lambda: scan(x[x[:, 0, 0] > 0], axis=1, initial=rows)),
    ):
        with pytest.raises(error, match=message):
            call()


# ----- What is sent to workers


def test_operators_and_problems_are_pickled() -> None:
    """Send operators and problems by pickle; named operators stay the same objects."""
    for operator in BUILTINS.values():
        assert pickle.loads(pickle.dumps(operator)) is operator
    half = np.float32(0.5)
    mean = gs.operator(lambda l, r: (l + r) * half, name="mean", identity=0)
    sent = cloudpickle.loads(cloudpickle.dumps(mean))
    assert (sent.name, sent(np.float32(2), np.float32(4))) == ("mean", 3)
    source = gs.wgsl_operator("fn combine(a: Element, b: Element) -> Element { return a + b; }", identity=0)
    assert pickle.loads(pickle.dumps(source)).wgsl == source.wgsl
    x = np.arange(9, dtype=np.float32)
    problems = [
        make_problem(x, lambda l, r: l + r, before=lambda v: v * 2, after=lambda v: (v, -v), initial=1),
        make_problem(x, "add", segments=[0, 4, 9]),
        *(find_or_make_problem(x, "add", axis=0, exclusive=False, reverse=False) for _ in range(2)),
    ]
    assert problems[-1].cache_key is not None
    for problem in problems:
        sent = cloudpickle.loads(cloudpickle.dumps(problem))
        assert sent.cache_key is None
        assert sent.destination == problem.destination
        for part, whole in zip(gs.reference.scan.accumulate(sent), gs.reference.scan.accumulate(problem), strict=True):
            assert_same(part, whole)


def test_workers_take_devices_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_adapters(monkeypatch)
    assert adapter_for(3) == "numpy"

    class Adapter:
        def __init__(self, kind: str, backend: str) -> None:
            self.info = {"adapter_type": kind, "backend_type": backend}

    two = [Adapter("DiscreteGPU", "Vulkan")] * 2
    found = [*two, Adapter("DiscreteGPU", "OpenGL"), Adapter("CPU", "Vulkan")]
    monkeypatch.setattr("gpuscan.device.adapters.find_adapters", lambda: found)
    assert [adapter_for(name) for name in (0, 1, 2, "gpu-3", "node7-worker-4")] == ["0", "1", "0", "1", "0"]
    for name in ("tcp://10.0.0.1:41000", "alice"):
        with pytest.raises(ValueError, match=f"{name!r}, but its name has no number. Start workers with names"):
            adapter_for(name)


# ----- Clusters


def slowly(block: Any) -> Any:
    time.sleep(0.1)
    return block


def memory_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# The blocks of `count_block` that this process holds, and the most that it held at once.
HELD = {"now": 0, "most": 0}


def count_block(block: Any) -> Any:
    block = block.copy()
    HELD["now"] += 1
    HELD["most"] = max(HELD.values())
    weakref.finalize(block, lambda: HELD.update(now=HELD["now"] - 1))
    return block


def slow_sum(left: Any, right: Any) -> Any:
    time.sleep(0.003)
    return left + right


@pytest.mark.filterwarnings("default")
def test_a_cluster_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan in two processes more than they hold, on NumPy; then scan on their devices, and kill one in the middle."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        from_file_to_file(client, tmp_path)
        x = np.arange(24 << 6, dtype=np.int32)
        counts = da.from_array(x, chunks=1 << 6).map_blocks(count_block, dtype=x.dtype)
        assert_same(gpuscan.dask.scan(counts, slow_sum, method="sequential").compute(), np.cumsum(x, dtype=x.dtype))
        # Three of the 24 blocks may wait, and one is scanned. Workers may not have given up some that are scanned.
        assert 1 <= sum(client.run(lambda: HELD["most"]).values()) <= 10
        monkeypatch.delenv("GPUSCAN_ADAPTER")
        gpuscan.dask.use_one_device_each(client)
        chosen = client.run(lambda: os.environ["GPUSCAN_ADAPTER"])
        assert set(chosen.values()) <= {adapter_for(0), adapter_for(1)}
        x = RNG.integers(-9, 9, 1 << 18).astype(np.int32)
        wanted = np.maximum.accumulate(x)
        cut = da.from_array(x, chunks=1 << 14)
        larger = lambda l, r: np.maximum(l, r)  # noqa: E731
        future = client.compute(gpuscan.dask.scan(cut.map_blocks(slowly, dtype=x.dtype), larger))
        time.sleep(0.5)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert_same(future.result(timeout=100), wanted)
        # Blocks that the cluster holds are not computed again.
        held = cut.persist()
        for method in METHODS:
            assert_same(gpuscan.dask.scan(held + 1, larger, method=method).compute(), wanted + 1)
        assert int(gpuscan.dask.reduce(held, larger).compute()) == x.max()


def from_file_to_file(client: Client, folder: Path) -> None:
    """Scan from zarr to zarr, in blocks of a megabyte, without keeping the array in the workers' memory."""
    count, chunk = 40 << 20, 1 << 20
    source, target = (
        zarr.create_array(folder / name, shape=(count,), chunks=(chunk,), dtype="u4", compressors=None)
        for name in ("in", "out")
    )
    ramp = np.arange(chunk, dtype=np.uint32)
    for start in range(0, count, chunk):
        source[start : start + chunk] = ramp + np.uint32(start)
    before = max(client.run(memory_peak).values())
    gpuscan.dask.scan(da.from_zarr(source)).store(target, lock=False)
    # The peak is in KiB. Two workers that kept the array would hold 80 MiB each.
    assert max(client.run(memory_peak).values()) < before + (60 << 10)
    ends = np.arange(chunk - 1, count, chunk, dtype=np.uint64)
    assert_same(target[chunk - 1 :: chunk], ((ends * (ends + 1)) // 2).astype(np.uint32))
    assert_same(target[-chunk:-1], target[-1] - np.cumsum(source[-chunk + 1 :][::-1], dtype=np.uint32)[::-1])


@pytest.mark.usefixtures("on_numpy")
def test_xarray() -> None:
    """Scan along a named dimension; the recipe is in docs/scaling.md."""
    labelled = xarray.DataArray(X, dims=("y", "time", "x"), coords={"time": np.arange(11)})
    for array in (labelled, labelled.chunk({"y": 4, "time": 3})):
        sums = xarray.apply_ufunc(
            gpuscan.dask.scan,
            array,
            kwargs={"op": "add", "axis": -1},
            input_core_dims=[["time"]],
            output_core_dims=[["time"]],
            dask="allowed",
        ).transpose(*array.dims)
        assert_same(sums.values, np.cumsum(X, axis=1, dtype=np.int32))
        assert sums.coords["time"].equals(array.coords["time"])


FLOATS, LABELS = np.array([1.0, 2, 3, 4], np.float32), np.array([0, 1, 0, 1])
# Calls with an array of another library in each place that takes one.
CALLS: dict[str, Any] = {
    "scan": lambda make: gs.scan(make(FLOATS)),
    "a bundle": lambda make: gs.scan({"a": make(FLOATS)}, lambda l, r: {"a": l["a"] + r["a"]}),
    "initial": lambda make: gs.scan(FLOATS, initial=make(FLOATS[:1])),
    "segments": lambda make: gs.scan(FLOATS, segments=make(np.array([0, 2, 4]))),
    "keys": lambda make: gs.scan(FLOATS, keys=make(LABELS)),
    "groups": lambda make: gs.scan(FLOATS, groups=make(LABELS)),
    "out": lambda make: gs.scan(FLOATS, out=make(FLOATS)),
    "scan_vjp": lambda make: gs.scan_vjp(FLOATS, FLOATS, make(FLOATS)),
    "reduce": lambda make: gs.reduce(make(FLOATS)),
    "reduce_by_key": lambda make: gs.reduce_by_key(make(LABELS), FLOATS),
    "scan_chunks": lambda make: list(gs.scan_chunks([make(FLOATS)])),
    "map": lambda make: gs.map(lambda v: v + 1, make(FLOATS)),
    "compact": lambda make: gs.compact(make(FLOATS), FLOATS > 2),
    "mask": lambda make: gs.compact(FLOATS, make(FLOATS > 2)),
    "sort": lambda make: gs.sort(make(FLOATS)),
    "argsort": lambda make: gs.argsort(make(FLOATS)),
    "sort_by_key": lambda make: gs.sort_by_key(FLOATS, make(FLOATS)),
    "cumulative_sum": lambda make: gs.cumulative_sum(make(FLOATS)),
    "linear_recurrence": lambda make: gs.linear_recurrence(FLOATS, make(FLOATS)),
    "linear_recurrence_vjp": lambda make: gs.linear_recurrence_vjp(FLOATS, FLOATS, make(FLOATS)),
    "selective_scan": lambda make: gs.selective_scan(*[*[FLOATS] * 4, make(FLOATS)]),
    "gated_delta_rule": lambda make: gs.gated_delta_rule(*[*[FLOATS] * 4, make(FLOATS)]),
    "check_associative": lambda make: gs.check_associative("add", np.float32, samples=make(FLOATS)),
    "lfilter": lambda make: gs.signal.lfilter([1.0], [1.0, 0.5], make(FLOATS)),
    "ewm_mean": lambda make: gs.signal.ewm_mean(make(FLOATS), alpha=0.5),
    "jax": lambda make: gpuscan.jax.associative_scan(np.add, make(FLOATS)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("on_numpy")
def test_arrays_that_would_lose_their_labels_or_their_laziness_are_refused(name: str) -> None:
    computed: list[Any] = []

    def chunk_array(array: Any) -> Any:
        def block(values: Any) -> Any:
            computed.append(values)
            return values

        return da.from_array(array, chunks=2).map_blocks(block, meta=np.empty(0, array.dtype))

    with pytest.raises(TypeError, match=r"gpuscan\.dask\.scan|pass a NumPy array"):
        CALLS[name](chunk_array)
    assert not computed
    with pytest.raises(TypeError, match=r"xarray\.apply_ufunc|pass a NumPy array"):
        CALLS[name](lambda array: xarray.DataArray(array, dims="t"))


@pytest.mark.parametrize("function", [gpuscan.dask.scan, gpuscan.dask.reduce])
def test_labelled_arrays_are_refused(function: Any) -> None:
    labelled = xarray.DataArray(X, dims=("y", "time", "x")).chunk({"time": 3})
    for given in (labelled, {"a": labelled}, labelled.variable):
        with pytest.raises(TypeError, match=r"an array of xarray, .* was passed.*xarray\.apply_ufunc"):
            function(given, axis=1)
