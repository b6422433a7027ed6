"""The conformance suite: scans with a result that is known to the bit, on one device.

A case is one call of `gpuscan.scan`, or of a function of `SORTS`: a strategy, an element type, an
operator, a layout of the array and a size. Nearly all results are exact: integers wrap, and the floats are chosen so
that every partial result is a small integer or a power of two. The expected result comes from NumPy:
``ufunc.accumulate`` where there is one, else doubling steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np

import gpuscan
from gpuscan import Device
from gpuscan.array_types import AnyArray as Array
from gpuscan.array_types import AnyDType
from gpuscan.device.device_array import upload_array
from gpuscan.engine.sorting import sort_device
from gpuscan.errors import StrategyError, UnsupportedDtypeError
from gpuscan.operators.operator import Operator, operator, wgsl_operator
from gpuscan.planning.strategies import STRATEGIES, Strategy

Fields = tuple[Array, ...]  # the arrays of a bundle, or the one array

# Combines the operands of an operator: bundles, or arrays.
Combine = Callable[..., Array | Fields]

# The usual number of elements: several tiles, and a prime number.
LENGTH = 20_011


@dataclass(frozen=True)
class Case:
    """One scan with a known result."""

    strategy: str
    element: str
    operator: str
    layout: str
    size: int

    def features(self) -> dict[str, str]:
        """Return the row of the matrix that the case counts in, for each kind of feature."""
        return {
            "strategy": self.strategy,
            "element": self.element,
            "operator": self.operator,
            "layout": self.layout,
            "size": f"{self.size:,}",
        }

    def __str__(self) -> str:
        return f"{self.strategy}, {self.operator} of {self.element}, {self.layout}, {self.size:,} elements"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: ``"passed"``, ``"failed"``, or ``"refused"`` with one of gpuscan's errors, as documented.

    Only a strategy that the probe found unsafe and an element type that the adapter does not have are refused.
    """

    case: Case
    status: str
    detail: str = ""
    seconds: float = field(default=0.0, compare=False)


def check(device: Device, case: Case) -> Outcome:
    """Run a case and compare its result."""
    call, expected = _call_of(case)
    start = time.perf_counter()
    try:
        result = call(device)
    except (StrategyError, UnsupportedDtypeError) as error:
        return Outcome(case, "refused", str(error), time.perf_counter() - start)
    except Exception as error:  # whatever a driver does, the suite goes on
        return Outcome(case, "failed", f"{type(error).__name__}: {error}", time.perf_counter() - start)
    seconds = time.perf_counter() - start
    got = result if isinstance(result, tuple) else (result,)
    tolerance = OPERATORS[case.operator].tolerance if case.operator in OPERATORS else 0.0
    for index, (got_field, wanted) in enumerate(zip(got, expected, strict=True)):
        if (difference := _difference(got_field, wanted, tolerance)) is not None:
            where = f"field {index}, " if len(got) > 1 else ""
            return Outcome(case, "failed", where + difference, seconds)
    return Outcome(case, "passed", "", seconds)


def _call_of(case: Case) -> tuple[Callable[[Device], Array | Fields], Fields]:
    """Return the call of a case, and the expected result."""
    if case.operator in SORTS:
        tested, axis = SORTS[case.operator], LAYOUTS[case.layout].axis
        rng = np.random.default_rng(case.size)
        (x,) = _draw_arrays(rng, case.element, case.operator, LAYOUTS[case.layout], case.size)
        return lambda device: tested.call(x, axis, device, case.strategy), (tested.expected(x, axis),)
    given, options, expected = _inputs_of(case.element, case.operator, case.layout, case.size)
    op = OPERATORS[case.operator].op
    return lambda device: gpuscan.scan(
        given, op, device=device, strategy=cast("Strategy", case.strategy), **options
    ), expected


def _difference(result: Array, wanted: Array, tolerance: float) -> str | None:
    """Describe the first difference of two arrays. Return None if they agree."""
    if result.dtype != wanted.dtype or result.shape != wanted.shape:
        return f"found {result.dtype} {result.shape}, expected {wanted.dtype} {wanted.shape}"
    same = (result == wanted) | ((result != result) & (wanted != wanted))
    if tolerance:
        with np.errstate(invalid="ignore"):  # the difference of two infinities
            near = np.abs(result - wanted) <= tolerance * np.maximum(1, np.abs(wanted))
        same |= near & np.isfinite(wanted)
    if same.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{int((~same).sum()):,} of {same.size:,} differ, first at {index}: {result[index]} for {wanted[index]}"


