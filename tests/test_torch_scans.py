"""Scans of tensors under PyTorch's derivatives, `vmap` and compiler; needs the extra ``torch``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch, some hundred megabytes, is not installed")
from torch.utils.checkpoint import checkpoint  # noqa: E402 (it needs torch)

import gpuscan as gs  # noqa: E402
import gpuscan.torch  # noqa: E402
from gpuscan.torch import operations  # noqa: E402
from tests.oracle import affine  # noqa: E402

# PyTorch's forward mode uses it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

GENERATOR = torch.Generator().manual_seed(0)
GATES, INPUTS = (torch.rand(4, 6, 3, generator=GENERATOR) for _ in range(2))
ONE = torch.tensor(1.0)
KEYS = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 2, 2], [0] * 6, [0, 1, 2, 3, 4, 5]])


def some(*shape: int, low: float = 0.1) -> Any:
    return torch.rand(shape, generator=GENERATOR, dtype=torch.float64).add(low).requires_grad_()


def states(a: Any, b: Any, dim: int = 0, reverse: bool = False) -> Any:
    return gpuscan.torch.associative_scan(affine, (a, b), dim, reverse)[1]


def assert_close(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(1 + other.abs().max()))


# ----- Operators written with torch


def softmax(l: Any, r: Any) -> Any:
    top = torch.maximum(l[0], r[0])
    return top, l[1] * torch.exp(l[0] - top) + r[1] * torch.exp(r[0] - top)


def moments(l: Any, r: Any) -> Any:
    count, step = l[0] + r[0], r[1] - l[1]
    return count, l[1] + step * r[0] / count, l[2] + r[2] + step**2 * l[0] * r[0] / count


def quaternions(l: Any, r: Any) -> Any:
    (a, b, c, d), (e, f, g, h) = l.unbind(-1), r.unbind(-1)
    return torch.stack(
        [a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g, a * g - b * h + c * e + d * f,
         a * h + b * g - c * f + d * e], -1
    )  # fmt: skip


OPERATORS: dict[str, tuple[Any, int, tuple[int, ...]]] = {
    # An operator, the number of tensors, and the shape of each.
    "sum": (torch.add, 1, (5, 2)),
    "product": (torch.mul, 1, (5, 2)),
    "maximum": (torch.maximum, 1, (5, 2)),
    "minimum": (torch.minimum, 1, (5, 2)),
    "logaddexp": (torch.logaddexp, 1, (5, 2)),
    "hypot": (torch.hypot, 1, (5, 2)),
    "union": (lambda l, r: l + r - l * r, 1, (5, 2)),
    "parallel": (lambda l, r: l * r / (l + r), 1, (5, 2)),
    "squares": (lambda l, r: torch.sqrt(l**2 + r * r), 1, (5, 2)),
    "velocities": (lambda l, r: (l + r) / (1 + l * r), 1, (5, 2)),
    "last large one": (lambda l, r: torch.where(r > 0.5, r, l), 1, (5, 2)),
    "affine": (affine, 2, (5, 2)),
    "affine in logarithms": (lambda l, r: (l[0] + r[0], torch.logaddexp(r[0] + l[1], r[1])), 2, (5, 2)),
    "affine of maxima": (lambda l, r: (l[0] + r[0], torch.maximum(r[0] + l[1], r[1])), 2, (5, 2)),
    "softmax": (softmax, 2, (5, 2)),
    "moments": (moments, 3, (5, 2)),
    "rotations": (lambda l, r: (l[0] * r[0] - l[1] * r[1], l[0] * r[1] + l[1] * r[0]), 2, (5, 2)),
    "decays": (lambda l, r: (l[0] + r[0], l[1] * torch.exp(-r[0]) + r[1]), 2, (5, 2)),
    "matrices": (torch.matmul, 1, (5, 2, 2)),
    "quaternions": (quaternions, 1, (5, 4)),
    "vectors": (lambda l, r: (l[0] @ r[0], torch.einsum("...i,...ij->...j", l[1], r[0]) + r[1]), 2, (5, 2, 2)),
    "large matrices": (torch.matmul, 1, (5, 5, 5)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_gradcheck(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with finite differences. The kernels of such gradients are tested with `gpuscan.scan_vjp`."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    fn, count, shape = OPERATORS[name]
    leaves = [some(*shape) for _ in range(count)]
    if name == "vectors":
        leaves[1] = some(5, 2)

    def call(*leaves: Any) -> Any:
        return gpuscan.torch.associative_scan(fn, leaves if count > 1 else leaves[0], 0)

    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)


@pytest.mark.parametrize("reverse", [False, True])
def test_more_derivatives(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    a, b = some(5, 2), some(5, 2)
    call = partial(states, reverse=reverse)
    assert torch.autograd.gradcheck(call, (a, b), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (a, b), fast_mode=True)

    def loss(scan: Any, a: Any) -> Any:
        return scan(a).square().sum()

    hessians = [
        torch.func.hessian(partial(loss, scan))(a.detach()[:, 0])
        for scan in (lambda a: gpuscan.torch.associative_scan(torch.mul, a, 0), lambda a: torch.cumprod(a, 0))
    ]
    torch.testing.assert_close(*hessians)


def test_vmap() -> None:
    wanted = states(GATES, INPUTS, 1)
    assert_close([torch.func.vmap(states)(GATES, INPUTS)], [wanted])
    shared = torch.func.vmap(lambda b: states(GATES[0], b), in_dims=2, out_dims=2)(INPUTS[0, ..., None].expand(6, 3, 2))
    assert_close([shared[..., 1]], [wanted[0]])
    gradient = torch.func.grad(lambda a, b: states(a, b).square().sum())
    each = torch.stack([gradient(a, b) for a, b in zip(GATES, INPUTS, strict=True)])
    assert_close([torch.func.vmap(gradient)(GATES, INPUTS)], [each])


def test_a_function_is_traced_again_only_if_what_it_reads_may_change() -> None:
    factor = 2.0
    weight = torch.tensor(2.0)

    def scale_left(l: Any, r: Any) -> Any:
        return factor * l + r

    def weight_left(l: Any, r: Any) -> Any:
        return l * weight + r

    for fn in (scale_left, weight_left):
        assert gpuscan.torch.associative_scan(fn, torch.ones(3), 0).tolist() == [1, 3, 7]
    factor = 3.0
    weight.fill_(3)
    for fn in (scale_left, weight_left):
        assert gpuscan.torch.associative_scan(fn, torch.ones(3), 0).tolist() == [1, 4, 13]


def test_threads_trace_functions_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")

    def last(factor: float) -> float:
        return float(gpuscan.torch.associative_scan(lambda l, r: l * factor + r, torch.ones(3), 0)[-1])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(last, (2.0, 3.0, 4.0, 5.0))) == [7, 13, 21, 31]


# ----- Compiled functions


def gradients_of(function: Any, *tensors: Any) -> Any:
    return torch.autograd.grad(function(*tensors), tensors)


def test_compiled_functions_call_scans_as_one_operation() -> None:
    a, b = (each[0].clone().requires_grad_() for each in (GATES, INPUTS))

    def call(a: Any, b: Any) -> Any:
        found = gpuscan.torch.associative_scan(
            lambda l, r: {"gate": l["gate"] * r["gate"], "state": r["gate"] * l["state"] + r["state"]},
            {"gate": torch.sigmoid(a), "state": b * 2},
            0,
        )["state"]
        cut = gpuscan.torch.scan(found, torch.mul, axis=0, keys=KEYS[0], initial=b[0])
        return cut.tanh().sum() + gpuscan.torch.scan((a, b), COMPOSITION, axis=1, segments=[0, 1, 3])[1].sum()

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    assert_close(gradients_of(compiled, a, b), gradients_of(call, a, b))
    mapped = torch.compile(torch.func.vmap(states), backend="aot_eager", fullgraph=True)
    assert_close([mapped(GATES, INPUTS)], [states(GATES, INPUTS, 1)])


@gs.operator(identity=(1, 0))
def COMPOSITION(l: Any, r: Any) -> Any:  # noqa: N802 (a constant)
    return l[0] * r[0], r[0] * l[1] + r[1]


def test_compiled_functions_leave_the_graph_for_functions_that_close_over_values() -> None:
    def call(x: Any, factor: Any) -> Any:
        return gpuscan.torch.associative_scan(lambda l, r: l * factor + r, x, 0) + gpuscan.torch.scan(
            x, lambda l, r: l * 1.5 + r
        )

    compiled = torch.compile(call, backend="aot_eager")
    for factor in (2.0, 3.0, torch.tensor(4.0)):
        torch.testing.assert_close(compiled(torch.ones(3), factor), call(torch.ones(3), factor))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's own
def test_the_operations_are_well_formed() -> None:
    """Run PyTorch's own checks of an operation: its schema, its shapes, its derivative, under compilation."""
    handles: list[Any] = []

    def call(a: Any, b: Any) -> Any:
        return states(a, b), gpuscan.torch.scan(a, axis=0, initial=b[0])

    def keep_handles(graph: Any, _: Any) -> Any:
        handles.extend(node.args[1] for node in graph.graph.nodes if node.target is torch.ops.gpuscan.scan)
        return graph.forward

    a, b = (each[0].clone().requires_grad_() for each in (GATES, INPUTS))
    torch.compile(call, backend=keep_handles, fullgraph=True)(a, b)
    start = b[0].detach().requires_grad_()
    for handle, tensors, count in zip(handles, ([a, b], [a, start]), (2, 1), strict=True):
        torch.library.opcheck(torch.ops.gpuscan.scan, (tensors, handle))
        given = [each.detach() for each in tensors]
        results = torch.ops.gpuscan.scan(given, handle)
        assert len(results) == count
        torch.library.opcheck(torch.ops.gpuscan.scan_vjp, (given, results, results, handle))


