"""CUB's DeviceScan, compiled by nvcc for the case's element and operator.

The headers of the toolkit are measured, and also the headers of the package cuda-cccl if it is installed. Compiled
libraries are kept in the user's cache folder. Their key is the source, the compiler and the flags.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from gpuscan.tools.bench.cases import AFFINE, Inputs, ScanCase
from gpuscan.tools.bench.contenders import Contender, Subject, Unsupported
from gpuscan.tools.bench.peers import CUDA_EVENTS, only
from gpuscan.tools.bench.timing import REPEATS, WARM_SECONDS

SOURCE = Path(__file__).with_name("cub.cu")
NVCC_SECONDS = 300
OPERATORS = {
    "add": "Add",
    "multiply": "Multiply",
    "minimum": "Minimum",
    "maximum": "Maximum",
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bitwise_xor": "Xor",
    "affine": "Affine",
}
ELEMENTS = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
}


def contenders(case: ScanCase) -> list[Contender]:
    if case.op not in OPERATORS or case.dtype.name not in ELEMENTS:
        return []
    contenders_of_case = [Contender("cub", "DeviceScan, toolkit", partial(_subject, case, ()))]
    package = package_headers()
    if package is not None:
        contenders_of_case.append(Contender("cub", "DeviceScan, cuda-cccl", partial(_subject, case, (f"-I{package}",))))
    return contenders_of_case


def package_headers() -> Path | None:
    """Return the folder of the headers of the package cuda-cccl, or None if it is not installed."""
    try:
        spec = util.find_spec("cuda.cccl")
    except ImportError:
        return None
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        headers = Path(folder) / "headers" / "include"
        if (headers / "cub" / "version.cuh").is_file():
            return headers
    return None


def _subject(case: ScanCase, flags: Sequence[str], inputs: Inputs) -> Subject:
    """Return the case's scan. One call into the library does it all: upload, warm up, time, read results back."""
    only(case.rows == 1, "CUB scans one row")
    pair = case.op == AFFINE.name
    values = np.stack(inputs.arrays, axis=-1) if pair else inputs.arrays[0]
    results = np.empty((len(inputs.indices), *((2,) if pair else ())), case.dtype)
    indices = inputs.indices.astype(np.int64)
    library = load([*defines(case), *flags])
    version = library.cub_version()
    return Subject(
        lambda: scan(library, values, case.length, indices, results, REPEATS, WARM_SECONDS),
        lambda at: [results[..., 0], results[..., 1]] if pair else [results],
        CUDA_EVENTS,
        f"CUB {version // 100000}.{version // 100 % 1000}.{version % 100}",
    )


def sums_of(dtype: np.dtype[Any]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Return a function that computes all running sums of an array.

    Raises:
        Unsupported: there is no nvcc, or no device.
        RuntimeError: nvcc fails.
    """
    library = load(defines(ScanCase("add", dtype, 1)))
    if library.cub_devices() == 0:
        raise Unsupported("no CUDA device")

    def sums(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        values = np.ascontiguousarray(x, dtype)
        results = np.empty_like(values)
        scan(library, values, values.size, None, results, repeats=1, warm_seconds=0.0)
        return results

    return sums


def scan(
    library: Any,
    values: np.ndarray[Any, Any],
    length: int,
    indices: np.ndarray[Any, Any] | None,
    results: np.ndarray[Any, Any],
    repeats: int,
    warm_seconds: float,
) -> float:
    """Scan, and read the results at these places, or the first ones; the median time of a run."""
    taken = ctypes.c_double()
    library.cub_scan.restype = ctypes.c_char_p
    problem = library.cub_scan(
        values.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(length),
        None if indices is None else indices.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(len(results)),
        results.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int(repeats),
        ctypes.c_double(warm_seconds),
        ctypes.byref(taken),
    )
    if problem:
        raise RuntimeError(problem.decode())
    return taken.value


def defines(case: ScanCase) -> list[str]:
    """Return the compiler's flags for the case."""
    flags = [f"-DELEMENT={ELEMENTS[case.dtype.name]}", f"-DOPERATOR={OPERATORS[case.op]}"]
    return flags + {"add": ["-DINCLUSIVE_SUM"], AFFINE.name: ["-DPAIR"]}.get(case.op, [])


def load(flags: Sequence[str], arch: str = "native") -> Any:
    """Return the library compiled with these flags, from the cache or by nvcc.

    Raises:
        Unsupported: there is no nvcc.
        RuntimeError: nvcc fails.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise Unsupported("no nvcc on the PATH")
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    position = [] if os.name == "nt" else ["-Xcompiler", "-fPIC"]
    command = [nvcc, "-O3", "-std=c++17", "-w", "-shared", *position, f"-arch={arch}", *flags]
    text = "\n".join([*command, version, SOURCE.read_text(encoding="utf-8")])
    folder = Path(platformdirs.user_cache_dir("gpuscan")) / "bench"
    library = folder / f"cub-{hashlib.sha256(text.encode()).hexdigest()[:16]}{'.dll' if os.name == 'nt' else '.so'}"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / library.name
            done = subprocess.run(
                [*command, str(SOURCE), "-o", str(made)], capture_output=True, text=True, timeout=NVCC_SECONDS
            )
            if done.returncode:
                raise RuntimeError(f"nvcc failed: {(done.stderr or done.stdout).strip()}")
            os.replace(made, library)
    return ctypes.CDLL(str(library))
