"""The benchmarks on every adapter: short runs with right results, and wrong results that are found."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import wgpu
from rich.console import Console

from gpuscan import cli
from gpuscan.api.device import Device
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tuned_tiles import runs_on
from gpuscan.tools.bench import command, timing, tune
from gpuscan.tools.bench.cases import ScanCase
from gpuscan.tools.bench.command import Request, measure_all
from gpuscan.tools.bench.contenders import CopySubject, copy_contender, measure, scan_contenders
from gpuscan.tools.bench.peers import CALLS, need
from gpuscan.tools.bench.timing import STEPS, TICKS, VECTOR_BYTES, WALL, WORKGROUP_SIZE, GpuTimer, copy_recording
from gpuscan.tools.bench.tune import candidates, collect_tuned, search
from gpuscan.tools.output import STDOUT
from tests.harness.devices import small_binding
from tests.oracle import strategies_on

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

SUMS = ScanCase("add", np.dtype(np.uint32), 5000)
CASES = [
    SUMS,
    ScanCase("maximum", np.dtype(np.int8), 3001),
    ScanCase("affine", np.dtype(np.float32), 3000),
    ScanCase("matmul", np.dtype(np.float32), 700),
    ScanCase("add", np.dtype(np.float16), 500, 5),
]


@pytest.fixture
def timer(device: Device) -> GpuTimer:
    """Return a timer that hardly warms up."""
    return GpuTimer(device, warm_seconds=0.0, repeats=3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.series)
def test_scans_are_timed_and_right(device: Device, timer: GpuTimer, case: ScanCase) -> None:
    """Measure elements of every kind and the copy."""
    inputs = case.inputs()
    for one in [copy_contender(timer, case), *scan_contenders(timer, case, ["three_dispatch"])]:
        found = measure(one, case, inputs)
        assert found.right, found
        assert found.seconds is not None
        assert 0 < found.seconds < 10
        assert found.clock == timer.clock


def test_every_strategy_is_timed(device: Device, timer: GpuTimer) -> None:
    inputs = SUMS.inputs()
    for one in scan_contenders(timer, SUMS, [*strategies_on(device), "auto"]):
        found = measure(one, SUMS, inputs)
        assert found.right, found


def test_a_wrong_result_is_told(device: Device, timer: GpuTimer) -> None:
    """Refuse the results of another operator, and a copy that did not run."""
    inputs = SUMS.inputs()
    (one,) = scan_contenders(timer, replace(SUMS, op="bitwise_xor"), ["three_dispatch"])
    assert measure(one, SUMS, inputs).wrong
    (one,) = scan_contenders(timer, SUMS, ["three_dispatch"])
    assert measure(one, SUMS, inputs).right
    assert CopySubject(timer, 1 << 12).error(inputs) == float("inf")


def test_too_large_for_a_buffer_is_a_row(adapter: wgpu.GPUAdapter) -> None:
    """Give the reason in place of a time."""
    limit = 1 << 20
    small = Device(adapter, required_limits={"max-buffer-size": limit, "max-storage-buffer-binding-size": limit})
    timer = GpuTimer(small, warm_seconds=0.0, repeats=3)
    case = replace(SUMS, length=limit)
    inputs = case.inputs()
    for one in (copy_contender(timer, case), *scan_contenders(timer, case, ["three_dispatch"])):
        found = measure(one, case, inputs)
        assert found.seconds is None
        assert "buffer" in found.note


def test_arrays_that_exceed_a_binding(adapter: wgpu.GPUAdapter) -> None:
    """Measure scans and the copy in parts, each of what a binding holds."""
    limit = small_binding(adapter)
    small = Device(adapter, required_limits={"max-storage-buffer-binding-size": limit})
    timer = GpuTimer(small, warm_seconds=0.0, repeats=3)
    case = replace(SUMS, length=limit // 4 * 2 + 1001)
    inputs = case.inputs()
    for one in (copy_contender(timer, case), *scan_contenders(timer, case, ["three_dispatch"])):
        found = measure(one, case, inputs)
        assert found.right, found


@pytest.mark.parametrize(
    "extra", [1, 7, WORKGROUP_SIZE * STEPS - 1, WORKGROUP_SIZE * STEPS, 3 * WORKGROUP_SIZE * STEPS + 5]
)
def test_copy_kernel_copies_every_vector(device: Device, extra: int) -> None:
    """Copy whole workgroups and the rest, and nothing past the end."""
    words = np.random.default_rng(0).integers(0, 2**32, 4 * extra, dtype=np.uint32)
    marker = np.full(len(words) + 64, 0xA5A5A5A5, np.uint32)
    source, target = device.asarray(words), device.asarray(marker)
    encoder = device.wgpu_device.create_command_encoder()
    copy_recording(device, source.buffer, target.buffer, VECTOR_BYTES * extra)(encoder, None)
    device.wgpu_device.queue.submit([encoder.finish()])
    got = target.numpy()
    np.testing.assert_array_equal(got[: len(words)], words)
    np.testing.assert_array_equal(got[len(words) :], marker[len(words) :])


def test_both_clocks(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time a small and a large copy by the wall clock, and by timestamps where they work."""
    seconds = {}
    small, large = 1 << 12, 1 << (23 if device.capabilities.adapter_type == "CPU" else 25)
    batch = GpuTimer._record_batch

    def within(timer: GpuTimer, recording: Any, repeats: int) -> Any:
        begin = time.perf_counter()
        taken = batch(timer, recording, repeats)
        # This holds on a busy machine too. For timestamps in another unit it does not.
        assert sum(taken) < time.perf_counter() - begin
        return taken

    monkeypatch.setattr(GpuTimer, "_record_batch", within)
    timestamps = device.capabilities.timestamps
    for clock in [TICKS, WALL] if timestamps else [WALL]:
        if clock == WALL:
            monkeypatch.setattr(device._context, "capabilities", replace(device.capabilities, timestamps=False))
        timer = GpuTimer(device, warm_seconds=0.02, repeats=9)
        assert timer.clock == clock
        for nbytes in (small, large):
            subject = CopySubject(timer, nbytes)
            seconds[clock, nbytes] = subject.seconds()
            subject.close()
    assert all(0 < taken < 10 for taken in seconds.values())
    if timestamps:
        assert seconds[TICKS, small] < seconds[TICKS, large]


