"""`gpuscan.jax` gives what a loop in JAX does, and its derivatives, under jit and vmap."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpuscan as gs
import gpuscan.jax
from tests.harness.calls import Counted
from tests.oracle import affine

# JAX compiles most functions of these tests for one call on a few numbers.
jax.config.update("jax_disable_most_optimizations", True)

RNG = np.random.default_rng(0)
A = jnp.asarray(RNG.uniform(0.5, 1, (150, 3)), jnp.float32)
B = jnp.asarray(RNG.normal(size=(150, 3)), jnp.float32)
MATRICES = jnp.asarray(RNG.normal(size=(60, 2, 2, 2)) * 0.5, jnp.float32)


def ours(fn: Any, elems: Any, **options: Any) -> Any:
    return gpuscan.jax.associative_scan(fn, elems, **options)


def theirs(fn: Any, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Combine one element after the other, which JAX compiles faster than its own associative_scan."""
    rows = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0)[:: -1 if reverse else 1], elems)

    def step(carry: Any, element: Any) -> Any:
        # The function gets elements with all their axes.
        whole = [jax.tree.map(lambda leaf: jnp.expand_dims(leaf, axis), each) for each in (carry, element)]
        carry = jax.tree.map(lambda leaf: jnp.squeeze(leaf, axis), fn(*whole))
        return carry, carry

    if not jax.tree.leaves(rows)[0].shape[0]:
        return elems
    first, rest = (jax.tree.map(lambda leaf, part=part: leaf[part], rows) for part in (0, slice(1, None)))
    _, others = jax.lax.scan(step, first, rest)
    joined = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more])[:: -1 if reverse else 1], first, others)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), joined)


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    """Compare two pytrees, each array relative to its largest number."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        scale = max(1.0, float(np.abs(np.asarray(other, complex)).max(initial=0)))
        np.testing.assert_allclose(np.asarray(one, complex), np.asarray(other, complex), rtol=0, atol=tolerance * scale)


def apply_gates(l: Any, r: Any) -> Any:
    """Combine dicts and lists, with a gate for each matrix."""
    gate = r["gate"][:, None, None]
    return {"gate": l["gate"] * r["gate"], "state": [gate * l["state"][0] + r["state"][0]]}


def combine_by_primitives(l: Any, r: Any) -> Any:
    """Combine by many primitives, on vectors of the element; it need not be associative to be traced."""
    joined = jnp.concatenate([l[..., 1:], r[..., :1]], axis=-1)
    total = jnp.sum(joined, axis=-1, keepdims=True) + jnp.einsum("...i,ij->...j", l, jnp.eye(3, dtype=l.dtype))
    stacked = jnp.stack([l, r], axis=-1).mean(-1)[..., ::-1]
    return jnp.where(
        r > 0.5, jax.nn.sigmoid(total) + jax.lax.erf(l), jnp.clip(stacked, -1, 1) ** 3 + jnp.logaddexp(l, r)
    )


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "affine": (affine, (A, B), {}),
    "reversed": (affine, (A, B), {"reverse": True}),
    "last axis": (affine, (A, B), {"axis": -1}),
    "middle axis": (affine, (A.reshape(5, 10, 9), B.reshape(5, 10, 9)), {"axis": 1}),
    "broadcast gates": (affine, (A[:, :1], B), {}),
    "maximum": (jnp.maximum, B, {}),
    "matrices": (jnp.matmul, MATRICES, {}),
    "mapped matrices": (jax.vmap(lambda l, r: r @ l), MATRICES, {}),
    "pytree": (apply_gates, {"gate": A[:60, 0], "state": [MATRICES[:, 0]]}, {}),
    "integers": (lambda l, r: (l ^ r) & ~jnp.int32(1 << 30), jnp.arange(1000) * 12345, {}),
    "bfloat16": (affine, (A.astype(jnp.bfloat16), B.astype(jnp.bfloat16)), {}),
    "complex": (affine, ((A * jnp.exp(1j * B)).astype(jnp.complex64), (B + 1j * A).astype(jnp.complex64)), {}),
    "one": (affine, (A[:1], B[:1]), {}),
    "nothing": (affine, (A[:0], B[:0]), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_results(case: str) -> None:
    fn, elems, options = CASES[case]
    wanted = jax.jit(lambda elems: theirs(fn, elems, **options))(elems)
    assert_close(ours(fn, elems, **options), wanted, 3e-2 if case == "bfloat16" else 1e-5)


def test_results_on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    for case in ("affine", "pytree"):
        fn, elems, _ = CASES[case]
        assert_close(ours(fn, elems), jax.jit(theirs, static_argnums=0)(fn, elems))


def test_functions_may_read_lengths() -> None:
    x = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (5, 2, 4)), jnp.float32)
    for fn in (lambda l, r: l * r / l.shape[-1], lambda l, r: l * r / l[0].size):
        assert_close(ours(fn, x), theirs(fn, x))


def test_many_primitives() -> None:
    """Compare one combination, of two elements."""
    pairs = jnp.stack([A, B])
    assert_close(ours(combine_by_primitives, pairs), theirs(combine_by_primitives, pairs))


@pytest.mark.parametrize("case", ["affine", "reversed", "broadcast gates", "maximum", "matrices", "complex"])
def test_gradients(case: str) -> None:
    fn, elems, options = CASES[case]

    def loss(scan: Any) -> Any:
        def total(elems: Any) -> Any:
            results = jax.tree.leaves(scan(fn, elems, **options))
            return sum((jnp.abs(y) * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum() for y in results)

        return total

    assert_close(jax.jit(jax.grad(loss(ours)))(elems), jax.jit(jax.grad(loss(theirs)))(elems), 1e-4)


def test_jit_and_vmap() -> None:
    def state(a: Any, b: Any) -> Any:
        return ours(affine, (a, b))[1]

    wanted = jax.jit(theirs, static_argnums=0)(affine, (A, B))[1]
    assert_close(jax.jit(state)(A, B), wanted)
    assert_close(jax.jit(jax.vmap(state, in_axes=(None, 0)))(A, jnp.stack([B, 2 * B])), jnp.stack([wanted, 2 * wanted]))
    assert_close(jax.vmap(state, in_axes=1, out_axes=1)(A, B), wanted)
    gradient = jax.grad(lambda a, b: (state(a, b) ** 2).sum())
    mapped = jax.vmap(gradient)(jnp.stack([A, A]), jnp.stack([B, -B]))
    assert_close(mapped, jnp.stack([gradient(A, B)] * 2))


def test_forward_mode() -> None:
    """Derive in both modes, twice, and as a linear function; for a batch too."""
    pair = A[:6, 0], B[:6, 0]

    def derivatives(scan: Any) -> Any:
        def state(a: Any, b: Any) -> Any:
            return scan(affine, (a, b))[1]

        def rate(of_a: Any) -> Any:
            return jax.jvp(state, pair, (of_a, pair[0]))

        linear = jax.linearize(state, *pair)[1]
        second = jax.jacfwd(jax.jacrev(state)), jax.jacrev(jax.jacfwd(state)), jax.jacrev(jax.jacrev(state))
        return (
            [jax.jacfwd(state)(*pair), *(each(*pair) for each in second)],
            jax.vmap(rate)(jnp.stack(pair)),
            jax.linear_transpose(lambda of_a: linear(of_a, pair[1]), pair[0])(pair[1]),
        )

    assert_close(jax.jit(derivatives, static_argnums=0)(ours), jax.jit(derivatives, static_argnums=0)(theirs), 1e-4)


def test_forward_mode_of_complex_numbers() -> None:
    elems, rates = (tuple((x[:6] + 1j * y[:6]).astype(jnp.complex64) for x, y in ((A, B), (B, A))) for _ in range(2))

    def derivative(scan: Any) -> Any:
        return jax.jvp(lambda *elems: scan(affine, elems, reverse=True), elems, rates[::-1])

    assert_close(derivative(ours), derivative(theirs), 1e-4)


def test_derivatives_beside_integers() -> None:
    """Derive with integers among the elements, which have no rates of change: the largest number and its place."""

    def largest(l: Any, r: Any) -> Any:
        return jnp.where(l[0] >= r[0], l[0], r[0]), jnp.where(l[0] >= r[0], l[1], r[1])

    def derivatives(scan: Any) -> Any:
        def values(x: Any) -> Any:
            return scan(largest, (x, jnp.arange(len(x))))[0]

        return jax.jvp(values, (B[:3, 0],), (A[:3, 0],)), jax.jacrev(values)(B[:3, 0])

    assert_close(jax.jit(derivatives, static_argnums=0)(ours), jax.jit(derivatives, static_argnums=0)(theirs))


def test_large_elements_have_derivatives_of_jax() -> None:
    matrices = jnp.asarray(RNG.normal(size=(5, 5, 5)) * 0.3, jnp.float32)

    def derivatives(scan: Any) -> Any:
        def loss(m: Any) -> Any:
            return (scan(jnp.matmul, m) ** 2).sum()

        return jax.grad(loss)(matrices), jax.jvp(loss, (matrices,), (matrices,))

    assert_close(jax.jit(derivatives, static_argnums=0)(ours), jax.jit(derivatives, static_argnums=0)(theirs), 1e-4)


def test_errors() -> None:
    with pytest.raises(TypeError, match="fn=3 was passed"):
        ours(3, B)
    with pytest.raises(ValueError, match="elems without arrays"):
        ours(jnp.add, ())
    with pytest.raises(ValueError, match="axis=2 was passed"):
        ours(jnp.add, B, axis=2)
    with pytest.raises(ValueError, match=r"lengths \[150, 149\] along axis 0"):
        ours(affine, (A, B[1:]))
    with pytest.raises(TypeError, match="fn returned int32 for elements of float32"):
        ours(lambda l, r: (l + r).astype(jnp.int32), B)
    with pytest.raises(ValueError, match=r"fn returned an array of shape \(150,\)"):
        ours(lambda l, r: (l + r).sum(-1), B)
    with pytest.raises(TypeError, match="return a pytree like its arguments"):
        ours(lambda l, r: (l, r), B)
    with pytest.raises(gs.OperatorError, match="JAX's primitive 'sort'"):
        ours(lambda l, r: jnp.sort(l + r), B)
    with pytest.raises(gs.OperatorError, match="does not combine elements along axis 0 one by one"):
        ours(lambda l, r: l + r[::-1], B)
    with pytest.raises(gs.OperatorError, match="gather with a fill value"):
        ours(lambda l, r: jnp.take(l, r[..., 0].astype(int), axis=-1)[..., :2] + r, jnp.ones((3, 2)))


def scan_with_weights(scan: Any, weights: Any, elems: Any) -> Any:
    """Scan with operators that close over an array, and over a number."""
    shifted = scan(lambda l, r: l + r + jnp.sin(weights), elems[0])
    turned = scan(lambda l, r: l @ (weights[:2] * jnp.eye(2) + weights[2]) @ r, elems[1], reverse=True)
    return shifted.sum(1) + turned.sum((1, 2, 3)) + scan(lambda l, r: l * r * weights[0], elems[0][:, 0])


def test_operators_that_close_over_traced_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that what is closed over is an operand: under jit and vmap, and with derivatives in both modes."""
    elems = A[:7], MATRICES[:7] * 0.5
    weights = jnp.asarray([0.9, 1.1, 0.3])
    rate = jnp.asarray([0.2, -0.1, 0.5])

    def value(scan: Any) -> Any:
        return lambda weights: scan_with_weights(scan, weights, elems)

    def loss(scan: Any) -> Any:
        return lambda weights: jnp.sin(value(scan)(weights)).sum()

    assert_close(jax.jit(value(ours))(weights), jax.jit(value(theirs))(weights))
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")  # a software adapter takes half a minute to compile the gradients
    gradients = [jax.jit(jax.grad(loss(scan)))(weights) for scan in (ours, theirs)]
    assert_close(gradients[0], gradients[1], 1e-4)
    rates = [jax.jit(lambda w, scan=scan: jax.jvp(value(scan), (w,), (rate,))[1])(weights) for scan in (ours, theirs)]
    assert_close(rates[0], rates[1], 1e-4)

    def make_curve(scan: Any) -> Any:
        return lambda w: jnp.sin(scan(lambda l, r: l + r + jnp.sin(w), elems[0])).sum()

    curvatures = [jax.jit(jax.hessian(make_curve(scan)))(weights) for scan in (ours, theirs)]
    assert_close(curvatures[0], curvatures[1], 1e-3)
    many = jnp.stack([weights, 2 * weights])
    assert_close(jax.vmap(value(ours))(many), jax.jit(jax.vmap(value(theirs)))(many))
    chosen = jax.jit(lambda flag: ours(lambda l, r: jnp.where(flag, l + r, l * r), B))(True)
    assert_close(chosen, theirs(jnp.add, B))


