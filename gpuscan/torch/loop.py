"""`loop` of PyTorch tensors: a sequential step, run as a scan on a GPU, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.api.row_loop import ArrayStep, RowLoop, Shape, row_loop
from gpuscan.array_types import AnyDType
from gpuscan.errors import OperatorError
from gpuscan.operators.function_keys import function_key
from gpuscan.operators.operator import Function, name_of
from gpuscan.problem.arguments import as_flag
from gpuscan.torch.tensors import array_of, check_dim, check_tensors, numpy_dtype, tensor_of
from gpuscan.torch.traced_function import array_step, check_closure

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx


def loop(f: Function, init: object, xs: object, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """Run a loop as a scan: ``carry, y[t] = f(carry, x[t])`` for each t, as differentiable tensors.

    The step is traced by PyTorch, and gpuscan derives its associative form, as `gpuscan.loop` does. The loop and its
    gradient run on gpuscan's default device. float64 runs there if the device has 64-bit floats, else on NumPy.

    Args:
        f: takes a carry like `init` and an entry of `xs` along the axis of the loop, and returns the pair of the next
            carry and y. Axes along which f treats all entries in the same way, such as a batch axis, are rows. In each
            row, a carry has at most 64 numbers.
        init: the first carry: a tensor, or a pytree of tensors.
        xs: a tensor with the axis of the loop, or a pytree of such tensors.
        dim: the axis of the loop.
        reverse: True to run from the end.

    Returns:
        ``(carry, ys)``: the last carry, and a pytree like y, with tensors that have the axis of the loop.

    Raises:
        LoopError: the step has no associative form.
        TypeError: a leaf is not a tensor, or the carry that f returns is not like `init`.
        ValueError: the lengths or devices differ.
        OperatorError: f uses an operation that has no form in a scan on a GPU; or PyTorch asks for what a loop does not
            have: a derivative of its gradient, a derivative in forward mode, or a form for `torch.func.vmap`.

    `torch.compile` does not compile the loop: its graph breaks at the call.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> x = torch.ones(4, requires_grad=True)
        >>> carry, ys = gpuscan.torch.loop(lambda h, x: (0.5 * h + x, h), torch.tensor(0.0), x)
        >>> ys
        tensor([0.0000, 1.0000, 1.5000, 1.7500], grad_fn=<_LoopBackward>)
        >>> carry.backward()
        >>> x.grad
        tensor([0.1250, 0.2500, 0.5000, 1.0000])
    """
    if torch.compiler.is_compiling():
        carry, ys = _loop_outside_of_graphs(f, init, xs, dim, reverse)
        return carry, ys
    check_closure(f)
    leaves, tree = pytree.tree_flatten(init)
    inputs, form = pytree.tree_flatten(xs)
    if not leaves or not inputs:
        raise ValueError("an init or xs without tensors was passed; pass one tensor or more of each")
    tensors = {f"leaf {i} of init": tensor for i, tensor in enumerate(leaves)}
    tensors |= {f"leaf {i} of xs": tensor for i, tensor in enumerate(inputs)}
    check_tensors(tensors, same_dtype=False)
    axes = [check_dim("dim", dim, tensor.shape) for tensor in inputs]
    moved = [tensor.movedim(axis, 0) for tensor, axis in zip(inputs, axes, strict=True)]
    lengths = {tensor.shape[0] for tensor in moved}
    if len(lengths) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in inputs)
        raise ValueError(f"dim={dim} was passed for tensors of shapes {shapes}; pass tensors of one length along it")
    form_of_y: list[pytree.TreeSpec | None] = []  # as the last call of the step has set it

    def flat(carry: Sequence[Tensor], x: Sequence[Tensor]) -> list[Tensor]:
        value = f(pytree.tree_unflatten(list(carry), tree), pytree.tree_unflatten(list(x), form))
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            what = f"{len(value)} values" if isinstance(value, (tuple, list)) else "one value"
            raise TypeError(f"f returned {what}; return a pair of the next carry and y")
        returned, other = pytree.tree_flatten(value[0])
        if other != tree:
            raise TypeError(f"f returned a carry of {other} for an init of {tree}; return a carry like init")
        ys, own_form = pytree.tree_flatten(value[1]) if value[1] is not None else ([], None)
        form_of_y[:] = [own_form]
        return [*returned, *ys]

    dtypes = [[tensor.dtype for tensor in group] for group in (leaves, moved)]
    numpy_dtypes = [[np.dtype(numpy_dtype(dtype)) for dtype in group] for group in dtypes]

    def make(carry: Sequence[Shape], x: Sequence[Shape]) -> tuple[ArrayStep, list[Shape], list[AnyDType], object]:
        return *array_step(flat, carry, x, dtypes, name_of(f)), form_of_y[0]

    key = function_key(f)
    whole = None if key is None else (key, repr(tree), repr(form), *map(tuple, dtypes))
    traced = row_loop(
        name_of(f),
        make,
        [tuple(tensor.shape) for tensor in leaves],
        [tuple(tensor.shape[1:]) for tensor in moved],
        numpy_dtypes,
        whole,
    )
    results = _Loop.apply(traced, as_flag("reverse", reverse), len(leaves), *leaves, *moved)
    carry = pytree.tree_unflatten(list(results[: len(leaves)]), tree)
    if traced.form is None:
        return carry, None
    ys = [tensor.movedim(0, dim) if tensor.ndim > 1 else tensor for tensor in results[len(leaves) :]]
    return carry, pytree.tree_unflatten(ys, traced.form)


# The loop as compiled functions call it: `torch.compile` breaks its graph there.
_loop_outside_of_graphs = torch.compiler.disable(loop)


class _Loop(torch.autograd.Function):
    """The last carry and the outputs of a loop."""

    @staticmethod
    def forward(traced: RowLoop, reverse: bool, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        arrays = [array_of(array) for array in tensors]
        carry, ys = traced.results(arrays[:count], arrays[count:], reverse)
        return tuple(torch.from_numpy(np.array(array, order="C")).to(tensors[0].device) for array in (*carry, *ys))

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.traced, ctx.reverse, ctx.count, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        given = *ctx.saved_tensors, *grads
        return None, None, None, *_Gradients.apply(ctx.traced, ctx.reverse, ctx.count, len(grads), *given)

    @staticmethod
    def jvp(ctx: FunctionCtx, *tangents: Tensor | None) -> NoReturn:
        raise OperatorError(
            "a derivative in forward mode of gpuscan.torch.loop was asked for, but a loop only has gradients. Use "
            "torch.func.vjp or torch.autograd.grad, or write the loop as gpuscan.torch.associative_scan"
        )

    @staticmethod
    def vmap(*_: object) -> NoReturn:
        raise OperatorError(
            "torch.func.vmap was called on gpuscan.torch.loop, which it cannot map. Pass the batch as one more axis of "
            "xs: f takes an entry of the whole batch, and the axes that it treats alike are independent loops"
        )


class _Gradients(torch.autograd.Function):
    """The gradients of a loop, from its tensors and the gradients of its results."""

    @staticmethod
    def forward(
        traced: RowLoop, reverse: bool, count: int, result_count: int, *given: Tensor
    ) -> tuple[Tensor | None, ...]:
        tensors = given[:-result_count]
        arrays = [array_of(tensor) for tensor in tensors]
        weights = [array_of(grad.contiguous()) for grad in given[-result_count:]]
        of_init, of_xs = traced.gradients(arrays[:count], arrays[count:], weights[:count], weights[count:], reverse)
        return tuple(
            tensor_of(np.broadcast_to(grad, tensor.shape).astype(array.dtype), tensor)
            if tensor.is_floating_point()
            else None
            for grad, tensor, array in zip((*of_init, *of_xs), tensors, arrays, strict=True)
        )

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        """Save nothing, since `backward` raises an error."""

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> NoReturn:
        raise OperatorError(
            "a derivative of the gradient of gpuscan.torch.loop was asked for, but a loop only has first derivatives. "
            "Run the loop step by step in PyTorch, or write it as gpuscan.torch.associative_scan"
        )
