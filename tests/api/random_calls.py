"""Random calls of the public API to draw: arrays, options, operators and whole calls, some of them wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import gpuscan as gs
from tests.oracle import AFFINE, MATRICES, Array
from tests.strategies import numbers

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
    """Draw something usual, and once in `one_in` times something strange."""
    return draw(strange) if draw(st.integers(1, one_in)) == one_in else draw(usual)


def array(draw: st.DrawFn, dtype: str, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if dtype == "bfloat16":
        x = rng.integers(-1, 2, shape).astype(ml_dtypes.bfloat16)
    elif dtype in STRANGE_DTYPES:
        return np.zeros(shape, dtype)
    elif np.dtype(dtype).kind in "fc":
        # Sums and products of these are exact.
        x = rng.choice(np.array([1, -1], dtype), shape)
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


def draw_input(draw: st.DrawFn) -> Any:
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


def draw_options(draw: st.DrawFn, x: Any) -> dict[str, Any]:
    """Draw options of a scan. Most of them fit."""
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
        wrong = st.sampled_from([*STRANGE_DTYPES, "nothing", 7, np.zeros(3)])
        options["dtype"] = rarely(draw, st.sampled_from(["int32", "float32", "uint64"]), wrong, 3)
    elif choice in ("before", "after"):
        options[choice] = rarely(draw, st.sampled_from(BEFORE), st.sampled_from(STRANGE_MAPS), 2)
    return options


def draw_operator(draw: st.DrawFn, x: Any) -> Any:
    if isinstance(x, tuple) and len(x) == 2:
        return rarely(draw, st.just(AFFINE), st.sampled_from([*EXACT, *STRANGE_OPERATORS]), 2)
    return rarely(draw, st.sampled_from(EXACT), st.sampled_from(STRANGE_OPERATORS), 5)


Call = tuple[str, Callable[..., Any], list[Any], dict[str, Any]]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Return a function's name, the function of inputs and options, and those."""
    x = draw_input(draw)
    name = draw(st.sampled_from(["scan"] * 6 + ["reduce", "sum", "prod", "recurrence", "vjp", "compact", "chunks"]))
    options = draw_options(draw, x)
    if name == "scan":
        return name, gs.scan, [x, draw_operator(draw, x)], options
    if name == "reduce":
        kept = {k: v for k, v in options.items() if k in ("axis", "initial", "dtype")}
        return name, gs.reduce, [x, draw_operator(draw, x)], kept
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
        return name, lambda *args, **more: list(gs.scan_chunks(*args, **more)), [pieces, draw_operator(draw, x)], kept
    other = rarely(draw, st.just(x), st.sampled_from([np.zeros(3, "f4"), *STRANGE]), 3)
    kept = {k: v for k, v in options.items() if k in ("axis", "initial", "reverse")}
    if name == "recurrence":
        return name, gs.linear_recurrence, [x, other], kept
    return name, gs.linear_recurrence_vjp, [x, x, other], kept
