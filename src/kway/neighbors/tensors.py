"""Votes of tensors: these are searched where they are, and the few rows found are counted on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from kway.base.tensors import TensorClassifier
from kway.compute.gpu.device import Device, is_tensor, on_host
from kway.data.gate import checked
from kway.neighbors.voting import VotingClassifier
from kway.search.device.on_device import DeviceIndex, holds, staying
from kway.search.flat import Flat
from kway.search.index import Neighbors


class TensorVotes(TensorClassifier, VotingClassifier):
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
