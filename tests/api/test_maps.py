"""`before`, `after` and `dtype`: maps from any type to any other, fused into load and store, give NumPy's results."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.operators.named_operators import resolve
from gpuscan.problem.arguments import as_numpy_arrays, structure_and_leaves
from tests.harness.scans import make_problem, scan_with, smallest_chunk
from tests.laws import any_bits, whole
from tests.oracle import AFFINE, Array, assert_same, one_by_one, small_tiles, strategies_on

Moments = namedtuple("Moments", "count total")


def same(value: Any) -> Any:
    """Return the value: no map."""
    return value


@dataclass(frozen=True)
class Mapped:
    """A scan with maps: the dtypes of its input's fields, and integers as they wrap all the way."""

    dtypes: tuple[str, ...]
    op: Any
    before: Callable[[Any], Any] = same
    after: Callable[[Any], Any] = same

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Draw the input: one array or a tuple of arrays."""
        fields = tuple(
            any_bits(rng, name, shape) if np.dtype(name).kind in "iu" else whole(rng, name, shape, -1, 1)
            for name in self.dtypes
        )
        return fields if len(fields) > 1 else fields[0]

    def maps(self) -> dict[str, Any]:
        """Return the maps as keyword arguments of `gpuscan.scan`."""
        maps = {"before": self.before, "after": self.after}
        return {name: function for name, function in maps.items() if function is not same}

    def compute_expected(self, x: Any, **options: Any) -> Any:
        """Map, scan element by element, map."""
        structure, fields = structure_and_leaves(self.before(x))
        arrays = tuple(as_numpy_arrays(fields))
        op = resolve(self.op)

        def combine(left: Any, right: Any) -> tuple[Any, ...]:
            assert op.function is not None
            return tuple(structure.flatten(op.function(structure.unflatten(left), structure.unflatten(right))))

        begin = options.pop("initial", None)
        initial = None if begin is None else tuple(structure.flatten(begin))
        return self.after(structure.unflatten(one_by_one(combine, arrays, initial=initial, **options)))


MAPS = {
    "narrow in, wide combined": Mapped(("int8",), "add", lambda v: v.astype(np.int32) * v - 7),
    "wide in, narrow combined": Mapped(("int64",), "add", lambda v: (v % 7).astype(np.int8)),
    "narrow all the way": Mapped(("uint8",), "maximum", lambda v: v ^ np.uint8(0x55), lambda v: ~v),
    "one to two": Mapped(("uint32",), AFFINE, lambda v: (v * 2 + 1, v)),
    "one to two to one": Mapped(("uint16",), AFFINE, lambda v: (v | 1, v ^ 3), lambda m: m[1]),
    "one to two of other types": Mapped(
        ("int32",), "add", after=lambda v: Moments((v >> 7).astype(np.int8), v.astype(np.int64) * 3)
    ),
    "two to one": Mapped(("uint8", "uint16"), "add", lambda b: b[0] * b[1].astype(np.uint32)),
    "two to three": Mapped(
        ("uint8", "int64"),
        lambda l, r: {"n": l["n"] + r["n"], "s": l["s"] + r["s"], "t": l["t"] + l["s"] * r["n"] + r["t"]},
        lambda b: {"n": np.full_like(b[1], 1), "s": b[1], "t": b[0].astype(np.int64)},
        lambda m: (m["t"].astype(np.int16), m["s"], m["n"].astype(np.uint8)),
    ),
    "to bool": Mapped(("int16",), "maximum", after=lambda v: v > 32_000),
    "from bool": Mapped(("bool",), "add", lambda v: v.astype(np.uint32), lambda v: v % 2 == 1),
    "floats": Mapped(("float16",), "add", lambda v: v.astype(np.float32) * 2, lambda v: v * np.float32(0.5)),
    "float to complex": Mapped(("float32",), "add", lambda v: v + 1j * v, lambda v: v.imag - v.real),
}
NAMES = list(MAPS)


def seed_of(case: Mapped) -> Any:
    """Return an initial element: what `before` makes of an input."""
    structure, fields = structure_and_leaves(case.before(case.draw(np.random.default_rng(3), (1,))))
    return structure.unflatten([field[0] for field in fields])


def assert_bundle(got: Any, wanted: Any, note: Any = "") -> None:
    """Require the same kind of bundle of the same arrays."""
    __tracebackhide__ = True
    structure, fields = structure_and_leaves(wanted)
    assert structure_and_leaves(got)[0] == structure, note
    for one, other in zip(structure.flatten(got), fields, strict=True):
        assert_same(one + one.dtype.type(0), other + other.dtype.type(0), note)  # a zero has no sign


@pytest.mark.parametrize("name", NAMES)
def test_maps_on_many_tiles(device: gs.Device, name: str) -> None:
    """Run strategies and options in turn. The length ends within a 32-bit word and a tile."""
    case, rotation = MAPS[name], NAMES.index(name)
    x = case.draw(np.random.default_rng(1), (1037,))
    options: dict[str, Any] = {"exclusive": rotation % 2 == 0, "reverse": rotation % 3 == 0, "initial": seed_of(case)}
    problem = make_problem(x, case.op, **options, **case.maps())
    strategies = strategies_on(device)
    strategy = strategies[rotation % len(strategies)]
    tile = replace(small_tiles(device)[rotation % 2 - 1], chunk=smallest_chunk(device, problem))
    got = problem.destination.structure.unflatten(scan_with(device, problem, strategy, tile=tile))
    assert_bundle(got, case.compute_expected(x, **options), strategy)


@pytest.mark.parametrize("name", NAMES)
def test_maps_of_rows_columns_and_segments(device: gs.Device, name: str) -> None:
    """Assert that maps in rows, columns and segments give what the definition gives, also on NumPy."""
    case, rotation = MAPS[name], NAMES.index(name)
    x = case.draw(np.random.default_rng(2), (23, 41))
    axis = rotation % 2
    wanted = case.compute_expected(x, axis=axis)
    assert_bundle(gs.scan(x, case.op, axis=axis, device=device, **case.maps()), wanted)
    assert_bundle(gs.scan(x, case.op, axis=axis, device="numpy", **case.maps()), wanted)
    x = case.draw(np.random.default_rng(3), (500,))
    pieces = [case.compute_expected(part_of(x, a, b)) for a, b in [(0, 3), (3, 400), (400, 500)]]
    wanted = join_bundles(pieces)
    for where in (device, "numpy"):
        assert_bundle(gs.scan(x, case.op, segments=[0, 3, 3, 400, 500], device=where, **case.maps()), wanted)


def part_of(x: Any, begin: int, end: int) -> Any:
    structure, fields = structure_and_leaves(x)
    return structure.unflatten([field[begin:end] for field in fields])


def join_bundles(bundles: list[Any]) -> Any:
    structure = structure_and_leaves(bundles[0])[0]
    parts = zip(*(structure.flatten(each) for each in bundles), strict=True)
    return structure.unflatten([np.concatenate(part) for part in parts])


def test_maps_of_arrays_on_the_device(device: gs.Device) -> None:
    """Assert that a `gs.Array` gives a `gs.Array`, of the types that the maps make."""
    case = MAPS["one to two of other types"]
    x = case.draw(np.random.default_rng(4), (3001,))
    got = gs.scan(device.asarray(x), case.op, **case.maps())
    assert isinstance(got, Moments)
    assert all(isinstance(part, gs.Array) for part in got)
    assert_bundle(Moments(*(np.asarray(part) for part in got)), case.compute_expected(x))


def test_a_map_may_give_the_element_an_axis(device: gs.Device) -> None:
    """Make vectors of numbers on load, and numbers again on store."""
    x = np.random.default_rng(5).integers(0, 2**32, (7, 300), dtype=np.uint32)
    maps: dict[str, Any] = {
        "before": lambda v: np.stack([v | 1, v], axis=-1),
        "after": lambda m: m[..., 1] ^ m[..., 0],
    }

    def compose(left: Array, right: Array) -> Array:
        return np.stack([left[..., 0] * right[..., 0], right[..., 0] * left[..., 1] + right[..., 1]], axis=-1)

    gain, shift = one_by_one(AFFINE.function, (x | 1, x), axis=1)
    for where in (device, "numpy"):
        assert_same(gs.scan(x, compose, axis=1, device=where, **maps), gain ^ shift)


def test_out_has_the_type_of_what_after_gives(device: gs.Device) -> None:
    x = np.arange(100, dtype=np.int32)
    out = np.zeros(100, bool)
    assert gs.scan(x, after=lambda v: v % 2 == 0, out=out, device=device) is out
    assert_same(out, np.cumsum(x) % 2 == 0)
    with pytest.raises(TypeError, match="out of dtype int32 was passed for a result of dtype bool"):
        gs.scan(x, after=lambda v: v % 2 == 0, out=np.zeros(100, np.int32), device=device)


def test_initial_is_an_element_and_not_an_input(device: gs.Device) -> None:
    """Assert that `before` does not map `initial`, which is already an element."""
    x = np.array([1, 2, 3], np.uint8)
    maps: dict[str, Any] = {"before": lambda v: (v.astype(np.int32), v.astype(np.int32) * 10)}

    def both(left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1] + right[1]

    got = gs.scan(x, both, initial=(1000, -1), device=device, **maps)
    assert [part.tolist() for part in got] == [[1001, 1003, 1006], [9, 29, 59]]
    with pytest.raises(ValueError, match=r"initial.*2 fields"):
        gs.scan(x, both, initial=5, device=device, **maps)


# ----- dtype


@pytest.mark.parametrize(
    ("source", "target"),
    [("bool", "int32"), ("int8", "int64"), ("uint16", "float32"), ("int32", "int8"), ("float32", "float16"),
     ("int64", "uint16"), ("float16", "complex64")],
)  # fmt: skip
def test_dtype_is_combined_in_and_returned(device: gs.Device, source: str, target: str) -> None:
    """Assert NumPy's numbers for wider and narrower dtypes, converted on the GPU or before the transfer."""
    rng = np.random.default_rng(6)
    x = any_bits(rng, source, (1037,)) if np.dtype(source).kind in "iu" else whole(rng, source, (1037,), -1, 1)
    if source == "uint16":
        x %= 100  # sums of floats that stay exact
    wanted = np.add.accumulate(x.astype(target), dtype=target)
    for where in (device, "numpy"):
        got = gs.scan(x, dtype=target, device=where)
        assert_same(got + got.dtype.type(0), wanted + wanted.dtype.type(0))


