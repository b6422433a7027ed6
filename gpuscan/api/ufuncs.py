"""NumPy's ufuncs on `gpuscan.Array`: calls as fused maps, `accumulate` as scans, `reduce` and `reduceat`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from gpuscan.api.array import Array, SomeArray, answer_protocols, new_array
from gpuscan.api.array_indices import take_at
from gpuscan.api.call_device import find_call_device
from gpuscan.api.cumulative_sums import promote_dtype
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable
from gpuscan.api.map import common_shape, is_number, map_leaves, numbers_of
from gpuscan.api.map import map as map_arrays
from gpuscan.api.outputs import in_out
from gpuscan.api.reduce import reduce
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.device_array import DeviceArray, number_in, upload_number
from gpuscan.device.device_array import is_number as is_number_type
from gpuscan.engine.kept_programs import launch_before
from gpuscan.errors import OperatorError, abbreviate
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.parameter_array import as_half, check_exponent, is_float_parameter
from gpuscan.operators.parameters import INTEGERS, NUMBERS, Parameter, reveal, spelling
from gpuscan.operators.trace import Map, trace_function
from gpuscan.problem.arguments import as_array, native, resolve_axes, resolve_axis

# For these ufuncs, integers are combined in 64 bits, as in NumPy.
_PROMOTED = (np.add, np.multiply)
# Ufuncs that are traced with the constants that they are called with.
_WITH_CONSTANTS = (np.power, np.float_power)
_EQUALITIES = (np.equal, np.not_equal)
_LOGICAL = (np.logical_and, np.logical_or, np.logical_xor)
# For these ufuncs, NumPy's reductions begin with 0, so that a single number loses its sign.
_UNSIGNED = (np.gcd, np.hypot)


NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


def apply_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[object, ...], options: Mapping[str, object] = NO_OPTIONS
) -> object:
    """Return the result of a ufunc for arrays on a device; `Array.__array_ufunc__` calls this.

    Raises:
        TypeError: it is not computed on a device; the message names ``.numpy()``.
    """
    if any(_is_foreign(value) for value in inputs):
        return NotImplemented
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    options = dict(options)
    out = options.pop("out", None)
    forms: Mapping[str, Callable[..., object]] = {
        "__call__": _call_ufunc,
        "accumulate": _accumulate,
        "reduce": _reduce_ufunc,
        "reduceat": _reduce_at,
    }
    if method not in forms or (ufunc.signature is not None):
        raise not_on_device(name)
    if method != "__call__" and not isinstance(inputs[0], Array):
        raise not_on_device(f"{name} of a NumPy array with a gpuscan.Array")
    targets = out if isinstance(out, tuple) else () if out is None else (out,)
    for target in targets:
        if target is not None and not isinstance(target, Array):
            raise TypeError(
                f"{name} was called with out={type(target).__name__}, but its result is on a device. Pass a "
                "gpuscan.Array, or compute on the CPU: array.numpy()"
            )
    if len(targets) > 1 and any(target is None for target in targets):
        raise not_on_device(f"{name} with some of the outputs")
    try:
        return forms[method](ufunc, name, inputs, targets, options)
    except OperatorError as error:
        raise not_on_device(name, str(error).partition("\n")[0]) from error


def not_on_device(what: str, reason: str = "") -> TypeError:
    """Return the error for a function of NumPy that is not computed on a device."""
    because = reason or "it is not computed on a device"
    return TypeError(f"{what} was called on a gpuscan.Array: {because}. On the CPU, pass array.numpy()")


@cache
def find_target(form: Callable[..., object]) -> tuple[int, str]:
    """Return the position and the name of the parameter for the array that a function of NumPy writes."""
    names = list(inspect.signature(form).parameters)
    name = "dst" if "dst" in names else "out"
    return names.index(name) if name in names else len(names), name


def _is_foreign(value: object) -> bool:
    """Return True for an object of another library that implements ``__array_ufunc__`` itself."""
    is_ours = isinstance(value, (Array, Parameter, np.ndarray, np.generic))
    return not is_ours and getattr(type(value), "__array_ufunc__", None) is not None


def _refuse(name: str, options: Mapping[str, object]) -> None:
    """Raise TypeError if an option is left that would change the result."""
    # The type is checked first, since comparing an array with a value gives an array, not a bool.
    harmless = {"where": True, "subok": True, "order": "K", "casting": "same_kind"}
    left = [
        option
        for option, value in options.items()
        if value is not None and not (isinstance(value, (bool, str)) and value == harmless.get(option))
    ]
    if left:
        raise not_on_device(f"{name}({', '.join(f'{option}=' for option in left)})")


# ----- Calls


@dataclass(frozen=True)
class _Constant:
    """A number among the inputs. It equals numbers of the same type and spelling: 1 is not 1.0, and 0.0 is not -0.0."""

    number_type: type
    spelling: Hashable
    value: object = field(compare=False)


def _call_ufunc(
    ufunc: np.ufunc, name: str, inputs: tuple[object, ...], targets: tuple[Array, ...], options: dict[str, Any]
) -> object:
    dtype = options.pop("dtype", None)
    _refuse(name, options)
    if (
        ufunc in _EQUALITIES
        and not targets
        and any(value is None or isinstance(value, (str, bytes)) for value in inputs)
    ):
        # As in NumPy, no number equals None or text.
        array = next(array for array in inputs if isinstance(array, Array))
        answers = new_array(array.device, None, array.shape, np.bool_)
        answers[...] = ufunc is np.not_equal
        return answers
    given = [value if is_number(value) or isinstance(value, Array) else as_array(value) for value in inputs]
    loop = None if dtype is None else _find_loop(ufunc, name, given, np.dtype(dtype))
    floats = any(isinstance(value, float) or is_float_parameter(value) for value in given)
    if ufunc is np.power and not floats and (dtype is None or np.dtype(dtype).kind in "iu"):
        _check_exponents(*given)
    values = _as_operands(ufunc, given, loop)
    leaves: list[SomeArray] = [native(value) for value in values if isinstance(value, (Array, np.ndarray))]
    if loop is not None:
        # The CPU converts its arrays, which may have dtypes that no device has.
        loop_dtypes = [loop_dtype for loop_dtype, value in zip(loop, values, strict=True) if not is_number(value)]
        leaves = [
            leaf.astype(leaf_dtype) if isinstance(leaf, np.ndarray) else leaf
            for leaf, leaf_dtype in zip(leaves, loop_dtypes, strict=True)
        ]
    for leaf in leaves:
        if not is_number_type(leaf.dtype):
            raise not_on_device(f"{name} with an operand of dtype {leaf.dtype}", "no number on a device has that dtype")
    if targets:
        # All inputs may be NumPy arrays.
        target = targets[0].device
        assert isinstance(target, Device)
        leaves = [target.asarray(leaf) for leaf in leaves]
    dtypes = iter(leaf.dtype for leaf in leaves)
    key = tuple(
        _Constant(type(value), spelling(value), value) if is_number(value) else next(dtypes) for value in values
    )
    wanted = tuple(target.dtype for target in targets)
    function = _make_map(ufunc, key, loop, wanted)
    out: object = None
    if targets:
        out = targets if function.element.structure.container != "leaf" else targets[0]
    return map_leaves(
        function, leaves, common_shape([leaf.shape for leaf in leaves]), find_call_device(leaves, None), out
    )


def _as_operands(ufunc: np.ufunc, given: Sequence[object], loop: Sequence[AnyDType] | None = None) -> list[object]:
    """Return the arrays and numbers that a ufunc is called with, as its kernel takes them."""
    values: list[Any] = [
        _as_operand(ufunc, value, given, None if loop is None else loop[position])
        if type(value) is Parameter
        else value
        for position, value in enumerate(given)
    ]
    values = [_as_argument(ufunc, value, values) for value in values]
    if loop is None and all(is_number(value) or native(value).dtype == np.float16 for value in values):
        values = [as_half(value) for value in values]
    return values


def _find_loop(ufunc: np.ufunc, name: str, values: Sequence[object], dtype: AnyDType) -> tuple[AnyDType, ...]:
    """Return the dtypes to which NumPy converts the operands of a ufunc, so that its results have a dtype.

    Raises:
        TypeError: as NumPy, the ufunc has no such results, or the operands cannot be converted.
    """
    operands = [operand_type(value) for value in values]
    try:
        dtypes: tuple[AnyDType, ...] = ufunc.resolve_dtypes(
            (*operands, *[None] * ufunc.nout),
            signature=(*[None] * ufunc.nin, *[dtype] * ufunc.nout),
            casting="same_kind",
        )
    except TypeError as error:
        raise TypeError(
            f"{name} was called with dtype={dtype}, which NumPy does not compute of such operands: {error}. Pass the "
            "dtype of a result that it has, or convert the operands with .astype"
        ) from error
    return dtypes[: ufunc.nin]


def operand_type(value: Any) -> Any:
    """Return the dtype of an operand; for Python's numbers, which take the dtype of the others, their type."""
    number_type = value.number_type if isinstance(value, Parameter) else type(value)
    if number_type in (int, float, complex):
        return number_type
    return np.dtype(number_type) if is_number(value) else value.dtype


