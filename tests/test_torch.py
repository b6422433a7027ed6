"""`gpuscan.torch` gives what loops in PyTorch and their derivatives do; needs the extra ``torch``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch, some hundred megabytes, is not installed")
from torch.utils import _pytree as pytree  # noqa: E402 (it needs torch)

import gpuscan.torch  # noqa: E402
from gpuscan.planning.heuristics import ARRAYS  # noqa: E402
from tests.harness.calls import Counted  # noqa: E402
from tests.oracle import affine  # noqa: E402


def loop(a: Any, b: Any, axis: int, initial: Any, reverse: bool) -> Any:
    gates, inputs = a.movedim(axis, 0), b.movedim(axis, 0)
    times = range(len(gates))
    states: list[Any] = [None] * len(gates)
    state = torch.zeros_like(inputs[0]) if initial is None else initial
    for t in reversed(times) if reverse else times:
        state = states[t] = gates[t] * state + inputs[t]
    return torch.stack(states).movedim(0, axis)


@pytest.fixture
def leaves() -> Any:
    generator = torch.Generator().manual_seed(0)

    def make(shape: Any, dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
        a = torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)
        b = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        initial = torch.randn((shape[0], 1), generator=generator, dtype=torch.float64).to(dtype)
        return a.requires_grad_(), b.requires_grad_(), initial.requires_grad_()

    return make


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_states_and_gradients(leaves: Any, dtype: str, begin: bool, reverse: bool) -> None:
    a, b, initial = leaves((3, 17, 4), getattr(torch, dtype))
    start = initial if begin else None
    tolerance = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2, "float64": 1e-12}[dtype]
    h = gpuscan.torch.linear_recurrence(a, b, axis=1, initial=start, reverse=reverse)
    assert (h.dtype, h.shape) == (b.dtype, b.shape)
    weights = torch.linspace(-1, 1, h.numel()).reshape(h.shape).to(h.dtype)
    (h * weights).sum().backward()
    exact = [x.detach().double().requires_grad_() for x in (a, b, initial)]
    wanted = loop(exact[0], exact[1], 1, exact[2] if begin else None, reverse)
    (wanted * weights.double()).sum().backward()
    torch.testing.assert_close(h.double(), wanted, rtol=tolerance, atol=tolerance)
    for found, leaf in zip((a, b, initial) if begin else (a, b), exact, strict=False):
        assert found.grad.shape == found.shape
        torch.testing.assert_close(found.grad.double(), leaf.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reverse", [False, True])
def test_complex_numbers(reverse: bool) -> None:
    """Assert that PyTorch's gradients are conjugates, also of lazily conjugated or negated tensors."""
    generator = torch.Generator().manual_seed(1)
    leaves = [
        torch.randn(shape, generator=generator, dtype=torch.complex64).requires_grad_() for shape in ((2, 9), (2, 9), 2)
    ]
    weights = torch.randn((2, 9), generator=generator, dtype=torch.complex64)
    grads = []
    for recurrence in (
        lambda a, b, s: gpuscan.torch.linear_recurrence(a, b, axis=1, initial=s, reverse=reverse),
        lambda a, b, s: loop(a, b, 1, s, reverse),
    ):
        a, b, start = leaves
        h = recurrence(a.conj() * 0.5, b.conj().imag + b, start.conj())
        grads.append(torch.autograd.grad((h * weights).sum().abs(), leaves))
    for found, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own