# ----- Scans with gpuscan's operators

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "exclusive": {"exclusive": True},
    "reverse": {"reverse": True},
    "segments": {"segments": [0, 2, 5], "exclusive": True},
    "keys": {"keys": torch.tensor([1, 1, 2, 2, 3]), "reverse": True},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_scan_and_its_derivatives(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, start = some(5, 3), some(3)
    for op, axis in (("multiply", 0), ("add", -2)):
        call: Any = partial(gpuscan.torch.scan, op=op, axis=axis, **OPTIONS[option])
        keys = OPTIONS[option].get("keys")
        options = OPTIONS[option] | ({} if keys is None else {"keys": keys.numpy()})
        wanted = gs.scan(x.detach().numpy(), op, axis=axis, initial=start.detach().numpy(), **options, device="numpy")
        np.testing.assert_allclose(call(x, initial=start).detach().numpy(), wanted, rtol=1e-12)
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
        assert torch.autograd.gradcheck(lambda x, start, call=call: call(x, initial=start), (x, start), fast_mode=True)
        assert torch.autograd.gradcheck(lambda x: call(x), (x,), check_forward_ad=True, fast_mode=True)  # noqa: B023
        assert torch.autograd.gradgradcheck(lambda x, start: call(x, initial=start), (x, start), fast_mode=True)  # noqa: B023


def test_more_derivatives_of_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    pair, keys = (some(5, 2), some(5, 2)), torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]).T

    def bundle(a: Any, b: Any) -> Any:
        return gpuscan.torch.scan((a, b), COMPOSITION, axis=0, keys=keys, exclusive=True)[1]

    def matrices(x: Any) -> Any:
        return gpuscan.torch.scan(x, torch.matmul, axis=0, reverse=True, segments=[0, 2, 5])

    for call, leaves in ((bundle, pair), (matrices, (some(5, 2, 2),))):
        assert torch.autograd.gradcheck(call, leaves, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)
    x = some(5).detach()
    wanted = torch.func.hessian(lambda x: torch.cumprod(x, 0).sum())(x)
    torch.testing.assert_close(torch.func.hessian(lambda x: gpuscan.torch.scan(x, "multiply").sum())(x), wanted)


