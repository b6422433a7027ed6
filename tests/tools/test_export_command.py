"""`gpuscan export`: the folder, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tools.command_line import fails, run

MASKS = "def odd(v):\n    return v % 2 == 1\n\n\ndef same(v):\n    return v\n"


def test_an_export_into_what_is_no_folder(files, capsys):
    """Exit with 2 if a file is in the way, and with 1 if a file cannot be written."""
    code, err = fails(capsys, "export", "in.npy/web")
    assert (code, "in.npy is not a folder" in err) == (2, True)
    Path("web/scan.js").mkdir(parents=True)
    code, err = fails(capsys, "export", "web", "--force")
    assert (code, "web cannot be written: " in err) == (1, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--dtype", "complex64,complex64,complex64"], "3"),
        (["--dtype", "a=float32,a=bool"], "Name each once"),
        (["--op", "none.py:f"], "there is no file none.py"),
        (["--op", "ends.py:f"], "ends.py cannot be run (SystemExit: 3)"),
        (["--dtype", "float64"], "no 64-bit"),
        (["--op", "bitwise_or"], "float32"),
        (["--compact", "--reverse"], "--compact was passed with --reverse"),
        (["--compact", "--op", "maximum"], "Leave out op"),
        (["--mask", "masks.py:odd"], "without --compact"),
        (["--compact", "--mask", "masks.py:even"], "defines no function or operator 'even'"),
        (["--compact", "--mask", "masks.py:same"], "must give one bool"),
    ],
)
def test_an_export_of_what_no_browser_runs(files, capsys, options, told):
    Path("ends.py").write_text("raise SystemExit(3)")
    Path("masks.py").write_text(MASKS)
    code, err = fails(capsys, "export", "web", *options)
    assert (code, told in err) == (2, True)
    assert not Path("web").exists()


def test_an_export_of_a_compaction(files, capsys):
    """Export one by a mask, and one by a function."""
    Path("masks.py").write_text(MASKS)
    for options, kind in (([], "mask"), (["--mask", "masks.py:odd"], "function")):
        code, out, _ = run(capsys, "export", kind, "--compact", "--dtype", "int32", *options)
        assert (code, "compact by three_dispatch or fallback" in out) == (0, True)
        assert json.loads(Path(kind, "plan.json").read_text())["compact"] == kind


@pytest.mark.skipif(os.name != "posix", reason="POSIX links")
def test_an_export_does_not_write_through_links(files, capsys):
    """Replace links in the folder with --force, and leave their targets as they are."""
    names = ["scan.js", "check.js", "index.html", "plan.json", "check.input", "check.expected", "scan.wgsl"]
    Path("web").mkdir()
    for name in names:
        Path(f"victim-{name}").write_text("mine")
        Path("web", name).symlink_to(Path.cwd() / f"victim-{name}")
    assert fails(capsys, "export", "web")[0] == 2
    assert all(Path("web", name).is_symlink() for name in names)
    assert run(capsys, "export", "web", "--force")[0] == 0
    for name in names:
        assert Path(f"victim-{name}").read_text() == "mine"
        assert not Path("web", name).is_symlink()
        assert Path("web", name).stat().st_size > 4


def test_an_export_leaves_nothing_of_the_one_before(files, capsys):
    """Remove the shaders of an earlier export of the same scan, and nothing else."""
    for strategy, stages in (("auto", 9), ("three_dispatch", 3), ("fallback", 1)):
        assert run(capsys, "export", "web", "--strategy", strategy)[0] == 0
        Path("web/mine.wgsl").write_text("")
        assert len(list(Path("web").glob("*.wgsl"))) == stages + 1, strategy


def contents(folder):
    """Return the bytes of each file in a folder."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.mark.parametrize("name", ["index.html", "check.js", "plan.json", "notes.txt"])
def test_an_export_leaves_the_files_of_others_alone(files, capsys, name):
    """Refuse a folder with any file that no export wrote, and name the file; replace it with --force."""
    Path("mysite").mkdir()
    Path("mysite", name).write_text('{"hand": "written"}')
    code, err = fails(capsys, "export", "mysite")
    assert (code, name in err, "--force" in err) == (2, True, True)
    assert contents("mysite") == {name: b'{"hand": "written"}'}
    assert run(capsys, "export", "mysite", "--force")[0] == 0
    assert (Path("mysite", name).read_text() == '{"hand": "written"}') == (name == "notes.txt")


@pytest.mark.parametrize("name", ["index.html", "subgroups.wgsl", "check.input", "plan.json"])
def test_an_export_leaves_changed_files_of_an_export_alone(files, capsys, name):
    """Refuse an export in which somebody has changed a file."""
    assert run(capsys, "export", "web")[0] == 0
    assert name in contents("web")
    Path("web", name).write_text("changed")
    before = contents("web")
    code, err = fails(capsys, "export", "web", "--length", "1000")
    assert (code, "--force" in err, name == "plan.json" or name in err) == (2, True, True)
    assert contents("web") == before


def test_an_export_of_another_scan_needs_force(files, capsys):
    """Name both scans, and change nothing without --force."""
    assert run(capsys, "export", "web", "--exclusive")[0] == 0
    before = contents("web")
    code, err = fails(capsys, "export", "web", "--op", "maximum", "--dtype", "int32")
    assert (code, "maximum of int32" in err, "add of float32, exclusive" in err, "--force" in err) == (
        2,
        True,
        True,
        True,
    )
    assert contents("web") == before
    assert run(capsys, "export", "web", "--op", "maximum", "--dtype", "int32", "--force")[0] == 0
    assert json.loads(Path("web/plan.json").read_text())["operator"] == "maximum"


def test_an_export_that_was_interrupted_goes_on(files, capsys, monkeypatch):
    """Write some files of an export with another length, and then all of them."""
    assert run(capsys, "export", "web", "--length", "1000")[0] == 0
    replace = os.replace
    calls: list[Any] = []

    def interrupt_replace(partial, path):
        if len(calls) == 12:
            raise KeyboardInterrupt
        calls.append(path)
        replace(partial, path)

    monkeypatch.setattr("os.replace", interrupt_replace)
    assert fails(capsys, "export", "web", "--length", "100000")[0] == 130
    monkeypatch.setattr("os.replace", replace)
    assert len(calls) == 12
    assert run(capsys, "export", "web", "--length", "100000")[0] == 0
    assert json.loads(Path("web/plan.json").read_text())["length"] == 100000


def test_an_export_of_an_operator_in_a_file(files, capsys):
    Path("ops.py").write_text("def later(l, r):\n    return {'v': r['v'], 'n': l['n'] + r['n']}\n")
    options = ["--op", "ops.py:later", "--dtype", "v=float32,n=uint32", "--segments", "--reverse", "--length", "1000"]
    code, out, err = run(capsys, "export", "web", *options)
    assert (code, err, "later by three_dispatch or fallback" in out) == (0, "", True)
    plan = json.loads(Path("web/plan.json").read_text())
    assert [field["name"] for field in plan["fields"]] == ["v", "n"]
    assert (plan["segments"], plan["reverse"], plan["exclusive"]) == (True, True, False)
    for op, told in (("ops.py:nothing", "defines no function"), ("in.npy.py:f", "there is no file")):
        assert told in fails(capsys, "export", "web", "--op", op)[1]
