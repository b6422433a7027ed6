"""`gpuscan.check_associative`: search for elements that show that an operator is not associative."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import index as as_index
from typing import Any

import numpy as np

from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.elements import LEAF, Element, Scalar, Structure, container_of, dtype_from, element_of, nest_children
from gpuscan.errors import OperatorError
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator
from gpuscan.problem.arguments import as_array, as_scalars, fields_of
from gpuscan.reference.stages import Joiner

Arrays = list[AnyArray]

# The largest error for each type of float, relative to the result. It allows some tens of roundings (a unit of float32
# is 2^-23).
TOLERANCE = {"float16": 2.0**-7, "bfloat16": 2.0**-4, "float32": 2.0**-17, "float64": 2.0**-44, "complex64": 2.0**-17}

# The number of triples that are tried if the caller passes the samples. Not tuned.
TRIPLES = 1000


def check_associative(
    op: object, dtype: object, samples: Any = 1000, seed: int = 0, *, shape: int | Sequence[int] = ()
) -> None:
    """Search for elements a, b and c with ``op(op(a, b), c) != op(a, op(b, c))``, and raise an error if there are any.

    The elements are random unless you pass `samples`. Integers and bools must agree exactly. Floats must agree within a
    tolerance relative to the larger result (for vectors and matrices, to their largest number), since their sums are
    associative only up to rounding. If the operator has an identity, ``op(identity, a) == a == op(a, identity)`` is
    checked, too.

    The counterexample in the error is made as small as possible. If no error is raised, this is no proof that the
    operator is associative.

    Args:
        op: as in `gpuscan.scan`.
        dtype: the dtype of an element; for a bundle, a tuple or dict of dtypes, or a structured dtype.
        samples: the number of triples (a, b, c) to try. For an operator that is associative only on some elements, pass
            the elements to try: an array of shape (count, …) or a bundle of such arrays, or a function
            ``(rng, count) -> elements`` that makes them with a `numpy.random.Generator`.
        seed: the seed of the random numbers.
        shape: the shape of an element, such as ``(2, 2)`` for ``"matmul"``; an integer for one axis.

    Raises:
        OperatorError: the operator is not associative, its identity is wrong, or it cannot combine such elements.
        TypeError, ValueError: `samples`, `seed` or `shape` has a wrong type or value, or samples do not fit the dtype.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.check_associative("add", np.int32)
        >>> gs.check_associative(lambda l, r: l - r, np.int32)
        Traceback (most recent call last):
        ...
        gpuscan.errors.OperatorError: the operator is not associative on int32:
          a = 0, b = 0, c = 1
          op(op(a, b), c) = -1
          op(a, op(b, c)) = 1
        >>> def clamped_sum(l, r):
        ...     return np.clip(l + r, 0, 100)
        >>> gs.check_associative(clamped_sum, np.int32, samples=lambda rng, count: rng.integers(0, 50, count))
    """
    operator = resolve(op)
    element = _element(dtype, _sizes(shape))
    for field in element.fields:
        if len(field.shape) < operator.element_axes:
            raise OperatorError(
                f"{operator.name} combines elements of {operator.element_axes} axes, but elements of shape "
                f"{field.shape} were asked for. Pass shape=..., such as {(2,) * operator.element_axes}"
            )
    operator.check(element)
    _check_number("seed", seed, 0)
    law = _Law(operator, element)
    generator = np.random.default_rng(seed)
    values = isinstance(samples, (tuple, list, dict)) or getattr(samples, "ndim", 0) > 0
    random = not values and not callable(samples)
    if random:
        _check_number("samples", samples, 1)
        triple = [_sample(generator, element, samples) for _ in range(3)]
    elif callable(samples):
        triple = [_parse_samples(samples(generator, TRIPLES), element, TRIPLES) for _ in range(3)]
    else:
        triple = _triples(generator, _parse_samples(samples, element))
    with np.errstate(all="ignore"):
        wrong = np.flatnonzero(law.find_failures(triple))
        if len(wrong):
            failure = _simplest(triple, wrong)
            raise OperatorError(law.describe_failure(_smaller(law, failure) if random else failure))
        _check_identity(law, triple[0])


def _check_number(name: str, number: object, least: int) -> None:
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool):
        others = ". Pass a number, an array of elements, or a function of (rng, count)" if name == "samples" else ""
        raise TypeError(f"{name} is a number, got {number!r}{others}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape that a caller passed, as a tuple."""
    try:
        sizes = tuple(as_index(size) for size in (shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError:
        raise TypeError(f"shape is a tuple of sizes, such as (2, 2), got {shape!r}") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"the sizes in shape must be at least 0, got {shape!r}")
    return sizes


def _element(dtype: object, shape: tuple[int, ...]) -> Element:
    """Return the element of a dtype, a structured dtype, or a bundle of dtypes."""
    structure, leaves = _parse_dtype(dtype)
    return element_of([base for base, _ in leaves], structure, [own + shape for _, own in leaves])


def _parse_dtype(dtype: Any) -> tuple[Structure, list[tuple[AnyDType, tuple[int, ...]]]]:
    """Return how a dtype or a bundle of dtypes nests its leaves, and the dtype and the shape of each."""
    names = [part[0] for part in dtype if isinstance(part, tuple) and part] if isinstance(dtype, list) else []
    if names and len(names) == len(dtype) and all(isinstance(name, str) for name in names):
        # This is NumPy's spelling of a structured dtype: a list of names and dtypes.
        dtype = np.dtype(dtype)
    outer = container_of(dtype)
    if outer is None:
        plain = dtype_from(dtype)
        if plain.names is None:
            base, shape = plain.subdtype or (plain, ())
            return LEAF, [(base, tuple(shape))]
        outer = Structure("structured", plain.names), [plain[name] for name in plain.names]
    container, parts = outer
    if not parts:
        raise ValueError(f"dtype={dtype!r} was passed, which has no fields; pass a dtype, or a bundle of one or more")
    return nest_children(container, [_parse_dtype(part) for part in parts])


class _Law:
    """The associative law of one operator, on arrays of elements."""

    def __init__(self, operator: Operator, element: Element) -> None:
        self.operator = operator
        self.element = element

    def combine(self, left: Sequence[AnyArray], right: Sequence[AnyArray]) -> Arrays:
        """Return the results of the operator for arrays of elements, as an array for each field."""
        if self.operator.function is None:
            return self._combine_on_device(left, right)
        joined = Joiner(self.operator, self.element).combine(tuple(left), tuple(right))
        return [leaf.astype(field.scalar.dtype) for leaf, field in zip(joined, self.element.fields, strict=True)]

    def _combine_on_device(self, left: Sequence[AnyArray], right: Sequence[AnyArray]) -> Arrays:
        """Return the results of a WGSL operator, which has no Python function, by scans of pairs."""
        structure = self.element.structure
        pairs = structure.unflatten([np.stack(sides, axis=1) for sides in zip(left, right, strict=True)])
        return [np.asarray(leaf)[:, 1] for leaf in structure.flatten(scan(pairs, self.operator, axis=1))]

    def sides(self, triple: Sequence[Arrays]) -> tuple[Arrays, Arrays]:
        """Return both sides of the law."""
        a, b, c = triple
        return self.combine(self.combine(a, b), c), self.combine(a, self.combine(b, c))

    def find_failures(self, triple: Sequence[Arrays]) -> AnyArray:
        """Return a bool for each triple: True if it breaks the law."""
        return self.differ(*self.sides(triple))

    def differ(self, left: Arrays, right: Arrays) -> AnyArray:
        """Return a bool for each element: True if `left` and `right` differ by more than the tolerance."""
        wrong = np.zeros(len(left[0]), dtype=bool)
        for field, one, other in zip(self.element.fields, left, right, strict=True):
            unequal = ~_agree(field.scalar, one, other)
            wrong |= unequal.reshape(len(wrong), -1).any(axis=1)
        return wrong

    def describe_failure(self, triple: Sequence[Arrays]) -> str:
        """Return the error message for a counterexample."""
        left, right = self.sides(triple)
        names = ", ".join(f"{name} = {self.format_element(values)}" for name, values in zip("abc", triple, strict=True))
        type_names = ", ".join(field.scalar.name for field in self.element.fields)
        return (
            f"{self.operator.name} is not associative on {type_names}:\n  {names}\n"
            f"  op(op(a, b), c) = {self.format_element(left)}\n  op(a, op(b, c)) = {self.format_element(right)}"
        )

    def format_element(self, values: Arrays) -> str:
        """Return one element as the user would write it."""
        return str(self.element.structure.unflatten([np.asarray(value)[0].tolist() for value in values]))


def _agree(scalar: Scalar, one: AnyArray, other: AnyArray) -> AnyArray:
    if scalar.kind not in ("float", "complex"):
        return np.asarray(one == other)
    wide = np.complex128 if scalar.kind == "complex" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    # Cancellation leaves errors of the size of the numbers that cancelled, so the scale is at least one. In an element
    # with trailing axes each number may be a sum of products of all numbers, so the largest number sets the scale.
    size = np.maximum(np.abs(one), np.abs(other))
    scale = np.fmax.reduce(size, axis=tuple(range(1, size.ndim)), keepdims=True, initial=1.0)
    close = np.abs(one - other) <= TOLERANCE[scalar.name] * scale
    return np.asarray(close | (one == other) | (np.isnan(one) & np.isnan(other)))


# ----- Samples


def _parse_samples(samples: object, element: Element, count: int | None = None) -> Arrays:
    """Return the caller's elements as an array for each field.

    Raises:
        TypeError: the dtype of the element cannot hold them.
        ValueError: they do not nest as the element does, or have another shape or number.
    """
    arrays = []
    for value, field in zip(fields_of(samples, element, "samples"), element.fields, strict=True):
        array = as_scalars(as_array(value), field.scalar, "samples")
        wanted = (len(array) if array.ndim else 0, *field.shape)
        if array.shape != wanted:
            raise ValueError(
                f"samples of shape {array.shape} were passed for elements of shape {field.shape}; pass an array with "
                "one more axis in front"
            )
        arrays.append(array)
    lengths = {len(array) for array in arrays} | ({count} if count is not None else set())
    if len(lengths) > 1 or 0 in lengths:
        counts = " and ".join(str(len(array)) for array in arrays)
        allowed = "one or more, as many in each field" if count is None else f"{count}, as asked for"
        raise ValueError(f"{counts} samples were passed; pass {allowed}")
    return arrays


def _triples(generator: np.random.Generator, arrays: Arrays) -> list[Arrays]:
    """Return triples of these elements: all of them if they are few, else random ones."""
    count = len(arrays[0])
    if count**3 <= TRIPLES:
        indices = np.indices((count,) * 3).reshape(3, -1)
    else:
        indices = np.stack([generator.permutation(np.arange(max(count, TRIPLES)) % count) for _ in range(3)])
    return [[array[chosen] for array in arrays] for chosen in indices]


def _sample(generator: np.random.Generator, element: Element, count: int) -> Arrays:
    samples = []
    for field in element.fields:
        numbers = np.empty((count, field.count), field.scalar.dtype)
        for component in range(field.count):
            numbers[:, component] = _numbers(generator, field.scalar, count)
        samples.append(numbers.reshape(count, *field.shape))
    return samples


def _numbers(generator: np.random.Generator, scalar: Scalar, count: int) -> AnyArray:
    """Return random numbers: half of them small and whole, the others from the whole type (floats: near one)."""
    small = generator.integers(-4 if scalar.kind in ("signed", "float", "complex") else 0, 5, count)
    if scalar.kind == "bool":
        return (small & 1).astype(bool)
    large: AnyArray
    if scalar.kind == "float":
        large = generator.normal(0, 1, count)
    elif scalar.kind == "complex":
        small = small + 1j * generator.integers(-4, 5, count)
        large = generator.normal(0, 1, count) + 1j * generator.normal(0, 1, count)
    else:
        limits = np.iinfo(scalar.dtype)
        large = generator.integers(limits.min, limits.max, count, dtype=scalar.dtype, endpoint=True)
        return np.where(generator.random(count) < 0.5, small.astype(scalar.dtype), large)
    return np.where(generator.random(count) < 0.5, small, large).astype(scalar.dtype)


# ----- The smallest counterexample


def _simplest(triple: Sequence[Arrays], wrong: AnyArray) -> list[Arrays]:
    """Return the simplest of the counterexamples."""
    sizes = sum(_size(values) for values in [array for arrays in triple for array in arrays])
    first = wrong[np.argmin(np.asarray(sizes)[wrong])]
    return [[array[first : first + 1].copy() for array in arrays] for arrays in triple]


def _smaller(law: _Law, smallest: list[Arrays]) -> list[Arrays]:
    """Shrink a counterexample, number by number, as long as it stays one."""
    improved = True
    while improved:
        improved = False
        for candidate in _simpler(smallest):
            if law.find_failures(candidate)[0]:
                smallest, improved = candidate, True
                break
    return smallest


def _size(values: AnyArray) -> AnyArray:
    rows = values.reshape(len(values), -1)
    wide = np.complex128 if rows.dtype.kind == "c" else np.float64
    numbers = rows.astype(wide)
    return np.asarray((np.abs(numbers) + 100 * (numbers != np.round(numbers))).sum(axis=1))


def _simpler(triple: Sequence[Arrays]) -> Iterator[list[Arrays]]:
    """Yield copies of the triple in which one number is nearer to zero, or whole."""
    for side, arrays in enumerate(triple):
        for index, array in enumerate(arrays):
            for at in np.ndindex(array.shape):
                number = array[at].item()
                whole = complex(round(number.real), round(number.imag)) if isinstance(number, complex) else None
                for simple in (0, 1, round(number.real) if whole is None else whole, -number, _halve(number)):
                    if _simplicity(simple) < _simplicity(number) and _holds(array.dtype, simple):
                        changed = [[array.copy() for array in side_arrays] for side_arrays in triple]
                        changed[side][index][at] = simple
                        yield changed


def _holds(dtype: AnyDType, number: complex) -> bool:
    """Return True unless `dtype` is an integer type that cannot hold the number."""
    return dtype.kind not in "iu" or np.iinfo(dtype).min <= number.real <= np.iinfo(dtype).max


def _halve(number: complex) -> complex:
    return number if isinstance(number, complex) else int(number / 2)


def _simplicity(number: complex) -> tuple[bool, float, bool]:
    """Return a sort key: whole numbers before fractions, small before large, positive before negative."""
    broken = number != (
        complex(round(number.real), round(number.imag)) if isinstance(number, complex) else round(number)
    )
    return broken, abs(number), number.real < 0


# ----- The identity


def _check_identity(law: _Law, elements: Arrays) -> None:
    identity = law.operator.identity_for(law.element)
    # The identities of the named operators are known to be right. Zero, the identity of gcd and hypot, keeps an element
    # only up to its sign, which both operators drop.
    if identity is None or law.operator.kinds is not None:
        return
    repeated = [np.broadcast_to(one, like.shape) for one, like in zip(identity, elements, strict=True)]
    for text, result in (
        ("op(identity, a)", law.combine(repeated, elements)),
        ("op(a, identity)", law.combine(elements, repeated)),
    ):
        wrong = np.flatnonzero(law.differ(result, elements))
        if len(wrong):
            a, actual = (
                law.format_element([array[wrong[0] : wrong[0] + 1] for array in arrays])
                for arrays in (elements, result)
            )
            raise OperatorError(
                f"the identity of {law.operator.name} changes an element:\n"
                f"  a = {a}, identity = {law.format_element([array[:1] for array in repeated])}\n"
                f"  {text} = {actual}"
            )
