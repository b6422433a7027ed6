"""The record of capabilities, its JSON, and the cache on disk."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from gpuscan.device import capability_probe, disk_cache
from gpuscan.device.adapter_requirements import choose_features, choose_limits
from gpuscan.planning.capabilities import Capabilities
from tests.fakes import FakeAdapter, capabilities
from tests.harness.processes import python

# ----- The record


def through_pickle(found: Capabilities, protocol: int) -> Capabilities:
    return pickle.loads(pickle.dumps(found, protocol))


def test_json_and_back():
    """Convert to JSON text and back, as the cache does."""
    found = capabilities(distrusted=("lookback",))
    assert Capabilities.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_capabilities_are_frozen_and_can_be_a_key():
    """Assert that they can be a key, since plans are cached by them."""
    found = capabilities()
    with pytest.raises(AttributeError):
        found.float64 = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.limits["max-buffer-size"] = 1  # type: ignore[index]
    assert len({found, capabilities()}) == 1


CHANGES: list[Callable[[Any], Any]] = [
    lambda limits: limits.__setitem__("max-buffer-size", 1),
    lambda limits: limits.__delitem__("max-buffer-size"),
    lambda limits: limits.__ior__({"max-buffer-size": 1}),
    lambda limits: limits.update({"max-buffer-size": 1}),
    lambda limits: limits.setdefault("new", 1),
    lambda limits: limits.pop("max-buffer-size"),
    lambda limits: limits.popitem(),
    lambda limits: limits.clear(),
]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, replace, *(partial(through_pickle, protocol=p) for p in range(6))]
)
def test_capabilities_can_be_copied_and_pickled(copied: Callable[[Capabilities], Capabilities]) -> None:
    """Assert that copies are equal and also frozen."""
    found = capabilities()
    twin = copied(found)
    assert twin == found
    assert hash(twin) == hash(found)
    for change in CHANGES:
        with pytest.raises(TypeError, match="read-only"):
            change(twin.limits)
    assert twin.limits == found.limits


def test_capabilities_as_a_dict():
    """Assert that a dict of the record holds the same limits, and that JSON can hold it."""
    found = capabilities()
    as_dict = asdict(found)
    assert Capabilities(**as_dict) == found
    assert dict(as_dict["limits"]) == dict(found.limits)
    assert json.loads(json.dumps(as_dict["limits"])) == dict(found.limits)


WRONG: dict[str, list[Any]] = {
    "str": [None, 1, ["a"]],
    "int": [None, "1", 1.0, True],
    "bool": [None, 1, "true"],
    "float": [None, "1", True, -1.0, 0.0, float("nan"), float("inf"), 10**400],
    "frozenset[str]": [None, "subgroup", [1]],
    "tuple[int, ...]": [None, 32, ["32"], [True]],
    "tuple[str, ...]": [None, "lookback", [1]],
    "Mapping[str, int]": [None, [], {"max": "1"}, {"max": True}],
}


@pytest.mark.parametrize(
    ("name", "value"), [(each.name, value) for each in fields(Capabilities) for value in WRONG[str(each.type)]]
)
def test_a_wrong_type_is_found(name, value):
    """Assert that a value of a wrong type is found in every field, and that the message names the field."""
    with pytest.raises(ValueError, match=name):
        Capabilities.from_json(capabilities().to_json() | {name: value})


@pytest.mark.parametrize("data", [None, [], "text", {}, 3])
def test_other_json_is_refused(data):
    """Assert that JSON of any other kind is refused, objects or not."""
    with pytest.raises(ValueError, match="capabilities"):
        Capabilities.from_json(data)


def test_missing_and_unknown_fields_are_refused():
    """Assert that missing and unknown fields are refused: another version wrote the file."""
    data = capabilities().to_json()
    with pytest.raises(ValueError, match="novel"):
        Capabilities.from_json(data | {"novel": 1})
    del data["driver"]
    with pytest.raises(ValueError, match="driver"):
        Capabilities.from_json(data)


def test_features_and_limits_to_ask_for():
    """Ask for the useful features that the adapter has, and for mapped storage only if memory is shared."""
    features = frozenset({"subgroup", "shader-f64", "multiview", "mappable-primary-buffers"})
    assert choose_features(FakeAdapter(features=features)) == ["subgroup", "shader-f64"]
    shared = FakeAdapter(adapter_type="IntegratedGPU", features=features)
    assert choose_features(shared) == ["subgroup", "shader-f64", "mappable-primary-buffers"]
    limits = choose_limits(FakeAdapter())
    assert limits["max-buffer-size"] == 1 << 30
    assert "max-texture-dimension-1d" not in limits


# ----- The cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    return tmp_path / "gpuscan" / "probe"


def describe_findings(found: Capabilities) -> dict[str, Any]:
    """Return the fields that a device reports of itself."""
    return {each.name: getattr(found, each.name) for each in fields(found)}


def test_what_is_stored_is_loaded(folder):
    """Assert that there is one readable file and nothing else."""
    found = capabilities()
    assert capability_probe.load_findings(describe_findings(found)) is None
    capability_probe.store_findings(found)
    assert capability_probe.load_findings(describe_findings(found)) == found
    [file] = folder.iterdir()
    assert json.loads(file.read_text())["content"]["name"] == "GeForce"


@pytest.mark.parametrize(
    "change", [{"driver": "NVIDIA 581"}, {"implementation": "wgpu-native 30"}, {"features": frozenset()}]
)
def test_another_driver_or_version_is_another_entry(folder, change):
    """Assert that another driver, version or set of features has findings of its own."""
    capability_probe.store_findings(capabilities())
    assert capability_probe.load_findings(describe_findings(capabilities(**change))) is None


def test_another_version_of_gpuscan_is_another_entry(folder, monkeypatch):
    """Assert that another version of gpuscan has findings of its own."""
    found = capabilities()
    capability_probe.store_findings(found)
    monkeypatch.setattr(capability_probe, "__version__", "99")
    assert capability_probe.load_findings(describe_findings(found)) is None


DAMAGE = {
    "empty": b"",
    "cut short": b'{"key": {"na',
    "not text": b"\xff\xfe\x00\x80",
    "a pickle": b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.",
    "other JSON": b"[1, 2]",
    "null": b"null",
    "a string": b'"key"',
    "deep": b"[" * 100_000,
    "too long": b" " * (1 << 20) + b"{}",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_counts_as_absent_and_is_mended(folder, damage):
    """Write content of any kind in the file's place."""
    found = capabilities()
    capability_probe.store_findings(found)
    [file] = folder.iterdir()
    file.write_bytes(damage)
    assert capability_probe.load_findings(describe_findings(found)) is None
    capability_probe.store_findings(found)
    assert capability_probe.load_findings(describe_findings(found)) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("progress_earlier", "yes"),
        ("spins_per_second", math.inf),
        ("spins_per_second", 5e-324),
        ("timestamp_period", math.nan),
        ("timestamp_period", 5e-324),
        ("timestamp_period", 1e300),
    ],
)
def test_a_wrong_field_counts_as_damage(folder, name, value):
    """Assert that a finding that is no longer a bool does not count, nor a number that no device has."""
    found = capabilities()
    capability_probe.store_findings(found)
    [file] = folder.iterdir()
    data = json.loads(file.read_text())
    data["content"][name] = value
    file.write_text(json.dumps(data))
    assert capability_probe.load_findings(describe_findings(found)) is None


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_numbers_of_a_cache_are_finite(folder, number):
    """Assert that a file with such a number counts as absent for every reader."""
    path = disk_cache.write("speeds", {"key": 1}, 1.5)
    assert path is not None
    path.write_text(path.read_text().replace("1.5", number))
    assert disk_cache.read("speeds", {"key": 1}) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither pipes nor devices among its files")
