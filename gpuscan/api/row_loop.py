"""Loops over other frameworks' arrays in the memory of the host, with a step of theirs, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gpuscan.api.loop import loop
from gpuscan.api.loop_arguments import MAX_NUMBERS, FixedStep, loop_arguments
from gpuscan.api.loop_vjp import gradients
from gpuscan.api.row_scan import device_for
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.errors import GpuscanError, OperatorError
from gpuscan.operators.components import OTHER, Numbers, is_other, make_number_array
from gpuscan.operators.row_functions import MORE_ROWS, ROWS, rows_to_try
from gpuscan.problem.leading_axes import count_shared_axes
from gpuscan.recent_values import RecentValues

Array = AnyArray
Shape = tuple[int, ...]
# A step of arrays: it takes the arrays of the carry and of x, and returns the arrays of the next carry and of y.
ArrayStep = Callable[[Sequence[Numbers]], list[Numbers]]

_loops: RecentValues[Hashable, RowLoop] = RecentValues(128)


@dataclass(frozen=True, eq=False)
class RowLoop:
    """A loop, without its arrays. The step treats all entries of a row axis the same; other axes belong to the carry.

    Attributes:
        function: the step of arrays with axes of rows.
        rows: the lengths of these axes in the function.
        carry, xs, ys: the shapes of the arrays without the axes of rows.
        types: the dtypes of the arrays of y.
        form: what `row_loop` got from `make` with the step.
        name: the step as messages name it.
    """

    function: ArrayStep
    rows: Shape
    carry: tuple[Shape, ...]
    xs: tuple[Shape, ...]
    ys: tuple[Shape, ...]
    types: tuple[AnyDType, ...]
    form: Any
    name: str

    @cached_property
    def step(self) -> FixedStep:
        """The step of the numbers of one row."""
        return FixedStep(lambda carry, x: self.in_row(carry, x, (0,) * len(self.rows)), self.name)

    def in_row(self, carry: Any, x: Any, row: tuple[int, ...]) -> Any:
        """Return the next numbers of the carry and of y in one row.

        Raises:
            OperatorError: they depend on other rows.
        """
        rest = iter([*carry, *x])
        at: Any = (*row, ...)
        arrays = []
        for shape in (*self.carry, *self.xs):
            whole = np.full(self.rows + shape, OTHER, object)
            numbers = make_number_array([next(rest) for _ in range(prod(shape))], shape)
            whole[at] = numbers
            arrays.append(whole)
        flat: list[object] = []
        for result in self.function(arrays):
            own = result[at]
            if any(is_other(number) for number in own.flat):
                raise OperatorError(f"{self.name} mixes rows")
            flat += list(own.flat)
        count = len(carry)
        return tuple(flat[:count]), tuple(flat[count:]) or None

    def check(self, carry: Sequence[AnyDType], xs: Sequence[AnyDType]) -> None:
        """Raise LoopError if the step has no associative form for numbers of these dtypes."""
        groups = [
            tuple(
                np.zeros(length, dtype) for dtype, shape in zip(dtypes, shapes, strict=True) for _ in range(prod(shape))
            )
            for dtypes, shapes, length in ((carry, self.carry, ()), (xs, self.xs, 1))
        ]
        loop_arguments(self.step, *groups, axis=0, device="numpy", anywhere=True).derivation()

    def results(self, init: Sequence[Array], xs: Sequence[Array], reverse: bool) -> tuple[list[Array], list[Array]]:
        """Return the arrays of the last carry and of y, which have the axis of the loop in front."""
        if not self.carry:
            raise GpuscanError("a loop without a carry was asked for; pass an init of one array or more")
        carry, ys = loop(
            self.step,
            self._parts(init, self.carry),
            self._parts(xs, self.xs),
            reverse=reverse,
            device=device_for([*init, *xs]),
        )
        whole = self._whole(ys or (), self.ys)
        return self._whole(carry, self.carry), [y.astype(t, copy=False) for y, t in zip(whole, self.types, strict=True)]

    def gradients(
        self,
        init: Sequence[Array],
        xs: Sequence[Array],
        of_carry: Sequence[Array],
        of_ys: Sequence[Array],
        reverse: bool,
    ) -> tuple[list[Array], list[Array]]:
        """Return the gradients with respect to init and x, from the gradients with respect to the last carry and y."""
        grads = gradients(
            self.step,
            self._parts(init, self.carry),
            self._parts(xs, self.xs),
            self._parts(of_ys, self.ys) if of_ys else None,
            grad_carry=self._parts(of_carry, self.carry),
            axis=0,
            reverse=reverse,
            device=device_for([*init, *xs]),
        )
        grad_init, grad_xs = (
            [
                np.zeros(np.shape(part), np.float32) if grad is None else grad
                for grad, part in zip(group, parts, strict=True)
            ]
            for group, parts in zip(grads, (self._parts(init, self.carry), self._parts(xs, self.xs)), strict=True)
        )
        return self._whole(grad_init, self.carry), self._whole(grad_xs, self.xs)

    def _parts(self, arrays: Sequence[Array], shapes: Sequence[Shape]) -> tuple[Array, ...]:
        """Return the numbers of arrays as arrays of their own."""
        return tuple(
            np.asarray(array[(..., *at)])
            for array, shape in zip(arrays, shapes, strict=True)
            for at in np.ndindex(shape)
        )

    def _whole(self, numbers: Sequence[object], shapes: Sequence[Shape]) -> list[Array]:
        """Return the arrays of these numbers: the inverse of `_parts`."""
        rest, arrays = iter(numbers), []
        for shape in shapes:
            own = [np.asarray(next(rest)) for _ in range(prod(shape))]
            arrays.append(np.stack(own, axis=-1).reshape(*own[0].shape, *shape) if shape else own[0])
        return arrays


def row_loop(
    name: str,
    make: Callable[[Sequence[Shape], Sequence[Shape]], tuple[ArrayStep, list[Shape], list[AnyDType], object]],
    carry: Sequence[Shape],
    xs: Sequence[Shape],
    dtypes: Sequence[Sequence[AnyDType]],
    key: Hashable | None,
) -> RowLoop:
    """Return the loop with a step of arrays, with as many axes of rows as the step keeps apart.

    Args:
        name: the step as messages name it.
        make: returns the step for arrays of some shapes, the shapes and dtypes of its results, and what else is to be
            kept with it.
        carry, xs: the shapes of the arrays of the carry, and of x without the axis of the loop.
        dtypes: the dtypes of the arrays of the carry, and of x.
        key: equal for steps that compute the same; None if that is not known.

    Raises:
        OperatorError: the step cannot be traced, or its carry has too many numbers.
        LoopError: the step has no associative form for numbers of these dtypes.
    """
    loop_key = None if key is None else (key, tuple(carry), tuple(xs))
    loop = None if loop_key is None else _loops.find(loop_key)
    if loop is not None:
        return loop
    refusal: Exception | None = None
    for lead in range(count_shared_axes([*carry, *xs]), -1, -1):
        own_carry, own_xs = ([shape[lead:] for shape in shapes] for shapes in (carry, xs))
        if sum(map(prod, own_carry)) > MAX_NUMBERS:
            continue
        try:
            # Two lengths, so that a step that reads a length gives other numbers.
            traced = _trace(name, make, own_carry, own_xs, (ROWS,) * lead)
            longer = _trace(name, make, own_carry, own_xs, (MORE_ROWS,) * lead) if lead else traced
            _try(traced, longer, dtypes)
        except Exception as error:
            # The step may not take arrays of other lengths than its own, in whatever way it says so. The last try has
            # the fewest made-up lengths, so its error is the user's.
            refusal = error
            continue
        traced.check(*dtypes)
        return traced if loop_key is None else _loops.keep(loop_key, traced)
    if isinstance(refusal, (GpuscanError, TypeError)):
        raise refusal
    raise OperatorError(
        f"{name} was passed to a loop, but it is no function of rows, and its carry has more than {MAX_NUMBERS} "
        f"numbers. "
        f"Pass arrays that it closes over as a part of xs{'' if refusal is None else f' ({refusal})'}"
    ) from refusal


def _trace(
    name: str,
    make: Callable[[Sequence[Shape], Sequence[Shape]], tuple[ArrayStep, list[Shape], list[AnyDType], object]],
    carry: Sequence[Shape],
    xs: Sequence[Shape],
    rows: Shape,
) -> RowLoop:
    """Return the loop with axes of rows of these lengths; `carry` and `xs` are the shapes without these axes."""
    function, shapes, types, form = make(*([rows + shape for shape in group] for group in (carry, xs)))
    lead, count = len(rows), len(carry)
    wanted = [rows + shape for shape in carry]
    if shapes[:count] != wanted:
        found, like = (", ".join(map(str, group)) for group in (shapes[:count], wanted))
        raise TypeError(
            f"{name} returned a carry of the shapes {found} for an init of {like}; return a carry like init"
        )
    if any(shape[:lead] != rows for shape in shapes):
        raise OperatorError(f"{name} mixes rows")
    ys = tuple(shape[lead:] for shape in shapes[count:])
    return RowLoop(function, rows, tuple(carry), tuple(xs), ys, tuple(types[count:]), form, name)


def _try(traced: RowLoop, longer: RowLoop, dtypes: Sequence[Sequence[AnyDType]]) -> None:
    """Raise an error if the results of a row depend on other rows or on their number, or rows are treated differently.

    Args:
        longer: the same loop, traced with more rows.
    """
    rng = np.random.default_rng(0)
    first_row, *rows = rows_to_try(len(traced.rows))
    for _ in range(4):
        carry, x = (
            [_draw(rng, dtype) for shape, dtype in zip(shapes, own, strict=True) for _ in range(prod(shape))]
            for shapes, own in zip((traced.carry, traced.xs), dtypes, strict=True)
        )
        with np.errstate(all="ignore"):
            first = repr(traced.step(tuple(carry), tuple(x)))
            others = [*(traced.in_row(carry, x, row) for row in rows), longer.in_row(carry, x, first_row)]
            if any(repr(other) != first for other in others):
                raise OperatorError(f"{traced.name} treats rows differently")


def _draw(rng: np.random.Generator, dtype: AnyDType) -> object:
    """Return a random number of a dtype. Only integers and bools have operations on bits."""
    number = rng.integers(0, 2 if dtype.kind == "b" else 100) if dtype.kind in "biu" else rng.normal()
    return np.asarray(number).astype(dtype)[()]
