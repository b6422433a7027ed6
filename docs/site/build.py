"""Builds the documentation site: stages the pages, runs Sphinx with warnings as errors, and checks every local link.

Usage: python docs/site/build.py [--no-gallery] [--external] [OUTPUT]

The site's pages are the Markdown files of the repository, which read well without a site, too. Staging gives them the
places that they have on the site, and turns links between files of the repository into links between pages.
"""

from __future__ import annotations

import argparse
import ast
import html.parser
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path, PurePosixPath

import click

import gpuscan
from gpuscan import cli

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = CHECKOUT / "docs" / "site"
DEFAULT_OUTPUT = CHECKOUT / "build" / "docs"

# The empty file that shows that a folder is a build.
MARKER = ".gpuscan-docs"

# The places of files on the site. Other files are at their path below docs/.
PLACES = {
    "docs/site/index.md": "index.md",
    "docs/site/try.md": "try.md",
    "docs/site/python.md": "python.md",
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}

# The site's contents: caption and pages of each part. Pages that are not listed come at the end of "Look up".
CONTENTS = {
    "Use": ("getting-started", "python", "try", "how-to/README", "operators", "numerics", "gallery/index"),
    "Look up": ("reference", "api", "commands", "concepts", "tiles"),
    "Compare": ("The README <readme>", "performance", "matrix", "adapters/README"),
    "Understand and change": (
        "architecture",
        "decisions/README",
        "benchmarks/experiments/README",
        "contributing",
        "security",
        "changelog",
    ),
}

# Pages below an index page, in the order of the folder.
FOLDERS = ("how-to", "decisions", "benchmarks/experiments")

# Public modules that have functions of their own.
MODULES = ("gpuscan.torch", "gpuscan.jax", "gpuscan.signal", "gpuscan.dask")

# Classes of objects that functions return.
RETURNED = (
    "gpuscan.api.plan.Plan",
    "gpuscan.planning.capabilities.Capabilities",
    "gpuscan.device.profiles.Profile",
    "gpuscan.device.profiles.Span",
)

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
# A number such as 1e-06 in a table. A word joiner keeps a line from breaking before its last digits.
NUMBER = re.compile(r"(?<=\d)(e-)(\d+)(?=[^\n`]*\|)")


# ----- Staging


def place_of(path: str) -> str | None:
    """Return the place on the site of a file of the repository, or None if it has none."""
    if path in PLACES:
        return PLACES[path]
    if path.startswith("docs/site/") or not path.startswith(("docs/", "benchmarks/")):
        return None
    if not path.endswith((".md", ".svg", ".png", ".json")):
        return None
    return path.removeprefix("docs/")


def files_on_site() -> dict[str, str]:
    """Return the place on the site of each file of the checkout that has one. It skips hidden folders."""
    paths = [CHECKOUT / name for name in PLACES]
    for folder in ("docs", "benchmarks"):
        paths += [path for path in (CHECKOUT / folder).rglob("*") if path.is_file()]
    names = [path.relative_to(CHECKOUT).as_posix() for path in sorted(set(paths))]
    return {name: place for name in names if "/." not in name and (place := place_of(name)) is not None}


