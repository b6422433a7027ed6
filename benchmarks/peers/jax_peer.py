"""JAX: the cumulative functions of `jax.lax`, and `associative_scan` with any operator."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpuscan.tools.bench.cases import Inputs, ScanCase
from gpuscan.tools.bench.contenders import Contender, Subject
from gpuscan.tools.bench.peers import need, only, wrap_call
from recurrences import RecurrenceCase

FUNCTIONS = {
    "add": "cumsum",
    "multiply": "cumprod",
    "maximum": "cummax",
    "minimum": "cummin",
    "logaddexp": "cumlogsumexp",
}


def contenders(case: ScanCase) -> list[Contender]:
    scan = Contender("jax", "associative_scan", partial(_associative_scan, case))
    if case.op in FUNCTIONS:
        return [Contender("jax", FUNCTIONS[case.op], partial(_cumulative, case)), scan]
    return [scan]


def _cumulative(case: ScanCase, inputs: Inputs) -> Subject:
    jax = _jax(case.dtype)
    function = getattr(jax.lax, FUNCTIONS[case.op])
    return _subject(jax, case, inputs, lambda x: (function(x, axis=1),))


def _associative_scan(case: ScanCase, inputs: Inputs) -> Subject:
    jax = _jax(case.dtype)
    scan = jax.lax.associative_scan
    if not isinstance(case, RecurrenceCase):
        if case.fields == 2:
            return _subject(jax, case, inputs, lambda a, b: scan(_compose, (a, b), axis=1))
        function = getattr(jax.numpy, case.operator.name)
        return _subject(jax, case, inputs, lambda x: (scan(function, x, axis=1),))

    def recurrence(a: Any, b: Any) -> Any:
        return scan(_compose, (a, b), axis=1)[1]

    def backward(a: Any, b: Any, grad_h: Any) -> tuple[Any, ...]:
        h, vjp = jax.vjp(recurrence, a, b)
        return (h, *vjp(grad_h))

    return _subject(jax, case, inputs, backward if case.backward else lambda a, b: (recurrence(a, b),))


def _compose(left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
    return left[0] * right[0], right[0] * left[1] + right[1]


def _jax(dtype: np.dtype[Any]) -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave memory to the others
    jax = need("jax")
    if dtype.itemsize == 8 and dtype.kind != "c":
        jax.config.update("jax_enable_x64", True)
    return jax


def _subject(jax: Any, case: ScanCase, inputs: Inputs, function: Callable[..., tuple[Any, ...]]) -> Subject:
    arrays = [jax.numpy.asarray(array) for array in inputs.arrays]
    only(arrays[0].dtype == case.dtype, f"JAX has no {case.dtype}")
    compiled = jax.jit(function)
    made: list[Any] = []

    def run() -> None:
        made[:] = jax.block_until_ready(compiled(*arrays))

    def sample(at: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        return [np.asarray(result.reshape(-1, *case.element_shape)[at]) for result in made]

    def free() -> None:
        arrays.clear()
        made.clear()

    return wrap_call(run, sample, f"JAX {jax.__version__}, {jax.default_backend()}", free)
