"""The embedded digits as float32 in [0, 1]: what the ladders work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import kway


@dataclass(frozen=True)
class Digits:
    """5,000 training and 1,000 test images, 784 pixels each."""

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]

    @classmethod
    def load(cls) -> Digits:
        """Read them."""
        found = kway.datasets.load("digits")
        train, test = (x.reshape(len(x), -1).astype(np.float32) / 255 for x in (found.x_train, found.x_test))
        return cls(train, found.y_train.astype(np.int64), test)
