"""Train a linear recurrent layer in NumPy: its gradient through time is a scan as well.

The layer is that of LRU (Orvieto et al. 2023) and S5 (Smith et al. 2023): complex states that do not mix,
``h[t] = gate * h[t-1] + input * x[t]``, and the output ``y[t] = Re(sum of output * h[t])``. It learns to behave like a
system of two damped oscillations. It sees only inputs and outputs of that.

Run it: python examples/train_recurrent_layer.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import gpuscan as gs

Array = npt.NDArray[Any]
Parameters = dict[str, Array]

SEQUENCES, STEPS, STATES, ROUNDS = 8, 128, 4, 300
RATE = 0.02


@gs.operator
def affine(left: Any, right: Any) -> Any:
    """Compose two maps ``h -> gate * h + input``: first `left`, then `right`."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def gates_of(parameters: Parameters) -> Array:
    """Return gates inside the unit circle, so that states decay."""
    decay = np.exp(-np.exp(parameters["log_decay"]))
    return (decay * np.exp(1j * parameters["angle"])).astype(np.complex64)


def forward(parameters: Parameters, x: Array) -> tuple[Array, tuple[Array, Array], Any]:
    """Return the outputs, and the elements and the states of the scan over time."""
    gates = np.broadcast_to(gates_of(parameters), (SEQUENCES, STEPS, STATES))
    elements = np.ascontiguousarray(gates), (parameters["input"] * x[..., None]).astype(np.complex64)
    states = gs.scan(elements, affine, axis=1)
    return (states[1] @ parameters["output"]).real, elements, states


def gradient(parameters: Parameters, x: Array, wanted: Array) -> tuple[float, Parameters]:
    """Return the mean squared error, and the gradient with respect to every parameter."""
    y, elements, states = forward(parameters, x)
    error = y - wanted
    slope = (2 / error.size * error).astype(np.float32)

    # The output is the real part of output * h, so the gradient of h is slope * conj(output).
    grad_states = (slope[..., None] * np.conj(parameters["output"])).astype(np.complex64)
    grad_gates, grad_inputs = gs.scan_vjp(elements, states, (np.zeros_like(grad_states), grad_states), affine, axis=1)

    gates = gates_of(parameters)
    grad_gate = grad_gates.sum(axis=(0, 1))
    along = (np.conj(grad_gate) * gates).real * -np.exp(parameters["log_decay"])
    return float(np.mean(error**2)), {
        "log_decay": along,
        "angle": (np.conj(grad_gate) * gates * 1j).real,
        "input": (grad_inputs * x[..., None]).sum(axis=(0, 1)),
        "output": (slope[..., None] * np.conj(states[1])).sum(axis=(0, 1)),
    }


def draw_parameters(rng: np.random.Generator, states: int) -> Parameters:
    """Draw the parameters of a layer with this many states."""
    numbers = rng.normal(size=(2, states, 2))
    return {
        "log_decay": np.log(rng.uniform(0.05, 0.3, states)),
        "angle": np.linspace(0.1, 1.2, states),
        "input": numbers[0] @ [1, 1j],
        "output": numbers[1] @ [1, 1j] / states,
    }


def main() -> None:
    """Train with Adam (Kingma and Ba 2015), and check that the error falls to a hundredth."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SEQUENCES, STEPS)).astype(np.float32)
    system = {
        "log_decay": np.log([0.08, 0.2]),
        "angle": np.array([0.3, 0.9]),
        "input": np.array([1, 1j]),
        "output": np.array([0.7, 0.4 - 0.3j]),
    }
    state, wanted = np.zeros((SEQUENCES, 2), complex), np.empty((SEQUENCES, STEPS))
    for t in range(STEPS):
        state = gates_of(system) * state + system["input"] * x[:, t, None]
        wanted[:, t] = (state @ system["output"]).real

    parameters = draw_parameters(rng, STATES)
    mean = {name: np.zeros_like(value) for name, value in parameters.items()}
    square = {name: np.zeros(value.shape) for name, value in parameters.items()}
    errors = []
    for step in range(1, ROUNDS + 1):
        error, gradients = gradient(parameters, x, wanted)
        errors.append(error)
        for name, grad in gradients.items():
            mean[name] = 0.9 * mean[name] + 0.1 * grad
            square[name] = 0.99 * square[name] + 0.01 * np.abs(grad) ** 2
            size = np.sqrt(square[name] / (1 - 0.99**step)) + 1e-8
            parameters[name] = parameters[name] - RATE * mean[name] / (1 - 0.9**step) / size
    assert errors[-1] < errors[0] / 100, errors[-1]
    print(f"The mean squared error fell from {errors[0]:.4f} to {errors[-1]:.6f} in {ROUNDS} rounds.")


if __name__ == "__main__":
    main()
