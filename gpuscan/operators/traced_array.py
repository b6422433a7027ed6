"""`Traced`: the argument of a function while it is traced. It acts as a NumPy array and builds the expression graph.

A traced value stands for an array with unknown leading axes; the trailing axes belong to the element. Code that is
right for it is right, unchanged, for the NumPy arrays of `device="numpy"`. Code that would mean another thing there (an
index without ``...``, an axis counted from the front) is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType, ArrayOperators
from gpuscan.elements import Scalar, scalar_of
from gpuscan.errors import OperatorError, UnsupportedDtypeError, abbreviate
from gpuscan.operators.expression_graph import BOOL, COMPLEX64, FLOAT32, Graph, Node, needs_widening, reachable
from gpuscan.operators.parameter_array import ParameterArray, arrays_hold
from gpuscan.operators.parameters import FLOATS, INTEGERS, Parameter, derive, is_between, reveal
from gpuscan.operators.source_location import missing_axis_error, operator_error
from gpuscan.operators.traced_ufuncs import KNOWN, NoSuchForm, build
from gpuscan.sizes import has_size

Python = (bool, int, float, complex)
_PYTHON_NUMBERS = frozenset({int, float, complex})
# The types of numbers that parameters can stand for in a graph.
_NUMBERS = FLOATS | INTEGERS | _PYTHON_NUMBERS
COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})

# The traced form of each NumPy function; `gpuscan.operators.traced_functions` fills it.
ARRAY_FUNCTIONS: dict[object, Callable[..., Any]] = {}


class ElementShape(tuple[int, ...]):
    """The shape of a traced value. It stays one if trailing axes are cut off or added, as on arrays: x.shape[:-1]."""

    def __getitem__(self, index: Any) -> Any:
        entry = super().__getitem__(index)
        from_start = isinstance(index, slice) and index.start is None and index.step is None
        return ElementShape(entry) if from_start and (index.stop is None or index.stop < 0) else entry

    def __add__(self, other: Any) -> ElementShape:
        return ElementShape((*self, *other))


class Traced(ArrayOperators):
    """An array of expression nodes of one type; shape ``()`` for an element that is one number."""

    __slots__ = ("graph", "nodes", "scalar", "weak")

    def __init__(self, graph: Graph, nodes: AnyArray, scalar: Scalar, *, weak: bool = False) -> None:
        self.graph = graph
        self.nodes = nodes
        self.scalar = scalar
        # True in a step of a loop for what is computed of Python numbers and conditions alone, such as
        # np.where(x > 0, 1, -1): like those, it takes the type of the other side.
        self.weak = weak

    # ----- Attributes

    @property
    def dtype(self) -> AnyDType:
        return self.scalar.dtype

    @property
    def shape(self) -> ElementShape:
        return ElementShape(self.nodes.shape)

    @property
    def ndim(self) -> int:
        if not self.graph.whole:
            raise operator_error(
                "x.ndim counts the scanned axes of an array, too; write len(x.shape) for the element's"
            )
        return self.nodes.ndim

    @property
    def size(self) -> int:
        if not self.graph.whole:
            raise operator_error("x.size counts the scanned axes of an array, too")
        return self.nodes.size

    @property
    def real(self) -> Traced:
        return self._part(0)

    @property
    def imag(self) -> Traced:
        return self._part(1)

    def _part(self, index: int) -> Traced:
        if self.scalar != COMPLEX64:
            return self if index == 0 else constant_like(self, 0)
        return elementwise(self.graph, lambda node: self.graph.parts(node)[index], [self.nodes], FLOAT32)

    @property
    def T(self) -> Traced:  # noqa: N802 (NumPy's name)
        if not self.graph.whole:
            raise operator_error("x.T reverses the scanned axes of an array, too; write x.mT for a matrix")
        self.note_transposed()
        return Traced(self.graph, self.nodes.T, self.scalar)

    @property
    def mT(self) -> Traced:  # noqa: N802 (NumPy's name)
        return Traced(self.graph, np.swapaxes(self.nodes, -1, -2), self.scalar)

    # ----- Conversions

    def astype(self, dtype: object, copy: bool = True) -> Traced:
        scalar = find_scalar(dtype)
        return elementwise(self.graph, lambda node: self.graph.cast(node, scalar), [self.nodes], scalar)

    def view(self, dtype: object) -> Traced:
        scalar = find_scalar(dtype)
        if self.scalar.kind == "float" and self.scalar.bits == 16 and needs_widening(self.nodes.flat):
            raise operator_error(
                f".view({scalar.name}) of {self.scalar.name}, which is combined as float32, rounded when stored; "
                "write .astype(np.float32).view(np.uint32)"
            )
        return self.bits_as(dtype)

    def bits_as(self, dtype: object) -> Traced:
        """Return the bits as they are stored. `view` gives them only if NumPy has them too."""
        scalar = find_scalar(dtype)
        if scalar == self.scalar:
            return self
        if scalar.bits != self.scalar.bits or "complex" in (scalar.kind, self.scalar.kind):
            raise operator_error(
                f".view({scalar.name}) of {self.scalar.name} changes the shape; use a type of the same size, or x.real "
                "and x.imag"
            )
        if "bool" in (scalar.kind, self.scalar.kind):
            return self.astype(scalar.dtype)
        return elementwise(self.graph, lambda node: self.graph.view(node, scalar), [self.nodes], scalar)

    # ----- Indexing

    def note_number(self) -> None:
        """Note that a function of all entries met a single number, if this is one: it may mean a whole carry."""
        self.graph.contracts_numbers |= not self.shape

    def note_transposed(self) -> None:
        """Note that a transposition met a single number or a vector, if this is one: it may mean a matrix."""
        self.note_number()
        self.graph.meets_vectors |= len(self.shape) == 1

    def __getitem__(self, index: object) -> Traced:
        parts = index if isinstance(index, tuple) else (index,)
        if self.graph.whole and self.shape and any(isinstance(part, Traced) for part in parts):
            return self._choose_entry(parts)
        return Traced(self.graph, np.asarray(self.nodes[self._check_index(index)], dtype=object), self.scalar)

    def _choose_entry(self, parts: tuple[object, ...]) -> Traced:
        """Return an entry of a whole array for indices that are known only on the GPU."""
        index, rest = parts[0], parts[1:]
        if not isinstance(index, Traced):
            entry = self[index]
            return entry[rest] if rest else entry
        where: Any = np.where
        chosen = self[(0, *rest)]
        for position, is_index in enumerate(self._is_index_of(index)):
            chosen = where(is_index, self[(position, *rest)], chosen)
        return chosen

    def _is_index_of(self, index: Traced) -> list[Traced]:
        """Return for each entry of a whole array if an index that is known only on the GPU means it."""
        if index.shape or not index.scalar.is_integer:
            raise operator_error(
                "an index that is known only on the GPU must be one integer; write np.where(mask, a, b) for a mask"
            )
        if index.scalar.kind == "signed":
            where: Any = np.where
            index = where(index < 0, index + len(self), index)
        return [index == position for position in range(len(self))]

    def __setitem__(self, index: object, value: object) -> None:
        if not self.nodes.flags.writeable:
            raise operator_error(
                "the function writes into its argument; make a new array: np.copy, np.where or np.stack"
            )
        if not isinstance(value, Traced):
            value = constant_like(self, value)
        if isinstance(index, Traced) and self.graph.whole and self.shape:
            for position, is_index in enumerate(self._is_index_of(index)):
                self[position] = np.where(is_index, value.astype(self.dtype), self[position])
            return
        nodes = value.astype(self.dtype).nodes
        # A number is taken out of its array, so that an index of one entry does not store the array.
        self.nodes[self._check_index(index)] = nodes if nodes.shape else nodes[()]

    def _check_index(self, index: object) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, Traced) for part in parts):
            raise operator_error(
                "an index that depends on the data is not traced; write np.where(mask, a, b), or "
                "np.take_along_axis(values, indices, axis=-1) along an axis of the element"
            )
        if not any(part is Ellipsis for part in parts) and not (self.graph.whole and self.shape):
            if self.graph.whole and all(part is None for part in parts):
                self.note_number()
                return index
            if not self.shape:
                entries = (
                    "for entries, pass arrays with an axis more than the loop's"
                    if self.graph.whole
                    else "only a declared trailing axis has entries: gs.operator(function, element_axes=1)"
                )
                raise missing_axis_error(
                    f"the function indexes {abbreviate(index)} into one {self.scalar.name} number; only a bundle has "
                    f"fields (pass a tuple of arrays), and {entries}"
                )
            text = ", ".join(str(part) for part in parts)
            raise operator_error(f"[{text}] would index the scanned axes of an array; write [..., {text}]")
        return index

    def __iter__(self) -> Iterator[Traced]:
        if self.graph.whole and self.shape:
            return (self[i] for i in range(len(self.nodes)))
        raise operator_error(
            "a traced array is not iterated over; index its trailing axis: x[..., 0], x[..., 1], or take its entries "
            "by np.unstack(x, axis=-1) of NumPy 2.1, and where a value decides, write np.where(condition, a, b)"
        )

    def __len__(self) -> int:
        if self.graph.whole and self.shape:
            return len(self.nodes)
        raise operator_error("a traced array has no len(); write x.shape[-1] for its trailing axis")

    def __contains__(self, item: object) -> bool:
        raise operator_error("`in` asks for one answer; write np.any(x == item, axis=-1)")

    def __repr__(self) -> str:
        what = f"an array of shape {tuple(self.shape)}" if self.shape else "a number"
        return f"<{what} of {self.scalar.name}, known only on the GPU>"

    # ----- What cannot be traced

    def __bool__(self) -> bool:
        if self.graph.answer is not None and not self.shape:
            (node,) = self.astype(bool).nodes.ravel()
            return bool(node.reveal(bool)) if node.is_constant else self.graph.answer(node)
        raise operator_error(
            "the function asks Python for the truth of a value that is known only on the GPU (if, while, and, or, "
            "not, min, max); write np.where(condition, a, b), & | ~, np.minimum, np.maximum"
        )

    def _number(self, *_: object) -> NoReturn:
        raise operator_error(
            "the function turns a value that is known only on the GPU into a Python number (int, float, round, "
            "np.float64, math.*); write .astype(np.int32), np.round, np.exp, np.sqrt and their like, and "
            "np.where(condition, a, b) where it decides"
        )

    __complex__ = __round__ = item = tolist = _number

    def __index__(self) -> int:
        raise operator_error(
            "the function uses a value that is known only on the GPU as a Python index or count (of a list, a tuple or "
            "a range); in a step of gpuscan.loop, use a NumPy array outside of the function as a table. Otherwise "
            "write np.select([i == 0, i == 1, ...], table)"
        )

    def __hash__(self) -> int:
        raise operator_error(
            "the function looks up a value in a dict or a set, but the value is known only on the GPU; write "
            "np.select([i == 0, i == 1, ...], values) for a dict, and (i == 0) | (i == 1) for a set"
        )

    def __int__(self) -> int:
        return int(bool(self)) if self.scalar == BOOL else self._number()

    def __float__(self) -> float:
        return float(bool(self)) if self.scalar == BOOL else self._number()

    def __array__(self, dtype: object = None, copy: bool | None = None) -> AnyArray:
        if self.graph.whole and dtype in (None, object):
            numbers = np.empty(self.shape, dtype=object)
            for at in np.ndindex(self.shape):
                numbers[at] = Traced(self.graph, np.asarray(self.nodes[at], dtype=object), self.scalar)
            return numbers
        raise operator_error(
            "a traced value does not become a NumPy array; write .astype(dtype) to convert it, np.stack([a, b], "
            "axis=-1) for a vector of numbers, np.select([i == 0, i == 1, ...], values) for a table, and one "
            "np.where for each field of a tuple"
        )

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols ask whether there is such a thing
        function: Any = getattr(np, name, None)
        if function in METHODS:
            return lambda *args, **options: function(self, *args, **options)
        raise operator_error(
            f"the function reads .{name} of a value that is known only on the GPU, which has no such attribute. If "
            "NumPy has a function for it, call that one"
        )

    # ----- NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: Any) -> object:
        out = options.pop("out", None)
        inputs = tuple(map(reveal, inputs)) if has_size(inputs) else inputs
        if method == "reduce" and self.graph.whole:
            options.setdefault("axis", 0)
        if method == "reduce" and ufunc in REDUCTIONS:
            return ARRAY_FUNCTIONS[REDUCTIONS[ufunc]](*inputs, **options)
        if method == "reduce" and list(options) == ["axis"] and ufunc.nin == 2 and ufunc.signature is None:
            axis = options["axis"]
            if self.graph.whole or axis in range(-len(self.shape), 0):
                return _reduce_along(ufunc, inputs[0], axis)
        if method != "__call__" or options:
            call = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            raise operator_error(
                f"{call}({', '.join(f'{name}=' for name in options)}) is not traced; call np.{ufunc.__name__} without "
                "options, or its .reduce along an axis of the element, counted from the end (axis=-1)"
            )
        results = call_ufunc(ufunc, inputs)
        if out is None or (self.graph.whole and isinstance(out[0], Traced) and not out[0].shape):
            # A number of a step of a loop does not change in place: h += x makes a new one, as of NumPy's scalars.
            return results[0] if len(results) == 1 else results
        for target, result in zip(out, results, strict=True):
            if not isinstance(target, Traced) or target.scalar != result.scalar or target.shape != result.shape:
                raise operator_error(
                    f"np.{ufunc.__name__} gives {result.dtype}{result.shape}, which `out` cannot hold; leave `out` out"
                )
            target[...] = result
        return out[0] if len(out) == 1 else out

    def __array_function__(
        self,
        function: Callable[..., object],
        types: Iterable[type],
        args: Iterable[object],
        options: Mapping[str, object],
    ) -> object:
        traced = ARRAY_FUNCTIONS.get(function)
        if traced is None:
            names = ", ".join(sorted(name_of_function(traced_function) for traced_function in ARRAY_FUNCTIONS))
            raise operator_error(
                f"{name_of_function(function)} is not traced; write it with NumPy's ufuncs and those that are: {names}"
            )
        try:
            return traced(*map(reveal, args) if has_size(args) else args, **options)
        except TypeError as error:
            raise operator_error(f"{name_of_function(function)}, traced: {error}") from error


def entries_along(array: Traced, axis: int) -> list[Traced]:
    """Return the entries of a traced array along one of its axes."""
    parts = np.moveaxis(array.nodes, axis, 0)
    return [Traced(array.graph, np.asarray(part, dtype=object), array.scalar) for part in parts]


def no_entries_error(name: str, shape: tuple[int, ...], axis: object) -> OperatorError:
    """Return the error for a reduction of nothing."""
    return operator_error(
        f"{name} was called with axis={axis} on an array of shape {shape}, but this axis has no entries; pass an axis "
        "of at least one entry"
    )


def _reduce_along(ufunc: np.ufunc, array: Any, axis: int | None) -> Traced:
    """Return the reduction of whole arrays by a ufunc, from left to right."""
    nodes = array.nodes.reshape(-1) if axis is None else array.nodes
    parts = entries_along(Traced(array.graph, nodes, array.scalar), axis or 0)
    if not parts:
        raise no_entries_error(f"np.{ufunc.__name__}.reduce", array.shape, axis)
    return functools.reduce(lambda left, right: call_ufunc(ufunc, (left, right))[0], parts)


# A number of an element: a traced value, or while NumPy computes, an array of the scanned axes.
Number: TypeAlias = AnyArray | Traced


def name_of_function(function: Any) -> str:
    """Return the name by which a user calls a NumPy function, such as ``np.linalg.inv``."""
    module = (getattr(function, "__module__", None) or "numpy").split(".")
    shown = [part for part in module[1:] if not part.startswith("_")]
    return ".".join(["np", *shown, function.__name__])


REDUCTIONS = {np.add: np.sum, np.multiply: np.prod, np.minimum: np.min, np.maximum: np.max}
METHODS = {np.sum, np.prod, np.mean, np.min, np.max, np.any, np.all, np.clip, np.round, np.copy, np.conj, np.swapaxes}
METHODS |= {np.squeeze, np.transpose, np.reshape, np.ravel, np.dot, np.argmax, np.argmin}


def find_scalar(dtype: Any) -> Scalar:
    """Return the scalar of a dtype that the user passed."""
    try:
        return scalar_of(np.dtype(dtype))
    except UnsupportedDtypeError as error:
        raise operator_error(str(error)) from error


def elementwise(graph: Graph, function: Callable[..., Node], arrays: Sequence[AnyArray], scalar: Scalar) -> Traced:
    """Apply a function to the nodes of each component."""
    nodes = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return Traced(graph, np.asarray(nodes, dtype=object), scalar)


def complex_of(real: Traced, imag: Traced) -> Traced:
    """Return the complex64 number of two float32 parts, with their bits unchanged."""
    return elementwise(real.graph, real.graph.complex, [real.nodes, imag.nodes], COMPLEX64)


def constant_like(like: Traced, value: object) -> Traced:
    """Return a constant (a Python number, a NumPy scalar or array) in the type of `like`."""
    return constant(like.graph, value, like.scalar)


def constant(graph: Graph, value: object, scalar: Scalar) -> Traced:
    if type(value) is Parameter and value.number_type in _NUMBERS:
        check_fits(value, scalar)
        nodes = np.empty((), dtype=object)
        nodes[()] = graph.constant(value, scalar)
        return Traced(graph, nodes, scalar)
    if isinstance(value, ParameterArray):
        return elementwise(graph, lambda number: graph.constant(number, scalar), [value.numbers()], scalar)
    value = reveal(value)
    if isinstance(value, Python) and not isinstance(value, np.generic):
        check_fits(value, scalar)
    numbers = np.asarray(value)
    if numbers.dtype == object:
        raise operator_error(
            f"{abbreviate(value)} is no number; write np.stack([a, b], axis=-1) for a vector of traced numbers"
        )
    return elementwise(graph, lambda number: graph.constant(number, scalar), [numbers.astype(object)], scalar)


def is_python_integer(value: object) -> bool:
    """Return True for an integer of Python, or a parameter in its place."""
    return type(value) is int or (type(value) is Parameter and value.number_type is int)


def fits(value: Any, scalar: Scalar) -> bool:
    """Return True unless the value is a Python int that the integer type cannot hold."""
    if not is_python_integer(value) or not scalar.is_integer:
        return True
    limits = np.iinfo(scalar.dtype)
    least, most = int(limits.min), int(limits.max)
    if type(value) is not Parameter:
        return is_between(value, least, most)
    # For a later number that does not fit, a program has no bytes of the constant.
    return is_between(value.present, least, most) or bool(reveal(derive(is_between, value._expression, least, most)))


def check_fits(value: object, scalar: Scalar) -> None:
    if not fits(value, scalar):
        value = value.present if type(value) is Parameter else value  # the message does not reveal it
        raise operator_error(f"the Python number {value} does not fit {scalar.name}; write np.int64({value})")


def is_weak(value: object) -> bool:
    """Return True for a Python number, which takes the type of the other side (NEP 50)."""
    if type(value) is Parameter:
        return value.number_type in _PYTHON_NUMBERS
    return isinstance(value, (int, float, complex)) and not isinstance(value, (bool, np.generic))


# The type of Python numbers of each kind, and the dtype of what is computed of them alone in a step of a loop.
_PYTHON_TYPES: dict[str, type] = {"signed": int, "float": float, "complex": complex}
_WEAK_DTYPES: dict[type, type[np.generic]] = {int: np.int32, float: np.float32, complex: np.complex64}


def weak_dtype(dtypes: Sequence[object], traced: Sequence[Traced]) -> AnyDType | None:
    """Return the dtype of what a step of a loop computes of Python numbers and bools; None if there are others.

    They have 64 bits, as in NumPy, if the step has such numbers. Results with these would be wrong in the last digits
    otherwise, or wrap around.
    """
    python = [dtype for dtype in dtypes if isinstance(dtype, type) and dtype in _WEAK_DTYPES]
    others = [dtype for dtype in dtypes if not isinstance(dtype, type) and dtype != np.dtype(bool)]
    if not traced or not traced[0].graph.whole or not python or others:
        return None
    widest, wide = max(python, key=list(_WEAK_DTYPES).index), traced[0].graph.wide
    if widest is float and "float" in wide:
        return np.dtype(np.float64)
    if widest is int and (wide or any(operand.weak and operand.scalar.bits == 64 for operand in traced)):
        return np.dtype(np.int64)
    return np.dtype(_WEAK_DTYPES[widest])


def choose_signed(value: Traced, traced: Sequence[Traced]) -> AnyDType | None:
    """Return the dtype in which a step of a loop combines Python numbers that may be negative with unsigned numbers.

    In NumPy, ``np.where(c, 1, -1)`` is int64. None if the numbers are not negative, or the others not unsigned.
    """
    bits = [operand.scalar.bits for operand in traced if not operand.weak and operand.scalar.kind == "unsigned"]
    if not bits or value.scalar.kind != "signed" or not value.weak:
        return None
    nodes = reachable(list(value.nodes.ravel()))
    if not any(node.op in ("subtract", "negative", "invert") or _is_negative(node) for node in nodes):
        return None
    return np.dtype(np.int64 if max(bits) > 16 else np.int32)


def _is_negative(node: Node) -> bool:
    return node.is_constant and node.scalar.kind == "signed" and node.reveal(is_below_zero)


def is_below_zero(value: float) -> bool:
    """Return True for a negative number."""
    return bool(value < 0)


def dtype_or_type(value: object, traced: Sequence[Traced]) -> type | AnyDType:
    """Return an operand as NumPy's promotion takes it: its dtype, or the Python type of a Python number."""
    if isinstance(value, Traced):
        return choose_signed(value, traced) or (_PYTHON_TYPES[value.scalar.kind] if value.weak else value.dtype)
    if is_weak(value):
        narrow = next((operand.dtype for operand in traced if operand.dtype.name == "bfloat16"), None)
        of_value = value.number_type if type(value) is Parameter else type(value)
        if narrow is not None and not issubclass(of_value, complex):
            return narrow  # NumPy does not promote a Python number with a bfloat16
        return next(number_type for number_type in (int, float, complex) if issubclass(of_value, number_type))
    if type(value) is Parameter and value.number_type in _NUMBERS:
        return np.dtype(value.number_type)
    value = reveal(value)
    dtype = value.dtype if isinstance(value, ParameterArray) else np.asarray(value).dtype
    return float if dtype == np.float64 and is_exact_constant(value) else dtype


