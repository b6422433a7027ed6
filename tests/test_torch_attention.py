"""Linear attention of tensors and its derivatives give what the recurrences do; needs the extra ``torch``."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch, some hundred megabytes, is not installed")
from torch.utils.checkpoint import checkpoint  # noqa: E402 (it needs torch)

import gpuscan.torch  # noqa: E402

# PyTorch's forward mode uses it.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

FORMS = ("heads", "keys", "delta")


def arguments(form: str, shape: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    """Return q, k, v, g, with the delta rule beta, and a first state, for a shape (batch, time, head, key, value)."""
    generator = torch.Generator().manual_seed(0)
    *steps, keys, values = shape

    def some(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q, k, v = some(*steps, keys), torch.nn.functional.normalize(some(*steps, keys), dim=-1), some(*steps, values)
    g = -0.3 * some(*steps, *([keys] if form == "keys" else [])).abs()
    more = [some(*steps).sigmoid()] if form == "delta" else []
    state = some(shape[0], shape[2], keys, values)
    return [each.to(dtype).requires_grad_() for each in (q, k, v, g, *more, state)]


def attend(form: str, *given: Any) -> Any:
    function = gpuscan.torch.gated_delta_rule if form == "delta" else gpuscan.torch.gated_linear_attention
    return function(*given[:-1], initial_state=given[-1], output_final_state=True)


def recurrence(q: Any, k: Any, v: Any, g: Any, *others: Any) -> Any:
    """Compute one step after the other, as flash-linear-attention's references do."""
    *beta, state = others
    gates = (g if g.ndim == k.ndim else g[..., None]).exp()
    outputs = []
    for t in range(k.shape[1]):
        state = state * gates[:, t, :, :, None]
        value = v[:, t]
        if beta:
            value = (value - torch.einsum("bhk,bhkv->bhv", k[:, t], state)) * beta[0][:, t, :, None]
        state = state + k[:, t, :, :, None] * value[:, :, None]
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * q.shape[-1] ** -0.5, state))
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_gradients(form: str) -> None:
    given = arguments(form, (2, 37, 2, 5, 3))
    exact = [each.detach().double().requires_grad_() for each in given]
    found, wanted = attend(form, *given), recurrence(*exact)
    weights = [torch.cos(torch.arange(each.numel())).reshape(each.shape) for each in wanted]
    pairs = (found, given), (wanted, exact)
    of_found, of_wanted = (
        torch.autograd.grad(sum((one * weight).sum() for one, weight in zip(results, weights, strict=True)), leaves)
        for results, leaves in pairs
    )
    for one, other in zip((*found, *of_found), (*wanted, *of_wanted), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5 * float(1 + other.detach().abs().max()))
    # Without a state, and the last one unused.
    del given[-1]
    function = gpuscan.torch.gated_delta_rule if form == "delta" else gpuscan.torch.gated_linear_attention
    o = function(*given, scale=1.0)
    wanted = recurrence(*exact[:-1], torch.zeros(2, 2, 5, 3))[0] * 5**0.5
    torch.testing.assert_close(o.double(), wanted, rtol=1e-4, atol=1e-4)
    assert all(each.isfinite().all() for each in torch.autograd.grad(o.sum(), given))


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_of_all_kinds(form: str) -> None:
    """Check float64 on NumPy: gradients, gradients of gradients, forward mode, and maps."""
    given = arguments(form, (1, 3, 1, 2, 2), torch.float64)
    function = partial(attend, form)
    assert torch.autograd.gradcheck(function, given, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, given)
    batch = [torch.stack([each, 0.5 * each]) for each in given]
    for dims in ([0] * len(given), [None, *[0] * (len(given) - 1)]):
        parts = [each if dim is None else part for each, part, dim in zip(given, batch, dims, strict=True)]
        found = torch.func.vmap(function, tuple(dims))(*parts)
        for i in range(2):
            one = function(*(each if dim is None else each[i] for each, dim in zip(parts, dims, strict=True)))
            for whole, part in zip(found, one, strict=True):
                torch.testing.assert_close(whole[i], part)


def test_compiled_functions_and_checkpoints() -> None:
    given = arguments("delta", (1, 5, 2, 4, 3))
    function = partial(attend, "delta")
    wanted = function(*given)
    grads = torch.autograd.grad(wanted[0].sum(), given)
    compiled = torch.compile(lambda *each: attend("delta", *each), backend="aot_eager", fullgraph=True)
    for call in (compiled, partial(checkpoint, function, use_reentrant=False)):
        found = call(*given)
        for one, other in zip((*found, *torch.autograd.grad(found[0].sum(), given)), (*wanted, *grads), strict=True):
            torch.testing.assert_close(one, other)


def test_narrow_floats_and_errors() -> None:
    given = arguments("heads", (1, 40, 1, 4, 3), torch.bfloat16)
    o, state = attend("heads", *given)
    assert (o.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    wanted = recurrence(*(each.double() for each in given))
    torch.testing.assert_close(o.double(), wanted[0], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(state.double(), wanted[1], rtol=1e-4, atol=1e-4)
    grads = torch.autograd.grad(o.float().sum(), given)
    assert [each.dtype for each in grads] == [torch.bfloat16] * 5
    q, k, v, g, _ = given
    with pytest.raises(ValueError, match=r"g of shape \(1, 40\) was passed for keys of shape \(1, 40, 1, 4\)"):
        gpuscan.torch.gated_linear_attention(q, k, v, g[..., 0])
    with pytest.raises(TypeError, match=r"v of type list was passed"):
        gpuscan.torch.gated_linear_attention(q, k, [1.0], g)
    with pytest.raises(TypeError, match=r"beta of dtype torch\.int64 was passed, but attention takes floats"):
        gpuscan.torch.gated_delta_rule(q, k, v, g, g.long())
