"""Estimate advantages for reinforcement learning: a linear recurrence from the end of each episode.

Generalised advantage estimation (Schulman et al. 2016) sums the errors of a value function over the time to come:
``A[t] = delta[t] + discount * decay * A[t+1]``, and begins again after the last step of an episode.

Run it: python examples/advantage_estimation.py
"""

from __future__ import annotations

import numpy as np

import gpuscan as gs

STEPS, ENVIRONMENTS = 512, 256
DISCOUNT, DECAY = 0.99, 0.95


def main() -> None:
    """Compute the advantages of all environments at once, and compare with a loop over time."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(STEPS, ENVIRONMENTS)).astype(np.float32)
    values = rng.normal(size=(STEPS + 1, ENVIRONMENTS)).astype(np.float32)
    going_on = (rng.random((STEPS, ENVIRONMENTS)) > 0.02).astype(np.float32)  # 0 at the last step of an episode

    errors = rewards + np.float32(DISCOUNT) * values[1:] * going_on - values[:-1]
    advantages = gs.linear_recurrence(np.float32(DISCOUNT * DECAY) * going_on, errors, axis=0, reverse=True)

    later = np.zeros(ENVIRONMENTS)
    for t in reversed(range(STEPS)):
        later = errors[t] + DISCOUNT * DECAY * going_on[t] * later
        assert np.allclose(advantages[t], later, atol=1e-4), f"different at step {t}"
    print(f"Estimated {advantages.size:,} advantages in {ENVIRONMENTS} environments.")


if __name__ == "__main__":
    main()
