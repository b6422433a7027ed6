"""`gpuscan.torch` gives what PyTorch's differentiation of the loop does; needs the extra ``torch``."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch, some hundred megabytes, is not installed")
import gpuscan.torch  # noqa: E402 (it needs torch)


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


@pytest.mark.parametrize("reverse", [False, True])
def test_gradcheck(leaves: Any, reverse: bool) -> None:
    """Compare with PyTorch's finite differences, in float64."""
    a, b, initial = leaves((2, 5, 3), torch.float64)

    def call(a: Any, b: Any, initial: Any) -> Any:
        return gpuscan.torch.linear_recurrence(a, b, axis=1, initial=initial, reverse=reverse)

    assert torch.autograd.gradcheck(call, (a, b, initial))


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
    with pytest.raises(TypeError, match=r"b of type list was passed; pass torch\.as_tensor\(b\)"):
        gpuscan.torch.linear_recurrence(a, [1.0])
    with pytest.raises(TypeError, match=r"b of dtype torch\.float64 and a of dtype torch\.float32"):
        gpuscan.torch.linear_recurrence(a, a.double())
    with pytest.raises(ValueError, match=r"b on the device meta was passed.*b\.cpu\(\)"):
        gpuscan.torch.linear_recurrence(a, a.to("meta"))
