"""Recognise functions that compute the same, so that they are traced once."""

from __future__ import annotations

import dis
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import EnumMeta, Flag
from functools import cached_property, lru_cache, partial
from operator import attrgetter, itemgetter, methodcaller
from struct import calcsize
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from gpuscan.operators.parameter_array import ParameterArray
from gpuscan.operators.parameters import (
    FLOATS,
    GREATEST_INTEGER,
    LEAST_INTEGER,
    NUMBERS,
    NUMPY_TYPES,
    ClosedArray,
    Expression,
    Parameter,
    Parameters,
    RecordedMath,
    RecordedNumpy,
    RecordedType,
    Switch,
    is_replaced,
    record_calls_of,
)

# Packages with functions and classes that never change.
_FIXED = frozenset(
    {"gpuscan", "torch", "jax", "jaxlib", "numpy", "ml_dtypes", "math", "cmath", "operator", "builtins", "_operator"}
    | {"collections", "enum", "fractions", "functools", "itertools"}
)
_NUMBERS = (bool, int, float, complex, str, bytes, range, type(None), type(...), type(NotImplemented))
# The type of the functions of NumPy that arrays answer.
NumpyFunction = type(np.concatenate)
# The classes of further values that never change, by module and name: their modules are not imported here.
_CONSTANTS = frozenset(
    {("torch", "dtype"), ("torch", "device"), ("fractions", "Fraction"), ("decimal", "Decimal")}
    | {("datetime", "date"), ("datetime", "timedelta"), ("pathlib", "PosixPath"), ("pathlib", "WindowsPath")}
)
# Packages with arrays that functions may close over.
_ARRAY_PACKAGES = frozenset({"torch", "jax", "jaxlib"})
# The classes of values that are known by what `pickle` keeps of them.
_PICKLED: frozenset[type] = frozenset(
    {set, frozenset, bytearray, deque, defaultdict, OrderedDict, Counter, attrgetter, itemgetter, methodcaller}
)
# Arrays up to this many bytes can be parameters. A trace has a node for each of their numbers.
MAX_ARRAY_BYTES = 1024
# Arrays up to this many bytes are compared by their numbers, which takes some microseconds.
_MAX_COMPARED_BYTES = 1 << 14
# Lists, dicts and objects of more values in all are not compared.
_MAX_VALUES = 1024
# The types of the names of values in dicts. Equal names of one of these types are the same name.
_NAMES = frozenset({str, int, bool, type(None)})
# Builtins that may read anything.
_READERS = frozenset({"__import__", "eval", "exec", "globals", "input", "locals", "open", "vars"})
_IMPORT = dis.opmap["IMPORT_NAME"]


class _Plain:
    """A class of objects that have attributes only."""


