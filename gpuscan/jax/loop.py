"""`loop` of JAX arrays: the signature of `jax.lax.scan`, run as a scan on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax  # noqa: TID253 (only users of JAX import this package)
import jax.numpy as jnp  # noqa: TID253
import numpy as np

from gpuscan.api.row_loop import ArrayStep, RowLoop, Shape, row_loop
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.jax.traced_function import Arrays, LiftedFunction, Likes, array_step
from gpuscan.operators.function_keys import function_key
from gpuscan.operators.operator import name_of
from gpuscan.problem.arguments import as_flag, as_integer


def loop(
    f: Callable[[Any, Any], tuple[object, object]],
    init: object,
    xs: object,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Run a loop as a scan: ``carry, y[t] = f(carry, x[t])`` for each t, with the signature of `jax.lax.scan`.

    The step is traced by JAX, and gpuscan derives its associative form, as `gpuscan.loop` does. It runs on gpuscan's
    default device. It works under `jax.jit` and `jax.vmap`, and has reverse-mode derivatives (`jax.grad`). Arrays are
    copied from JAX to the device and back by the CPU, in a callback.

    Args:
        f: takes a carry like `init` and an entry of `xs` along the first axis, and returns the pair of the next carry
            and y. It may close over values that JAX is tracing, which get gradients, too. Axes along which f treats all
            entries in the same way, such as a batch axis, are rows. In each row, a carry has at most 64 numbers.
        init: the first carry: a pytree of arrays.
        xs: a pytree of arrays of shape (n, …) for n steps; None if `length` is passed.
        length: the number of steps.
        reverse: True to run from the end.

    Returns:
        ``(carry, ys)``: the last carry, and a pytree like y, with arrays of shape (n, …).

    Raises:
        LoopError: the step has no associative form. `jax.lax.scan` runs it one step at a time.
        TypeError: the carry that f returns is not like `init`.
        ValueError: the lengths differ, there is none, or it is negative.
        OperatorError: f uses a primitive that has no form in a scan on a GPU.

    Example:
        >>> import jax.numpy as jnp
        >>> import gpuscan.jax
        >>> carry, ys = gpuscan.jax.loop(lambda h, x: (0.5 * h + x, h), jnp.float32(0), jnp.ones(4))
        >>> ys
        Array([0.  , 1.  , 1.5 , 1.75], dtype=float32)
    """
    leaves, tree = jax.tree.flatten(init)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    inputs, form = jax.tree.flatten(xs)
    inputs = [jnp.asarray(leaf) for leaf in inputs]
    steps = _length(inputs, length)
    reverse = as_flag("reverse", reverse)
    # A loop needs an array to count its steps along.
    given = inputs or [jnp.zeros(steps, jnp.float32)]
    likes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    parts = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in given]

    def call_step(carry: Arrays, x: Arrays) -> object:
        return f(jax.tree.unflatten(tree, carry), jax.tree.unflatten(form, [*x] if inputs else []))

    shapes = jax.eval_shape(call_step, likes, parts)
    if not isinstance(shapes, tuple) or len(shapes) != 2:
        what = f"{len(shapes)} values" if isinstance(shapes, (tuple, list)) else "one value"
        raise TypeError(f"f returned {what}; return a pair of the next carry and y")
    returned, rest = (jax.tree.flatten(leaf) for leaf in shapes)
    _check_carry(returned, (likes, tree))

    def flat(carry: Arrays, x: Arrays) -> list[jax.Array]:
        return list(jax.tree.leaves(call_step(carry, x)))

    # What JAX is tracing, and the step closes over, is a part of the carry that stays as it is.
    lifted = LiftedFunction(flat, likes, parts)
    free = lifted.free
    count = len(leaves)

    def step(carry: Arrays, x: Arrays) -> list[jax.Array]:
        values = carry[count:]
        outputs = lifted.call(values, carry[:count], x)
        return [*outputs[:count], *values, *outputs[count:]]

    starts = [*leaves, *free]
    dtypes = [[np.dtype(leaf.dtype) for leaf in group] for group in (starts, given)]

    def make(carry: Sequence[Shape], x: Sequence[Shape]) -> tuple[ArrayStep, list[Shape], list[AnyDType], None]:
        avals = [
            [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(group, own, strict=True)]
            for group, own in zip((carry, x), dtypes, strict=True)
        ]
        return *array_step(step, avals[0], avals[1], name_of(f)), None

    key = None if free else function_key(f)
    whole = None if key is None else (key, tree, form, *map(tuple, dtypes))
    shapes_of = [leaf.shape for leaf in starts], [leaf.shape[1:] for leaf in given]
    traced = row_loop(name_of(f), make, *shapes_of, dtypes, whole)
    carry = tuple([jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in starts])
    last, ys = _differentiable(traced, reverse, carry, tuple(rest[0]), steps)(starts, given)
    return jax.tree.unflatten(tree, last[:count]), jax.tree.unflatten(rest[1], ys)