def _check_exponents(base: object, exponent: Any) -> None:
    """Raise ValueError, as NumPy does, if integers are to be raised to a negative power.

    Exponents on a device are searched for their least number, which waits for the device.
    """
    # Python's integers take the other operand's dtype.
    kinds = [kind(0) if isinstance(kind, type) else kind for kind in map(operand_type, (base, exponent))]
    if np.result_type(kinds[1]).kind != "i" or np.result_type(*kinds).kind != "i":
        return
    if is_number(exponent):
        check_exponent(exponent)
    elif exponent.size:
        check_exponent(int(exponent.min()))


def _as_operand(ufunc: np.ufunc, number: Parameter, inputs: Sequence[object], dtype: AnyDType | None) -> object:
    """Return an integer of Python in a form that lets later calls with another integer launch the same program.

    Among integers it becomes an array of their dtype, and among floats a float. Otherwise it is a part of the key.

    Args:
        number: the integer.
        inputs: all the operands.
        dtype: what the integer is converted to, if the caller has passed the dtype of the result.
    """
    arrays = [value for value in inputs if isinstance(value, Array)]
    number_type = number.number_type
    if number_type is not int and (ufunc is not np.power or number_type not in INTEGERS):
        return number
    if not arrays or len(arrays) + 1 < len(inputs) or ufunc is np.ldexp:
        return reveal(number)
    dtypes = [array.dtype for array in arrays] if dtype is None else [dtype]
    kinds, context = {given.kind for given in dtypes}, arrays[0]._context
    placed: DeviceArray | Parameter | int
    if number_type is not int:
        placed = upload_number(context, number, np.dtype(number_type))
    elif kinds == {"f"} or (kinds <= {"i", "u"} and ufunc is not np.float_power):
        placed = number_in(context, number, np.result_type(*dtypes))
    else:
        placed = int(number)
    return Array._of(arrays[0].device, placed) if isinstance(placed, DeviceArray) else placed


