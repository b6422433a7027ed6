"""Operators written with torch: `make_fx` traces the function, and ATen's operations are interpreted on numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from threading import Lock, current_thread
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253
from torch._C._functorch import is_functorch_wrapped_tensor  # noqa: TID253
from torch._decomp import core_aten_decompositions  # noqa: TID253
from torch._subclasses.fake_tensor import (  # noqa: TID253
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx import Graph, GraphModule, Node  # noqa: TID253
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: TID253
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # noqa: TID253
from torch.fx.node import map_arg  # noqa: TID253
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.array_types import AnyDType
from gpuscan.errors import OperatorError
from gpuscan.operators.components import (
    COMMON,
    Numbers,
    apply,
    constants_of,
    contract_axes,
    convert_number,
    fold_axes,
    logistic,
    of_numpy,
    select,
)
from gpuscan.operators.matrices import (
    Rows,
    determinant,
    factor_cholesky,
    factor_lu,
    over_matrices,
    sign_of_swaps,
    solve_system,
    solve_triangular,
    unit_matrix,
)
from gpuscan.operators.operator import name_of
from gpuscan.operators.row_functions import RowFunction, RowOperator, check_combined, row_operator
from gpuscan.recent_values import RecentValues
from gpuscan.torch.tensors import array_of, numpy_dtype, torch_dtype

T = TypeVar("T")
# The axes of an operation; None for all.
Axes: TypeAlias = int | Sequence[int] | None
# How many functions are kept; the least recently used goes first.
MAX_FUNCTIONS = 256
_operators: RecentValues[Hashable, list[RowOperator]] = RecentValues(MAX_FUNCTIONS)
_lock = Lock()
_tracing = Lock()
# How the names of threads begin that trace a function.
_THREAD = "gpuscan traces"
# A function is tried with several shapes, and PyTorch would print an error for each that it refuses.
logging.getLogger("torch._subclasses.fake_tensor").addFilter(
    lambda record: not str(record.threadName).startswith(_THREAD)
)


def trace_row_operator(
    function: Callable[..., object],
    key: Hashable | None,
    tree: pytree.TreeSpec,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[AnyDType],
    axis: int,
) -> RowOperator:
    """Return the operator that a function of pytrees of tensors is, from an earlier call if there was one.

    Args:
        key: equal for functions that compute the same; None if that is not known.
        tree: the structure of its arguments.
        shapes, dtypes: the shapes and dtypes of the leaves, with the scanned axis.
        axis: the scanned axis.

    Raises:
        TypeError, ValueError: the function does not return what it takes.
        OperatorError: the function cannot become a kernel, or mixes elements along the axis.
    """
    operator_key = None if key is None else (key, repr(tree), tuple(map(len, shapes)), tuple(dtypes), axis)
    with _lock:
        for traced in _operators.find(operator_key) or ():
            if traced.fits(shapes):
                return traced
    of_torch = [torch_dtype(dtype) for dtype in dtypes]
    check_results(function, tree, shapes, of_torch, axis)

    def make(shapes: list[tuple[int, ...]]) -> RowFunction:
        return row_function(function, tree, shapes, of_torch, axis)

    traced = row_operator(name_of(function), make, shapes, dtypes, axis)
    if operator_key is not None:
        with _lock:
            _operators.keep(operator_key, [*(_operators.find(operator_key) or ()), traced])
    return traced


def row_function(
    function: Callable[..., object],
    tree: pytree.TreeSpec,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[torch.dtype],
    dim: int,
) -> RowFunction:
    """Return a function of two pytrees of tensors as one of two lists of arrays of numbers.

    As in `torch.associative_scan`, the function gets elements without the scanned axis.

    Args:
        tree: the structure of its arguments.
        shapes, dtypes: the shapes and dtypes of the leaves, with the scanned axis.
        dim: the scanned axis.

    Raises:
        OperatorError: the function closes over a tensor that requires a gradient.
    """
    tensors = [torch.ones(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    count = len(tensors)

    def flat(*leaves: Tensor) -> list[Tensor]:
        left, right = (pytree.tree_unflatten(list(part), tree) for part in (leaves[:count], leaves[count:]))
        return list(pytree.tree_leaves(function(left, right)))

    check_closure(function)
    graph, constants = _graph_of(
        torch.func.vmap(flat, dim, dim), [*tensors, *map(torch.clone, tensors)], name_of(function)
    )

    def interpret_rows(left: Sequence[Numbers], right: Sequence[Numbers]) -> list[Numbers]:
        return _run(graph.graph, dict(constants), [*left, *right], name_of(function))

    return interpret_rows


def array_step(
    function: Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]],
    carry: Sequence[tuple[int, ...]],
    xs: Sequence[tuple[int, ...]],
    dtypes: Sequence[Sequence[torch.dtype]],
    name: str,
) -> tuple[Callable[[Sequence[Numbers]], list[Numbers]], list[tuple[int, ...]], list[AnyDType]]:
    """Return the step of a loop as a function of arrays of numbers, and the shapes and dtypes of its results.

    Args:
        function: takes two lists of tensors, the carry and x, and returns a list.
        carry, xs: the shapes of these tensors.
        dtypes: the dtypes of the carry, and of x.
        name: the name of the user's function, for messages.

    Raises:
        OperatorError: the function closes over a tensor that requires a gradient.
    """
    count = len(carry)
    # torch.func wraps tensors that are made inside of it. In another thread, it does not.
    tensors = _aside(
        lambda: [
            torch.ones(shape, dtype=dtype)
            for shapes, own in zip((carry, xs), dtypes, strict=True)
            for shape, dtype in zip(shapes, own, strict=True)
        ]
    )
    graph, constants = _graph_of(lambda *leaves: function(leaves[:count], leaves[count:]), tensors, name)
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    values = [node.meta["val"] for node in output.args[0]]

    def interpret_arrays(arrays: Sequence[Numbers]) -> list[Numbers]:
        return _run(graph.graph, dict(constants), arrays, name)

    return interpret_arrays, [tuple(value.shape) for value in values], [numpy_dtype(value.dtype) for value in values]


def _graph_of(
    function: Callable[..., object], tensors: Sequence[Tensor], name: str
) -> tuple[GraphModule, dict[Node, Numbers]]:
    """Return the graph of a function of tensors, and the numbers of the constants in it."""

    def trace_graph() -> GraphModule:
        with torch.no_grad():
            # Trace with tensors without values: with values of 1, a matrix would be singular.
            tracer = make_fx(
                function,
                decomposition_table=_decompositions(),
                tracing_mode="fake",
                _allow_non_fake_inputs=True,
            )
            return tracer(*tensors)

    with _naming_values(name):
        graph = _aside(trace_graph)
    constants = {}
    for node in graph.graph.nodes:
        if getattr(node.target, "overloadpacket", None) is torch.ops.aten._local_scalar_dense:
            raise _values_error(name)
        if node.op == "get_attr":
            tensor = getattr(graph, node.target)
            if tensor.requires_grad and not all(_detaches(user) for user in node.users):
                raise OperatorError(
                    f"{name} closes over a tensor that requires a gradient, which would not get one. Pass "
                    "it as one more leaf of xs, expanded along the axis, or detach it"
                )
            constants[node] = constants_of(array_of(tensor))
    return graph, constants


@contextmanager
def _naming_values(name: str) -> Iterator[None]:
    """Raise OperatorError where PyTorch raises an error because a function asks for the value of a traced tensor."""
    try:
        yield
    except (DataDependentOutputException, GuardOnDataDependentSymNode) as error:
        raise _values_error(name) from error
    except RuntimeError as error:
        text = str(error)
        if ".numpy()" in text:
            raise OperatorError(
                f"{name} passes a tensor to NumPy, which cannot be traced; write it with torch's functions, such as "
                "torch.maximum"
            ) from error
        if any(each in text for each in ("data-dependent control flow", ".item()", "that doesn't have storage")):
            raise _values_error(name) from error
        raise


def _values_error(name: str) -> OperatorError:
    return OperatorError(
        f"{name} asks Python for the value of a tensor (if, while, and, or, not, min, max, float, .item(), .tolist()), "
        "which is known only on the GPU; write torch.where(condition, a, b), & | ~, torch.minimum, torch.maximum"
    )


def _aside(function: Callable[[], T]) -> T:
    """Return what a function gives in another thread.

    Whether PyTorch is differentiating, mapping or compiling at the moment belongs to the thread. It traces in one
    thread at a time.
    """
    within = current_thread().name.startswith(_THREAD)
    with nullcontext() if within else _tracing, ThreadPoolExecutor(1, _THREAD) as aside:
        return aside.submit(function).result()


def check_results(
    function: Callable[..., object],
    tree: pytree.TreeSpec,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[torch.dtype],
    dim: int,
) -> None:
    """Raise an error unless a function of two pytrees returns what it takes.

    The function sees tensors without values, and none of the user's tensors.

    Args:
        tree: the structure of its arguments.
        shapes, dtypes: the shapes and dtypes of the leaves, with the scanned axis.
        dim: the scanned axis.

    Raises:
        TypeError: it returns another pytree or dtype.
        ValueError: it returns another shape.
        OperatorError: it closes over a tensor of one of PyTorch's transformations.
    """
    check_closure(function)

    def results() -> tuple[list[Tensor], object]:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            leaves = [
                torch.ones(shape[:dim] + shape[dim + 1 :], dtype=dtype)
                for shape, dtype in zip(shapes, dtypes, strict=True)
            ]
            left, right = (pytree.tree_unflatten([leaf.clone() for leaf in leaves], tree) for _ in range(2))
            return leaves, function(left, right)

    try:
        with _naming_values(name_of(function)):
            leaves, value = _aside(results)
    except DynamicOutputShapeException:
        # The shape of something depends on values, which the tracer explains.
        return
    check_combined("combine_fn", pytree.tree_flatten(value), (leaves, tree), "a tensor", ".to(x.dtype)")


def check_closure(function: Callable[..., object]) -> None:
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


def _detaches(node: Node) -> bool:
    """Return True if a node stands for ``tensor.detach()``, which is traced as an alias."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in ("aten::detach", "aten::alias")


