"""Loads ``cli.py`` from the top of the checkout. In a wheel, that file itself is at this place."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli import commands as commands
    from cli import main as main
    from cli import run as run
else:
    _path = Path(__file__).resolve().parents[1] / "cli.py"
    _spec = importlib.util.spec_from_file_location(__name__, _path)
    sys.modules[__name__] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