def test_functions_are_traced_while_their_values_are_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace a function once for each shape: JAX 0.11 refuses values of transformations that have ended."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    shapes: list[tuple[int, ...]] = []

    def curve(rate: Any) -> Any:
        def combine(left: Any, right: Any) -> Any:
            shapes.append(left.shape)
            return left + right + jnp.sin(rate)

        return jnp.sin(ours(combine, A[:7])).sum()

    jax.jit(jax.hessian(curve))(jnp.float32(0.5))
    assert len(shapes) == len(set(shapes))


ONE = jnp.eye(3)
# Two matrices. Pivoting swaps rows of the first one, but not of the second one.
REGULAR = jnp.asarray(
    [[[0.1, 1.0, 0.2], [0.9, 0.2, 0.1], [0.3, -0.4, 1.2]], [[1.5, 0.2, 0.1], [0.1, 1, 0.3], [0.2, 0, 2]]], jnp.float32
)
LINALG = jax.scipy.linalg


def positive(l: Any) -> Any:
    return l @ jnp.swapaxes(l, -1, -2) + ONE


OF_MATRICES = {
    "solve": lambda l, r: jnp.linalg.solve(l, r),
    "inv": lambda l, r: jnp.linalg.inv(l) @ r,
    "det": lambda l, r: jnp.linalg.det(l)[..., None, None] * r,
    "slogdet": lambda l, r: sum(jnp.linalg.slogdet(l))[..., None, None] * r,
    "cholesky": lambda l, r: jnp.linalg.cholesky(positive(l)) @ r,
    "upper cholesky": lambda l, r: jnp.linalg.cholesky(positive(l), upper=True) @ r,
    "cho_solve": lambda l, r: LINALG.cho_solve((jnp.linalg.cholesky(positive(l)), True), r),
    "solve_triangular": lambda l, r: LINALG.solve_triangular(l, r, lower=True, trans=1),
    "unit triangle": lambda l, r: LINALG.solve_triangular(l, r, unit_diagonal=True),
    "lu_factor": lambda l, r: LINALG.lu_factor(l)[0] @ r + LINALG.lu_factor(l)[1][..., None],
    "indices": lambda l, r: l[..., jnp.array([2, 0, 1]), :] + jnp.take(r, jnp.array([2, 2, 0]), axis=-1),
    "an index that is computed": lambda l, r: jax.vmap(jax.vmap(lambda l, r: l[(r[0, 0] > 0.5).astype(int)] + r))(l, r),
    "diagonals": lambda l, r: jnp.diagonal(l, axis1=-2, axis2=-1)[..., None] * r,
}


