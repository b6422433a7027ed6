"""Operators written with torch: `make_fx` traces the function, and ATen's operations are interpreted on numbers."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock, current_thread
from typing import Any

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch._C._functorch import is_functorch_wrapped_tensor  # noqa: TID253
from torch._decomp import core_aten_decompositions  # noqa: TID253
from torch._subclasses.fake_tensor import (  # noqa: TID253
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: TID253
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.errors import OperatorError
from gpuscan.operators.components import Numbers, apply, constants_of
from gpuscan.operators.operator import name_of
from gpuscan.operators.row_functions import RowFunction, RowOperator, check_combined, row_operator
from gpuscan.torch.aten import ELEMENTWISE, FULL, NAMES, OTHERS, to_dtype
from gpuscan.torch.tensors import array_of, torch_dtype

# How many kinds of functions are kept; the least recently used goes first.
MAX_FUNCTIONS = 256
_known: OrderedDict[Hashable, list[RowOperator]] = OrderedDict()
_lock = Lock()
_tracing = Lock()
# How the names of threads begin that trace a function.
_THREAD = "gpuscan traces"
# A function is tried with several shapes, and PyTorch would print an error for each that it refuses.
logging.getLogger("torch._subclasses.fake_tensor").addFilter(
    lambda record: not str(record.threadName).startswith(_THREAD)
)


def traced_operator(
    function: Callable[..., Any],
    key: Hashable | None,
    tree: Any,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[np.dtype[Any]],
    axis: int,
) -> RowOperator:
    """Return the operator that a function of pytrees of tensors is, from an earlier call if there was one.

    Args:
        function: the user's function.
        key: equal for functions that compute the same; None if that is not known.
        tree: the structure of its arguments.
        shapes, dtypes: those of the leaves, with the scanned axis.
        axis: that axis.

    Raises:
        TypeError, ValueError: the function does not return what it takes.
        OperatorError: the function cannot become a kernel, or mixes elements along the axis.
    """
    kind = None if key is None else (key, repr(tree), tuple(map(len, shapes)), tuple(dtypes), axis)
    with _lock:
        for found in _known.get(kind, []):
            if found.fits(shapes):
                _known.move_to_end(kind)
                return found
    of_torch = [torch_dtype(dtype) for dtype in dtypes]
    check_results(function, tree, shapes, of_torch, axis)

    def make(shapes: list[tuple[int, ...]]) -> RowFunction:
        return row_function(function, tree, shapes, of_torch, axis)

    found = row_operator(name_of(function), make, shapes, dtypes, axis)
    if kind is not None:
        with _lock:
            _known.setdefault(kind, []).append(found)
            if len(_known) > MAX_FUNCTIONS:
                _known.popitem(last=False)
    return found


def row_function(
    function: Callable[..., Any], tree: Any, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[Any], dim: int
) -> RowFunction:
    """Return a function of two pytrees of tensors as one of two lists of arrays of numbers.

    As in `torch.associative_scan`, the function gets elements without the scanned axis.

    Args:
        function: the user's function.
        tree: the structure of its arguments.
        shapes, dtypes: those of the leaves, with the scanned axis.
        dim: that axis.

    Raises:
        OperatorError: the function closes over a tensor that requires a gradient.
    """
    tensors = [_filled(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    count = len(tensors)

    def flat(*leaves: Any) -> Any:
        left, right = (pytree.tree_unflatten(list(part), tree) for part in (leaves[:count], leaves[count:]))
        return pytree.tree_leaves(function(left, right))

    def traced() -> Any:
        whole = torch.func.vmap(flat, dim, dim)
        with torch.no_grad():
            # Tensors without values: those of ones would be singular matrices.
            tracer = make_fx(
                whole,
                decomposition_table=core_aten_decompositions(),
                tracing_mode="fake",
                _allow_non_fake_inputs=True,
            )
            return tracer(*tensors, *(tensor.clone() for tensor in tensors))

    _check_closure(function)
    graph = _aside(traced)
    constants = {}
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            tensor = getattr(graph, node.target)
            if tensor.requires_grad and not all(_detaches(user) for user in node.users):
                raise OperatorError(
                    f"{name_of(function)} closes over a tensor that requires a gradient, which would not get one. Pass "
                    "it as one more leaf of xs, expanded along the axis, or detach it"
                )
            constants[node] = constants_of(array_of(tensor))

    def interpreted(left: Sequence[Numbers], right: Sequence[Numbers]) -> list[Numbers]:
        return _run(graph.graph, dict(constants), [*left, *right], name_of(function))

    return interpreted


def _aside(function: Callable[[], Any]) -> Any:
    """Return what a function gives in another thread.

    Whether PyTorch is differentiating, mapping or compiling at the moment belongs to the thread. It traces in one
    thread at a time.
    """
    within = current_thread().name.startswith(_THREAD)
    with nullcontext() if within else _tracing, ThreadPoolExecutor(1, _THREAD) as aside:
        return aside.submit(function).result()


def check_results(
    function: Callable[..., Any], tree: Any, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[Any], dim: int
) -> None:
    """Raise an error unless a function of two pytrees returns what it takes.

    The function sees tensors without values, and none of the user's.

    Args:
        function: the user's function.
        tree: the structure of its arguments.
        shapes, dtypes: those of the leaves, with the scanned axis.
        dim: that axis.

    Raises:
        TypeError: it returns another pytree or dtype.
        ValueError: it returns another shape.
        OperatorError: it closes over a tensor of one of PyTorch's transformations.
    """
    _check_closure(function)

    def results() -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            leaves = [
                torch.ones(shape[:dim] + shape[dim + 1 :], dtype=dtype)
                for shape, dtype in zip(shapes, dtypes, strict=True)
            ]
            left, right = (pytree.tree_unflatten([leaf.clone() for leaf in leaves], tree) for _ in range(2))
            return leaves, function(left, right)

    try:
        leaves, value = _aside(results)
    except (DataDependentOutputException, DynamicOutputShapeException):
        # The function branches on values, which the tracer explains.
        return
    check_combined("combine_fn", pytree.tree_flatten(value), (leaves, tree), "a tensor", ".to(x.dtype)")


def _check_closure(function: Callable[..., Any]) -> None:
    """Raise OperatorError if a function closes over a tensor of one of PyTorch's transformations."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # nothing has been assigned yet
            continue
        if isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value):
            raise OperatorError(
                f"{name_of(function)} closes over a tensor that torch.func maps or differentiates, which a scan does "
                "not see. Pass it as one more leaf of xs, expanded along the axis"
            )


