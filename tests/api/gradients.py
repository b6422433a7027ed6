"""Gradients of scans by their definition, and operators that have some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import gpuscan as gs
from gpuscan.operators.named_operators import resolve
from tests.oracle import Array, affine


def leaves(value: Any) -> list[Array]:
    """Return the arrays of a bundle."""
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, tuple) else [value]


def like(value: Any, arrays: list[Any]) -> Any:
    """Return these arrays in the form of a bundle."""
    if isinstance(value, dict):
        return dict(zip(value, arrays, strict=True))
    if isinstance(value, tuple):
        return type(value)(*arrays) if hasattr(value, "_fields") else tuple(arrays)
    return arrays[0]


def on_numpy(x: Any, op: Any, **options: Any) -> Any:
    return gs.scan(x, op, device="numpy", **options)


def one_by_one(
    x: Any, op: Any, *, exclusive: bool = False, reverse: bool = False, initial: Any = None, segments: Any = None,
    keys: Any = None,
) -> Any:  # fmt: skip
    """Scan a bundle along its first axis by the definition, one element at a time."""
    function = resolve(op)
    arrays = leaves(x)
    length = len(arrays[0])
    heads = {0} if segments is None else set(segments)
    heads |= set() if keys is None else {i for i in range(1, length) if keys[i] != keys[i - 1]}
    order = list(range(length))
    if reverse:
        order, heads = order[::-1], {(head - 1) % length for head in heads}
    results = [np.empty_like(array) for array in arrays]
    state: Any = None
    for i in order:
        item = like(x, [array[i] for array in arrays])
        before = initial if i in heads else state
        state = item if before is None else function(before, item)
        for result, value in zip(results, leaves(before if exclusive else state), strict=True):
            result[i] = value
    return like(x, results)


def weights(y: Any, seed: int = 1) -> Any:
    """Draw the gradient of the results."""
    rng = np.random.default_rng(seed)
    drawn = []
    for leaf in leaves(y):
        values: Any = rng.normal(size=leaf.shape)
        drawn.append(
            (values + 1j * rng.normal(size=leaf.shape) if leaf.dtype.kind == "c" else values).astype(leaf.dtype)
        )
    return like(y, drawn)


def loss(x: Any, op: Any, weight: Any, **options: Any) -> float:
    """Return a real number that has the gradient `weight` with respect to the results."""
    pairs = zip(leaves(one_by_one(x, op, **options)), leaves(weight), strict=True)
    return float(sum(np.sum((y * np.conj(w)).real, dtype=np.float64) for y, w in pairs))


def differences(function: Callable[[Any], float], x: Any, step: float = 1e-6) -> Any:
    """Return the gradient of a function of a bundle by central differences."""
    arrays = [np.array(leaf) for leaf in leaves(x)]
    found = []
    for array in arrays:
        gradient = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            for unit in (1, 1j) if array.dtype.kind == "c" else (1,):
                kept, ends = array[place], []
                for sign in (1, -1):
                    array[place] = kept + sign * step * unit
                    ends.append(function(like(x, arrays)))
                array[place] = kept
                gradient[place] += unit * (ends[0] - ends[1]) / (2 * step)
        found.append(gradient)
    return like(x, found)


def gradient(given: Iterable[Any], op: Any, **options: Any) -> Any:
    """Return the gradient of a scan, for its input, its results and their gradient."""
    x, y, grad_y = given
    return gs.scan_vjp(x, y, grad_y, op, **options)


def close(got: Any, wanted: Any, tolerance: float) -> None:
    for one, other in zip(leaves(got), leaves(wanted), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype
        wide = complex if one.dtype.kind == "c" else float
        scale = max(1.0, float(np.abs(other.astype(wide)).max(initial=0)))
        np.testing.assert_allclose(one.astype(wide), other.astype(wide), rtol=tolerance, atol=tolerance * scale)


# ----- Operators


class Affine(NamedTuple):
    """A map ``x -> gain x + shift``."""

    gain: Any
    shift: Any


def affine_in_place(left: Affine, right: Affine) -> Affine:
    return Affine(left.gain * right.gain, right.gain * left.shift + right.shift)


def log_sum(left: Any, right: Any) -> Any:
    """Add exponentials without overflow: pairs of the largest exponent and a sum relative to it."""
    largest = np.maximum(left[0], right[0])
    return largest, left[1] * np.exp(left[0] - largest) + right[1] * np.exp(right[0] - largest)


def moments(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Combine counts, means and squared deviations (Chan, Golub and LeVeque 1979)."""
    count = left["n"] + right["n"]
    apart = right["mean"] - left["mean"]
    return {
        "n": count,
        "mean": left["mean"] + apart * right["n"] / count,
        "m2": left["m2"] + right["m2"] + apart**2 * left["n"] * right["n"] / count,
    }


