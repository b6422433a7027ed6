"""Checks that the checkout can be released; script/release runs it. Every check prints a line, and all run.

version        gpuscan/_version.py, web/package.json, conda/recipe.yaml and the tag of the commit have the same version.
requirements   conda/recipe.yaml has the same requirements as pyproject.toml.
changelog      CHANGELOG.md has a section for the version, or a section for unreleased changes.
sdist          It has every file of the repository, and builds the wheel.
wheel          It has the package, the shaders, the page of exports, and nothing else. Its metadata is complete.
environment    A fresh environment with the wheel imports only what the wheel requires, and its commands work.
tests          The tests of the documents and of the command line pass in the unpacked sdist.
npm            The npm package has the files that its description names.
"""

from __future__ import annotations

import argparse
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]

# Files of the repository that no sdist needs: hatchling leaves these out.
NOT_IN_SDIST = re.compile(r"\.gitignore$|\.gitattributes$")

# Tests that prove the sdist complete in a minute. script/test runs all.
QUICK_TESTS = ("tests/test_docs.py", "tests/tools/test_scan_command.py", "tests/planning", "tests/problem")

# Imports everything that needs no extra, and prints the distributions that came in.
IMPORTED = """
import importlib, importlib.metadata, pkgutil, sys
import gpuscan
optional = {"gpuscan.torch", "gpuscan.jax", "gpuscan.dask", "gpuscan.signal", "gpuscan.__main__"}
for module in pkgutil.walk_packages(gpuscan.__path__, "gpuscan."):
    if module.name not in optional:
        importlib.import_module(module.name)
owners = importlib.metadata.packages_distributions()
print(gpuscan.__file__)
print(*sorted({owner for name in sys.modules for owner in owners.get(name.partition(".")[0], [])}))
"""


class Failed(Exception):
    """A check that failed, with what to do."""


def run(*command: object, cwd: Path = CHECKOUT, **environment: str) -> str:
    """Return what a command prints.

    Raises:
        Failed: it did not succeed.
    """
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean | environment, capture_output=True, text=True
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise Failed(f"{' '.join(str(part) for part in command[:4])} … exited with {done.returncode}:\n{tail}")
    return done.stdout


def list_files() -> list[str]:
    """Return the files of the repository."""
    return run("git", "ls-files").splitlines()