@pytest.mark.parametrize("reverse", [False, True])
def test_gradcheck(leaves: Any, reverse: bool) -> None:
    """Compare derivatives of both modes, and second ones, with PyTorch's finite differences, in float64."""
    a, b, initial = leaves((2, 5, 3), torch.float64)

    def call(a: Any, b: Any, initial: Any) -> Any:
        return gpuscan.torch.linear_recurrence(a, b, axis=1, initial=initial, reverse=reverse)

    assert torch.autograd.gradcheck(call, (a, b, initial), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (a, b, initial))
    assert torch.autograd.gradgradcheck(lambda a, b: call(a, b, None), (a, b))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_number_as_initial(dtype: str) -> None:
    """Assert that the gradient of a number is a number too, without an axis."""
    a, b = torch.full((5,), 0.5, dtype=getattr(torch, dtype)), torch.ones(5, dtype=getattr(torch, dtype))
    initial = torch.ones((), dtype=a.dtype, requires_grad=True)
    gpuscan.torch.linear_recurrence(a, b, initial=initial).sum().backward()
    assert initial.grad.shape == ()
    assert float(initial.grad) == 0.96875


def test_a_model_trains(leaves: Any) -> None:
    """Run a step of descent with a tensor that is no leaf and has unusual strides."""
    weight = torch.zeros(4, requires_grad=True)
    x = torch.randn(8, 3, 4)
    h = gpuscan.torch.linear_recurrence(torch.sigmoid(weight).expand(8, 3, 4), x, axis=0)
    h.square().mean().backward()
    assert torch.isfinite(weight.grad).all()
    assert weight.grad.abs().sum() > 0


def test_errors() -> None:
    a = torch.ones(3)
    for missing in (gpuscan.torch.scan, lambda x: gpuscan.torch.linear_recurrence(x, x)):
        with pytest.raises(TypeError, match="of type NoneType was passed"):
            missing(None)
    with pytest.raises(TypeError, match=r"b of type list was passed; pass torch\.as_tensor\(b\)"):
        gpuscan.torch.linear_recurrence(a, [1.0])
    with pytest.raises(TypeError, match=r"b of dtype torch\.float64 and a of dtype torch\.float32"):
        gpuscan.torch.linear_recurrence(a, a.double())
    for function in (gpuscan.torch.scan, lambda x: gpuscan.torch.linear_recurrence(x, x)):
        with pytest.raises(
            gpuscan.UnsupportedDtypeError, match=r"a tensor of torch\.float8_e5m2 was.* x\.to\(torch\.float32\)"
        ):
            function(a.to(torch.float8_e5m2))
    with pytest.raises(ValueError, match=r"b on the device meta and a on cpu were passed"):
        gpuscan.torch.linear_recurrence(a, a.to("meta"))
    with pytest.raises(ValueError, match=r"a of shape \(3,\) and b of shape \(1,\)"):
        gpuscan.torch.linear_recurrence(a, a[:1])
    with pytest.raises(ValueError, match="axis=1 was passed"):
        gpuscan.torch.linear_recurrence(a, a, axis=1)
    with pytest.raises(ValueError, match=r"initial of shape \(2,\) was passed"):
        gpuscan.torch.linear_recurrence(a, a, initial=a[:2])


# ----- Linear recurrences under PyTorch's transformations


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's own
def test_the_operation_is_well_formed(leaves: Any) -> None:
    """Run PyTorch's own checks of an operation: its schema, its shapes, its derivative, under compilation."""
    a, b, initial = leaves((2, 5, 3))
    start = initial.detach().expand(2, 3).clone().requires_grad_()
    handles: list[int] = []

    def record(graph: Any, _: object) -> Any:
        handles.extend(node.args[1] for node in graph.graph.nodes if node.target is torch.ops.gpuscan.scan)
        return graph.forward

    def call(*tensors: Any, reverse: bool) -> Any:
        return gpuscan.torch.linear_recurrence(*tensors[:2], axis=1, initial=(*tensors, None)[2], reverse=reverse)

    for tensors, reverse in ([a, b, start], False), ([a, b], True):
        torch.compile(call, backend=record, fullgraph=True)(*tensors, reverse=reverse)
        torch.library.opcheck(torch.ops.gpuscan.scan, (tensors, handles[-1]))
        given = [tensor.detach() for tensor in tensors]
        results = torch.ops.gpuscan.scan(given, handles[-1])
        torch.library.opcheck(torch.ops.gpuscan.scan_vjp, (given, results, results, handles[-1]))


