"""Calls that a type checker has to refuse: each has an error of the code in its comment. Nothing runs them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import gpuscan as gs


def wrong(x: NDArray[np.float32], a: gs.Array) -> None:
    """Pass what no function takes. mypy warns of each comment that no error needs."""
    gs.scan(x, strategy="look-back")  # type: ignore[call-overload]
    gs.scan(a, strategy="look-back")  # type: ignore[call-overload]
    gs.scan(x, axes=0)  # type: ignore[call-overload]
    gs.scan(x, axis=0.5)  # type: ignore[call-overload]
    gs.scan(x, 1)  # type: ignore[call-overload]
    gs.scan(x, exclusive="no")  # type: ignore[call-overload]
    gs.scan(x, device=0.5)  # type: ignore[call-overload]
    gs.scan(x, out="x.npy")  # type: ignore[call-overload]
    gs.scan_chunks([x], strategy="fast")  # type: ignore[call-overload]
    gs.reduce(x, keepdim=True)  # type: ignore[call-overload]
    gs.sort(x, order="descending")  # type: ignore[call-overload]
    gs.searchsorted(x, x, side="middle")  # type: ignore[call-overload]
    gs.quantile(x, 0.5, method="nearst")  # type: ignore[call-overload]
    gs.loop(lambda h, v: h + v, 0.0, x, method="new")  # type: ignore[arg-type]
    gs.default_device().plan(4, np.float32, strategy="auto?")  # type: ignore[arg-type]
    gs.export("page", length=4, strategy="auto?")  # type: ignore[arg-type]
    gs.map(2, x)  # type: ignore[call-overload]
    gs.scan(x).read_async()  # type: ignore[attr-defined]
    gs.scan(a).tofile("x")  # type: ignore[attr-defined]
    (a + 1).tofile("x")  # type: ignore[attr-defined]