def common_dtype(operands: Sequence[type | AnyDType]) -> AnyDType:
    """Return the dtype that NumPy promotes operands to, given as `dtype_or_type` returns them."""
    return np.result_type(*(operand(0) if isinstance(operand, type) else operand for operand in operands))


def is_exact_constant(value: object) -> bool:
    """Return True for a float64 array such as ``np.eye(2)``, which float32 holds exactly: it takes the other's type."""
    if not isinstance(value, (np.ndarray, ParameterArray)) or not value.ndim or value.dtype != np.float64:
        return False
    return arrays_hold(_is_exact, value)


def _is_exact(array: AnyArray) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(array, array.astype(np.float32), equal_nan=True)


def broadcast_check(name: str, traced: Sequence[Traced]) -> None:
    """Refuse traced operands of different numbers of axes: on arrays the scanned axes come before them."""
    shapes = [operand.shape for operand in traced]
    if traced and traced[0].graph.whole:
        try:
            np.broadcast_shapes(*shapes)
        except ValueError as error:
            raise operator_error(f"{name} of the shapes {' and '.join(map(str, shapes))}: {error}") from None
        return
    if len({len(shape) for shape in shapes}) > 1:
        raise operator_error(
            f"{name} of element shapes {' and '.join(map(str, shapes))}: on arrays these axes would not line up; "
            "write x[..., None] to give a number an axis"
        )