# What every class of named tuples has, with or without annotations.
_NAMED_TUPLE = frozenset(vars(namedtuple("_NamedTuple", ()))) | {
    "__annotate__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__firstlineno__",
    "__orig_bases__",
    "__static_attributes__",
}
# Members of classes that no function computes with.
_NOT_READ = frozenset(
    {*vars(_Plain), "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__orig_bases__"}
    | {"__dataclass_fields__", "__dataclass_params__", "__firstlineno__", "__match_args__", "__static_attributes__"}
)
# Members that a call of an object does not use, either. They make, show or change objects.
_NOT_CALLED = _NOT_READ | frozenset(
    {"__init__", "__post_init__", "__repr__", "__setattr__", "__delattr__", "__replace__"}
    | {"__getstate__", "__setstate__"}
)
# What Python itself keeps in an enumeration and in its members.
_OF_ENUMERATION = _NOT_CALLED | {"__str__", "__format__"} | {name for name in vars(Flag("_Flag", "")) if name[1] != "_"}
_OF_MEMBER = frozenset({"_name_", "__objclass__", "_sort_order_", "_inverted_"})
_NAME = attrgetter("_name_")
# The classes that members of enumerations can also be.
_VALUES = (int, float, complex, str, bytes, object)
# The bit of `__flags__` that classes have if they were made while Python ran (Py_TPFLAGS_HEAPTYPE).
_MADE = 1 << 9
# The attribute that has the function of a wrapped method, by the type of the wrapper.
_WRAPPED = {staticmethod: "__func__", classmethod: "__func__", property: "fget", cached_property: "func"}
# Names by which a function may see that a parameter is no float.
_TYPE_NAMES = frozenset({"type", "isinstance", "issubclass", "isscalar", "getattr", "__class__"})
# Methods that dataclasses write, which ask only for the class of the object.
_COMPARISONS = frozenset({"__eq__", "__ge__", "__gt__", "__hash__", "__le__", "__lt__"})
# Operations of code that asks for types, or that assigns to variables of its module.
_READ_OR_STORED = frozenset({dis.opmap[name] for name in ("MATCH_CLASS", "STORE_GLOBAL", "DELETE_GLOBAL")})
_STORES = frozenset({dis.opmap["STORE_DEREF"], dis.opmap["DELETE_DEREF"]})
# Operations of code, and names of methods, that may change a list, a dict or an object.
_CHANGES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE", "STORE_ATTR", "DELETE_ATTR"})
_CHANGING_NAMES = frozenset(
    {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"}
)


class _UnknownError(Exception):
    """A function reads something that may change without notice."""


class _NeedsFloatsError(Exception):
    """A function cannot be called with parameters in the place of its floats."""


def function_key(function: object, *, numbers: bool = True, floats: list[object] | None = None) -> Hashable | None:
    """Return a value that is equal for functions that compute the same; None if that cannot be told.

    The value describes the function's code and all that it reads. That may be other functions, numbers, and short
    arrays of NumPy, PyTorch and JAX. It may be lists, dicts and sets of such values, members of enumerations, and
    objects of classes in Python with such attributes. A function that reads other objects has no key, since these can
    change.

    Args:
        numbers: False to return None for a function that reads numbers, too.
        floats: a list that gets the numbers of Python and NumPy, except bools, and the short arrays. The function, and
            the functions in it, read these from closures, defaults, modules and `functools.partial`, also in tuples,
            lists, dicts and objects, unless it may change these. Their order is the order in which `with_parameters`
            replaces them. The key does not have their values then.

    Example:
        >>> def scaled(factor):
        ...     return lambda x: factor * x
        >>> function_key(scaled(2)) == function_key(scaled(2)), function_key(scaled(2)) == function_key(scaled(2.0))
        (True, False)
        >>> function_key(lambda x, of=iter([1]): x + next(of)) is None
        True
    """
    keys = _Keys()
    try:
        if floats is not None:
            keys.floats, keys.replaces = [], True
            try:
                key = keys.of(function, ())
                if not (keys.holds and keys.changes):
                    floats += keys.floats
                    return key
            except _NeedsFloatsError:
                pass
            keys = _Keys()
        keys.numbers = numbers
        return keys.of(function, ())
    except _UnknownError:
        return None


def with_parameters(function: Callable[..., object], parameters: Parameters, first: int) -> Switch:
    """Return a user's function that can be traced with parameters.

    Args:
        function: the function. It has floats, and its key was made without them.
        parameters: the parameters of the call.
        first: the index of the function's first float among them.
    """
    leaves = iter(parameters.leaves[first:])

    def replacement(value: Any) -> Any:
        value_type: Any = type(value)
        if is_replaced(value):
            leaf = next(leaves)
            return Parameter(leaf) if type(leaf) is Expression else leaf
        if _is_short(value):
            leaf = next(leaves)
            return ParameterArray(leaf) if type(leaf) is Expression else leaf
        if value is math:
            return RecordedMath()
        if value is np:
            return RecordedNumpy()
        if isinstance(value, type) and (value in FLOATS or value in NUMPY_TYPES):
            return RecordedType(value)
        if value_type is BuiltinFunctionType and value.__self__ is math:
            return record_calls_of(value)
        if value_type is tuple or value_type is list:
            return value_type(map(replacement, value))
        if value_type is dict:
            return dict(zip(value, map(replacement, value.values()), strict=True))
        if value_type is MethodType:
            return MethodType(replacement(value.__func__), replacement(value.__self__))
        if _is_named_tuple(value_type):
            return value_type._make(map(replacement, value))
        if is_plain(value):
            copied = SimpleNamespace() if value_type is SimpleNamespace else object.__new__(value_type)
            slots = _slots_of(value_type) or ()
            attributes = replacement(_attributes_of(value, slots))
            for name in attributes.keys() & slots:
                getattr(value_type, name).__set__(copied, attributes.pop(name))
            if attributes:
                vars(copied).update(attributes)
            return copied
        if value_type is partial:
            function, arguments = replacement(value.func), map(replacement, value.args)
            return partial(
                function,
                *arguments,
                **dict(zip(value.keywords, map(replacement, value.keywords.values()), strict=True)),
            )
        return again(value) if value_type is FunctionType and not never_changes(value) else value

    def again(given: FunctionType) -> FunctionType:
        # The order is that of `_code_key`.
        defaults = None if given.__defaults__ is None else tuple(map(replacement, given.__defaults__))
        by_name = {name: replacement(value) for name, value in (given.__kwdefaults__ or {}).items()}
        cells = tuple(CellType(replacement(cell.cell_contents)) for cell in given.__closure__ or ())
        found = _values_by_name(given, _names_of(given.__code__) or ())
        named = dict(zip(found, map(replacement, found.values()), strict=True))
        made = FunctionType(given.__code__, {**given.__globals__, **named}, given.__name__, defaults, cells)
        made.__kwdefaults__, made.__qualname__ = by_name or None, given.__qualname__
        if given.__dict__:
            vars(made).update(replacement(_attributes_of_function(given)))
        return made

    return Switch(function, replacement(function), parameters)


def _is_short(value: object) -> bool:
    """Return True for an array of NumPy that can be a parameter."""
    return type(value) is np.ndarray and value.dtype.kind in "biufc" and 0 < value.nbytes <= MAX_ARRAY_BYTES


def never_changes(function: object) -> bool:
    """Return True for a function of a module of a package that never changes."""
    if type(function) is not FunctionType or function.__closure__ is not None or "<" in function.__qualname__:
        return False
    # Each call of a function makes its own lambdas and inner functions. functools.wraps copies __module__.
    return _is_of_fixed(function.__globals__.get("__name__"))


def has_closure(function: object) -> bool:
    """Return True for a function that closes over variables."""
    code = getattr(function, "__code__", None)
    return code is not None and len(code.co_freevars) > 0


def is_plain(value: object) -> bool:
    """Return True for an object of a class that the user has written in Python, or for a namespace: it has attributes.

    Other objects may keep something that no attribute shows.
    """
    value_type: Any = type(value)
    return value_type is SimpleNamespace or _slots_of(value_type) is not None


@lru_cache(maxsize=512)
def _slots_of(value_type: type) -> tuple[str, ...] | None:
    """Return the names of the slots of a class that the user has written in Python; None for other classes."""
    slots = [
        name
        for each in value_type.__mro__
        if "__slots__" in vars(each) and not _is_of_fixed(each.__module__)
        for name, member in vars(each).items()
        if isinstance(member, MemberDescriptorType)
    ]
    # Where an object keeps nothing else, its memory has a pointer for each slot, and for the dict and the references to
    # the object, unless Python keeps these before the object.
    pointers = len(slots) + (value_type.__dictoffset__ > 0) + (value_type.__weakrefoffset__ > 0)
    is_python = value_type.__basicsize__ == object.__basicsize__ + pointers * calcsize("P")
    is_python = is_python and not _is_of_fixed(value_type.__module__)
    return tuple(slots) if is_python and _are_classes(value_type.__mro__[:-1]) else None


def _are_classes(classes: Sequence[type]) -> bool:
    """Return True if there are classes, and all were made while Python ran, without metaclasses."""
    return {(type, True)} == {(type(each), bool(each.__flags__ & _MADE)) for each in classes}


@lru_cache(maxsize=512)
def _classes_of(enumeration: type) -> tuple[type, ...]:
    """Return the classes of an enumeration that the user has written.

    Raises:
        _UnknownError: its members may keep something that no attribute shows.
    """
    if not all(type(each) is EnumMeta or each in _VALUES for each in enumeration.__mro__):
        raise _UnknownError
    return tuple([each for each in enumeration.__mro__ if not _is_of_fixed(each.__module__)])


def _attributes_of(value: object, slots: Sequence[str]) -> dict[str, Any]:
    """Return the values of an object's slots and of its other attributes, by their names."""
    named = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return named | vars(value) if hasattr(value, "__dict__") else named


def _attributes_of_function(function: FunctionType) -> dict[str, Any]:
    """Return the attributes of a function, which may read them by its own name; none for gpuscan's functions."""
    return {} if _is_of_fixed(function.__globals__.get("__name__")) else vars(function)


def _is_named_tuple(value_type: Any) -> bool:
    """Return True for a class of named tuples."""
    return bool(value_type.__bases__ == (tuple,) and hasattr(value_type, "_fields"))


class _Keys:
    """Makes the key of a function, and of the values that it reads.

    Attributes:
        numbers: as in `function_key`.
        floats: a list that gets the numbers; None while they are a part of the key.
        replaces: True if a function with parameters in the place of the numbers will be made.
        holds: True if a list, a dict or an object was found. With parameters, the function reads copies of these.
        changes: True if code was found that may change such a value.
        count: the values of the lists, dicts and objects that were found.
    """

    # These are no arguments, which would take a Python call at each call of a public function.
    numbers = True
    floats: list[object] | None = None
    replaces = holds = changes = False
    count = 0

    def of(self, value: Any, within: tuple[object, ...]) -> Hashable:
        """Return the key of a function or of a value that it reads.

        Args:
            value: the function or value.
            within: the functions that this one is called in, and the ids of the lists, dicts and objects around it.
        """
        value_type, floats = type(value), self.floats
        if value_type is FunctionType:
            return self._of_function(value, within)
        if floats is not None and value_type in NUMBERS and is_replaced(value):
            floats.append(value)
            return Parameter, value_type
        if floats is not None and value_type is np.ndarray and _is_short(value):
            floats.append(value.view(ClosedArray))
            return ClosedArray, value.dtype, value.shape
        if value_type is Switch:
            return self.of(value.with_parameters, within)
        if value_type is ModuleType and _is_of_fixed(value.__name__):
            return value  # type: ignore[no-any-return]
        if self.numbers:
            if value_type is Parameter:
                return value._expression  # type: ignore[no-any-return]
            # `repr` writes every NaN in the same way, whatever its sign and payload, so the bytes of a scalar are the
            # key.
            if isinstance(value, np.generic):
                return value_type, value.dtype, value.tobytes()
            if isinstance(value, np.dtype) or (value_type in _NUMBERS and value == value):
                return value_type, repr(value)
            if (value_type.__module__, value_type.__name__) in _CONSTANTS:
                return value_type, repr(value)
            if value_type is np.ndarray and value.nbytes <= _MAX_COMPARED_BYTES and not value.dtype.hasobject:
                return value.dtype, value.shape, value.tobytes()
        if value_type is tuple:
            return tuple(self._of_all(value, within))
        if value_type is list or value_type is dict or value_type is SimpleNamespace:
            return self._of_container(value, within)
        if value_type is partial and not value.__dict__:
            parts = value.func, *value.args, *value.keywords.values()
            return partial, tuple(value.keywords), *self._of_all(parts, within)
        if value_type is NumpyFunction or isinstance(value, (MethodDescriptorType, np.ufunc)):
            return value  # type: ignore[no-any-return]
        if isinstance(value, type) and _is_of_fixed(value.__module__):
            return value
        if isinstance(value, type):
            return self._of_class(value, within)
        # A method of an object has that object as its __self__, a function its module or class.
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, (ModuleType, type, type(None))):
            return value
        if _is_named_tuple(value_type):
            return self._of_class(value_type, within), *self._of_all(value, within)
        if value_type is MethodType:
            return MethodType, self.of(value.__func__, within), self.of(value.__self__, within)
        if value_type in _PICKLED:
            return self._of_pickled(value, within)
        return self._of_object(value, within)

    def _of_all(self, values: Iterable[Any], within: tuple[object, ...]) -> list[Hashable]:
        """Return the keys of values that a function reads. Most of them are numbers, which need no calls."""
        keys: list[Hashable] = []
        floats = self.floats
        for value in values:
            value_type = type(value)
            if floats is not None and (
                value_type in FLOATS or (value_type is int and LEAST_INTEGER <= value <= GREATEST_INTEGER)
            ):
                floats.append(value)
                keys.append((Parameter, value_type))
            elif value_type is FunctionType:
                keys.append(self._of_function(value, within))
            else:
                keys.append(self.of(value, within))
        return keys

    def _inside(self, value: object, within: tuple[object, ...], count: int) -> tuple[object, ...] | None:
        """Return what is around the `count` values of a list, a dict or an object; None if this is a part of itself."""
        self.holds = True
        self.count += count
        if self.count > _MAX_VALUES:
            raise _UnknownError
        if id(value) not in within:
            return *within, id(value)
        if self.replaces:
            raise _NeedsFloatsError  # its copy would have to be a part of itself
        return None

    def _of_container(self, value: Any, within: tuple[object, ...]) -> Hashable:
        """Return the key of a list, a dict or a namespace."""
        value_type: Any = type(value)
        parts = vars(value) if value_type is SimpleNamespace else value
        inner = self._inside(value, within, len(parts))
        if inner is None:
            return "recursive", within.index(id(value))
        if value_type is list:
            return list, *self._of_all(parts, inner)
        types = tuple(map(type, parts))
        if not _NAMES.issuperset(types):
            raise _UnknownError
        return value_type, types, tuple(parts), *self._of_all(parts.values(), inner)

    def _of_pickled(self, value: Any, within: tuple[object, ...]) -> Hashable:
        """Return the key of a value that `pickle` describes. The numbers in it are a part of the key."""
        inner = self._inside(value, within, len(value) if hasattr(value, "__len__") else 1)
        if inner is None:
            return "recursive", within.index(id(value))
        floats, self.floats = self.floats, None
        keys = self._of_all(
            [list(part) if isinstance(part, Iterator) else part for part in value.__reduce_ex__(2)], inner
        )
        self.floats = floats
        return type(value), *keys

    def _of_object(self, value: object, within: tuple[object, ...]) -> Hashable:
        """Return the key of an object of a class that the user has written in Python: its attributes and methods."""
        value_type: Any = type(value)
        if type(value_type) is EnumMeta:
            return value_type, *self._of_enumeration(value_type, within, value)
        slots = _slots_of(value_type)
        if slots is None:
            return value if _is_fixed(value) else self._of_array(value)
        attributes = _attributes_of(value, slots) if slots else vars(value)
        inner = self._inside(value, within, len(attributes))
        if inner is None:
            return "recursive", within.index(id(value))
        if self.replaces and hasattr(value, "__del__"):
            raise _NeedsFloatsError  # it would be called for the copy
        keys = *attributes, *self._of_all(attributes.values(), inner)
        return keys, self._of_members(value_type.__mro__[:-1], _NOT_CALLED, inner)

    def _of_array(self, value: Any) -> Hashable:
        """Return the key of a short array of PyTorch or JAX in the CPU's memory: its numbers.

        Raises:
            _UnknownError: the value is no such array.
        """
        if self.numbers and type(value).__module__.partition(".")[0] in _ARRAY_PACKAGES:
            # Other values have no bytes. Values that are being traced, or differentiated, have no numbers.
            with suppress(Exception):
                if value.nbytes <= _MAX_COMPARED_BYTES:
                    # JAX's arrays also tell whether their type gives way to that of others.
                    kind = repr(getattr(value, "aval", None)), repr(value.dtype)
                    return type(value), *kind, tuple(value.shape), np.asarray(value).tobytes()
        raise _UnknownError

    def _of_class(self, value: Any, within: tuple[object, ...]) -> Hashable:
        """Return the key of a class that the user has written in Python: its members, which a function may read."""
        if _is_named_tuple(value):
            defaults = value.__new__.__defaults__ or ()
            return value, self._of_members((value,), _NAMED_TUPLE.union(value._fields), within, defaults)
        if type(value) is EnumMeta:
            return value, *self._of_enumeration(value, within)
        if not _are_classes(value.__mro__[:-1]):
            raise _UnknownError
        inner = self._inside(value, within, len(vars(value)))
        if inner is None:
            return "recursive", within.index(id(value))
        return type, self._of_members(value.__mro__[:-1], _NOT_READ, inner)

    def _of_enumeration(self, value: Any, within: tuple[object, ...], *chosen: Any) -> Sequence[Hashable]:
        """Return the key of an enumeration that the user has written, and of the members that a function reads of it.

        Members may be compared by `is`, so they stay as they are, and the class itself is a part of the key as well.
        """
        classes = _classes_of(value)
        members = vars(value)["_member_map_"]
        self.count += len(members)
        if self.count > _MAX_VALUES:
            raise _UnknownError
        if id(value) in within:
            return *map(_NAME, chosen), "recursive", within.index(id(value))
        names: list[Hashable] = []
        values: list[object] = []
        # Members of flags that are combined are no members of the class.
        for member in (*chosen, *members.values()):
            names.append(member._name_)
            for name, part in vars(member).items():
                if name not in _OF_MEMBER:
                    names.append(name)
                    values.append(part)
        inner = *within, id(value)
        return *names, self._of_members(classes, _OF_ENUMERATION.union(members), inner, values)

    def _of_members(
        self, classes: Sequence[type], left_out: frozenset[str], within: tuple[object, ...], others: Sequence[Any] = ()
    ) -> Hashable:
        """Return the key of the members of classes, and of other values. The numbers among them are a part of the key.

        Args:
            left_out: the names of members that are no part of the key.
            within: as for `of`.
            others: the other values.
        """
        names: list[Hashable] = []
        values = [*others]
        for each in classes:
            names.append(each.__name__)
            for name, member in vars(each).items():
                kind = type(member)
                if name not in left_out and kind is not MemberDescriptorType:
                    names.append((name, kind))
                    values.append(getattr(member, _WRAPPED[kind]) if kind in _WRAPPED else member)
        # Methods stay as they are.
        floats, self.floats = self.floats, None
        keys = self._of_all(values, within)
        self.floats = floats
        return *names, *keys

    def _of_function(self, function: FunctionType, within: tuple[object, ...]) -> Hashable:
        if never_changes(function):
            return function
        code = function.__code__
        if self.replaces:
            if _needs_floats(code):
                raise _NeedsFloatsError
            self.changes = self.changes or _may_change(code)
        if function in within:
            if self.replaces:
                # It would have to call itself with parameters.
                raise _NeedsFloatsError
            return "recursive", within.index(function)
        names = _names_of(code)
        if names is None:
            raise _UnknownError
        inner = (*within, function)
        defaults, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
        named = _values_by_name(function, names) if names else {}
        values = [*defaults, *by_name.values()]
        for cell in function.__closure__ or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:  # nothing has been assigned yet
                raise _UnknownError from None
        values += named.values()
        keys = self._of_all(values, inner) if values else []
        if function.__dict__:
            keys.append(self._of_container(_attributes_of_function(function), inner))
        return code, len(defaults), tuple(by_name), tuple(named), *keys


