"""Files that are replaced whole or not at all, whatever else is in their folder."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from gpuscan.replaced_file import replace_file
from tests.harness.processes import CHILD_SECONDS, start

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX links, locks and signals")

# A process that says when it has a partial file for out.npy, and then waits.
HOLDER = (
    "import sys; from pathlib import Path; from gpuscan.replaced_file import replace_file\n"
    "with replace_file(Path('out.npy')) as partial:\n"
    "    print(partial, flush=True); sys.stdin.read()\n"
)


def holder() -> tuple[subprocess.Popen[str], Path]:
    """Start a process that writes out.npy, and return it with its partial file."""
    process = start("-c", HOLDER, stdin=subprocess.PIPE)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def write(path: Path, content: str = "new") -> None:
    with replace_file(path) as partial:
        partial.write_text(content)


def test_a_failure_keeps_the_old_file(folder: Path) -> None:
    Path("out.npy").write_text("old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError), replace_file(Path("out.npy")) as partial:
        fail(partial)
    assert Path("out.npy").read_text() == "old"
    assert os.listdir() == ["out.npy"]


def test_an_interrupt_as_soon_as_the_file_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> bool:
        assert len(os.listdir()) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuscan.replaced_file._locks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(Path("out.npy"))
    assert os.listdir() == []


@posix
def test_the_partial_file_of_a_killed_process_is_removed(folder: Path) -> None:
    process, partial = holder()
    process.kill()
    process.communicate(timeout=CHILD_SECONDS)
    assert partial.exists()
    write(Path("out.npy"))
    assert os.listdir() == ["out.npy"]


@posix
def test_the_partial_file_of_a_living_process_stays(folder: Path) -> None:
    process, partial = holder()
    try:
        write(Path("out.npy"), "first")
        assert partial.exists()
        assert Path("out.npy").read_text() == "first"
        partial.write_text("second")
    finally:
        process.communicate("", timeout=CHILD_SECONDS)
    assert process.returncode == 0
    assert Path("out.npy").read_text() == "second"
    assert os.listdir() == ["out.npy"]


def test_leftovers_of_another_file_stay(folder: Path) -> None:
    with replace_file(Path("other.npy")) as partial:
        write(Path("out.npy"))
        assert partial.exists()


def test_a_name_that_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try another name, and leave the file with the first name alone."""
    tokens = iter(["taken", "taken", "free"])
    monkeypatch.setattr("gpuscan.replaced_file.secrets.token_hex", lambda size: next(tokens))
    with replace_file(Path("out.npy")) as first:
        first.write_text("first")
        with replace_file(Path("out.npy")) as second:
            assert second != first
            second.write_text("second")
        assert first.read_text() == "first"


@pytest.mark.parametrize("length", [200, 249, 255])
def test_a_long_name(folder: Path, length: int) -> None:
    name = "x" * (length - 4) + ".npy"
    write(Path(name))
    assert os.listdir() == [name]


@posix
def test_permissions_are_kept_and_links_replaced(folder: Path) -> None:
    Path("out.npy").write_text("old")
    Path("out.npy").chmod(0o640)
    write(Path("out.npy"))
    assert stat.S_IMODE(os.stat("out.npy").st_mode) == 0o640
    Path("link").symlink_to("out.npy")
    write(Path("link"), "through")
    assert not Path("link").is_symlink()
    assert Path("out.npy").read_text() == "new"


@posix
def test_a_link_among_the_leftovers_is_not_followed(folder: Path) -> None:
    """Take neither the link nor its target for a leftover."""
    Path("precious").write_text("mine")
    with replace_file(Path("out.npy")) as partial:
        link = partial.with_name(partial.name.replace(".partial", "0.partial"))
        link.symlink_to("precious")
    write(Path("out.npy"))
    assert Path("precious").read_text() == "mine"
    assert link.is_symlink()
