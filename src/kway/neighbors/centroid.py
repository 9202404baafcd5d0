"""CentroidClassifier: one mean a class; the nearest mean decides. Rows are class means, so K may be huge.

    euclidean   mu_c = mean of the rows of c         z_c = -||x - mu_c||^2 / (2 s^2)
    cosine      mu_c = mean of the unit rows of c    z_c = kappa cos(x, mu_c)

p = softmax(z): classes that are round clouds of one common width with equal priors. Means and widths are
kept as running sums, taken a block of rows at a time, so partial_fit is as good as one fit and rows may lie in a memory
map; means have the rows' float type, sums of a block float64. Values far from 1 are kept in a unit of their own
(kway.search.power_scaling), and `scale_` is that of the unit.

With an index the means are searched by it instead of all being scored: `predict` and `predict_topk` then cost what the
index costs, and probabilities are shares of the SHORTLIST nearest classes. A model file holds the index too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.class_rows import best_classes, class_scores, class_shares
from kway.base.classifier import Classifier, on_own_threads
from kway.errors import CombinationError, InputError
from kway.labels import Labels
from kway.neighbors.class_distributions import CLOUDS, ClassMeans, Cloud, Lines, constants_of
from kway.neighbors.training_rows import Merged, merge_classes, named_classes
from kway.parameters import DEVICE, check_parameters
from kway.probabilities import Shares, softmax
from kway.rows.blocks import labeled_blocks, row_blocks
from kway.rows.gpu.device import ChosenDevice, Device, has_gpu, is_tensor, on_host, resolve
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.auto import pick_index, restore
from kway.search.gpu_dispatch import ENOUGH
from kway.search.index import Index
from kway.search.metrics import pick_metric
from kway.search.power_scaling import NARROW, Unit, peak
from kway.search.results import TopK
from kway.threads import spans

_FAINT = 2.0**-40  # means so near their center, beside a constant column of 1e12 and more, have squares float32 loses
SHORTLIST = 64  # classes that share the probabilities if an index finds them
_PAYS = 2**30  # products of rows and means from which "auto" takes a GPU


class _Batch(NamedTuple):
    """Classes (c,) of a batch of rows, their weights (c,), means (c, d), and the spread about these."""

    present: NDArray[np.int64]
    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    spread: float


class CentroidClassifier(Classifier):
    """The nearest class mean.

    Parameters
    ----------
    metric : "euclidean" | "cosine".
    n_jobs : threads; None is all cores.
    index : None (all means are scored) | "flat" | "landmarks" | a recipe of `kway.search`, such as
        Landmarks(store=Bits(1)): for 10^5 classes and more.
    device : "cpu" | "cuda" (means are found and rows answered on a GPU) | "auto": where there is one and it pays, as
        `why_` tells. Tensors are answered with tensors, where they are.

    Attributes: `centroids_` (K, d) class means, `weights_` (K,) rows a class, `scale_` of the scores z, `index_` over
    the means where one was asked for.

    >>> model = CentroidClassifier().fit([[0.0], [1.0], [4.0], [5.0]], ["a", "a", "b", "b"])
    >>> model.predict([[1.9], [3.0]]).tolist()
    ['a', 'b']
    """

    weights_: NDArray[np.float64]
    scale_: float
    _means: NDArray
    _range: Unit

    def __init__(
        self, metric: str = "euclidean", n_jobs: int | None = None, index: Any = None, device: str = "cpu"
    ) -> None:
        self.metric = metric
        self.n_jobs = n_jobs
        self.index = index
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.index is None
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CentroidClassifier:
        """Learn the mean of each class."""
        self._forget()
        return self.partial_fit(X, y, None, sample_weight)

    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> CentroidClassifier:
        """Learn from blocks (X, y), such as a generator's, one after another."""
        self._forget()
        for X, y in labeled_blocks(blocks):
            self.partial_fit(X, y)
        return self

    @on_own_threads
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> CentroidClassifier:
        """Take more rows into the means; new classes may come at any time."""
        from kway.planning import costs  # no prediction needs the plan

        if not isinstance(self.metric, str) or self.metric not in CLOUDS:
            raise CombinationError(
                f"CentroidClassifier knows the metrics {', '.join(map(repr, CLOUDS))}, got {self.metric!r}: those "
                "whose best centre is a mean; NeighborsClassifier takes every metric"
            )
        check_parameters(self, device=DEVICE)
        first = not hasattr(self, "weights_")
        X, labels = self._gated(X, y, first)
        chosen = _choose_device(self.device, X)
        like = np.broadcast_to(np.zeros((), X.dtype), X.shape) if isinstance(X, TensorRows) else X  # takes no memory
        w = validation.weights(on_host(sample_weight), like)
        known = labels.classes[:0] if first else self.classes_
        if first and classes is not None:
            known = named_classes(classes)
        merged = merge_classes(known, labels, fixed=classes is not None)
        costs.check_fit(type(self).__name__, costs.centroids, costs.size_of(like, len(merged.classes)))
        span = self._cloud.unit_of(X) if first else self._range
        taken = X if isinstance(X, TensorRows) else span.more_rows(X)  # X unless it needs another unit; may raise
        batches = self._batches(chosen.device, X, taken, merged.codes, np.ones(X.shape[0]) if w is None else w)
        if first:
            self._range = span
            self._start(len(merged.classes), X)
        self._move(merged)
        self.classes_ = merged.classes
        for batch in batches:
            self._take(batch)
        if chosen.why:
            self.why_ = chosen.why
        self._publish()
        return self

    def _gated(self, X: Any, y: Any, first: bool) -> tuple[Any, Labels]:
        """Rows and labels; a tensor stays on its device if the model's sums are of plain values and computed there."""
        if is_tensor(X) and self.device != "cpu" and (first or self._range.plain):
            there = _plain_tensor(self, X, first)
            if there is not None:
                return there, validation.labels_of(y, len(there))
        return validation.rows_and_labels(self, X, y, sparse=self.index is None, reset=first)

    @property
    def _cloud(self) -> Cloud:
        return CLOUDS[self.metric]

    def _known(self) -> ClassMeans:
        return ClassMeans(self._means, self.weights_, self._spread)

    def _start(self, n_classes: int, X: Any) -> None:
        self.weights_ = np.zeros(n_classes)
        self._means = np.zeros((n_classes, X.shape[1]), X.dtype)
        self._spread = 0.0  # weighted sum of squared deviations from the class means
        self._dtype = X.dtype

    def _move(self, merged: Merged) -> None:
        """Make room where new classes came."""
        if len(merged.classes) == len(self.weights_):
            return
        shape = len(merged.classes), self._means.shape[1]
        weights, means = np.zeros(len(merged.classes)), np.zeros(shape, self._means.dtype)
        weights[merged.moved], means[merged.moved] = self.weights_, self._means
        self.weights_, self._means = weights, means

    def _batches(
        self, device: Device | None, X: Any, taken: Any, codes: NDArray[np.int64], w: NDArray
    ) -> Iterable[_Batch]:
        """The rows in batches: one, whose memory has been found on the device, or a block at a time here."""
        if device is not None:
            return [self._batch_there(device, X, taken, codes, w)]
        return (self._batch(X[block], taken[block], codes[block], w[block]) for block in row_blocks(X))

    def _batch(self, X: Any, taken: Any, codes: NDArray[np.int64], w: NDArray) -> _Batch:
        """The means and the spread of a block of rows."""
        rows = self._cloud.summed(X, taken)
        present, place = np.unique(codes, return_inverse=True)
        added = np.bincount(place, w).astype(np.float64)  # (c,)
        member = sp.csr_matrix((w.astype(np.float64), (place, np.arange(len(w)))), shape=(len(present), len(w)))
        sums = member @ rows  # (c, d) float64
        sums = sums.toarray() if sp.issparse(sums) else sums
        means = sums / np.maximum(added, 1e-300)[:, None]
        same = constants_of(rows)
        means[:, same.columns] = same.values
        return _Batch(present, added, means, _spread(rows, means, place, w))

    def _batch_there(self, device: Device, X: Any, taken: Any, codes: NDArray[np.int64], w: NDArray) -> _Batch:
        """The means and the spread of all rows, found on the device."""
        from kway.rows.gpu.class_scores import batch_means

        present, place = np.unique(codes, return_inverse=True)

        def rows(part: slice) -> Any:
            return self._cloud.summed_there(device, X[part], taken[part])

        return _Batch(present, *batch_means(device, rows, place, w, X.shape[1]))

    def _take(self, batch: _Batch) -> None:
        """Merge the means and the spread of a batch into those so far (Chan's update: no cancellation)."""
        present, added, means, spread = batch
        before = self.weights_[present]
        share = added / np.maximum(before + added, 1e-300)
        step = means - self._means[present]
        within = spread + float(np.sum(before * share * np.einsum("ij,ij->i", step, step)))
        self._means[present] = self._means[present] + share[:, None] * step  # in float64, then rounded
        self.weights_[present] += added
        self._spread += within

    @property
    def centroids_(self) -> NDArray:
        """The class means (K, d)."""
        if not hasattr(self, "_means"):
            raise AttributeError(f"this {type(self).__name__} has no centroids_ before it is fitted")
        with np.errstate(under="ignore"):
            return np.asarray(self._range.given(self._means).astype(self._dtype))

    def _publish(self) -> None:
        """What follows from the sums: the scale, and later, when it is asked for, the index."""
        self.__dict__.pop("index_", None)
        self.scale_ = self._cloud.scale(self._known())

    def _lines(self, sparse: bool) -> Lines:
        """Rows m (K, d) and offsets o (K,) of z = scale_ (x . m_c + o_c); a class without rows cannot win.

        One class gets a second line that cannot win: a single line would stand for two classes (class_rows.py).
        """
        rows, offset = self._cloud.lines(self._known(), sparse)
        kind = np.dtype(np.float64) if peak(rows) < _FAINT else self._dtype
        offset = np.where(self.weights_ > 0, offset, -1e30)
        if len(rows) == 1:
            rows, offset = np.vstack([rows, np.zeros_like(rows)]), np.append(offset, -1e30)
        return Lines(rows.astype(kind), offset.astype(kind))

    # ---- answers

    def _rows(self, X: Any) -> Any:
        """X checked; a tensor stays on its device if its values need no unit and an index lists every class."""
        check_is_fitted(self, "weights_")
        if is_tensor(X) and self._range.plain and (self.index is None or (self.weights_ > 0).all()):
            there = _plain_tensor(self, X, reset=False)
            if there is not None:
                return there
        return super()._rows(X)

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        if self.index is not None:
            return self._best_of_blocks(rows, lambda block: self._listed(block, k, stated))
        lines, shares = self._lines(sp.issparse(rows)), self._link() if stated else None

        def best(block: Any) -> TopK:
            codes, scores = best_classes(self._moved(block, lines), *lines, k, shares)
            return TopK(codes, self._typed(scores, block))

        return self._best_of_blocks(rows, best)

    def _scores(self, rows: Any) -> Any:
        """z (q, K), the largest of each row set to 0; held within the float type: so far apart, classes are certain."""
        lines = self._lines(sp.issparse(rows))
        f = class_scores(self._moved(rows, lines), *lines)[:, : len(self.classes_)]
        least, largest = -float(np.finfo(self._dtype).max) / 4, f.max(1)
        below = f - (largest.values if is_tensor(f) else largest)[:, None]
        if is_tensor(f):
            return self._typed((below.double() * self.scale_).clamp(min=least), rows)
        return self._typed(np.maximum(below.astype(np.float64) * self.scale_, least), rows)

    def _shares(self, rows: Any) -> Any:
        lines = self._lines(sp.issparse(rows))
        shares = class_shares(self._moved(rows, lines), *lines, self._link())
        return self._typed(shares[:, : len(self.classes_)], rows)

    def _link(self) -> Shares:
        """Probabilities are softmax(scale_ f)."""
        return Shares(float(self.scale_))

    def _typed(self, answer: Any, rows: Any) -> Any:
        """Scores in the float type of the rows and the means."""
        kind = np.result_type(rows.dtype, self._dtype)
        return answer.to(getattr(rows.device.torch, kind.name)) if is_tensor(answer) else answer.astype(kind)

    def _moved(self, rows: Any, lines: Lines) -> Any:
        """Queries shifted by the center, or of unit length, as the lines meet them; on the GPU if that pays."""
        known = self._known()
        if isinstance(rows, TensorRows):
            return self._cloud.moved_there(known, rows)
        moved = self._cloud.moved(known, self._range, rows).astype(np.result_type(rows.dtype, lines.rows.dtype))
        if self.device == "cpu" or sp.issparse(moved) or not has_gpu():  # a file may come to a machine without a GPU
            return moved
        device = resolve(self.device, pays=moved.shape[0] * self._means.size >= _PAYS).device
        if device is None:
            return moved
        from kway.rows.gpu.class_scores import HostRows

        return HostRows(moved, device)

    def _listed(self, rows: Any, k: int, stated: bool) -> TopK:
        """The k nearest means by the index, each with its share of the SHORTLIST nearest.

        An approximate index may find nearer ones when more are asked for, so that an answer and its probability must
        come from the same list.
        """
        index = self._index()
        listed = max(k, min(SHORTLIST, index.n_rows)) if stated or not index.recipe.exact else k
        if isinstance(rows, TensorRows):
            found: Any = index.nearest(rows.tensor, listed)
            z = self.scale_ * self._cloud.z(found.distances.double())
            return TopK(found.ids[:, :k], (z.softmax(1) if stated else z)[:, :k].to(rows.tensor.dtype))
        placed = self._cloud.placed(self._range, rows).astype(rows.dtype)
        codes, away = index.nearest(placed, listed)
        z = self.scale_ * self._cloud.z(away.astype(np.float64))  # (q, listed), -inf pads
        if codes.shape[1] > index.n_rows:  # classes without rows come last
            empty = np.flatnonzero(self.weights_ == 0)
            codes[:, index.n_rows :] = empty[: codes.shape[1] - index.n_rows]
        shares = softmax(z) if stated else z
        return TopK(codes[:, :k], shares[:, :k].astype(self._dtype))

    def _index(self) -> Index:
        """The index over the means, built when it is first asked: partial_fit would have built many in vain."""
        if not hasattr(self, "index_"):
            self.index_ = self._indexed()
        return self.index_

    def _indexed(self) -> Index:
        """The index over the means of classes with rows, whose ids are their codes."""
        filled = np.flatnonzero(self.weights_ > 0)
        every = len(filled) == len(self.weights_)
        rows = (self._means if every else self._means[filled]).astype(self._dtype, copy=False)
        n, d = rows.shape
        choice = pick_index(self.index, n, d, pick_metric(self.metric), device=self.device if has_gpu() else "cpu")
        return choice.recipe.build(rows, self.metric, None if every else filled)

    # ---- model files

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "weights_")
        facts: dict[str, Any] = {"spread": self._spread, "dtype": str(self._dtype)}
        if self._range.exponent:
            facts["unit"] = self._range.exponent
        arrays = {"means": self._means, "weights": self.weights_}
        if self.index is not None:
            facts["index"], parts = self._index().parts()
            arrays |= {f"index.{name}": array for name, array in parts.items()}
        return facts, arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self._spread, self._dtype = float(facts["spread"]), np.dtype(facts["dtype"])
        narrow = self._dtype == np.float32
        self._range = Unit.again(int(facts.get("unit", 0)), self._dtype, self._cloud.distance, narrow)
        self._means, self.weights_ = np.array(arrays["means"]), np.array(arrays["weights"])
        self._publish()
        if "index" in facts:
            parts = {name.removeprefix("index."): array for name, array in arrays.items() if name.startswith("index.")}
            self.index_ = restore(facts["index"], parts)
            self.index_.why_ = facts["index"]["why"]