# ----- Elements: the dtypes of the fields, and the axes that belong to the element


def _bfloat16() -> Iterator[str]:
    try:
        import ml_dtypes  # noqa: F401 (tells NumPy of the name)
    except ImportError:
        return
    yield "bfloat16"


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", *_bfloat16(), "float32", "float64")
PAIR, FOUR, MATRIX, WIDE = "(uint32, uint32)", "four uint32", "2×2 int32", "3×3 uint32"
ELEMENTS: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    **{name: ((name,), ()) for name in ("bool", *INTEGERS, *FLOATS, "complex64")},
    PAIR: (("uint32", "uint32"), ()),
    FOUR: (("uint32",) * 4, ()),
    MATRIX: (("int32",), (2, 2)),
    WIDE: (("uint32",), (3, 3)),
}


# ----- Operators


def _later(left: Fields, right: Fields) -> Fields:
    return np.where(right[1] != 0, right[0], left[0]), left[1] | right[1]


def _product(left: Fields, right: Fields) -> Fields:
    (a, b, c, d), (e, f, g, h) = left, right
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@dataclass(frozen=True)
class Tested:
    """An operator of the suite.

    Attributes:
        op: the operator that `gpuscan.scan` gets.
        combine: combines arrays of operands with NumPy.
        elements: the element types to test it with.
        tolerance: the relative error that is allowed; 0 for exact results.
    """

    op: str | Operator
    combine: Combine
    elements: tuple[str, ...]
    tolerance: float = 0.0


# Combines to (1 + a)(1 + b) - 1.
_CIRCLE = "fn combine(a: Element, b: Element) -> Element {\n    return a + b + a * b;\n}"
OPERATORS: Mapping[str, Tested] = {
    **{name: Tested(name, getattr(np, name), ("uint32", "float32")) for name in ("add", "multiply")},
    **{name: Tested(name, getattr(np, name), ("int32", "float32")) for name in ("minimum", "maximum")},
    **{name: Tested(name, getattr(np, name), ("uint32",)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: Tested(name, getattr(np, name), ("bool",)) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: Tested(name, getattr(np, name), ("int32", "float32")) for name in ("fmin", "fmax")},
    **{
        name: Tested(name, getattr(np, name), ("float32",), tolerance=1e-4)
        for name in ("logaddexp", "logaddexp2", "hypot")
    },
    "gcd": Tested("gcd", np.gcd, ("uint32", "uint64")),
    "matmul": Tested("matmul", np.matmul, (MATRIX, WIDE)),
    "affine, traced": Tested(
        operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0), name="affine"),
        lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]),
        (PAIR,),
    ),
    "last valid, no identity": Tested(operator(_later, name="last_valid"), _later, (PAIR,)),
    "matrices, no identity": Tested(operator(_product, name="matrices"), _product, (FOUR,)),
    "WGSL of the user": Tested(
        wgsl_operator(_CIRCLE, identity=0, name="circle"), lambda l, r: l + r + l * r, ("uint32",)
    ),
}


def default_operator(element: str) -> str:
    """Return the operator that an element type is tested with."""
    bundles = {PAIR: "affine, traced", FOUR: "matrices, no identity", MATRIX: "matmul", WIDE: "matmul"}
    if element in bundles:
        return bundles[element]
    return "logical_xor" if element == "bool" else "add"


# ----- Sorts: calls with a result that NumPy's stable sort gives to the bit


@dataclass(frozen=True)
class TestedSort:
    """A function of the suite that sorts.

    Attributes:
        call: gets an array, the axis, the device and the strategy. Public functions of sorts take ``"auto"`` alone.
        expected: gets the same array and axis, and returns the same result by NumPy.
    """

    call: Callable[[Array, int, Device, str], Array]
    expected: Callable[[Array, int], Array]


def _sort_array(x: Array, axis: int, device: Device, strategy: str) -> Array:
    if strategy == "auto":
        return gpuscan.sort(x, axis=axis, device=device)
    keys = sort_device(device._executor, upload_array(device._context, x), axis, strategy=strategy).keys._read()
    device._context.check()
    return keys