def _length(inputs: Arrays, length: int | None) -> int:
    """Return the number of steps.

    Raises:
        ValueError: the lengths differ, there is none, or it is negative.
    """
    if any(not leaf.ndim for leaf in inputs):
        raise ValueError("xs with a single number was passed; pass arrays with the axis of the loop in front")
    lengths = [leaf.shape[0] for leaf in inputs]
    count = None if length is None else as_integer(length)
    if length is not None and count is None:
        raise TypeError(f"length={length!r} was passed; pass an integer")
    if count is not None and count < 0:
        raise ValueError(f"length={length} was passed, which is negative; pass a number of steps, 0 or more")
    if count is None and not inputs:
        raise ValueError("xs without arrays was passed without length=; pass the number of steps as length=")
    lengths_given = set(lengths) | ({count} if count is not None else set())
    if len(lengths_given) != 1:
        raise ValueError(
            f"length={length} was passed for xs of the lengths {lengths}; pass arrays of one length, or length= "
            f"without xs"
        )
    steps = lengths_given.pop()
    assert steps is not None
    return steps


def _check_carry(returned: tuple[Likes, jax.tree_util.PyTreeDef], given: tuple[Likes, jax.tree_util.PyTreeDef]) -> None:
    """Raise TypeError unless the step returns a carry like the one that it takes."""
    (results, tree), (likes, form) = returned, given
    same = tree == form and all(
        one.shape == other.shape and one.dtype == other.dtype for one, other in zip(results, likes, strict=True)
    )
    if not same:
        shown = [f"{aval.dtype}{list(aval.shape)}" for aval in results]
        wanted = [f"{aval.dtype}{list(aval.shape)}" for aval in likes]
        raise TypeError(
            f"f returned a carry of {tree} with {', '.join(shown)} for an init of {form} with {', '.join(wanted)}; "
            f"return a "
            "carry like init"
        )


@lru_cache(maxsize=128)
def _differentiable(
    traced: RowLoop, reverse: bool, last: Likes, outputs: Likes, steps: int
) -> Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]:
    """Return the loop as a function of the arrays of init and of xs, with a gradient in reverse mode."""
    ys = tuple(jax.ShapeDtypeStruct((steps, *aval.shape), aval.dtype) for aval in outputs)

    def on_host(init: Arrays, xs: Arrays) -> tuple[Sequence[AnyArray], Sequence[AnyArray]]:
        arrays = [[np.asarray(array) for array in group] for group in (init, xs)]
        carry, results = traced.results(arrays[0], arrays[1], reverse)
        return tuple(_like(carry, last)), tuple(_like(results, ys))

    def gradient(
        init: Arrays, xs: Arrays, of_carry: Arrays, of_ys: Arrays
    ) -> tuple[Sequence[AnyArray], Sequence[AnyArray]]:
        arrays = [[np.asarray(array) for array in group] for group in (init, xs, of_carry, of_ys)]
        of_init, of_xs = traced.gradients(arrays[0], arrays[1], arrays[2], arrays[3], reverse)
        return tuple(_like(of_init, arrays[0])), tuple(_like(of_xs, arrays[1]))

    @jax.custom_vjp
    def run(init: Arrays, xs: Arrays) -> tuple[Arrays, Arrays]:
        results: tuple[Arrays, Arrays] = jax.pure_callback(
            on_host, (last, ys), tuple(init), tuple(xs), vmap_method="sequential"
        )
        return results

    def forward(init: Arrays, xs: Arrays) -> tuple[tuple[Arrays, Arrays], tuple[Arrays, Arrays]]:
        return run(init, xs), (tuple(init), tuple(xs))

    def backward(saved: tuple[Arrays, Arrays], given: tuple[Arrays, Arrays]) -> tuple[Arrays, ...]:
        init, xs = saved
        shapes = tuple(tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in group) for group in (init, xs))
        weights = [
            tuple(
                jnp.zeros(like.shape, like.dtype) if weight.dtype == jax.dtypes.float0 else weight
                for weight, like in zip(group, likes, strict=True)
            )
            for group, likes in zip(given, (last, ys), strict=True)
        ]
        of_init, of_xs = jax.pure_callback(gradient, shapes, init, xs, *weights, vmap_method="sequential")
        return tuple(
            [
                grad if jnp.issubdtype(like.dtype, jnp.inexact) else np.zeros(like.shape, jax.dtypes.float0)
                for grad, like in zip(grads, group, strict=True)
            ]
            for grads, group in zip((of_init, of_xs), (init, xs), strict=True)
        )

    run.defvjp(forward, backward)
    return lambda init, xs: run([*init], [*xs])


def _like(arrays: Sequence[AnyArray], likes: Likes) -> list[AnyArray]:
    return [
        np.broadcast_to(np.asarray(array), like.shape).astype(like.dtype)
        for array, like in zip(arrays, likes, strict=True)
    ]