def _as_argument(ufunc: np.ufunc, value: object, values: list[Any]) -> object:
    """Return an integer that meets integer arrays as an array, so that all integers share a shader.

    The kernel reads float constants from a buffer anyway. A constant exponent makes a shorter shader.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or ufunc in _WITH_CONSTANTS:
        return value
    dtypes = [operand.dtype for operand in values if not is_number(operand)]
    if not dtypes or any(dtype.kind not in "iu" for dtype in dtypes):
        return value
    if isinstance(value, np.integer):
        return np.asarray(value)
    dtype = np.result_type(*dtypes)
    limits = np.iinfo(dtype)
    return np.array(value, dtype) if limits.min <= value <= limits.max else value


@lru_cache(maxsize=512)
def _make_map(
    ufunc: np.ufunc,
    key: tuple[_Constant | AnyDType, ...],
    loop: tuple[AnyDType, ...] | None,
    wanted: tuple[AnyDType, ...],
) -> Map:
    """Return the ufunc as a traced function of its arrays, from an earlier call if there was one.

    Args:
        key: for each operand its dtype, or the number itself.
        loop: the dtypes to convert the operands to first, if `dtype` was passed.
        wanted: the dtypes of the arrays of `out`.
    """

    def function(numbers: tuple[object, ...]) -> object:
        arrays = iter(numbers)
        operands = [input_key.value if isinstance(input_key, _Constant) else next(arrays) for input_key in key]
        if loop is not None:
            operands = list(map(_convert, operands, loop))
        results = ufunc(*operands)
        if not wanted:
            return results
        several = results if isinstance(results, tuple) else (results,)
        cast = tuple(_cast(ufunc, result, result_dtype) for result, result_dtype in zip(several, wanted, strict=True))
        return cast if isinstance(results, tuple) else cast[0]

    dtypes = [input_key for input_key in key if not isinstance(input_key, _Constant)]
    return trace_function(
        function, numbers_of([np.empty(0, operand_dtype) for operand_dtype in dtypes]), f"np.{ufunc.__name__}"
    )


def _convert(operand: Any, dtype: AnyDType) -> object:
    """Return an operand in the dtype of the loop. Numbers of Python, other than bools, take it from the arrays."""
    if isinstance(operand_type(operand), type):
        return operand
    return dtype.type(operand) if isinstance(operand, bool) else operand.astype(dtype)


def _cast(ufunc: np.ufunc, result: AnyArray, dtype: AnyDType) -> AnyArray:
    """Return a result in the dtype of `out`, if NumPy converts it without being asked."""
    if not np.can_cast(result.dtype, dtype, "same_kind"):
        raise OperatorError(
            f"its result has the dtype {result.dtype}, which out of dtype {dtype} cannot hold; pass an out of that "
            "dtype"
        )
    return result.astype(dtype)


# ----- Along an axis


def _common_options(
    ufunc: np.ufunc, name: str, array: Array, targets: tuple[Array, ...], options: dict[str, object]
) -> tuple[Array, dict[str, Any], Array | None]:
    """Return the array, and the options `dtype` and `out` as `gpuscan.scan` takes them, with NumPy's promotion.

    As in NumPy, elements that the dtype of `out` does not hold are combined in their own dtype. Then `out` is not among
    the options but the last result: the array to convert the combinations to.
    """
    resolve(ufunc)
    dtype = given_dtype = options.pop("dtype", None)
    out = targets[0] if targets else None
    _refuse(name, options)
    if ufunc in _LOGICAL:
        array, dtype = array.astype(bool, copy=False), None
    elif dtype is None and out is not None:
        dtype = _combination_dtype(array.dtype, out.dtype)
    elif dtype is None and ufunc in _PROMOTED:
        dtype = promote_dtype(array.dtype)
    if out is not None and dtype is not None and given_dtype is None and dtype != out.dtype:
        return array, {"dtype": dtype, "out": None}, out
    return array, {"dtype": dtype, "out": out}, None


def _combination_dtype(dtype: AnyDType, out_dtype: AnyDType) -> AnyDType:
    """Return the dtype to combine elements in for an `out`: one that loses no part of them before they are combined."""
    if out_dtype.kind not in "biu":
        return dtype if dtype.kind == "c" and out_dtype.kind != "c" else out_dtype
    if dtype.kind not in "biu":
        return dtype
    common = np.result_type(dtype, out_dtype)
    # NumPy combines int64 and uint64 as float64, which is less exact.
    return common if common.kind != "f" else np.dtype(np.int64) if dtype.kind == "i" else dtype


def _axis(options: dict[str, object], inputs: tuple[object, ...], position: int) -> Any:
    """Return the axis, which may be passed by position as well. It is no parameter of a program."""
    axis = inputs[position] if len(inputs) > position else options.pop("axis", 0)
    return tuple(map(reveal, axis)) if isinstance(axis, tuple) else reveal(axis)


def _accumulate(
    ufunc: np.ufunc, name: str, inputs: tuple[Array, ...], targets: tuple[Array, ...], options: dict[str, object]
) -> object:
    axis = _axis(options, inputs, 1)
    array, scan_options, target = _common_options(ufunc, name, inputs[0], targets, options)
    return in_out(scan(array, ufunc, axis=axis, **scan_options), target, "unsafe")


def _reduce_ufunc(
    ufunc: np.ufunc, name: str, inputs: tuple[Array, ...], targets: tuple[Array, ...], options: dict[str, object]
) -> object:
    axis = _axis(options, inputs, 1)
    keepdims, initial = options.pop("keepdims", False), options.pop("initial", None)
    array, scan_options, target = _common_options(ufunc, name, inputs[0], targets, options)
    if not array.shape and isinstance(axis, int) and axis in (0, -1):
        axis = None  # as NumPy's ufuncs, which take a single number for an axis of one
    if initial is None and ufunc.identity is None and 0 in [array.shape[i] for i in resolve_axes(axis, array.shape)]:
        raise ValueError(
            f"{name} was called with axis={axis} on an array of shape {array.shape}, but there is nothing to combine. "
            "Pass initial=, or an array with elements"
        )
    if initial is None and ufunc in _UNSIGNED:
        initial = 0
    result = reduce(array, ufunc, axis=axis, initial=initial, keepdims=bool(keepdims), **scan_options)
    return in_out(result, target, "unsafe")


def _reduce_at(
    ufunc: np.ufunc, name: str, inputs: tuple[Any, ...], targets: tuple[Array, ...], options: dict[str, object]
) -> object:
    """Return ``ufunc.reduceat``: a reduction of the segments that begin at the indices."""
    array, indices = inputs[0], inputs[1] if len(inputs) > 1 else options.pop("indices")
    axis = _axis(options, inputs, 2)
    array, scan_options, target = _common_options(ufunc, name, array, targets, options)
    axis = resolve_axis(axis, array.shape)
    length = array.shape[axis]
    starts = _check_indices(name, indices, length)
    before = (slice(None),) * axis
    if starts.size:
        offsets = np.concatenate((starts, [length]))
        if not np.logical_and.reduce(starts[1:] > starts[:-1]):
            # Where an index is not below the next one, NumPy takes one element. The segments may overlap then, so their
            # elements are copied one segment after another.
            stops = np.maximum(starts + 1, offsets[1:])
            array = take_at(array, np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)]), axis)
            offsets = np.append(0, np.cumsum(stops - starts))
        array = array[(*before, slice(int(offsets[0]), None))]
        result = reduce(array, ufunc, axis=axis, segments=offsets - offsets[0], dtype=scan_options["dtype"])
    else:
        result = array[(*before, slice(0))].astype(scan_options["dtype"] or array.dtype)
    return in_out(result, target if target is not None else scan_options["out"], "unsafe")


def _check_indices(name: str, indices: object, length: int) -> AnyArray:
    """Return the indices, which the CPU needs.

    Raises:
        TypeError, IndexError: as NumPy.
    """
    given = indices.numpy() if isinstance(indices, Array) else as_array(indices)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        raise TypeError(f"{name} was called with indices {abbreviate(given)}; pass a 1-D array of integers")
    if given.size and not (np.minimum.reduce(given) >= 0 and np.maximum.reduce(given) < length):
        raise IndexError(
            f"{name} was called with indices from {given.min()} to {given.max()}, but the axis has {length} entries; "
            f"pass indices from 0 to {length - 1}"
        )
    return given.astype(np.int64)


# ----- Masks

# The types of numbers that kernels take as they are.
_NUMBERS = NUMBERS | {bool, np.bool_}
# A number, an array, or a ufunc with its operands, which are expressions again.
_Expression: TypeAlias = Any


def select_by_held(arguments: Sequence[object]) -> object:
    """Return the result of `np.where` by one kernel, which computes masks of held runs itself.

    Args:
        arguments: the arguments of `np.where`.

    Returns:
        None if the condition is no mask of a held run, if it was used before, or if one kernel cannot compute all.
    """
    mask = arguments[0]
    if len(arguments) != 3 or type(mask) is not Array or mask._owner is None or mask._owner.held_run is None:
        return None
    held_run = mask._owner.held_run
    call = held_run.call
    # A mask that was used once and is still there will be needed. Then it is faster to read it than what it is made of.
    if call is None or held_run.used:
        return None
    # Numbers, arrays, and the held calls of masks: each ufunc, and then its operands.
    terms: list[object] = []
    waiting: list[Any] = [*reversed(arguments)]
    while waiting:
        value = waiting.pop()
        value_type = type(value)
        inner_run = value._owner.held_run if value_type is Array and value._owner is not None else None
        inner = None if inner_run is None else inner_run.call
        if inner is not None:
            (ufunc, _, inputs, *options), shape = inner
            whole = value._shape == shape and value._strides is None and not value.offset and value._dtype == np.bool_
            if not whole or options:
                return None
            terms.append(ufunc)
            waiting += reversed(inputs)
        elif value_type is Array or value_type in _NUMBERS:
            terms.append(value)
        else:
            return None
    return launch_before(mask._context, held_run, call, partial(_launch_select, tuple(terms)))


def _select(terms: Sequence[object]) -> object:
    """Return the result of `np.where` with the arguments that are written as these terms, by one kernel."""
    following = iter(terms)
    operands: list[object] = []

    def read() -> _Expression:
        """Return the expression of the next terms."""
        term = next(following)
        return (term, [read() for _ in range(term.nin)]) if isinstance(term, np.ufunc) else term

    def place(expression: _Expression) -> _Expression:
        """Return an expression with the places of its arrays and numbers among the operands."""
        if type(expression) is tuple:
            ufunc, inputs = expression
            # A number that meets a mask is not converted.
            inputs = list(map(reveal, inputs)) if tuple in map(type, inputs) else _as_operands(ufunc, inputs)
            return ufunc, list(map(place, inputs))
        operands.append(expression)
        return len(operands) - 1

    given = [read(), read(), read()]
    # An error shall name the shapes of the arguments.
    common_shape([_shape_of(expression) for expression in given if not is_number(expression)])
    placed = list(map(place, given))
    try:
        return map_arrays(lambda *numbers: np.where(*_evaluate(placed, numbers)), *operands)
    except OperatorError as error:
        raise not_on_device("np.where", str(error).partition("\n")[0]) from error


def _shape_of(expression: _Expression) -> tuple[int, ...]:
    if type(expression) is tuple:
        return common_shape(list(map(_shape_of, expression[1])))
    return () if is_number(expression) else expression.shape


def _evaluate(placed: Sequence[_Expression], numbers: Sequence[object]) -> list[Any]:
    """Return the values of expressions with the places of their operands among these numbers."""
    return [part[0](*_evaluate(part[1], numbers)) if type(part) is tuple else numbers[part] for part in placed]


_TERMS = frozenset({"terms"})
_launch_select = launchable(_select, operands=_TERMS, integers=_TERMS)
_OPERANDS = frozenset({"inputs", "options"})
_launch_along_axis = launchable(apply_ufunc, operands=_OPERANDS, integers=frozenset({"options"}))
_INPUTS = frozenset({"inputs"})
_launch_with_data = launchable(apply_ufunc, operands=_OPERANDS, data=_INPUTS, integers=_INPUTS, gives_masks=True)
_launch_with_integers = launchable(apply_ufunc, operands=_OPERANDS, integers=_INPUTS)


def _answer(ufunc: np.ufunc, method: str, inputs: tuple[object, ...], options: dict[str, object]) -> object:
    if method == "reduceat":
        # It looks at the indices on the CPU, and then calls functions that launch programs.
        return apply_ufunc(ufunc, method, inputs, options)
    if method != "__call__":
        return _launch_along_axis(ufunc, method, inputs, options)
    if list in map(type, inputs):
        inputs = tuple([as_array(value) if type(value) is list else value for value in inputs])
    # Exponents are checked in NumPy.
    launch = _launch_with_integers if ufunc in _WITH_CONSTANTS else _launch_with_data
    return launch(ufunc, method, inputs, options) if options else launch(ufunc, method, inputs)


answer_protocols(ufunc=_answer)
