"""What a scan must give, element by element, and what the GPU tests have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import hypothesis
import numpy as np

import gpuscan as gs
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator
from gpuscan.planning.strategies import STRATEGIES, Strategy, unsafe_reason
from gpuscan.planning.tile_shapes import TileShape

Array = np.ndarray[Any, Any]
T = TypeVar("T")

# The software adapters share the cases of tests.
IN_TURN = os.environ.get("GPUSCAN_TEST_IN_TURN") == "1"


def one_by_one(
    function: Callable[[Any, Any], Any] | None,
    x: tuple[Array, ...],
    *,
    heads: Array | None = None,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    initial: tuple[Any, ...] | None = None,
) -> tuple[Array, ...]:
    """Scan a bundle by the definition: ``y[0] = x[0]``, ``y[i] = f(y[i-1], x[i])``, one i at a time.

    It begins again at each of the heads: (*shape) of bool, for a scan forwards.
    """
    assert function is not None
    rows = [np.moveaxis(field, axis, 0) for field in x]
    begins = None if heads is None else np.moveaxis(heads, axis, 0).copy()
    if reverse:
        rows = [row[::-1] for row in rows]
    if begins is not None:
        begins[:1] = True
        begins = np.concatenate([begins[1:], begins[:1]])[::-1] if reverse else begins
    seeds = None
    if initial is not None:
        seeds = tuple(np.broadcast_to(np.asarray(v, r.dtype), r.shape[1:]) for v, r in zip(initial, rows, strict=True))
    carry = seeds
    results: list[tuple[Any, ...]] = []
    for place, item in enumerate(zip(*rows, strict=True)):
        before, following = carry, item if carry is None else function(carry, item)
        if begins is not None and carry is not None:
            fresh = item if seeds is None else function(seeds, item)
            following = tuple(np.where(begins[place], a, b) for a, b in zip(fresh, following, strict=True))
            before = tuple(np.where(begins[place], a, b) for a, b in zip(seeds or carry, carry, strict=True))
        results.append(before if exclusive else following)  # type: ignore[arg-type]
        carry = following
    fields = [np.array(values, row.dtype) for values, row in zip(zip(*results, strict=True), rows, strict=True)]
    if reverse:
        fields = [field[::-1] for field in fields]
    return tuple(np.moveaxis(field, 0, axis) for field in fields)


def heads_along(axis: int, shape: tuple[int, ...], *, segments: Any = None, keys: Any = None) -> Array:
    """Return the heads that offsets or keys give: (*shape) of bool."""
    rows = np.zeros((shape[axis], *(n for i, n in enumerate(shape) if i != axis)), bool)
    if segments is not None:
        starts, stops = np.asarray(segments)[:-1], np.asarray(segments)[1:]
        rows[starts[starts < stops]] = True
    else:
        keys = np.asarray(keys)
        moved = keys if keys.ndim == 1 else np.moveaxis(keys, axis, 0)
        changes = moved[1:] != moved[:-1]
        rows[1:] = changes.reshape(changes.shape + (1,) * (rows.ndim - changes.ndim))
    return np.moveaxis(rows, 0, axis)


# ----- Operators that tell every order of combination apart, exactly


def _matrices(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    (a, b, c, d), (e, f, g, h) = left, right
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def _later(left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
    return np.where(right[1] != 0, right[0], left[0]), left[1] | right[1]


def affine(left: Any, right: Any) -> Any:
    """Compose two maps ``x -> a x + b``, first `left`."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def maps_of_vectors(left: Array, right: Array) -> Array:
    """Compose ``x -> a x + b``, a in the first place of each vector and b in the others."""
    gain = right[..., :1]
    return np.concatenate([left[..., :1] * gain, left[..., 1:] * gain + right[..., 1:]], axis=-1)


def vectors(width: int, dtype: str, length: int = 1500) -> Array:
    """Draw operands for `maps_of_vectors`, of all bit patterns."""
    limits = np.iinfo(dtype)
    x = np.random.default_rng(width).integers(limits.min, limits.max, (length, width), dtype=dtype, endpoint=True)
    x[:, 0] |= 1  # an odd gain is never lost
    return x


