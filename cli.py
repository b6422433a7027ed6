"""The command line: parse, call gpuscan, print. Errors are one line on standard error; exit 0, 1 or 2."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuscan._version import __version__
from gpuscan.strategies import STRATEGIES

if TYPE_CHECKING:
    import numpy as np
    from rich.console import RenderableType

    from gpuscan import Device
    from gpuscan.capabilities import Capabilities

WORK_FAILED, USAGE_WRONG, INTERRUPTED = 1, 2, 130


# ----- Options


def _operator(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from gpuscan.operators import resolve

    try:
        resolve(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _dtype(context: click.Context, parameter: click.Parameter, value: str | None) -> np.dtype[Any] | None:
    if value is None:
        return None
    import numpy as np

    from gpuscan.elements import scalar_of

    if value == "bfloat16":
        with suppress(ImportError):
            import ml_dtypes  # noqa: F401 (tells NumPy of the name)
    try:
        dtype = np.dtype(value)
        scalar_of(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise click.BadParameter(str(error)) from error
    return dtype


def _device(context: click.Context, parameter: click.Parameter, value: str | None) -> Device | str | None:
    """A device by its number or a part of its name; ``numpy`` and None stay as they are."""
    if value is None or value == "numpy":
        return value
    from gpuscan import AdapterNotFoundError, Device

    try:
        return Device(int(value) if value.isdecimal() else value)
    except AdapterNotFoundError as error:
        raise click.BadParameter(str(error)) from error


_op_option = click.option("--op", default="add", show_default=True, callback=_operator, help="The operator's name.")
_device_option = click.option(
    "--device", callback=_device, help="A part of an adapter's name, its number in `gpuscan probe`, or numpy."
)
_strategy_option = click.option(
    "--strategy", type=click.Choice(["auto", *STRATEGIES]), default="auto", show_default=True, help="How tiles meet."
)


# ----- Commands


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuscan")
def commands() -> None:
    """Parallel prefix scans on any GPU, through WebGPU."""


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="The same as data.")
def probe(as_json: bool) -> None:
    """Show every adapter: what it has, what it was seen to do, and the strategy for it."""
    import gpuscan

    found = gpuscan.devices()
    if as_json:
        click.echo(json.dumps([_report(device) for device in found], indent=2))
    elif not found:
        click.echo("No GPU adapter found: gpuscan runs on NumPy. Install a driver, such as mesa-vulkan-drivers.")
    else:
        from rich.console import Console, Group

        Console(highlight=False).print(Group(*(_panel(index, device) for index, device in enumerate(found))))


@commands.command()
@click.argument("source", metavar="IN.npy", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", metavar="OUT.npy", type=click.Path(dir_okay=False, path_type=Path))
@_op_option
@click.option("--axis", type=int, help="The axis to scan along; needed unless there is only one.")
@click.option("--exclusive", is_flag=True, help="Leave each element out of its own result.")
@click.option("--reverse", is_flag=True, help="Scan from the end.")
@click.option("--dtype", callback=_dtype, help="What to combine in and write; else the input's.")
@_device_option
@_strategy_option
def scan(
    source: Path,
    target: Path,
    op: str,
    axis: int | None,
    exclusive: bool,
    reverse: bool,
    dtype: np.dtype[Any] | None,
    device: Device | str | None,
    strategy: str,
) -> None:
    """Scan the array in IN.npy and write the result to OUT.npy, which may be the same file."""
    import gpuscan

    target = target.resolve()  # through a link: the file is replaced, not the link
    if target.exists() and not target.is_file():
        raise click.BadParameter(f"{target} is not a regular file", param_hint="'OUT.npy'")
    if not target.parent.is_dir():
        raise click.BadParameter(f"there is no folder {target.parent}", param_hint="'OUT.npy'")
    if dtype is not None and dtype.kind == "V":
        raise click.BadParameter(f".npy files cannot hold {dtype}; write float32", param_hint="'--dtype'")
    array = _read(source)
    try:
        result = gpuscan.scan(
            array, op, axis=axis, exclusive=exclusive, reverse=reverse, dtype=dtype, device=device, strategy=strategy
        )
    except gpuscan.GpuscanError:
        raise
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error  # the options do not go with this array
    del array
    _write(target, result)


@commands.command()
@_op_option
@click.option("--dtype", default="float32", show_default=True, callback=_dtype, help="The element type.")
@click.option("--length", type=click.IntRange(min=1), default=1 << 20, show_default=True, help="Elements to scan.")
@_device_option
@_strategy_option
def shader(op: str, dtype: np.dtype[Any], length: int, device: Device | str | None, strategy: str) -> None:
    """Print the WGSL that a scan would run, stage by stage."""
    import gpuscan

    if device == "numpy":
        raise click.BadParameter("NumPy runs no shaders", param_hint="'--device'")
    chosen = device if isinstance(device, gpuscan.Device) else gpuscan.default_device()
    plan = chosen.plan((length,), dtype, op, strategy=strategy)
    click.echo(
        "\n".join(f"// ===== {stage} ({plan.strategy}, {op}, {dtype})\n\n{text}" for stage, text in plan.wgsl.items())
    )


# ----- Files


def _read(path: Path) -> np.ndarray[Any, Any]:
    """The array, mapped where it lies; pickled objects are refused."""
    import numpy as np

    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged header makes NumPy raise nearly anything: SyntaxError, OverflowError, …
        raise click.ClickException(f"{path} is not an array that can be read: {error}") from error


def _write(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write beside the file and rename: it is there whole or not at all."""
    import numpy as np

    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "xb") as file:
            np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        os.replace(partial, path)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


