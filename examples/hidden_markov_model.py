"""Decode a hidden Markov model: the forward algorithm and Viterbi's, as associative scans of small matrices.

Both multiply one matrix for each observation, ``M[t][i, j] = P(j | i) P(observation t | j)``. The forward algorithm
takes sums of products; Viterbi's takes maxima of sums of logarithms. Both products are associative.

Run it: python examples/hidden_markov_model.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import gpuscan as gs

Array = npt.NDArray[np.floating[Any]]

STEPS, STATES, SYMBOLS = 2000, 2, 3


@gs.operator(element_axes=2)
def probable(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Multiply two matrices, and keep the logarithm of their size apart, so that nothing underflows."""
    product = left["matrix"] @ right["matrix"]
    size = np.max(np.max(product, axis=-1, keepdims=True), axis=-2, keepdims=True)
    return {"matrix": product / size, "log_size": left["log_size"] + right["log_size"] + np.log(size)}


@gs.operator(element_axes=2)
def best(left: Any, right: Any) -> Any:
    """Multiply two matrices with maxima in the place of sums, and sums in the place of products."""
    return np.max(left[..., :, :, None] + right[..., None, :, :], axis=-2)


def loop(start: Array, move: Array, show: Array, seen: Any) -> tuple[Array, float, list[int]]:
    """Return the filtered probabilities, the log-likelihood, and the most probable path, one step at a time."""
    alpha, likelihood, filtered = start * show[:, seen[0]], 0.0, []
    score, choices = np.log(alpha), []
    for t, symbol in enumerate(seen):
        if t:
            alpha = alpha @ move * show[:, symbol]
            through = score[:, None] + np.log(move)
            choices.append(through.argmax(axis=0))
            score = through.max(axis=0) + np.log(show[:, symbol])
        likelihood += np.log(alpha.sum())
        alpha = alpha / alpha.sum()
        filtered.append(alpha)
    path = [int(score.argmax())]
    for choice in choices[::-1]:
        path.append(int(choice[path[-1]]))
    return np.array(filtered), likelihood, path[::-1]


def main() -> None:
    """Draw a sequence of states and symbols, and find the states again from the symbols."""
    rng = np.random.default_rng(0)
    start = np.full(STATES, 1 / STATES)
    move = 0.9 * np.eye(STATES) + 0.1 * rng.dirichlet(np.ones(STATES), STATES)
    show = 0.6 * np.eye(STATES, SYMBOLS) + 0.4 * rng.dirichlet(np.ones(SYMBOLS), STATES)
    states = [0]
    for _ in range(STEPS - 1):
        states.append(int(rng.choice(STATES, p=move[states[-1]])))
    seen = np.array([rng.choice(SYMBOLS, p=show[state]) for state in states])

    matrices = (move * show[:, seen].T[:, None, :]).astype(np.float32)
    # Each row of the first matrix begins with the distribution at the start.
    matrices[0] = start * show[:, seen[0]]

    products = gs.scan({"matrix": matrices, "log_size": np.zeros((STEPS, 1, 1), np.float32)}, probable, axis=0)
    alpha = products["matrix"][:, 0, :]
    filtered = alpha / alpha.sum(axis=1, keepdims=True)
    likelihood = float(products["log_size"][-1, 0, 0] + np.log(alpha[-1].sum()))

    logs = np.log(matrices)
    scores = gs.scan(logs, best, axis=0)[:, 0, :]
    # Scan from the end: the score that the best continuation after each step adds. After the last step it is 0.
    rest = gs.scan(logs[1:], gs.operator(lambda later, one: best(one, later), element_axes=2), axis=0, reverse=True)
    path = (scores + np.append(rest.max(axis=-1), np.zeros((1, STATES), np.float32), axis=0)).argmax(axis=1)

    wanted, expected, best_path = loop(start, move, show, seen)
    assert np.allclose(filtered, wanted, atol=1e-4)
    assert np.isclose(likelihood, expected, rtol=1e-4)
    assert np.array_equal(path, best_path)
    right = np.mean(path == states)
    assert right > 0.8
    print(f"Log-likelihood {likelihood:.1f}; {right:.0%} of {STEPS:,} hidden states found.")


if __name__ == "__main__":
    main()
