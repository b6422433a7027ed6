"""Describe one element: NumPy dtype ↔ storage type ↔ compute type ↔ 32-bit words.

The operator combines *elements*: each is one number, a small vector or matrix, or a bundle of these. An `Element` is a
flat tuple of `Field`s, and the `Structure` that says how the user's value (tuple, named tuple, dict, structured dtype)
nests them.

A number has three forms:

- *storage*: the bits in the array's own buffer. 8- and 16-bit numbers are packed in 32-bit words.
- *compute*: the WGSL type that the operator sees (`Scalar.wgsl`). Narrow numbers are widened to 32 bits.
- *words*: the compute form as 32-bit words, for tile state and shuffles (`Scalar.words`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from math import gcd, prod
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.sizes import reveal

H = TypeVar("H")
V = TypeVar("V")

# The name of ml_dtypes.bfloat16. The package is optional, so the dtype is recognised by its name.
BFLOAT16_NAME = "bfloat16"


def dtype_from(dtype: Any) -> AnyDType:
    """Return what a caller passed as the dtype of one array, as a NumPy dtype.

    Raises:
        TypeError: it is not a dtype. The message says what to pass.
    """
    if isinstance(dtype, np.dtype):
        return dtype
    try:
        # NumPy makes float64 of None, and takes only the first entry of some tuples.
        if dtype is None or isinstance(dtype, tuple):
            raise TypeError("it is no dtype of one array")
        converted: AnyDType = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise TypeError(
            f"dtype {dtype!r} was passed: {error}. Pass a NumPy dtype such as np.float32, or for elements of several "
            'fields a structured one: np.dtype([("a", np.float32), ("b", np.float32)])'
        ) from error
    return converted


class HashedOnce:
    """Give a frozen dataclass a hash that is computed once. The class sets ``__hash__ = HashedOnce.__hash__``."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        own_type: type = type(self)
        return hash(_make_field_getter(own_type)(self))

    def __getstate__(self) -> dict[str, object]:
        # Strings have another hash in another process.
        return {name: value for name, value in vars(self).items() if name != "_hash"}


# How many values are interned before it starts over.
_MAX_INTERNED = 1024
_interned: dict[object, Any] = {}


def intern_value(value: H) -> H:
    """Return the first value that is equal, so that what was derived from it need not be derived again."""
    if len(_interned) >= _MAX_INTERNED:
        _interned.clear()
    first: H = _interned.setdefault(value, value)
    return first


@cache
def _make_field_getter(dataclass_type: type) -> Callable[..., object]:
    """Return a function that gives the values of the fields of a dataclass that are compared."""
    return attrgetter(*(field.name for field in fields(dataclass_type) if field.compare))


