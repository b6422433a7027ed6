"""The benchmarks on every adapter: short runs with right results, and wrong results that are found."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu
from rich.console import Console

from gpuscan import cli
from gpuscan.api.device import Device
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tuned_tiles import runs_on
from gpuscan.tools.bench import several_devices, wall_calls
from gpuscan.tools.bench.buffers import gather, place, release
from gpuscan.tools.bench.cases import ScanCase
from gpuscan.tools.bench.contender import Unsupported, measure
from gpuscan.tools.bench.copies import CopySubject, copy_contender
from gpuscan.tools.bench.copy_kernel import STEPS, WORKGROUP_SIZE, copy_recording
from gpuscan.tools.bench.inputs import make_inputs
from gpuscan.tools.bench.peers.subjects import need
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.scans import ScanSubject, scan_contenders
from gpuscan.tools.bench.session import Request, run_request
from gpuscan.tools.bench.tile_search import candidates, search, tuned_from
from gpuscan.tools.bench.timer import TICKS, WALL, GpuTimer
from gpuscan.tools.option_types import STDOUT
from tests.oracle import small_tiles, strategies_on

pytestmark = pytest.mark.usefixtures("listed_adapters")

SMALL = TileShape(64, 0, 1, 4)
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
    """Measure elements of every kind and the copy. The tile is small, since CPU drivers compile large ones slowly."""
    contenders = [copy_contender(device, timer), *scan_contenders(device, timer, ["three_dispatch"], [SMALL])]
    inputs = make_inputs(case)
    for one in contenders:
        found = measure(one, inputs)
        assert found.right, found
        assert found.seconds is not None
        assert 0 < found.seconds < 10
        assert found.clock == timer.clock


def test_every_strategy_is_timed_in_the_planners_tile(device: Device, timer: GpuTimer) -> None:
    """Note the tile's shape."""
    inputs = make_inputs(SUMS)
    for one in scan_contenders(device, timer, [*strategies_on(device), "auto"]):
        found = measure(one, inputs)
        assert found.right, found
        assert re.search(r"\d+x\d+x\d+/\d+$", found.note)


def test_a_wrong_result_is_told(device: Device, timer: GpuTimer) -> None:
    """Refuse the results of another operator."""
    inputs = make_inputs(SUMS)
    swapped = replace(inputs, case=replace(SUMS, op="bitwise_xor"))
    (one,) = scan_contenders(device, timer, ["three_dispatch"])
    assert measure(one, swapped).wrong
    assert measure(one, inputs).right


def test_too_large_for_a_buffer_is_a_row(device: Device, timer: GpuTimer) -> None:
    """Refuse the copy before anything is allocated."""
    limit = device.capabilities.limits["max-buffer-size"]
    with pytest.raises(Unsupported, match="do not fit a buffer"):
        CopySubject(device, timer, limit + 16)