def _spread(X: Any, means: NDArray, place: NDArray[np.int64], w: NDArray) -> float:
    """Weighted sum of the squared distances of rows (n, d) to the means (c, d) of their classes.

    Sparse rows stay sparse: what they hold is measured, and every zero of class c in column j is m_cj away.
    """
    if sp.issparse(X):
        of_row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))  # (nnz,)
        gap = X.data - means[place[of_row], X.indices]
        held = sp.csr_matrix((w[of_row].astype(np.float64), (place[of_row], X.indices)), means.shape)
        every, total = np.bincount(place, w)[:, None], float(w[of_row] @ gap**2)
        for part in spans(len(means), max(1, 2**22 // X.shape[1])):
            zeros = every[part] - held[part].toarray()  # (c, d) what they weigh
            zeros[zeros < 1e-12 * every[part]] = 0.0  # there are none: weights were added up in another order
            total += float(np.einsum("ij,ij,ij->", zeros, means[part], means[part]))
        return total
    total = 0.0
    for part in spans(X.shape[0], 4096):
        gap = X[part] - means[place[part]]
        total += float(w[part] @ np.einsum("ij,ij->i", gap, gap))
    return total


def _choose_device(device: str, X: Any) -> ChosenDevice:
    """Where the means of rows X (n, d) are computed; sparse rows stay on the CPU."""
    if device != "cpu" and not isinstance(X, np.ndarray | TensorRows):
        if device == "cuda":
            raise InputError(
                "device='cuda' sums dense rows, got a sparse matrix; pass X.toarray(), or use device='cpu'"
            )
        return ChosenDevice(None, "on the CPU: a GPU sums dense rows")
    return resolve(device, pays=X.shape[0] * X.shape[1] >= ENOUGH)


def _plain_tensor(estimator: Any, X: Any, reset: bool) -> TensorRows | None:
    """The tensor X checked on its device; None if the host has to look at it, as at values that need a unit."""
    if X.ndim != 2 or not len(X) or not X.is_floating_point() or X.element_size() < 4:
        return None
    if not (2.0**NARROW.least < TensorRows(X.detach()).peak() < 2.0**NARROW.most):  # false for NaN and infinity too
        return None
    rows: TensorRows = validation.rows(estimator, X, reset=reset, device=Device(str(X.device)))
    return rows