class Release:
    """The checks of one release, with what they share.

    Args:
        folder: where sdist and wheel are built, and where temporary files go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        match = re.search(r'__version__ = "(.+)"', (CHECKOUT / "gpuscan/_version.py").read_text(encoding="utf-8"))
        assert match is not None
        self.version = match[1]
        self.dist = folder / "dist"
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", self.dist, CHECKOUT)
        (self.sdist,) = self.dist.glob("*.tar.gz")
        (self.wheel,) = self.dist.glob("*.whl")

    def check_version(self) -> str:
        if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", self.version):
            raise Failed(f"{self.version} is no version such as 1.2.0 or 1.2.0rc1; mend gpuscan/_version.py")
        package = json.loads((CHECKOUT / "web/package.json").read_text(encoding="utf-8"))["version"]
        recipe = (CHECKOUT / "conda/recipe.yaml").read_text(encoding="utf-8")
        citation = (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8")
        elsewhere = {
            "CITATION.cff": next(iter(re.findall(r"^version: (.+)$", citation, re.M)), ""),
            "web/package.json": package,
            "conda/recipe.yaml": next(iter(re.findall(r'^  version: "(.+)"', recipe, re.M)), ""),
        }
        wrong = {name: version for name, version in elsewhere.items() if version != self.version}
        if wrong:
            raise Failed(f"gpuscan/_version.py has {self.version}, but {wrong}; use one version")
        tags = [tag for tag in run("git", "tag", "--points-at", "HEAD").split() if tag.startswith("v")]
        if tags and f"v{self.version}" not in tags:
            raise Failed(f"the commit has the tag {tags[0]}, and the version is {self.version}; tag v{self.version}")
        return self.version + (" (tagged)" if tags else " (no tag yet)")

    def check_requirements(self) -> str:
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        # conda has no packages for web pages, so a marker about them means nothing there.
        wanted = {need.partition(";")[0].replace(" ", "") for need in project["dependencies"]}
        recipe = (CHECKOUT / "conda/recipe.yaml").read_text(encoding="utf-8")
        run_section = recipe[recipe.index("  run:") : recipe.index("tests:")]
        requirements = {
            need.replace(" ", "").replace("wgpu-py", "wgpu") for need in re.findall(r"^    - (.+)", run_section, re.M)
        }
        python = f"python{project['requires-python']}"
        if requirements != wanted | {python}:
            raise Failed(f"conda/recipe.yaml and pyproject.toml differ in {sorted(requirements ^ (wanted | {python}))}")
        return f"{len(wanted)} packages"

    def check_changelog(self) -> str:
        text = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
        sections = dict(re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?\n(.*?)(?=^## |\Z)", text, re.M | re.S))
        tagged = bool(run("git", "tag", "--points-at", "HEAD", "-l", "v*").split())
        wanted = [self.version] if tagged else [self.version, "Unreleased"]
        named = next((name for name in wanted if sections.get(name, "").strip()), None)
        if named is None:
            raise Failed(f"CHANGELOG.md has no section [{wanted[0]}] with text; write it, with the date")
        return f"[{named}], {len(sections[named].splitlines())} lines"

    def check_sdist(self) -> str:
        with tarfile.open(self.sdist) as archive:
            members = {name.partition("/")[2] for name in archive.getnames()}
        missing = [name for name in list_files() if name not in members and not NOT_IN_SDIST.search(name)]
        missing = [name for name in missing if (CHECKOUT / name).exists()]
        if missing:
            raise Failed(f"{self.sdist.name} lacks {len(missing)} files: {', '.join(missing[:8])}; see pyproject.toml")
        return f"{len(members)} files, {self.sdist.stat().st_size >> 10} KiB"

    def check_wheel(self) -> str:
        with zipfile.ZipFile(self.wheel) as archive:
            members = set(archive.namelist())
            metadata = email.message_from_bytes(archive.read(f"gpuscan-{self.version}.dist-info/METADATA"))
        wanted = {"gpuscan/cli.py"}
        for name in list_files():
            if name.startswith("gpuscan/") and name != "gpuscan/cli.py":
                wanted.add(name)
            elif name.startswith("shaders/"):
                wanted.add(f"gpuscan/{name}")
        own = {name for name in members if not name.startswith(f"gpuscan-{self.version}.dist-info/")}
        if own != wanted:
            missing, other = sorted(wanted - own)[:8], sorted(own - wanted)[:8]
            raise Failed(f"{self.wheel.name} lacks {missing} and has {other} too many; see pyproject.toml")
        for name in ("Summary", "License-Expression", "License-File", "Requires-Python", "Description-Content-Type"):
            if not metadata.get(name):
                raise Failed(f"the wheel's metadata lacks {name}; see pyproject.toml")
        return f"{len(members)} files, {self.wheel.stat().st_size >> 10} KiB, Python {metadata['Requires-Python']}"

    def check_environment(self) -> str:
        venv.create(self.folder / "env", with_pip=True)
        commands = self.folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        run(commands / "python", "-m", "pip", "install", "--quiet", self.wheel, cwd=self.folder)
        required = self._find_requirements(commands)
        file, imported = run(commands / "python", "-c", IMPORTED, cwd=self.folder).splitlines()[-2:]
        if Path(file).is_relative_to(CHECKOUT):
            raise Failed("the fresh environment imports the checkout; run from another folder")
        beyond = {_normal(name) for name in imported.split()} - required - {"gpuscan", "pip", "setuptools"}
        if beyond:
            raise Failed(f"gpuscan imports {sorted(beyond)}, which it does not require; see pyproject.toml")
        told = run(commands / "gpuscan", "--version", cwd=self.folder)
        if self.version not in told:
            raise Failed(f"gpuscan --version prints {told.strip()!r}; expected {self.version}")
        run(commands / "gpuscan", "probe", "--json", cwd=self.folder)
        run(commands / "gpuscan", "export", "page", "--length", "1000", cwd=self.folder)
        return f"imports {len(imported.split()) - 1} distributions, all required"

    def _find_requirements(self, commands: Path) -> set[str]:
        """Return the distributions that gpuscan requires, directly or not."""
        code = (
            "import importlib.metadata as m, re, json\n"
            "seen, left = set(), ['gpuscan']\n"
            "while left:\n"
            "    try: needs = m.requires(left.pop()) or []\n"
            "    except m.PackageNotFoundError: continue\n"
            "    for need in needs:\n"
            "        name = re.match(r'[\\w.-]+', need)[0]\n"
            "        if 'extra ==' not in need and name not in seen: seen.add(name); left.append(name)\n"
            "print(*seen)"
        )
        return {_normal(name) for name in run(commands / "python", "-c", code, cwd=self.folder).split()}

    def check_tests(self) -> str:
        with tarfile.open(self.sdist) as archive:
            archive.extractall(self.folder / "unpacked", filter="data")
        (root,) = (self.folder / "unpacked").iterdir()
        # The site is staged from what git lists.
        run("git", "init", "--quiet", cwd=root)
        tests = [test for test in QUICK_TESTS if (root / test).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        told = run(*command, cwd=root, PYTHONPATH=str(root), GPUSCAN_TEST_IN_TURN="1")
        return next(line for line in reversed(told.splitlines()) if "passed" in line)

    def check_npm(self) -> str:
        npm = shutil.which("npm")
        if npm is None:
            return "not checked: npm is not installed"
        run("node", "build.mjs", cwd=CHECKOUT / "web", PYTHON=sys.executable)
        told = run(npm, "pack", "--dry-run", "--json", "--ignore-scripts", cwd=CHECKOUT / "web")
        (package,) = json.loads(told)
        members = {file["path"] for file in package["files"]}
        wanted = {"LICENSE", "README.md", "dist/index.js", "dist/index.d.ts", "dist/scan.js", "dist/scan.d.ts"}
        if wanted - members or package["version"] != self.version:
            raise Failed(f"the npm package {package['version']} lacks {sorted(wanted - members)}; see web/package.json")
        return f"{len(members)} files, {package['size'] >> 10} KiB"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Run every check, print a line for each, and return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="check only (what is done in any case: nothing is published)"
    )
    parser.add_argument("--no-tests", action="store_true", help="leave the tests out")
    parser.add_argument("--dist", type=Path, metavar="FOLDER", help="keep the sdist and the wheel in FOLDER")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="gpuscan-release-", ignore_cleanup_errors=True) as folder:
        release = Release(Path(folder))
        checks: dict[str, Callable[[], str]] = {
            "version": release.check_version,
            "requirements": release.check_requirements,
            "changelog": release.check_changelog,
            "sdist": release.check_sdist,
            "wheel": release.check_wheel,
            "environment": release.check_environment,
            "tests": release.check_tests,
            "npm": release.check_npm,
        }
        if options.no_tests:
            del checks["tests"]
        for name, check in checks.items():
            try:
                print(f"ok      {name:12} {check()}", flush=True)
            except Failed as error:
                failed += 1
                print(f"FAILED  {name:12} {error}", flush=True)
        if options.dist and not failed:
            shutil.copytree(release.dist, options.dist, dirs_exist_ok=True)
    print("ready to be released" if not failed else f"{failed} checks failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
