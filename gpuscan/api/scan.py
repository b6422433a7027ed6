"""`gpuscan.scan`: the running combination of an array's elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuscan.api.groups import execute_groups
from gpuscan.api.home import Devices, distributed_in, team_or_home
from gpuscan.api.launches import launchable
from gpuscan.api.outputs import check_out, execute, in_form_of, is_on_device
from gpuscan.api.totals import total_of
from gpuscan.engine.device_seeds import seeds_by_rows
from gpuscan.planning.strategies import check_strategy
from gpuscan.problem.arguments import as_flag, check_one_cut
from gpuscan.problem.cache import cached_problem
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.groups import checked_labels


@launchable
def scan(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    segments: Any = None,
    keys: Any = None,
    groups: Any = None,
    dtype: Any = None,
    out: Any = None,
    before: Callable[..., Any] | None = None,
    after: Callable[[Any], Any] | None = None,
    compensated: bool = False,
    return_total: bool = False,
    device: Devices = None,
    strategy: str = "auto",
) -> Any:
    """Return the running combination of an array's elements along an axis.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])``. The combinations form a fixed tree that does not depend on timing:
    for one device, dtype, operator and shape the bits are the same on every run and under every strategy.

    Args:
        x: the input: anything `np.asarray` takes, of any memory order, or a `gpuscan.Array`; or a bundle, which is a
            tuple, named tuple, list, dict or structured array of arrays, nested as you like. An element of a bundle is
            one value of each of its arrays. Arrays with more axes than others give vectors or matrices to the element.
            Or a `gpuscan.ShardedArray`, or a bundle of them.
        op: the operator: a name (``"add"``, ``"maximum"``, …), a NumPy ufunc, a `gpuscan.Operator`, or a Python
            function of (left, right). It must be associative; it need not be commutative.
        axis: the axis to scan along. A 1-D array needs none.
        exclusive: True to leave ``x[i]`` out of ``y[i]``, so that ``y[0]`` is `initial` or the operator's identity.
        reverse: True to scan from the end: exactly ``flip(scan(flip(x, axis)), axis)``.
        initial: the left operand of the first combination, broadcast over the other axes. Inclusive results include
            it as well.
        segments: the offsets along the axis where the scan restarts, as in CSR's ``indptr``: the first is 0, the last
            is the axis's length, and none is smaller than the one before. Every row is cut alike, and each segment
            begins with `initial`. Offsets in a `gpuscan.Array` are checked on its device. If they are wrong, calls that
            wait for the device raise; after others the next read or `Device.synchronize` does. Then `out` may have been
            written, and nothing else of yours is changed.
        keys: the scan restarts where a key differs from the one before it along the axis. There is a key for each
            element, in the shape of `x`, or one for each place along the axis, ``(n,)``, for all rows alike. Keys are
            numbers, strings, dates or other values with ``!=``, in an array, a list, a Series or a categorical.
        groups: labels in any order: each element is combined with the earlier elements of its own label, as in pandas'
            ``groupby(groups).cumsum()``, and each group begins with `initial`. There is a label for each element, in
            the shape of `x`, or one for each place along the axis, ``(n,)``, for all rows alike. Labels are integers,
            bools, strings, dates or other values that can be hashed, in an array, a list, a Series or a categorical; in
            a `gpuscan.Array` integers or bools. An element whose label is missing, which is -1, None or NaN, is of no
            group: its result is NaN, as pandas' is, and without floats or complex numbers that is a ValueError (for
            labels on a device, perhaps at the next read).
            Few labels are faster than many. To see how many there are on a device, a long scan waits for the largest
            of them; a plan does so once. The last bits of floats depend on their number.
        dtype: the dtype of the computation and of the result (default: that of `x`). Unlike `np.cumsum`, small
            integers are not promoted: they wrap.
        out: the array to write the result to, of the result's shape and dtype.
        before: a function that maps each input element as it is loaded. `op` combines its results, which may have
            other dtypes or more fields than the input. A function of two parameters also gets the element's index
            along the axis, as int32 (with ``device="numpy"``, int64 where an axis is longer).
        after: a function that maps each combined element as it is stored. Its results are what the scan returns.
        compensated: for sums of float32, True to carry the rounding errors along and to round each result once; see
            docs/numerics.md.
        return_total: True to return ``(result, total)``, where the total is what `gpuscan.reduce` gives along the axis,
            from the end if the scan is reversed. It is the last result of each row, and of an exclusive scan that
            combined with the row's last element, so that the last bits of floats may differ. `segments`, `keys` and
            `groups` do not cut the total: these take a second pass over `x`. So do exclusive scans of float16 and
            bfloat16, those with `after` or a `before` of two parameters, and on a device those of operators in WGSL
            and of elements of several numbers.
        device: a `gpuscan.Device`, a part of an adapter's summary, its number in `gpuscan.devices()`, or ``"numpy"``
            (default: the best adapter). A list of devices shares the work of NumPy arrays: the bits of exact types are
            those of one device, and floats have the same bits for the same list. If a device fails, the error names it.
        strategy: ``"auto"``, ``"lookahead"``, ``"lookback"``, ``"fallback"`` or ``"three_dispatch"``.

    Returns:
        An array like `x`, or the same bundle of arrays; with `return_total`, a pair of that and the total.

    Raises:
        ValueError: the axis, `out`, `initial`, `segments`, `keys`, `groups` or the shapes of a bundle do not fit;
            several of `segments`, `keys` and `groups` are passed; or the total of no elements is asked for, and there
            is neither `initial` nor an identity.
        TypeError: the operator does not take the dtype, or an argument has the wrong type.
        DeviceMemoryError: with `groups`, an array exceeds what a shader of the device binds.
        OperatorError: the operator cannot be turned into a shader.
        UnsupportedDtypeError: the adapter cannot hold the dtype.
        StrategyError: the strategy is unknown, or unsafe on this adapter.
        AdapterNotFoundError: no adapter matches `device`.

    The single-pass strategies follow Merrill & Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back"
    (2016), and Smith, Levien & Owens, "Decoupled Fallback" (SPAA 2025). Segments are cut by a head flag for each
    element (Blelloch 1990). Groups of few labels are combined part by part of a row, with a table of carries. Others
    are sorted by their labels, as `gpuscan.sort` sorts, and scanned as segments.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32))
        array([ 3,  4,  8,  9, 14], dtype=int32)
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), "maximum", reverse=True)
        array([5, 5, 5, 5, 5], dtype=int32)
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), segments=[0, 2, 2, 5])
        array([ 3,  4,  4,  5, 10], dtype=int32)
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), keys=np.array([7, 7, 7, 2, 2]), exclusive=True)
        array([0, 3, 4, 0, 1], dtype=int32)
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), groups=np.array([0, 1, 0, 1, 0]))
        array([ 3,  1,  7,  2, 12], dtype=int32)
        >>> gs.scan(np.ones((2, 5), np.int32), axis=1, segments=[0, 3, 5])
        array([[1, 2, 3, 1, 2],
               [1, 2, 3, 1, 2]], dtype=int32)
        >>> gs.scan(np.array([[3, 1, 4], [1, 5, 9]], np.int32), axis=1, return_total=True)
        (array([[ 3,  4,  8],
               [ 1,  6, 15]], dtype=int32), array([ 8, 15], dtype=int32))
    """
    options = {"axis": axis, "exclusive": exclusive, "reverse": reverse, "initial": initial, "segments": segments}
    options |= {"keys": keys, "dtype": dtype, "before": before, "after": after}
    if (distributed := distributed_in(x)) is not None:
        refused = {"device": device, "groups": groups}
        more = {"compensated": compensated, "return_total": return_total}
        return distributed._scan_bundle(x, op, options, out=out, strategy=strategy, refused=refused, **more)
    check_one_cut(segments=segments, keys=keys, groups=groups)
    if segments is not None and out is None:
        # The offsets are checked while the GPU scans. If they are wrong, the call raises and returns nothing.
        options["checks_later"] = True
    given = x
    if compensated is not False and as_flag("compensated", compensated):
        x, op, options = as_pairs(x, op, options)
    problem = cached_problem(x, op, seeds_on_device=True, **options)
    check_strategy(strategy)
    labels = None if groups is None else checked_labels(groups, problem.shape, problem.axis)
    home = team_or_home((*problem.arrays, labels), device)
    problem = seeds_by_rows(problem)
    outputs = check_out(problem, out, home if is_on_device(problem) else None)
    total = None
    if as_flag("return_total", return_total):
        total = total_of(problem, given, x, op, options, home, grouped=labels is not None)
    if labels is None:
        results = execute(problem, home, strategy, outputs)
    else:
        results = execute_groups(problem, labels, home, strategy, outputs)
    if problem.heads is not None:
        problem.heads.check()
    result = in_form_of(problem, given, results) if out is None else out
    return result if total is None else (result, total(results))