def test_dtype_after_before(device: gs.Device) -> None:
    """Assert that `dtype` converts each field of the results of `before`."""
    x = np.arange(200, dtype=np.uint8)
    got = gs.scan(x, before=lambda v: v * np.uint8(3), dtype=np.int64, device=device)
    assert_same(got, np.cumsum((x * np.uint8(3)).astype(np.int64)))
    pair = gs.scan(x, AFFINE, before=lambda v: (v | 1, v), dtype=np.uint32, device=device)
    wanted = one_by_one(AFFINE.function, ((x | 1).astype(np.uint32), x.astype(np.uint32)))
    assert_bundle(pair, wanted)
    x = np.ones(5, np.float32)
    for where in (device, "numpy"):
        nested = gs.scan(
            x,
            lambda l, r: (l[0] + r[0], {"a": l[1]["a"] * r[1]["a"]}),
            before=lambda v: [v * 2, {"a": v}],
            dtype=np.int32,
            device=where,
        )
        assert_same(nested[0], np.arange(2, 11, 2, dtype=np.int32))
        assert_same(nested[1]["a"], np.ones(5, np.int32))
        with pytest.raises(gs.OperatorError, match=r"before returns 1 in field 1, which has no dtype"):
            gs.scan(x, AFFINE, before=lambda v: (v, 1), dtype=np.int32, device=where)
        with pytest.raises(gs.OperatorError, match=r"before returns None, which is no number; return one"):
            gs.scan(x, before=lambda v: None, device=where)
        with pytest.raises(gs.OperatorError, match=r"has the shape|is float64"):
            gs.scan(x, lambda l, r: np.ones(3), device=where)


