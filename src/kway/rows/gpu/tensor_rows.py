"""TensorRows: rows (n, d) in a tensor on a device, which the host slices and multiplies without copying them.

    X.shape, X.dtype, len(X)     as for an array
    X[rows]                      TensorRows again, sliced on the device
    X @ v, X.T @ v               products with an array in full precision; the result is copied to the host
    gram, squares, keys, ...     sums over all rows, computed on the device
    np.asarray(X)                the rows as an array on the host

Code that takes arrays needs a special case for TensorRows only where it would otherwise read all rows on the host.
Means, units and `keys` are computed in float64; `gram` in the dtype that the caller names; other sums in the dtype of
the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kway.rows.gpu.device import Device, Tensor, row_blocks


@dataclass(frozen=True, eq=False)
class TensorRows:
    """Rows in a tensor of float32 or float64 that stays on its device."""

    tensor: Tensor

    @property
    def device(self) -> Device:
        """The device of the tensor."""
        return Device(str(self.tensor.device))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n, d) of the rows."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions, always 2."""
        return int(self.tensor.ndim)

    @property
    def dtype(self) -> np.dtype:
        """The numpy dtype of the values."""
        return np.dtype(str(self.tensor.dtype).removeprefix("torch."))

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(self.tensor.numel() * self.tensor.element_size())

    @property
    def T(self) -> Self:
        """The transposed view."""
        return type(self)(self.tensor.T)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(self.tensor[self.device.put(rows) if isinstance(rows, np.ndarray) else rows])

    def __matmul__(self, other: NDArray) -> NDArray:
        with self.device.full_precision():
            return self.device.fetch(self.tensor @ self.device.put(other, self.tensor.dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        values = self.device.fetch(self.tensor)
        return values.astype(values.dtype if dtype is None else dtype, copy=bool(copy))

    # ---- sums over the rows

    def gram(self, weight: NDArray | None, bias: bool, dtype: np.dtype) -> NDArray:
        """Return [X 1]' diag(weight) [X 1] / n (D, D), in Fortran order."""
        torch, total = self.device.torch, None
        torch_dtype, root = getattr(torch, dtype.name), None if weight is None else np.sqrt(weight)
        with self.device.full_precision():
            for part in self.parts():
                Z = self.tensor[part].to(torch_dtype)
                Z = torch.cat((Z, Z.new_ones((len(Z), 1))), dim=1) if bias else Z
                Z = Z if root is None else Z * self.device.put(root[part], torch_dtype)[:, None]
                total = Z.T @ Z if total is None else total.addmm_(Z.T, Z)
        return np.asfortranarray(self.device.fetch(total) / dtype.type(max(1, len(self))))

    def squares(self, h: NDArray | None) -> NDArray:
        """Return sum_i h_ki x_ij^2 (R, d) for weights h (R, n), or sum_i x_ij^2 (1, d) without weights."""
        total = None
        with self.device.full_precision():
            for part in self.parts():
                squares = self.tensor[part].square()
                block_sum = squares.sum(0, keepdim=True) if h is None else self._put(h[:, part]) @ squares
                total = block_sum if total is None else total + block_sum
        return self.device.fetch(total)

    def peak(self) -> float:
        """Return the largest absolute value."""
        low, high = self.tensor.aminmax()
        return max(-float(low), float(high))

    def row_peaks(self) -> Tensor:
        """Return the largest absolute value (n,) of each row, on the device."""
        low, high = self.tensor.aminmax(dim=1)
        return self.device.torch.maximum(-low, high)

    def row_squares(self) -> NDArray:
        """Return |x_i|^2 (n,)."""
        return self.device.fetch(self.device.torch.cat([self.tensor[part].square().sum(1) for part in self.parts()]))

    def mean(self, axis: int = 0, dtype: Any = None) -> NDArray:
        """Return the mean row (d,), summed in float64, in the dtype of the rows or another.

        `axis` makes the call equal to that of arrays; other axes than 0 raise ValueError.
        """
        if axis != 0:
            raise ValueError(f"TensorRows has means of columns only, got axis={axis!r}")
        total = sum(self.tensor[part].double().sum(0) for part in self.parts())
        return self.device.fetch(total / len(self)).astype(dtype or self.dtype)

    def mean_square(self) -> float:
        """Return the mean square of all values."""
        total = sum(float(self.tensor[part].double().square().sum()) for part in self.parts())
        return total / max(1, self.tensor.numel())

    def keys(self, direction: NDArray) -> NDArray:
        """Return the projections x_i . direction (n,) float64.

        Equal rows have equal projections, because the products of every row are summed in the same order.
        """
        along = self.device.put(direction)
        parts = [(self.tensor[part].double() * along).sum(1) for part in self.parts()]
        return self.device.fetch(self.device.torch.cat(parts))

    def equal(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether row a_i equals row b_i, for each i."""
        first, second = map(self.device.put, (a, b))
        return self.device.fetch((self.tensor[first] == self.tensor[second]).all(1))

    def units(self) -> NDArray[np.float64]:
        """Return the root mean square (d,) of the nonzero entries of each column; 1 if all are zero."""
        low, high = self.tensor.aminmax(dim=0)
        peaks = self.device.torch.maximum(-low, high).double()  # divided out, so that no square overflows
        peaks[peaks == 0] = 1
        squares = sum((self.tensor[part].double() / peaks).square().sum(0) for part in self.parts())
        counts = sum((self.tensor[part] != 0).sum(0) for part in self.parts())
        return self.device.fetch((peaks * (squares / counts.clamp(min=1)).sqrt()).where(counts > 0, 1.0))

    def scale_columns(self, units: NDArray) -> Self:
        """Return the rows with every column j divided by units[j]."""
        return type(self)((self.tensor / self.device.put(units)).to(self.tensor.dtype))

    def subtract_mean(self, mean: NDArray) -> Self:
        """Return the rows with the mean row subtracted in the dtype of the rows."""
        return type(self)(self.tensor - self._put(mean))

    def shifted(self, center: NDArray[np.float64]) -> Self:
        """Return the rows with the center subtracted in float64."""
        return type(self)((self.tensor.double() - self.device.put(center)).to(self.tensor.dtype))

    def unit(self) -> Self:
        """Return the rows divided by their norms; zero rows stay zero."""
        from kway.rows.gpu.exact_search import unit_rows

        return type(self)(unit_rows(self.tensor.double()).to(self.tensor.dtype))

    def answers_of(self, W: NDArray, b: NDArray, answer: Callable[[Any, Tensor], Sequence[Tensor]]) -> Sequence[Tensor]:
        """Return the answers (n, ...) of classes with weights W (R, d) and b (R,), which `answer` computes."""
        from kway.rows.gpu.class_scores import classes_on_device  # loads torch

        return answer(classes_on_device(self.device, W, b), self.tensor)

    def _put(self, array: NDArray) -> Tensor:
        return self.device.put(array, self.tensor.dtype)

    def parts(self) -> list[slice]:
        """Return blocks of rows that fit in memory as float64; if there are no rows, one empty block."""
        return row_blocks(len(self), 8 * self.tensor.shape[1]) or [slice(0, 0)]
