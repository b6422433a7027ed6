"""Filters of signals give SciPy's results in float64, to the accuracy of float32, with states and in chunks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.signal

import gpuscan as gs
from gpuscan import signal
from tests.harness.builds import assert_launches
from tests.harness.calls import EACH_RESULT, EACH_STAGE, FIRST, Counted, count_stages
from tests.harness.devices import as_gpu_of_programs, count_plans_and_pipelines
from tests.oracle import Array

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 1000, 2)).astype(np.float32)

# Filters of one and two states, of several sections, with poles near 1, with zeros only, with delays, and unstable.
FILTERS: dict[str, tuple[Any, Any]] = {
    "exponential": ([0.1], [1, -0.9]),
    "biquad": scipy.signal.butter(2, 0.1),
    "lowpass": scipy.signal.butter(5, 0.2),
    "highpass": scipy.signal.butter(4, 0.1, "high"),
    "bandpass": scipy.signal.butter(3, [0.2, 0.4], "band"),
    "elliptic": scipy.signal.ellip(7, 0.5, 40, 0.3),
    "slow": scipy.signal.butter(2, 0.004),
    "running sum": ([1.0], [1, -1]),
    "double sum": ([1.0], [1, -2, 1]),
    "repeated poles": ([1.0], np.poly([0.8] * 4)),
    "growing": ([1.0, 0.5], [1, -1.001]),
    "not normalized": ([3.0, 1], [2, -1, 0, 0]),
    "delays": ([0, 0, 0, 1.0, 0.3], [1, -0.5]),
    "moving average": (np.ones(7) / 7, [1.0]),
    "many taps": (scipy.signal.firwin(101, 0.2), [2.0]),
    "many zeros": (RNG.normal(size=12), [1, -0.5, 0.2]),
    "a factor": ([3.0], [2.0]),
    "nothing": ([0.0, 0.0], [1, 0.5, 0.2]),
    "zeros at poles": (np.poly([0.5, -0.5, 0.3]), np.poly([0.5, -0.5, 0.2])),
    "no gain at first": ([0.0, 1.0], [1.0, -0.3, 0.4]),
}


def close(got: Any, wanted: Array, tolerance: float = 4e-6) -> None:
    got = np.asarray(got)
    assert got.shape == wanted.shape
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * max(float(np.abs(wanted).max(initial=0)), 1e-30))


@pytest.mark.parametrize("name", ["exponential", "lowpass", "slow", "many zeros", "double sum", "moving average"])
def test_lfilter_on_arrays_of_a_device(device: gs.Device, name: str) -> None:
    b, a = FILTERS[name]
    x = device.asarray(X)
    y = signal.lfilter(b, a, x, axis=1)
    assert isinstance(y, gs.Array)
    assert y.device is device
    close(y, scipy.signal.lfilter(b, a, X.astype(np.float64), axis=1))


@pytest.mark.parametrize(
    ("name", "where"),
    [*((name, "numpy") for name in FILTERS), ("lowpass", "default"), ("moving average", "default")],
)
def test_states_and_chunks(monkeypatch: pytest.MonkeyPatch, name: str, where: str) -> None:
    """Assert SciPy's results and states from given states, and that chunks join to the whole."""
    if where == "numpy":
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    b, a = FILTERS[name]
    x = X[0, :300, 0]
    order = max(len(a), len(b)) - 1
    zi = np.random.default_rng(1).normal(size=order)
    wanted, wanted_states = scipy.signal.lfilter(b, a, x.astype(np.float64), zi=zi)
    states, parts = zi, []
    for piece in (x[:2], x[2:130], x[130:]):
        y, states = signal.lfilter(b, a, piece, zi=states)
        assert states.shape == zi.shape
        parts.append(y)
    close(np.concatenate(parts), wanted, 2e-5)
    if order:
        close(states, wanted_states, 1e-4)