def check_float64(name: str, dtypes: Sequence[object], results: Sequence[AnyDType], traced: Sequence[Traced]) -> None:
    """Refuse NumPy's promotion to float64 if no operand is float64: few adapters have it.

    Steps of loops may compute in it: what their carry has not fits is refused there.
    """
    if traced and traced[0].graph.whole:
        return
    if any(np.dtype(result) == np.float64 for result in results) and all(t.dtype != np.float64 for t in traced):
        shown = " and ".join(str(getattr(dtype, "__name__", dtype)) for dtype in dtypes)
        integers = [dtype for dtype in dtypes if isinstance(dtype, np.dtype) and dtype.kind in "iu"]
        if integers and np.result_type(*integers) == np.float64:
            advice = ".astype(np.int64) on the unsigned number, or .astype(np.uint64) on the signed one"
        else:
            advice = ".astype(np.float32) on what is not float32 yet, and np.float32(…) for a NumPy number"
        raise operator_error(f"{name} of {shown} is float64 in NumPy, and few GPUs have float64; write {advice}")


def join_numbers(value: object) -> object:
    """Return an array of traced numbers, such as ``np.array([a, b])`` makes, as a traced value; others as they are.

    In steps of loops, lists of numbers are arrays as well.
    """
    if isinstance(value, (list, tuple)) and any(isinstance(item, Traced) and item.graph.whole for item in value):
        array = np.empty(len(value), dtype=object)
        array[:] = value
        value = array
    if not isinstance(value, np.ndarray) or value.dtype != object or not value.size:
        return value
    numbers = list(value.flat)
    traced = [item for item in numbers if isinstance(item, Traced)]
    if not traced:
        return value
    graph = traced[0].graph
    dtype = common_dtype([dtype_or_type(number, traced) for number in numbers])
    nodes = np.empty(len(numbers), dtype=object)
    for index, number in enumerate(numbers):
        nodes[index] = operand(graph, number, find_scalar(dtype))[()]
    return Traced(graph, nodes.reshape(value.shape), find_scalar(dtype))