def _descending_order(x: Array, axis: int) -> Array:
    """Return the indices of a stable sort from the greatest to the smallest."""
    flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable").astype(np.int64)
    return np.flip(x.shape[axis] - 1 - flipped, axis)


def _sums_of_groups(x: Array, axis: int) -> Array:
    """Return the running sums of even and of odd elements, each by themselves."""
    odd = (x & 1).astype(bool)
    sums = [np.cumsum(np.where(chosen, x, 0), axis=axis, dtype=x.dtype) for chosen in (~odd, odd)]
    return np.where(odd, sums[1], sums[0])


def _sums_everywhere(x: Array, axis: int, device: Device | str) -> Array:
    """Return the bits of running sums that are rounded, which are the same on every device."""
    sums = gpuscan.scan(x / 3, axis=axis, device=device, reproducible="everywhere")
    return sums.view(f"u{sums.dtype.itemsize}")


SORTS: Mapping[str, TestedSort] = {
    "sort": TestedSort(
        _sort_array,
        lambda x, axis: np.sort(x, axis=axis, kind="stable"),
    ),
    "argsort, descending": TestedSort(
        lambda x, axis, device, _: gpuscan.argsort(x, axis=axis, descending=True, device=device), _descending_order
    ),
    "add, by groups": TestedSort(
        lambda x, axis, device, _: gpuscan.scan(x, axis=axis, groups=x & 1, device=device), _sums_of_groups
    ),
    "add, everywhere": TestedSort(
        lambda x, axis, device, _: _sums_everywhere(x, axis, device), lambda x, axis: _sums_everywhere(x, axis, "numpy")
    ),
    "top_k": TestedSort(
        lambda x, axis, device, _: gpuscan.top_k(x, min(5, x.shape[axis]), axis=axis, device=device)[1],
        lambda x, axis: np.take(_descending_order(x, axis), range(min(5, x.shape[axis])), axis),
    ),
    "unique_inverse": TestedSort(
        lambda x, axis, device, _: gpuscan.unique_inverse(x, device=device).inverse_indices,
        lambda x, axis: np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(np.int64),
    ),
    "median": TestedSort(
        lambda x, axis, device, _: gpuscan.median(x, axis=axis, device=device), lambda x, axis: np.median(x, axis=axis)
    ),
}
# The elements that each function is tried with.
SORTED_ELEMENTS: Mapping[str, tuple[str, ...]] = {
    "sort": ("bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"),
    "argsort, descending": ("uint32", "float32"),
    "add, by groups": ("uint32",),
    "add, everywhere": ("float16", "float32", "complex64"),
    "top_k": ("uint32", "float32"),
    "unique_inverse": ("uint32",),
    "median": ("uint32",),
}
# The layouts that each function is tried with. They set no options of a scan.
SORTED_LAYOUTS = ("inclusive", "long rows", "short rows", "columns")
# The case that runs under every strategy: a sort of one row of several tiles.
SORTED_BY_STRATEGIES = ("uint32", "sort", "inclusive")


# ----- Layouts: the shape for a size, the view that is passed, and the options


@dataclass(frozen=True)
class Layout:
    """The shape and view of the array, and the options of the scan."""

    shape: Callable[[int], tuple[int, ...]] = lambda size: (size,)
    axis: int = 0
    view: Callable[[Array], Array] = lambda array: array
    options: Mapping[str, bool] = field(default_factory=dict)
    initial: bool = False


