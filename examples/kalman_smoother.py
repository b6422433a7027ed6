"""Follow a moving object through noisy measurements: a Kalman filter and smoother as associative scans.

A filter looks like a loop over time, but the steps combine associatively (Särkkä and García-Fernández, "Temporal
Parallelization of Bayesian Smoothers", 2021). An element of the filter is a Gaussian that depends on the state before
it: the mean is ``A x + b`` and the covariance is C. The fields eta and J say what its measurements say of x.

Run it: python examples/kalman_smoother.py
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import gpuscan as gs

Array = npt.NDArray[np.floating[Any]]

STEPS = 1000
# Position and velocity: how they move on, the noise of that, what is measured, and the noise of a measurement.
F = np.array([[1, 0.1], [0, 1]])
Q = 0.5 * np.array([[0.1**3 / 3, 0.1**2 / 2], [0.1**2 / 2, 0.1]])
H = np.array([[1.0, 0.0]])
R = np.array([[0.25]])


class Filtered(NamedTuple):
    """An element of the filter; every field is a matrix."""

    A: Any
    b: Any
    C: Any
    eta: Any
    J: Any


class Smoothed(NamedTuple):
    """An element of the smoother: given the state x after it, the mean is ``E x + g`` and the covariance is L."""

    E: Any
    g: Any
    L: Any


def inverse(m: Any) -> Any:
    """Return the inverse of 2 x 2 matrices."""
    a, b, c, d = m[..., 0, 0], m[..., 0, 1], m[..., 1, 0], m[..., 1, 1]
    rows = np.stack([np.stack([d, -b], axis=-1), np.stack([-c, a], axis=-1)], axis=-2)
    return rows / (a * d - b * c)[..., None, None]


@gs.operator(element_axes=2)
def combine_filtered(left: Filtered, right: Filtered) -> Filtered:
    """Combine the filter's elements of two neighbouring stretches of time."""
    forth = right.A @ inverse(np.eye(2, dtype=np.float32) + left.C @ right.J)
    back = left.A.mT @ inverse(np.eye(2, dtype=np.float32) + right.J @ left.C)
    return Filtered(
        A=forth @ left.A,
        b=forth @ (left.b + left.C @ right.eta) + right.b,
        C=forth @ left.C @ right.A.mT + right.C,
        eta=back @ (right.eta - right.J @ left.b) + left.eta,
        J=back @ right.J @ left.A + left.J,
    )


@gs.operator(element_axes=2)
def combine_smoothed(later: Smoothed, earlier: Smoothed) -> Smoothed:
    """Combine the smoother's elements of two neighbouring stretches of time, from the end."""
    return Smoothed(
        E=earlier.E @ later.E,
        g=earlier.E @ later.g + earlier.g,
        L=earlier.E @ later.L @ earlier.E.mT + earlier.L,
    )


def gain(covariance: Array) -> Array:
    """Return the Kalman gain for a predicted covariance."""
    return covariance @ H.T / (H @ covariance @ H.T + R)


def filter_elements(measured: Array) -> Filtered:
    """Return an element for each measurement; the first one begins with a known distribution, N(0, I)."""
    y = measured[:, None, None]
    rest = np.eye(2) - gain(Q) @ H
    seen = F.T @ H.T / (H @ Q @ H.T + R)
    constant = (np.broadcast_to(matrix, (STEPS, 2, 2)).copy() for matrix in (rest @ F, rest @ Q, seen @ H @ F))
    matrix, covariance, information = constant
    mean, predicted = gain(Q) * y, F @ F.T + Q
    matrix[0], mean[0] = 0, gain(predicted) * y[0]
    covariance[0] = predicted - gain(predicted) @ H @ predicted
    fields = matrix, mean, covariance, seen * y, information
    return Filtered(*(field.astype(np.float32) for field in fields))


def backward_gain(covariance: Array) -> Array:
    """Return how much of what is learned about the next state is learned about this one."""
    return covariance @ F.T @ np.linalg.inv(F @ covariance @ F.T + Q)


def smoother_elements(mean: Array, covariance: Array) -> Smoothed:
    """Return an element for each filtered state; the last one depends on no later state."""
    back = backward_gain(covariance.astype(np.float64))
    back[-1] = 0
    fields = back, mean - back @ F @ mean, covariance - back @ F @ covariance
    return Smoothed(*(field.astype(np.float32) for field in fields))


def loop(measured: Array) -> tuple[Array, Array]:
    """Return the means of the filter and of the smoother, one step at a time in float64."""
    mean, covariance = np.zeros((2, 1)), np.eye(2)
    found = []
    for y in measured:
        mean, covariance = F @ mean, F @ covariance @ F.T + Q
        weight = gain(covariance)
        mean, covariance = mean + weight * (y - H @ mean), covariance - weight @ H @ covariance
        found.append((mean, covariance))
    smooth = [mean]
    for mean, covariance in found[-2::-1]:
        smooth.append(mean + backward_gain(covariance) @ (smooth[-1] - F @ mean))
    return np.array([mean for mean, _ in found]), np.array(smooth[::-1])


def main() -> None:
    """Filter and smooth on the GPU, compare with a loop, and with where the object really was."""
    rng = np.random.default_rng(0)
    state, states = np.zeros(2), []
    for _ in range(STEPS):
        state = F @ state + np.linalg.cholesky(Q) @ rng.normal(size=2)
        states.append(state)
    truth = np.array(states)[:, 0]
    measured = truth + np.sqrt(R[0, 0]) * rng.normal(size=STEPS)

    found = gs.scan(filter_elements(measured), combine_filtered, axis=0)
    smooth = gs.scan(smoother_elements(found.b, found.C), combine_smoothed, axis=0, reverse=True)

    means, smooth_means = loop(measured)
    assert np.allclose(found.b, means, atol=1e-3 * np.abs(means).max())
    assert np.allclose(smooth.g, smooth_means, atol=1e-3 * np.abs(means).max())
    errors = [np.sqrt(np.mean((x - truth) ** 2)) for x in (measured, found.b[:, 0, 0], smooth.g[:, 0, 0])]
    assert errors[2] < errors[1] < 0.8 * errors[0]
    print("Root mean square errors: measured {:.3f}, filtered {:.3f}, smoothed {:.3f}.".format(*errors))


if __name__ == "__main__":
    main()
