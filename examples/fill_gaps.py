"""Fill the gaps of a measurement with the last valid value, by an operator of your own on two arrays.

Run it: python examples/fill_gaps.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs


def latest(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Return the later of two readings if it is valid, else the earlier one."""
    return {
        "value": np.where(right["valid"], right["value"], left["value"]),
        "valid": left["valid"] | right["valid"],
    }


def main() -> None:
    """Fill the gaps on the GPU, and compare with a loop."""
    rng = np.random.default_rng(0)
    readings = {"value": rng.normal(20, 5, 10_000).astype(np.float32), "valid": rng.random(10_000) < 0.7}

    gs.check_associative(latest, {"value": np.float32, "valid": bool})
    filled = gs.scan(readings, latest)

    last, known = np.float32(0), False
    for i, (value, valid) in enumerate(zip(readings["value"], readings["valid"], strict=True)):
        last, known = (value, True) if valid else (last, known)
        assert filled["valid"][i] == known
        assert not known or filled["value"][i] == last
    print(f"Filled {np.count_nonzero(~readings['valid']):,} gaps in {len(filled['value']):,} readings.")


if __name__ == "__main__":
    main()
