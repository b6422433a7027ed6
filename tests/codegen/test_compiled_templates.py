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
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each template that is compiled."""
    names: list[str] = []
    compile_template = jinja2.Environment.compile

    def note_name(self: jinja2.Environment, source: str, name: str, filename: str) -> object:
        names.append(name)
        return compile_template(self, source, name, filename)

    monkeypatch.setattr(jinja2.Environment, "compile", note_name)
    return names


def render_greeting() -> str:
    """Return what the next process would render."""
    templates._environment.cache_clear()
    return templates.render("greeting.wgsl", name="world")


def test_a_template_is_compiled_once_for_each_text(folder: Path, compilations: list[str]) -> None:
    assert [render_greeting(), render_greeting()] == ["hello world\n"] * 2
    assert compilations == ["greeting.wgsl"]
    (folder / "greeting.wgsl").write_text("good-bye {{ name }}\n")
    assert render_greeting() == "good-bye world\n"
    assert len(compilations) == 2


def test_damaged_files_are_written_again(folder: Path, compilations: list[str]) -> None:
    render_greeting()
    (kept,) = (folder / "__pycache__").iterdir()
    for content in (b"", b"nonsense", kept.read_bytes()[:-7]):
        kept.write_bytes(content)
        assert render_greeting() == "hello world\n"
    assert len(compilations) == 4


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "__pycache__").write_text("not a folder")
    assert render_greeting() == "hello world\n"


def test_nothing_is_written_where_python_writes_nothing(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that such a process reads what another one wrote, as Python does."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render_greeting() == "hello world\n"
    assert not (folder / "__pycache__").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    render_greeting()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render_greeting() == "hello world\n"
    assert len(compilations) == 2
