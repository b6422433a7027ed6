"""The public function `progress_bar`: how much of a large array is done, in a terminal or a notebook."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from gpuscan.device.backends import IN_BROWSER
from gpuscan.engine.progress import watch_progress


def progress_bar(total: int | None = None) -> AbstractContextManager[None]:
    """Show a progress bar for the scans of large arrays that run inside the ``with``.

    The bar counts bytes of input. It is on standard error in a terminal, and below the cell in a notebook if ipywidgets
    is installed; elsewhere there is none. Arrays that go to the device in one piece show no progress.

    Args:
        total: the bytes of all inputs together, such as ``x.nbytes``; None if not known.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.ones(1000, np.float32)
        >>> with gs.progress_bar(x.nbytes):
        ...     y = gs.scan(x)
        >>> float(y[-1])
        1000.0
    """
    return _show_progress(total)


@contextmanager
def _show_progress(total: int | None) -> Iterator[None]:
    with display_bar(total) as progress, watch_progress(progress):
        yield


@contextmanager
def display_bar(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar with bytes, rate and time left; yield a function that takes the bytes done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    # Without ipywidgets, rich would warn in notebooks at each update.
    shown = importlib.util.find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    # The bar moves by a thread of its own, which a web page does not have.
    with Progress(*columns, console=console, disable=not shown, auto_refresh=not IN_BROWSER) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)