def stay_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure without a warm-up, since times do not matter."""
    monkeypatch.setattr(timing, "WARM_SECONDS", 0.0)
    monkeypatch.setattr(timing, "REPEATS", 3)


def test_a_request(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the copy, gpuscan and a peer at each size."""
    monkeypatch.setattr(command, "GpuTimer", lambda device: GpuTimer(device, 0.0, 3))
    stay_cold(monkeypatch)
    request = Request(
        ops=["add", "bitwise_or", "sort"],
        dtypes=[np.dtype("u4"), np.dtype("f4")],
        sizes=[1000, 2000],
        strategies=["three_dispatch"],
        peers=["numpy"],
    )
    found = measure_all(request.entrants(device), Console(file=io.StringIO()))
    names = {(m.case.series, m.case.elements, m.library) for m in found}
    series = ["add uint32", "add float32", "bitwise_or uint32", "sort uint32", "sort float32"]
    assert names == {(s, n, library) for s in series for n in (1000, 2000) for library in ("copy", "gpuscan", "numpy")}
    assert all(m.right for m in found)


# ----- Tuning


def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search measure two light elements at one short length."""
    for name in ("CPU_WORDS", "GPU_WORDS"):
        monkeypatch.setattr(tune, name, (1 << 10,))
    monkeypatch.setattr(tune, "REPRESENTATIVES", {1: ("add", "uint32"), 2: ("add", "uint64")})


@pytest.mark.parametrize("words", [1, 2, 4])
def test_candidates(device: Device, words: int) -> None:
    """Try shapes that run here, with the default first and only once."""
    size = device.capabilities.subgroup_size
    for default in {TileShape(64, 0, 1, 16 // words), TileShape(32 * max(1, size), size, 1, 4)}:
        shapes = candidates(device, default, words)
        assert shapes[0] == default
        assert len(set(shapes)) == len(shapes)
        assert (len(shapes) > 1) == (default.subgroup_size > 0), "one order needs no subgroups: one shape"
        assert all(runs_on(shape, words, device.capabilities) for shape in shapes)


def test_search(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure at least the defaults in no time, and keep only shapes that run here."""
    short_search(monkeypatch)
    found = list(search(device, seconds=0.1))
    assert [f.words for f in found] == [1, 2]
    for f in found:
        assert f.tried >= 1
        assert 0 < f.best_seconds <= f.default_seconds
    for (words, _), shape in collect_tuned(found).items():
        assert runs_on(shape, words, device.capabilities)


