"""Sum any rectangle of an image by four reads: an integral image is a running sum along both axes.

Run it: python examples/integral_image.py
"""

from __future__ import annotations

import numpy as np

import gpuscan as gs


def main() -> None:
    """Make the integral image on the GPU, sum a thousand rectangles, and compare with NumPy."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (480, 640), dtype=np.uint8)

    sums = gs.scan(gs.scan(image, axis=1, dtype=np.int32), axis=0)
    integral = np.pad(sums, ((1, 0), (1, 0)))

    for _ in range(1_000):
        top, bottom = np.sort(rng.integers(0, image.shape[0] + 1, 2))
        left, right = np.sort(rng.integers(0, image.shape[1] + 1, 2))
        found = integral[bottom, right] - integral[top, right] - integral[bottom, left] + integral[top, left]
        assert found == image[top:bottom, left:right].sum(dtype=np.int32)
    print(f"Summed 1,000 rectangles of an image of {image.shape[1]} x {image.shape[0]} pixels.")


if __name__ == "__main__":
    main()