def _run(graph: Graph, value_of: dict[Node, object], arguments: Sequence[Numbers], name: str) -> list[Numbers]:
    """Return the results of a graph."""
    rest = iter(arguments)
    for node in graph.nodes:
        if node.op == "placeholder":
            value_of[node] = next(rest)
        elif node.op == "output":
            outputs: list[Numbers] = map_arg(node.args[0], value_of.__getitem__)
            return list(outputs)
        elif node.op == "call_function":
            args, options = (map_arg(argument, value_of.__getitem__) for argument in (node.args, node.kwargs))
            value_of[node] = _apply(node, list(args), dict(options), name)
    raise AssertionError("a graph ends with its output")


def _apply(node: Node, args: list[Any], options: dict[str, object], name: str) -> object:
    target = node.target
    if getattr(target, "__name__", "") == "getitem":
        return args[0][args[1]]
    operation = target._schema.name.partition("::")[2]
    if target._schema.is_mutable and operation not in OTHERS:
        raise OperatorError(
            f"{name} changes a tensor in place, by torch's operation aten.{operation}, but a scan uses its elements "
            "more than once. Return a new tensor, as l + r does in place of l.add_(r)"
        )
    if not any(isinstance(operand, np.ndarray) for operand in pytree.tree_leaves((args, options))):
        options.pop("pin_memory", None)
        return constants_of(array_of(target(*args, **options)))
    value = node.meta.get("val")
    if operation in ("_to_copy", "to"):
        return to_dtype(args[0], numpy_dtype(value.dtype))
    if operation in FULL:
        fill = args[1] if FULL[operation] is None else FULL[operation]
        return np.broadcast_to(constants_of(np.asarray(fill, numpy_dtype(value.dtype))), tuple(value.shape))
    if operation in ELEMENTWISE:
        return apply(ELEMENTWISE[operation], *_promote_operands(node, args, operation))
    if operation in OTHERS:
        return OTHERS[operation](*_promote_operands(node, args, operation), **options)
    raise OperatorError(
        f"{name} uses torch's operation aten.{operation}, which has no form in a scan on a GPU. Write the function "
        f"with these operations: {', '.join(NAMES)}"
    )