@pytest.mark.parametrize("name", OF_MATRICES)
def test_functions_of_small_matrices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the result of two elements, and its derivatives, with JAX's; rows of matrices are kept apart."""
    # A software adapter takes half a minute to compile some of the gradients.
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    function = OF_MATRICES[name]
    x = jnp.stack([jnp.stack([REGULAR[0], REGULAR[1]]), jnp.stack([REGULAR[1], REGULAR[0]])])

    def ours_of(x: Any) -> Any:
        return ours(function, x)[1:]

    def theirs_of(x: Any) -> Any:
        return function(x[:1], x[1:])

    def find_derivatives(call: Any) -> Any:
        """Return the value and the derivatives of both modes, which JAX compiles in one go."""
        gradient = jax.grad(lambda x: jnp.sin(call(x)).sum())
        return jax.jit(lambda x: (*jax.jvp(call, (x,), (0.1 * x[::-1],)), gradient(x)))(x)

    (value, *derivatives), (wanted, *theirs_derivatives) = find_derivatives(ours_of), find_derivatives(theirs_of)
    assert_close(value, wanted, 1e-4)
    assert_close(derivatives, theirs_derivatives, 1e-3)


def test_bundles_whose_arrays_share_no_axis_but_the_scanned_one() -> None:
    """Assert that arrays that do not depend on each other may differ in the axes that are kept apart."""
    elems = A[:20], jnp.concatenate([B[:20], A[:20]], 1)

    def combine(l: Any, r: Any) -> Any:
        return l[0] * r[0], l[1] + r[1]

    assert_close(ours(combine, elems), theirs(combine, elems))
    grads = [
        jax.grad(lambda e, scan=scan: sum(jnp.sin(y).sum() for y in scan(combine, e)))(elems) for scan in (ours, theirs)
    ]
    assert_close(grads[0], grads[1], 1e-4)