def test_bundles_types_and_functions_of_torch() -> None:
    x = GATES[0, :, 0]
    largest, place = gpuscan.torch.scan(
        (x, torch.arange(6)), lambda l, r: (np.maximum(l[0], r[0]), np.where(r[0] > l[0], r[1], l[1]))
    )
    wanted = torch.cummax(x, 0)
    assert torch.equal(largest, wanted.values)
    assert torch.equal(place, wanted.indices)
    assert torch.equal(gpuscan.torch.scan(x, torch.maximum), wanted.values)
    nested = gpuscan.torch.scan(
        {"b": GATES, "a": [INPUTS]},
        lambda l, r: {"b": l["b"] * r["b"], "a": [r["b"] * l["a"][0] + r["a"][0]]},
        axis=1,
        initial={"b": 1, "a": [0.0]},
    )
    assert_close([nested["a"][0]], [states(GATES, INPUTS, 1)])
    matrices = GATES[..., :2].reshape(12, 2, 2)
    assert_close(
        [gpuscan.torch.scan(matrices, torch.matmul, axis=-1)],
        [gpuscan.torch.associative_scan(torch.matmul, matrices, 0)],
    )
    assert gpuscan.torch.scan(x.bfloat16()).dtype == torch.bfloat16


def test_vmap_of_scans() -> None:
    def product(x: Any, start: Any) -> Any:
        return gpuscan.torch.scan(x, "multiply", axis=0, initial=start)

    starts = INPUTS[:, 0]
    wanted = torch.stack([product(x, start) for x, start in zip(GATES, starts, strict=True)])
    assert_close([torch.func.vmap(product)(GATES, starts)], [wanted])
    assert_close([torch.func.vmap(product)(GATES, starts[:, 0])[1]], [product(GATES[1], starts[1, 0])])
    gradient = torch.func.grad(lambda x, start: product(x, start).square().sum(), argnums=(0, 1))
    found = torch.func.vmap(gradient, in_dims=(0, None))(GATES, starts[0])
    assert_close([each[2] for each in found], gradient(GATES[2], starts[0]))
    cut = torch.func.vmap(lambda x, keys: gpuscan.torch.scan(x, axis=0, keys=keys))(GATES, KEYS)
    assert_close([cut[1]], [gpuscan.torch.scan(GATES[1], axis=0, keys=KEYS[1])])
    with pytest.raises(ValueError, match="all examples must have the same segments"):
        torch.func.vmap(lambda x, cuts: gpuscan.torch.scan(x, axis=0, segments=cuts))(GATES, KEYS)


