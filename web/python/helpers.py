"""What the page runs in Python, under Pyodide: code of the editor, cells of a document, speeds, and the report."""

from __future__ import annotations

import ast
import asyncio
import json
import linecache
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from pyodide.code import eval_code_async

import gpuscan as gs

# How often one speed is measured, and the least time of a measurement: a browser's clock ticks in steps of 0.1 ms.
MEASUREMENTS, LEAST_SECONDS = 3, 0.02
# Seconds after which longer arrays are not measured any more.
LONGEST_SECONDS = 2.0


def format_error(error: BaseException, name: str) -> str:
    """Return an error as a terminal shows it: without the frames that ran the code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def remember(code: str, name: str) -> None:
    """Let tracebacks and gpuscan's messages show the lines of the code."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)


async def run_program(code: str, name: str, namespace: dict[str, Any]) -> bool:
    """Run a program, print the value of its last expression, and return False after an error, which is printed."""
    remember(code, name)
    try:
        value = await eval_code_async(code, namespace, filename=name)
        if value is not None:
            print(repr(value))
    except BaseException as error:  # SystemExit ends the program as well
        print(format_error(error, name), end="", file=sys.stderr)
        return False
    return True


def source_of(cell: str) -> str:
    """Return the code of a cell of a document: after its prompts, without its output, if it has prompts."""
    lines = cell.splitlines()
    if not any(line.startswith(">>> ") for line in lines):
        return cell
    return "".join(f"{line[4:]}\n" for line in lines if line.startswith((">>> ", "... ")) or line in (">>>", "..."))


async def run_cell(cell: str, name: str, namespace: dict[str, Any]) -> bool:
    """Run a cell as Python's prompt does, and print the value of each expression."""
    code = source_of(cell)
    remember(code, name)
    try:
        for statement in ast.parse(code, name).body:
            exec(compile(ast.Interactive([statement]), name, "single"), namespace)
            await asyncio.sleep(0)  # the page shows what was printed
    except BaseException as error:
        print(format_error(error, name), end="", file=sys.stderr)
        return False
    return True


# ----- Speeds


def least_seconds(call: Callable[[], Any]) -> float:
    """Return the time of a call: the shortest of a few measurements, each of as many calls as the clock needs."""
    call()
    calls, best = 1, float("inf")
    for _ in range(MEASUREMENTS):
        while True:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            seconds = time.perf_counter() - start
            if seconds >= LEAST_SECONDS:
                break
            calls *= 4
        best = min(best, seconds / calls)
        if seconds > LONGEST_SECONDS:
            break
    return best


async def speeds(longest: int, note: Callable[[str], None]) -> None:
    """Measure running sums of up to 2^longest numbers, and pass each length's times to `note` as JSON.

    Raises:
        AssertionError: a sum differs from NumPy's.
    """
    device = gs.default_device()
    for bits in range(10, longest + 1, 2):
        x = np.random.default_rng(bits).integers(0, 2**32, 1 << bits, np.uint32)
        expected = np.cumsum(x, dtype=np.uint32)
        assert np.array_equal(gs.scan(x, device=device), expected), f"the sums of 2^{bits} numbers are wrong"
        on_device = device.asarray(x)

        def on_gpu(array: gs.Array = on_device) -> None:
            gs.scan(array)
            device.synchronize()

        times = (
            least_seconds(on_gpu),
            least_seconds(lambda x=x: gs.scan(x, device=device)),  # type: ignore[misc]
            least_seconds(lambda x=x: np.cumsum(x, dtype=np.uint32)),  # type: ignore[misc]
        )
        note(json.dumps({"length": 1 << bits, "seconds": times}))
        await asyncio.sleep(0)
        if max(times) > LONGEST_SECONDS:
            break


# ----- The report


def report(*, brief: bool = False) -> str:
    """Return the file of ``gpuscan probe --report`` about the visitor's GPU: its name and content, as JSON.

    Args:
        brief: True for a few cases and one size, for tests.
    """
    from gpuscan.tools.matrix.conformance import suite
    from gpuscan.tools.probe import adapter_report, file_name

    device = gs.default_device()
    options: dict[str, Any] = {"cases": suite(quick=True)[:3], "sizes": (1 << 12,)} if brief else {}
    found = adapter_report(device, **options)
    return json.dumps({"name": file_name(device.capabilities), "content": found})
