"""Templates are compiled to Python code once, and kept in `__pycache__` next to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from gpuscan import templates


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of templates in which compiled ones may be kept."""
    (tmp_path / "greeting.wgsl").write_text("hello {{ name }}\n")
    monkeypatch.setattr(templates, "shader_folder", lambda: tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    templates._environment.cache_clear()
    yield tmp_path
    templates._environment.cache_clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each template that is compiled."""
    names: list[str] = []
    compile_template = jinja2.Environment.compile

    def noted(self: jinja2.Environment, source: str, name: str, filename: str) -> object:
        names.append(name)
        return compile_template(self, source, name, filename)

    monkeypatch.setattr(jinja2.Environment, "compile", noted)
    return names


def rendered() -> str:
    """Return what the next process would render."""
    templates._environment.cache_clear()
    return templates.render("greeting.wgsl", name="world")


def test_a_template_is_compiled_once_for_each_text(folder: Path, compiled: list[str]) -> None:
    assert [rendered(), rendered()] == ["hello world\n"] * 2
    assert compiled == ["greeting.wgsl"]
    (folder / "greeting.wgsl").write_text("good-bye {{ name }}\n")
    assert rendered() == "good-bye world\n"
    assert len(compiled) == 2


def test_damaged_files_are_written_again(folder: Path, compiled: list[str]) -> None:
    rendered()
    (kept,) = (folder / "__pycache__").iterdir()
    for content in (b"", b"nonsense", kept.read_bytes()[:-7]):
        kept.write_bytes(content)
        assert rendered() == "hello world\n"
    assert len(compiled) == 4


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "__pycache__").write_text("not a folder")
    assert rendered() == "hello world\n"


def test_nothing_is_written_where_python_writes_nothing(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that such a process reads what another one wrote, as Python does."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered() == "hello world\n"
    assert not (folder / "__pycache__").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    rendered()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered() == "hello world\n"
    assert len(compiled) == 2