def test_vmap(leaves: Any) -> None:
    a, b, _ = leaves((4, 6, 3))
    wanted = gpuscan.torch.linear_recurrence(a, b, axis=1)
    mapped = torch.func.vmap(lambda a, b: gpuscan.torch.linear_recurrence(a, b, axis=0))(a, b)
    torch.testing.assert_close(mapped, wanted)
    shared = torch.func.vmap(lambda b: gpuscan.torch.linear_recurrence(a[0], b, axis=0), in_dims=2, out_dims=2)
    torch.testing.assert_close(shared(b.movedim(0, 2))[..., 0], gpuscan.torch.linear_recurrence(a[0], b[0], axis=0))

    def loss(a: Any, b: Any) -> Any:
        return gpuscan.torch.linear_recurrence(a, b, axis=0).square().sum()

    (grads,) = torch.autograd.grad(wanted.square().sum(), a)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(a.detach(), b.detach()), grads)


def test_compiled_functions_call_it_as_one_operation(leaves: Any) -> None:
    a, b, _ = leaves((2, 30))

    def call(a: Any, b: Any) -> Any:
        return gpuscan.torch.linear_recurrence(torch.sigmoid(a), b * 2).tanh().sum()

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(a, b), (a, b))
    for one, other in zip(found, torch.autograd.grad(call(a, b), (a, b)), strict=True):
        torch.testing.assert_close(one, other)


# ----- Associative scans


def combine_in_order(fn: Any, xs: Any, dim: int, reverse: bool = False) -> Any:
    """Combine one element after the other."""
    leaves, tree = pytree.tree_flatten(xs)
    rows = [leaf.unbind(dim) for leaf in leaves]
    results: list[Any] = [None] * len(rows[0])
    carry = None
    for t in reversed(range(len(results))) if reverse else range(len(results)):
        element = pytree.tree_unflatten([row[t] for row in rows], tree)
        carry = element if carry is None else fn(carry, element)
        results[t] = pytree.tree_leaves(carry)
    return pytree.tree_unflatten([torch.stack(each, dim) for each in zip(*results, strict=True)], tree)


def combine_by_operations(l: Any, r: Any) -> Any:
    """Combine by many operations; it need not be associative to be traced."""
    joined = torch.cat([l[..., 1:], r[..., :1]], -1).sum(-1, keepdim=True)
    smooth = torch.nn.functional.softplus(l) + torch.logsumexp(l[..., :, None] + r[..., None, :], -2)
    return torch.where(r > 0.5, torch.sigmoid(joined), smooth.clamp(-1, 1) ** 3 - 2 * torch.einsum("i,ij->j", l, EYE))


