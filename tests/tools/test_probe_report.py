"""`gpuscan probe --report`, and the table made of such files."""

from __future__ import annotations

import getpass
import json
import platform
import runpy
from pathlib import Path

import numpy as np
import pytest

import gpuscan
from gpuscan.tools import probe
from gpuscan.tools.bench import timing
from gpuscan.tools.matrix.conformance import Case
from tests.tools.command_line import fails, run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

ADAPTERS = Path(__file__).resolve().parents[2] / "docs" / "adapters"


@pytest.fixture
def small(monkeypatch):
    """Let a report run one case and time one small size."""
    made = probe.adapter_report
    cases = [Case("auto", "uint32", "add", "inclusive", 33)]
    monkeypatch.setattr(probe, "adapter_report", lambda device: made(device, cases, [1 << 12]))
    monkeypatch.setattr(probe, "LITMUS_RUNS", 2)
    for name in ("WARM_SECONDS", "BATCH_SECONDS"):
        monkeypatch.setattr(timing, name, 0.01)


def test_a_report_has_all_and_names_nobody(tmp_path, capsys, monkeypatch, small):
    """Write the probe's findings, litmus counts, the suite and speeds, into a file or a folder, or print them."""
    monkeypatch.setattr(platform, "node", lambda: "swift-otter.example.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    code, out, _ = run(capsys, "probe", "--report", "-")
    assert code == 0
    printed = json.loads(out)
    monkeypatch.setattr(probe, "adapter_report", lambda device: printed)
    for target in (tmp_path, tmp_path / "mine.json"):
        assert run(capsys, "probe", "--device", "0", "--report", str(target))[0] == 0
    device = gpuscan.devices()[0]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"mine.json", probe.file_name(device.capabilities)}
    found = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))
    assert found == printed
    assert found["format"] == "gpuscan adapter 1"
    assert found["probe"]["limits"] == dict(device.capabilities.limits)
    assert found["probe"]["driver"] == device.capabilities.driver
    assert found["litmus"]["runs"] == 2
    assert 0 <= found["litmus"]["started_keep_running"] <= 2
    assert found["litmus"]["subgroup_sizes"] == list(device.capabilities.subgroup_sizes)
    assert found["matrix"]["cells"]["element"] == {"uint32": {"passed": 1, "run": 1, "refused": 0}}
    assert {each["name"] for each in found["speeds"]} >= {"kernel", "three_dispatch"}
    assert all(each["right"] for each in found["speeds"])
    text = json.dumps(found)
    for secret in ('"ada"', "swift-otter", str(tmp_path), str(Path.home()), '"number"'):
        assert secret not in text


def test_a_report_in_a_folder_replaces_only_a_report(tmp_path, capsys, monkeypatch):
    """Refuse to replace a file that is not a report, under the name that the command chose, before measuring."""
    report = {"format": probe.FORMAT}
    monkeypatch.setattr(probe, "adapter_report", lambda device: report)
    path = tmp_path / probe.file_name(gpuscan.devices()[0].capabilities)
    for content in ("mine", "[]", '{"format": 1}'):
        path.write_text(content, encoding="utf-8")
        code, err = fails(capsys, "probe", "--device", "0", "--report", str(tmp_path))
        assert (code, path.name in err) == (2, True)
        assert path.read_text(encoding="utf-8") == content
    assert run(capsys, "probe", "--device", "0", "--report", str(path))[0] == 0
    assert run(capsys, "probe", "--device", "0", "--report", str(tmp_path))[0] == 0
    assert json.loads(path.read_text(encoding="utf-8")) == report


def test_what_is_left_out(monkeypatch):
    """Replace paths and names in every text, and leave the rest as it is."""
    monkeypatch.setattr(platform, "node", lambda: "otter.example.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    data = {"a": ["ada said /home/ada/x.py:3", 7, None, ("otter", "canada", r"C:\Users\ada\x")], "b": "9/10 in 3/4"}
    assert probe.without_person(data) == {
        "a": ["(name) said (path):3", 7, None, ["(name)", "canada", "(path)"]],
        "b": "9/10 in 3/4",
    }


def test_wrong_requests(files, capsys):
    code, err = fails(capsys, "probe", "--device", "0")
    assert (code, "without --report" in err) == (2, True)
    assert fails(capsys, "probe", "--report", "no/such.json")[0] == 2


def test_the_table_is_what_its_script_makes():
    """Keep a row for each file, and files of the adapters that need no GPU."""
    script = runpy.run_path(str(ADAPTERS / "make_table.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"]()
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(ADAPTERS.glob("*.json"))]
    kinds = {(each["probe"]["name"].split()[0], each["probe"]["backend"]) for each in reports}
    assert {("llvmpipe", "Vulkan"), ("llvmpipe", "OpenGL"), ("SwiftShader", "Vulkan")} <= kinds
    assert any(each["probe"]["implementation"].startswith("Dawn") for each in reports)
    for each in reports:
        assert each["format"] == probe.FORMAT
        assert probe.without_person(each) == each
        assert not each["matrix"]["failures"]
        assert np.isfinite([row["microseconds"] for row in each["speeds"] if row["microseconds"]]).all()
