"""Filters that run forwards and backwards give what SciPy's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal

import gpuscan as gs
from gpuscan import signal
from tests.harness.builds import assert_launches

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

FILTERS: tuple[tuple[Any, Any], ...] = (
    scipy.signal.butter(4, 0.2),
    scipy.signal.butter(3, 0.1, "high"),
    ([0.5, 0.5], [1]),
    ([1, 2, 3], [2.0, 0.1]),
    scipy.signal.cheby1(5, 1, 0.3),
)
PADS: tuple[dict[str, Any], ...] = (
    {},
    {"padtype": "even"},
    {"padtype": "constant", "padlen": 9},
    {"padtype": None},
    {"padlen": 0},
)


def samples() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(1, 1, (3, 400, 2))


@pytest.mark.parametrize("number", range(len(FILTERS)))
def test_filtfilt(device: gs.Device, number: int) -> None:
    """Compare filters with SciPy's, along an inner axis, with every kind of extension, in NumPy and on the device."""
    (b, a), x = FILTERS[number], samples()
    narrow = x.astype(np.float32)
    for pad in PADS:
        wanted = scipy.signal.filtfilt(b, a, x, axis=1, **pad)
        np.testing.assert_allclose(signal.filtfilt(b, a, x, axis=1, **pad), wanted, rtol=1e-9, atol=1e-9)
        for given in (narrow, device.asarray(narrow), device.asarray(narrow.T).T):
            found = signal.filtfilt(b, a, given, axis=1, **pad)
            assert isinstance(found, gs.Array) == isinstance(given, gs.Array)
            assert found.dtype == np.float32
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=3e-4, atol=3e-4)


@pytest.mark.parametrize("kind", ["filtfilt", "sosfiltfilt"])
def test_nothing_is_waited_for(device: gs.Device, kind: str) -> None:
    """Assert that the first sample of each pass stays on the device, and that another signal makes no program."""
    (b, a), sos = (scipy.signal.butter(2, 0.1, output=output) for output in ("ba", "sos"))

    def run(x: Any) -> Any:
        return signal.filtfilt(b, a, x) if kind == "filtfilt" else signal.sosfiltfilt(sos, x)

    x = samples().astype(np.float32)[0, :, 0]
    for _ in range(4):
        run(device.asarray(x))
    device.synchronize()
    with assert_launches(device):
        found = run(device.asarray(x[::-1]))
    wanted = scipy.signal.filtfilt(b, a, x[::-1].astype(np.float64))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=3e-4, atol=3e-4)


@pytest.mark.parametrize("order", [2, 5])
def test_sosfiltfilt(device: gs.Device, order: int) -> None:
    sos, x = scipy.signal.butter(order, 0.15, output="sos"), samples()
    for pad in PADS:
        wanted = scipy.signal.sosfiltfilt(sos, x, axis=1, **pad)
        np.testing.assert_allclose(signal.sosfiltfilt(sos, x, axis=1, **pad), wanted, rtol=1e-9, atol=1e-9)
        found = signal.sosfiltfilt(sos, device.asarray(x.astype(np.float32)), axis=1, **pad)
        assert isinstance(found, gs.Array)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=3e-4, atol=3e-4)


def test_other_numbers() -> None:
    """Compare complex signals and coefficients, integers with an extension that exceeds their dtype, and lists."""
    b, a = scipy.signal.butter(3, 0.2)
    sos = scipy.signal.butter(3, 0.2, output="sos")
    x = samples()
    z = x + 1j * x[::-1]
    for given in (z, z.astype(np.complex64)):
        digits = 1e-9 if given is z else 3e-4
        wanted = scipy.signal.filtfilt(b, a, z, axis=1)
        found = signal.filtfilt(b, a, given, axis=1)
        assert found.dtype == given.dtype
        np.testing.assert_allclose(found, wanted, rtol=digits, atol=digits)
        np.testing.assert_allclose(signal.sosfiltfilt(sos, given, axis=1), wanted, rtol=digits, atol=digits)
    turned = b * np.exp(1j)
    wanted = scipy.signal.filtfilt(turned, a, x, axis=1)
    np.testing.assert_allclose(signal.filtfilt(turned, a, x, axis=1), wanted, rtol=1e-9, atol=1e-9)
    numbers = np.random.default_rng(0).integers(-128, 128, 300).astype(np.int8)
    wanted = scipy.signal.filtfilt(b, a, numbers.astype(np.float64))
    np.testing.assert_allclose(signal.filtfilt(b, a, numbers), wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(signal.filtfilt(list(b), list(a), numbers.tolist()), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(0, 40), (3, 40, 0)])
def test_no_rows(device: gs.Device, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    for place in (np.asarray, device.asarray):
        for found in (
            signal.filtfilt(*FILTERS[0], place(x), 1),
            signal.sosfiltfilt([[1, 0, 0, 1, -0.5, 0]], place(x), 1),
        ):
            assert found.shape == shape
            assert found.dtype == np.float32


def test_errors() -> None:
    """Assert SciPy's kinds of errors."""
    b, a = scipy.signal.butter(3, 0.2)
    sos = scipy.signal.butter(3, 0.2, output="sos")
    x = np.ones(12)
    calls: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
        ({}, ValueError, "longer than padlen, which is 12"),
        ({"padlen": 12}, ValueError, "longer than padlen, which is 12"),
        ({"padtype": "near"}, ValueError, "padtype='near'"),
        ({"padlen": 1.5}, TypeError, "padlen=1.5"),
        ({"padlen": -1}, ValueError, "padlen=-1"),
        ({"axis": 1, "padlen": 1}, ValueError, "axis=1"),
    )
    for options, error, match in calls:
        with pytest.raises(error, match=match):
            signal.filtfilt(b, a, x, **options)
        if options:
            with pytest.raises(error, match=match):
                signal.sosfiltfilt(sos, x, **options)
    with pytest.raises(ValueError, match="method='fast'"):
        signal.filtfilt(b, a, x, method="fast")
    with pytest.raises(NotImplementedError, match=r"scipy\.signal\.filtfilt"):
        signal.filtfilt(b, a, x, method="gust")
    with pytest.raises(np.linalg.LinAlgError, match="pole at 1"):
        signal.filtfilt([1], [1, -1], x)
    with pytest.raises(ValueError, match="sos of shape"):
        signal.sosfiltfilt(np.ones((2, 5)), x)