def test_errors_of_scan() -> None:
    scan, x = gpuscan.torch.scan, GATES[0]
    with pytest.raises(ValueError, match="without axis="):
        scan(x)
    with pytest.raises(TypeError, match=r"x of type list was passed|leaf 0 of x of type int"):
        scan([1, 2])
    with pytest.raises(ValueError, match="x without tensors"):
        scan(())
    with pytest.raises(ValueError, match="segments= and keys= were both passed"):
        scan(x, axis=0, segments=[0, 6], keys=KEYS[0])
    with pytest.raises(TypeError, match=r"initial of dtype torch\.complex64 was passed for a tensor of dtype"):
        scan(x, axis=0, initial=1j)
    with pytest.raises(ValueError, match="its structure is not that of x"):
        scan((x, x), COMPOSITION, axis=0, initial=1)
    with pytest.raises(gs.OperatorError, match="it calls functions of torch"):
        scan(x, lambda l, r: torch.exp(l) + r, axis=0)
    weight = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(gs.OperatorError, match="uses the tensor weight, which requires a gradient"):
        scan(x, lambda l, r: l + r * weight, axis=0)
    with torch.no_grad():
        scan(x, lambda l, r: l + r * weight, axis=0)

    def squares(l: Any, r: Any) -> Any:
        return np.sqrt(l * l + r * r)

    with pytest.raises(gs.OperatorError, match=r"a forward-mode derivative of a scan was asked for with .*'squares'"):
        torch.func.jvp(lambda x: scan(x, squares, axis=0), (x,), (x,))
    given = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(scan(given, squares, axis=0).sum(), given, create_graph=True)
    with pytest.raises(gs.OperatorError, match="a derivative of the gradient of a scan was asked for"):
        grad.sum().backward()


# ----- The selective scan


def test_derivatives_and_batches_of_selective_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")

    def call(u: Any, delta: Any, decays: Any, inward: Any, outward: Any) -> Any:
        return gpuscan.torch.selective_scan(u, delta, -decays, inward, outward, return_last_state=True)

    exact = [some(2, 4, 5), some(2, 4, 5), some(4, 2), some(2, 2, 5), some(2, 2, 2, 5)]
    assert torch.autograd.gradcheck(call, exact, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, exact, fast_mode=True)
    given = [each.detach().float() for each in exact]
    batch = [torch.stack([each, 1.5 * each]) for each in given]
    mapped = torch.func.vmap(call)(*batch)
    assert_close([each[1] for each in mapped], call(*(each[1] for each in batch)))
    leaves = [each.requires_grad_() for each in given]

    def loss(*leaves: Any) -> Any:
        return call(*leaves)[0].tanh().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    assert_close(gradients_of(compiled, *leaves), gradients_of(loss, *leaves))