AFFINE = gs.operator(affine, identity=(1, 0), name="affine")
# Products of 2 x 2 matrices modulo 2^32, without an identity.
MATRICES = gs.operator(_matrices, name="matrices")
# The last valid value.
LATER = gs.operator(_later, name="later")
FIRST = gs.operator(lambda l, r: l, name="first")

NO_IDENTITY: dict[str, tuple[Operator, int]] = {"matrices": (MATRICES, 4), "later": (LATER, 2), "affine": (AFFINE, 2)}


def words(rng: np.random.Generator, fields: int, shape: Any) -> tuple[Array, ...]:
    """Draw a bundle of uint32 fields of all bit patterns; zeros are common in the last one."""
    bundle = [rng.integers(0, 2**32, shape, dtype=np.uint32) for _ in range(fields)]
    bundle[-1] *= rng.random(shape) < 0.5
    return tuple(bundle)


def numbers(dtype: Any, shape: Any, seed: int = 0) -> Any:
    """Draw small numbers from 0 on. Every dtype holds the sum of two of them."""
    return np.random.default_rng(seed).integers(0, 50, shape).astype(dtype)


def draw_offsets(rng: np.random.Generator, length: int, segments: int, *, full: bool = False) -> Array:
    """Draw offsets of segments. Some of these are empty, unless they are to be full."""
    if full:
        inner = rng.choice(np.arange(1, length), min(segments, length) - 1, replace=False)
    else:
        inner = rng.integers(0, length + 1, segments - 1)
        inner[: len(inner) // 4] = inner[-1:] if len(inner) else 0
    return np.concatenate([[0], np.sort(inner), [length]])


# ----- Devices


def safe_strategies(device: gs.Device) -> list[Strategy]:
    """Return the strategies that the probe found safe on this adapter."""
    return [name for name in STRATEGIES if unsafe_reason(name, device.capabilities) is None]


def strategies_on(device: gs.Device) -> list[Strategy]:
    """Return the safe strategies, or all but lookback for an OpenGL adapter that shares cases.

    Fallback has all of lookback in it.
    """
    return [name for name in safe_strategies(device) if name != "lookback" or not shares_opengl(device)]


def shares_cases(device: gs.Device) -> bool:
    """Return True for a software adapter that shares cases."""
    return IN_TURN and device.capabilities.adapter_type == "CPU"


def _number_of(device: gs.Device) -> int:
    """Return another number for each software adapter."""
    if shares_opengl(device):
        return 2
    return 1 if "SwiftShader" in device.capabilities.summary else 0


def one_of(device: gs.Device, cases: Iterable[T], rotation: int) -> list[T]:
    """Return all cases, or one of them on a software adapter that shares cases, the next one for every rotation.

    In the same rotation one adapter tries another case than the next.
    """
    every = list(cases)
    if shares_cases(device):
        return [every[(rotation + _number_of(device)) % len(every)]]
    return every


def half_of(device: gs.Device, cases: Iterable[T], rotation: int = 0) -> list[T]:
    """Return all cases, or every other one on a software adapter that shares cases; every third one for OpenGL.

    In one rotation lavapipe and SwiftShader try all of them together. In the next one an adapter tries the other half.
    """
    every = list(cases)
    if shares_cases(device):
        step = 3 if shares_opengl(device) and len(every) > 2 else 2
        return every[(rotation + _number_of(device)) % 2 :: step] or every
    return every


def pick_strategies(device: gs.Device, rotation: int) -> list[Strategy]:
    """Return the safe strategies, or the one of this rotation on a software adapter that shares cases."""
    return one_of(device, strategies_on(device), rotation)


def strategies_in_turn(device: gs.Device, rotation: int) -> list[Strategy]:
    """Return one of the safe single passes, the next one for every rotation, and three_dispatch.

    Single passes take long to compile, and have all in common but how they wait. Software adapters that share cases
    try one strategy.
    """
    *single_passes, three_dispatch = names = strategies_on(device)
    shared = pick_strategies(device, rotation)
    return shared if shared != names else [single_passes[rotation % len(single_passes)], three_dispatch]


def small_tiles(device: gs.Device) -> list[TileShape]:
    """Return tiles so small that a few thousand elements make several blocks, with subgroups and without."""
    size = device.capabilities.subgroup_size
    return [TileShape(32, 0, 1, 4), *([TileShape(max(32, size), size, 2, 4)] if size else [])]


def tile_in_turn(device: gs.Device, rotation: int) -> TileShape:
    """Return one of the small tiles, the next one for every rotation."""
    tiles = small_tiles(device)
    return tiles[rotation % len(tiles)]


def shares_opengl(device: gs.Device) -> bool:
    """Return True for an OpenGL adapter if software adapters share the cases of tests.

    Mesa takes about seven times as long to compile a shader for OpenGL as for Vulkan.
    """
    return IN_TURN and device.capabilities.backend == "OpenGL"


def some(device: gs.Device, cases: Iterable[T]) -> list[T]:
    """Return all cases, or every third one for an OpenGL adapter if software adapters share the cases of tests."""
    return list(cases)[:: 3 if shares_opengl(device) else 1]


def limit_examples(count: int) -> hypothesis.settings:
    """Return settings for this many examples, or for half as many if software adapters share the cases of tests."""
    return hypothesis.settings(max_examples=count // 2 if IN_TURN else count)


def several(device: gs.Device, count: int) -> int:
    """Return `count` for a CPU adapter and 16 times that for a GPU, which has larger tiles."""
    return count if device.capabilities.adapter_type == "CPU" else 16 * count


def boundaries(shape: TileShape) -> list[int]:
    """Return lengths near the edges of chunk, subgroup, tile and block."""
    edges = {
        shape.chunk,
        shape.chunk * max(1, shape.subgroup_size),
        shape.tile_size // shape.subgroups_per_workgroup,
        shape.tile_size,
        2 * shape.tile_size,
        shape.tile_size * shape.block,
        3 * shape.tile_size * shape.block,
    }
    around = {edge + by for edge in edges for by in (-1, 0, 1)}
    return sorted({1, 2, 3, 31, 32, 33} | {length for length in around if length > 0})


def assert_same(got: Any, wanted: Any, note: Any = "") -> None:
    """Assert equal dtype, shape and bits; any NaN equals any other."""
    __tracebackhide__ = True
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype, note
    assert got.shape == wanted.shape, note
    if got.tobytes() == wanted.tobytes():
        return  # sooner than NumPy's own comparisons, and the note, which may be read from a device, needs no text
    if got.dtype.kind in "fc":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted), err_msg=str(note))
        np.testing.assert_array_equal(np.signbit(got.real), np.signbit(np.where(np.isnan(wanted), got, wanted).real))
    np.testing.assert_array_equal(got, wanted, err_msg=str(note))


