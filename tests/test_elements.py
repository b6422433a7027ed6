"""Elements: numbers, fields, how bundles nest, and the words that travel between invocations."""

from __future__ import annotations

import re
from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscan.elements import LEAF, SCALARS, WGSL_RESERVED, Structure, element_of, field_names, scalar_of, words_of
from gpuscan.errors import UnsupportedDtypeError

Pair = namedtuple("Pair", "gain shift")


def make_structure(*keys: Any, container: str = "tuple", factory: Any = None) -> Structure:
    """Return a structure of leaves."""
    return Structure(container, keys, (LEAF,) * len(keys), factory)


# ----- Numbers


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_know_their_dtype(name: str) -> None:
    scalar = SCALARS[name]
    assert scalar_of(scalar.dtype) is scalar
    assert scalar.dtype.itemsize * 8 == scalar.bits
    assert scalar.packed == (scalar.bits < 32)
    assert scalar.per_word == max(1, 32 // scalar.bits)
    assert scalar.words == (2 if scalar.bits == 64 else 1)


def test_byte_order_is_no_part_of_the_scalar() -> None:
    assert scalar_of(np.dtype(">f4")) is scalar_of(np.dtype("<f4"))


def test_compute_types() -> None:
    types = {name: (scalar.wgsl(False), scalar.wgsl(True)) for name, scalar in SCALARS.items()}
    assert types == {
        "bool": ("bool", "bool"),
        **dict.fromkeys(("int8", "int16", "int32"), ("i32", "i32")),
        **dict.fromkeys(("uint8", "uint16", "uint32"), ("u32", "u32")),
        "int64": ("vec2<u32>", "i64"),
        "uint64": ("vec2<u32>", "u64"),
        **dict.fromkeys(("float16", "bfloat16", "float32"), ("f32", "f32")),
        "float64": ("f64", "f64"),
        "complex64": ("vec2<f32>", "vec2<f32>"),
    }


@pytest.mark.parametrize(
    ("dtype", "way_out"),
    [
        *((text, "np.unique(x, return_inverse=True)") for text in ("U3", "S3")),
        *((time, "x.view(np.int64)") for time in ("M8[s]", "m8[s]")),
        ("c16", "dtype=np.complex64"),
        *((other, ".astype(...)") for other in ("O", "V4", np.longdouble)),
        ("O", "np.unique(x, return_inverse=True)"),
    ],
)
def test_other_dtypes_are_refused_by_name(dtype: Any, way_out: str) -> None:
    dtype = np.dtype(dtype)
    with pytest.raises(UnsupportedDtypeError, match=rf"float32.*{re.escape(way_out)}") as raised:
        scalar_of(dtype)
    assert str(dtype) in str(raised.value)
    assert isinstance(raised.value, TypeError)


# ----- Structures

TREES = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(tuple) | st.dictionaries(st.sampled_from("abc"), inner, min_size=1)
    ),
)


def structure_of(value: Any) -> Structure:
    if isinstance(value, dict):
        return Structure("dict", tuple(value), tuple(structure_of(part) for part in value.values()))
    if isinstance(value, tuple):
        return Structure("tuple", tuple(range(len(value))), tuple(structure_of(part) for part in value))
    return LEAF


@given(TREES)
def test_flatten_and_back(value: Any) -> None:
    structure = structure_of(value)
    leaves = structure.flatten(value)
    assert structure.unflatten(leaves) == value
    assert structure.leaf_count == len(leaves)
    for path, leaf in zip(structure.paths(), leaves, strict=True):
        found = value
        for key in path:
            found = found[key]
        assert found == leaf


def test_named_tuples_and_records_come_back() -> None:
    named = make_structure("gain", "shift", container="named", factory=Pair)
    assert named.flatten(Pair(1, 2)) == [1, 2]
    assert named.unflatten([1, 2]) == Pair(1, 2)
    assert make_structure("u", "v", container="structured").unflatten([1, 2]) == {"u": 1, "v": 2}


def test_dicts_are_read_by_key() -> None:
    assert make_structure("u", "v", container="dict").flatten({"v": 2, "u": 1}) == [1, 2]


def test_another_number_of_fields_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected 2 fields, got 3"):
        make_structure(0, 1).flatten((1, 2, 3))
    with pytest.raises(ValueError, match="expected 2 fields, got 3"):
        make_structure("u", "v", container="dict").flatten({"u": 1, "v": 2, "w": 3})


