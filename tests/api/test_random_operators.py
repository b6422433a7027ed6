"""Random associative operators over random bundles, dtypes, lengths and options, against exact sequential folds."""

from __future__ import annotations

import itertools
import os
import zlib
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.operators.operator import Operator
from gpuscan.planning.strategies import Strategy
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.devices import all_adapters
from tests.harness.scans import make_problem, scan_with
from tests.laws import LAWS, Law, Leaves, dtype_of, fold_rows
from tests.oracle import boundaries, small_tiles, some, strategies_on

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# Cases on all adapters together.
CASES = 2000 if NIGHTLY else 54
# The most 32-bit words of an element. Software adapters take long to compile wide ones.
WIDEST = 16 if NIGHTLY else 6
# The most elements of a case: several blocks of the small tiles.
MOST = 3500

# ----- Bundles

# The second is a keyword of WGSL, the third a name of gpuscan's own, and the last is no name in WGSL.
NAMES = ("value", "let", "f0", "a b")
Four = namedtuple("Four", "value let f0 index_")  # users have those without types too
TUPLES: dict[int, Any] = {n: namedtuple(f"Named{n}", Four._fields[:n]) for n in range(1, 5)}


@dataclass(frozen=True)
class Form:
    """A way to hold leaves together.

    Attributes:
        pack: the value that a user passes, of leaves.
        bundle: the value that the user's function makes of leaves.
        leaves: the leaves of a value.
    """

    pack: Callable[[Leaves], Any]
    bundle: Callable[[Leaves], Any]
    leaves: Callable[[Any], Leaves]


def _as_dict(leaves: Leaves) -> dict[str, Any]:
    return dict(zip(NAMES, leaves, strict=False))


def _as_nested(leaves: Leaves) -> Any:
    return leaves[0], {"rest": leaves[1:]}


def _as_records(leaves: Leaves) -> Any:
    leaves = tuple(np.asarray(leaf) for leaf in leaves)
    records = np.empty(leaves[0].shape, [(name, leaf.dtype) for name, leaf in zip(NAMES, leaves, strict=False)])
    for name, leaf in zip(NAMES, leaves, strict=False):
        records[name] = leaf
    return records


FORMS: dict[str, Form] = {
    "plain": Form(lambda leaves: leaves[0], lambda leaves: leaves[0], lambda value: (value,)),
    "tuple": Form(tuple, tuple, tuple),
    "named tuple": Form(lambda v: TUPLES[len(v)](*v), lambda v: TUPLES[len(v)](*v), tuple),
    "dict": Form(_as_dict, _as_dict, lambda value: tuple(value.values())),
    "nested": Form(_as_nested, _as_nested, lambda value: (value[0], *value[1]["rest"])),
    "records": Form(_as_records, _as_dict, lambda value: tuple(value[name] for name in value_names(value))),
}


def value_names(value: Any) -> tuple[str, ...]:
    """Return the names of a dict or of a structured array."""
    return tuple(value) if isinstance(value, dict) else value.dtype.names


def operator_of(law: Law, form: Form) -> Operator:
    """Return the law as a user would write it for this form of bundle."""

    def combine(left: Any, right: Any) -> Any:
        return form.bundle(law.combine(form.leaves(left), form.leaves(right)))

    identity = None if law.identity is None else form.bundle(law.identity)
    return gs.operator(combine, identity=identity, name=law.name, element_axes=len(law.shape))


# ----- Cases


@dataclass(frozen=True)
class Case:
    """One scan. If `segments` is not 0, its one row has that many segments."""

    law: Law
    form: str
    rows: int
    length: int
    segments: int
    exclusive: bool
    reverse: bool
    initial: bool
    strategy: Strategy
    tile: TileShape | None
    seed: int