@pytest.mark.parametrize(("shape", "axis"), [((700,), 0), ((4, 700), -1), ((700, 6), 0), ((2, 300, 3), 1)])
def test_sosfilt(device: gs.Device, shape: tuple[int, ...], axis: int) -> None:
    """Assert SciPy's results and states along any axis, of a NumPy array and of one on a device."""
    sos = scipy.signal.butter(4, 0.15, output="sos")
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    lead = list(shape)
    lead[axis] = 2
    zi = np.random.default_rng(3).normal(size=(len(sos), *lead))
    wanted, wanted_states = scipy.signal.sosfilt(sos, x.astype(np.float64), axis=axis, zi=zi)
    on_device = device.asarray(x)
    y, states = signal.sosfilt(sos, on_device, axis=axis, zi=zi)
    assert isinstance(y, gs.Array)
    assert isinstance(states, gs.Array)
    close(y, wanted)
    close(states, wanted_states, 1e-5)
    more, _ = signal.sosfilt(sos, on_device, axis=axis, zi=states)
    close(more, scipy.signal.sosfilt(sos, x.astype(np.float64), axis=axis, zi=wanted_states)[0])


def test_sosfilt_of_numpy_arrays() -> None:
    sos = scipy.signal.cheby1(4, 1, 0.3, output="sos")
    wanted, wanted_states = scipy.signal.sosfilt(sos, X.astype(np.float64), axis=1, zi=np.zeros((2, 3, 2, 2)))
    y, states = signal.sosfilt(sos, X, axis=1, zi=np.zeros((2, 3, 2, 2)))
    close(y, wanted)
    close(states, wanted_states, 1e-5)


def test_other_coefficients_compile_nothing(device: gs.Device) -> None:
    x = device.asarray(X[0, :, 0])
    compiled = []
    for cutoff in (0.1, 0.17, 0.33):
        b, a = scipy.signal.butter(4, cutoff)
        close(signal.lfilter(b, a, x), scipy.signal.lfilter(b, a, X[0, :, 0].astype(np.float64)))
        compiled.append(count_plans_and_pipelines(device)[1])
    assert compiled[0] == compiled[-1]


def test_impulses_decay_to_nothing() -> None:
    """Assert the relative accuracy of a response that falls by many orders of magnitude."""
    x = np.zeros(400, np.float32)
    x[0] = 1
    for b, a in (FILTERS["biquad"], FILTERS["exponential"]):
        wanted = scipy.signal.lfilter(b, a, x.astype(np.float64))
        y = signal.lfilter(b, a, x)
        assert np.abs(wanted[-1]) < 1e-15
        np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-16)
    x[5] = np.nan
    y = signal.lfilter([0.1], [1, -0.9], x)
    assert np.isfinite(y[:5]).all()
    assert np.isnan(y[5:]).all()


# ----- Types


@pytest.mark.parametrize("name", ["lowpass", "double sum"])
def test_float64_and_integers(name: str) -> None:
    """Assert the accuracy of float64, by the device if it has such floats, else by NumPy."""
    b, a = FILTERS[name]
    for x in (X.astype(np.float64), RNG.integers(-9, 9, (2, 40, 3))):
        y = signal.lfilter(b, a, x, axis=1)
        wanted = scipy.signal.lfilter(b, a, x, axis=1)
        assert y.dtype == np.float64
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_signals(kind: Any) -> None:
    x = (X[..., 0] + 1j * X[..., 1]).astype(kind)
    b, a = FILTERS["biquad"]
    zi = np.full((3, 2), 0.5 - 1j)
    wanted, wanted_states = scipy.signal.lfilter(b, a, x.astype(np.complex128), axis=1, zi=zi)
    y, states = signal.lfilter(b, a, x, axis=1, zi=zi)
    assert y.dtype == states.dtype == kind
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5)
    np.testing.assert_allclose(states, wanted_states, rtol=0, atol=1e-5)
    if kind == np.complex64:
        on_device = gs.default_device().asarray(x)
        np.testing.assert_array_equal(signal.lfilter(b, a, on_device, axis=1).numpy(), signal.lfilter(b, a, x, axis=1))
        found = signal.lfilter(b, a, on_device[:, ::-1], axis=1)
        np.testing.assert_array_equal(found.numpy(), signal.lfilter(b, a, x[:, ::-1], axis=1))


