"""TensorRows: rows (n, d) on a device, which the host holds by their shape, cuts and multiplies, and never copies.

    X.shape, X.dtype, len(X)     as of an array
    X[some]                      TensorRows again, cut there
    X @ v, X.T @ v               products with an array, in full precision: what comes of them is fetched
    gram, squares, keys, ...     sums over all rows, made there
    np.asarray(X)                a copy, for those who want a few rows, or a file

The host's code asks `isinstance(X, TensorRows)` only where it would have read every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.rows.gpu.device import Device, Tensor

_VALUES = 1 << 26  # of a block that is worked on in float64: 512 MB


@dataclass(frozen=True, eq=False)
class TensorRows:
    """A tensor of float32 or float64 that stays where it is."""

    tensor: Tensor
    copied: bool = False  # from an array of the host, which may have the rows back

    @property
    def device(self) -> Device:
        """Where."""
        return Device(str(self.tensor.device))

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """2."""
        return int(self.tensor.ndim)

    @property
    def dtype(self) -> np.dtype:
        """As numpy's."""
        return np.dtype(str(self.tensor.dtype).removeprefix("torch."))

    @property
    def nbytes(self) -> int:
        """On the device."""
        return int(self.tensor.numel() * self.tensor.element_size())

    @property
    def T(self) -> TensorRows:
        """Its columns as rows; nothing is moved."""
        return TensorRows(self.tensor.T)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, some: Any) -> TensorRows:
        return TensorRows(self.tensor[self.device.put(some) if isinstance(some, np.ndarray) else some], self.copied)

    def __matmul__(self, other: NDArray) -> NDArray:
        with self.device.full_precision():
            return self.device.fetch(self.tensor @ self.device.put(other, self.tensor.dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        found = self.device.fetch(self.tensor)
        return found.astype(found.dtype if dtype is None else dtype, copy=bool(copy))

    # ---- sums over the rows

    def gram(self, root: NDArray | None, bias: bool, dtype: np.dtype) -> NDArray:
        """Z' Z (D, D) of Z = diag(root) [X 1]."""
        torch, kind, total = self.device.torch, getattr(self.device.torch, dtype.name), None
        with self.device.full_precision():
            for part in self.parts():
                Z = self.tensor[part].to(kind)
                Z = torch.cat((Z, Z.new_ones((len(Z), 1))), dim=1) if bias else Z
                Z = Z if root is None else Z * self.device.put(root[part], kind)[:, None]
                total = Z.T @ Z if total is None else total.addmm_(Z.T, Z)
        return self.device.fetch(total)

    def squares(self, h: NDArray | None) -> NDArray:
        """sum_i h_ki x_ij^2, (R, d); without h (R, n) the plain sums (1, d)."""
        total = None
        with self.device.full_precision():
            for part in self.parts():
                squares = self.tensor[part].square()
                more = squares.sum(0, keepdim=True) if h is None else self._put(h[:, part]) @ squares
                total = more if total is None else total + more
        return self.device.fetch(total)

    def peak(self) -> float:
        """The largest absolute value."""
        low, high = self.tensor.aminmax()
        return max(-float(low), float(high))

    def row_peaks(self) -> Tensor:
        """The largest absolute value (n,) of each row, there."""
        low, high = self.tensor.aminmax(dim=1)
        return self.device.torch.maximum(-low, high)

    def row_squares(self) -> NDArray:
        """|x_i|^2 (n,)."""
        return self.device.fetch(self.device.torch.cat([self.tensor[part].square().sum(1) for part in self.parts()]))

    def mean(self, axis: int = 0, dtype: Any = None) -> NDArray:
        """Of the rows (d,), added up in float64; in the type of the rows, or another."""
        total = sum(self.tensor[part].double().sum(axis) for part in self.parts())
        return self.device.fetch(total / len(self)).astype(dtype or self.dtype)

    def mean_square(self) -> float:
        """Of all numbers."""
        total = sum(float(self.tensor[part].double().square().sum()) for part in self.parts())
        return total / max(1, self.tensor.numel())

    def keys(self, direction: NDArray) -> NDArray:
        """x_i . direction (n,) float64; equal rows have equal keys, as every row is added up alike."""
        along = self.device.put(direction)
        parts = [(self.tensor[part].double() * along).sum(1) for part in self.parts()]
        return self.device.fetch(self.device.torch.cat(parts))

    def equal(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether rows a are rows b, one by one."""
        here, there = map(self.device.put, (a, b))
        return self.device.fetch((self.tensor[here] == self.tensor[there]).all(1))

    def units(self) -> NDArray[np.float64]:
        """The root mean square (d,) of each column's entries other than zero; 1 where all are zero."""
        low, high = self.tensor.aminmax(dim=0)
        top = self.device.torch.maximum(-low, high).double()
        top[top == 0] = 1
        squares = sum((self.tensor[part].double() / top).square().sum(0) for part in self.parts())
        counts = sum((self.tensor[part] != 0).sum(0) for part in self.parts())
        return self.device.fetch((top * (squares / counts.clamp(min=1)).sqrt()).where(counts > 0, 1.0))

    def divided(self, units: NDArray) -> TensorRows:
        """Each column in units of its own."""
        return TensorRows((self.tensor / self.device.put(units)).to(self.tensor.dtype))

    def less(self, mean: NDArray) -> TensorRows:
        """Each row less this one."""
        return TensorRows(self.tensor - self._put(mean))

    def shifted(self, center: NDArray[np.float64]) -> TensorRows:
        """Each row less the center, subtracted in float64."""
        return TensorRows((self.tensor.double() - self.device.put(center)).to(self.tensor.dtype))

    def unit(self) -> TensorRows:
        """Each row divided by its length; rows of zeros stay zeros."""
        exact = self.tensor.double()
        lengths = exact.square().sum(1, keepdim=True).sqrt()
        return TensorRows((exact / lengths.where(lengths > 0, 1.0)).to(self.tensor.dtype))

    # ---- class rows: kway.base.class_rows calls these

    def class_scores(self, W: NDArray, b: NDArray) -> Tensor:
        """Scores (n, R) of all classes."""
        return self._classes(W, b).scores(self.tensor)

    def class_shares(self, W: NDArray, b: NDArray, shares: Any) -> Tensor:
        """Probabilities (n, K) of all classes."""
        return self._classes(W, b).shares(self.tensor, shares)

    def best_classes(self, W: NDArray, b: NDArray, k: int, shares: Any) -> tuple[Tensor, Tensor]:
        """Codes (n, k) of the best classes, and their scores or probabilities (n, k)."""
        return self._classes(W, b).best_answers(self.tensor, k, shares)

    def _classes(self, W: NDArray, b: NDArray) -> Any:
        from kway.rows.gpu.class_scores import classes_on_device  # loads torch

        return classes_on_device(self.device, W, b)

    def _put(self, array: NDArray) -> Tensor:
        return self.device.put(array, self.tensor.dtype)

    def parts(self) -> Iterator[slice]:
        """Blocks of rows that are worked on in float64."""
        step = max(1, _VALUES // max(1, self.tensor.shape[1]))
        return (slice(at, min(len(self), at + step)) for at in range(0, max(1, len(self)), step))