def test_arrays_that_exceed_a_binding(adapter: wgpu.GPUAdapter) -> None:
    """Measure scans and the copy in parts, each of what a binding holds."""
    limit = 1 << 20
    small = Device(adapter, required_limits={"max-storage-buffer-binding-size": limit})
    timer = GpuTimer(small, warm_seconds=0.0, repeats=3)
    inputs = make_inputs(replace(SUMS, length=limit // 4 * 2 + 1001))
    for one in (copy_contender(small, timer), *scan_contenders(small, timer, ["three_dispatch"], [SMALL])):
        found = measure(one, inputs)
        assert found.right, found
        assert ("in parts" in found.note) == (one.library == OURS)


@pytest.mark.parametrize(
    "extra", [1, 7, WORKGROUP_SIZE * STEPS - 1, WORKGROUP_SIZE * STEPS, 3 * WORKGROUP_SIZE * STEPS + 5]
)
def test_copy_kernel_copies_every_vector(device: Device, extra: int) -> None:
    """Copy whole workgroups and the rest, and nothing past the end."""
    words = np.random.default_rng(0).integers(0, 2**32, 4 * extra, dtype=np.uint32)
    marker = np.full(len(words) + 64, 0xA5A5A5A5, np.uint32)
    source, destination = place(device, words), place(device, marker)
    encoder = device.wgpu_device.create_command_encoder()
    copy_recording(device, source, destination, extra)(encoder, None)
    device.wgpu_device.queue.submit([encoder.finish()])
    got = np.frombuffer(device.wgpu_device.queue.read_buffer(destination), np.uint32)
    np.testing.assert_array_equal(got[: len(words)], words)
    np.testing.assert_array_equal(got[len(words) :], marker[len(words) :])
    release([source, destination])


@pytest.mark.parametrize(("dtype", "shape"), [("u1", ()), ("u2", ()), ("u4", ()), ("u8", ()), ("f4", (2, 2))])
def test_gather(device: Device, dtype: str, shape: tuple[int, ...]) -> None:
    """Read elements of any size, at any position in their word."""
    array = np.frombuffer(np.random.default_rng(0).bytes(24 * 500), dtype)
    array = array[: len(array) // max(1, int(np.prod(shape))) * int(np.prod(shape))].reshape(-1, *shape)
    array = np.nan_to_num(array)
    buffer = place(device, array)
    at = np.array([0, 1, 2, 3, 250, len(array) - 2])
    np.testing.assert_array_equal(gather(device, buffer, at, array.dtype, shape), array[at])
    release([buffer])


def test_both_clocks(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time a small and a large copy by the wall clock, and by timestamps where they work."""
    seconds = {}
    small, large = 1 << 12, 1 << (23 if device.capabilities.adapter_type == "CPU" else 25)
    batch = GpuTimer._batch

    def within(timer: GpuTimer, recording: Any, repeats: int) -> Any:
        begin = time.perf_counter()
        taken = batch(timer, recording, repeats)
        # This holds on a busy machine too. For timestamps in another unit it does not.
        assert sum(taken) < time.perf_counter() - begin
        return taken

    monkeypatch.setattr(GpuTimer, "_batch", within)
    timestamps = device.capabilities.timestamps
    for clock in [TICKS, WALL] if timestamps else [WALL]:
        if clock == WALL:
            monkeypatch.setattr(device._context, "capabilities", replace(device.capabilities, timestamps=False))
        timer = GpuTimer(device, warm_seconds=0.02, repeats=9)
        assert timer.clock == clock
        for nbytes in (small, large):
            subject = CopySubject(device, timer, nbytes)
            seconds[clock, nbytes] = subject.seconds()
            subject.close()
    assert all(0 < taken < 10 for taken in seconds.values())
    if timestamps:
        assert seconds[TICKS, small] < seconds[TICKS, large]


def test_retile(device: Device, timer: GpuTimer) -> None:
    """Keep the buffers and the results for another tile."""
    inputs = make_inputs(SUMS)
    subject = ScanSubject(device, timer, inputs, "three_dispatch")
    for tile in small_tiles(device):
        subject.retile(inputs, tile)
        assert subject.plan.tile == tile
        assert subject.seconds() > 0
        assert subject.error(inputs) == 0.0
    subject.close()


def stay_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure without a warm-up, since times do not matter."""
    monkeypatch.setattr("gpuscan.tools.bench.timer.MAX_WARM_SECONDS", 0.0)
    monkeypatch.setattr("gpuscan.tools.bench.timer.wall_seconds.__defaults__", (0.0, 3))


def test_a_request(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the copy, gpuscan and a peer at each size."""
    monkeypatch.setattr("gpuscan.tools.bench.session.GpuTimer", lambda device: GpuTimer(device, 0.0, 3))
    stay_cold(monkeypatch)
    request = Request(
        ops=["add", "bitwise_or", "sort"],
        dtypes=[np.dtype("u4"), np.dtype("f4")],
        sizes=[1000, 2000],
        strategies=["three_dispatch"],
        tiles=[SMALL],
        peers=["numpy"],
    )
    found = run_request(device, request, Console(file=io.StringIO()))
    names = {(m.case.series, m.case.elements, m.library) for m in found}
    series = ["add uint32", "add float32", "bitwise_or uint32", "sort uint32", "sort float32"]
    assert names == {(s, n, library) for s in series for n in (1000, 2000) for library in ("copy", "gpuscan", "numpy")}
    assert all(m.right for m in found)


# ----- Tuning


def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search measure two light elements at one short length."""
    for name in ("CPU_WORDS", "GPU_WORDS"):
        monkeypatch.setattr(f"gpuscan.tools.bench.tile_search.{name}", (1 << 10,))
    monkeypatch.setattr("gpuscan.tools.bench.tile_search.REPRESENTATIVES", {1: ("add", "uint32"), 2: ("add", "uint64")})


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
    for (words, _), shape in tuned_from(found).items():
        assert runs_on(shape, words, device.capabilities)


def test_only_better_tuned_elements_are_kept(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all lengths of such an element, so that the others keep their default."""
    short_search(monkeypatch)
    one, two = search(device, seconds=0.1)
    other = TileShape(128, 0, 1, 8)
    short = replace(one, best=one.default)
    long = replace(one, case=replace(one.case, length=1 << 20), best=other)
    same = replace(two, best=two.default)
    assert tuned_from([short, long, same]) == {(1, short.case.length): one.default, (1, 1 << 20): other}


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
    monkeypatch.setattr(wall_calls, "WARM_SECONDS", 0.0)
    monkeypatch.setattr(wall_calls, "MEASURED_SECONDS", 0.0)
    monkeypatch.setitem(wall_calls._PEERS, "cupy", lambda size: iter(need("no_such_module")))
    found = wall_calls.time_calls(device, [1000], ["numpy", "cupy", "cub"])
    assert {each.library for each in found} == {"gpuscan", "numpy", "cupy"}
    assert all(0 < each.least <= each.seconds < 10 for each in found if each.library != "cupy")
    shown = io.StringIO()
    Console(file=shown, width=80).print(*wall_calls.calls_table(found))
    assert "no_such_module is not installed" in shown.getvalue()
    assert [row["elements"] for row in (each.row() for each in found)] == [1000] * len(found)


def test_several_devices_are_timed(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare two devices with one, and find a wrong result."""
    monkeypatch.setattr(several_devices, "RUNS", 2)
    monkeypatch.setattr(several_devices, "CALLS", 1)
    pair = [device, Device(device)]
    several_devices.measure_and_report(pair, [5000], STDOUT)
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["call"], row["devices"]) for row in rows] == [
        (call, count) for call in ("NumPy to NumPy", "on the devices") for count in (1, 2)
    ]
    assert all(len(row["seconds"]) == 2 and not row["wrong"] for row in rows)
    shown = io.StringIO()
    row = several_devices.Row("NumPy to NumPy", 1, 5000, [1e-3, 2e-3], wrong=True)
    Console(file=shown, width=100).print(several_devices.table_of([row]))
    assert "WRONG" in shown.getvalue()
