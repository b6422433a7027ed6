"""`gpuscan scan` on files that are no arrays, or arrays of the wrong kind: one line, an exit code, and no OUT.npy.

And the caches on disk, damaged in any way: they count as absent.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import platformdirs
import pytest
from hypothesis import strategies as st

from gpuscan import cli
from gpuscan.device import capability_probe
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.plan import plan_scan
from tests.fakes import LIMITS, capabilities, spec

EXAMPLES = hypothesis.settings().max_examples
MANY = hypothesis.settings(
    max_examples=EXAMPLES, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)


# ----- .npy files


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    """Return a .npy file with this header, right or wrong."""
    text = header.encode("latin1") + b"\n"
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", size) + text + data


def format_header(descr: str = "'<i4'", order: str = "False", shape: str = "(3,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def save_bytes(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


class Touch:
    """Makes a file where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("touched"),)


WHOLE = save_bytes(np.arange(3, dtype=np.int32))
DATA = np.arange(3, dtype=np.int32).tobytes()
BAD = {
    "empty": b"",
    "the magic alone": b"\x93NUMPY",
    "a cut header": WHOLE[:40],
    "a cut length": WHOLE[:9],
    "cut data": WHOLE[:-1],
    "no data": WHOLE[:-12],
    "other magic": b"\x93NUMPX" + WHOLE[6:],
    "text": b"3 1 4 1 5\n",
    "a zip": b"PK\x03\x04" + bytes(100),
    "a pickle": pickle.dumps(Touch()),
    "version 9": npy(format_header(), DATA, version=(9, 0)),
    "version 0": npy(format_header(), DATA, version=(0, 0)),
    "a header longer than the file": npy(format_header(), DATA, length=60_000),
    "a header of 4 GiB": npy(format_header(), DATA, version=(2, 0), length=2**32 - 1),
    "a header of spaces": npy(" " * 60_000, DATA),
    "a header cut by its length": npy(format_header(), DATA, length=20),
    "a header in no code": npy("\x00\xff\xfe", DATA),
    "code in the header": npy("__import__('pathlib').Path('touched').touch()", DATA),
    "code in the shape": npy(format_header(shape="(__import__('pathlib').Path('touched').touch(), 3)"), DATA),
    "deep brackets": npy("(" * 9000 + ")" * 9000, DATA),
    "a deep sum": npy("-" * 9000 + "1", DATA),
    "a list": npy("[1, 2]", DATA),
    "no shape": npy("{'descr': '<i4', 'fortran_order': False, }", DATA),
    "a key too many": npy("{'descr': '<i4', 'fortran_order': False, 'shape': (3,), 'x': 1}", DATA),
    "a shape of text": npy(format_header(shape="'3'"), DATA),
    "a shape of floats": npy(format_header(shape="(3.0,)"), DATA),
    "a shape of bools": npy(format_header(shape="(True, 7)"), DATA),
    "a negative shape": npy(format_header(shape="(-3,)"), DATA),
    "two negative lengths": npy(format_header(shape="(-1, -3)"), DATA),
    "a shape that overflows": npy(format_header(shape="(4294967296, 4294967296, 4294967296)"), DATA),
    "a shape beyond 64 bits": npy(format_header(shape="(99999999999999999999,)"), DATA),
    "a shape that wraps to the data's": npy(format_header(shape="(4611686018427387905, 4)"), DATA),
    "a shape larger than the file": npy(format_header(shape="(1000000,)"), DATA),
    "a shape larger than memory": npy(format_header(shape="(1099511627776,)"), DATA),
    "nothing of a huge shape": npy(format_header(shape="(0, 9223372036854775807)")),
    "more axes than NumPy has": npy(format_header(shape="(" + "1," * 99 + ")"), DATA),
    "no axes": save_bytes(np.int32(3)),
    "objects": save_bytes(np.array([Touch(), None], object), allow_pickle=True),
    "objects by name": npy(format_header("'|O'", shape="(1,)"), pickle.dumps(Touch())),
    "words": save_bytes(np.array(["a", "b"])),
    "bytes": save_bytes(np.array([b"a", b"b"])),
    "dates": save_bytes(np.array(["2020-01-01"], "datetime64[D]")),
    "raw bytes": save_bytes(np.zeros(3, "V8")),
    "long doubles": save_bytes(np.zeros(3, np.longdouble)),
    "doubled complex": save_bytes(np.zeros(3, np.complex128)),
    "no such dtype": npy(format_header("'<q9'"), DATA),
    "a dtype of code": npy(format_header("'print(1)'"), DATA),
    "a dtype without a size": npy(format_header("'V0'"), DATA),
    "a dtype of 2 GiB": npy(format_header("'V2147483647'"), DATA),
    "a record": save_bytes(np.zeros(3, [("a", "i4"), ("b", "f4")])),
    "a record of objects": npy(format_header("[('a', '|O')]", shape="(1,)"), DATA),
    "a record of itself": npy(format_header("[('a', [('a', [('a', 'x')])])]"), DATA),
}