def call_ufunc(ufunc: np.ufunc, inputs: Sequence[object]) -> tuple[Traced, ...]:
    """Return the results of ``ufunc(*inputs)``, with NumPy's own promotion."""
    inputs = [join_numbers(value) for value in inputs]
    if ufunc in MULTIPLE:
        return tuple(result for part in MULTIPLE[ufunc] for result in call_ufunc(part, inputs))
    if ufunc in ARRAY_FUNCTIONS:
        return (ARRAY_FUNCTIONS[ufunc](*inputs),)
    name = ufunc.__name__
    if name not in KNOWN:
        module = "np." if getattr(np, name, None) is ufunc else ""
        raise operator_error(
            f"the ufunc {module}{name} is not traced; write it with those that are: {', '.join(sorted(KNOWN))}"
        )
    traced = [value for value in inputs if isinstance(value, Traced)]
    graph = traced[0].graph
    if any(item.graph is not graph for item in traced):
        raise operator_error("the function uses a value of an earlier call; it must depend on its arguments alone")
    broadcast_check(f"np.{name}", traced)
    dtypes = [dtype_or_type(value, traced) for value in inputs]
    try:
        loop = ufunc.resolve_dtypes((*dtypes, *[None] * ufunc.nout))
    except TypeError as error:
        shown = ", ".join(str(getattr(item, "__name__", item)) for item in dtypes)
        raise operator_error(f"np.{name} is not defined for {shown} in NumPy; {_instead(name, dtypes)}") from error
    narrow = weak_dtype(dtypes, traced)
    weak = narrow is not None and narrow.kind == loop[-1].kind
    # The sum of an unsigned number of the carry and a Python number is cast to the carry's type again.
    weak |= loop[-1].kind == "i" and any(choose_signed(item, traced) is not None for item in traced)
    if narrow is not None:
        loop = ufunc.resolve_dtypes((*[narrow] * ufunc.nin, *[None] * ufunc.nout))
    check_float64(f"np.{name}", dtypes, loop, traced)
    if name in COMPARISONS:
        answer = _beyond_range(ufunc, inputs, traced[0])
        if answer is not None:
            return (answer,)
    scalars = [find_scalar(dtype) for dtype in loop]
    arrays = [operand(graph, value, scalar) for value, scalar in zip(inputs, scalars[: ufunc.nin], strict=True)]
    try:
        with graph.as_part_of(name):
            computed = elementwise(graph, lambda *nodes: build(graph, name, nodes, scalars[-1]), arrays, scalars[-1])
        return (Traced(graph, computed.nodes, computed.scalar, weak=weak) if weak else computed,)
    except NoSuchForm as error:
        raise operator_error(f"np.{name} of {error} has no form on a GPU; {_instead(name, dtypes)}") from None
    except OperatorError:
        raise
    except ValueError as error:
        raise operator_error(f"np.{name}: {error}") from error


