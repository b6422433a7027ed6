"""The command line: parse, call gpuscan, print. Errors are one line on standard error; exit 0, 1 or 2."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuscan._version import __version__
from gpuscan.planning.plan import LENGTH_LIMIT
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.tools.bench.recurrences import available as recurrences_available

if TYPE_CHECKING:
    import numpy as np

    from gpuscan import Device
    from gpuscan.device.profiling import Profile

WORK_FAILED, USAGE_WRONG, INTERRUPTED, SIGNALLED = 1, 2, 130, 128  # the last and the signal's number
MOST_BITS = 40  # of a number of elements to measure
PRINTED = Path("-")  # a target that is standard output


# ----- Options


def _operator(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from gpuscan.operators.builtin import resolve

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


class _Target(click.Path):
    """A file to write: a regular one, or none yet, in a writable folder. Gives its resolved path, or `PRINTED`."""

    def __init__(self, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, allow_dash=allow_dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        given = Path(os.fsdecode(super().convert(value, param, ctx)))
        if value == "-":
            if not self.allow_dash:
                self.fail("an array is written to a file; one of this name is ./-", param, ctx)
            return PRINTED
        if given.exists() and not given.is_file():  # a pipe, a device, …: a rename onto it would be the end of it
            self.fail(f"{given} is not a regular file", param, ctx)
        path = given.resolve()  # through a link: the file is replaced, not the link
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}", param, ctx)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            self.fail(f"nothing may be written in the folder {path.parent}", param, ctx)
        return path


_LENGTH = click.IntRange(1, LENGTH_LIMIT - 1)
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
    from gpuscan.tools.probe_report import panel, report

    found = gpuscan.devices()
    if as_json:
        click.echo(json.dumps([report(device) for device in found], indent=2))
    elif not found:
        click.echo("No GPU adapter found: gpuscan runs on NumPy. Install a driver, such as mesa-vulkan-drivers.")
    else:
        from rich.console import Console, Group

        Console(highlight=False).print(Group(*(panel(index, device) for index, device in enumerate(found))))


@commands.command()
@click.argument("source", metavar="IN.npy", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", metavar="OUT.npy", type=_Target())
@_op_option
@click.option("--axis", type=int, help="The axis to scan along; needed unless there is only one.")
@click.option("--exclusive", is_flag=True, help="Leave each element out of its own result.")
@click.option("--reverse", is_flag=True, help="Scan from the end.")
@click.option("--dtype", callback=_dtype, help="What to combine in and write; else the input's.")
@click.option("--compensated", is_flag=True, help="Sums of float32 that carry their rounding errors along.")
@_device_option
@_strategy_option
@click.option("--profile", is_flag=True, help="Print how long each stage took on the GPU.")
def scan(
    source: Path,
    target: Path,
    op: str,
    axis: int | None,
    exclusive: bool,
    reverse: bool,
    dtype: np.dtype[Any] | None,
    compensated: bool,
    device: Device | str | None,
    strategy: str,
    profile: bool,
) -> None:
    """Scan the array in IN.npy and write the result to OUT.npy, which may be the same file."""
    import numpy as np

    import gpuscan
    from gpuscan.tools import file_scan as files

    if dtype is not None and dtype.kind == "V":
        raise click.BadParameter(f".npy files cannot hold {dtype}; write float32", param_hint="'--dtype'")
    if profile and device == "numpy":
        raise click.BadParameter("NumPy runs nothing on a GPU", param_hint="'--profile'")
    array = _read(source)
    if array.dtype.names is not None:
        raise click.ClickException(
            f"{source} holds records of the fields {', '.join(array.dtype.names)}, and the operators that go by a name "
            "combine single numbers. Scan it in Python, by gpuscan.scan with a function that combines each field"
        )
    options: dict[str, Any] = {
        "axis": axis,
        "exclusive": exclusive,
        "reverse": reverse,
        "dtype": dtype,
        "compensated": compensated,
        "device": device,
        "strategy": strategy,
    }
    streamed = array.nbytes > files.STREAMED_BYTES and device != "numpy"
    try:
        with _profiling(device) if profile else nullcontext() as profiled:
            if streamed:
                with _progress_bar(array.nbytes) as progress:
                    files.scan_to_file(array, target, op, progress, **options)
            else:
                result = gpuscan.scan(array, op, **options)
    except gpuscan.GpuscanError:
        raise
    except OSError as error:
        raise click.ClickException(f"{target} cannot be written: {error.strerror or error}") from error
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error  # the options do not go with this array
    if not streamed:
        del array  # the file may be the same
        with _written(target) as partial, open(partial, "wb") as file:
            np.lib.format.write_array(file, np.asanyarray(result), allow_pickle=False)
    if profiled is not None:
        _print_profile(profiled)


@contextmanager
def _progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where someone looks at it: bytes, rate and time left."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


def _profiling(device: Device | str | None) -> AbstractContextManager[Profile]:
    import gpuscan

    chosen = device if isinstance(device, gpuscan.Device) else gpuscan.default_device()
    return chosen.profile()


def _print_profile(profile: Profile) -> None:
    """How long each stage took on the GPU."""
    from rich.console import Console
    from rich.table import Table

    table = Table("stage", "strategy", "dispatches", "elements", "GPU time")
    spans = profile.spans
    for stage, strategy in dict.fromkeys((span.stage, span.strategy) for span in spans):
        alike = [span for span in spans if (span.stage, span.strategy) == (stage, strategy)]
        seconds = [span.gpu_seconds for span in alike if span.gpu_seconds is not None]
        time = f"{sum(seconds) * 1e3:.3f} ms" if seconds else "no timestamps"
        table.add_row(stage, strategy, str(len(alike)), str(sum(span.elements for span in alike)), time)
    Console(highlight=False).print(table)


@commands.command()
@_op_option
@click.option("--dtype", default="float32", show_default=True, callback=_dtype, help="The element type.")
@click.option("--length", type=_LENGTH, default=1 << 20, show_default=True, help="Elements to scan.")
@_device_option
@_strategy_option
def shader(op: str, dtype: np.dtype[Any], length: int, device: Device | str | None, strategy: str) -> None:
    """Print the WGSL that a scan would run, stage by stage; of matmul, that of 2 x 2 matrices."""
    import gpuscan

    if device == "numpy":
        raise click.BadParameter("NumPy runs no shaders", param_hint="'--device'")
    chosen = device if isinstance(device, gpuscan.Device) else gpuscan.default_device()
    element = (2, 2) if op == "matmul" else ()
    try:
        plan = chosen.plan((length, *element), dtype, op, axis=0, strategy=strategy)
    except (gpuscan.UnsupportedDtypeError, gpuscan.OperatorError) as error:
        raise click.UsageError(str(error)) from error  # the options do not go together
    click.echo(
        "\n".join(f"// ===== {stage} ({plan.strategy}, {op}, {dtype})\n\n{text}" for stage, text in plan.wgsl.items())
    )


@commands.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--quick", is_flag=True, help="Fewer cases: under a minute on a software adapter.")
@_device_option
@click.option("--merge", is_flag=True, help="Run nothing: put the runs in FILES, written by --json, into one table.")
@click.option("--json", "json_path", metavar="FILE", type=_Target(allow_dash=True), help="Write the runs; - to print.")
@click.option("--markdown", metavar="FILE", type=_Target(allow_dash=True), help="Write the table; - to print.")
def matrix(
    files: tuple[Path, ...],
    quick: bool,
    device: Device | str | None,
    merge: bool,
    json_path: Path | None,
    markdown: Path | None,
) -> None:
    """Run the conformance suite on every adapter, or on one, and show what passed. Exit code 1 if anything failed."""
    import gpuscan
    from gpuscan.tools.matrix import table as matrices

    if merge != bool(files) or device == "numpy":
        raise click.UsageError("FILES go with --merge, and --device names a GPU adapter")
    if json_path == markdown == PRINTED:
        raise click.UsageError("--json and --markdown cannot both be printed; write one to a file")
    if merge:
        columns = matrices.merge(column for path in files for column in matrices.read(path))
    else:
        chosen = [device] if isinstance(device, gpuscan.Device) else gpuscan.devices()
        if not chosen:
            raise click.ClickException("no GPU adapter found. Install a driver, such as mesa-vulkan-drivers")
        columns = matrices.run_all(chosen, quick)
    for path, text in ((json_path, matrices.to_json), (markdown, matrices.markdown)):
        if path is not None:
            _write_text(path, text(columns))
    if PRINTED not in (json_path, markdown):
        from rich.console import Console

        Console(highlight=False).print(matrices.table(columns))
        for column in columns:
            for failure in column.failures:
                click.echo(f"failed on {column.adapter}, {column.implementation}: {failure}")
    if any(column.failed for column in columns):
        raise click.exceptions.Exit(WORK_FAILED)


@commands.command()
@click.argument("folder", metavar="OUT", type=click.Path(file_okay=False, path_type=Path))
@_op_option
@click.option("--dtype", default="float32", show_default=True, callback=_dtype, help="The element type.")
@click.option("--length", type=_LENGTH, default=1 << 20, show_default=True, help="The longest array.")
@click.option(
    "--strategy", type=click.Choice(STRATEGIES), default="three_dispatch", show_default=True, help="How tiles meet."
)
def export(folder: Path, op: str, dtype: np.dtype[Any], length: int, strategy: str) -> None:
    """Write a scan as WGSL and an ES module for browsers into the folder OUT, with a page that checks itself."""
    from gpuscan.errors import OperatorError, UnsupportedDtypeError
    from gpuscan.tools.export.export import export as write

    lowest = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    if not lowest.is_dir():
        raise click.BadParameter(f"{lowest} is not a folder", param_hint="'OUT'")
    try:
        plan = write(folder, op, dtype, length, strategy)
    except (UnsupportedDtypeError, OperatorError) as error:
        raise click.UsageError(str(error)) from error  # the options do not go together
    except OSError as error:
        raise click.ClickException(f"{folder} cannot be written: {error.strerror or error}") from error
    stages = ", ".join(f"{stage.name}.wgsl" for stage in plan.stages)
    click.echo(f"{folder}: {stages}, scan.js to import, index.html to open from: python -m http.server -d {folder}")


def _listed(parse: Callable[[click.Context, click.Parameter, str], Any]) -> Callable[..., list[Any]]:
    """A callback for values between commas, each parsed by itself."""
    return lambda context, parameter, value: [parse(context, parameter, part) for part in value.split(",") if part]


def _benched(context: click.Context, parameter: click.Parameter, value: str) -> str:
    return value if value == "affine" else _operator(context, parameter, value)


def _count(context: click.Context, parameter: click.Parameter, value: str) -> int:
    base, power, exponent = value.partition("^")
    count = 0
    with suppress(ValueError):
        number, times = int(base), int(exponent) if power else 1
        if number > 0 and times >= 0:
            count = number ** min(times, MOST_BITS)  # of anything but 1 that is too many already
    if not 0 < count < 1 << MOST_BITS:
        raise click.BadParameter(f"{value!r} is not a number of elements, such as 100000 or 2^20")
    return count


def _one_of(choices: Collection[str]) -> Callable[[click.Context, click.Parameter, str], str]:
    def parse(context: click.Context, parameter: click.Parameter, value: str) -> str:
        if value not in choices:
            raise click.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
        return value

    return parse


def _peers(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str]:
    from gpuscan.tools.bench.peers import PEERS

    if value is None or value == "all":
        return [] if value is None else list(PEERS)
    return _listed(_one_of(PEERS))(context, parameter, value)


_NO_RECURRENCES = not recurrences_available()


@commands.command()
@click.option("--sizes", default="", callback=_listed(_count), help="Elements: 1000,2^20,…; else what suits.")
@click.option("--op", "ops", default="add", show_default=True, callback=_listed(_benched), help="Operators.")
@click.option("--dtype", "dtypes", default="uint32", show_default=True, callback=_listed(_dtype), help="Element types.")
@click.option("--rows", type=click.IntRange(min=1), default=1, show_default=True, help="Rows to cut the elements into.")
@click.option(
    "--strategy",
    "strategies",
    default="",
    callback=_listed(_one_of(["auto", *STRATEGIES])),
    help="Strategies; else all that are safe.",
)
@click.option("--batch", type=click.IntRange(min=1), hidden=_NO_RECURRENCES, help="A linear recurrence's batch.")
@click.option("--sequence", type=click.IntRange(min=1), hidden=_NO_RECURRENCES, help="Its steps.")
@click.option("--channels", type=click.IntRange(min=1), hidden=_NO_RECURRENCES, help="Its channels, innermost.")
@click.option("--backward", is_flag=True, hidden=_NO_RECURRENCES, help="Its gradients too.")
@click.option(
    "--peers",
    is_flag=False,
    flag_value="all",
    callback=_peers,
    metavar="[NAMES]",
    help="Measure other libraries as well: all of cub,cupy,torch,jax,triton,accelerated-scan,numpy, or those named.",
)
@_device_option
@click.option("--json", "json_path", metavar="FILE", type=_Target(allow_dash=True), help="Write figures; - to print.")
@click.option("--plot", metavar="FILE.png", type=_Target(), help="Draw the figures.")
def bench(
    batch: int | None,
    sequence: int | None,
    channels: int | None,
    device: Device | str | None,
    json_path: Path | None,
    plot: Path | None,
    **asked: Any,
) -> None:
    """Time scans on the device beside a copy of the same bytes, checked against NumPy. Exit code 1 if one is wrong."""
    from rich.console import Console

    import gpuscan
    from gpuscan.tools.bench.plot import need_matplotlib, save_plot
    from gpuscan.tools.bench.results import report
    from gpuscan.tools.bench.session import Request, run_request
    from gpuscan.tools.bench.suite import failures
    from gpuscan.tools.bench.table import tables

    shape = (batch, sequence, channels)
    recurrence = None if shape == (None, None, None) else (batch or 1, sequence or 1, channels or 1)
    if (recurrence or asked["backward"]) and _NO_RECURRENCES:
        raise click.UsageError("this gpuscan has no linear recurrences")
    if asked["backward"] and not recurrence:
        raise click.UsageError("--backward goes with --batch, --sequence and --channels")
    source = click.get_current_context().get_parameter_source
    of_scans = {"sizes": "--sizes", "ops": "--op", "rows": "--rows", "strategies": "--strategy"}
    given = [option for name, option in of_scans.items() if source(name) is ParameterSource.COMMANDLINE]
    if recurrence and given:
        raise click.UsageError(f"{', '.join(given)} of scans, beside --batch, --sequence, --channels of a recurrence")
    if device == "numpy":
        raise click.BadParameter("a GPU adapter is measured; NumPy is one of --peers", param_hint="'--device'")
    if plot is not None:
        need_matplotlib()
    chosen = device if isinstance(device, gpuscan.Device) else gpuscan.default_device()
    request = Request(recurrence=recurrence, **asked)
    if not request.cases(chosen):
        raise click.UsageError("none of the operators takes any of the dtypes")
    measurements = run_request(chosen, request, Console(stderr=True))
    if json_path is not None:
        _write_text(json_path, json.dumps(report(chosen, measurements, sys.argv[2:]), indent=1) + "\n")
    if json_path != PRINTED:
        click.echo(f"{chosen.capabilities.summary}, {chosen.capabilities.driver}")
        Console(highlight=False).print(*tables(measurements), sep="\n")
    if plot is not None:
        with _written(plot) as partial:
            save_plot(partial, measurements, chosen.capabilities.name)
    if wrong := failures(measurements):
        raise click.ClickException("wrong: " + "; ".join(f"{m.name}, {m.case.series}, {m.case.size}" for m in wrong))


@commands.command()
@_device_option
@click.option("--seconds", type=click.FloatRange(min=1), default=50.0, show_default=True, help="How long to search.")
@click.option("--reset", is_flag=True, help="Search nothing: forget what was found before.")
def tune(device: Device | str | None, seconds: float, reset: bool) -> None:
    """Search the fastest tile shapes on the device and keep them for later scans. Floats may round differently then."""
    from rich.console import Console

    import gpuscan
    from gpuscan.device import tile_cache
    from gpuscan.tools.bench.search import search, tuned_from
    from gpuscan.tools.bench.table import tuning_table

    if device == "numpy":
        raise click.BadParameter("NumPy runs in no tiles", param_hint="'--device'")
    if not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is no time", param_hint="'--seconds'")
    chosen = device if isinstance(device, gpuscan.Device) else gpuscan.default_device()
    capabilities = chosen.capabilities
    found = []
    if not reset:
        with Console(stderr=True).status("") as status:
            found = list(search(chosen, seconds, lambda what: status.update(f"tuning {what}")))
        Console(highlight=False).print(tuning_table(found))
    path = tile_cache.store(capabilities, tuned_from(found))
    if path is None:
        raise click.ClickException("the user's cache folder cannot be written, so nothing was kept")
    click.echo(f"{'Forgot' if reset else 'Kept'} the shapes for {capabilities.summary} in {path}")


# ----- Files


def _read(path: Path) -> np.ndarray[Any, Any]:
    """The array, mapped where it lies; pickled objects are refused."""
    import numpy as np

    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged header makes NumPy raise nearly anything: SyntaxError, OverflowError, …
        raise click.ClickException(f"{path} is not an array that can be read: {error}") from error


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """A path to write to, beside the file that it becomes at the end: that is there whole or not at all."""
    from gpuscan.tools.file_scan import written_beside

    try:
        with written_beside(path) as partial:
            yield partial
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error


def _write_text(path: Path, text: str) -> None:
    if path == PRINTED:
        with click.open_file("-", "w", encoding="utf-8") as file:
            file.write(text)
    else:
        with _written(path) as partial, open(partial, "w", encoding="utf-8") as file:
            file.write(text)


# ----- Errors


class _Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which unwind the work as Ctrl-C does, so that no half-written file is left."""


_terminated = -math.inf  # when


def _terminate(number: int, _: Any) -> None:
    global _terminated
    before, _terminated = _terminated, time.monotonic()
    if _terminated - before > 1:  # coreutils' `timeout` sends two at once, and the work is unwound once
        raise _Terminated(number)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    for name in ("SIGTERM", "SIGHUP"):  # the latter where there are terminals to lose
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command; give its exit code: 0 done, 1 the work failed, 2 a wrong command line, 130 and 143 stopped."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            with commands.make_context("gpuscan", list(arguments) or ["--help"]) as context:
                commands.invoke(context)
            if sys.stdout is not None:  # as it is where it was closed before the start
                sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except _Terminated as stopped:
        return _fail("terminated", SIGNALLED + stopped.args[0])
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
    if sys.stdout is None:
        return
    with suppress(OSError, ValueError):
        descriptor = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