def later(left: Any, right: Any) -> Any:
    """Take the right value where its gate is open."""
    return np.where(right[1] > 0.8, right[0], left[0] + right[0]), np.maximum(left[1], right[1])


def quaternions(left: Any, right: Any) -> Any:
    (a, b, c, d), (e, f, g, h) = (tuple(side[..., i] for i in range(4)) for side in (left, right))
    entries = a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g
    return np.stack([*entries, a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e], axis=-1)


QUATERNIONS = gs.operator(quaternions, element_axes=1, name="quaternions")


def positive(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).permutation(np.linspace(0.4, 1.4, int(np.prod(shape)))).reshape(shape)


OPERATORS: dict[str, tuple[Any, Any]] = {
    "add": ("add", positive(7)),
    "multiply": ("multiply", positive(7)),
    "minimum": (np.minimum, positive(7)),
    "maximum": ("maximum", positive(7)),
    "fmin": ("fmin", positive(7)),
    "fmax": ("fmax", positive(7)),
    "logaddexp": ("logaddexp", positive(7)),
    "logaddexp2": ("logaddexp2", positive(7)),
    "hypot": ("hypot", positive(7)),
    "matmul": ("matmul", positive(5, 2, 2)),
    "matmul of 3 x 3": ("matmul", positive(4, 3, 3)),
    "affine": (affine, (positive(7), positive(7)[::-1])),
    "affine, named": (affine_in_place, Affine(positive(7), positive(7)[::-1])),
    "log of sums": (log_sum, (positive(7), positive(7)[::-1])),
    "moments": (moments, {"n": np.ones(6), "mean": positive(6), "m2": positive(6)[::-1]}),
    "where": (later, (positive(7), positive(7)[::-1])),
    "quaternions": (QUATERNIONS, positive(5, 4)),
    "parallel resistors": (lambda l, r: l * r / (l + r), positive(7)),
    "velocities": (lambda l, r: (l + r) / (1 + l * r), positive(7) / 2),
    "probabilities": (lambda l, r: l + r - l * r, positive(7) / 2),
    "norm": (lambda l, r: np.sqrt(l * l + r * r), positive(7)),
    "angles": (lambda l, r: np.arctan(np.tan(l) + np.tan(r)), positive(7).astype(np.float32) / 8),
    "relativistic": (lambda l, r: np.tanh(np.arctanh(l) + np.arctanh(r)), positive(7).astype(np.float32) / 4),
    "mean of powers": (lambda l, r: (l**2.5 + r**2.5) ** 0.4, positive(7).astype(np.float32)),
    "first": (lambda l, r: l, positive(7)),
    "last": (lambda l, r: r, positive(7)),
    "clipped": (lambda l, r: np.minimum(np.maximum(l, r), 1.1), positive(7) * 0.7),
    "sum and product": (lambda l, r: (l[0] + r[0], l[1] * r[1]), (positive(7), positive(7)[::-1])),
    "cubes": (lambda l, r: np.cbrt(l**3 + r**3).astype(l.dtype), positive(7).astype(np.float32)),
}
