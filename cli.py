"""The command line: its commands and options. What a command does is in gpuscan/tools/."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gpuscan import Device
from gpuscan._version import __version__
from gpuscan.elements import SCALARS
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.planning.plan import LENGTH_LIMIT
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.problem.fixed_bits import EVERYWHERE
from gpuscan.tools import browser_export, files, run_command
from gpuscan.tools.bench import command as bench_command
from gpuscan.tools.bench import tune as tune_command
from gpuscan.tools.bench.peers import PEERS
from gpuscan.tools.matrix import command as matrix_command
from gpuscan.tools.option_types import (
    ArrayFileType,
    CountType,
    DevicesType,
    DeviceType,
    DtypeType,
    FolderType,
    InitialType,
    ListType,
    OperatorType,
    TargetType,
    check_file_dtype,
    gpu_device,
    has_file_dtype,
)
from gpuscan.tools.probe import print_report, write_report
from gpuscan.tools.run_command import add_verbose_option
from gpuscan.tools.shader_text import shader_text

# ----- Options that several commands share

AUTO_OR_STRATEGY = click.Choice(["auto", *STRATEGIES])
LENGTH = click.IntRange(1, LENGTH_LIMIT - 1)
NPY = TargetType(suffix=".npy")
PRINTABLE = TargetType(allow_dash=True)
READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)

OPERATORS = ", ".join(BUILTINS)
DTYPES = ", ".join(SCALARS)
FILE_DTYPES = ", ".join(name for name in SCALARS if has_file_dtype(name))
BROWSER_DTYPES = ", ".join(name for name in SCALARS if name != "float64")
DEVICE = "GPU adapter: a part of its name or its number in `gpuscan probe`"

op_option = click.option(
    "--op", type=OperatorType(), default="add", show_default=True, metavar="NAME", help=f"Operator: {OPERATORS}."
)
dtype_option = click.option(
    "--dtype", type=DtypeType(), default="float32", show_default=True, help=f"Element type: {DTYPES}."
)
gpu_option = click.option("--device", type=DeviceType(numpy=False), help=f"{DEVICE} (default: $GPUSCAN_ADAPTER or 0).")
strategy_option = click.option(
    "--strategy",
    type=AUTO_OR_STRATEGY,
    default="auto",
    show_default=True,
    help="Scan algorithm; auto is the fastest one that is safe on the adapter.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuscan")
def commands() -> None:
    """Compute parallel prefix scans on any GPU, through WebGPU.

    Exit codes: 0 done, 1 the work failed, 2 the command line is wrong. A command that a signal stops exits with 128
    plus the signal's number: 130 after Ctrl-C, 143 after SIGTERM.
    """


# ----- Commands


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--report",
    "report_path",
    metavar="FILE",
    type=TargetType(allow_dash=True, allow_folder=True),
    help="Write a report about one adapter to FILE, into the folder FILE, or - to print it. It takes a minute or two.",
)
@gpu_option
def probe(as_json: bool, report_path: Path | None, device: Device | None) -> None:
    """Show every GPU adapter, and what gpuscan measured on it.

    With --report, measure one adapter in more detail (the default one, or --device): litmus tests with their counts,
    the quick conformance suite, and speeds. The report names no user, no machine and no path.
    """
    if report_path is not None:
        written = write_report(report_path, gpu_device(device))
        click.echo(f"{written} has the report. It says nothing about you or this machine's name.", err=True)
    elif device is not None:
        raise click.UsageError("--device was given without --report. Add --report FILE, or leave it out.")
    else:
        print_report(as_json)


@commands.command()
@click.argument("source", metavar="IN.npy", type=READABLE)
@click.argument("target", metavar="OUT.npy", type=NPY)
@op_option
@click.option("--axis", type=int, help="Axis to scan along. An array with several axes needs it.")
@click.option("--exclusive", is_flag=True, help="Leave each element out of its own result.")
@click.option("--reverse", is_flag=True, help="Scan from the end.")
@click.option(
    "--initial",
    type=InitialType(),
    metavar="NUMBER",
    help="Left operand of the first combination: a number, or FILE.npy with one for each row.",
)
@click.option(
    "--segments",
    type=ArrayFileType(),
    metavar="FILE.npy",
    help="Restart the scan at the offsets in FILE.npy, which begin with 0 and end with the length of the axis.",
)
@click.option("--dtype", type=DtypeType(), help=f"Type to compute and store in (default: the input's): {FILE_DTYPES}.")
@click.option("--compensated", is_flag=True, help="Sum float32 with compensation of the rounding errors.")
@click.option("--device", type=DeviceType(numpy=True), help=f"{DEVICE}, or numpy (default: $GPUSCAN_ADAPTER or 0).")
@strategy_option
@click.option("--profile", is_flag=True, help="Print how long each stage took on the GPU.")
def scan(source: Path, target: Path, profile: bool, **options: Any) -> None:
    """Scan the array in a file, and write the result to a file.

    OUT.npy may be IN.npy itself. The array may be larger than memory. OUT.npy is written when the scan has succeeded.
    """
    check_file_dtype(options["dtype"])
    files.scan_file(source, target, profile, **options)


@commands.command()
@click.argument("source", metavar="IN.npy", type=READABLE)
@click.argument("target", metavar="OUT.npy", type=NPY)
@click.option("--axis", type=int, default=-1, show_default=True, help="Axis to sort along.")
@click.option("--descending", is_flag=True, help="Put the greatest element first.")
@click.option("--indices", is_flag=True, help="Write the indices that sort the array, as int64.")
@click.option("--device", type=DeviceType(numpy=True), help=f"{DEVICE}, or numpy (default: $GPUSCAN_ADAPTER or 0).")
@click.option("--profile", is_flag=True, help="Print how long each stage took on the GPU.")
def sort(source: Path, target: Path, **options: Any) -> None:
    """Sort the array in a file, and write the result to a file.

    OUT.npy may be IN.npy itself. Equal elements keep their order, and NaN comes last. The array has to fit on the GPU.
    OUT.npy is written when the sort has succeeded.
    """
    files.sort_file(source, target, **options)


@commands.command()
@click.argument("source", metavar="IN.npy", type=READABLE)
@click.argument("target", metavar="OUT.npy", type=NPY)
@click.option("--counts", is_flag=True, help="Write records with the fields value and count.")
@click.option("--device", type=DeviceType(numpy=True), help=f"{DEVICE}, or numpy (default: $GPUSCAN_ADAPTER or 0).")
@click.option("--profile", is_flag=True, help="Print how long each stage took on the GPU.")
def unique(source: Path, target: Path, **options: Any) -> None:
    """Write the distinct values of the array in a file, in order.

    OUT.npy may be IN.npy itself. NaN comes last, and each NaN is a value of its own. The array has to fit on the GPU.
    """
    files.unique_file(source, target, **options)


@commands.command()
@click.argument("source", metavar="IN.npy", type=READABLE)
@click.argument("target", metavar="[OUT.npy]", type=NPY, required=False)
@click.option("--bins", type=click.IntRange(min=1), default=10, show_default=True, help="Number of bins.")
@click.option(
    "--range", "limits", type=float, nargs=2, help="First and last edge (default: least and greatest number)."
)
@click.option("--device", type=DeviceType(numpy=True), help=f"{DEVICE}, or numpy (default: $GPUSCAN_ADAPTER or 0).")
@click.option("--profile", is_flag=True, help="Print how long each stage took on the GPU.")
def histogram(source: Path, target: Path | None, **options: Any) -> None:
    """Count the numbers in a file by bins of equal width.

    Prints a row for each bin, or writes the counts to OUT.npy, as int64. The array has to fit on the GPU.
    """
    files.histogram_file(source, target, **options)


@commands.command()
@op_option
@dtype_option
@click.option("--length", type=LENGTH, default=1 << 20, show_default=True, help="Number of elements to scan.")
@gpu_option
@strategy_option
def shader(device: Device | None, **asked: Any) -> None:
    """Print the WGSL shaders of a scan, stage by stage. With --op matmul the elements are 2 x 2 matrices."""
    click.echo(shader_text(gpu_device(device), **asked))


@commands.command()
@click.argument("files", nargs=-1, type=READABLE)
@click.option("--quick", is_flag=True, help=matrix_command.QUICK_HELP)
@gpu_option
@click.option("--merge", is_flag=True, help="Do not run the suite; join FILES, written by --json, into one table.")
@click.option(
    "--add",
    "add_path",
    metavar="FILE",
    type=TargetType(),
    help="Run only the cases that FILE lacks, such as after an interrupted run, and add them to it.",
)
@click.option("--json", "json_path", metavar="FILE", type=PRINTABLE, help="Write the runs, or - to print.")
@click.option(
    "--markdown", "markdown_path", metavar="FILE", type=PRINTABLE, help="Write the table to FILE, or - to print."
)
def matrix(files: Sequence[Path], **asked: Any) -> None:
    """Run the conformance suite, and show which cases passed.

    It runs on every adapter, or on --device. The exit code is 1 if a case failed.
    """
    matrix_command.show_matrix(files, **asked)


@commands.command()
@click.argument("folder", metavar="OUT", type=FolderType())
@click.option(
    "--op",
    type=browser_export.ExportedOperatorType(),
    default="add",
    show_default=True,
    metavar="NAME",
    help=f"Operator: {OPERATORS}; or FILE.py:NAME for one of your own.",
)
@click.option(
    "--dtype",
    type=browser_export.ElementType(),
    default="float32",
    show_default=True,
    help=f"Element type: {BROWSER_DTYPES}, and with --compact alone float64; or several fields: float32,float32 or "
    "value=float32,valid=bool.",
)
@click.option("--length", type=LENGTH, default=1 << 20, show_default=True, help="Longest array, in elements.")
@click.option("--exclusive", is_flag=True, help="Leave each element out of its own result.")
@click.option("--reverse", is_flag=True, help="Scan from the end.")
@click.option("--segments", is_flag=True, help="Let the page restart the scan at offsets.")
@click.option("--compact", is_flag=True, help="Instead of a scan, select elements by a mask that the page passes.")
@click.option(
    "--mask",
    type=browser_export.FunctionType(),
    metavar="FILE.py:NAME",
    help="With --compact: select elements by a function that returns a bool, instead of by a mask.",
)
@click.option(
    "--strategy",
    type=AUTO_OR_STRATEGY,
    default="auto",
    show_default=True,
    help="Scan algorithm; auto is a single pass where the browser has subgroups, else three dispatches.",
)
@click.option("--reproducible", type=click.Choice([EVERYWHERE]), help="Same bits of floats on every GPU and in NumPy.")
@click.option("--force", is_flag=True, help="Write into any folder, and replace files with the names of the export's.")
def export(folder: Path, **asked: Any) -> None:
    """Write a scan for web browsers into the folder OUT.

    The files are WGSL shaders, an ES module, and a page that checks them. The folder must be new or empty, or have an
    unchanged export of the same scan. With --force it may have other files, which stay; files with the names of the
    export are replaced.
    """
    click.echo(browser_export.export_and_describe(folder, **asked))


@commands.command()
@click.option(
    "--sizes", type=ListType(CountType()), default="", help="Numbers of elements: 1000,2^20,… (default: by adapter)."
)
@click.option(
    "--op",
    "ops",
    type=ListType(OperatorType(extra=("affine", "sort"))),
    default="add",
    show_default=True,
    help=f"Operators, separated by commas: {OPERATORS}, affine; sort for sorts.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=ListType(DtypeType()),
    default="uint32",
    show_default=True,
    help=f"Element types, separated by commas: {DTYPES}.",
)
@click.option("--rows", type=click.IntRange(min=1), default=1, show_default=True, help="Number of rows of the array.")
@click.option(
    "--strategy",
    "strategies",
    type=ListType(AUTO_OR_STRATEGY),
    default="",
    help=f"Scan algorithms, separated by commas: auto, {', '.join(STRATEGIES)} (default: all safe ones).",
)
@click.option(
    "--peers",
    type=ListType(click.Choice(list(PEERS)), all_of=PEERS),
    is_flag=False,
    flag_value="all",
    default="",
    metavar="[NAMES]",
    help=f"Measure other libraries as well: all of {','.join(PEERS)}, or the ones named.",
)
@click.option(
    "--devices",
    type=DevicesType(),
    help="Measure calls that several devices share: all of the best type, or their numbers 0,1,… in `gpuscan probe`.",
)
@click.option("--calls", is_flag=True, help="Measure the wall-clock time of calls from Python as well.")
@gpu_option
@click.option("--json", "json_path", metavar="FILE", type=PRINTABLE, help="Write the figures, or - to print.")
@click.option("--plot", metavar="FILE.png", type=TargetType(suffix=".png"), help="Draw the figures.")
def bench(
    device: Device | None, devices: list[Device] | None, json_path: Path | None, plot: Path | None, **asked: Any
) -> None:
    """Time scans and sorts, and compare them with a copy.

    The results are checked against NumPy. The exit code is 1 if a result is wrong.
    """
    if devices is not None:
        bench_command.bench_devices(devices, asked["sizes"], json_path)
    else:
        bench_command.bench(gpu_device(device), bench_command.Request(**asked), json_path, plot)


@commands.command()
@gpu_option
@click.option("--seconds", type=click.FloatRange(min=1), default=50.0, show_default=True, help="How long to search.")
@click.option("--reset", is_flag=True, help="Do not search; delete the sizes that earlier searches have stored.")
def tune(device: Device | None, seconds: float, reset: bool) -> None:
    """Search for the fastest workgroup sizes on a GPU.

    They are stored, and later scans use them. The bits of results do not change.
    """
    if reset:
        tune_command.forget(gpu_device(device))
    else:
        tune_command.tune(gpu_device(device), seconds)


add_verbose_option(commands)

# ----- Running


def run(arguments: Sequence[str]) -> int:
    """Run a command inside this process and return its exit code."""
    return run_command.run(commands, arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    run_command.main(commands, sys.argv[1:] if arguments is None else arguments)
