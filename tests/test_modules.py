"""The modules of the package: their length, and that none is a part of the one module that imports it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import gpuscan

PACKAGE = Path(gpuscan.__file__).parent
# The most lines of a module.
MAX_LINES = 700
# A module is a part of the only one that imports it if both together have at most this many lines, with room to grow.
JOINED_LINES = 650


def modules() -> dict[str, Path]:
    """Return the path of each module by its name; a package has the name of its folder."""
    paths = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imports(path: Path) -> tuple[set[str], set[str]]:
    """Return the modules from which a file imports names, and the modules that it may import as a whole."""
    found: set[str] = set()
    whole: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            whole |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found, whole


def lines_of(path: Path) -> int:
    """Return the number of lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


def test_no_module_is_too_long() -> None:
    """Assert that a module has at most 700 lines."""
    long = {name for name, path in modules().items() if lines_of(path) > MAX_LINES}
    assert long == set()


def test_no_module_is_a_part_of_another_one() -> None:
    """Assert that a module with one importer in its package would be too long with it, or is imported as a whole.

    A package's ``__init__`` imports the modules that it is made of, so it does not count. Scripts in benchmarks/ do.
    """
    paths = modules()
    importers: dict[str, set[str]] = {name: set() for name in paths}
    benchmarks = {str(path): path for path in (PACKAGE.parent / "benchmarks").rglob("*.py")}
    for importer, path in (paths | benchmarks).items():
        names, whole = imports(path)
        for name in names | whole:
            if name in importers:
                # A module that is imported as a whole may be a member of a registry.
                importers[name] |= {importer} if name in names else {importer, "a registry"}
    parts = set()
    for name, found in importers.items():
        (importer, *others) = found or {"no module"}
        if others or importer not in paths or paths[name].parent == PACKAGE or paths[name].name == "__init__.py":
            continue
        beside = paths[importer].parent == paths[name].parent and paths[importer].name != "__init__.py"
        if beside and lines_of(paths[name]) + lines_of(paths[importer]) <= JOINED_LINES:
            parts.add(name)
    assert parts == set()


def test_modules_import_each_other_by_statements() -> None:
    """Assert that only ``gpuscan/__init__.py`` imports modules of the package by their names in strings."""
    found = set()
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function: Any = node.func if isinstance(node, ast.Call) else None
            called = getattr(function, "attr", getattr(function, "id", ""))
            if called in ("import_module", "__import__") and isinstance(node, ast.Call):
                first = node.args[0]
                if not isinstance(first, ast.Constant) or str(first.value).startswith("gpuscan"):
                    found.add(name)
    # The others import packages that the user names, or that may not be installed.
    assert found == {"gpuscan", "gpuscan.device.backends", "gpuscan.tools.bench.peers"}


def test_frozen_values_are_changed_by_replace() -> None:
    """Assert that no module writes to the namespace of another object, except where `replace` would not do."""
    found = set()
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called == "object.__setattr__" or called.endswith("__dict__.update"):
                    found.add(name)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                found |= {name} if ast.unparse(node.value).startswith("vars(") else set()
    # Capabilities get limits that are read-only. A problem of the same kind keeps what was computed of it.
    assert found == {"gpuscan.planning.capabilities", "gpuscan.problem.problem"}


def test_docstrings_explain_only_arguments() -> None:
    """Assert that each name under ``Args:`` is an argument of the function, or of the class's constructor."""
    wrong = set()
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            section = re.search(r"^Args:\n((?:    .*\n?|\n)*)", ast.get_docstring(node) or "", re.MULTILINE)
            entries = re.findall(r"^    (\w+(?:, \w+)*):", section[1], re.MULTILINE) if section else []
            methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
            function = next((f for f in methods if f.name == "__init__"), node)
            if isinstance(function, ast.FunctionDef) and function.args.kwarg is None:
                arguments = {child.arg for child in ast.walk(function.args) if isinstance(child, ast.arg)}
                names = {name for entry in entries for name in entry.split(", ")}
                wrong |= {f"{module}.{node.name}: {name}" for name in names - arguments}
    assert wrong == set()
