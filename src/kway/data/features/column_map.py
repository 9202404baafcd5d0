"""ColumnMap: what was learned from labels about the columns, z = (scale (x - centre)) turn'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """scale (d,); centre (d,), None: 0, as sparse rows need it; turn (r, d), None: columns are not mixed."""

    scale: NDArray[np.float64]
    centre: NDArray[np.float64] | None = None
    turn: NDArray[np.float64] | None = None

    def apply(self, X: Any) -> Any:
        """Rows (n, d), dense or CSR -> (n, r) or (n, d) of the same float type."""
        if sp.issparse(X):
            return sp.csr_matrix(X.multiply(self.scale.astype(X.dtype)).tocsr(), dtype=X.dtype)
        moved = X if self.centre is None else X - self.centre
        scaled = moved * self.scale  # float64: a row of 1e30 in float32 times 1e-30 loses nothing
        turned = scaled if self.turn is None else scaled @ self.turn.T
        return np.ascontiguousarray(turned.astype(X.dtype))