# ----- Loops


def test_a_loop_is_jax_s_scan_with_its_gradients() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(12, 3)), jnp.float32)

    def loss(loop: Any, decay: Any, init: Any, xs: Any) -> Any:
        carry, ys = loop(lambda h, x: (decay * h + x, {"y": h * x}), init, xs, reverse=True)
        return (ys["y"] ** 2).sum() + carry.sum()

    given = jnp.float32(0.8), jnp.ones(3), x
    wanted = jax.value_and_grad(partial(loss, jax.lax.scan), argnums=(0, 1, 2))(*given)
    found = jax.jit(jax.value_and_grad(partial(loss, gpuscan.jax.loop), argnums=(0, 1, 2)))(*given)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4)


def test_a_loop_tells_rows_from_the_numbers_of_a_carry() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(9, 2)), jnp.float32)
    turn = jnp.array([[0.9, 0.1], [-0.1, 0.9]])
    for step in (
        lambda h, x: (turn @ h + x, h[0]),
        lambda h, x: (h * jnp.array([0.5, 0.9]) + x, None),  # rows that are treated differently
        lambda h, x: (jnp.clip(h + x, 0, 1), h),
        lambda h, x: (h / h.size + x, h[:1]),  # lengths are read
    ):
        wanted = jax.lax.scan(step, jnp.zeros(2), x)
        for ours, theirs in zip(*map(jax.tree.leaves, (gpuscan.jax.loop(step, jnp.zeros(2), x), wanted)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    ys = gpuscan.jax.loop(lambda h, _: (h * 0.5, h), jnp.float32(1), None, length=4)[1]
    np.testing.assert_allclose(ys, [1, 0.5, 0.25, 0.125])


def test_a_loop_with_bools_and_bits_is_jax_s_scan() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=30), jnp.float32)

    def until(c: Any, x: Any) -> Any:
        total, done, seen = c
        total = jnp.where(done, total, total + x)
        return (total, done | (total > 2), (seen << 1) | (x > 0)), seen & 7

    init = jnp.float32(0), jnp.array(False), jnp.uint32(0)
    found, wanted = gpuscan.jax.loop(until, init, x), jax.lax.scan(until, init, x)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_loop_of_logsumexp_is_jax_s_scan() -> None:
    moves, x = jnp.log(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])), jnp.ones((20, 3)) / 3
    step: Any = lambda a, e: (jax.nn.logsumexp(a[:, None] + moves, axis=0) + e, a[0])  # noqa: E731
    found, wanted = gpuscan.jax.loop(step, jnp.zeros(3), x), jax.lax.scan(step, jnp.zeros(3), x)
    for ours, theirs in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_refusal_names_the_operation_and_not_shapes_that_gpuscan_tried() -> None:
    moves = jnp.eye(3)
    step: Any = lambda v, e: (jnp.min(v[:, None] + moves, axis=0) + e, jnp.sort(v))  # noqa: E731
    with pytest.raises(gs.OperatorError, match="primitive 'sort'"):
        gpuscan.jax.loop(step, jnp.zeros(3), jnp.ones((4, 3)))


