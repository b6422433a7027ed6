"""Operators written with `jax.numpy`: JAX traces the function, and its primitives are interpreted on numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax  # noqa: TID253 (only users of JAX import this package)
import numpy as np
from jax.extend.core import Literal  # noqa: TID253

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

    Raises:
        OperatorError: the function closes over values that JAX is tracing.
    """
    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    closed = jax.make_jaxpr(function)(leaves, leaves)
    if any(isinstance(const, jax.core.Tracer) for const in closed.consts):
        raise OperatorError(
            f"{name} closes over a value that JAX is tracing, which a scan outside of JAX does not see. "
            "Pass the value as one more leaf of elems, broadcast along the axis, or use a constant"
        )
    consts = [constants_of(const) for const in closed.consts]

    def interpreted(left: Sequence[Numbers], right: Sequence[Numbers]) -> list[Numbers]:
        return _run(closed.jaxpr, consts, [*left, *right], name)

    return interpreted


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
    inner = next((parameters[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in parameters), None)
    if primitive not in CALLS or inner is None:
        raise OperatorError(
            f"{name} uses JAX's primitive {primitive!r}, which has no form in a scan on a GPU. Write the function "
            f"with the primitives {', '.join(NAMES)}, or use jax.lax.associative_scan"
        )
    consts = [constants_of(const) for const in getattr(inner, "consts", ())]
    return _run(getattr(inner, "jaxpr", inner), consts, arrays, name)