@dataclass(frozen=True)
class Scalar(HashedOnce):
    """One machine number.

    Attributes:
        name: NumPy's name of the dtype, such as ``"int8"``.
        kind: ``"bool"``, ``"signed"``, ``"unsigned"``, ``"float"`` or ``"complex"``.
        bits: size in storage, in bits.
    """

    name: str
    kind: str
    bits: int

    __hash__ = HashedOnce.__hash__

    @cached_property
    def dtype(self) -> AnyDType:
        """The NumPy dtype of the storage form."""
        if self.name == BFLOAT16_NAME:
            import ml_dtypes

            bfloat16: AnyDType = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(self.name)

    @cached_property
    def words(self) -> int:
        """32-bit words of the compute form."""
        return max(1, self.bits // 32)

    @property
    def per_word(self) -> int:
        """Numbers that share one 32-bit word of storage (1, 2 or 4)."""
        return max(1, 32 // self.bits)

    @property
    def packed(self) -> bool:
        """True if several numbers share a word of storage."""
        return self.per_word > 1

    @cached_property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, and not for bools."""
        return self.kind in ("signed", "unsigned")

    def wgsl(self, native_int64: bool) -> str:
        """Return the compute type. Without native 64-bit integers, they are two 32-bit words (low, high)."""
        if self.kind == "bool":
            return "bool"
        if self.kind == "complex":
            return "vec2<f32>"
        if self.kind == "float":
            return "f64" if self.bits == 64 else "f32"
        letter = "i" if self.kind == "signed" else "u"
        if self.bits == 64:
            return f"{letter}64" if native_int64 else "vec2<u32>"
        return f"{letter}32"


SCALARS: Mapping[str, Scalar] = {
    scalar.name: scalar
    for scalar in (
        Scalar("bool", "bool", 8),
        *(Scalar(f"int{bits}", "signed", bits) for bits in (8, 16, 32, 64)),
        *(Scalar(f"uint{bits}", "unsigned", bits) for bits in (8, 16, 32, 64)),
        *(Scalar(f"float{bits}", "float", bits) for bits in (16, 32, 64)),
        Scalar(BFLOAT16_NAME, "float", 16),
        Scalar("complex64", "complex", 64),
    )
}


def compute_dtype(scalar: Scalar) -> AnyDType:
    """Return the dtype that a number is combined in: float32 for 16-bit floats, else its own dtype."""
    return np.dtype(np.float32) if scalar.kind == "float" and scalar.bits == 16 else scalar.dtype


@cache
def numpy_dtype(dtype: AnyDType) -> AnyDType:
    """Return the dtype that NumPy's own functions take instead: float32 for bfloat16, which is not NumPy's."""
    return np.dtype(np.float32) if dtype.name == BFLOAT16_NAME else dtype


@cache
def scalar_of(dtype: AnyDType) -> Scalar:
    """Return the `Scalar` of a NumPy dtype, in any byte order.

    Raises:
        UnsupportedDtypeError: no element can have the dtype (strings, objects, dates, complex128, …).
    """
    scalar = SCALARS.get(dtype.name)
    if scalar is None:
        raise UnsupportedDtypeError(
            f"an array of dtype {dtype} was passed, which cannot be an element on a GPU; gpuscan knows "
            f"{', '.join(SCALARS)}. {_way_out(dtype)}"
        )
    return scalar


def _way_out(dtype: AnyDType) -> str:
    """Return what a caller can do with an array of a dtype that no element has."""
    if dtype.kind in "mM":
        return "Pass the numbers behind it: x.view(np.int64)"
    if dtype.name == "complex128":
        return "Pass dtype=np.complex64 to combine in 32-bit parts, or convert the array with .astype(np.complex64)"
    if dtype.kind == "O":
        return (
            "If its objects are numbers, convert it with .astype(...). Number other objects, such as strings, with "
            "pandas.factorize(x) or np.unique(x, return_inverse=True)"
        )
    if dtype.kind in "SU":
        return "Number the strings first, by np.unique(x, return_inverse=True) or the faster pandas.factorize(x)"
    return "Convert the array with .astype(...) first"


@dataclass(frozen=True)
class Structure(HashedOnce):
    """The way in which a user's value nests its arrays: a leaf, or a container of further structures.

    Attributes:
        container: ``"leaf"``, ``"tuple"``, ``"list"``, ``"named"`` (a named tuple), ``"dict"`` or ``"structured"``
            (structured dtype).
        keys: the keys of the children, in order: integers for a tuple or list, else names.
        children: the structures inside.
        factory: the named tuple's class, for ``"named"``.
    """

    container: str = "leaf"
    keys: tuple[str | int, ...] = ()
    children: tuple[Structure, ...] = ()
    factory: Callable[..., object] | None = None

    __hash__ = HashedOnce.__hash__

    def paths(self, prefix: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
        """Yield the key path of every leaf, depth first."""
        if self.container == "leaf":
            yield prefix
        for key, child in zip(self.keys, self.children, strict=True):
            yield from child.paths((*prefix, key))

    @property
    def leaf_count(self) -> int:
        """The number of leaves."""
        return sum(1 for _ in self.paths())

    def flatten(self, value: Any) -> list[Any]:
        """Return the leaves of a value that nests as this structure says, depth first.

        Raises:
            TypeError, ValueError, KeyError, IndexError: the value nests in another way.
        """
        if self.container == "leaf":
            return [value]
        if self.container in ("tuple", "list", "named") or isinstance(value, (tuple, list)):
            parts: Sequence[object] = value
        else:
            parts = [value[key] for key in self.keys]
        given = len(value) if isinstance(value, dict) else len(parts)
        if given != len(self.children):
            raise ValueError(f"expected {len(self.children)} fields, got {given}")
        return [leaf for child, part in zip(self.children, parts, strict=True) for leaf in child.flatten(part)]

    def unflatten(self, leaves: Sequence[object]) -> Any:
        """Return the value with these leaves as operators get it: dicts and structured arrays become `Fields`."""
        return self._with(leaves, Fields)

    def build_bundle(self, leaves: Sequence[object]) -> Any:
        """Return the value with these leaves as callers get it, as the inverse of `flatten`."""
        return self._with(leaves, dict)

    def _with(self, leaves: Sequence[object], mapping: Callable[..., object]) -> object:
        if self.container == "leaf":
            (leaf,) = leaves
            return leaf
        parts, start = [], 0
        for child in self.children:
            count = child.leaf_count
            parts.append(child._with(leaves[start : start + count], mapping))
            start += count
        if self.container in ("tuple", "list"):
            return tuple(parts) if self.container == "tuple" else parts
        if self.factory is not None:
            return self.factory(*parts)
        return mapping(zip(self.keys, parts, strict=True))


class Fields(dict[str, Any]):
    """The fields of a dict or a structured array: by name, as an attribute, or by position.

    Example:
        >>> fields = Fields(gain=2, shift=3)
        >>> fields["gain"], fields.gain, fields[1]
        (2, 2, 3)
    """

    def __missing__(self, key: object) -> Any:
        if isinstance(key, int):
            return tuple(self.values())[key]
        raise KeyError(f"{key!r}: there are the fields {', '.join(map(str, self))}")

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"{name!r}: there are the fields {', '.join(map(str, self))}")


# The structure of a single array.
LEAF = Structure()


def container_of(value: object) -> tuple[Structure, list[object]] | None:
    """Return the structure of a tuple, a list or a dict, still without children, and its values; None for others."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Structure("named", value._fields, (), type(value)), list(value)
    if isinstance(value, (tuple, list)):
        return Structure("tuple" if isinstance(value, tuple) else "list", tuple(range(len(value)))), list(value)
    return (Structure("dict", tuple(value)), list(value.values())) if isinstance(value, Mapping) else None


def nest_children(container: Structure, children: Sequence[tuple[Structure, list[V]]]) -> tuple[Structure, list[V]]:
    """Return a container with these children, and the leaves of all, depth first."""
    inner = tuple([child for child, _ in children])
    structure = Structure(container.container, container.keys, inner, container.factory)
    return structure, [leaf for _, leaves in children for leaf in leaves]


def tuple_of(count: int) -> Structure:
    """Return the structure of a tuple of this many arrays."""
    return Structure("tuple", tuple(range(count)), (LEAF,) * count)


@dataclass(frozen=True)
class Field(HashedOnce):
    """One array's share of an element: a number, or a vector or matrix of one kind of number.

    Attributes:
        name: the field's name in WGSL, inside `Element`: the user's own name, or ``f0``, ``f1``, …
        scalar: the kind of number.
        shape: the trailing axes that belong to the element; ``()`` for one number.
    """

    name: str
    scalar: Scalar
    shape: tuple[int, ...] = ()

    __hash__ = HashedOnce.__hash__

    @cached_property
    def count(self) -> int:
        """The count of numbers in the field."""
        return prod(self.shape)

    @cached_property
    def words(self) -> int:
        """32-bit words of the compute form."""
        return self.count * self.scalar.words

    @cached_property
    def storage_bytes(self) -> int:
        """Bytes of one element of this field in its array."""
        return self.count * self.scalar.bits // 8

    def wgsl(self, native_int64: bool) -> str:
        """Return the WGSL type of the field in compute form."""
        scalar = self.scalar.wgsl(native_int64)
        return f"array<{scalar}, {self.count}>" if self.shape else scalar


@dataclass(frozen=True)
class Element(HashedOnce):
    """The type of the values that an operator combines.

    Attributes:
        fields: the leaves, depth first.
        structure: the way in which the user's value nests them.
    """

    fields: tuple[Field, ...]
    structure: Structure = LEAF

    __hash__ = HashedOnce.__hash__

    @property
    def single(self) -> bool:
        """True if the element is a single field, so that WGSL's `Element` is its type and not a struct."""
        return self.structure.container == "leaf"

    @cached_property
    def words(self) -> int:
        """32-bit words of the compute form."""
        return sum(field.words for field in self.fields)

    @cached_property
    def storage_bytes(self) -> int:
        """Bytes of one element over all its arrays."""
        return sum(field.storage_bytes for field in self.fields)

    def member(self, variable: str, index: int) -> str:
        """Return the WGSL expression for field `index` of the `Element` called `variable`."""
        return variable if self.single else f"{variable}.{self.fields[index].name}"


def min_chunk(*elements: Element) -> int:
    """Return the smallest number of neighbouring elements that fill whole 32-bit words in every field's array."""
    sizes = [field.storage_bytes for element in elements for field in element.fields]
    return max(max(1, 4 // gcd(4, size)) for size in sizes)


def field_names(structure: Structure) -> tuple[str, ...]:
    """Return WGSL names for the leaves: the user's own names if they are safe identifiers, else ``f0``, ``f1``, …"""
    names = []
    for position, path in enumerate(structure.paths()):
        own = "_".join(str(key) for key in path)
        usable = own.isidentifier() and own.isascii() and not own.startswith("_") and own not in WGSL_RESERVED
        names.append(own if usable else f"f{position}")
    return tuple(names) if len(set(names)) == len(names) else tuple(f"f{i}" for i in range(len(names)))


def element_of(
    dtypes: Sequence[AnyDType], structure: Structure = LEAF, shapes: Sequence[tuple[int, ...]] | None = None
) -> Element:
    """Return the `Element` with leaves of these dtypes and trailing shapes."""
    shapes = [()] * len(dtypes) if shapes is None else shapes
    names = field_names(structure)
    # Elements are kept for later calls, in which a size of this one would stand for another number.
    numbers = [tuple(map(reveal, shape)) for shape in shapes]
    element = Element(
        tuple(Field(n, scalar_of(np.dtype(d)), s) for n, d, s in zip(names, dtypes, numbers, strict=True)), structure
    )
    return intern_value(element)


def bundle_of(fields: Sequence[Field]) -> Element:
    """Return an element of these fields, as a tuple."""
    named = tuple(replace(field, name=f"f{i}") for i, field in enumerate(fields))
    return intern_value(Element(named, tuple_of(len(named))))


# The keywords and reserved words of WGSL, and the names of its types, which no field can have.
WGSL_RESERVED = frozenset(
    """alias array atomic bitcast bool break case const const_assert continue continuing default diagnostic discard
    else enable f16 f32 f64 false fn for function i32 i64 if let loop mat2x2 mat3x3 mat4x4 override private ptr read
    read_write requires return sampler storage struct switch true u32 u64 uniform var vec2 vec3 vec4 while workgroup
    write NULL Self abstract active alignas alignof as asm async attribute auto await become cast catch class co_await
    co_return co_yield coherent column_major common compile compile_fragment concept const_cast consteval constexpr
    constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast enum explicit export extends
    extern external fallthrough filter final finally friend from fxgroup get goto groupshared highp impl implements
    import inline instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut mutable
    namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null nullptr of operator
    package packoffset partial pass patch pixelfragment precise precision premerge priv protected pub public readonly
    ref regardless register reinterpret_cast require resource restrict self set shared sizeof smooth snorm static
    static_assert static_cast std subroutine super target template this thread_local throw trait try type typedef
    typeid typename typeof union unless unorm unsafe unsized use using varying virtual volatile wgsl where with
    writeonly yield""".split()
)


def word_dtype(scalar: Scalar) -> AnyDType:
    """Return the dtype of a number in compute form: one or two whole 32-bit words."""
    if scalar.bits == 64:
        return scalar.dtype
    if scalar.kind in ("bool", "unsigned"):
        return np.dtype(np.uint32)
    return np.dtype(np.int32 if scalar.kind == "signed" else np.float32)


def words_of(element: Element, leaves: Sequence[AnyArray]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Return the 32-bit words of elements in compute form, as an array (rows, words).

    Args:
        leaves: for each field an array (rows, *shape).
    """
    columns = []
    for field, leaf in zip(element.fields, leaves, strict=True):
        wide = leaf.astype(word_dtype(field.scalar), copy=False)
        columns.append(np.ascontiguousarray(wide).reshape(len(leaf), -1).view(np.uint32))
    return np.concatenate(columns, axis=1)
