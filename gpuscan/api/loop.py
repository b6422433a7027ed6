"""`gpuscan.loop`: a sequential step, written as for `jax.lax.scan`, run as a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuscan.api.array import Array
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable
from gpuscan.api.loop_arguments import loop_arguments
from gpuscan.api.loop_methods import run_newton, run_sequentially
from gpuscan.api.loop_runs import LoopRun
from gpuscan.operators.loops.form import LoopForm, form_of
from gpuscan.problem.arguments import as_flag

_METHODS = ("auto", "sequential", "newton")


class LoopResult(tuple[Any, Any]):
    """The pair ``(carry, ys)`` that `gpuscan.loop` returns.

    Attributes:
        iterations: how many iterations Newton's method took; None for other methods.
    """

    iterations: int | None
    _form: LoopForm | Callable[[], LoopForm] | None

    def __new__(cls, carry: Any, ys: Any, form: Any = None, iterations: int | None = None) -> LoopResult:
        self = super().__new__(cls, (carry, ys))
        self._form, self.iterations = form, iterations
        return self

    @property
    def carry(self) -> Any:
        """The carry after the last step."""
        return self[0]

    @property
    def ys(self) -> Any:
        """The outputs of the steps."""
        return self[1]

    @property
    def form(self) -> LoopForm | None:
        """What the loop ran as; None for other methods than ``"auto"``."""
        if callable(self._form):
            self._form = self._form()
        return self._form


def loop(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any,
    *,
    axis: int = 0,
    reverse: bool = False,
    method: str = "auto",
    tolerance: float | None = None,
    max_iterations: int = 100,
    device: Device | str | int | None = None,
) -> LoopResult:
    """Run a sequential loop as a scan: ``carry, y[t] = f(carry, x[t])`` for each t, beginning with `init`.

    The step is written for one element, as for `jax.lax.scan`. It is traced once, and gpuscan derives from its
    operations how to compose steps: each is a map of the carry, and maps of one class compose to a map of the class.

    ================  =================================================================================================
    ``form.kind``     the step as a map of the carry h; what is not h may depend on x in any way
    ================  =================================================================================================
    ``affine``        ``a * h + b``, also with matrices; integers wrap
    ``max-plus``      ``np.maximum(h + a, b)``; ``min-plus`` with ``np.minimum``
    ``max-times``     ``np.maximum(a * h, b)`` for a that is provably not negative
    ``clamp``         ``np.clip(h + a, low, high)``
    ``extremum``      ``np.maximum(h, b)``, or ``np.where(v > best, ...)`` with all that belongs to the best
    ``mobius``        ``(a * h + b) / (c * h + d)``
    ``bitwise``       ``(h & m) ^ x``, ``|``, ``~``, and bools
    ``finite-state``  any function, if h takes at most 64 values
    ``staged``        several of these, for parts of the carry that depend on each other in one direction
    ================  =================================================================================================

    ``np.where`` with a condition on x chooses between maps of a class, or resets the carry. A reset is a flag:
    nothing of the steps before it, not even NaN, reaches those after it.

    Args:
        f: takes the carry and x, each one element of `init` and `xs`, and returns ``(carry, y)``. It may also return a
            carry alone, or ``(carry, None)``. If it indexes its carry or multiplies matrices, the trailing axes of
            `init` belong to the carry.
        init: the first carry: an array, a number, or a bundle of those. It is broadcast over the other axes of `xs`.
            Python numbers take the dtype of `xs`.
        xs: an array or a bundle of arrays, with the axis of the loop.
        axis: the axis of the loop, of the leading axes that all arrays of `xs` share.
        reverse: True to run from the end. The outputs keep the order of the input.
        method: ``"auto"`` runs the derived form. ``"sequential"`` runs any step as a loop, one invocation of the GPU
        for
            each element of the other axes. ``"newton"`` iterates scans of the linearised step (Lim et al. 2024).
        tolerance: for ``"newton"``, the largest residual, relative to the carry (default: 16 roundings).
        max_iterations: for ``"newton"``, the most iterations.
        device: as in `gpuscan.scan`.

    Returns:
        A pair of the last carry, with the other axes of `xs`, and the outputs: ``ys[t] = y[t]``, in the structure of y;
        None if y is; and the carries after each step if f returns the carry alone. The pair also has the attributes
        ``form``, what was run, and ``iterations`` of Newton's method. The arrays are `gpuscan.Array`s if any input is.

    Raises:
        LoopError: the step has no associative form, and the message names the operation in the way; or Newton's method
            did not converge.
        OperatorError: the step cannot be traced.
        TypeError: the carry that f returns does not fit the dtype of `init`, or nests in another way.
        ValueError: the shapes or the axis do not fit, or the method is unknown.

    Finite states follow Ladner & Fischer, "Parallel Prefix Computation" (1980), affine maps Blelloch (1990), and
    Newton's method Lim et al., "Parallelizing non-linear sequential models over the sequence length" (2024).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([3, 5, -9, 4, 2], np.float32)
        >>> carry, level = gs.loop(lambda level, flow: np.clip(level + flow, 0, 6), 0.0, x)
        >>> level
        array([3., 6., 0., 4., 6.], dtype=float32)
        >>> gs.loop_form(lambda level, flow: np.clip(level + flow, 0, 6), 0.0, x).kind
        'clamp'
    """
    reverse = as_flag("reverse", reverse)
    if method not in _METHODS:
        raise ValueError(f"method={method!r} was passed; pass one of {', '.join(map(repr, _METHODS))}")
    if method == "newton":
        arguments = loop_arguments(f, init, xs, axis=axis, device=device)
        carry, ys, iterations = run_newton(arguments, reverse, tolerance, max_iterations)
        return LoopResult(carry, ys, None, iterations)
    forms: list[LoopForm] = []
    if _all_host(init) and _all_host(xs):
        carry, ys = _run(f, init, xs, axis=axis, reverse=reverse, method=method, device=device, forms=forms)
    else:
        carry, ys = _launched(f, init, xs, axis=axis, reverse=reverse, method=method, device=device)
    if method == "sequential":
        return LoopResult(carry, ys)
    return LoopResult(carry, ys, forms[0] if forms else lambda: loop_form(f, init, xs, axis=axis, reverse=reverse))


def loop_form(f: Callable[[Any, Any], Any], init: Any, xs: Any, *, axis: int = 0, reverse: bool = False) -> LoopForm:
    """Return what `gpuscan.loop` would run for these arguments, without running it.

    Args:
        f, init, xs, axis, reverse: as in `gpuscan.loop`. Of `xs`, only the shapes and dtypes count.

    Returns:
        A `LoopForm`: ``str(form)`` explains it, ``form.kind`` names its class, and ``form.stages`` lists its parts.

    Raises:
        LoopError, OperatorError, TypeError, ValueError: as `gpuscan.loop` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> form = gs.loop_form(lambda h, x: np.where(x > 0, 0.5 * h + x, 0), 0.0, np.ones(4, np.float32))
        >>> print(form)
        the step runs as a scan. carry: affine, h[t] = a h[t-1] + b. The state is reset where a flag is set.
    """
    as_flag("reverse", reverse)
    return form_of(loop_arguments(f, init, xs, axis=axis, device="numpy", anywhere=True).derivation())


def _all_host(value: Any) -> bool:
    """Return True if no array of a bundle is on a device."""
    if isinstance(value, dict):
        return all(map(_all_host, value.values()))
    if isinstance(value, (tuple, list)):
        return all(map(_all_host, value))
    return not isinstance(value, Array)


def _run(
    f: Any, init: Any, xs: Any, *, axis: int, reverse: bool, method: str, device: Any, forms: list[LoopForm]
) -> tuple[Any, Any]:
    arguments = loop_arguments(f, init, xs, axis=axis, device=device)
    if method == "sequential":
        return run_sequentially(arguments, reverse)
    derivation = arguments.derivation()
    forms.append(form_of(derivation))
    return LoopRun(arguments, derivation, reverse).run()


@launchable
def _launched(
    f: Any, init: Any, xs: Any, *, axis: int = 0, reverse: bool = False, method: str = "auto", device: Any = None
) -> tuple[Any, Any]:
    return _run(f, init, xs, axis=axis, reverse=reverse, method=method, device=device, forms=[])