@pytest.mark.parametrize("kind", ["a link to a device without end", "a pipe without a writer"])
def test_what_is_no_regular_file_counts_as_absent(folder, kind):
    """Read in a process of its own, which is killed if it hangs."""
    path = disk_cache.write("speeds", {"key": 1}, 1.5)
    assert path is not None
    path.unlink()
    if kind.startswith("a link"):
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    code = f"""
import platformdirs
platformdirs.user_cache_dir = lambda name: {str(folder.parent)!r}
from gpuscan.device import disk_cache
print(disk_cache.read("speeds", {{"key": 1}}), disk_cache.write("speeds", {{"key": 1}}, 2.5) is not None)
print(disk_cache.read("speeds", {{"key": 1}}))
"""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)){code}"
    done = python("-c", limit)
    assert done.stdout.split() == ["None", "True", "2.5"], done.stderr


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    """Assert that neither reading nor writing raises."""

    def homeless(*_: Any) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: f"~/.cache/{name}")
    monkeypatch.setattr(Path, "home", homeless)
    assert disk_cache.write("speeds", {"key": 1}, 1.5) is None
    assert disk_cache.read("speeds", {"key": 1}) is None


def test_another_adapters_file_is_not_taken(folder):
    """Assert that a file is not taken for another adapter, if two keys ever share a name."""
    found = capabilities()
    other = capabilities(name="Radeon")
    capability_probe.store_findings(found)
    capability_probe.store_findings(other)
    first, second = folder.iterdir()
    first_text, second_text = first.read_text(), second.read_text()
    first.write_text(second_text)
    second.write_text(first_text)
    assert capability_probe.load_findings(describe_findings(found)) is None
    assert capability_probe.load_findings(describe_findings(other)) is None


@pytest.mark.parametrize("what", ["a file in the folder's place", "a folder in the file's place"])
def test_a_cache_that_cannot_be_used_is_done_without(folder, what):
    """Assert that neither loading nor storing raises, and that no file stays behind."""
    found = capabilities()
    if what == "a file in the folder's place":
        folder.parent.mkdir(parents=True)
        folder.write_text("")
    else:
        capability_probe.store_findings(found)
        [file] = folder.iterdir()
        file.unlink()
        file.mkdir()
        (file / "full").touch()
    before = sorted(folder.parent.rglob("*"))
    assert capability_probe.load_findings(describe_findings(found)) is None
    capability_probe.store_findings(found)
    assert sorted(folder.parent.rglob("*")) == before


def test_distrust_of_another_process_is_not_taken_over(folder):
    """Assert that a file has nothing to say about timeouts: other programs may have caused them."""
    found = capabilities()
    capability_probe.store_findings(replace(found, distrusted=("lookback",)))
    assert capability_probe.load_findings(describe_findings(found)) == found


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="only the cache folder of Linux follows the variable")
def test_a_relative_cache_home_is_ignored(tmp_path, monkeypatch):
    """Make no folder in the working directory."""
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    path = disk_cache.write("adapters", {"key": 1}, "content")
    assert path is not None
    assert path.parent == home / ".cache" / "gpuscan" / "adapters"
    assert disk_cache.read("adapters", {"key": 1}) == "content"
    assert not list(work.iterdir())
