"""Labels and keys of any kind as integers: strings, categoricals and other hashable values."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.errors import abbreviate
from gpuscan.problem.arguments import Leaf, OnDevice, as_array

# The number of a missing label: None, NaN and their like, and what pandas' codes have for them.
MISSING = -1


def labels_of(groups: object) -> OnDevice | Array:
    """Return labels as an array of integers or bools: numbered in the order of their first appearance if they are none.

    Categoricals have their codes. Missing labels are -1.

    Raises:
        TypeError: labels on a device are neither integers nor bools, or a label cannot be hashed.
    """
    if isinstance(groups, OnDevice):
        if groups.dtype.kind not in "iub":
            raise TypeError(
                f"groups of dtype {groups.dtype} were passed in an array on a device, where labels are integers or "
                "bools. Pass groups.numpy() to have other labels numbered"
            )
        return groups
    codes = _codes_of(groups)
    if codes is not None:
        return codes
    values = _values_of(groups)
    return values if values.dtype.kind in "iub" else number_labels(values)


def keys_of(keys: object) -> Leaf:
    """Return keys as an array that can be compared: the codes of categoricals, numbers for objects, else the values."""
    if isinstance(keys, OnDevice):
        return keys
    codes = _codes_of(keys)
    if codes is not None:
        return codes
    values = _values_of(keys)
    return number_labels(values) if values.dtype.kind in "OT" else values


def category_count(groups: object) -> int | None:
    """Return the number of categories of a categorical; None for other labels."""
    categories = _categorical(groups)
    return None if categories is None else len(categories.categories)


def describe_label(groups: object, number: int) -> str:
    """Return the label that has a number as a message shows it: with the caller's value, if it was numbered."""
    categorical = _categorical(groups)
    if categorical is not None:
        value = categorical.categories[number]
    else:
        values = _values_of(groups)
        if values.dtype.kind in "iub" or _codes_of(groups) is not None:
            return f"the label {number}"
        value = values.ravel()[number_labels(values).ravel() == number].tolist()[0]
    return f"the label {abbreviate(value)}, which has the number {number},"


def number_labels(values: Array) -> Array:
    """Return the numbers of values in the order of their first appearance, and -1 for None, NaN and NaT.

    Example:
        >>> import numpy as np
        >>> number_labels(np.array(["b", "a", "b"]))
        array([0, 1, 0])

    Raises:
        TypeError: a value cannot be hashed.
    """
    flat = values.ravel()
    if flat.dtype.kind == "T":
        flat = flat.astype(object)
    try:
        numbers = _number_by_pandas(flat) if flat.dtype.kind in "OUSfcmM" else None
        if numbers is None:
            numbers = _number_by_dict(flat) if flat.dtype.kind == "O" else _number_by_sort(flat)
    except TypeError as error:
        raise TypeError(
            f"labels of dtype {values.dtype} were passed, but one of them cannot be hashed: {error}. Pass labels such "
            "as strings, numbers, dates or tuples of them"
        ) from None
    return numbers.astype(np.int64, copy=False).reshape(values.shape)


# ----- What pandas and lists hold


def _categorical(given: object) -> Any:
    """Return the object that has the codes of a categorical; None for anything else."""
    if getattr(getattr(given, "dtype", None), "name", None) != "category":
        return None
    return getattr(given, "cat", given)


def _codes_of(given: object) -> Array | None:
    """Return the numbers that pandas has for a categorical, or for nullable integers and bools; None for others."""
    categorical = _categorical(given)
    if categorical is not None:
        return np.asarray(categorical.codes)
    dtype = getattr(given, "dtype", None)
    if isinstance(dtype, np.dtype) or getattr(dtype, "kind", None) not in ("i", "u", "b"):
        return None
    if not hasattr(given, "to_numpy") or not hasattr(given, "isna"):
        return None
    codes: Array = given.to_numpy(dtype=np.int64, na_value=MISSING)
    return codes


def _values_of(given: object) -> Array:
    """Return values as an array. Lists of text and other values stay objects, which NumPy would turn into text."""
    values = as_array(given)
    if values.dtype.kind in "US" and isinstance(given, (list, tuple)):
        return np.array(given, object)
    return values


# ----- Numbering


def _number_by_pandas(flat: Array) -> Array | None:
    """Return the numbers that pandas finds; None where it is not installed."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        return None
    if flat.dtype.kind in "fc" and flat.dtype.itemsize < 8:
        flat = flat.astype(np.float64)
    codes: Array = pandas.factorize(flat.astype(object) if flat.dtype.kind in "US" else flat)[0]
    return codes


def _number_by_dict(flat: Array) -> Array:
    numbers: dict[object, int] = {}

    def number_of(value: object) -> int:
        # NaN and NaT are not equal to themselves.
        missing = value is None or value != value
        return MISSING if missing else numbers.setdefault(value, len(numbers))

    return np.fromiter((number_of(value) for value in flat.tolist()), np.int64, len(flat))


def _number_by_sort(flat: Array) -> Array:
    missing = flat != flat
    _, firsts, numbers = np.unique(flat[~missing], return_index=True, return_inverse=True)
    ranks = np.empty(len(firsts), np.int64)
    ranks[np.argsort(firsts)] = np.arange(len(firsts))
    numbered = np.full(flat.shape, MISSING, np.int64)
    numbered[~missing] = ranks[numbers]
    return numbered