LAYOUTS: Mapping[str, Layout] = {
    "inclusive": Layout(),
    "exclusive": Layout(options={"exclusive": True}),
    "reverse": Layout(options={"reverse": True}),
    "initial": Layout(initial=True),
    "exclusive, reverse, initial": Layout(options={"exclusive": True, "reverse": True}, initial=True),
    "backwards view": Layout(view=lambda array: array[::-1]),
    "long rows": Layout(lambda size: (3, size // 3), axis=1),
    "short rows": Layout(lambda size: (size // 5, 5), axis=1),
    "columns": Layout(lambda size: (size // 7, 7)),
    "rows, exclusive, reverse": Layout(
        lambda size: (7, size // 7), axis=1, options={"exclusive": True, "reverse": True}, initial=True
    ),
}

SIZES = (0, 1, 2, 33, 1_000, 4_097, 65_536, 100_003, 1_000_003)
LARGE_SIZES = (1 << 22, (1 << 24) + 1)


# ----- Values


def _draw_differences(rng: np.random.Generator, shape: tuple[int, ...], axis: int, least: int, most: int) -> Array:
    """Return integers with running sums along the axis that stay within ``most - least``."""
    shape = tuple(n + 1 if i == axis else n for i, n in enumerate(shape))
    return np.diff(rng.integers(least, most, shape, endpoint=True), axis=axis)


def _values(rng: np.random.Generator, dtype: AnyDType, name: str, shape: tuple[int, ...], axis: int) -> Array:
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        return _with_common_divisors(values, axis) if name == "gcd" else values
    if name == "multiply":
        return np.exp2(_draw_differences(rng, shape, axis, -3, 3)).astype(dtype)
    if dtype.kind == "c":
        real, imaginary = (_draw_differences(rng, shape, axis, -100, 100) for _ in range(2))
        return (real + 1j * imaginary).astype(dtype)
    values = _draw_differences(rng, shape, axis, -100, 100).astype(dtype)
    if name in ("minimum", "maximum") and values.size > 2:
        values.reshape(-1)[2 * values.size // 3] = np.nan  # from there on it is NaN
    if name == "hypot":  # a scan leaves the sign of a first element as it is
        values = np.abs(values)
    if name in ("fmin", "fmax"):
        values[rng.random(shape) < 0.4] = np.nan
    return values


def _with_common_divisors(values: Array, axis: int) -> Array:
    """Return integers that share fewer and fewer powers of two along the axis, so that their divisor keeps falling."""
    length = values.shape[axis]
    powers = np.linspace(8 * values.itemsize - 3, 0, length).astype(values.dtype)
    falling = np.moveaxis(values, axis, -1) << powers
    return np.moveaxis(falling, -1, axis)


def _draw_arrays(rng: np.random.Generator, element: str, name: str, layout: Layout, size: int) -> Fields:
    """Return the arrays of a case."""
    dtypes, trailing = ELEMENTS[element]
    shape = (*layout.shape(size), *trailing)
    return tuple(layout.view(_values(rng, np.dtype(dtype), name, shape, layout.axis)) for dtype in dtypes)


# The strategies of a case stand side by side in a suite. Large inputs have 128 MiB and more, so that few are kept.
@lru_cache(maxsize=4)
def _inputs_of(element: str, name: str, layout_name: str, size: int) -> tuple[Array | Fields, dict[str, Any], Fields]:
    """Return the input of a case, the options of the call, and the expected result."""
    layout = LAYOUTS[layout_name]
    dtypes, trailing = ELEMENTS[element]
    rng = np.random.default_rng([size, *name.encode(), *element.encode()])
    fields = _draw_arrays(rng, element, name, layout, size)
    options: dict[str, object] = {"axis": layout.axis, **layout.options}
    initial: Fields | None = None
    if layout.initial or (layout.options.get("exclusive") and name.endswith("no identity")):
        initial = tuple(_values(rng, np.dtype(dtype), name, (1, *trailing), 0)[0] for dtype in dtypes)
        options["initial"] = initial if len(initial) > 1 else initial[0]
    expected = _compute_expected(name, fields, options | {"initial": initial})
    return (fields if len(fields) > 1 else fields[0]), options, expected


def _compute_expected(name: str, fields: Fields, options: Mapping[str, Any]) -> Fields:
    """Compute the result with NumPy: the axis is moved to the front, reversed if asked, and `initial` put before it."""
    axis, initial, exclusive = options["axis"], options["initial"], options.get("exclusive", False)
    rows = [np.moveaxis(array, axis, 0) for array in fields]
    length = len(rows[0])
    if options.get("reverse"):
        rows = [row[::-1] for row in rows]
    if exclusive and initial is None:
        initial = _identity(name, fields)
    if initial is not None:
        rows = [
            np.concatenate([np.broadcast_to(seed, (1, *row.shape[1:])).astype(row.dtype), row])
            for seed, row in zip(initial, rows, strict=True)
        ]
    results = accumulate(OPERATORS[name].combine, tuple(rows))
    if initial is not None:
        results = tuple(result[:length] if exclusive else result[1:] for result in results)
    if options.get("reverse"):
        results = tuple(result[::-1] for result in results)
    return tuple(np.moveaxis(result, 0, axis) for result in results)


def _identity(name: str, fields: Fields) -> Fields:
    """Return the identity of an operator that has one, for each field."""
    if name == "affine, traced":
        return np.uint32(1), np.uint32(0)  # type: ignore[return-value]
    if name == "matmul":
        return (np.eye(fields[0].shape[-1], dtype=fields[0].dtype),)
    special = {"logaddexp": -np.inf, "logaddexp2": -np.inf, "multiply": 1, "logical_and": True}
    if name in ("minimum", "maximum", "fmin", "fmax", "bitwise_and"):
        dtype = fields[0].dtype
        if dtype.kind == "f":
            return (np.array({"minimum": np.inf, "maximum": -np.inf}.get(name, np.nan), dtype),)
        info = np.iinfo(dtype)
        every_bit = np.array(-1).astype(dtype) if name == "bitwise_and" else None
        highest = name in ("minimum", "fmin")
        return (every_bit if every_bit is not None else np.array(info.max if highest else info.min, dtype),)
    return (np.array(special.get(name, 0), fields[0].dtype),)


def accumulate(combine: Combine, rows: Fields) -> Fields:
    """Compute the inclusive scan along axis 0: with ``ufunc.accumulate`` if possible, else in doubling steps."""
    if isinstance(combine, np.ufunc) and combine.signature is None:
        with np.errstate(all="ignore"):
            return (combine.accumulate(rows[0], axis=0, dtype=rows[0].dtype),)
    distance = 1
    while distance < len(rows[0]):
        left, right = tuple(row[:-distance] for row in rows), tuple(row[distance:] for row in rows)
        joined = combine(left, right) if len(rows) > 1 else (combine(left[0], right[0]),)
        rows = tuple(np.concatenate([row[:distance], part]) for row, part in zip(rows, joined, strict=True))
        distance *= 2
    return rows


# ----- Suites


def suite(quick: bool = False) -> list[Case]:
    """Return the cases in a fixed order. Every feature of every kind has at least one.

    The full suite has every strategy for each feature, many layouts for each element and operator, and larger sizes.
    The quick one has ``"auto"`` for each feature, and one other strategy in turn for all but the operators.
    """
    others: list[str] = list(STRATEGIES)
    cases: dict[Case, None] = {}

    def add(strategies: list[str], element: str, operator: str, layout: str, size: int) -> None:
        cases.update(
            dict.fromkeys(Case(strategy, element, operator, layout, size) for strategy in ["auto", *strategies])
        )

    for rotation, element in enumerate(ELEMENTS):
        for layout in _some(list(LAYOUTS), rotation, quick):
            add(_some(others, rotation, quick), element, default_operator(element), layout, LENGTH)
    for name, tested in OPERATORS.items():
        for layout in ["inclusive"] if quick else ["inclusive", "exclusive", "long rows"]:
            for element in tested.elements:
                add([] if quick else others, element, name, layout, LENGTH)
    for name, elements in SORTED_ELEMENTS.items():
        layouts = SORTED_LAYOUTS[:1] if quick else SORTED_LAYOUTS
        cases.update(dict.fromkeys(Case("auto", e, name, layout, LENGTH) for e in elements for layout in layouts))
    for size in [] if quick else [LENGTH, *LARGE_SIZES]:
        add(others, *SORTED_BY_STRATEGIES, size)
    for rotation, layout in enumerate(LAYOUTS):
        add(_some(others, rotation, quick), "uint32", "add", layout, LENGTH)
    for element in ["uint32"] if quick else ["uint32", PAIR]:
        for rotation, size in enumerate(SIZES if quick else SIZES + LARGE_SIZES):
            add(_some(others, rotation, quick), element, default_operator(element), "inclusive", size)
    return list(cases)


def _some(choices: list[str], rotation: int, quick: bool) -> list[str]:
    """Return all choices, or in a quick suite the one of this rotation."""
    return [choices[rotation % len(choices)]] if quick else choices
