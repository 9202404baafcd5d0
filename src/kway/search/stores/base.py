"""What a store offers: codes for rows, the rows as they decode, their errors, and arrays for a model file.

store.encode(rows, distance)  Codes of rows (n, d) that are searched under a distance
codes[part]                   the decoded rows (m, d) float32: what scans measure
codes.errors(rows, distance)  how far each decoded row lies from its full one: with it, scans of codes and full rows
                              of the few that pass (`rerank`) answer exactly; without full rows, approximately
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap, spans
from kway.errors import CombinationError
from kway.search.spaces.distances import Distance


class Codes(ABC):
    """Rows (n, d) in fewer bytes."""

    dtype = np.dtype(np.float32)  # of decoded rows

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n, d)."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held."""

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """Decoded rows of a slice or an array of positions."""

    @abstractmethod
    def like(self, rows: NDArray) -> Codes:
        """Codes of more rows, made so that `join` can hold both."""

    @abstractmethod
    def join(self, more: Any) -> Codes:
        """These and more codes, made by `like`."""

    @abstractmethod
    def take(self, positions: NDArray[np.int64]) -> Codes:
        """The codes at positions."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file; the store's `restore` reverses it."""

    def errors(self, rows: NDArray, distance: Distance) -> NDArray[np.float64]:
        """How far (n,) each decoded row lies from its full one, in the distance's space."""
        parts = spans(len(rows), max(64, 2**20 // max(1, rows.shape[1])))
        found = pmap(lambda part: distance.errors(rows[part], self[part]), parts)
        return np.concatenate(found) if found else np.empty(0)


class Store(ABC):
    """How to code rows, a frozen dataclass; never changed by a fit. `rerank` keeps the full rows beside the codes."""

    name: ClassVar[str]
    rerank: bool

    @property
    def exact(self) -> bool:
        """Whether answers are those of brute force over the rows as they are kept."""
        return True

    @abstractmethod
    def encode(self, rows: NDArray, distance: Distance) -> Codes:
        """Codes of rows (n, d) that are searched under the distance."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> Codes | None:
        """The codes of a model file, None where it holds none."""

    def check(self, distance: Distance, sparse: bool) -> None:
        """Refuse rows that codes cannot stand for."""
        if sparse or not distance.coded:
            what = "sparse rows" if sparse else f"the metric {distance.name!r}"
            raise CombinationError(
                f"{type(self).__name__}() cannot keep {what}: coded values are rounded; use store=None"
            )

    def facts(self) -> dict[str, Any]:
        """JSON facts of the store."""
        return {"name": self.name, **vars(self)}