def check(content: bytes, capsys: pytest.CaptureFixture[str], *options: str) -> int:
    """Return the exit code: 1 or 2, with one line and no file written; or 0, with NumPy's result."""
    Path("in.npy").write_bytes(content)
    code = cli.run(["scan", "in.npy", "out.npy", "--device", "numpy", *options])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert Path("in.npy").read_bytes() == content
    if code:
        assert code in (1, 2)
        assert printed.err.startswith("gpuscan: ")
        assert any(word in printed.err for word in ("in.npy", "dtype", "shape"))
        assert printed.err.count("\n") == 1
        assert os.listdir() == ["in.npy"]
        return code
    assert printed.err == ""
    assert sorted(os.listdir()) == ["in.npy", "out.npy"]
    array = np.load("in.npy", allow_pickle=False)
    result = np.load("out.npy", allow_pickle=False)
    wanted = np.add.accumulate(array, axis=0, dtype=array.dtype.newbyteorder("="))
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(result, wanted)
    Path("out.npy").unlink()
    return 0


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
def test_files_that_are_no_arrays_for_a_scan(folder: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    assert check(content, capsys, "--axis", "0") == 2


@pytest.mark.parametrize(
    "content",
    [
        save_bytes(np.arange(6, dtype=">i4").reshape(2, 3)),
        save_bytes(np.asfortranarray(np.arange(12, dtype=np.uint16).reshape(3, 4))),
        npy(format_header(shape="(3,)"), DATA + b"more than the shape says"),
        npy(format_header(shape="(0,)")),
        npy(format_header(shape="(0, 5)")),
        npy(format_header(), DATA, version=(2, 0)),
        npy(format_header(), DATA, version=(3, 0)),
        npy(format_header("'<i4'", order="True", shape="(3, 1)"), DATA),
    ],
    ids=["big-endian", "Fortran", "a tail", "empty", "empty and wide", "version 2", "version 3", "unpadded"],
)
def test_files_that_are_odd_and_right(folder: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    assert check(content, capsys, "--axis", "0") == 0


@MANY
@hypothesis.given(data=st.data())
def test_files_with_a_few_bytes_changed(folder: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    """Overwrite, cut or lengthen headers and lengths of real files at random."""
    content = bytearray(data.draw(st.sampled_from([WHOLE, save_bytes(np.ones((2, 3), ">f4")), BAD["a record"]])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b"(),'[]{}0123456789-<>|OiVx")))
    stop = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    check(bytes(content[:stop]) + data.draw(st.binary(max_size=8)), capsys, "--axis", "0")


def test_a_folder_and_a_file_that_may_not_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "in.npy").mkdir()
    assert cli.run(["scan", "in.npy", "out.npy"]) == 2
    (folder / "in.npy").rmdir()
    os.symlink("in.npy", "in.npy")  # leads to itself
    assert cli.run(["scan", "in.npy", "out.npy"]) in (1, 2)
    assert capsys.readouterr().err.count("\n") == 2
    assert os.listdir() == ["in.npy"]


# ----- Caches


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    return tmp_path / "gpuscan"


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**64, 10**400, 1e308, 5e-324, float("nan"), float("inf"), "", "numpy", [], {}]),
    st.text(max_size=5),
    st.recursive(st.integers(-1, 40), lambda inner: st.lists(inner, max_size=3), max_leaves=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def spoil_value(draw: Any, value: Any) -> Any:
    """Return the JSON value with a part of it replaced, removed or added."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        action = draw(st.integers(0, 9))
        if action == 0:
            return {name: each for name, each in value.items() if name != key}
        if action == 1:
            return value | {draw(st.text(max_size=4)): draw(ODD)}
        return value | {key: spoil_value(draw, value[key])}
    return draw(ODD)


@MANY
@hypothesis.given(data=st.data())
def test_a_spoiled_probe_cache_counts_as_absent_or_is_whole(cache: Path, data: st.DataObject) -> None:
    """Assert that nothing of a wrong type is taken from damaged or other JSON."""
    found = capabilities()
    capability_probe.store_findings(found)
    [file] = (cache / "probe").iterdir()
    kept = json.loads(file.read_text())
    text = json.dumps(spoil_value(data.draw, kept))
    file.write_bytes(text[: data.draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))].encode())
    named = {each: getattr(found, each) for each in found.__dataclass_fields__}
    loaded = capability_probe.load_findings(named)
    if loaded is not None:
        assert Capabilities.from_json(json.loads(json.dumps(loaded.to_json()))) == loaded
        assert type(loaded.spins_per_second) is float
        plan = plan_scan(spec(row_length=100_000), replace(loaded, limits=LIMITS), "lookback", "a test")
        assert 0 < plan.spin_rounds < 1 << 32
        assert all(type(size) is int for size in (*loaded.subgroup_sizes, *loaded.limits.values()))
    capability_probe.store_findings(found)
    assert capability_probe.load_findings(named) == found