def _is_of_fixed(module: object) -> bool:
    """Return True for the name of a module of a package that never changes."""
    return isinstance(module, str) and module.partition(".")[0] in _FIXED


def _is_fixed(value: Any) -> bool:
    """Return True for a module of a package that never changes, and for what a module of one has by its own name."""
    if type(value) is ModuleType:
        return _is_of_fixed(value.__name__)
    module = getattr(value, "__module__", None)
    return _is_of_fixed(module) and getattr(sys.modules.get(str(module)), getattr(value, "__name__", ""), None) is value


def _values_by_name(function: FunctionType, names: Sequence[str]) -> dict[str, object]:
    """Return the values that a function finds in its module or in the builtins, by their names."""
    # Anybody can put a name into the builtins, too.
    builtin = getattr(function, "__builtins__")  # noqa: B009 (mypy may not know it)
    values = function.__globals__
    found = {}
    for name in names:
        if name in values:
            found[name] = values[name]
        elif name in builtin:
            found[name] = builtin[name]
    return found


@lru_cache(maxsize=512)
def _names_of(code: CodeType) -> tuple[str, ...] | None:
    """Return the names that code may read from its module or from the builtins; None if it may read anything."""
    blocks = list(_blocks(code))
    if any(_IMPORT in block.co_code[::2] or not _READERS.isdisjoint(block.co_names) for block in blocks):
        return None
    # Names of attributes do not count, since an object with attributes is a part of the key.
    operations = [operation for block in blocks for operation in dis.get_instructions(block)]
    return tuple(sorted({each.argval for each in operations if each.opname.endswith(("_GLOBAL", "_NAME", "_GLOBALS"))}))


@lru_cache(maxsize=512)
def _needs_floats(code: CodeType) -> bool:
    """Return True for code that may ask for the type of a float, or that assigns to variables of other functions."""
    if code.co_filename == "<string>" and code.co_name in _COMPARISONS:
        return False
    for block in _blocks(code):
        operations = list(dis.get_instructions(block))
        outer = {instruction.argval for instruction in operations if instruction.opcode in _STORES}.intersection(
            block.co_freevars
        )
        if outer or any(instruction.opcode in _READ_OR_STORED for instruction in operations):
            return True
        if not _TYPE_NAMES.isdisjoint(block.co_names):
            return True
    return False


@lru_cache(maxsize=512)
def _may_change(code: CodeType) -> bool:
    """Return True for code that may change a list, a dict or an object that it did not make."""
    for block in _blocks(code):
        if not _CHANGING_NAMES.isdisjoint(block.co_names):
            return True
        # Python writes both `+` and `+=` as BINARY_OP, and the latter changes a list.
        for each in dis.get_instructions(block):
            if each.opname in _CHANGES or (each.opname == "BINARY_OP" and each.argrepr.endswith("=")):
                return True
    return False


def _blocks(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and the code objects of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _blocks(constant)
