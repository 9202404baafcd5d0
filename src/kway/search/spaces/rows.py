"""Rows (n, d), dense or CSR: joining, leaving out, and the arrays of a model file.

dense   {"rows": (n, d)}           CSR   {"rows.data", "rows.indices", "rows.indptr"}
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def join_rows(rows: Any, more: Any) -> Any:
    """Rows followed by more rows, in the type that holds both."""
    if sp.issparse(rows) or sp.issparse(more):
        return sp.csr_matrix(sp.vstack([sp.csr_matrix(rows), sp.csr_matrix(more)]))
    return np.concatenate([rows, more])


def drop_rows(rows: Any, positions: NDArray[np.int64]) -> Any:
    """Rows but those at positions."""
    if sp.issparse(rows):
        return rows[np.delete(np.arange(rows.shape[0]), positions)]
    return np.delete(rows, positions, axis=0)


def row_arrays(rows: Any) -> dict[str, NDArray]:
    """Arrays that hold rows in a model file."""
    if sp.issparse(rows):
        return {"rows.data": rows.data, "rows.indices": rows.indices, "rows.indptr": rows.indptr}
    return {"rows": np.asarray(rows)}


def rows_of_arrays(arrays: dict[str, NDArray], n: int, d: int) -> Any:
    """Rows (n, d) out of the arrays of `row_arrays`, None where they are not among them."""
    if "rows.data" in arrays:
        return sp.csr_matrix((arrays["rows.data"], arrays["rows.indices"], arrays["rows.indptr"]), shape=(n, d))
    return np.asarray(arrays["rows"]) if "rows" in arrays else None