def test_complex_numerators_and_states() -> None:
    (b, a), x = FILTERS["biquad"], X[..., 0]
    turned, zi = np.asarray(b) * np.exp(1j * np.arange(len(b))), np.full((3, 2), 0.5 - 1j)
    for numerator, states in ((turned, None), (turned, zi), (b, zi), (turned, zi.real), (np.asarray(b) * 1j, None)):
        wanted = scipy.signal.lfilter(numerator, a, x.astype(np.float64), axis=1, zi=states)
        found = signal.lfilter(numerator, a, x, axis=1, zi=states)
        for one, other in zip(*((each,) if states is None else each for each in (found, wanted)), strict=True):
            assert one.dtype == np.complex64
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    on_device = signal.lfilter(turned, a, gs.default_device().asarray(x), axis=1)
    assert isinstance(on_device, gs.Array)
    np.testing.assert_allclose(on_device.numpy(), signal.lfilter(turned, a, x, axis=1), rtol=0, atol=1e-6)
    assert signal.lfilter([1j, 1], [1.0], [1.0, 2.0]).tolist() == [1j, 1 + 2j]
    sos = scipy.signal.butter(4, 0.2, output="sos")
    starts = np.full((2, 3, 2), 0.25j)
    found, wanted = (module.sosfilt(sos, x, axis=1, zi=starts) for module in (signal, scipy.signal))
    np.testing.assert_allclose(found[0], wanted[0], rtol=0, atol=1e-5)


def test_complex_denominators() -> None:
    x, zi = X[..., 0], np.full((3, 3), 0.5 - 1j)
    a = 2 * np.poly([0.9 * np.exp(1.3j), 0.5j, -0.7])
    for b, signals, states in (
        ([1.0, 0.5j], x, None), ([1.0], x, zi), ([1.0, 2j, 1.0, 0.5], x + 1j * x, zi), ([1.0], x[:, :2], zi.real),
    ):  # fmt: skip
        wanted = scipy.signal.lfilter(b, a, signals.astype(np.complex128), axis=1, zi=states)
        found = signal.lfilter(b, a, signals, axis=1, zi=states)
        for one, other in zip(*((each,) if states is None else each for each in (found, wanted)), strict=True):
            assert one.dtype == np.complex64
            np.testing.assert_allclose(one, other, rtol=0, atol=2e-5)
    y, ends = signal.lfilter([1.0], a, gs.default_device().asarray(x), axis=1, zi=zi)
    wanted = signal.lfilter([1.0], a, x, axis=1, zi=zi)
    for one, other in zip((y, ends), wanted, strict=True):
        assert isinstance(one, gs.Array)
        np.testing.assert_allclose(one.numpy(), other, rtol=0, atol=1e-6)
    # A real denominator of a complex dtype.
    assert signal.lfilter([1.0], [2 + 0j, -1], [1.0, 2.0]).tolist() == [0.5, 1.25]


def test_narrow_floats_and_lists() -> None:
    b, a = FILTERS["exponential"]
    x = X[0, :50, 0].astype(np.float16)
    close(signal.lfilter(b, a, x), scipy.signal.lfilter(b, a, x.astype(np.float64)))
    close(signal.lfilter(b, a, gs.default_device().asarray(x)), scipy.signal.lfilter(b, a, x.astype(np.float64)))
    np.testing.assert_allclose(signal.lfilter(1, [1, -0.5], [1, 2, 3]), scipy.signal.lfilter(1, [1, -0.5], [1, 2, 3]))


def test_empty_signals() -> None:
    for shape, axis in (((0,), 0), ((3, 0), 1), ((0, 3), 1)):
        x = np.zeros(shape, np.float32)
        zi = np.ones([1 if i == axis else n for i, n in enumerate(shape)])
        y, states = signal.lfilter([1.0], [1, -0.5], x, axis=axis, zi=zi)
        assert y.shape == shape
        np.testing.assert_array_equal(states, zi)
        assert signal.lfilter([1.0], [1, -0.5], x, axis=axis).shape == shape


