"""Class means on a device (gpu/search/class_means.py): where they are found, where rows are answered, tensors.

    device="cuda", "auto"   means and spread of rows are summed there; answers to arrays are found there too
    tensors                 are answered where they are, whatever the device, and never copied to the host; so are those
                            that a fit is given, but for labels. Labels come back as tensors where they are numbers

The sums that a model keeps are on the host: it is saved as any other, and answers on the CPU where there is no GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.base import Classifier
from kway.compute.gpu.device import ChosenDevice, Device, has_gpu, is_tensor, labels_there, resolve
from kway.compute.gpu.far_rows import FarRows
from kway.data import gate
from kway.errors import InputError
from kway.neighbors.clouds import ClassMeans, Cloud, float_type
from kway.neighbors.tensors import as_given
from kway.parameters import checked_k
from kway.search.device.on_device import ENOUGH
from kway.search.index import TopK
from kway.search.spaces.units import NARROW, Unit

SHORTLIST = 64  # classes that probabilities are shared among, where an index finds them
_PAYS = 2**30  # products of rows and means from which on "auto" takes a GPU


def n_listed(index: Any, k: int, stated: bool) -> int:
    """How many means an index is asked for: more may come to light of an approximate one when more are asked for, so
    that an answer and its probability must come from the same list."""
    return max(k, min(SHORTLIST, index.n_rows)) if stated or not index.recipe.exact else k


def choose_for_means(device: str, X: Any) -> ChosenDevice:
    """Where the means of rows X (n, d) are found; sparse rows stay on the CPU."""
    if device != "cpu" and not is_tensor(X) and not isinstance(X, np.ndarray):
        if device == "cuda":
            raise InputError(
                "device='cuda' sums dense rows, got a sparse matrix; pass X.toarray(), or use device='cpu'"
            )
        return ChosenDevice(None, "on the CPU: a GPU sums dense rows")
    return resolve(device, pays=X.shape[0] * X.shape[1] >= ENOUGH)


def shape_only(X: Any) -> Any:
    """X, or where it is a tensor an array of its shape and type, which takes no memory."""
    return np.broadcast_to(np.zeros((), float_type(X)), X.shape) if is_tensor(X) else X


def rows_there(estimator: Any, X: Any, reset: bool) -> Any:
    """The tensor X checked where it is; None: values that want a unit of their own, or none at all."""
    if X.ndim != 2 or not len(X) or not X.is_floating_point() or X.element_size() < 4:
        return None
    if not (2.0**NARROW.least < FarRows(X.detach()).peak() < 2.0**NARROW.most):  # NaN and infinity too
        return None
    return gate.rows(estimator, X, reset=reset, device=Device(str(X.device))).tensor


class TensorAnswers(Classifier):
    """A classifier of class means that answers tensors with tensors, and arrays on a device where it has one."""

    index: Any
    device: str
    n_jobs: int | None
    scale_: float
    weights_: NDArray[np.float64]
    _range: Unit
    _means: NDArray[np.float64]

    def _lines(self, sparse: bool) -> tuple[NDArray, NDArray]:
        raise NotImplementedError

    @property
    def _cloud(self) -> Cloud:
        raise NotImplementedError

    def _known(self) -> ClassMeans:
        raise NotImplementedError

    def _index(self) -> Any:
        raise NotImplementedError

    # ---- arrays

    def _answering(self, rows: Any) -> Any:
        """The means on the device that answers a block of rows; None: on the CPU."""
        if self.device == "cpu" or not isinstance(rows, np.ndarray) or not has_gpu():  # a file may come without a GPU
            return None
        chosen = resolve(self.device, pays=len(rows) * self._means.size >= _PAYS).device
        return None if chosen is None else self._there(chosen)

    def _index_device(self) -> str:
        return self.device if has_gpu() else "cpu"

    def _there(self, device: Device) -> Any:
        """The means, on a device."""
        from kway.compute.gpu.search.class_means import MeansThere

        W, b = self._lines(sparse=False)
        with device.room(f"{len(W):,} class means x {W.shape[1]} columns", W.nbytes):
            centre = self._cloud.centre(self._known())
            shift = None if centre is None else device.put(centre)
            return MeansThere(device, device.put(W), device.put(b), shift, float(self.scale_))

    # ---- tensors

    def _tensor(self, X: Any) -> Any:
        """X where it is, checked; None where it is no tensor, or one that the host has to answer."""
        if not is_tensor(X) or not hasattr(self, "_means") or not self._range.plain:
            return None
        if self.index is not None and not (self.weights_ > 0).all():  # classes without rows come last
            return None
        return rows_there(self, X, reset=False)

    def _best_there(self, X: Any, k: int, stated: bool) -> TopK:
        """The k best codes of rows X and their scores, of all means, or of the nearest that an index lists."""
        if self.index is None:
            return TopK(*self._means_at(X).best(X, k, stated))
        index = self._index()
        codes, away = index.nearest(X, n_listed(index, k, stated), self.n_jobs)
        z = self.scale_ * self._cloud.z(away.double())
        return TopK(codes[:, :k], (z.softmax(1) if stated else z)[:, :k].to(X.dtype))

    def _means_at(self, X: Any) -> Any:
        return self._there(Device(str(X.device)))

    def predict(self, X: Any) -> Any:
        """Labels (n,); a tensor where X is one and labels are numbers."""
        there = self._tensor(X)
        if there is None:
            return as_given(X, super().predict(X))
        return labels_there(self._best_there(there, 1, stated=False).ids[:, 0], self.classes_)

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row and their shares, best first."""
        there = self._tensor(X)
        if there is None:
            return TopK(*(as_given(X, values) for values in super().predict_topk(X, k)))
        codes, shares = self._best_there(there, checked_k(k, len(self.classes_)), stated=True)
        return TopK(labels_there(codes, self.classes_), shares)

    def decision_function(self, X: Any) -> Any:
        """Scores (n, K); of two classes, the second's less the first's (n,)."""
        there = self._tensor(X)
        if there is None:
            return as_given(X, super().decision_function(X))
        return self._two_in_one(self._means_at(X).scores(there))

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, K)."""
        there = self._tensor(X)
        if there is None:
            return as_given(X, super().predict_proba(X))
        return self._means_at(X).probabilities(there)