def _detaches(node: Any) -> bool:
    """Return True if a node stands for ``tensor.detach()``, which is traced as an alias."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in ("aten::detach", "aten::alias")


def _filled(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a tensor of positive numbers, for which no function branches."""
    return torch.ones(shape, dtype=dtype)


def _run(graph: Any, known: dict[Any, Any], arguments: Sequence[Numbers], name: str) -> list[Numbers]:
    """Return the results of a graph."""
    rest = iter(arguments)
    for node in graph.nodes:
        if node.op == "placeholder":
            known[node] = next(rest)
        elif node.op == "output":
            found: list[Numbers] = torch.fx.node.map_arg(node.args[0], known.__getitem__)
            return list(found)
        elif node.op == "call_function":
            args, options = (torch.fx.node.map_arg(each, known.__getitem__) for each in (node.args, node.kwargs))
            known[node] = _apply(node, list(args), dict(options), name)
    raise AssertionError("a graph ends with its output")


def _apply(node: Any, args: list[Any], options: dict[str, Any], name: str) -> Any:
    target = node.target
    if getattr(target, "__name__", "") == "getitem":
        return args[0][args[1]]
    operation = target._schema.name.partition("::")[2]
    if target._schema.is_mutable and operation not in OTHERS:
        raise OperatorError(
            f"{name} changes a tensor in place, by torch's operation aten.{operation}, but a scan uses its elements "
            "more than once. Return a new tensor, as l + r does in place of l.add_(r)"
        )
    if not any(isinstance(each, np.ndarray) for each in pytree.tree_leaves((args, options))):
        options.pop("pin_memory", None)
        return constants_of(array_of(target(*args, **options)))
    value = node.meta.get("val")
    if operation in ("_to_copy", "to"):
        return to_dtype(args[0], _dtype(value.dtype))
    if operation in FULL:
        fill = args[1] if FULL[operation] is None else FULL[operation]
        return np.broadcast_to(constants_of(np.asarray(fill, _dtype(value.dtype))), tuple(value.shape))
    if operation in ELEMENTWISE:
        return apply(ELEMENTWISE[operation], *_promoted(node, args, operation))
    if operation in OTHERS:
        return OTHERS[operation](*_promoted(node, args, operation), **options)
    raise OperatorError(
        f"{name} uses torch's operation aten.{operation}, which has no form in a scan on a GPU. Write the function "
        f"with these operations: {', '.join(NAMES)}"
    )


def _promoted(node: Any, args: Sequence[Any], operation: str) -> list[Any]:
    """Return the operands of arithmetic in the dtype of its result, since torch and NumPy promote differently."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool:
        return list(args)
    wanted = []
    for place, (given, arg) in enumerate(zip(node.args, args, strict=True)):
        own = given.meta["val"] if isinstance(given, torch.fx.Node) and "val" in given.meta else None
        is_condition = operation == "where" and place == 0
        differs = isinstance(own, torch.Tensor) and own.dtype != value.dtype and not own.dtype.is_complex
        wanted.append(to_dtype(arg, _dtype(value.dtype)) if differs and not is_condition else arg)
    return wanted


def _dtype(dtype: Any) -> np.dtype[Any]:
    """Return NumPy's dtype of a torch dtype."""
    found: np.dtype[Any] = array_of(torch.empty(0, dtype=dtype)).dtype
    return found
