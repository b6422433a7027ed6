"""The examples of the docstrings and of the Markdown pages, run as written."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import gpuscan

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md")])
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def module_examples() -> list[doctest.DocTest]:
    """The docstrings of gpuscan that hold examples."""
    names = [module.name for module in pkgutil.walk_packages(gpuscan.__path__, "gpuscan.")]
    left_out = {"gpuscan.__main__", *(["gpuscan.torch"] if importlib.util.find_spec("torch") is None else [])}
    modules = [importlib.import_module(name) for name in names if name not in left_out]
    tests = [test for module in [gpuscan, *modules] for test in doctest.DocTestFinder().find(module)]
    return [test for test in tests if test.examples]


def page_examples() -> list[doctest.DocTest]:
    """The Python blocks of each page, as one session in which later blocks see the names of earlier ones."""
    tests = []
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        if blocks:
            tests.append(doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, page.name, 0))
    return tests


def run(test: doctest.DocTest) -> None:
    """Runs one session; fails with doctest's report of what differed."""
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    if report:
        pytest.fail("".join(report), pytrace=False)


@pytest.mark.parametrize("test", module_examples(), ids=lambda test: test.name)
def test_docstring(test: doctest.DocTest) -> None:
    run(test)


@pytest.mark.parametrize("test", page_examples(), ids=lambda test: test.name)
def test_page(test: doctest.DocTest) -> None:
    run(test)


def test_pages_have_no_python_that_is_not_run() -> None:
    for page in PAGES:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            assert block.startswith(">>> "), f"{page.name}: a block that doctest would pass over:\n{block}"


PUBLIC = [name for name in gpuscan.__all__ if inspect.isfunction(getattr(gpuscan, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_has_an_example(name: str) -> None:
    assert ">>> " in inspect.getdoc(getattr(gpuscan, name)), f"gpuscan.{name} has no runnable example"