# ----- Fields


def test_fields_are_named_after_the_users() -> None:
    assert field_names(LEAF) == ("f0",)
    assert field_names(make_structure(0, 1)) == ("f0", "f1")
    assert field_names(make_structure("gain", "shift", container="dict")) == ("gain", "shift")
    inner = make_structure("u", "v", container="dict")
    assert field_names(Structure("dict", ("a", "b"), (inner, LEAF))) == ("a_u", "a_v", "b")


def test_names_that_wgsl_cannot_have_are_numbered() -> None:
    assert field_names(make_structure("let", "_x", "a b", "é", "ok", container="dict")) == (
        "f0",
        "f1",
        "f2",
        "f3",
        "ok",
    )
    assert field_names(make_structure("x", "f0", container="dict")) == ("x", "f0")
    clash = Structure("dict", ("a", "a_b"), (make_structure("b", container="dict"), LEAF))
    assert field_names(clash) == ("f0", "f1")
    for word in ("fn", "f32", "array", "while", "from", "vec2", "target"):
        assert word in WGSL_RESERVED


def test_elements_count_words_and_bytes() -> None:
    element = element_of(
        [np.dtype(d) for d in ("int8", "float16", "uint64", "complex64", "float32")],
        make_structure(*range(5)),
        [(), (), (), (), (2, 3)],
    )
    assert [field.words for field in element.fields] == [1, 1, 2, 2, 6]
    assert element.words == 12
    assert [field.storage_bytes for field in element.fields] == [1, 2, 8, 8, 24]
    assert element.storage_bytes == 43
    assert element.fields[4].wgsl(False) == "array<f32, 6>"
    assert element.fields[2].wgsl(False) == "vec2<u32>"
    assert not element.single
    assert element.member("a", 1) == "a.f1"


def test_a_bare_field_is_the_element() -> None:
    element = element_of([np.dtype(np.float32)])
    assert element.single
    assert element.member("a", 0) == "a"
    assert not element_of([np.dtype(np.float32)], make_structure(0)).single  # a bundle of one stays a bundle


def test_elements_are_keys_of_caches() -> None:
    one, same = (
        element_of([np.dtype(np.int8), np.dtype(np.int8)], make_structure("u", "v", container="dict")) for _ in range(2)
    )
    other = element_of([np.dtype(np.int8), np.dtype(np.uint8)], make_structure("u", "v", container="dict"))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


# ----- Words


def test_words_are_the_compute_forms_bits() -> None:
    cases: list[tuple[Any, list[int]]] = [
        (np.array([True, False]), [1, 0]),
        (np.array([-1, 127], np.int8), [0xFFFFFFFF, 127]),
        (np.array([255, 7], np.uint8), [255, 7]),
        (np.array([-2, 5], np.int32), [0xFFFFFFFE, 5]),
        (np.array([1.0, -2.0], np.float32), [0x3F800000, 0xC0000000]),
        (np.array([1.0, -2.0], np.float16), [0x3F800000, 0xC0000000]),
        (np.array([1.0, -2.0], ml_dtypes.bfloat16), [0x3F800000, 0xC0000000]),
        (np.array([1 << 32 | 7, 3], np.uint64), [7, 1, 3, 0]),
        (np.array([-1, 2], np.int64), [0xFFFFFFFF, 0xFFFFFFFF, 2, 0]),
        (np.array([1 - 2j], np.complex64), [0x3F800000, 0xC0000000]),
        (np.array([1.0]), [0, 0x3FF00000]),
    ]
    for values, wanted in cases:
        words = words_of(element_of([values.dtype]), [values])
        assert words.dtype == np.uint32
        assert words.shape == (len(values), len(wanted) // len(values))
        assert words.ravel().tolist() == wanted


def test_words_of_a_bundle_follow_field_by_field() -> None:
    element = element_of([np.dtype(np.uint8), np.dtype(np.int16)], make_structure(0, 1), [(), (2,)])
    words = words_of(element, [np.array([1, 2], np.uint8), np.array([[3, 4], [5, -6]], np.int16)])
    assert words.tolist() == [[1, 3, 4], [2, 5, 0xFFFFFFFA]]


def test_words_of_arrays_that_are_not_contiguous() -> None:
    values = np.arange(10, dtype=np.int64)[::-2]
    words = words_of(element_of([values.dtype]), [values])
    assert words[:, 0].tolist() == [9, 7, 5, 3, 1]
