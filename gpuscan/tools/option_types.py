"""The types of the options and arguments: each parses one value of a command line, or says what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import gpuscan
from gpuscan import Device
from gpuscan.api.call_device import resolve_devices
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.adapters import NUMPY, best_adapters
from gpuscan.elements import BFLOAT16_NAME, SCALARS, scalar_of
from gpuscan.errors import AdapterNotFoundError
from gpuscan.operators.named_operators import BUILTINS, resolve
from gpuscan.tools.array_file import read_array
from gpuscan.tools.output import STDOUT

# Arrays of this many elements, or more, are refused: 2 to this power.
MAX_LENGTH_BITS = 40

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]  # older versions of click cannot be subscripted at run time
else:
    ParamType = click.ParamType

Context = click.Context | None
Parameter = click.Parameter | None


class OperatorType(ParamType):
    """The name of an operator.

    Args:
        extra: names to accept as well.
    """

    name = "operator"

    def __init__(self, extra: Collection[str] = ()) -> None:
        self.extra = extra

    def convert(self, value: object, param: Parameter, ctx: Context) -> str:
        if value not in self.extra:
            try:
                resolve(value)
            except ValueError:
                self.fail(f"{value!r} is not an operator; choose {', '.join((*BUILTINS, *self.extra))}.", param, ctx)
        return str(value)


class DtypeType(ParamType):
    """An element type, as NumPy spells it."""

    name = "dtype"

    def convert(self, value: Any, param: Parameter, ctx: Context) -> AnyDType:
        if isinstance(value, np.dtype):
            return value
        if value == "bfloat16":
            try:
                import ml_dtypes  # noqa: F401 (makes NumPy know the name)
            except ImportError:
                self.fail("bfloat16 needs the package ml_dtypes. Install it with: pip install ml_dtypes.", param, ctx)
        try:
            dtype: AnyDType = np.dtype(value)
            scalar_of(dtype)
        except (TypeError, ValueError, SyntaxError):  # NumPy raises any of these for an odd name
            self.fail(f"{value!r} is not an element type; choose {', '.join(SCALARS)}.", param, ctx)
        return dtype


class DeviceType(ParamType):
    """A device: a part of an adapter's name, its number in ``gpuscan probe``, or NumPy.

    Args:
        numpy: True if the command also runs without a GPU.
    """

    name = "device"

    def __init__(self, numpy: bool) -> None:
        self.numpy = numpy

    def convert(self, value: object, param: Parameter, ctx: Context) -> Device | str:
        if isinstance(value, Device):
            return value
        name = str(value).strip()
        if name.casefold() == NUMPY:
            if not self.numpy:
                self.fail("this command needs a GPU adapter, and NumPy uses none. Name an adapter.", param, ctx)
            return NUMPY
        try:
            return Device(name)
        except AdapterNotFoundError as error:
            self.fail(str(error), param, ctx)


class ArrayFileType(ParamType):
    """An array in a .npy file."""

    name = "file"

    def convert(self, value: Any, param: Parameter, ctx: Context) -> AnyArray:
        if isinstance(value, np.ndarray):
            return value
        path = Path(value)
        if not path.is_file():
            self.fail(f"there is no file {value}. Name a .npy file.", param, ctx)
        return read_array(path, param.get_error_hint(ctx) if param is not None and ctx is not None else "")


class InitialType(ArrayFileType):
    """A number, or an array in a .npy file."""

    name = "number"

    def convert(self, value: object, param: Parameter, ctx: Context) -> Any:
        if not isinstance(value, str):
            return value
        if value.lower().endswith(".npy"):
            return super().convert(value, param, ctx)
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        for number in (int, float, complex):
            with suppress(ValueError):
                return number(value)
        self.fail(f"{value!r} is neither a number nor a .npy file. Write one such as 1, 0.5, 1+2j or true.", param, ctx)


class DevicesType(ParamType):
    """Several devices: ``all`` of the best kind, or numbers in ``gpuscan probe``, separated by commas."""

    name = "devices"

    def convert(self, value: Any, param: Parameter, ctx: Context) -> list[Device]:
        if not isinstance(value, str):
            return list(value)
        try:
            return resolve_devices(list(range(best_adapters())) if value == "all" else value.split(","), "devices")
        except (AdapterNotFoundError, ValueError) as error:
            self.fail(str(error), param, ctx)


class CountType(ParamType):
    """A number of elements, such as 100000 or 2^20."""

    name = "count"

    def convert(self, value: object, param: Parameter, ctx: Context) -> int:
        base, power, exponent = str(value).partition("^")
        count = 0
        with suppress(ValueError):
            number, times = int(base), int(exponent) if power else 1
            if number > 0 and times >= 0:
                # The exponent is capped, so that 10^100000000 costs no time. Every base but 1 is too large by then.
                count = number ** min(times, MAX_LENGTH_BITS)
        if count <= 0:
            self.fail(f"{value!r} is not a number of elements. Write one such as 100000 or 2^20.", param, ctx)
        if count >= 1 << MAX_LENGTH_BITS:
            self.fail(f"{value} elements are too many. The largest size is 2^{MAX_LENGTH_BITS} - 1.", param, ctx)
        return count


class ListType(ParamType):
    """Values separated by commas.

    Args:
        item: the type of one value.
        all_of: what the value ``all`` stands for, if anything.
    """

    name = "list"

    def __init__(self, item: ParamType, all_of: Collection[str] = ()) -> None:
        self.item = item
        self.all_of = all_of

    def convert(self, value: Any, param: Parameter, ctx: Context) -> list[Any]:
        if not isinstance(value, str):
            return list(value)
        if value == "all" and self.all_of:
            return list(self.all_of)
        return [self.item.convert(part, param, ctx) for part in value.split(",") if part]


class TargetType(click.Path):
    """A file to write: a regular one, or none yet, in a writable folder.

    Args:
        suffix: how its name has to end, if that matters.
        allow_dash: accept ``-``, which stands for standard output.
        allow_folder: accept a folder that is there, in which the command chooses a name.
    """

    def __init__(self, suffix: str = "", allow_dash: bool = False, allow_folder: bool = False) -> None:
        super().__init__(dir_okay=allow_folder, allow_dash=allow_dash, path_type=Path)
        self.suffix = suffix
        self.allow_folder = allow_folder

    def convert(self, value: object, param: Parameter, ctx: Context) -> Path:
        """Return the path with links resolved, so that a link's target is replaced and not the link; or `STDOUT`."""
        try:
            return self._check_target(value, param, ctx)
        except PermissionError:  # of a folder above it, which this user may not look into
            self.fail(f"{value} cannot be reached by this user. Name a file in another folder.", param, ctx)

    def _check_target(self, value: Any, param: Parameter, ctx: Context) -> Path:
        given = Path(os.fsdecode(super().convert(value, param, ctx)))
        if value == "-":
            if not self.allow_dash:
                self.fail("an array cannot be written to standard output. Name a .npy file.", param, ctx)
            return STDOUT
        if self.allow_folder and given.is_dir() and os.access(given, os.W_OK | os.X_OK):
            return given.resolve()
        if given.exists() and not given.is_file():
            self.fail(f"{given} is not a regular file, and writing would replace it. Name another.", param, ctx)
        path = given.resolve()
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}. Make it first.", param, ctx)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            self.fail(f"the folder {path.parent} cannot be written. Name another.", param, ctx)
        if self.suffix and path.suffix.lower() != self.suffix:
            self.fail(f"{given} does not end in {self.suffix}, the only format that is written.", param, ctx)
        return path


class FolderType(click.Path):
    """A folder to write into. It is made later if it does not exist."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: Parameter, ctx: Context) -> Path:
        folder = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            lowest = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
        except PermissionError:
            self.fail(f"{value} cannot be reached by this user. Name another folder.", param, ctx)
        if not lowest.is_dir():
            self.fail(f"{lowest} is not a folder. Name another.", param, ctx)
        return folder


def gpu_device(device: Device | str | None) -> Device:
    """Return the device that a command for GPUs runs on: the one asked for, else the default one."""
    return device if isinstance(device, Device) else gpuscan.default_device()


def has_file_dtype(name: str) -> bool:
    """Return True if a .npy file can hold the dtype of this name. It holds bfloat16 as bytes without a type."""
    return name != BFLOAT16_NAME


def check_file_dtype(dtype: AnyDType | None) -> None:
    """Raise BadParameter if a .npy file cannot hold the dtype."""
    if dtype is not None and not has_file_dtype(dtype.name):
        raise click.BadParameter(f".npy files cannot hold {dtype}. Write float32.", param_hint="'--dtype'")