# ----- What PyTorch does with backward passes


def by_products(x: Any) -> Any:
    return gpuscan.torch.scan(x, "multiply", axis=0, initial=x[0])


def by_moments(x: Any) -> Any:
    return gpuscan.torch.associative_scan(moments, (x + 1, x, x * x), 0, reverse=True)[2]


def by_selection(x: Any) -> Any:
    u = x.T[None]
    return gpuscan.torch.selective_scan(u, 0.5 * u, -torch.ones(2, 4), *(u.repeat(1, 2, 1) for _ in range(2)))


SCANS = [by_products, by_moments, by_selection, lambda x: gpuscan.torch.linear_recurrence(x, x, axis=0)]
SCAN_NAMES = ["scan", "associative_scan", "selective_scan", "linear_recurrence"]


@pytest.mark.parametrize("function", SCANS, ids=SCAN_NAMES)
def test_activation_checkpoints(function: Any) -> None:
    """Assert that a backward pass asks once for what it saved, as a checkpoint wants, and gets the same gradient."""
    x = torch.rand((5, 2), generator=GENERATOR).add(0.5).requires_grad_()
    weights = torch.linspace(-1, 1, function(x).numel())

    def gradients(compute: Any) -> Any:
        value = (compute(x).flatten() * weights).sum()
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return first, *torch.autograd.grad((first * first).sum(), x)

    found = gradients(lambda x: checkpoint(function, x, use_reentrant=False))
    assert all(map(torch.equal, found, gradients(function)))


@pytest.mark.parametrize("function", SCANS, ids=SCAN_NAMES)
def test_batches_of_gradients(function: Any) -> None:
    """Assert that PyTorch's own batches of gradients, in both modes and of second order, are what one by one gives."""
    x = torch.rand((5, 2), generator=GENERATOR).add(0.5)
    wanted = torch.autograd.functional.jacobian(function, x)
    for strategy in ("reverse-mode", "forward-mode"):
        found = torch.autograd.functional.jacobian(function, x, vectorize=True, strategy=strategy)
        assert_close([found], [wanted])
    y = x.clone().requires_grad_()
    value = function(y)
    weights = torch.rand((3, *value.shape), generator=GENERATOR)
    (found,) = torch.autograd.grad(value, y, weights, is_grads_batched=True, create_graph=True)
    each = [torch.autograd.grad(value, y, weight, create_graph=True)[0] for weight in weights]
    assert_close([found.detach()], [torch.stack(each).detach()])
    again = torch.eye(found.numel()).reshape(-1, *found.shape)
    assert_close(
        torch.autograd.grad(found, y, again, is_grads_batched=True, retain_graph=True),
        torch.autograd.grad(torch.stack(each), y, again, is_grads_batched=True),
    )
    assert_close(
        [torch.autograd.functional.hessian(lambda x: function(x).square().sum(), x, vectorize=True)],
        [torch.autograd.functional.hessian(lambda x: function(x).square().sum(), x)],
    )


@pytest.mark.parametrize("function", [*SCANS, lambda x: gpuscan.torch.scan(x * x, axis=0)], ids=[*SCAN_NAMES, "sum"])
def test_nested_modes(function: Any) -> None:
    """Assert that both modes within forward mode give the Hessian that reverse mode within itself gives."""
    x = torch.rand((4, 2), generator=GENERATOR).add(0.5)
    jacrev, jacfwd = torch.func.jacrev, torch.func.jacfwd

    def loss(x: Any) -> Any:
        return function(x).square().sum()

    wanted = jacrev(jacrev(loss))(x)
    assert_close([jacfwd(jacrev(loss))(x), jacfwd(jacfwd(loss))(x)], [wanted, wanted])


