"""The loop itself, in Python: what `gpuscan.loop` is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpuscan as gs


def leaves_of(value: Any) -> list[Any]:
    """Return the arrays of a bundle, depth first."""
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves_of(part)]
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [] if value is None else [value]


def nesting_of(value: Any) -> Any:
    """Return how a bundle nests its arrays."""
    if isinstance(value, dict):
        return {key: nesting_of(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(nesting_of(part) for part in value)
    return None


def run(step: Callable[[Any, Any], Any], init: Any, xs: Any, *, reverse: bool = False) -> tuple[Any, list[Any]]:
    """Return the last carry, and the arrays of the outputs along axis 0."""
    length = len(leaves_of(xs)[0])
    carry: Any = init
    rows: list[Any] = [None] * length
    with np.errstate(all="ignore"):
        for t in reversed(range(length)) if reverse else range(length):
            found = step(carry, tuple(x[t] for x in xs) if isinstance(xs, tuple) else xs[t])
            alone = nesting_of(found) == nesting_of(init)
            carry, rows[t] = (found, found) if alone else found
    return carry, [np.array(values) for values in zip(*map(leaves_of, rows), strict=True)]


def check(found: Any, wanted: Any, *, rtol: float = 3e-4) -> None:
    """Compare results with the loop's results: integers and bools exactly, floats within rounding."""
    carry, ys = found
    for ours, theirs in zip([*leaves_of(carry), *leaves_of(ys)], [*leaves_of(wanted[0]), *wanted[1]], strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert ours.shape == theirs.shape
        if theirs.dtype.kind in "iub":
            np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-3)


def check_loop(
    step: Any, init: Any, xs: Any, kind: str = "", *, reverse: bool = False, device: Any = "numpy", **options: Any
) -> Any:
    """Compare a loop by a scan, of this class if one is named, with the loop itself, and return its result."""
    found = gs.loop(step, init, xs, reverse=reverse, device=device)
    assert found.form is not None
    assert kind in ("", found.form.kind), str(found.form)
    check(found, run(step, init, xs, reverse=reverse), **options)
    return found
