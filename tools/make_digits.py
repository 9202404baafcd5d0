"""Make src/kway/tables/datasets/embedded/digits.npz: 5,000 + 1,000 MNIST images, class-balanced, drawn with a seed.

    python tools/make_digits.py mnist.npz

`mnist.npz` holds x_train (60000, 784) uint8, y_train, x_test (10000, 784) uint8, y_test in MNIST's own order. Train
images come from its train part, test images from its test part, so no test image was ever a training image.
"""

import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[1] / "src" / "kway" / "tables" / "datasets" / "embedded" / "digits.npz"


def balanced(y: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Positions of `per_class` rows a class, in random order."""
    rng = np.random.default_rng(seed)
    picked = [rng.choice(np.flatnonzero(y == c), per_class, replace=False) for c in range(10)]
    return rng.permutation(np.concatenate(picked))


def main(source: str) -> None:
    """Read MNIST, write the subset."""
    with np.load(source) as mnist:
        train, test = balanced(mnist["y_train"], 500, seed=0), balanced(mnist["y_test"], 100, seed=1)
        np.savez_compressed(
            OUT,
            x_train=mnist["x_train"][train],
            y_train=mnist["y_train"][train].astype(np.uint8),
            x_test=mnist["x_test"][test],
            y_test=mnist["y_test"][test].astype(np.uint8),
        )


if __name__ == "__main__":
    main(sys.argv[1])
