"""Estimate advantages for reinforcement learning, by the loop as it stands in the paper.

Generalised advantage estimation (Schulman et al. 2016) runs from the end of an episode. With `gpuscan.loop` the step is
written down as it is, and the end of an episode is a reset. `advantage_estimation.py` does the same by a recurrence.

Run it: python examples/advantages_by_a_loop.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs

STEPS, ENVIRONMENTS = 256, 128
DISCOUNT, DECAY = np.float32(0.99), np.float32(0.95)


def step(carry: Any, moment: Any) -> tuple[Any, Any]:
    """Return the advantage and the value of this step, and the advantage as the output."""
    advantage, next_value = carry
    reward, value, done = moment
    error = reward + DISCOUNT * np.where(done, 0, next_value) - value
    advantage = error + DISCOUNT * DECAY * np.where(done, 0, advantage)
    return (advantage, value), advantage


def main() -> None:
    """Compute the advantages of all environments at once, and compare with the loop."""
    rng = np.random.default_rng(0)
    shape = (STEPS, ENVIRONMENTS)
    rewards, values = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    done = rng.random(shape) < 0.02
    last = rng.normal(size=ENVIRONMENTS).astype(np.float32)
    _, advantages = gs.loop(step, (np.float32(0), last), (rewards, values, done), reverse=True)

    carry: Any = (np.zeros(ENVIRONMENTS, np.float32), last)
    for t in reversed(range(STEPS)):
        carry, expected = step(carry, (rewards[t], values[t], done[t]))
        assert np.allclose(advantages[t], expected, atol=1e-4), f"different at step {t}"
    print(f"Estimated {advantages.size:,} advantages in {ENVIRONMENTS} environments.")


if __name__ == "__main__":
    main()