@pytest.mark.parametrize("function", SCANS[:3], ids=SCAN_NAMES[:3])
def test_a_batch_of_gradients_is_computed_at_once(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand((5, 2), generator=GENERATOR).add(0.5).requires_grad_()
    value = function(x)
    weights = torch.rand((3, *value.shape), generator=GENERATOR)
    compute = Mock(wraps=operations._compute_gradients)
    monkeypatch.setattr(operations, "_compute_gradients", compute)
    torch.autograd.grad(value, x, weights, is_grads_batched=True)
    compute.assert_called_once()


# ----- Loops


def test_a_loop_has_the_results_and_gradients_of_the_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    init = torch.randn(3, dtype=torch.float64, generator=generator, requires_grad=True)

    def step(h: Any, x: Any) -> Any:
        return torch.maximum(h - 0.1, x), {"y": h * x}

    carry, ys = gpuscan.torch.loop(step, init, x.T, dim=1, reverse=True)
    state = init
    outputs: list[Any] = []
    for row in reversed(x.unbind()):
        state, y = torch.maximum(state - 0.1, row), state * row
        outputs.insert(0, y)
    torch.testing.assert_close(carry, state)
    torch.testing.assert_close(ys["y"], torch.stack(outputs, dim=1))


def test_steps_and_operators_may_read_lengths() -> None:
    xs = torch.rand((5, 4), generator=GENERATOR).add(1)
    carry, ys = gpuscan.torch.loop(lambda h, x: (h / h.numel() + x, h[:2]), xs[0], xs)
    h, wanted = xs[0], []
    for x in xs:
        wanted.append(h[:2])
        h = h / 4 + x
    assert_close((carry, ys), (h, torch.stack(wanted)))
    products = torch.cumprod(xs, 0) / 4.0 ** torch.arange(5)[:, None]
    assert_close([gpuscan.torch.associative_scan(lambda l, r: l * r / l.shape[-1], xs, 0)], [products])


def test_a_loop_within_a_function_that_torch_func_differentiates() -> None:
    x = torch.rand((5, 2), generator=GENERATOR)

    def function(x: Any) -> Any:
        carry, ys = gpuscan.torch.loop(lambda h, x: (h * x + 1, {"y": h}), torch.full((2,), 0.5), x)
        return carry.sin().sum() + (ys["y"] * x).sum()

    wanted = x.clone().requires_grad_()
    function(wanted).backward()
    assert_close([torch.func.grad(function)(x)], [wanted.grad])
    with pytest.raises(gs.OperatorError, match=r"closes over a tensor that torch\.func maps or differentiates"):
        torch.func.grad(lambda w: gpuscan.torch.loop(lambda h, x: (w * h + x, h), torch.zeros(2), x)[0].sum())(ONE)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_gradients_of_a_loop_are_those_of_finite_differences(reverse: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    init = torch.randn(2, dtype=torch.float64, generator=generator, requires_grad=True)
    for step in (
        lambda h, x: (0.9 * h * x + x, h * x),
        lambda h, x: (torch.clamp(h + x, -1, 1), h),
        lambda h, x: (h / (h + x * x + 9), h * x),
    ):
        assert torch.autograd.gradcheck(lambda h, x, f=step: gpuscan.torch.loop(f, h, x, reverse=reverse), (init, x))


def test_a_loop_of_sums_of_exponentials_has_the_results_of_the_loop() -> None:
    x = torch.randn(20, generator=torch.Generator().manual_seed(0))
    carry, ys = gpuscan.torch.loop(lambda h, x: (torch.logaddexp(h - 0.1, x), h), torch.tensor(0.5), x)
    state = torch.tensor(0.5)
    for value, y in zip(x, ys, strict=True):
        torch.testing.assert_close(y, state)
        state = torch.logaddexp(state - 0.1, value)
    torch.testing.assert_close(carry, state)


def test_a_loop_of_tensors_without_a_form_is_refused() -> None:
    with pytest.raises(gs.LoopError, match=r"np\.tanh"):
        gpuscan.torch.loop(lambda h, x: (torch.tanh(h + x), h), torch.zeros(2), torch.ones(3, 2))
    with pytest.raises(TypeError, match="f returned one value; return a pair of the next carry and y"):
        gpuscan.torch.loop(lambda h, x: h + x, torch.zeros(2), torch.ones(3, 2))
    with pytest.raises(TypeError, match=r"a carry of the shapes \(2,\) for an init of \(4,\)"):
        gpuscan.torch.loop(lambda h, x: ((h + x)[:2], h), torch.zeros(4), torch.ones(3, 4))


@pytest.mark.parametrize(
    "step",
    [
        lambda h, x: (h if h > x else x, h),
        lambda h, x: (max(h, x), h),
        lambda h, x: (h + x.item(), h),
        lambda h, x: (h + float(x), h),
        lambda h, x: (h + x.tolist(), h),
    ],
    ids=["if", "max", "item", "float", "tolist"],
)
def test_functions_that_ask_for_values_are_told_what_to_write(step: Any) -> None:
    advice = r"asks Python for the value of a tensor .* write torch\.where\(condition, a, b\)"
    with pytest.raises(gs.OperatorError, match=advice):
        gpuscan.torch.loop(step, torch.tensor(0.0), torch.ones(3))
    with pytest.raises(gs.OperatorError, match=advice):
        gpuscan.torch.associative_scan(lambda l, r: step(l, r)[0], torch.ones(3), 0)
    for length in (3, 0):
        with pytest.raises(gs.OperatorError, match="passes a tensor to NumPy"):
            gpuscan.torch.associative_scan(lambda l, r: np.maximum(l, r), torch.ones(length), 0)


def test_a_loop_has_no_derivatives_of_its_gradient() -> None:
    """Assert that a penalty of the gradient is refused: without its gradient, training would be wrong."""
    x = torch.ones(3, requires_grad=True)
    carry, _ = gpuscan.torch.loop(lambda h, x: (h * x, h), torch.tensor(1.0), x)
    (grad,) = torch.autograd.grad(carry, x, create_graph=True)
    assert_close([grad], [torch.ones(3)])
    with pytest.raises(gs.OperatorError, match=r"a derivative of the gradient of gpuscan\.torch\.loop"):
        (carry + grad.square().sum()).backward()


def test_a_loop_has_neither_forward_mode_nor_vmap() -> None:
    def states(x: Any) -> Any:
        return gpuscan.torch.loop(lambda h, x: (h * x, h), torch.zeros(x.shape[1:]), x)[1]

    x = torch.ones(4, 2)
    with pytest.raises(gs.OperatorError, match="in forward mode of gpuscan"):
        torch.func.jvp(states, (x,), (x,))
    with pytest.raises(gs.OperatorError, match="Pass the batch as one more axis of xs"):
        torch.func.vmap(states, in_dims=1)(x)


# PyTorch reads the gradients of tensors between its compiled graphs, and warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_function_leaves_its_graph_for_a_loop() -> None:
    def function(x: Any) -> Any:
        return 2 * gpuscan.torch.loop(lambda h, x: (torch.clamp(h + x, 0, 2), h), torch.tensor(0.5), x)[1]

    x = torch.randn(20, generator=torch.Generator().manual_seed(0), requires_grad=True)
    compiled = torch.compile(function, backend="eager")
    assert_close([compiled(x).detach()], [function(x).detach()])
    assert_close(torch.autograd.grad(compiled(x).sum(), x), torch.autograd.grad(function(x).sum(), x))


@pytest.mark.parametrize("gates", [0.5, 1, torch.tensor(0.3), torch.rand(5), torch.rand(2, 1, requires_grad=True)])
def test_gates_broadcast(gates: Any) -> None:
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    full = torch.as_tensor(gates, dtype=torch.float32).expand(2, 5)
    given = [each for each in (gates, x) if isinstance(each, torch.Tensor) and each.requires_grad]
    found, wanted = (gpuscan.torch.linear_recurrence(a, x, axis=1) for a in (gates, full))
    assert torch.equal(found, wanted)
    for of_found, of_wanted in zip(
        torch.autograd.grad(found.sin().sum(), given), torch.autograd.grad(wanted.sin().sum(), given), strict=True
    ):
        assert torch.equal(of_found, of_wanted)


def test_arguments_that_are_no_tensors_are_named() -> None:
    wrong: Any
    for wrong in ([1, 2], {"a": np.ones(3)}):
        with pytest.raises(TypeError, match=r"leaf 0 of x of type .* pass a tensor or a bundle of tensors"):
            gpuscan.torch.scan(wrong)
    wrong = np.ones(3)
    with pytest.raises(TypeError, match=r"x of type ndarray .* pass torch\.as_tensor\(x\)"):
        gpuscan.torch.scan(wrong)
    with pytest.raises(TypeError, match=r"b of type ndarray .* pass torch\.as_tensor\(b\)"):
        gpuscan.torch.linear_recurrence(0.5, wrong)
    with pytest.raises(ValueError, match=r"a of shape \(2, 3\) and b of shape \(3,\) .* must broadcast"):
        gpuscan.torch.linear_recurrence(torch.ones(2, 3), torch.ones(3))
