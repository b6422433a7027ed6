"""Compare gpuscan with NumPy, PyTorch and CuPy. The table names the libraries that are missing.

A library is imported when a contender loads the inputs, never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.array_types import AnyDType
from gpuscan.tools.bench.cases import SORT, Inputs, ScanCase
from gpuscan.tools.bench.contenders import Contender, Sampler, Subject, Unsupported
from gpuscan.tools.bench.timing import WALL, measure_median, wall_seconds

if TYPE_CHECKING:
    from torch import Tensor

Event = TypeVar("Event")

CUDA_EVENTS = "CUDA events"

# The number and the bytes of the copies that keep the GPU busy while the timed calls are queued.
HOLDS = 8
HOLD_BYTES = 256 << 20

# PyTorch scans no unsigned integers wider than 8 bits. For wrapping sums, signed ones have the same bits.
SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}

TORCH_FUNCTIONS = {
    "add": "cumsum",
    "multiply": "cumprod",
    "maximum": "cummax",
    "minimum": "cummin",
    "logaddexp": "logcumsumexp",
    SORT: SORT,
}
TORCH_WRAPS = ("add", "multiply")
CUPY_FUNCTIONS = {"add": "cumsum", "multiply": "cumprod", SORT: SORT}


def peer_contenders(names: Sequence[str], case: ScanCase) -> list[Contender]:
    """Return the contenders of these libraries for the case."""
    return [contender for name in names for contender in PEERS[name](case)]


# ----- Parts that libraries share


def need(module: str) -> ModuleType:
    """Import a module and return it.

    Raises:
        Unsupported: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Unsupported(f"{error.name} is not installed") from error


def only(condition: bool, reason: str) -> None:
    """Raise Unsupported with the reason unless the condition holds."""
    if not condition:
        raise Unsupported(reason)


def wrap_call(run: Callable[[], object], sample: Sampler, note: str, close: Callable[[], object]) -> Subject:
    """Return the subject of a function that returns when its work is done."""
    return Subject(lambda: wall_seconds(run), sample, WALL, note, close)


def time_queued(
    run: Callable[[], object],
    hold: Callable[[], object],
    record: Callable[[], Event],
    elapsed: Callable[[Event, Event], float],
    wait: Callable[[], object],
) -> float:
    """Return the median time of a function that queues work on a CUDA stream.

    Copies keep the GPU busy while the calls are queued, so that no call waits for Python.

    Args:
        run: the function.
        hold: queues a copy of `HOLD_BYTES`.
        record: makes an event and records it.
        elapsed: returns the milliseconds between two events.
        wait: waits until the stream is empty.
    """

    def batch(count: int) -> list[float]:
        for _ in range(HOLDS):
            hold()
        events = []
        for _ in range(count):
            begin = record()
            run()
            events.append((begin, record()))
        wait()
        return [float(elapsed(begin, end)) * 1e-3 for begin, end in events]

    return measure_median(batch)


# ----- NumPy


def numpy_contenders(case: ScanCase) -> list[Contender]:
    if case.op != SORT and (case.fields > 1 or case.element_shape):
        return []
    name = SORT if case.op == SORT else f"{case.operator.name}.accumulate"
    return [Contender("numpy", name, partial(_numpy_subject, case))]


def _numpy_subject(case: ScanCase, inputs: Inputs) -> Subject:
    (array,) = inputs.arrays
    result = np.empty_like(array)

    def run() -> None:
        if case.op == SORT:
            result[:] = np.sort(array, axis=1, kind="stable")
        else:
            getattr(np, case.operator.name).accumulate(array, axis=1, dtype=array.dtype, out=result)

    return wrap_call(run, lambda at: [result.reshape(-1)[at]], f"NumPy {np.__version__}", lambda: None)


# ----- PyTorch


def torch_contenders(case: ScanCase) -> list[Contender]:
    if case.op not in TORCH_FUNCTIONS:
        return []
    return [Contender("torch", TORCH_FUNCTIONS[case.op], partial(_torch_subject, case))]


def _torch_subject(case: ScanCase, inputs: Inputs) -> Subject:
    torch = need("torch")
    (array,) = inputs.arrays
    name = TORCH_FUNCTIONS[case.op]
    if case.dtype.name in SIGNED:
        only(case.op in TORCH_WRAPS, f"PyTorch has no {name} of {case.dtype}")
        array = array.view(np.dtype(SIGNED[case.dtype.name]))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = [to_torch(array, device)]
    options = {"stable": True} if case.op == SORT else {}
    if case.op in TORCH_WRAPS:
        options["dtype"] = tensors[0].dtype

    def run() -> None:
        result = getattr(torch, name)(tensors[0], dim=1, **options)
        tensors[1:] = [result.values if case.op in ("maximum", "minimum", SORT) else result]

    return torch_subject(run, torch_sampler(lambda: tensors[1:], case.dtype), tensors.clear, device)