def stage(source: Path, gallery: bool) -> None:
    """Make the folder that Sphinx reads."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(SITE / "_static", source / "_static")
    shutil.copy(SITE / "conf.py", source)
    files = files_on_site()
    for name, place in files.items():
        target = source / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith(".md"):
            shutil.copy(CHECKOUT / name, target)
            continue
        text = with_site_links((CHECKOUT / name).read_text(encoding="utf-8"), name, files, gallery)
        target.write_text(text + contents_of(place, text, files, gallery), encoding="utf-8")
    (source / "api.md").write_text(api_page(), encoding="utf-8")
    (source / "commands.md").write_text(commands_page(), encoding="utf-8")
    if gallery:
        stage_examples(source / "examples")


def with_site_links(text: str, name: str, files: dict[str, str], gallery: bool) -> str:
    """Return a page's text with links that are right at its place on the site.

    Args:
        text: the page.
        name: its path in the repository.
        files: the places of the files that have one.
        gallery: True if examples have pages.
    """
    here = PurePosixPath(files[name]).parent

    def on_site(found: re.Match[str]) -> str:
        words, link = found[1], found[2]
        if re.match(r"[a-z]+:|#", link):
            return found[0]
        path, _, anchor = link.partition("#")
        target = os.path.normpath(PurePosixPath(name).parent / path).replace(os.sep, "/")
        place = files.get(target) or files.get(f"{target}/README.md")
        if gallery and re.fullmatch(r"examples/.+\.py", target) and not missing_packages(CHECKOUT / target):
            place = f"gallery/{PurePosixPath(target).stem}.rst"
        elif target == "examples" and gallery:
            place = "gallery/index.rst"
        if place is None:
            return f"`{target}`" if words.strip("[]`") == target else f"{words.strip('[]')} (`{target}`)"
        relative = os.path.relpath(place, here).replace(os.sep, "/")
        if words.strip("[]`").endswith(".md"):
            words = "[]"  # Sphinx fills in the title of the page
        return f"{words}({relative}{'#' + anchor if anchor else ''})"

    return NUMBER.sub("\\1\u2060\\2", LINK.sub(on_site, text))


def contents_of(place: str, text: str, files: dict[str, str], gallery: bool) -> str:
    """Return the tables of contents that a page with this text ends with, if it has pages below it."""
    if place == "index.md":
        contents = {
            caption: [page for page in pages if gallery or page != "gallery/index"]
            for caption, pages in CONTENTS.items()
        }
        named = {re.sub(r".*<(.+)>", r"\1", page) for pages in contents.values() for page in pages}
        others = {each.removesuffix(".md") for each in files.values() if each.endswith(".md")} - named - {"index"}
        contents["Look up"] += sorted(page for page in others if str(PurePosixPath(page).parent) not in FOLDERS)
        blocks = [toctree(pages, f":caption: {caption}") for caption, pages in contents.items()]
        return "\n" + "\n".join(blocks)
    for folder in FOLDERS:
        if place == f"{folder}/README.md":
            below = sorted(each for each in files.values() if each.startswith(f"{folder}/") and each.endswith(".md"))
            names = [PurePosixPath(each).name for each in below if each != place]
            names.sort(key=lambda name: text.find(f"({name})") % (len(text) + 1))  # in the page's order, others last
            return "\n" + toctree([name.removesuffix(".md") for name in names])
    return ""


def toctree(pages: list[str], *options: str) -> str:
    """Return a table of contents that shows in the sidebar only."""
    return "\n".join(["```{toctree}", ":hidden:", *options, "", *pages, "```", ""])


def stage_examples(folder: Path) -> None:
    """Copy the example programs, with the titles that the gallery needs, and draw their pictures."""
    from thumbnails import PICTURES, draw_picture

    folder.mkdir(parents=True)
    pictures = folder.parent / "_static" / "thumbnails"
    pictures.mkdir()
    head = "Gallery\n=======\n\nShort programs that check their own results. Each was run when this site was built.\n"
    (folder / "GALLERY_HEADER.rst").write_text(head, encoding="utf-8")
    for program in sorted((CHECKOUT / "examples").glob("*.py")):
        if missing := missing_packages(program):
            print(f"skipped examples/{program.name}: {', '.join(missing)} is not installed", file=sys.stderr)
            continue
        text = program.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(text), clean=False)
        assert docstring is not None, f"{program} has no docstring"
        title = program.stem.replace("_", " ").capitalize().replace("markov", "Markov")
        titled = f"{title}\n{'=' * len(title)}\n\n{docstring}"
        text = text.replace(docstring, titled, 1)
        if program.stem in PICTURES:  # the demo writes its own
            draw_picture(program.stem, pictures / f"{program.stem}.png")
            text += f'\n# sphinx_gallery_thumbnail_path = "_static/thumbnails/{program.stem}.png"\n'
        (folder / program.name).write_text(text, encoding="utf-8")


def missing_packages(program: Path) -> list[str]:
    """Return the packages that a program imports and this machine does not have."""
    names = set()
    for each in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        if isinstance(each, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            names.add(each.module.partition(".")[0])
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


# ----- Pages made from the code


def api_page() -> str:
    """Return the page of every public function and class, with its docstring."""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in gpuscan.__all__:
        each = getattr(gpuscan, name)
        if inspect.isclass(each):
            kind = "Errors" if issubclass(each, Exception) else "Classes"
        elif callable(each):
            kind = "Functions"
        else:
            continue
        kinds[kind].append(name)
    lines = [
        "# Every function and class",
        "",
        "Made from the docstrings, which `help(gpuscan.scan)` and its like show, too. The [reference](reference.md)",
        "has all names in one table.",
    ]
    directives = {"Functions": "autofunction", "Classes": "autoclass", "Errors": "autoexception"}
    for kind, names in kinds.items():
        lines += ["", f"## {kind}", "", "```{eval-rst}"]
        for name in sorted(names):
            lines += [f".. {directives[kind]}:: gpuscan.{name}"]
            if kind == "Classes":
                lines += [f"   :members: {', '.join(public_members(getattr(gpuscan, name)))}"]
            lines += [""]
        lines += ["```"]
    lines += ["", "## What functions return", "", "```{eval-rst}"]
    for path in RETURNED:
        lines += [f".. autoclass:: {path}", "   :members:", ""]
    lines += ["```"]
    for module in MODULES:
        if (CHECKOUT / (module.replace(".", "/") + ".py")).exists():
            lines += ["", f"## `{module}`", "", "```{eval-rst}", f".. automodule:: {module}", "   :members:", "```"]
    return "\n".join(lines) + "\n"


def public_members(kind: type) -> list[str]:
    """Return the members of a class that reference.md names. The others are internal, though their names do not say."""
    reference = (CHECKOUT / "docs" / "reference.md").read_text(encoding="utf-8")
    return [name for name in dir(kind) if not name.startswith("_") and re.search(rf"\.{name}\b", reference)]


def commands_page() -> str:
    """Return the page of every command, with its ``--help``."""
    lines = ["# Every command", "", "What `gpuscan COMMAND --help` prints."]
    group = cli.commands
    with group.make_context("gpuscan", ["--help"], resilient_parsing=True) as top:
        for name, command in sorted(group.commands.items()):
            context = click.Context(command, info_name=name, parent=top, terminal_width=96, max_content_width=96)
            lines += ["", f"## gpuscan {name}", "", "```text", command.get_help(context), "```"]
    return "\n".join(lines) + "\n"


# ----- Building and checking


def sphinx(builder: str, source: Path, target: Path, gallery: bool) -> None:
    """Run Sphinx; a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-W", "--keep-going", "-q", "-d"]
    environment = os.environ | {"GPUSCAN_DOCS_GALLERY": str(int(gallery)), "PYTHONPATH": str(CHECKOUT)}
    subprocess.run([*command, source.parent / "doctrees", source, target], check=True, env=environment)


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def broken_links(folder: Path) -> list[str]:
    """Return every link of the built pages that leads to no file or to no place in it."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                broken.append(f"{path.relative_to(folder)}: {link}: no such file")
            elif parts.fragment and target in pages:
                fragment = urllib.parse.unquote(parts.fragment)
                if fragment not in pages[target].anchors:
                    broken.append(f"{path.relative_to(folder)}: {link}: no such place")
    return broken


def clear(output: Path) -> None:
    """Remove an earlier build, and make the folder. End the program if the folder has files of others."""
    if output != DEFAULT_OUTPUT and output.exists() and any(output.iterdir()) and not (output / MARKER).exists():
        sys.exit(
            f"a build in {output} was asked for, but the files there are of no earlier build. Name another folder."
        )
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    (output / MARKER).touch()


def build(output: Path, gallery: bool = True, external: bool = False) -> Path:
    """Build the site and return its folder.

    Args:
        output: gets ``source``, ``doctrees`` and ``html``; a new or empty folder, or one with an earlier build.
        gallery: False to leave the examples out, which saves running them.
        external: True to check links to other sites as well.
    """
    source, target = output / "source", output / "html"
    clear(output)
    stage(source, gallery)
    shutil.copytree(SITE / "try", source / "_static" / "try")
    subprocess.run([sys.executable, SITE / "browser_exports.py", source / "_static" / "try"], check=True)
    subprocess.run([sys.executable, CHECKOUT / "web/python/build_page.py", source / "_static" / "python"], check=True)
    sphinx("html", source, target, gallery)
    if broken := broken_links(target):
        sys.exit("\n".join(["These links lead nowhere:", *broken]))
    if external:
        sphinx("linkcheck", source, output / "links", gallery)
    return target


def main() -> None:
    """Build the site as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?", type=Path, default=DEFAULT_OUTPUT, metavar="OUTPUT")
    parser.add_argument("--no-gallery", action="store_true", help="leave the examples out")
    parser.add_argument("--external", action="store_true", help="check links to other sites, too")
    options = parser.parse_args()
    print(build(options.output, not options.no_gallery, options.external) / "index.html")


if __name__ == "__main__":
    main()