# ----- What a map is at the time


@dataclass
class Scaled:
    """A function with a state; as a dataclass, without a hash."""

    by: float

    def __call__(self, value: Any) -> Any:
        return value * value.dtype.type(self.by)


@pytest.mark.parametrize("name", ["before", "after"])
def test_maps_follow_what_they_close_over(device: gs.Device, name: str) -> None:
    """Assert that changes of the values a map closes over show in every kind of scan and in new plans."""
    x = np.ones(300, np.float32)
    many = (x,) * 9  # more fields than a shader binds on some adapters
    scaled = Scaled(2.0)
    of_fields: dict[str, Any] = {name: lambda fields: tuple(scaled(field) for field in fields)}
    for by in (2.0, 3.0, 2.0):
        scaled.by = by
        maps: dict[str, Any] = {name: scaled}
        wanted = x.cumsum() * np.float32(by)
        for where in (device, "numpy"):
            assert_same(gs.scan(x, device=where, **maps), wanted)
            assert_same(np.concatenate(list(gs.scan_chunks([x[:7], x[7:]], device=where, **maps))), wanted)
        assert_same(gs.scan(x, dtype=np.int32, device=device, **maps), wanted.astype(np.int32))
        assert_same(gs.scan(x, compensated=True, device=device, **maps), wanted)
        assert_same(gs.scan(device.asarray(x), **maps), wanted)
        assert_same(device.plan(300, np.float32, **maps)(x), wanted)
        for field in gs.scan(many, lambda l, r: tuple(a + b for a, b in zip(l, r, strict=True)), device=device,
                             **of_fields):  # fmt: skip
            assert_same(field, wanted)


