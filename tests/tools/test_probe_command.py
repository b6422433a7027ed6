"""`gpuscan probe`: every adapter, and which one is the default."""

from __future__ import annotations

import json

import pytest

import gpuscan
from gpuscan.planning.strategies import STRATEGIES
from tests.harness.devices import usable_adapters
from tests.tools.command_line import run


@pytest.mark.usefixtures("skip_without_adapters")
def test_probe_names_every_adapter(capsys, monkeypatch):
    """Show each adapter with its strategy in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, "probe")
    assert (code, err) == (0, "")
    assert all(len(line) <= 80 for line in out.splitlines())
    for index, adapter in enumerate(usable_adapters()):
        assert f"{index}: {adapter.info['device']}" in out
    for title in ("driver", "backend", "subgroups", "progress", "strategy", "elements", "limits"):
        assert out.count(f"│ {title} ") == len(usable_adapters())


@pytest.mark.usefixtures("skip_without_adapters")
def test_probe_marks_the_default_adapter(capsys, monkeypatch):
    """Mark the first adapter, or the one that GPUSCAN_ADAPTER names."""
    found = gpuscan.devices()
    monkeypatch.delenv("GPUSCAN_ADAPTER", raising=False)
    for wanted in [None, *found]:
        if wanted is not None:
            monkeypatch.setenv("GPUSCAN_ADAPTER", wanted.capabilities.summary)
        default = gpuscan.default_device()
        out = run(capsys, "probe")[1]
        assert out.count("(default)") == 1
        assert f"{found.index(default)}: {default.capabilities.name} (default)" in out
        listed = json.loads(run(capsys, "probe", "--json")[1])
        assert [each["default"] for each in listed] == [device is default for device in found]
        assert [each["number"] for each in listed] == list(range(len(found)))


@pytest.mark.usefixtures("skip_without_adapters")
def test_probe_with_a_wrong_name_in_the_environment(capsys, monkeypatch):
    """Print the report, report the mistake, and exit with 2."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "radeon 9000")
    code, out, err = run(capsys, "probe")
    assert (code, "(default)" in out, "│ driver" in out) == (2, False, True)
    assert err.startswith("gpuscan: ")
    assert "'radeon 9000' (from GPUSCAN_ADAPTER)" in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("skip_without_adapters")
def test_probe_where_numpy_is_the_default(capsys, monkeypatch):
    """Mark no adapter."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    code, out, err = run(capsys, "probe")
    assert (code, err, "(default)" in out) == (0, "", False)
    assert "scans run on NumPy" in out


def test_probe_as_data(capsys):
    """Print the report and more for programs."""
    code, out, err = run(capsys, "probe", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [each["summary"] for each in found] == [adapter.summary for adapter in usable_adapters()]
    for each in found:
        assert each["strategy"] in STRATEGIES
        assert each["reason"]
        assert {"uint32", "int32", "float32"} <= set(each["element_types"])
        assert ("float64" in each["element_types"]) == each["float64"]
        assert each["limits"]["max-buffer-size"] > 0