def to_torch(array: Array, device: str) -> Tensor:
    """Copy an array to a tensor on the device.

    Raises:
        Unsupported: PyTorch has no such dtype.
    """
    torch = need("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    try:
        return torch.from_numpy(array).to(device)
    except TypeError as error:
        raise Unsupported(f"PyTorch has no {array.dtype}") from error


def torch_sampler(results: Callable[[], Sequence[Tensor]], dtype: AnyDType) -> Sampler:
    """Return a function that picks elements of tensors in memory order, as NumPy arrays of `dtype`."""
    torch = need("torch")

    def sample(at: Array) -> list[Array]:
        samples = []
        for result in results():
            values = result.detach().reshape(-1)[torch.from_numpy(at).to(result.device)].cpu()
            values = values.view(torch.int16) if values.dtype == torch.bfloat16 else values
            samples.append(values.numpy().view(dtype))
        return samples

    return sample


def torch_subject(run: Callable[[], object], sample: Sampler, close: Callable[[], object], device: str) -> Subject:
    """Return a subject on a device, timed by events on CUDA and by the wall clock elsewhere."""
    torch = need("torch")
    note = f"PyTorch {torch.__version__}"
    if device == "cpu":
        return wrap_call(run, sample, f"{note}, CPU", close)
    buffers = [torch.empty(HOLD_BYTES, dtype=torch.uint8, device=device) for _ in range(2)]

    def record() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds() -> float:
        wait = torch.cuda.synchronize
        return time_queued(run, lambda: buffers[0].copy_(buffers[1]), record, lambda a, b: a.elapsed_time(b), wait)

    def release() -> None:
        buffers.clear()
        close()
        torch.cuda.empty_cache()

    return Subject(seconds, sample, CUDA_EVENTS, note, release)


# ----- CuPy


def cupy_contenders(case: ScanCase) -> list[Contender]:
    if case.op not in CUPY_FUNCTIONS:
        return []
    return [Contender("cupy", CUPY_FUNCTIONS[case.op], partial(_cupy_subject, case))]


def _cupy_subject(case: ScanCase, inputs: Inputs) -> Subject:
    cupy = need("cupy")
    only(cupy.cuda.is_available(), "no CUDA device")
    only(case.dtype.name != "bfloat16", "CuPy has no bfloat16")
    function = getattr(cupy, CUPY_FUNCTIONS[case.op])
    arrays = [cupy.asarray(inputs.arrays[0])]
    buffers = list(cupy.empty((2, HOLD_BYTES), np.uint8))

    def run() -> None:
        if case.op == SORT:
            arrays[1:] = [function(arrays[0], axis=1)]
        else:
            arrays[1:] = [function(arrays[0], axis=1, dtype=case.dtype, out=arrays[1] if arrays[1:] else None)]

    def record() -> Any:
        event = cupy.cuda.Event()
        event.record()
        return event

    def seconds() -> float:
        wait = cupy.cuda.get_current_stream().synchronize
        return time_queued(run, lambda: cupy.copyto(buffers[0], buffers[1]), record, cupy.cuda.get_elapsed_time, wait)

    def close() -> None:
        arrays.clear()
        buffers.clear()
        cupy.get_default_memory_pool().free_all_blocks()

    def sample(at: Array) -> list[Array]:
        return [cupy.asnumpy(arrays[1].reshape(-1)[cupy.asarray(at)])]

    return Subject(seconds, sample, CUDA_EVENTS, f"CuPy {cupy.__version__}", close)


# ----- Calls from Python: what each library is asked to do, and a function that returns when it is done

Call = tuple[str, Callable[[], object]]


def numpy_calls(size: int) -> Iterator[Call]:
    x = np.ones(size, np.float32)
    into = np.empty_like(x)
    yield "cumsum(x, out=…)", lambda: np.cumsum(x, out=into)


def torch_calls(size: int) -> Iterator[Call]:
    torch = need("torch")
    only(torch.cuda.is_available(), "PyTorch sees no CUDA device")
    a = torch.ones(size, device="cuda")
    o, host = torch.empty_like(a), torch.ones(size)

    def run_and_wait(times: int) -> None:
        for _ in range(times):
            torch.cumsum(a, 0, out=o)
        torch.cuda.synchronize()

    yield "cumsum(a, out=o), synchronize()", lambda: run_and_wait(1)
    yield "10 cumsum(a, out=o), synchronize()", lambda: run_and_wait(10)
    yield "sum().item()", lambda: a.sum().item()
    yield "cumsum(host.cuda()).cpu()", lambda: torch.cumsum(host.cuda(), 0).cpu()


def cupy_calls(size: int) -> Iterator[Call]:
    cupy = need("cupy")
    only(cupy.cuda.is_available(), "CuPy sees no CUDA device")
    a = cupy.ones(size, np.float32)
    o, host = cupy.empty_like(a), np.ones(size, np.float32)

    def run_and_wait(times: int) -> None:
        for _ in range(times):
            cupy.cumsum(a, out=o)
        cupy.cuda.get_current_stream().synchronize()

    yield "cumsum(a, out=o), synchronize()", lambda: run_and_wait(1)
    yield "10 cumsum(a, out=o), synchronize()", lambda: run_and_wait(10)
    yield "sum().get()", lambda: a.sum().get()
    yield "cumsum(asarray(host)).get()", lambda: cupy.cumsum(cupy.asarray(host)).get()


# The contenders and the calls of each library, by its name on the command line.
PEERS: Mapping[str, Callable[[ScanCase], list[Contender]]] = {
    "cupy": cupy_contenders,
    "torch": torch_contenders,
    "numpy": numpy_contenders,
}
CALLS: dict[str, Callable[[int], Iterator[Call]]] = {"torch": torch_calls, "cupy": cupy_calls, "numpy": numpy_calls}
