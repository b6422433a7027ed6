"""The public function `export`: a scan as files for web browsers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpuscan.api.compact import pick_by_numpy, predicate_of
from gpuscan.browser.description import digest_of, earlier_plan, files_of, scan_text, written_files
from gpuscan.browser.plans import check_floats, variants
from gpuscan.browser.samples import make_compaction_samples, samples_of
from gpuscan.elements import dtype_from, element_of
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.strategies import Strategy, check_strategy
from gpuscan.problem.arguments import as_flag, as_integer, structure_and_leaves
from gpuscan.problem.compaction import compaction_problem, words_of_entry
from gpuscan.problem.fixed_bits import is_everywhere
from gpuscan.problem.problem import ProblemOptions, make_problem
from gpuscan.replaced_file import replace_file

# The sides of the matrices that are exported if `dtype` has no shape.
_MATRIX_SIDE = 2

# The number of files that an error names.
_NAMES_SHOWN = 3


def export(
    folder: str | os.PathLike[str],
    op: object = "add",
    dtype: object = np.float32,
    *,
    length: int,
    exclusive: bool = False,
    reverse: bool = False,
    segments: bool = False,
    compact: bool | Callable[[Any], object] = False,
    strategy: Strategy = "auto",
    reproducible: str | None = None,
    force: bool = False,
) -> Path:
    """Write a scan into a folder for web pages: WGSL shaders, an ES module that runs them, and a page that checks them.

    The module computes ``y[i] = op(y[i-1], x[i])``, as `gpuscan.scan` does, on the GPU of a page's visitor. It needs
    only the files of the folder::

        import { Scan } from "./scan.js";
        const scan = await Scan.create(await Scan.device());
        const sums = await scan.run(new Float32Array([3, 1, 4]));

    In browsers with subgroups, the scan is a single pass (``"fallback"``); in others it is three dispatches. To check
    the export on a machine, open ``index.html`` from a web server; browsers load no modules from plain files. An export
    replaces an earlier one of the same scan in the folder, and keeps other files there.

    Args:
        folder: where to write: a new or empty folder, or one with an earlier export of the same scan.
        op: as in `gpuscan.scan`: a name, a ufunc, a `gpuscan.Operator` or a Python function.
        dtype: the dtype of the elements. For bundles a tuple or dict of dtypes; for matrices a dtype with a shape, such
            as ``np.dtype((np.float32, (2, 2)))``. An element has at most four 32-bit words.
        length: the longest array, in elements.
        exclusive: as in `gpuscan.scan`. The operator needs an identity.
        reverse: as in `gpuscan.scan`.
        segments: True to let ``run(x, {segments: offsets})`` restart the scan at offsets.
        compact: True to export `gpuscan.compact` instead of a scan: ``run(x, {mask})`` returns ``x[mask]``. With a
            function that takes an element and returns a bool, ``run(x)`` returns the elements for which it is True. A
            compaction takes no `op`, `exclusive`, `reverse` or `segments`.
        strategy: ``"auto"``, or one strategy for every GPU, without subgroups.
        reproducible: as in `gpuscan.scan`. ``"auto"`` then means three dispatches, and the page that checks the export
            compares all bits of floats.
        force: True to write into a folder that has other files, and to replace files with the names of the export.

    Returns:
        The folder, as a `pathlib.Path`.

    Raises:
        ValueError: the length is not positive, there is no such operator or strategy, the operator of an exclusive scan
            has no identity, or `compact` is passed with an option of scans.
        TypeError: the operator does not combine the dtype, or the function of `compact` does not return a bool.
        UnsupportedDtypeError: WebGPU has no such numbers, an element is too wide, or the array is larger than the
            buffer binding of some browsers.
        OperatorError: the operator cannot be turned into WGSL, or NumPy cannot compute the samples with it.
        FileExistsError: the folder is a file; or it has other files, an export of another scan, or a changed export,
            and `force` is False.
        OSError: a file cannot be written.

    Example:
        >>> import tempfile
        >>> import gpuscan as gs
        >>> folder = gs.export(tempfile.mkdtemp(), "maximum", length=1000)
        >>> (folder / "scan.js").exists()
        True
    """
    length = _check_length(length)
    check_strategy(strategy)
    if compact is False:
        x = _stand_in(dtype, length, resolve(op).element_axes)
        offsets = np.array([0, length]) if as_flag("segments", segments) else None
        options: ProblemOptions = {"axis": 0, "exclusive": exclusive, "reverse": reverse, "segments": offsets}
        problem = make_problem(x, op, **options | {"reproducible": reproducible})
        files = files_of(problem, problem.source, variants(problem, strategy), samples_of(problem))
    else:
        _check_compact(compact, op, exclusive=exclusive, reverse=reverse, segments=segments)
        if is_everywhere(reproducible):
            raise ValueError(
                f"compact= was passed with reproducible={reproducible!r}, but a compaction combines no elements. Leave "
                "out reproducible"
            )
        files = _compaction_files(_stand_in(dtype, length, 0), length, compact, strategy)
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"folder={folder!r} was passed; pass the path of a folder, as a str or a pathlib.Path")
    target = Path(folder)
    if target.is_file():
        raise FileExistsError(f"folder={str(folder)!r} was passed, which is a file; pass the path of a folder")
    earlier = earlier_plan(target)
    if not as_flag("force", force):
        _check_folder(target, earlier, files)
    target.mkdir(parents=True, exist_ok=True)
    for name in written_files(earlier).keys() - files.keys():
        (target / name).unlink(missing_ok=True)
    for name, content in files.items():
        with replace_file(target / name) as unfinished:
            unfinished.write_bytes(content)
    return target


def _check_compact(compact: object, op: object, **flags: object) -> None:
    """Raise an error if `compact` is no mask, or is passed with what only scans have."""
    if not (compact is True or isinstance(compact, np.bool_) or callable(compact)):
        raise TypeError(
            f"compact={compact!r} was passed, but it says how elements are picked. Pass True for a mask that the page "
            "passes, or a function of an element that gives a bool"
        )
    others = {"op": op} if not (isinstance(op, str) and op == "add") else {}
    others |= {name: flag for name, flag in flags.items() if as_flag(name, flag)}
    for name, value in others.items():
        raise ValueError(
            f"compact= was passed with {name}={value!r}, but a compaction combines no elements. Leave out {name}"
        )


def _compaction_files(x: object, length: int, compact: object, strategy: str) -> dict[str, bytes]:
    """Return the files of a compaction of arrays like `x`."""
    structure, leaves = structure_and_leaves(x)
    element = element_of([leaf.dtype for leaf in leaves], structure, [leaf.shape[1:] for leaf in leaves])
    predicate = None
    if callable(compact):
        check_floats(element)
        predicate = predicate_of(compact, structure, leaves, "compact")
    moved = [words_of_entry(field.storage_bytes) for field in element.fields]
    words = [np.broadcast_to(np.zeros((), dtype), (length, count)) for dtype, count in moved]
    mask = predicate or np.broadcast_to(np.zeros((), np.uint8), (length,))
    plan_variants = variants(problem := compaction_problem(words, mask), strategy)
    pick = partial(pick_by_numpy, predicate) if predicate else None
    return files_of(problem, element, plan_variants, make_compaction_samples(element, length, pick))


def _check_length(length: object) -> int:
    if (checked := as_integer(length)) is None:
        raise TypeError(f"length={length!r} was passed; pass the number of elements of the longest array")
    if checked < 1:
        raise ValueError(f"length={length} was passed; pass the number of elements of the longest array, 1 or more")
    return checked


def _stand_in(dtype: Any, length: int, element_axes: int) -> object:
    """Return arrays of the dtypes that take no memory, in the form of the dtypes."""
    if isinstance(dtype, Mapping):
        return {name: _stand_in(field_dtype, length, element_axes) for name, field_dtype in dtype.items()}
    if isinstance(dtype, (tuple, list)) and not _is_dtype(dtype):
        return tuple(_stand_in(field_dtype, length, element_axes) for field_dtype in dtype)
    leaf = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype) if _is_dtype(dtype) else dtype_from(dtype)
    if leaf.names:
        raise UnsupportedDtypeError(
            f"the structured dtype {leaf} was asked for, and browsers have no arrays of structures. Export a dict of "
            "dtypes, and pass an array for each field"
        )
    base, shape = leaf.subdtype or (leaf, ())
    if element_axes and not shape:
        shape = (_MATRIX_SIDE,) * element_axes
    return np.broadcast_to(np.zeros((), base), (length, *shape))


def _is_dtype(value: object) -> bool:
    """Return True if a tuple or list is one dtype with a shape, and not several dtypes."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    shape = value[1]
    return isinstance(shape, int) or (isinstance(shape, tuple) and all(isinstance(n, int) for n in shape))