def test_a_loop_without_a_form_is_refused_before_it_runs() -> None:
    untyped: Any = gpuscan.jax.loop
    with pytest.raises(gs.LoopError, match=r"np\.tanh"):
        gpuscan.jax.loop(lambda h, x: (jnp.tanh(h + x), h), jnp.float32(0), jnp.ones(3))
    with pytest.raises(TypeError, match="return a carry like init"):
        gpuscan.jax.loop(lambda h, x: (h > 0, h), jnp.float32(0), jnp.ones(3))
    with pytest.raises(TypeError, match="f returned 3 values; return a pair of the next carry and y"):
        untyped(lambda h, x: (h, h, x), jnp.float32(0), jnp.ones(3))
    for length, message in ((-1, "length=-1 was passed, which is negative"), (None, "pass the number of steps as len")):
        with pytest.raises(ValueError, match=message):
            untyped(lambda h, x: (h, h), jnp.float32(0), None, length=length)


def test_equal_calls_are_traced_once() -> None:
    """Assert that a function that is known is not traced again, and that a number that it closes over counts."""

    def scan(x: Any, shift: float) -> Any:
        return gpuscan.jax.associative_scan(lambda l, r: l + r + shift, x)

    def loop(x: Any, number: float) -> Any:
        factor = jnp.float32(number)
        return gpuscan.jax.loop(lambda h, x: (factor * h + x, jnp.abs(h)), jnp.float32(0), x)

    def gradient(x: Any, factor: float) -> Any:
        return jax.grad(lambda x: loop(x, factor)[1].sum() + scan(x, factor).sum())(x)

    for call in (scan, loop, gradient):
        results = [jax.tree.leaves(call(B[:, 0], number))[-1] for number in (0.25, 0.75, 0.25)]
        np.testing.assert_array_equal(results[0], results[2])
        assert not np.array_equal(results[0], results[1])
        # The rest of a gradient is JAX's own.
        if call is not gradient:
            first, again = (Counted().of(partial(call, B[:, 0], 0.5)) for _ in range(2))
            assert 3 * again < first