EYE = torch.eye(3)
ROWS = torch.rand((40, 3), generator=torch.Generator().manual_seed(0))
MATRICES = torch.randn((20, 3, 2, 2), generator=torch.Generator().manual_seed(1)) * 0.6
SCANS: dict[str, tuple[Any, Any, int]] = {
    "affine": (affine, (ROWS, ROWS - 0.5), 0),
    "last axis": (affine, (ROWS, ROWS - 0.5), -1),
    "matrices": (torch.matmul, MATRICES, 0),
    "pytree": (
        lambda l, r: {"gate": l["gate"] * r["gate"], "state": [r["gate"] * l["state"][0] + r["state"][0]]},
        {"gate": ROWS[:20, 0], "state": [MATRICES[:, 0]]},
        0,
    ),
    "maximum": (torch.maximum, ROWS, 0),
    "double": (affine, (ROWS.double(), ROWS.double() - 0.5), 0),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("case", SCANS)
def test_associative_scan_and_gradients(case: str, reverse: bool) -> None:
    fn, xs, dim = SCANS[case]
    found = []
    for scan in (gpuscan.torch.associative_scan, combine_in_order):
        given = pytree.tree_map(lambda leaf: leaf.clone().requires_grad_(), xs)
        results = scan(fn, given, dim, reverse)
        assert pytree.tree_structure(results) == pytree.tree_structure(xs)
        leaves = pytree.tree_leaves(results)
        sum((y * torch.cos(torch.arange(y.numel())).reshape(y.shape)).sum() for y in leaves).backward()
        found.append([*(y.detach() for y in leaves), *(leaf.grad for leaf in pytree.tree_leaves(given))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(1 + other.abs().max()))


def test_many_operations_and_types() -> None:
    pair = torch.stack([ROWS[0] * 2, ROWS[1]])
    torch.testing.assert_close(
        gpuscan.torch.associative_scan(combine_by_operations, pair, 0), combine_in_order(combine_by_operations, pair, 0)
    )
    numbers = torch.arange(300, dtype=torch.int32) * 12345
    found = gpuscan.torch.associative_scan(lambda l, r: (l ^ r) & 0xFFFF, numbers, 0)
    assert torch.equal(found, combine_in_order(lambda l, r: (l ^ r) & 0xFFFF, numbers, 0))
    narrow = (ROWS.bfloat16(), ROWS.bfloat16())
    for one, other in zip(
        gpuscan.torch.associative_scan(affine, narrow, 0), combine_in_order(affine, narrow, 0), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=3e-2, atol=3e-2)
    assert gpuscan.torch.associative_scan(torch.add, torch.zeros(0, 3), 0).shape == (0, 3)


def test_errors_of_associative_scan() -> None:
    scan: Any = gpuscan.torch.associative_scan
    with pytest.raises(gpuscan.UnsupportedDtypeError, match="dtype complex128 was passed"):
        scan(torch.add, torch.ones(4, 3, dtype=torch.complex128), 0)
    with pytest.raises(TypeError, match="combine_fn=3 was passed"):
        scan(3, ROWS, 0)
    with pytest.raises(TypeError, match=r"leaf 1 of xs of dtype torch\.float64 and leaf 0 of xs"):
        scan(affine, (ROWS, ROWS.double()), 0)
    with pytest.raises(ValueError, match="dim=2 was passed"):
        scan(affine, (ROWS, ROWS), 2)
    with pytest.raises(ValueError, match="pass tensors of one length along one axis"):
        scan(affine, (ROWS, ROWS[1:]), 0)
    with pytest.raises(TypeError, match=r"combine_fn returned NoneType for elements of torch\.float32"):
        gpuscan.torch.associative_scan(lambda l, r: None, torch.ones(3), 0)
    with pytest.raises(TypeError, match=r"combine_fn returned torch\.int32"):
        scan(lambda l, r: (l + r).int(), ROWS, 0)
    with pytest.raises(TypeError, match="return a pytree like its arguments"):
        scan(lambda l, r: (l, r), ROWS, 0)
    with pytest.raises(ValueError, match=r"combine_fn returned a tensor of shape \(\)"):
        scan(lambda l, r: (l + r).sum(), ROWS, 0)
    with pytest.raises(gpuscan.OperatorError, match=r"torch's operation aten\.sort"):
        scan(lambda l, r: torch.sort(l + r)[0], ROWS, 0)
    with pytest.raises(gpuscan.OperatorError, match=r"changes a tensor in place, by torch's operation aten\.add_"):
        scan(adds, ROWS, 0)
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(gpuscan.OperatorError, match="closes over a tensor that requires a gradient"):
        scan(lambda l, r: l * weight + r, ROWS, 0)
    assert scan(lambda l, r: l * weight.detach() + r, ROWS[:3], 0).shape == (3, 3)
    with pytest.raises(gpuscan.OperatorError, match=r"closes over a tensor that torch\.func maps or differentiates"):
        torch.func.grad(lambda w: scan(lambda l, r: l * w + r, ROWS, 0).sum())(torch.ones(3))


def test_bundles_whose_tensors_share_no_axis_but_the_scanned_one() -> None:
    """Assert that tensors that do not depend on each other may differ in the axes that are kept apart."""
    generator = torch.Generator().manual_seed(2)
    xs = tuple(torch.rand(shape, generator=generator).add(0.5) for shape in ((3, 6), (7, 6, 2), (1, 6, 2), (5, 6)))

    def combine(l: Any, r: Any) -> Any:
        return l[0] * r[0], r[2] * l[1] + r[1], l[2] * r[2], torch.maximum(l[3], r[3])

    def loss(scan: Any) -> Any:
        return lambda xs: sum((y * torch.cos(y)).sum() for y in scan(combine, xs, 1))

    scans = gpuscan.torch.associative_scan, combine_in_order
    for found, wanted in zip(*(scan(combine, xs, 1) for scan in scans), strict=True):
        torch.testing.assert_close(found, wanted)
    for found, wanted in zip(*(torch.func.grad(loss(scan))(xs) for scan in scans), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    batches = tuple(torch.stack([x, 2 * x]) for x in xs)
    mapped = torch.func.vmap(lambda *xs: gpuscan.torch.associative_scan(combine, xs, 1))(*batches)
    for found, wanted in zip(mapped, combine_in_order(combine, tuple(2 * x for x in xs), 1), strict=True):
        torch.testing.assert_close(found[1], wanted)
    a, b = torch.rand(4, 3, generator=generator), torch.rand(4, 5, generator=generator)
    found = gpuscan.torch.associative_scan(
        lambda l, r: {"a": l["a"] + r["a"], "b": l["b"] * r["b"]}, {"a": a, "b": b}, 0
    )
    torch.testing.assert_close(found, {"a": a.cumsum(0), "b": b.cumprod(0)})


def adds(l: Any, r: Any) -> Any:
    l += r
    return l


@pytest.mark.parametrize(
    "function",
    [
        adds,
        lambda l, r: l.add_(r),
        lambda l, r: r.mul_(0) + l,
        lambda l, r: torch.add(l, r, out=l),
        lambda l, r: l.copy_(r) + r,
        lambda l, r: l.squeeze().add_(r) + r,
        lambda l, r: (l.detach().numpy().fill(7), l + r)[1],
    ],
    ids=["+=", "add_", "mul_", "out", "copy_", "view", "numpy"],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_function_that_works_in_place_is_refused_and_changes_nothing(function: Any, compiled: bool) -> None:
    x = torch.arange(1.0, 6.0)

    def call(x: Any) -> Any:
        return gpuscan.torch.associative_scan(function, x, 0)

    with pytest.raises((gpuscan.OperatorError, RuntimeError)):
        (torch.compile(call, backend="eager") if compiled else call)(x)
    assert x.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(gpuscan.OperatorError):
        gpuscan.torch.scan(x, function)
    assert x.tolist() == [1, 2, 3, 4, 5]


# The first one swaps rows to find a pivot.
REGULAR = torch.tensor(
    [[[0.1, 1.0, 0.2], [0.9, 0.2, 0.1], [0.3, -0.4, 1.2]], [[1.5, 0.2, 0], [0.1, 1, 0.3], [0, 0, 2]]]
)
ONE = torch.eye(3)
OF_MATRICES = {
    "solve": lambda l, r: torch.linalg.solve(l, r),
    "solve from the right": lambda l, r: torch.linalg.solve(l, r, left=False),
    "solve for a vector": lambda l, r: torch.linalg.solve(l, r[..., 0])[..., None] * r,
    "inv": lambda l, r: torch.linalg.inv(l) @ r,
    "inv of a constant": lambda l, r: l @ torch.linalg.inv(ONE + 0.5) @ r,
    "det": lambda l, r: torch.linalg.det(l)[..., None, None] * r,
    "slogdet": lambda l, r: sum(torch.linalg.slogdet(l))[..., None, None] * r,
    "cholesky": lambda l, r: torch.linalg.cholesky(l @ l.mT + ONE) @ r,
    "upper cholesky": lambda l, r: torch.linalg.cholesky(l @ l.mT + ONE, upper=True) @ r,
    "cholesky_solve": lambda l, r: torch.cholesky_solve(r, torch.linalg.cholesky(l @ l.mT + ONE)),
    "cholesky_inverse": lambda l, r: torch.cholesky_inverse(torch.linalg.cholesky(l @ l.mT + ONE[:2, :2])) @ r,
    "solve_triangular": lambda l, r: torch.linalg.solve_triangular(l + ONE, r, upper=False),
    "solve_triangular from the right": lambda l, r: torch.linalg.solve_triangular(r + ONE, l, upper=True, left=False),
    "diagonals": lambda l, r: torch.diagonal(l, dim1=-2, dim2=-1)[..., None] * r,
    "unit triangle": lambda l, r: torch.linalg.solve_triangular(l, r, upper=True, unitriangular=True),
    "lu_factor": lambda l, r: torch.linalg.lu_factor(l)[0] @ r + torch.linalg.lu_factor(l)[1][..., None],
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's forward mode uses it
@pytest.mark.parametrize("name", OF_MATRICES)
def test_functions_of_small_matrices(name: str) -> None:
    """Compare the result of two elements, and its derivatives, with PyTorch's; rows of matrices are kept apart."""
    function = OF_MATRICES[name]
    x = torch.stack([torch.stack([REGULAR[0], REGULAR[1]]), torch.stack([REGULAR[1], REGULAR[0]])])
    if name == "cholesky_inverse":
        x = x[..., :2, :2]  # lavapipe compiles the gradient for matrices of 3 rows for minutes

    def ours(x: Any) -> Any:
        return gpuscan.torch.associative_scan(function, x, 0)[1]

    def theirs(x: Any) -> Any:
        return torch.func.vmap(function)(x[0], x[1])

    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    grads = [torch.func.grad(lambda x, call=call: call(x).sin().sum())(x) for call in (ours, theirs)]
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)
    x = x.double()
    step = 0.1 * x.flip(0)
    if name not in ("inv of a constant", *(each for each in OF_MATRICES if "cholesky" in each)):
        found, wanted = (torch.func.jvp(call, (x,), (step,))[1] for call in (ours, theirs))
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_a_kalman_filter() -> None:
    """Filter with the associative operator of Särkkä and García-Fernández 2021, against the filter step by step."""
    torch.manual_seed(0)
    F, H = torch.tensor([[1.0, 0.1], [0, 1]]), torch.tensor([[1.0, 0]])  # noqa: N806 (the field's names)
    Q, R = 0.1 * torch.eye(2), torch.tensor([[0.5]])  # noqa: N806
    measured = torch.randn(50, 1).cumsum(0)

    def gain(P: Any) -> Any:  # noqa: N803
        return P @ H.mT @ torch.linalg.inv(H @ P @ H.mT + R)

    mean, cov, wanted = torch.zeros(2), torch.eye(2), []
    for y in measured:
        mean, cov = F @ mean, F @ cov @ F.mT + Q
        k = gain(cov)
        mean, cov = mean + k @ (y - H @ mean), cov - k @ H @ cov
        wanted.append(mean)
    K, S = gain(Q), H @ Q @ H.mT + R  # noqa: N806
    P1 = F @ F.mT + Q  # noqa: N806
    K1 = gain(P1)  # noqa: N806
    one = torch.eye(2)
    A = ((one - K @ H) @ F).expand(50, 2, 2).clone()  # noqa: N806
    C = ((one - K @ H) @ Q).expand(50, 2, 2).clone()  # noqa: N806
    A[0], C[0] = 0, P1 - K1 @ H @ P1
    b = (K @ measured[..., None]).clone()
    b[0] = K1 @ measured[0][:, None]
    inverse = torch.linalg.inv(S)
    eta = F.mT @ H.mT @ inverse @ measured[..., None]
    J = (F.mT @ H.mT @ inverse @ H @ F).expand(50, 2, 2).clone()  # noqa: N806

    def combine(l: Any, r: Any) -> Any:
        (A1, b1, C1, eta1, J1), (A2, b2, C2, eta2, J2) = l, r  # noqa: N806
        eye = torch.eye(2)
        D = torch.linalg.solve(eye + C1 @ J2, A2, left=False)  # noqa: N806
        E = torch.linalg.solve(eye + J2 @ C1, A1.mT, left=False)  # noqa: N806
        return (
            D @ A1,
            D @ (b1 + C1 @ eta2) + b2,
            D @ C1 @ A2.mT + C2,
            E @ (eta2 - J2 @ b1) + eta1,
            E @ J2 @ A1 + J1,
        )

    found = gpuscan.torch.associative_scan(combine, (A, b, C, eta, J), 0)[1][..., 0]
    torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-3, atol=1e-3)


# ----- The selective scan, against mamba's formula


def selective(u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, bias: Any, soft: bool) -> Any:  # noqa: N803
    """Compute the states one time after the other."""
    dt = delta if bias is None else delta + bias[:, None]
    dt = torch.nn.functional.softplus(dt) if soft else dt
    batch, dim, length = u.shape

    def at(weights: Any, t: int) -> Any:
        if weights.ndim == 2:
            return weights[None]
        if A.is_complex():
            weights = torch.complex(weights[..., ::2], weights[..., 1::2])
        now = weights[..., t]
        return now[:, None] if now.ndim == 2 else now.repeat_interleave(dim // now.shape[1], 1)

    h = torch.zeros(batch, dim, A.shape[1], dtype=A.dtype)
    outputs = []
    for t in range(length):
        h = torch.exp(dt[:, :, t, None] * A) * h + dt[:, :, t, None] * at(B, t) * u[:, :, t, None]
        y = (h * at(C, t)).sum(-1)
        outputs.append(2 * y.real if A.is_complex() else y)
    y = torch.stack(outputs, -1)
    y = y if D is None else y + u * D[:, None]
    return (y if z is None else y * torch.nn.functional.silu(z)), h


@pytest.mark.parametrize("options", ["all", "few"])
@pytest.mark.parametrize("form", ["fixed", "varying", "grouped", "complex"])
def test_selective_scan(monkeypatch: pytest.MonkeyPatch, form: str, options: str) -> None:
    if options == "all":
        # Few channels at a time.
        monkeypatch.setattr("gpuscan.api.selective_scan.ARRAYS", replace(ARRAYS, max_states=100))
    generator = torch.Generator().manual_seed(3)
    batch, dim, states, length = 2, 4, 3, 17

    def some(*shape: int) -> Any:
        return torch.randn(shape, generator=generator).requires_grad_()

    decays = -torch.rand(dim, states, generator=generator)
    if form == "complex":
        decays = torch.complex(decays, torch.rand(dim, states, generator=generator))
    decays.requires_grad_()
    shapes = {"fixed": (dim, states), "varying": (batch, states, length), "grouped": (batch, 2, states, length)}
    shape = shapes.get(form, (batch, states, 2 * length))
    u, delta, inward, outward = some(batch, dim, length), some(batch, dim, length), some(*shape), some(*shape)
    skip, z, bias = (some(dim), some(batch, dim, length), some(dim)) if options == "all" else (None,) * 3
    found = gpuscan.torch.selective_scan(
        u, delta, decays, inward, outward, skip, z, bias, options == "all", return_last_state=True
    )
    wanted = selective(u, delta, decays, inward, outward, skip, z, bias, options == "all")
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    leaves = [each for each in (u, delta, decays, inward, outward, skip, z, bias) if each is not None]
    weights = torch.cos(torch.arange(u.numel())).reshape(u.shape)
    grads = [torch.autograd.grad((y[0] * weights).sum(), leaves) for y in (found, wanted)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(1 + other.abs().max()))


def test_selective_scan_of_narrow_floats_and_errors() -> None:
    u = torch.ones(1, 2, 5)
    decays, inward = -torch.ones(2, 3), torch.ones(2, 3)
    wanted = gpuscan.torch.selective_scan(u, u, decays, inward, inward)
    assert gpuscan.torch.selective_scan(u.bfloat16(), u.bfloat16(), decays, inward, inward).dtype == torch.bfloat16
    assert wanted.shape == u.shape
    with pytest.raises(ValueError, match=r"u of shape \(2, 5\)"):
        gpuscan.torch.selective_scan(u[0], u, decays, inward, inward)
    with pytest.raises(ValueError, match=r"A of shape \(3, 2\) was passed for 2 channels"):
        gpuscan.torch.selective_scan(u, u, decays.T, inward, inward)
    with pytest.raises(ValueError, match=r"B of shape \(3,\) was passed; pass an array \(2, 3\)"):
        gpuscan.torch.selective_scan(u, u, decays, inward[0], inward)
    with pytest.raises(ValueError, match=r"D of shape \(3,\) was passed; pass an array \(2,\)"):
        gpuscan.torch.selective_scan(u, u, decays, inward, inward, inward[0])
    with pytest.raises(TypeError, match=r"delta of dtype torch\.float64 and u of dtype torch\.float32"):
        gpuscan.torch.selective_scan(u, u.double(), decays, inward, inward)


@pytest.mark.parametrize("heads", [0, 2])
def test_selective_state_updates(heads: int) -> None:
    """Take a scan's steps one by one."""
    generator = torch.Generator().manual_seed(3)

    def some(*shape: int) -> Any:
        return torch.randn(shape, generator=generator)

    u, delta, z = some(2, 4, 7), some(2, 4, 7), some(2, 4, 7)
    decays, weights, skip, bias = -torch.rand(4, 3, generator=generator), some(2, 2, 3, 7), some(4), some(4)
    wanted, last = gpuscan.torch.selective_scan(
        u, delta, decays, weights[0], weights[1], skip, z, bias, True, return_last_state=True
    )
    state = torch.zeros(2, heads, 2, 3) if heads else torch.zeros(2, 4, 3)
    channels = state.shape[1:-1]
    by_channel = [each.reshape(*channels, *each.shape[1:]) for each in (decays, skip, bias)]
    for t in range(7):
        x, dt, gate = (each[..., t].reshape(2, *channels) for each in (u, delta, z))
        inward, outward = (each[:, None, :, t] if heads and t % 2 else each[..., t] for each in weights)
        y = gpuscan.torch.selective_state_update(
            state, x, dt, by_channel[0], inward, outward, by_channel[1], gate, by_channel[2], True
        )
        torch.testing.assert_close(y.reshape(2, 4), wanted[..., t], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(state.reshape(last.shape), last, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"x of shape .* was passed for a state of shape"):
        gpuscan.torch.selective_state_update(state, x[:1], dt, by_channel[0], inward, outward)


def test_equal_calls_are_traced_once() -> None:
    """Assert that the calls of a known function, and their gradients, launch programs."""
    x = torch.rand(100, requires_grad=True)

    def backward(y: Any) -> Any:
        return torch.autograd.grad(y.sum(), x)[0]

    factor = torch.tensor(0.25)
    calls = (
        lambda: gpuscan.torch.loop(lambda h, x: (0.5 * h + x, h), torch.tensor(0.0), x.detach())[1],
        lambda: gpuscan.torch.loop(lambda h, x: (factor * h + x, h), torch.tensor(0.0), x.detach())[1],
        lambda: backward(gpuscan.torch.loop(lambda h, x: (0.5 * h + x, h), torch.tensor(0.0), x)[1]),
        lambda: backward(gpuscan.torch.scan(x, "maximum")),
        lambda: backward(gpuscan.torch.linear_recurrence(x, x)),
    )
    for call in calls:
        results = [call() for _ in range(3)]
        assert torch.equal(results[0], results[-1])
        assert Counted().of(call) < 1000
    before = calls[1]()
    factor.fill_(0.75)
    assert not torch.equal(calls[1](), before)
