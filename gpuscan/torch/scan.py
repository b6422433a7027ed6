"""`scan` of tensors with gpuscan's operators."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import cast, py_object
from typing import Any

import torch  # noqa: TID253 (only users of torch import this package)
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.operators.function_keys import function_key, has_closure
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator
from gpuscan.problem.arguments import as_flag, check_one_cut
from gpuscan.torch.operations import handle_of, run
from gpuscan.torch.operator_scan import TORCH_FUNCTIONS, OperatorScan
from gpuscan.torch.tensors import check_tensors


def scan(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    segments: Any = None,
    keys: Any = None,
) -> Any:
    """Return the running combination of tensors' elements along an axis, differentiable, as `gpuscan.scan` does.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])``. The gradient is that of `gpuscan.scan_vjp`. Both are one scan on
    gpuscan's default device; float64 runs there if the device has 64-bit floats, else on NumPy. `torch.func.vmap` scans
    a batch at once. For sums, derivatives of gradients and in forward mode are scans as well. For other operators
    PyTorch computes them, if torch has the operator, or its function has no NumPy functions, but arithmetic alone.

    Args:
        x: the input: a tensor, or a bundle, which is a tuple, list or dict of tensors, nested as you like.
        op: the operator: a name (``"add"``, ``"maximum"``, …), the function of torch or NumPy of such a name, a
            `gpuscan.Operator`, or a Python function of (left, right), written with NumPy. It must be associative.
        axis: the axis to scan along. A tensor of one axis needs none.
        exclusive: True to leave ``x[i]`` out of ``y[i]``, so that ``y[0]`` is `initial` or the operator's identity.
        reverse: True to scan from the end.
        initial: the left operand of the first combination, broadcast over the other axes: a number or tensor, or a
            bundle like `x`. Tensors get gradients.
        segments: the offsets along the axis where the scan restarts: the first is 0, the last is the axis's length.
        keys: the scan restarts where a key differs from the one before it along the axis. There is a key for each
            element, in the shape of `x`, or one for each place along the axis.

    Returns:
        A tensor or bundle like `x`. Tensors that are not on the CPU are copied to the host and back; a warning says so
        once.

    Raises:
        ValueError: the axis, `initial`, `segments`, `keys` or the shapes of a bundle do not fit, the devices differ, or
            both `segments` and `keys` are passed.
        TypeError: an argument is not a tensor, or the operator does not take the dtype.
        OperatorError: the operator cannot be turned into a shader, or a derivative is asked for that it does not have.
        UnsupportedDtypeError: the adapter cannot hold the dtype.

    The scan is that of Blelloch 1990. `torch.compile` calls it as one operation, except with a Python function that
    reads more than its arguments and other functions: it leaves the graph for that call.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> x = torch.tensor([2.0, 3.0, 0.0, 5.0], requires_grad=True)
        >>> y = gpuscan.torch.scan(x, "multiply")
        >>> y.sum().backward()
        >>> y.tolist(), x.grad.tolist()
        ([2.0, 6.0, 0.0, 0.0], [4.0, 2.0, 36.0, 0.0])
        >>> gpuscan.torch.scan(torch.ones(5), segments=[0, 2, 5], initial=10.0)
        tensor([11., 12., 11., 12., 13.])
    """
    leaves, tree = pytree.tree_flatten(x)
    if not leaves:
        raise ValueError("x without tensors was passed; pass a tensor, or a tuple or dict of tensors")
    check_one_cut(segments=segments, keys=keys)
    single = len(leaves) == 1 and tree.is_leaf()
    names = ["x"] if single else [f"leaf {i} of x" for i in range(len(leaves))]
    tensors = dict(zip(names, leaves, strict=True))
    check_tensors(tensors, same_dtype=False)
    starts = _starts(initial, leaves, tree)
    cuts = [torch.as_tensor(cut).detach() for cut in (segments, keys) if cut is not None]
    ranks = tuple(leaf.ndim for leaf in leaves)
    cut = "segments" if segments is not None else "keys" if keys is not None else None
    options = as_flag("exclusive", exclusive), as_flag("reverse", reverse), initial is not None, cut
    op = TORCH_FUNCTIONS.get(op, op) if callable(op) else op
    places = pytree.tree_unflatten(list(range(len(leaves))), tree)
    if torch.compiler.is_compiling():
        # This call is traced, and a function that closes over what is traced cannot be read here. PyTorch 2.11 passes
        # no operators to `_handle`, but knows their addresses.
        given = id(op) if isinstance(op, Operator) else op
        handle = -1 if has_closure(op) else _handle(given, places, ranks, axis, *options)
        if handle < 0:
            return _outside_of_graphs(x, op, axis, exclusive, reverse, initial, segments, keys)
        results = torch.ops.gpuscan.scan([*leaves, *starts, *cuts], handle)
    else:
        results = run(_scan_of(op, None, places, ranks, axis, *options), [*leaves, *starts, *cuts])
    return pytree.tree_unflatten(list(results), tree)


@torch.compiler.disable
def _outside_of_graphs(
    x: Any, op: Any, axis: Any, exclusive: bool, reverse: bool, initial: Any, segments: Any, keys: Any
) -> Any:
    return scan(x, op, axis=axis, exclusive=exclusive, reverse=reverse, initial=initial, segments=segments, keys=keys)


@torch.compiler.assume_constant_result
def _handle(op: Any, *options: Any) -> int:
    """Return the number of a scan for compiled functions; -1 if these would not notice that the operator changes.

    Args:
        op: the operator; the address of an `Operator`, which the caller keeps.
        options: the other arguments of `_scan_of`, after `key`.
    """
    if isinstance(op, int):
        op = cast(op, py_object).value
    key = op if isinstance(op, (str, Operator)) else function_key(op, numbers=False)
    return -1 if key is None else handle_of(_scan_of(op, key, *options))


def _starts(initial: Any, leaves: Sequence[Any], tree: Any) -> list[Any]:
    """Return the tensors of `initial`, in the dtypes of the leaves.

    Raises:
        ValueError: it does not nest as x does, or the leaves' type does not hold a number.
        TypeError: it has another dtype.
    """
    if initial is None:
        return []
    try:
        values = tree.flatten_up_to(initial)
    except ValueError:
        raise ValueError(
            f"initial={initial!r} was passed for x of {len(leaves)} tensors, but it does not nest as x does; pass one "
            "value for each tensor, nested as x is"
        ) from None
    found = []
    for value, leaf in zip(values, leaves, strict=True):
        given = torch.as_tensor(value)
        tensor = isinstance(value, torch.Tensor)
        if given.dtype != leaf.dtype and (tensor or _generality(given.dtype) > _generality(leaf.dtype)):
            raise TypeError(
                f"initial of dtype {given.dtype} was passed for a tensor of dtype {leaf.dtype}, but both must agree. "
                f"Pass a value of {leaf.dtype}"
            )
        found.append(given if tensor else torch.as_tensor(value, dtype=leaf.dtype, device=leaf.device))
        check_tensors({"x": leaf, "initial": found[-1]})
    return found


def _generality(dtype: Any) -> int:
    """Return a number that is larger for a kind of numbers that holds others."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != torch.bool)


def _scan_of(
    op: Any,
    key: Any,
    places: Any,
    ranks: tuple[int, ...],
    axis: Any,
    exclusive: bool,
    reverse: bool,
    seeded: bool,
    cut: str | None,
) -> OperatorScan:
    """Return a scan without its tensors.

    Args:
        op: the operator.
        key: equal for operators that compute the same; None for one that is not kept.
        places: a bundle of numbers, nested as x.
        ranks: the number of axes of each tensor of x.
        axis: the axis as the caller passed it.
        exclusive, reverse: as in `scan`.
        seeded: True if there are values of `initial`.
        cut: what restarts the scan: ``"segments"``, ``"keys"``, or None.
    """
    rank = min(ranks) - resolve(op).element_axes
    if axis is None and rank == 1:
        axis = 0
    if isinstance(axis, int) and -rank <= axis < 0:
        axis += rank
    return OperatorScan(op, key, pytree.tree_structure(places), len(ranks), axis, exclusive, reverse, seeded, cut)
