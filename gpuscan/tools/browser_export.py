"""Run ``gpuscan export``, and parse its options: operators in Python files, and elements of several fields."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import gpuscan
from gpuscan.array_types import AnyDType
from gpuscan.tools.option_types import Context, DtypeType, OperatorType, Parameter, ParamType
from gpuscan.tools.output import usage_errors


class FunctionType(ParamType):
    """``FILE.py:NAME`` for a function that a Python file defines."""

    name = "function"

    def convert(self, value: object, param: Parameter, ctx: Context) -> Callable[..., object]:
        path, _, name = str(value).rpartition(":")
        if not path.endswith(".py") or not Path(path).is_file():
            self.fail(
                f"there is no file {path or value}. Name a Python file and what it defines: FILE.py:NAME.", param, ctx
            )
        try:
            names: dict[str, object] = runpy.run_path(path)
        except (Exception, SystemExit) as error:  # whatever the user's file does
            self.fail(f"{path} cannot be run ({type(error).__name__}: {error}). Mend the file.", param, ctx)
        function = names.get(name)
        if not callable(function):
            self.fail(f"{path} defines no function or operator {name!r}. Name one that it does.", param, ctx)
        return function


class ExportedOperatorType(OperatorType):
    """The name of an operator, or ``FILE.py:NAME`` for one that a Python file defines."""

    def convert(self, value: object, param: Parameter, ctx: Context) -> Any:
        path, colon, _ = str(value).rpartition(":")
        if colon and path.endswith(".py"):
            return FunctionType().convert(value, param, ctx)
        return super().convert(value, param, ctx)


class ElementType(DtypeType):
    """The types of an element: ``float32``, ``float32,float32`` for two fields, or ``value=float32,valid=bool``."""

    name = "element"

    def convert(self, value: object, param: Parameter, ctx: Context) -> Any:
        parts = str(value).split(",")
        if len(parts) == 1 and "=" not in parts[0]:
            return super().convert(value, param, ctx)
        pairs = [part.partition("=") for part in parts]
        dtypes: list[AnyDType] = []
        for first, named, last in pairs:
            dtypes.append(super().convert(last if named else first, param, ctx))
        names = [first for first, named, _ in pairs if named]
        if names and len(set(names)) != len(parts):
            self.fail(f"{value!r} names some fields and not others, or one twice. Name each once.", param, ctx)
        return dict(zip(names, dtypes, strict=True)) if names else tuple(dtypes)


def export_and_describe(
    folder: Path, op: object, dtype: object, *, compact: bool, mask: Callable[..., object] | None, **options: Any
) -> str:
    """Export a scan, and return a line that says what is in the folder.

    Args:
        folder: where to write.
        dtype: the dtype of the elements.
        compact: True to export a compaction.
        mask: the function of an element that picks it, or None.
        options: the other options of `gpuscan.export`.

    Raises:
        click.UsageError: the options do not go together, or the folder has other files.
        click.ClickException: the folder cannot be written.
    """
    if mask is not None and not compact:
        raise click.UsageError(
            "--mask was passed without --compact. Pass both to export a compaction, or leave out --mask."
        )
    with usage_errors(folder):
        gpuscan.export(folder, op, dtype, compact=mask or compact, **options)
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    ways = dict.fromkeys(variant["strategy"] for variant in plan["variants"])
    return (
        f"{folder}: {plan['operator']} by {' or '.join(ways)}; scan.js to import, index.html to open from: "
        f"python -m http.server -d {folder}"
    )