# ----- What `probe` shows


def _element_types(capabilities: Capabilities) -> list[str]:
    from gpuscan.elements import SCALARS

    return [name for name in SCALARS if name != "float64" or capabilities.float64]


def _report(device: Device) -> dict[str, Any]:
    from gpuscan.strategies import choose_strategy

    capabilities = device.capabilities
    choice = choose_strategy(capabilities)
    return capabilities.to_json() | {
        "strategy": choice.strategy,
        "reason": choice.reason,
        "element_types": _element_types(capabilities),
    }


def _panel(index: int, device: Device) -> RenderableType:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from gpuscan.strategies import choose_strategy

    capabilities = device.capabilities
    choice = choose_strategy(capabilities)
    rows = {
        "driver": f"{capabilities.driver or 'unknown'} ({capabilities.vendor})",
        "backend": f"{capabilities.backend}, {capabilities.adapter_type}, {capabilities.implementation}",
        "subgroups": _subgroups(capabilities),
        "progress": _progress(capabilities),
        "strategy": f"{choice.strategy}: {choice.reason}",
        "elements": ", ".join(_element_types(capabilities)),
        "64 bits": "native integers" if capabilities.native_int64 else "integers in two 32-bit words",
        "limits": _limits(capabilities),
        "timing": f"timestamps {'work' if capabilities.timestamps else 'do not work'}, "
        f"{capabilities.spins_per_second / 1e6:.1f} million polls a second",
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return Panel(table, title=Text(f"{index}: {capabilities.name}", "bold"), title_align="left")


def _subgroups(capabilities: Capabilities) -> str:
    if not capabilities.subgroup_sizes:
        return "none: workgroup memory instead"
    sizes = " or ".join(map(str, capabilities.subgroup_sizes))
    order = "in order" if capabilities.lanes_in_order else "not in order"
    return f"{sizes} lanes, {order}" + ("" if capabilities.subgroup_size else ": not used")


def _progress(capabilities: Capabilities) -> str:
    earlier = "make progress" if capabilities.progress_earlier else "can stall"
    later = "start" if capabilities.progress_later else "do not all start"
    return (
        f"started workgroups {earlier} while others wait; later workgroups {later} "
        f"({capabilities.started_while_spinning} of {capabilities.litmus_workgroups})"
    )


def _limits(capabilities: Capabilities) -> str:
    limits = capabilities.limits
    return (
        f"{_size(limits['max-buffer-size'])} a buffer, {_size(limits['max-storage-buffer-binding-size'])} a binding, "
        f"{limits['max-storage-buffers-per-shader-stage']} storage buffers, "
        f"{limits['max-compute-invocations-per-workgroup']} invocations and "
        f"{_size(limits['max-compute-workgroup-storage-size'])} of memory a workgroup"
    )


def _size(count: int) -> str:
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << exponent:
            return f"{count / (1 << exponent):.3g} {unit}"
    return f"{count} B"


# ----- Errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command; give its exit code: 0 done, 1 the work failed, 2 the command line is wrong, 130 interrupted."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            with commands.make_context("gpuscan", list(arguments) or ["--help"]) as context:
                commands.invoke(context)
            sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader has seen enough
        _leave_stdout()
        return WORK_FAILED
    except Exception as error:
        if isinstance(error, OSError):
            _leave_stdout()
        return _fail(str(error) or type(error).__name__, WORK_FAILED)
    return 0


def _fail(message: str, code: int) -> int:
    click.echo(f"gpuscan: {' '.join(message.split())}", err=True)
    return code


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"gpuscan: warning: {' '.join(str(message).split())}", err=True)


def _leave_stdout() -> None:
    """What is left in the buffer of standard output has nowhere to go: keep Python from trying at its exit."""
    with suppress(OSError, ValueError):
        descriptor = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