def test_strided_and_swapped_signals() -> None:
    b, a = FILTERS["biquad"]
    x = X.transpose(2, 1, 0)[:, ::-3]
    close(signal.lfilter(b, a, x, axis=1), scipy.signal.lfilter(b, a, x.astype(np.float64), axis=1))
    view = gs.default_device().asarray(X).transpose(2, 1, 0)[:, ::-3]
    close(signal.lfilter(b, a, view, axis=1), scipy.signal.lfilter(b, a, x.astype(np.float64), axis=1))
    close(signal.lfilter(b, a, x.astype(">f4"), axis=1), scipy.signal.lfilter(b, a, x.astype(np.float64), axis=1))


# ----- Errors


def test_errors() -> None:
    x = np.ones((4, 8), np.float32)
    with pytest.raises(ValueError, match=r"a\[0\] of 0 was passed"):
        signal.lfilter([1.0], [0.0, 1.0], x)
    with pytest.raises(ValueError, match=r"b of shape \(1, 2\) was passed; pass a 1-D sequence"):
        signal.lfilter([[1.0, 2.0]], [1.0], x)
    with pytest.raises(ValueError, match=r"a of shape \(0,\)"):
        signal.lfilter([1.0], [], x)
    with pytest.raises(ValueError, match=r"a\[0\] of 0 was passed"):
        signal.lfilter([1.0], [0.0, 1j], x)
    with pytest.raises(TypeError, match="sos of dtype complex128 was passed, but it has to be real"):
        signal.sosfilt([[1, 0, 0, 1, 0.5j, 0]], x)
    with pytest.raises(TypeError, match="a of dtype <U1 was passed; pass real numbers"):
        signal.lfilter([1.0], ["1"], x)
    with pytest.raises(ValueError, match="b with infinite numbers or NaN was passed"):
        signal.lfilter([1, np.nan], [1], np.ones(3))
    with pytest.raises(ValueError, match="axis=2 was passed"):
        signal.lfilter([1.0], [1.0], x, axis=2)
    with pytest.raises(ValueError, match=r"zi of shape \(1,\) was passed.*states of shape \(4, 1\)"):
        signal.lfilter([1.0], [1.0, 0.5], x, zi=[0.0])
    for wide in (np.longdouble, np.clongdouble):
        if np.dtype(wide).itemsize > np.dtype(np.float64).itemsize * (1 + (wide is np.clongdouble)):
            for call in (
                lambda v: signal.lfilter([1.0], [1.0, 0.5], v),
                lambda v: signal.sosfilt([[1, 0, 0, 1, 0.5, 0]], v),
                lambda v: signal.ewm_mean(v, alpha=0.5),
            ):
                with pytest.raises(TypeError, match=f"a signal of dtype {np.dtype(wide)} was passed.*astype"):
                    call(np.ones(3, wide))
    with pytest.raises(TypeError, match=r"a signal of dtype \|V8 was passed"):
        signal.lfilter([1.0], [1.0, 0.5], np.zeros(3, "V8"))
    with pytest.raises(TypeError, match="a signal of dtype <U1 was passed"):
        signal.lfilter([1.0], [1.0], ["a"])
    with pytest.raises(ValueError, match=r"sos of shape \(1, 5\) was passed"):
        signal.sosfilt(np.ones((1, 5)), x)
    with pytest.raises(ValueError, match="must be normalized"):
        signal.sosfilt([[1, 0, 0, 2, 0, 0]], x)
    with pytest.raises(ValueError, match=r"zi of shape \(1, 2\) was passed.*\(1, 4, 2\)"):
        signal.sosfilt([[1, 0, 0, 1, 0, 0]], x, zi=np.ones((1, 2)))


def test_ragged_arguments_are_named() -> None:
    x = np.ones(3, np.float32)
    untyped: Any = [[1, 2], [3]]
    calls: list[Any] = [
        lambda: signal.lfilter(untyped, 1, x),
        lambda: signal.lfilter(1, untyped, x),
        lambda: signal.lfilter(1, [1, 0.5], x, zi=untyped),
        lambda: signal.sosfilt(untyped, x),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"\[\[1, 2\], \[3\]\] was passed, but its lists differ"):
            call()


