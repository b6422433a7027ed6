"""Operators written with `jax.numpy`: JAX traces the function, and its primitives are interpreted on numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax  # noqa: TID253 (only users of JAX import this package)
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun  # noqa: TID253

from gpuscan.errors import OperatorError
from gpuscan.jax.primitives import CALLS, ELEMENTWISE, FOLDS, NAMES, OTHERS, TYPED
from gpuscan.operators.components import Numbers, apply, constants_of, folded
from gpuscan.operators.row_functions import RowFunction


def row_function(
    function: Callable[..., Any], shapes: Sequence[tuple[int, ...]], dtypes: Any, name: str
) -> RowFunction:
    """Return a function of two lists of arrays as one of two lists of arrays of numbers.

    Args:
        function: JAX's function.
        shapes: the shape of each array.
        dtypes: their dtypes.
        name: the name of the user's function, for messages.

    The function must not close over values that JAX is tracing.
    """
    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    closed = jax.make_jaxpr(function)(leaves, leaves)
    consts = [constants_of(const) for const in closed.consts]

    def interpreted(left: Sequence[Numbers], right: Sequence[Numbers]) -> list[Numbers]:
        return _run(closed.jaxpr, consts, [*left, *right], name)

    return interpreted


def free_values(function: Callable[..., Any], like: Sequence[Any]) -> list[Any]:
    """Return the values that JAX is tracing and that a function of two lists closes over.

    Args:
        function: JAX's function.
        like: the shapes and dtypes of each list.
    """
    consts = jax.make_jaxpr(function)(like, like).consts
    return list({id(const): const for const in consts if isinstance(const, jax.core.Tracer)}.values())


def call_with(
    function: Callable[..., Any], free: Sequence[Any], values: Sequence[Any], left: Sequence[Any], right: Sequence[Any]
) -> list[Any]:
    """Return what a function of two lists gives with other values in place of those that it closes over.

    Args:
        function: JAX's function.
        free: what `free_values` returned for it.
        values: the others.
        left, right: the arguments.
    """
    if not free:
        found: list[Any] = function([*left], [*right])
        return found
    closed = jax.make_jaxpr(function)([*left], [*right])
    others = {id(known): value for known, value in zip(free, values, strict=True)}
    consts = [others.get(id(const), const) for const in closed.consts]
    return list(jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*left, *right))


def _run(jaxpr: Any, consts: Sequence[Numbers], arguments: Sequence[Numbers], name: str) -> list[Numbers]:
    """Return the results of a jaxpr."""
    known: dict[Any, Numbers] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(atom: Any) -> Numbers:
        if isinstance(atom, Literal):
            return constants_of(np.asarray(atom.val, atom.aval.dtype))
        return known[atom]

    for equation in jaxpr.eqns:
        results = _apply(equation, [read(atom) for atom in equation.invars], name)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, arrays: list[Numbers], name: str) -> list[Numbers]:
    primitive, parameters = equation.primitive.name, equation.params
    try:
        if primitive in ELEMENTWISE:
            return [apply(ELEMENTWISE[primitive], *arrays)]
        if primitive in FOLDS:
            return [folded(FOLDS[primitive], arrays[0], parameters["axes"])]
        if primitive in TYPED:
            return [TYPED[primitive](*arrays, dtype=equation.outvars[0].aval.dtype)]
        if primitive in OTHERS:
            found = OTHERS[primitive](*arrays, **parameters)
            return found if isinstance(found, list) else [found]
    except NotImplementedError as error:
        primitive = str(error)
    if primitive == "custom_linear_solve":
        # Its operands are the constants of four functions, and then the right-hand side.
        lengths = parameters["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        solve = parameters["jaxprs"].solve
        consts = [constants_of(const) for const in solve.consts]
        return _run(solve.jaxpr, consts, [*arrays[first : first + lengths.solve], *arrays[sum(lengths) :]], name)
    inner = next((parameters[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in parameters), None)
    if primitive not in CALLS or inner is None:
        raise OperatorError(
            f"{name} uses JAX's primitive {primitive!r}, which has no form in a scan on a GPU. Write the function "
            f"with the primitives {', '.join(NAMES)}, or use jax.lax.associative_scan"
        )
    consts = [constants_of(const) for const in getattr(inner, "consts", ())]
    return _run(getattr(inner, "jaxpr", inner), consts, arrays, name)