def test_a_map_that_changes_while_it_is_used(device: gs.Device) -> None:
    """Assert that a map that changes during a call cannot change the shader of another map."""
    calls = 0

    def restless(v: Any) -> Any:
        nonlocal calls
        calls += 1
        return v * np.float32(2.25 if calls <= 2 else 7)  # traced twice, and never asked again

    x = np.ones(50, np.float32)
    for before in (restless, lambda v: v * np.float32(2.25)):
        assert_same(gs.scan(x, before=before, device=device), x.cumsum() * np.float32(2.25))


def test_a_plan_stays_as_it_was_made(device: gs.Device) -> None:
    scaled = Scaled(2.0)
    x = np.ones(100, np.float32)
    plan = device.plan(100, np.float32, before=scaled, after=lambda v: scaled(v))
    wanted = x.cumsum() * 4
    scaled.by = 5.0
    for result in (plan(x), plan(device.asarray(x)), plan(device.asarray(x), out=device.empty(100, np.float32))):
        assert_same(result, wanted)


# ----- What a map may not be


REFUSED = [
    ({"before": lambda v: v if v > 0 else -v}, r"np\.where(.|\n)*before"),
    ({"after": lambda v: v if v > 0 else -v}, r"np\.where(.|\n)*after"),
    ({"before": lambda v: 1}, r"before returns 1.*np\.float32"),
    ({"after": lambda v: (v, 2.0)}, r"after returns 2\.0 in field 1"),
    ({"after": lambda v: np.random.default_rng().random() * v}, "after gives something else"),
    ({"before": lambda v: np.linalg.inv(v)}, "inv is not traced"),
]


@pytest.mark.parametrize(("maps", "message"), REFUSED)
def test_maps_that_are_refused(device: gs.Device, maps: dict[str, Any], message: str) -> None:
    x = np.ones(10, np.float32)
    with pytest.raises(gs.OperatorError, match=message):
        gs.scan(x, device=device, **maps)


# ----- Functions that work in place


def add_in_place(l: Any, r: Any) -> Any:
    l += r
    return l


def fill_in_place(l: Any, r: Any) -> Any:
    l[...] = 7
    return l + r


def copy_in_place(l: Any, r: Any) -> Any:
    np.copyto(l, r)
    return l


def fill_as_array(l: Any, r: Any) -> Any:
    np.asarray(r).fill(3)
    return l + r


IN_PLACE = [add_in_place, fill_in_place, lambda l, r: np.add(l, r, out=l), copy_in_place, fill_as_array]
# Every way in which a function of the user could see the user's own array.
ROUTES: dict[str, Any] = {
    "scan": lambda x, f, device: gs.scan(x, f, device=device),
    "rows": lambda x, f, device: gs.scan(x[None], f, axis=1, device=device),
    "initial": lambda x, f, device: gs.scan(np.ones_like(x), f, initial=x[:1], device=device),
    "a bundle": lambda x, f, device: gs.scan((x, x), lambda l, r: (f(l[0], r[0]), l[1]), device=device),
    "segments": lambda x, f, device: gs.scan(x, f, segments=[0, 2, 5], device=device),
    "groups": lambda x, f, device: gs.scan(x, f, groups=np.zeros(5, int), device=device),
    "scan_chunks": lambda x, f, device: list(gs.scan_chunks([x], f, device=device)),
    "reduce": lambda x, f, device: gs.reduce(x, f, device=device),
    "reduce_by_key": lambda x, f, device: gs.reduce_by_key(np.zeros(5, int), x, f, device=device),
    "before": lambda x, f, device: gs.scan(x, before=lambda v: f(v, v), device=device),
    "before with the index": lambda x, f, device: gs.scan(x, before=f, device=device),
    "after": lambda x, f, device: gs.scan(x, "maximum", after=lambda v: f(v, v), device=device),
    "before of reduce": lambda x, f, device: gs.reduce(x, before=lambda v: f(v, v), device=device),
    "after of reduce": lambda x, f, device: gs.reduce(x, after=lambda v: f(v, v), device=device),
    "scan_vjp": lambda x, f, device: gs.scan_vjp(x, x, x, f),
    "map": lambda x, f, device: gs.map(lambda v: f(v, v), x),
    "compact": lambda x, f, device: gs.compact(x, lambda v: f(v, v) > 0),
    "check_associative": lambda x, f, device: gs.check_associative(f, np.float32, samples=x),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("device", ["numpy", None])
def test_functions_that_work_in_place_are_refused_and_change_nothing(device: str | None, route: str) -> None:
    for function in IN_PLACE:
        x = np.arange(1, 6, dtype=np.float32)
        with pytest.raises(gs.OperatorError):
            ROUTES[route](x, function, device)
        assert x.tolist() == [1, 2, 3, 4, 5]