def _promote_operands(node: Node, args: Sequence[Any], operation: str) -> list[object]:
    """Return the operands of arithmetic in the dtype of its result, since torch and NumPy promote differently."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool:
        return list(args)
    wanted = []
    for position, (given, arg) in enumerate(zip(node.args, args, strict=True)):
        own = given.meta["val"] if isinstance(given, Node) and "val" in given.meta else None
        is_condition = operation == "where" and position == 0
        differs = isinstance(own, torch.Tensor) and own.dtype != value.dtype and not own.dtype.is_complex
        wanted.append(to_dtype(arg, numpy_dtype(value.dtype)) if differs and not is_condition else arg)
    return wanted


@cache
def _decompositions() -> dict[Any, Callable[..., object]]:
    """Return how operations are composed of others. Loops know np.logaddexp only as it is."""
    known = torch.ops.aten.logaddexp.default
    return {operation: composed for operation, composed in core_aten_decompositions().items() if operation != known}


# ----- Operations of ATen
#
# The operations of ATen that an operator may consist of, on arrays of numbers (`gpuscan.operators.components`).


# Operations that work number by number, and the function of numbers that does the same.
ELEMENTWISE: dict[str, Callable[..., object]] = {
    **COMMON,
    **of_numpy(
        "maximum minimum fmax fmin fmod remainder log2 log10 logaddexp hypot trunc isnan isinf logical_and "
        "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor"
    ),
    "pow": lambda x, y: x**y,
    "reciprocal": lambda x: 1 / x,
    "sigmoid": logistic,
    "relu": lambda x: np.maximum(x, 0),
    "bitwise_not": np.invert,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "where": select,
    "_conj": np.conj,
    "_conj_physical": np.conj,
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh_copy", "contiguous", "resolve_conj"), lambda x, **_: x),
}
# Operations that combine numbers along axes.
FOLDS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "amax": np.maximum,
    "amin": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def fold(function: np.ufunc, x: Numbers, dim: Axes = None, keepdim: bool = False, **_: object) -> Numbers:
    axes = range(x.ndim) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    if not x.ndim:
        return x
    folded = fold_axes(function, x, axes)
    return np.expand_dims(folded, tuple(axis % x.ndim for axis in axes)) if keepdim else folded


def mean(x: Numbers, dim: Axes = None, keepdim: bool = False, **_: object) -> Numbers:
    total = fold(np.add, x, dim, keepdim)
    count = x.size // max(1, total.size)
    return apply(lambda number: number / count, total)


def add(x: object, y: object, *, alpha: object = 1) -> Numbers:
    return apply(lambda one, other: one + (other if alpha == 1 else other * alpha), x, y)


def subtract(x: object, y: object, *, alpha: object = 1) -> Numbers:
    return apply(lambda one, other: one - (other if alpha == 1 else other * alpha), x, y)


def divide(x: object, y: object, *, rounding_mode: str | None = None) -> Numbers:
    functions: dict[str | None, Callable[..., object]] = {
        None: np.divide,
        "floor": np.floor_divide,
        "trunc": lambda x, y: np.trunc(x / y),
    }
    return apply(functions[rounding_mode], x, y)


def clamp(x: Numbers, low: object = None, high: object = None) -> Numbers:
    if low is not None:
        x = apply(np.maximum, x, low)
    return x if high is None else apply(np.minimum, x, high)


def slice_axis(x: Numbers, dim: int = 0, start: object = None, end: object = None, step: int = 1) -> Numbers:
    return x[(*[slice(None)] * (dim % x.ndim), slice(start, end, step))]


def squeeze(x: Numbers, dim: Axes = None) -> Numbers:
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    squeezed = {axis % x.ndim for axis in axes}
    return x.reshape([length for axis, length in enumerate(x.shape) if axis not in squeezed or length != 1])


def expand(x: Numbers, sizes: Sequence[int], **_: object) -> Numbers:
    lead = len(sizes) - x.ndim
    shape = [x.shape[i - lead] if size == -1 else size for i, size in enumerate(sizes)]
    return np.broadcast_to(x, tuple(shape))


def split(x: Numbers, sizes: int | Sequence[int], dim: int = 0) -> list[Numbers]:
    length = x.shape[dim]
    boundaries = list(range(sizes, length, sizes)) if isinstance(sizes, int) else np.cumsum(sizes)[:-1].tolist()
    return np.split(x, boundaries, dim)


def matrix_product(x: Numbers, y: Numbers) -> Numbers:
    return contract_axes(x, y, ([1], [0]), ([], []))


# ----- Small matrices. Where torch also returns pivots and whether it failed, these return the same.


def lu_and_info(x: Numbers) -> list[Numbers]:
    """Return the factors, the pivots, which count from 1, and that nothing failed."""

    def factor(rows: Rows) -> tuple[Rows, list[int]]:
        swaps = factor_lu(rows, len(rows[0]))
        return rows, [pivot + 1 for pivot in swaps]

    return [*over_matrices(factor, x), success(x)]


def success(x: Numbers) -> Numbers:
    return constants_of(np.zeros(x.shape[:-2], np.int32))


def transpose_matrix(x: Numbers, conjugate: bool = False) -> Numbers:
    x = np.swapaxes(x, -1, -2)
    return apply(np.conj, x) if conjugate else x


def solve(a: Numbers, b: Numbers, *, left: bool = True, check_errors: bool = False) -> list[Numbers]:
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    one, other = (a, b[..., None] if is_vector else b) if left else (transpose_matrix(a), transpose_matrix(b))
    (x,) = over_matrices(lambda a, b: [solve_system(a, b)], one, other)
    x = x if left else transpose_matrix(x)
    return [x[..., 0] if is_vector else x, *lu_and_info(a)]


def inverse(x: Numbers, *, check_errors: bool = False) -> list[Numbers]:
    return [*over_matrices(lambda rows: [solve_system(rows, unit_matrix(rows))], x), success(x)]


def det(x: Numbers) -> list[Numbers]:
    return [*over_matrices(lambda rows: [determinant(rows)], x), *lu_and_info(x)[:2]]


def slogdet(x: Numbers) -> list[Numbers]:
    def compute(rows: Rows) -> tuple[object, object]:
        sign = sign_of_swaps(factor_lu(rows, len(rows)), np.ones_like(rows[0][0]))
        logarithm = np.zeros_like(np.abs(sign))
        for diagonal, row in enumerate(rows):
            size = np.abs(row[diagonal])
            sign, logarithm = sign * (row[diagonal] / size), logarithm + np.log(size)
        return sign, logarithm

    return [*over_matrices(compute, x), *lu_and_info(x)[:2]]


def cholesky(x: Numbers, *, upper: bool = False, check_errors: bool = False) -> list[Numbers]:
    (factor,) = over_matrices(lambda rows: [factor_cholesky(rows)], transpose_matrix(x, True) if upper else x)
    return [transpose_matrix(factor, True) if upper else factor, success(x)]


def triangular_solve(a: Numbers, b: Numbers, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Numbers:
    one, other, lower = (a, b, not upper) if left else (transpose_matrix(a), transpose_matrix(b), upper)
    (x,) = over_matrices(lambda a, b: [solve_triangular(a, b, lower=lower, unit=unitriangular)], one, other)
    return x if left else transpose_matrix(x)


def cholesky_solve(b: Numbers, factor: Numbers, upper: bool = False) -> Numbers:
    lower = transpose_matrix(factor, True) if upper else factor
    return triangular_solve(transpose_matrix(lower, True), triangular_solve(lower, b, upper=False), upper=True)


def cholesky_inverse(factor: Numbers, upper: bool = False) -> Numbers:
    (unit,) = over_matrices(lambda rows: [unit_matrix(rows)], factor)
    return cholesky_solve(unit, factor, upper)


# Operations with parameters.
OTHERS: dict[str, Callable[..., object]] = {
    "add": add,
    "sub": subtract,
    "rsub": lambda x, y, alpha=1: subtract(y, x, alpha=alpha),
    "div": divide,
    "clamp": clamp,
    "clamp_min": lambda x, low: clamp(x, low),
    "clamp_max": lambda x, high: clamp(x, None, high),
    "mean": mean,
    "mm": matrix_product,
    "bmm": lambda x, y: contract_axes(x, y, ([2], [1]), ([0], [0])),
    "mv": matrix_product,
    "dot": lambda x, y: contract_axes(x, y, ([0], [0]), ([], [])),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), lambda x, sizes: x.reshape(sizes)),
    "expand": expand,
    "permute": lambda x, dims: x.transpose(dims),
    "transpose": lambda x, one, other: np.swapaxes(x, one, other),
    "t": lambda x: x.T,
    "unsqueeze": lambda x, dim: np.expand_dims(x, dim),
    # torch itself uses the second one, on a tensor that it has just made.
    **dict.fromkeys(("squeeze", "squeeze_"), squeeze),
    "slice": slice_axis,
    "select": lambda x, dim, index: x[(*[slice(None)] * (dim % x.ndim), index, ...)],
    "cat": lambda arrays, dim=0: np.concatenate(arrays, dim),
    "stack": lambda arrays, dim=0: np.stack(arrays, dim),
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    **dict.fromkeys(("split", "split_with_sizes"), split),
    "unbind": lambda x, dim=0: [np.squeeze(part, dim) for part in np.split(x, x.shape[dim], dim)],
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.diagonal(offset, dim1, dim2),
    **{name: partial(fold, function) for name, function in FOLDS.items()},
    "_linalg_solve_ex": solve,
    "linalg_inv_ex": inverse,
    "_linalg_det": det,
    "_linalg_slogdet": slogdet,
    "linalg_lu_factor_ex": lambda x, pivot=True, check_errors=False: lu_and_info(x),
    "linalg_cholesky_ex": cholesky,
    "linalg_solve_triangular": triangular_solve,
    "cholesky_solve": cholesky_solve,
    "cholesky_inverse": cholesky_inverse,
    "_linalg_check_errors": lambda *_, **__: None,
}


def to_dtype(x: Numbers, dtype: AnyDType) -> Numbers:
    return apply(partial(convert_number, dtype=dtype), x)


# Operations on constants alone are computed by torch; these make constants, or arrays like another one.
FULL = {"full_like": None, "ones_like": 1, "zeros_like": 0}
NAMES = sorted({*ELEMENTWISE, *OTHERS, *FULL})