@st.composite
def cases(draw: st.DrawFn, device: gs.Device) -> Case:
    """Draw laws first, so that each is as likely as the next, then lengths about the edges of the tile."""
    law = draw(st.sampled_from([law for law in LAWS[draw(st.sampled_from(sorted(LAWS)))] if law.words <= WIDEST]))
    forms = ["plain"] if len(law.dtypes) == 1 else ["nested"]
    forms += ["tuple", "named tuple", "dict"]
    forms += [] if law.shape or "bfloat16" in law.dtypes else ["records"]
    small = [replace(tile, chunk=law.least_chunk) for tile in small_tiles(device)]
    tile = draw(st.sampled_from([*small, None]))
    edges = [n for n in boundaries(tile or small[-1]) if n <= MOST]
    rows = draw(st.sampled_from([1, 1, 1, 2, 5, 33]))
    segments = draw(st.sampled_from([0, 0, 1, 7, 300])) if rows == 1 else 0
    length = draw(st.sampled_from(edges) | st.integers(1, MOST)) if rows == 1 else draw(st.integers(1, MOST // rows))
    exclusive, initial = draw(st.booleans()), draw(st.booleans())
    if exclusive and law.identity is None:
        initial = True
    return Case(
        law,
        draw(st.sampled_from(forms)),
        rows,
        length,
        segments,
        exclusive,
        draw(st.booleans()),
        initial,
        "auto" if tile is None else draw(st.sampled_from(strategies_on(device))),
        tile,
        draw(st.integers(0, 2**32 - 1)),
    )


def begin_of(case: Case, seeds: Leaves) -> Leaves | None:
    """Return the initial elements of the rows' folds."""
    if case.initial:
        return seeds
    if not case.exclusive:
        return None
    assert case.law.identity is not None
    parts = zip(case.law.identity, case.law.dtypes, strict=True)
    return tuple(np.broadcast_to(np.asarray(v, dtype_of(d)), (case.rows, *case.law.shape)) for v, d in parts)


def cuts(case: Case, rng: np.random.Generator) -> Any:
    """Draw offsets of segments, empty ones among them; None if the case has rows."""
    if not case.segments:
        return None
    return np.sort([0, case.length, *rng.integers(0, case.length + 1, case.segments - 1)])


def keys_of(offsets: Any) -> Any:
    """Return keys that cut a row at the same places as offsets."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.uint64) << np.uint64(32), np.diff(offsets))


def fold_exactly(case: Case, leaves: Leaves, begin: Leaves | None, offsets: Any) -> Leaves:
    """Fold each row or segment exactly."""
    ends = (0, case.length) if offsets is None else offsets
    ranges = [(a, b) for a, b in itertools.pairwise(ends) if a < b]
    folds = [
        fold_rows(case.law, tuple(leaf[:, a:b] for leaf in leaves), case.exclusive, case.reverse, begin)
        for a, b in ranges
    ]
    return tuple(np.concatenate(parts, axis=1) for parts in zip(*folds, strict=True))


def check(device: gs.Device, case: Case) -> None:
    """Require that the GPU and NumPy give the result of the fold."""
    law, form = case.law, FORMS[case.form]
    rng = np.random.default_rng(case.seed)
    leaves = law.draw(rng, (case.rows, case.length))
    seeds = tuple(leaf[:, 0] for leaf in law.draw(rng, (case.rows, 1)))
    offsets = cuts(case, rng)
    wanted = fold_exactly(case, leaves, begin_of(case, seeds), offsets)
    options: dict[str, Any] = {"exclusive": case.exclusive, "reverse": case.reverse}
    if offsets is None:
        options["axis"] = 1
    else:  # of arrays with one axis
        leaves, seeds, wanted = (tuple(leaf[0] for leaf in each) for each in (leaves, seeds, wanted))
        options |= {"segments": offsets} if case.seed % 2 else {"keys": keys_of(offsets)}
    x, op = form.pack(leaves), operator_of(law, form)
    options["initial"] = form.bundle(seeds) if case.initial else None
    if case.tile is None:
        results = form.leaves(gs.scan(x, op, device=device, strategy=case.strategy, **options))
    else:
        results = tuple(scan_with(device, make_problem(x, op, **options), case.strategy, tile=case.tile))
    for result, field in zip(results, wanted, strict=True):
        assert_equal(result, field)
    for result, field in zip(form.leaves(gs.scan(x, op, device="numpy", **options)), wanted, strict=True):
        assert_equal(result, field)


def assert_equal(got: Any, wanted: Any) -> None:
    """Assert equal dtype, shape and value. The sign of a zero may differ."""
    __tracebackhide__ = True
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


def test_random_operators(device: gs.Device) -> None:
    """Run random cases: each is a new operator, bundle, dtype, length and set of options."""
    share = len(some(device, range(-(-CASES // max(1, len(all_adapters()))))))

    @hypothesis.settings(max_examples=share)
    @hypothesis.given(case=cases(device))
    def run(case: Case) -> None:
        check(device, case)

    if hypothesis.settings().derandomize:  # cases of the adapter's own
        run = hypothesis.seed(zlib.crc32(device.capabilities.summary.encode()))(run)
    run()
