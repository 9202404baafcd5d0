"""Cosine through a certified Euclidean search of unit vectors: ||u - v||^2 = 2 (1 - cos), so the order is the same.

The unit rows are rounded to float32, so what is found is confirmed on the rows as given (proven_neighbors.py). A zero
row stays at the origin, nearer to every query than its cosine distance of 1 says, so it is never missed; a zero query
gets no proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap, spans
from kway.search.blocks import BlockScan
from kway.search.index import Neighbors
from kway.search.proven_neighbors import EXTRA, confirm
from kway.search.spaces.distances import COSINE, EUCLIDEAN

_ROUNDING = 4.0 * 2.0**-23  # how far two rounded unit vectors may lie from the true ones, generously


@dataclass
class Angles:
    """A certified search over the unit rows of a segment."""

    segment: BlockScan
    certified: Any
    touched: float = float("nan")

    @staticmethod
    def over(segment: BlockScan, certify: Callable[..., Any], n_jobs: int | None = None) -> Angles | None:
        """The search, or None where bounds would not pay."""
        certified = certify(_units(segment.rows, n_jobs), EUCLIDEAN, n_jobs)
        return None if certified is None else Angles(segment, certified)

    @property
    def why(self) -> str:
        """What was chosen."""
        return f"cosine through unit vectors; {self.certified.why}"

    @property
    def nbytes(self) -> int:
        """Bytes held beside the rows."""
        return int(self.certified.nbytes)

    def pays(self, k: int) -> bool:
        """Whether this beats plain blocks for k neighbours."""
        return bool(self.certified.pays(k + EXTRA))

    def nearest(self, queries: NDArray, k: int, n_jobs: int | None = None) -> Neighbors:
        """The k nearest by cosine distance, ids equal to brute force in float64."""
        found = self.certified.nearest(_units(queries, n_jobs), min(len(self.segment.rows), k + EXTRA), n_jobs)
        confirmed = confirm(self.segment, queries, Neighbors(*found), k, _ROUNDING, n_jobs)
        self.touched = float(self.certified.touched) + confirmed.measured / len(queries)
        return confirmed.neighbors


def _units(rows: NDArray, n_jobs: int | None) -> NDArray[np.float32]:
    """Rows (n, d) at length 1."""
    units = np.empty(rows.shape, dtype=np.float32)

    def work(part: slice) -> None:
        units[part] = COSINE.place(rows[part].astype(np.float64))

    pmap(work, spans(len(rows), max(64, 2**18 // rows.shape[1])), n_jobs)
    return units