def assert_scans(x: Array, op: str, axis: int, asked: dict[str, Any], device: Any, strategy: Strategy = "auto") -> None:
    """Assert that `gpuscan.scan` gives what its definition gives, as a new C-contiguous array, and keeps `x`."""
    __tracebackhide__ = True
    before, native = x.copy(), x.astype(x.dtype.newbyteorder("="))
    got = gs.scan(x, op, axis=axis, device=device, strategy=strategy, **asked)
    begin = asked["initial"]
    if begin is None and asked["exclusive"]:
        begin = 0  # the identity of the operators that this is called with
    wanted = native
    if x.size:
        ufunc: np.ufunc = getattr(np, op)
        options = asked | {"initial": None if begin is None else (begin,)}
        (wanted,) = one_by_one(lambda l, r: (ufunc(l[0], r[0]),), (native,), axis=axis % x.ndim, **options)
    assert_same(got, wanted)
    assert got.flags.c_contiguous
    assert got.flags.writeable
    assert not np.shares_memory(got, x)
    np.testing.assert_array_equal(x, before)


def ufunc_scan(name: str, x: Array, axis: int = 0) -> Array:
    """Return NumPy's own accumulation, in the dtype of `x`."""
    ufunc: np.ufunc = getattr(np, resolve(name).name)
    return ufunc.accumulate(x, axis=axis, dtype=x.dtype)
