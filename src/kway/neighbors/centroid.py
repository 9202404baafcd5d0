"""CentroidClassifier: one mean per class, and the nearest mean wins. The rows are class means, so K may be huge.

    euclidean   mu_c = mean of the rows of c         z_c = -||x - mu_c||^2 / (2 s^2)
    cosine      mu_c = mean of the unit rows of c    z_c = kappa cos(x, mu_c)

p = softmax(z): classes with one common width and equal priors (class_distributions.py). Means and the width are running
sums over blocks of rows, so partial_fit gives the same result as one fit, and rows may be in a memory map. Means have
the float type of the rows; the sums of a block are float64. Values far from 1 are scaled by a power of two
(kway.search.power_scaling), and `scale_` refers to the scaled rows.

With an index, `predict` and `predict_topk` search the means instead of scoring all of them, and their probabilities are
normalized over a shortlist, the SHORTLIST nearest classes. A model file contains the index too. With an approximate
index, `predict` may return another class than the most probable of `predict_proba`, which scores all means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.class_rows import best_classes, class_scores, class_shares, lift_winners
from kway.base.classifier import Classifier, on_own_threads
from kway.base.wrappers import add_prefix, remove_prefix
from kway.errors import CombinationError, InputError
from kway.labels import Labels
from kway.memory import CACHE_BYTES, rows_per_block
from kway.neighbors.class_distributions import DISTRIBUTIONS, ClassDistribution, ClassMeans, Lines, constant_columns
from kway.neighbors.training_rows import MergedClasses, merge_classes, named_classes
from kway.parameters import DEVICE, check_parameters
from kway.probabilities import Shares, softmax
from kway.rows.blocks import concatenate_rows, count_rows, labeled_blocks, row_blocks
from kway.rows.gpu.device import ChosenDevice, Device, has_gpu, is_tensor, names_gpu, on_host, resolve
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.auto import pick_index, restore
from kway.search.flat import ENOUGH
from kway.search.index import Index
from kway.search.metrics import pick_metric
from kway.search.power_scaling import NARROW, SINGLE, Unit, max_abs
from kway.search.results import TopK
from kway.threads import spans
from kway.versions import write_lock, writes

SHORTLIST = 64  # number of nearest classes over which probabilities are normalized if there is an index


class _Batch(NamedTuple):
    """Sums over a batch of rows with c classes."""

    classes: NDArray[np.int64]  # (c,)
    weights: NDArray[np.float64]  # (c,) sums of sample weights
    means: NDArray[np.float64]  # (c, d)
    spread: float  # weighted sum of squared deviations from the means


class CentroidClassifier(Classifier):
    """Nearest class mean.

    Parameters
    ----------
    metric : {"euclidean", "cosine"}, default="euclidean"
        Distance to the means.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    index : None, str or Recipe, default=None
        None scores all means. "flat", "landmarks" or a recipe of `kway.search`, such as Landmarks(store=Bits(1)),
        searches them; use it for 100,000 classes and more.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" computes means and predictions on a GPU; "auto" does so if there is a GPU and enough rows. Tensors are
        answered with tensors on their device.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    centroids_ : ndarray of shape (n_classes, n_features)
        Class means.
    weights_ : ndarray of shape (n_classes,)
        Rows per class, or their total weight.
    scale_ : float
        Factor of the scores z: 1 / s^2 or kappa.
    index_ : Index
        Index over the means, if `index` is given and after the first prediction.
    why_ : str
        Why a GPU was used or not, if device is not "cpu".

    References
    ----------
    Tibshirani, Hastie, Narasimhan and Chu, "Diagnosis of multiple cancer types by shrunken centroids of gene
    expression", PNAS 99, 2002 (nearest centroids, without their shrinkage).

    Examples
    --------
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

    @on_own_threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CentroidClassifier:
        """Compute the mean of each class.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows.

        Returns
        -------
        CentroidClassifier
            The fitted classifier.
        """
        self._forget()
        self._learn(X, y, None, sample_weight)
        return self

    @on_own_threads
    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> CentroidClassifier:
        """Compute the means from blocks of rows, one after the other.

        Parameters
        ----------
        blocks : iterable of (X, y)
            Rows and their labels, for example from a generator.

        Returns
        -------
        CentroidClassifier
            The fitted classifier.
        """
        self._forget()
        for X, y in labeled_blocks(blocks):
            self._learn(X, y)
        return self

    @writes
    @on_own_threads
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> CentroidClassifier:
        """Add rows to the means.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array-like or None, default=None
            All labels that may occur in this call. In the first call they become `classes_`, also those without rows.
            In every call that passes them, a label that is not in `classes_` raises an error. In a call without them,
            it becomes a class.

        Returns
        -------
        CentroidClassifier
            The fitted classifier.
        """
        if hasattr(self, "weights_"):
            self.weights_, self._means = self.weights_.copy(), self._means.copy()  # other threads may read the old ones
        self._learn(X, y, classes, sample_weight)
        return self

    def _learn(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> None:
        """Add rows to the means, in place."""
        from kway.planning import costs  # only fits need the plan

        if not isinstance(self.metric, str) or self.metric not in DISTRIBUTIONS:
            raise CombinationError(
                f"metric must be one of {', '.join(map(repr, DISTRIBUTIONS))}, got {self.metric!r}; "
                "NeighborsClassifier accepts every metric"
            )
        check_parameters(self, device=DEVICE)
        first = not hasattr(self, "weights_")
        X, labels = self._checked(X, y, first)
        chosen = _choose_device(self.device, X)
        # checks of sizes get an array of the same shape, which takes no memory, instead of a tensor
        like = np.broadcast_to(np.zeros((), X.dtype), X.shape) if isinstance(X, TensorRows) else X
        w = validation.weights(on_host(sample_weight), like)
        known = labels.classes[:0] if first else self.classes_
        if first and classes is not None:
            known = named_classes(classes)
        merged = merge_classes(known, labels, fixed=classes is not None)
        costs.check_fit(type(self).__name__, costs.centroids, costs.size_of(like, len(merged.classes)))
        unit = self._distribution.unit_of(X) if first else self._range
        scaled = X if isinstance(X, TensorRows) else unit.more_rows(X)  # may raise, so nothing was changed before
        batches = self._batches(chosen.device, X, scaled, merged.codes, np.ones(X.shape[0]) if w is None else w)
        if first:
            self._range = unit
            self._start(len(merged.classes), X)
        self._add_classes(merged)
        self.classes_ = merged.classes
        for batch in batches:
            self._add_batch(batch)
        if chosen.why:
            self.why_ = chosen.why
        self._publish()

    def _checked(self, X: Any, y: Any, first: bool) -> tuple[Any, Labels]:
        """Return checked rows and labels; a tensor stays on its device if its values need no scaling."""
        if is_tensor(X) and self.device != "cpu" and (first or self._range.plain):
            tensor = _plain_tensor(self, X, first)
            if tensor is not None:
                return tensor, validation.labels_of(y, len(tensor))
        return validation.rows_and_labels(self, X, y, sparse=self.index is None, reset=first)

    @property
    def _distribution(self) -> ClassDistribution:
        return DISTRIBUTIONS[self.metric]

    def _known(self) -> ClassMeans:
        return ClassMeans(self._means, self.weights_, self._spread)

    def _start(self, n_classes: int, X: Any) -> None:
        """Set all sums to zero."""
        self.weights_ = np.zeros(n_classes)
        self._means = np.zeros((n_classes, X.shape[1]), X.dtype)
        self._spread = 0.0  # weighted sum of squared deviations from the class means
        self._dtype = X.dtype

    def _add_classes(self, merged: MergedClasses) -> None:
        """Add zero sums for new classes."""
        if len(merged.classes) == len(self.weights_):
            return
        shape = len(merged.classes), self._means.shape[1]
        weights, means = np.zeros(len(merged.classes)), np.zeros(shape, self._means.dtype)
        weights[merged.moved], means[merged.moved] = self.weights_, self._means
        self.weights_, self._means = weights, means

    def _batches(
        self, device: Device | None, X: Any, scaled: Any, codes: NDArray[np.int64], w: NDArray
    ) -> Iterable[_Batch]:
        """Return the sums of the rows: one batch on a GPU, or one per block on the CPU."""
        if device is not None:
            return [self._batch_on_gpu(device, X, scaled, codes, w)]
        return (self._batch(X[block], scaled[block], codes[block], w[block]) for block in row_blocks(X))

    def _batch(self, X: Any, scaled: Any, codes: NDArray[np.int64], w: NDArray) -> _Batch:
        """Return the sums of a block of rows."""
        rows = self._distribution.summed(X, scaled)
        classes, numbers = np.unique(codes, return_inverse=True)
        weights = np.bincount(numbers, w).astype(np.float64)  # (c,)
        member = sp.csr_matrix((w.astype(np.float64), (numbers, np.arange(len(w)))), shape=(len(classes), len(w)))
        sums = member @ rows  # (c, d) float64
        sums = sums.toarray() if sp.issparse(sums) else sums
        means = sums / np.maximum(weights, 1e-300)[:, None]
        constant = constant_columns(rows)
        means[:, constant.columns] = constant.values
        return _Batch(classes, weights, means, _spread(rows, means, numbers, w))

    def _batch_on_gpu(self, device: Device, X: Any, scaled: Any, codes: NDArray[np.int64], w: NDArray) -> _Batch:
        """Return the sums of all rows, computed on the GPU."""
        from kway.rows.gpu.class_scores import batch_means

        classes, numbers = np.unique(codes, return_inverse=True)

        def rows(part: slice) -> Any:
            return self._distribution.summed_on_gpu(device, X[part], scaled[part])

        return _Batch(classes, *batch_means(device, rows, numbers, w, X.shape[1]))

    def _add_batch(self, batch: _Batch) -> None:
        """Merge the means and the spread of a batch into those so far, without cancellation (Chan et al. 1983)."""
        classes, weights, means, spread = batch
        old_weights = self.weights_[classes]
        share = weights / np.maximum(old_weights + weights, 1e-300)
        step = means - self._means[classes]
        self._spread += spread + float(np.sum(old_weights * share * np.einsum("ij,ij->i", step, step)))
        self._means[classes] = self._means[classes] + share[:, None] * step  # in float64, then rounded
        self.weights_[classes] += weights

    @property
    def centroids_(self) -> NDArray:
        """Class means (n_classes, n_features)."""
        if not hasattr(self, "_means"):
            raise AttributeError(f"{type(self).__name__} has no centroids_ before fit; call fit first")
        with np.errstate(under="ignore"):
            return np.asarray(self._range.given(self._means).astype(self._dtype))

    def _publish(self) -> None:
        """Compute the scale from the sums; the index is built at the first prediction."""
        self.__dict__.pop("index_", None)
        self.scale_ = self._distribution.scale(self._known())

    def _lines(self, sparse: bool, exact: bool = False) -> Lines:
        """Return rows m (K, d) and offsets o (K,) of z = scale_ (x . m_c + o_c); a class without rows cannot win.

        They have the float type of the means, or float64 if `exact` is True. If there is one class, a second line that
        cannot win is added, because one line stands for two classes (class_rows.py).
        """
        rows, offset = self._distribution.lines(self._known(), sparse)
        underflows = max_abs(rows) < 2.0**SINGLE.min_power  # squares would lose digits in float32
        dtype = np.dtype(np.float64) if underflows or exact else self._dtype
        offset = np.where(self.weights_ > 0, offset, -1e30)
        if len(rows) == 1:
            rows, offset = np.vstack([rows, np.zeros_like(rows)]), np.append(offset, -1e30)
        return Lines(rows.astype(dtype), offset.astype(dtype))

    # ---- predictions

    def _rows(self, X: Any) -> Any:
        """Return X checked; a tensor stays on its device if it needs no scaling and an index lists every class."""
        check_is_fitted(self, "weights_")
        if is_tensor(X) and self._range.plain and (self.index is None or (self.weights_ > 0).all()):
            tensor = _plain_tensor(self, X, reset=False)
            if tensor is not None:
                return tensor
        return super()._rows(X)

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        if self.index is not None:
            return self._best_of_blocks(rows, lambda block: self._nearest_classes(block, k, stated))
        lines, shares = self._lines(sp.issparse(rows)), self._link() if stated else None

        def best(block: Any) -> TopK:
            codes, scores = best_classes(self._centered(block, lines), *lines, k, shares)
            return TopK(codes, self._typed(scores, block))

        return self._best_of_blocks(rows, best)

    def _scores(self, rows: Any) -> Any:
        """Return z (q, K) minus the largest of each row, clipped to the range of the float type."""
        lines = self._lines(sp.issparse(rows))
        f = class_scores(self._centered(rows, lines), *lines)[:, : len(self.classes_)]
        lowest, largest = -float(np.finfo(self._dtype).max) / 4, f.max(1)
        below = f - (largest.values if is_tensor(f) else largest)[:, None]
        if is_tensor(f):
            return self._typed((below.double() * self.scale_).clamp(min=lowest), rows)
        return self._typed(np.maximum(below.astype(np.float64) * self.scale_, lowest), rows)

    def _shares(self, rows: Any) -> Any:
        """Return the probabilities in the blocks of `_best`, so that the most probable class is the predicted one."""
        if isinstance(rows, TensorRows):
            return self._shares_of_block(rows)
        return concatenate_rows(count_rows(rows), map(self._shares_of_block, self._blocks(rows, self._entries())))

    def _shares_of_block(self, rows: Any) -> Any:
        """Return the probabilities (q, K) of a block of rows."""
        lines = self._lines(sp.issparse(rows), exact=self.index is not None)  # an index measures in float64
        shares = class_shares(self._centered(rows, lines), *lines, self._link())
        shares = self._typed(shares[:, : len(self.classes_)], rows)
        if self.index is None or is_tensor(shares) or not self._index().recipe.exact:
            return shares
        # of classes that nearly tie, the one that the index found must be the most probable
        return lift_winners(shares, self._nearest_classes(rows, 1, stated=False).ids[:, 0])

    @property
    def _shares_of_all(self) -> bool:  # type: ignore[override]
        return self.device == "cpu" and self.index is None

    def _link(self) -> Shares:
        """Return the link: probabilities are softmax(scale_ f)."""
        return Shares(float(self.scale_))

    def _typed(self, answer: Any, rows: Any) -> Any:
        """Return scores in the float type of the rows and the means."""
        dtype = np.result_type(rows.dtype, self._dtype)
        if is_tensor(answer):
            return answer.to(getattr(rows.device.torch, dtype.name))
        return answer.astype(dtype, copy=False)

    def _centered(self, rows: Any, lines: Lines) -> Any:
        """Return queries minus the center, or at unit length; as rows for a GPU if the product on it is faster."""
        known = self._known()
        if isinstance(rows, TensorRows):
            return self._distribution.centered_on_gpu(known, rows)
        dtype = np.result_type(rows.dtype, lines.rows.dtype)
        centered = self._distribution.centered_queries(known, self._range, rows).astype(dtype)
        if self.device == "cpu" or sp.issparse(centered) or not has_gpu():  # a model may be loaded without a GPU
            return centered
        device = resolve(self.device, pays=self._means.size >= ENOUGH).device
        if device is None:
            return centered
        from kway.rows.gpu.class_scores import HostRows

        return HostRows(centered, device)

    def _nearest_classes(self, rows: Any, k: int, stated: bool) -> TopK:
        """Return the k nearest means by the index, with z, or with their probabilities if `stated` is True.

        Probabilities are normalized over the SHORTLIST nearest means. An approximate index may find nearer means if it
        searches for more, so a prediction and its probability must come from the same shortlist.
        """
        index = self._index()
        n_search = max(k, min(SHORTLIST, index.n_rows)) if stated or not index.recipe.exact else k
        if isinstance(rows, TensorRows):
            neighbors: Any = index.nearest(rows.tensor, n_search)
            z = self.scale_ * self._distribution.z(neighbors.distances.double())
            return TopK(neighbors.ids[:, :k], (z.softmax(1) if stated else z)[:, :k].to(rows.tensor.dtype))
        queries = self._distribution.scaled_queries(self._range, rows).astype(np.float64)  # float32 distances would tie
        codes, distances = index.nearest(queries, n_search)
        z = self.scale_ * self._distribution.z(distances.astype(np.float64))  # (q, n_search), -inf pads
        if codes.shape[1] > index.n_rows:  # classes without rows come last
            empty = np.flatnonzero(self.weights_ == 0)
            codes[:, index.n_rows :] = empty[: codes.shape[1] - index.n_rows]
        shares = softmax(z) if stated else z
        return TopK(codes[:, :k], shares[:, :k].astype(self._dtype))

    def _index(self) -> Index:
        """Return the index over the means; it is built at the first prediction, not at each partial_fit."""
        if not hasattr(self, "index_"):
            with write_lock(self):
                if not hasattr(self, "index_"):  # false if another thread has built it in the meantime
                    self.index_ = self._build_index()
        return self.index_

    def _build_index(self) -> Index:
        """Build the index over the means of classes with rows; ids are class codes."""
        filled = np.flatnonzero(self.weights_ > 0)
        all_filled = len(filled) == len(self.weights_)
        rows = (self._means if all_filled else self._means[filled]).astype(self._dtype, copy=False)
        n, d = rows.shape
        choice = pick_index(self.index, n, d, pick_metric(self.metric), device=self.device if has_gpu() else "cpu")
        return choice.recipe.build(rows, self.metric, None if all_filled else filled)

    # ---- model files

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "weights_")
        facts: dict[str, Any] = {"spread": self._spread, "dtype": str(self._dtype)}
        if self._range.exponent:
            facts["unit"] = self._range.exponent
        arrays = {"means": self._means, "weights": self.weights_}
        if self.index is not None:
            facts["index"], parts = self._index().parts()
            arrays |= add_prefix("index.", parts)
        return facts, arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self._spread, self._dtype = float(facts["spread"]), np.dtype(facts["dtype"])
        narrow = self._dtype == np.float32
        self._range = Unit.from_exponent(int(facts.get("unit", 0)), self._dtype, self._distribution.distance, narrow)
        self._means, self.weights_ = np.array(arrays["means"]), np.array(arrays["weights"])
        self._publish()
        if "index" in facts:
            self.index_ = restore(facts["index"], remove_prefix("index.", arrays))