def _check_folder(folder: Path, earlier: Mapping[str, object], files: Mapping[str, bytes]) -> None:
    """Raise FileExistsError if the folder has files that are no earlier export of the same scan.

    Args:
        folder: where the files are to be written.
        earlier: the plan that is there, as `earlier_plan` returns it.
        files: the content of each file by its name.
    """
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not names:
        return
    advice = "Export to another folder, or pass force=True to replace the files with the names of the export's"
    if not (written := written_files(earlier)):
        raise FileExistsError(
            f"an export to {folder} was asked for, but there is {_some_of(names)}, which no export wrote. {advice}"
        )
    plan = json.loads(files["plan.json"])
    ours, theirs = scan_text(plan), scan_text(earlier)
    if ours != theirs:
        raise FileExistsError(f"an export of {ours} to {folder} was asked for, but there is one of {theirs}. {advice}")
    # An export that was interrupted has left some files of its own, and some of the one before it.
    named = {name for name in (written.keys() | files.keys()) - {"plan.json"} if os.path.lexists(folder / name)}
    as_written = {name: {written.get(name), plan["files"].get(name)} for name in named}
    if changed := sorted(name for name in named if digest_of(folder / name) not in as_written[name]):
        raise FileExistsError(
            f"an export to {folder} was asked for, but {_some_of(changed)} was changed or added since the last one. "
            f"{advice}"
        )


def _some_of(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
