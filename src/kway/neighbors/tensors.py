"""Tensors in, tensors out: answers of the host, or codes of classes, as tensors where the rows are tensors.

A vote is counted on the host from the few rows found; the queries themselves are searched where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Device, as_tensor, is_tensor, on_host
from kway.data.gate import checked
from kway.neighbors.voting import VotingClassifier
from kway.search.device.on_device import DeviceIndex, holds, staying
from kway.search.flat import Flat
from kway.search.index import Neighbors, TopK


def as_given(X: Any, answer: NDArray) -> Any:
    """An answer as a tensor where X is, if X is one and the answer is numbers; else as it is."""
    return as_tensor(Device(str(X.device)), answer) if is_tensor(X) else answer


class TensorVotes(VotingClassifier):
    """A vote among the rows that an index finds, of tensors too."""

    index: Any
    device: str
    index_: Any
    n_neighbors: int
    n_jobs: int | None

    def _keeps(self, X: Any) -> Device | None:
        """Where the rows of a fit stay, if they are a tensor that a device can search; None: they are read here."""
        device = staying(self.device, X)
        if device is None or self.index in ("auto", "flat", "landmarks"):
            return device
        from kway.search.landmarks import Landmarks  # loaded where they are asked for

        return device if isinstance(self.index, Flat | Landmarks) else None

    def _rows(self, X: Any) -> Any:
        """Rows through the gate; a tensor that the index answers is looked at where it is."""
        index = getattr(self, "index_", None)
        if is_tensor(X) and isinstance(index, DeviceIndex) and holds(index, X, self.n_neighbors):
            return X
        return super()._rows(X)

    def _found(self, rows: Any, k: int) -> Neighbors:
        """The k nearest of a block of rows, on the host."""
        asked = rows if is_tensor(rows) else checked(rows)
        return Neighbors(*map(on_host, self.index_.nearest(asked, k, self.n_jobs)))

    def _answer_type(self, rows: Any) -> np.dtype:
        return np.dtype(str(rows.dtype).removeprefix("torch."))

    def predict(self, X: Any) -> Any:
        """Labels (n,); a tensor where X is one and labels are numbers."""
        return as_given(X, super().predict(X))

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row, all of them where there are fewer, and their shares, best first."""
        found = super().predict_topk(X, k)
        return TopK(as_given(X, found.ids), as_given(X, found.scores))

    def decision_function(self, X: Any) -> Any:
        """Shares (n, K); of two classes, the second's less the first's (n,)."""
        return as_given(X, super().decision_function(X))

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, K)."""
        return as_given(X, super().predict_proba(X))