@pytest.mark.parametrize("name", ["exponential", "biquad", "slow"])
def test_new_coefficients_launch_a_program(device: gs.Device, name: str) -> None:
    """Assert that a filter with other coefficients needs few Python calls, no wait and no further program."""
    b, a = (np.array(part) for part in FILTERS[name])
    x = device.asarray(X[0, :, 0].copy())
    sections = scipy.signal.tf2sos(b, a)
    for n in range(60):  # each of the buffers for the coefficients is bound with several others
        signal.lfilter(b * (1 + n / 100), a, x)
        signal.sosfilt(sections, x)
    stages = count_stages(device, signal.lfilter, b, a, x)
    with assert_launches(device):
        calls = [Counted().of(partial(signal.lfilter, b * k, a, x)) for k in (2.1, 2.2, 2.3)]
        calls += [Counted().of(partial(signal.sosfilt, sections, x)) for _ in range(3)]
    # NumPy computes the coefficients of sections.
    assert max(calls) <= 2 * FIRST + EACH_STAGE * stages, calls
    found, wanted = signal.lfilter(b * 2.2, a, x), signal.lfilter(b * 2.2, a, X[0, :, 0], 0)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


SOS = scipy.signal.butter(4, 0.15, output="sos")
# Calls of a signal on a device, of states there, and of a number that may change.
CALLS: dict[str, Any] = {
    "lfilter": lambda x, zi, k: signal.lfilter([0.2 * k, 0.3], [1, -0.5], x),
    "several sections": lambda x, zi, k: signal.lfilter(*FILTERS["highpass"], x),
    "no poles": lambda x, zi, k: signal.lfilter([0.2 * k, 0.3, 0.5], [1.0], x),
    "states": lambda x, zi, k: signal.lfilter([0.2 * k, 0.3, 0.1], [1, -0.5, 0.2], x, zi=np.array([0.5 * k, 1])),
    "states on the device": lambda x, zi, k: signal.lfilter([0.2, 0.3, 0.1], [1, -0.5, 0.2], x, zi=zi),
    "sosfilt": lambda x, zi, k: signal.sosfilt(SOS, x),
    "sections with states": lambda x, zi, k: signal.sosfilt(SOS, x, zi=np.full((2, 2), 0.5 * k)),
    "filtfilt": lambda x, zi, k: signal.filtfilt([0.2 * k, 0.3], [1, -0.5], x),
    "sosfiltfilt": lambda x, zi, k: signal.sosfiltfilt(SOS, x),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_repeated_filter(device: gs.Device, kind: str) -> None:
    """Assert that a filter with other numbers and states is one program, waits for nothing, and is right."""
    assert_filter_takes_few_calls(device, kind)


@pytest.mark.parametrize("kind", ["several sections", "states", "sosfilt", "sections with states"])
def test_a_repeated_filter_on_a_gpu(device: gs.Device, kind: str) -> None:
    """Assert the same of GPUs, which scan in one stage instead of three."""
    assert_filter_takes_few_calls(as_gpu_of_programs(device), kind)


def assert_filter_takes_few_calls(device: gs.Device, kind: str) -> None:
    """Assert it of a filter."""
    call = CALLS[kind]
    x = [device.asarray(X[row, :, 1]) for row in range(3)]
    zi = [device.asarray(np.array([0.3, row], np.float32)) for row in range(3)]
    for row in range(3):
        call(x[row], zi[row], 1 + row)
    device.synchronize()
    with assert_launches(device):
        found = call(x[1], zi[1], 1.5)
    wanted = call(X[1, :, 1], np.array([0.3, 1]), 1.5)
    for got, right in zip(*((y if isinstance(y, tuple) else (y,)) for y in (found, wanted)), strict=True):
        close(got, right, 1e-5)
    stages = count_stages(device, call, x[0], zi[0], 1.5)
    calls = min(Counted().of(partial(call, x[0], zi[0], 1.5)) for _ in range(8))
    results = len(found) if isinstance(found, tuple) else 1
    assert calls <= FIRST + EACH_STAGE * stages + EACH_RESULT * (results - 1), (calls, stages)
