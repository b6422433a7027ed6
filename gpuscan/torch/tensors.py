"""Tensors as NumPy arrays and back. Tensors of the CPU share their memory; others are copied to the host."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.problem.arguments import as_integer

# The arguments that are optional.
_OPTIONAL = frozenset({"initial", "initial_state", "D", "z", "delta_bias", "dt_bias"})


def array_of(tensor: Tensor) -> AnyArray:
    """Return the tensor's memory as an array; a copy of it if the tensor is not on the CPU.

    Raises:
        UnsupportedDtypeError: NumPy has no such dtype.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.device.type != "cpu":
        _warn_once(tensor.device.type)
        tensor = tensor.cpu()
    # NumPy has no bfloat16, so torch passes its bits as integers.
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        bits: AnyArray = tensor.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    try:
        array: AnyArray = tensor.numpy()
    except TypeError:
        if tensor.layout != torch.strided:
            raise
        raise UnsupportedDtypeError(
            f"a tensor of {tensor.dtype} was passed, which gpuscan cannot combine. Pass x.to(torch.float32)"
        ) from None
    return array


def numpy_dtype(dtype: object) -> AnyDType:
    """Return NumPy's dtype for a torch dtype. Make no tensor for it: inside `torch.func` a new tensor is wrapped."""
    if dtype == torch.bfloat16:
        import ml_dtypes

        bfloat16: AnyDType = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(str(dtype).removeprefix("torch."))


def torch_dtype(dtype: AnyDType) -> torch.dtype:
    """Return torch's dtype of a NumPy dtype."""
    if dtype.name == "bfloat16":
        return torch.bfloat16
    return torch.from_numpy(np.empty(0, dtype)).dtype


def tensor_of(array: object, like: Tensor) -> Tensor:
    """Return the array's memory as a tensor of the dtype of `like`, on its device."""
    # np.ascontiguousarray would give a number an axis.
    array = np.asarray(array, order="C")
    if not array.flags.writeable:
        array = array.copy()
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(like.device)
    return torch.from_numpy(array).to(like.device)


@cache
def _warn_once(device: str) -> None:
    warnings.warn(
        f"a tensor on {device!r} was passed to gpuscan, which copies it to the host and back. Pass tensors of the "
        "CPU to avoid that",
        RuntimeWarning,
        stacklevel=2,
    )


def check_tensors(tensors: Mapping[str, Tensor], *, same_dtype: bool = True) -> None:
    """Raise an error unless these are tensors of one device and, if asked for, of one dtype.

    Optional arguments may be None.

    Raises:
        TypeError: an argument is not a tensor, or the dtypes differ.
        ValueError: the devices differ.
    """
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None or name not in _OPTIONAL}
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor):
            advice = f"torch.as_tensor({name})" if name.isidentifier() else "a tensor or a bundle of tensors"
            raise TypeError(f"{name} of type {type(tensor).__name__} was passed; pass {advice}")
    first, like = next(iter(given.items()))
    for name, tensor in given.items():
        if tensor.device != like.device:
            raise ValueError(
                f"{name} on the device {tensor.device} and {first} on {like.device} were passed, but all must be on "
                f"one device. Pass {name}.to({str(like.device)!r})"
            )
        if same_dtype and tensor.dtype != like.dtype:
            raise TypeError(
                f"{name} of dtype {tensor.dtype} and {first} of dtype {like.dtype} were passed, but all must agree. "
                f"Pass {name}.to({like.dtype})"
            )


def check_dim(name: str, dim: object, shape: Sequence[int]) -> int:
    """Return the axis counted from 0.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of range.
    """
    if (index := as_integer(dim)) is None:
        raise TypeError(f"{name}={dim!r} was passed, but an axis is an integer; pass {name}=0")
    if not -len(shape) <= index < len(shape):
        raise ValueError(
            f"{name}={index} was passed for a tensor of shape {tuple(shape)}, which has no such axis; pass an axis of "
            "every tensor, such as -1"
        )
    return index % len(shape)