def _spread(X: Any, means: NDArray, numbers: NDArray[np.int64], w: NDArray) -> float:
    """Return the weighted sum of squared distances of rows (n, d) to the means (c, d) of their classes (n,) 0..c-1.

    Sparse rows stay sparse: stored values are measured, and a zero of class c in column j is at distance m_cj.
    """
    if sp.issparse(X):
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))  # (nnz,)
        gap = X.data - means[numbers[row], X.indices]
        stored = sp.csr_matrix((w[row].astype(np.float64), (numbers[row], X.indices)), means.shape)
        weights, total = np.bincount(numbers, w)[:, None], float(w[row] @ gap**2)
        for part in spans(len(means), rows_per_block(8 * X.shape[1])):
            zeros = weights[part] - stored[part].toarray()  # (c, d) weight of the zeros
            zeros[zeros < 1e-12 * weights[part]] = 0.0  # a difference due to rounding: there are no zeros
            total += float(np.einsum("ij,ij,ij->", zeros, means[part], means[part]))
        return total
    total = 0.0
    for part in spans(X.shape[0], rows_per_block(8 * X.shape[1], CACHE_BYTES)):
        gap = X[part] - means[numbers[part]]
        total += float(w[part] @ np.einsum("ij,ij->i", gap, gap))
    return total


def _choose_device(device: str, X: Any) -> ChosenDevice:
    """Choose the device that computes the means of rows X (n, d); sparse rows stay on the CPU."""
    if device != "cpu" and not isinstance(X, np.ndarray | TensorRows):
        if names_gpu(device):
            raise InputError(
                "device='cuda' needs dense rows, got a sparse matrix; pass X.toarray(), or use device='cpu'"
            )
        return ChosenDevice(None, "on the CPU: a GPU sums dense rows")
    return resolve(device, pays=X.shape[0] * X.shape[1] >= ENOUGH)


def _plain_tensor(estimator: Any, X: Any, reset: bool) -> TensorRows | None:
    """Return the tensor X checked on its device; None if the CPU has to read it, as for values that need scaling."""
    if X.ndim != 2 or not len(X) or not X.is_floating_point() or X.element_size() < 4:
        return None
    if not (1 / NARROW.limit < TensorRows(X.detach()).peak() < NARROW.limit):  # false for NaN and infinity too
        return None
    rows: TensorRows = validation.rows(estimator, X, reset=reset, device=Device(str(X.device)))
    return rows