def _instead(name: str, dtypes: Sequence[object]) -> str:
    """Say what to write in place of a ufunc that is not defined for these types."""
    if any(dtype == np.complex64 for dtype in dtypes):
        return "compute it from x.real and x.imag, which are float32"
    if any(dtype == np.float64 for dtype in dtypes):
        return "write .astype(np.float32) on its arguments"
    return f"write .astype(...) of a type that np.{name} takes on its arguments"


MULTIPLE: dict[np.ufunc, tuple[np.ufunc, ...]] = {np.divmod: (np.floor_divide, np.remainder)}


def operand(graph: Graph, value: object, scalar: Scalar) -> AnyArray:
    """Return the nodes of a traced value or a constant, cast to `scalar`."""
    return (value.astype(scalar.dtype) if isinstance(value, Traced) else constant(graph, value, scalar)).nodes


@functools.lru_cache(maxsize=8)
def _comparison(ufunc: np.ufunc) -> Callable[..., bool]:
    """Return the comparison of two numbers as floats."""
    return lambda one, other: bool(ufunc(float(one), float(other)))


def _beyond_range(ufunc: np.ufunc, inputs: Sequence[object], traced: Traced) -> Traced | None:
    """Compare with a Python int that the type cannot hold, by its true value as NumPy does; else return None."""
    if all(fits(value, traced.scalar) for value in inputs):
        return None
    sides = [0.0 if isinstance(value, Traced) else value for value in inputs]
    given = [side._expression if type(side) is Parameter else side for side in sides]
    answer = traced.graph.constant(reveal(derive(_comparison(ufunc), *given)), BOOL)
    return elementwise(traced.graph, lambda _: answer, [traced.nodes], BOOL)
