"""Some classes of a softmax against all rows, on a device: the two halves of a pass (linear/objective/class_shard.py).

    normalisers   of each row (n,): its largest score, the sum of exp(score - largest), its own class's score
    products      sum_i w_i (exp(f_ic - log Z_i) - [y_i = c]) [x_i 1] of each class, (c, d + 1)

Rows stay on the device; theta and what comes of it travel, 4 c (d + 1) bytes each way, by the node's own bus.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_VALUES = 1 << 26  # of a block of scores: 256 MB in float32


class DeviceClassScores:
    """Rows (n, d) on a device, and each row's class counted from the first of those here (outside: elsewhere's)."""

    def __init__(self, device: str, X: NDArray, codes: NDArray[np.int64], weight: NDArray | None) -> None:
        self._device = torch.device(device)
        self._X = self._there(X)
        self._codes = self._there(codes)
        self._weight = None if weight is None else self._there(weight)

    def normalisers(self, theta: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Largest, sums and own, on the host."""
        held, n = self._there(theta), len(self._X)
        largest = torch.empty(n, dtype=held.dtype, device=self._device)
        sums, own = torch.zeros(2, n, dtype=torch.float64, device=self._device)
        for rows in self._blocks(len(theta)):
            scores = torch.addmm(held[:, -1], self._X[rows], held[:, :-1].T)  # (m, c)
            here, at = self._own(rows, len(theta))
            own[rows][here] = scores[here, at].double()
            largest[rows] = scores.max(dim=1).values
            sums[rows] = scores.sub_(largest[rows, None]).exp_().sum(dim=1, dtype=torch.float64)
        return largest.cpu().numpy(), sums.cpu().numpy(), own.cpu().numpy()

    def products(self, theta: NDArray, log_z: NDArray) -> NDArray:
        """The sums of the gradients, on the host."""
        held, log = self._there(theta), self._there(log_z.astype(theta.dtype))
        out = torch.zeros_like(held)
        for rows in self._blocks(len(theta)):
            slopes = torch.addmm(held[:, -1], self._X[rows], held[:, :-1].T).sub_(log[rows, None]).exp_()
            here, at = self._own(rows, len(theta))
            slopes[here, at] -= 1
            if self._weight is not None:
                slopes *= self._weight[rows, None]
            out[:, :-1] += slopes.T @ self._X[rows]
            out[:, -1] += slopes.sum(dim=0)
        return np.asarray(out.cpu().numpy())

    def _blocks(self, classes: int) -> list[slice]:
        n, size = len(self._X), max(64, _VALUES // classes)
        return [slice(a, min(n, a + size)) for a in range(0, n, size)]

    def _own(self, rows: slice, classes: int) -> tuple[Tensor, Tensor]:
        """Which of some rows have their class here, and where."""
        codes = self._codes[rows]
        here = torch.nonzero((codes >= 0) & (codes < classes))[:, 0]
        return here, codes[here]

    def _there(self, array: Any) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self._device)  # a copy: what Ray shares is read-only