def test_only_better_tuned_elements_are_kept(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all lengths of such an element, so that the others keep their default."""
    short_search(monkeypatch)
    one, two = search(device, seconds=0.1)
    other = TileShape(128, 0, 1, 8)
    short = replace(one, best=one.default)
    long = replace(one, case=replace(one.case, length=1 << 20), best=other)
    same = replace(two, best=two.default)
    assert collect_tuned([short, long, same]) == {(1, short.case.length): one.default, (1, 1 << 20): other}


def test_a_shape_that_changes_bits_is_told(device: Device, timer: GpuTimer) -> None:
    """Find a scan with other results than the first one's."""
    scan = tune.TiledScan(device, SUMS)
    scan.seconds(timer, scan.default)
    assert scan.right()
    scan._results[0][0] = 1 + int(scan._results[0][0])
    assert not scan.right()


# ----- The command line


def test_bench_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the table, the JSON and the picture of one run."""
    stay_cold(monkeypatch)
    monkeypatch.chdir(tmp_path)
    options = "--sizes 2^10,3000 --dtype uint32 --strategy three_dispatch --peers numpy --json out.json --plot out.png"
    assert cli.run(["bench", *options.split()]) == 0
    printed = capsys.readouterr().out
    assert "three_dispatch" in printed
    assert "numpy" in printed
    data: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    assert [m["length"] for m in data["measurements"]] == [1024] * 3 + [3000] * 3
    assert all(m["right"] for m in data["measurements"])
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_bench_prints_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Print nothing else into a pipe."""
    assert cli.run("bench --sizes 1000 --strategy three_dispatch --json -".split()) == 0
    assert len(json.loads(capsys.readouterr().out)["measurements"]) == 2


def test_tune_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep shapes in the cache folder, and forget them."""
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    short_search(monkeypatch)
    assert cli.run(["tune", "--seconds", "1"]) == 0
    assert "Kept the shapes" in capsys.readouterr().out
    (path,) = tmp_path.rglob("tuning/*.json")
    assert json.loads(path.read_text())["key"]
    assert cli.run(["tune", "--reset"]) == 0
    assert json.loads(path.read_text())["content"] == []


def test_calls_are_timed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure each call briefly; a peer that is missing is a row without a time."""
    monkeypatch.setattr(command, "WARM_SECONDS", 0.0)
    monkeypatch.setattr(command, "MEASURED_SECONDS", 0.0)
    monkeypatch.setitem(CALLS, "cupy", lambda size: iter(need("no_such_module")))
    found = command.time_calls(device, [1000], ["numpy", "cupy", "cub"])
    assert {each.library for each in found} == {"gpuscan", "numpy", "cupy"}
    timed = [(each.least, each.seconds) for each in found if each.library != "cupy"]
    assert all(least and seconds and 0 < least <= seconds < 10 for least, seconds in timed)
    shown = io.StringIO()
    Console(file=shown, width=80).print(*command.calls_table(found))
    assert "no_such_module is not installed" in shown.getvalue()
    assert [row["elements"] for row in (each.row() for each in found)] == [1000] * len(found)


def test_several_devices_are_timed(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare two devices with one, and find a wrong result."""
    monkeypatch.setattr(command, "WARM_SECONDS", 0.0)
    monkeypatch.setattr(command, "MEASURED_SECONDS", 0.0)
    pair = [device, Device(device)]
    command.bench_devices(pair, [5000], STDOUT)
    data = json.loads(capsys.readouterr().out)
    assert data["devices"] == [device.capabilities.summary] * 2
    rows = data["calls"]
    names = ("scan(NumPy array, out=…)", "scan(array), synchronize()")
    assert [row["call"] for row in rows] == [f"{name}, {count} devices" for name in names for count in (1, 2)]
    assert all(row["microseconds"] > 0 and row["right"] for row in rows)
    monkeypatch.setattr(np, "cumsum", lambda x, dtype: np.zeros(len(x), dtype))
    with pytest.raises(click.ClickException, match="wrong results"):
        command.bench_devices(pair, [5000], None)
    assert "WRONG" in capsys.readouterr().out
