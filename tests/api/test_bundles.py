"""Bundles of every kind: lists, nested ones, elements with axes, against loops on NumPy; and what is no bundle."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.oracle import Array, assert_same, some


def steps(shape: tuple[int, ...], seed: int, dtype: Any = np.uint32) -> Array:
    return np.random.default_rng(seed).integers(0, 7, shape).astype(dtype)


def combine_nested(l: Any, r: Any) -> Any:
    """Combine ``[gain, [shift, {"count": …}]]``: a map ``x -> gain x + shift``, and how many there are."""
    return [l[0] * r[0], [r[0] * l[1][0] + r[1][0], {"count": l[1][1].count + r[1][1]["count"]}]]


def test_lists_and_nested_bundles(device: gs.Device) -> None:
    a, b, ones = steps((700,), 0), steps((700,), 1), np.ones(700, np.uint32)
    gain, shift = np.uint32(1), np.uint32(0)
    gains, shifts = [], []
    for x, y in zip(a, b, strict=True):
        gain, shift = gain * x, x * shift + y
        gains.append(gain)
        shifts.append(shift)
    op = gs.operator(combine_nested, identity=[1, [0, {"count": 0}]])
    for place, where in ((np.asarray, device), (device.asarray, None), (np.asarray, "numpy")):
        bundle = [place(a), [place(b), {"count": place(ones)}]]
        got = gs.scan(bundle, op, device=where)
        assert [type(got), type(got[1]), type(got[1][1])] == [list, list, dict]
        assert_same(got[0], np.array(gains))
        assert_same(got[1][0], np.array(shifts))
        assert_same(got[1][1]["count"], np.arange(1, 701, dtype=np.uint32))
        out = [place(a * 0), [place(a * 0), {"count": place(a * 0)}]]
        assert gs.scan(bundle, op, exclusive=True, out=out, device=where) is out
        assert_same(out[1][0], np.array([0, *shifts[:-1]], np.uint32))
        last = gs.reduce(bundle, op, device=where)
        assert isinstance(last, list)
        assert np.asarray(last[1][0]) == shifts[-1]
    picked = gs.compact([a, [b]], lambda v: v[1][0] > 3)
    assert_same(picked[1][0], b[b > 3])
    gs.check_associative(op, [np.uint32, [np.uint32, {"count": np.uint32}]])


def test_a_list_of_numbers_is_an_array() -> None:
    assert_same(gs.scan([1, 2, 3], device="numpy"), np.array([1, 3, 6]))
    assert_same(gs.scan([[1, 2], [3, 4]], axis=0, device="numpy"), np.array([[1, 2], [4, 6]]))
    assert_same(gs.reduce([(1, 2), (3, 4)], device="numpy"), np.int64(10))


@pytest.mark.parametrize("declared", [False, True])
def test_arrays_with_different_axes_of_the_element(device: gs.Device, declared: bool) -> None:
    """Compose affine maps of space: a matrix, a vector and a number for each element, of one or two scanned axes."""

    def compose(l: Any, r: Any) -> Any:
        moved = (r["turn"] @ l["shift"][..., None])[..., 0]
        return {"turn": r["turn"] @ l["turn"], "shift": moved + r["shift"], "count": l.count + r.count}

    op: Any = gs.operator(compose, element_axes=2) if declared else compose
    for lead, axis in some(device, (((41,), 0), ((3, 20), 1))):
        x = {"turn": steps((*lead, 2, 2), 2), "shift": steps((*lead, 2), 3), "count": np.ones(lead, np.uint32)}
        rows = {name: np.moveaxis(field, axis, 0) for name, field in x.items()}
        state, states = {name: row[0] for name, row in rows.items()}, []
        for i in range(lead[axis]):
            step = {name: row[i] for name, row in rows.items()}
            state = step if i == 0 else dict(compose(_Named(state), _Named(step)))
            states.append(state)
        for place, where in ((np.asarray, device), (device.asarray, None), (np.asarray, "numpy")):
            got = gs.scan({name: place(field) for name, field in x.items()}, op, axis=axis, device=where)
            last = gs.reduce({name: place(field) for name, field in x.items()}, op, axis=axis, device=where)
            for name in x:
                assert_same(got[name], np.moveaxis(np.stack([each[name] for each in states]), 0, axis), (name, where))
                assert_same(np.asarray(last[name]), states[-1][name], (name, where))


class _Named(dict[str, Any]):
    __getattr__ = dict.__getitem__


def test_as_many_shared_axes_as_there_are(device: gs.Device) -> None:
    """Assert that elements stay narrow: gates (rows, steps) and states (rows, steps, 3) share two axes."""
    gates, states = steps((4, 50), 4), steps((4, 50, 3), 5)

    def decay_state(l: Any, r: Any) -> Any:
        return l[0] * r[0], r[0][..., None] * l[1] + r[1]

    wanted = states.copy()
    for t in range(1, 50):
        wanted[:, t] += gates[:, t, None] * wanted[:, t - 1]
    for where in (device, "numpy"):
        assert_same(gs.scan((gates, states), decay_state, axis=1, device=where)[1], wanted)
        assert_same(gs.scan((gates, states), decay_state, axis=-1, device=where)[1], wanted)
        with pytest.raises(ValueError, match=r"shape \(4, 50\) and 1 axes of the element was passed without axis="):
            gs.scan((gates, states), decay_state, device=where)
    pairs = (steps((30, 2), 6), steps((30, 3), 7))
    sums = gs.scan(pairs, lambda l, r: (l[0] + r[0], l[1] + r[1]), device=device)
    for found, field in zip(sums, pairs, strict=True):
        assert_same(found, field.cumsum(0, dtype=np.uint32))


def test_what_is_no_bundle(device: gs.Device) -> None:
    x = np.ones((4, 2), np.float32)
    bad: Any
    for bad, text in (
        ((x, x[:3]), "must have one shape, or at least one length along the first axis"),
        ([x, []], "must have one shape"),
        ((x, np.float32(1)), "has no axis to scan along"),
    ):
        with pytest.raises(ValueError, match=text):
            gs.scan(bad, lambda l, r: r, axis=0, device=device)
    with pytest.raises(gs.OperatorError, match=r"returns 1 fields; its arguments have 2 fields"):
        gs.scan([x, [x]], lambda l, r: [l[0]], axis=0, device=device)
    with pytest.raises(gs.OperatorError, match="'z': there are the fields x, y"):
        gs.scan({"x": x, "y": x}, lambda l, r: {"x": l.z, "y": r.y}, axis=0, device=device)


@pytest.mark.parametrize(
    "nothing", [None, {1, 2}, (v for v in range(3)), object()], ids=["None", "set", "generator", "object"]
)
def test_what_is_no_array_is_named(device: gs.Device, nothing: Any) -> None:
    for call in (lambda x: gs.scan(x, device=device), lambda x: gs.sort(x, device=device), device.asarray):
        with pytest.raises(TypeError, match=r"which NumPy takes for a single object\. Pass an array"):
            call(nothing)


class Recorded:
    """A stand-in for a tensor of PyTorch that requires a gradient."""

    requires_grad = True


def test_files_mappings_and_recorded_arrays_are_told_what_to_pass(device: gs.Device, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(3))
    with open(tmp_path / "x.npz", "rb") as file, np.load(tmp_path / "x.npz") as arrays:
        for given, advice in (
            ("x.npy", r"np\.load\(path"),
            (tmp_path, r"np\.load\(path"),
            (file, r"np\.load\(path"),
            (b"abc", r"np\.frombuffer\(x"),
            (arrays, r"type NpzFile .* dict\(x\)|Pass each of its arrays"),
            (Recorded(), r"gpuscan\.torch"),
        ):
            bad: Any = given
            for call in (lambda x: gs.scan(x, device=device), lambda x: gs.sort(x, device=device), device.asarray):
                with pytest.raises(TypeError, match=advice):
                    call(bad)
            if given is not file:
                with pytest.raises(TypeError, match=advice):
                    next(gs.scan_chunks([bad], device=device))
        assert not file.tell(), "the file was read"


def test_numbers_are_no_chunks(device: gs.Device) -> None:
    for numbers in ([1, 2], [np.float32(1)], [True], iter(range(3))):
        chunks: Any = numbers
        with pytest.raises(TypeError, match=r"the number .* was passed as a chunk.* Pass \[x\]"):
            next(gs.scan_chunks(chunks, device=device))


@pytest.mark.parametrize(
    ("make", "sums"),
    [
        (lambda x: {"a": x, "b": x}, "{'a': l['a'] + r['a'], 'b': l['b'] + r['b']}"),
        (lambda x: (x, x), "(l[0] + r[0], l[1] + r[1])"),
        (lambda x: (x,), "(l[0] + r[0],)"),
        (lambda x: [x] * 5, "(l[0] + r[0], l[1] + r[1], l[2] + r[2], ...)"),
    ],
)
def test_a_named_operator_of_a_bundle_says_what_to_write(device: gs.Device, make: Any, sums: str) -> None:
    bundle = make(steps((40,), 1))
    with pytest.raises(gs.OperatorError, match=re.escape(f"combines each field, such as lambda l, r: {sums}")):
        gs.scan(bundle, device=device)
    if "..." not in sums:
        total = gs.scan(bundle, eval(f"lambda l, r: {sums}"), device=device)
        assert len(total) == len(bundle)


def test_elements_of_too_few_axes_say_how_many_are_needed(device: gs.Device) -> None:
    with pytest.raises(ValueError, match=r"\(4,\) .* 2 trailing axes of the element\. Pass an array of 3 axes or more"):
        gs.scan(np.ones(4), "matmul", device=device)
    with pytest.raises(ValueError, match=r"\(2, 2\) .* Pass x\[np\.newaxis\] to scan a single element"):
        gs.scan(np.ones((2, 2)), "matmul", device=device)


def test_fields_of_a_structured_array_by_attribute(device: gs.Device) -> None:
    x = np.zeros(300, [("gain", np.uint32), ("shift", np.uint32)])
    x["gain"], x["shift"] = steps((300,), 8), steps((300,), 9)

    def compose_maps(l: Any, r: Any) -> Any:
        return l.gain * r.gain, r.gain * l.shift + r.shift

    for where in (device, "numpy"):
        got = gs.scan(x, compose_maps, device=where)
        assert got.dtype == x.dtype
        wanted = gs.scan((x["gain"], x["shift"]), lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), device="numpy")
        assert_same(got["shift"], wanted[1])


def test_constants_of_numpys_default_type(device: gs.Device) -> None:
    """Assert that np.eye(n) and its like take the type of the elements, as Python's numbers do."""
    x = np.random.default_rng(0).normal(0, 0.3, (40, 2, 2)).astype(np.float32)

    def with_eye(l: Any, r: Any) -> Any:
        return l @ (np.eye(2) @ r) + np.zeros((2, 2))

    wanted = gs.scan(x, "matmul", axis=0, device="numpy")
    for where in (device, "numpy"):
        got = gs.scan(x, gs.operator(with_eye, element_axes=2), device=where)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
        with pytest.raises(gs.OperatorError, match="is float64 in NumPy"):
            gs.scan(x, gs.operator(lambda l, r: l + r * np.full((2, 2), 0.1), element_axes=2), device=where)


def test_initial_values_of_one_entry(device: gs.Device) -> None:
    x = np.arange(5, dtype=np.float32)
    for where in (device, "numpy"):
        assert_same(gs.scan(x, initial=np.array([3]), device=where), np.cumsum(x) + np.float32(3))
        h = gs.linear_recurrence(x, x, initial=[2.0], device=where)
        assert_same(h, gs.linear_recurrence(x, x, initial=2.0, device=where))
    grads = gs.linear_recurrence_vjp(x, x, x, initial=np.ones(1, np.float32))
    assert grads[2].shape == (1,)
