"""Scans of other frameworks' arrays in the memory of the host, with an operator of theirs, and their gradients."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from gpuscan.api.device import resolve_device
from gpuscan.api.scan import scan
from gpuscan.api.scan_vjp import gradients
from gpuscan.array_types import AnyArray
from gpuscan.errors import OperatorError
from gpuscan.operators.adjoint import cached_adjoint
from gpuscan.operators.row_functions import RowOperator
from gpuscan.problem.broadcasting import broadcast_shapes, sum_to_shape

Array = AnyArray

# The most numbers of an element for which the gradient is a scan as well: it multiplies matrices of as many rows.
MAX_GRADIENT_NUMBERS = 16


@dataclass(frozen=True, eq=False)
class RowScan:
    """A scan, without its arrays.

    Attributes:
        row_operator: the operator, and how it combines elements.
        axis: the scanned axis, 0 or more.
        reverse: as in `gpuscan.scan`.
        ranks: the number of axes of each array. Arrays that are passed may all have more axes in front. The first
            array is none that all elements share.
    """

    row_operator: RowOperator
    axis: int
    reverse: bool
    ranks: tuple[int, ...]

    @cached_property
    def has_gradient(self) -> bool:
        """True if the scan's gradient can be computed by a scan."""
        if sum(map(prod, self.row_operator.shapes)) > MAX_GRADIENT_NUMBERS:
            return False
        try:
            cached_adjoint(
                self.row_operator.operator, self.row_operator.element, exclusive=False, seeded=False, initial=False
            )
        except OperatorError:
            return False
        return True

    def scan_rows(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the scanned arrays."""
        if (parts := self._parts(arrays)) is not None:
            return _join(parts, [part.scan_rows(_pick(arrays, leaves)) for leaves, part in parts.items()])
        given, arrays = arrays, self._align_arrays(arrays)
        rows = self._rows(arrays)
        are_constants = self.row_operator.constants
        results = scan(
            self._spread(arrays, rows),
            self.row_operator.operator,
            axis=self._axis(arrays),
            reverse=self.reverse,
            # What all elements share is no result.
            after=(lambda fields: tuple(itertools.compress(fields, map(operator.not_, are_constants))))
            if any(are_constants)
            else None,
            device=device_for(arrays),
        )
        scanned = iter(results)
        # All copies of an array that was broadcast have one result.
        lead = len(rows)
        firsts = [tuple(slice(length) for length in array.shape[:lead]) for array in arrays]
        return [
            array if constant else np.ascontiguousarray(next(scanned)[first]).reshape(array.shape)
            for first, array, constant in zip(firsts, given, are_constants, strict=True)
        ]

    def gradients(self, arrays: Sequence[Array], results: Sequence[Array], grads: Sequence[Array]) -> list[Array]:
        """Return the gradients with respect to the arrays.

        Args:
            results: what `scan_rows` returned for them.
            grads: the gradients with respect to the results.
        """
        if (parts := self._parts(arrays)) is not None:
            return _join(
                parts,
                [
                    part.gradients(*(_pick(bundle, leaves) for bundle in (arrays, results, grads)))
                    for leaves, part in parts.items()
                ],
            )
        shapes = [array.shape for array in arrays]
        arrays, results, grads = (self._align_arrays(bundle) for bundle in (arrays, results, grads))
        rows = self._rows(arrays)
        given = self._spread(arrays, rows)
        weights = tuple(
            _only_first(grad, whole.shape, len(rows), shape)
            for grad, whole, shape in zip(grads, given, self.row_operator.shapes, strict=True)
        )
        of_arrays = gradients(
            given,
            self._spread(results, rows),
            weights,
            self.row_operator.operator,
            axis=self._axis(arrays),
            reverse=self.reverse,
            device=device_for(arrays),
        )
        sums = [_sum_copies(grad, array, len(rows)) for grad, array in zip(of_arrays, arrays, strict=True)]
        return [grad.reshape(shape) for grad, shape in zip(sums, shapes, strict=True)]

    def _parts(self, arrays: Sequence[Array]) -> dict[tuple[int, ...], RowScan] | None:
        """Return the scans of arrays that depend on each other, by their numbers; None if one scan can do them all."""
        try:
            self._rows(self._align_arrays(arrays))
        except ValueError:
            if len(self.row_operator.groups) > 1:
                return {
                    group: replace(
                        self,
                        row_operator=self.row_operator.restrict(group),
                        ranks=tuple(self.ranks[leaf] for leaf in group),
                    )
                    for group in self.row_operator.groups
                }
            raise
        return None

    def _axis(self, arrays: Sequence[Array]) -> int:
        return arrays[0].ndim - self.ranks[0] + self.axis

    def _align_arrays(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays. An array that all elements share gets row axes of length 1."""
        batches = arrays[0].ndim - self.ranks[0]
        ones = (1,) * self.row_operator.lead
        return [
            array.reshape(*array.shape[:batches], *ones, *array.shape[batches:]) if is_constant else array
            for array, is_constant in zip(arrays, self.row_operator.constants, strict=True)
        ]

    def _rows(self, arrays: Sequence[Array]) -> tuple[int, ...]:
        """Return the lengths of the axes in front of the element's axes, broadcast over the arrays."""
        lead = arrays[0].ndim - self.ranks[0] + self.row_operator.lead
        return broadcast_shapes(*(array.shape[:lead] for array in arrays))

    def _spread(self, arrays: Sequence[Array], rows: tuple[int, ...]) -> tuple[Array, ...]:
        """Return the arrays, broadcast to the same axes in front of the element's axes."""
        return tuple(
            np.broadcast_to(array.reshape(*array.shape[: len(rows)], *shape), (*rows, *shape))
            for array, shape in zip(arrays, self.row_operator.shapes, strict=True)
        )


def _pick(arrays: Sequence[Array], leaves: Sequence[int]) -> list[Array]:
    return [arrays[leaf] for leaf in leaves]


def _join(parts: Iterable[Sequence[int]], results: Iterable[Sequence[Array]]) -> list[Array]:
    """Return the results of all parts in the order of the arrays."""
    joined = {
        leaf: array
        for leaves, arrays in zip(parts, results, strict=True)
        for leaf, array in zip(leaves, arrays, strict=True)
    }
    return [joined[leaf] for leaf in sorted(joined)]


def device_for(arrays: Sequence[Array]) -> str | None:
    """Return ``"numpy"`` for float64 if the default device has no such numbers; else None, the default device."""
    device = resolve_device(None)
    lacks = device is not None and not device.capabilities.float64
    return "numpy" if lacks and any(array.dtype == np.float64 for array in arrays) else None


def _only_first(grad: Array, whole: tuple[int, ...], lead: int, shape: tuple[int, ...]) -> Array:
    """Return the gradient for all copies of an array that was broadcast: `grad` for the first, else zeros."""
    own = grad.reshape(*grad.shape[:lead], *shape)
    if own.shape == whole:
        return own
    spread = np.zeros(whole, grad.dtype)
    spread[tuple(slice(length) for length in own.shape)] = own
    return spread


def _sum_copies(grad: Array, array: Array, lead: int) -> Array:
    """Return the gradient of an array that was broadcast: the sum of the gradients of its copies."""
    # Sums of 16-bit floats are rounded once.
    wide = np.result_type(grad.dtype, np.float32)
    total = sum_to_shape((*array.shape[:lead], *grad.shape[lead:]), grad, wide)
    return np.ascontiguousarray(total.astype(array.dtype, copy=False)).reshape(array.shape)
