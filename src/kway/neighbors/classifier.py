"""NeighborsClassifier: the labels of the k nearest rows vote.

score rows       distances of the query to the training rows (n, d) under the metric
keep the best k  by the index, which is exact, or approximate with a tested agreement
vote             share(c) = sum of the weights of the voters of class c / sum of all weights; never n x K

Tensors are searched on their device. The votes are counted on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.classifier import on_own_threads, reads
from kway.base.wrappers import add_prefix, remove_prefix
from kway.errors import CombinationError, InputError
from kway.labels import encode, joined, weight_per_class
from kway.neighbors.agreement import Agreement, Target, as_target, needs_tuning, tune, without_self
from kway.neighbors.training_rows import MergedClasses, TrainingRows, merge_classes, named_classes
from kway.neighbors.votes import (
    Ballot,
    CountedVotes,
    Explanation,
    VoterWeights,
    VotingClassifier,
    best_classes_of_votes,
    class_votes,
    pick_ties,
    pick_vote,
    take_weight,
)
from kway.parameters import DEVICE, NONE, above, check_parameters, one_of
from kway.parameters import whole as whole_number
from kway.rows.blocks import dense_blocks
from kway.rows.gpu.device import Device, is_tensor, names_gpu, on_host
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.auto import pick_index, restore
from kway.search.flat import Flat, gpu_can_search, gpu_of_tensor
from kway.search.index import Index
from kway.search.metrics import Metric, pick_metric
from kway.search.results import Neighbors, TopK
from kway.threads import at_most
from kway.validation import checked
from kway.versions import branch, writes

if TYPE_CHECKING:
    from kway.planning.costs import Formula

_VALUES_PER_VOTER = 2 * len(Ballot._fields)  # in memory: those of the ballot, and those that it is computed from


class NeighborsClassifier(VotingClassifier):
    """k nearest neighbors with any metric, any index and any vote.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of rows that vote.
    weights : {"uniform", "distance", "similarity"} or callable, default="uniform"
        Weight of a vote: equal; 1 / distance (rows at distance 0 get all votes); the similarity of the metric, clipped
        at 0; or a function of the distances (n_queries, n_neighbors).
    metric : str or Metric, default="euclidean"
        "euclidean", "manhattan", "cosine", "dot", "haversine", "hamming", Gaussian(sigma), Laplacian(sigma) or
        Haversine(degrees=True).
    index : str or Recipe, default="auto"
        "auto" (exact), "flat", "kdtree", "landmarks", "lsh", or a recipe of `kway.search` such as Landmarks(100).
    ties : {"nearest", "smallest", "prior"}, default="nearest"
        Winner of a tie: the class whose nearest voter is nearest, the smallest label, or the most frequent class.
    max_distance : float or None, default=None
        Rows at a larger distance do not vote.
    class_weight : None, "balanced" or dict, default=None
        Factor of the votes per class; "balanced" is n / (n_classes * rows of the class).
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" runs flat search under "euclidean", "cosine" or "dot" on a GPU; "auto" does so if there is a GPU and
        enough rows.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    outlier_label : label or None, default=None
        Prediction for a query without any row within `max_distance`; None raises an error.
    agreement : None, float or Target, default=None
        How often an approximate index (`probes="auto"`, or Flat(store=Bits())) must agree with exact search: a share of
        queries, or a `kway.neighbors.Target`. None means Target(): the same vote on 99.8% of queries at 95% confidence.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    index_ : Index
        The index over the training rows; `index_.why_` states why it was chosen.
    agreement_ : Agreement or None
        The guaranteed agreement with exact search; None if the index was not tuned.
    n_features_in_ : int
        Number of columns.

    Notes
    -----
    A row of sample weight w counts as w copies of the row: the nearest rows vote until their weights sum to
    n_neighbors, the last one in part.

    References
    ----------
    Cover and Hart, "Nearest neighbor pattern classification", IEEE Transactions on Information Theory 13, 1967.

    Examples
    --------
    >>> model = NeighborsClassifier(n_neighbors=3).fit([[0.0], [1.0], [4.0], [5.0]], ["a", "a", "b", "b"])
    >>> model.predict([[0.4], [4.6]])
    array(['a', 'b'], dtype='<U1')
    >>> model.explain([[4.6]]).voters
    array([[3, 2, 1]])
    """

    index_: Index
    agreement_: Agreement | None

    def __init__(
        self,
        n_neighbors: int = 5,
        weights: Any = "uniform",
        metric: str | Metric = "euclidean",
        index: Any = "auto",
        ties: str = "nearest",
        max_distance: float | None = None,
        class_weight: Any = None,
        device: str = "cpu",
        n_jobs: int | None = None,
        outlier_label: Any = None,
        agreement: float | Target | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric
        self.index = index
        self.ties = ties
        self.max_distance = max_distance
        self.class_weight = class_weight
        self.device = device
        self.n_jobs = n_jobs
        self.outlier_label = outlier_label
        self.agreement = agreement

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse()
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NeighborsClassifier:
        """Build the index over the training rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            A row of weight w counts as w rows.

        Returns
        -------
        NeighborsClassifier
            The fitted classifier.
        """
        with at_most(self._threads()):
            self._check_parameters()
            self._forget()
            self._start(X, y, None, sample_weight)
            self._check_class_weight(self.classes_)
            self._build()
        return self

    def _start(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        """Check the first rows and store them; `classes` are all labels, None for those of `y`."""
        device = self._device_of_rows(X)
        X, labels = validation.rows_and_labels(self, X, y, sparse=self._takes_sparse(), device=device)
        known = labels.classes if classes is None else named_classes(classes)
        merged = merge_classes(known, labels, fixed=True)
        self.classes_ = merged.classes
        self._training = TrainingRows.of(X, merged.codes, validation.weights(sample_weight, X), len(merged.classes))
        self._training.check_weights(self.n_neighbors)

    @on_own_threads
    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> NeighborsClassifier:
        """Learn from blocks of rows that are stored as codes, so that only one block is in memory.

        The agreement with exact search is not tested, because the full rows are not kept.

        Parameters
        ----------
        blocks : iterable of (X, y)
            Dense rows and their labels. With index="auto" the rows are stored as Flat(store=Int8(rerank=False)).

        Returns
        -------
        NeighborsClassifier
            The fitted classifier.
        """
        self._check_parameters()
        if names_gpu(self.device):
            raise CombinationError("fit_blocks codes rows on the CPU, got device='cuda'; use device='cpu' or 'auto'")
        recipe = self._code_recipe()
        self._forget()
        labels: list[NDArray] = []
        index = recipe.build_blocks(_rows_of(blocks, labels), self.metric)
        encoded = encode(joined(labels))
        self._check_class_weight(encoded.classes)
        self.classes_ = encoded.classes
        self.n_features_in_ = index.n_features
        self.index_ = index
        self.agreement_ = None
        self._training = TrainingRows(None, encoded.codes, None, np.bincount(encoded.codes).astype(np.float64))
        self._weigh_classes()
        return self

    def _code_recipe(self) -> Any:
        """Return the recipe of an index that stores only codes."""
        from kway.search.codecs.int8 import Int8

        index = Flat(store=Int8(rerank=False)) if self.index == "auto" else self.index
        recipe = pick_index(index, 0, 0, pick_metric(self.metric)).recipe
        store = getattr(recipe, "store", None)
        if store is None or store.rerank:
            raise CombinationError(
                f"fit_blocks stores only codes, got {recipe}; use index='auto', or Flat or Landmarks with "
                "store=Bits(rerank=False)"
            )
        return recipe

    @writes
    @on_own_threads
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> NeighborsClassifier:
        """Add rows, with the same result as fitting all rows at once.

        An index whose agreement was tested is built and tested again when the rows have grown by a tenth.

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
        NeighborsClassifier
            The fitted classifier.
        """
        self._check_parameters()
        if not hasattr(self, "index_"):
            self._start(X, y, classes, sample_weight)
            self._build()
            return self
        X, labels = validation.rows_and_labels(self, X, y, sparse=self._takes_sparse(), reset=False)
        merged = merge_classes(self.classes_, labels, fixed=classes is not None)
        self._add(X, merged, validation.weights(sample_weight, X))
        return self

    def _add(self, X: Any, merged: MergedClasses, weights: NDArray | None) -> None:
        """Add rows (m, d) to the index, except those of weight 0, and build it again if it has to be tuned again."""
        first = self._training.n_rows
        if weights is not None and (weights == 0).any() and self._training.blocks is None:
            # the index does not store rows of weight 0, so all rows are stored next to it
            self._training = replace(self._training, blocks=(self._training.rows(self.index_),))
        self._training = self._training.extended(X, merged, weights)
        self.classes_ = merged.classes
        positive = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
        why = self.index_.why_
        self.index_ = branch(self.index_)
        self.index_.add(checked(X[positive]), ids=first + positive)
        self.index_.why_ = why  # the choice was made at the first fit
        self._weigh_classes()
        tuned = self.agreement_
        if tuned is not None and self.index_.n_rows > 1.1 * tuned.n_rows and self._training.known(self.index_):
            self._build()

    def _build(self) -> None:
        """Build the index over the training rows that may vote, and tune it if it is approximate."""
        from kway.planning import costs  # no prediction needs the plan

        rows, ids = self._training.voting_rows(getattr(self, "index_", None))
        if not isinstance(rows, TensorRows):  # the device checks its own memory
            size = costs.size_of(rows, len(self.classes_), self.n_neighbors)
            costs.check_fit(type(self).__name__, self._cost_formula(), size)
        metric, sparse = pick_metric(self.metric), sp.issparse(rows)
        choice = pick_index(self.index, rows.shape[0], rows.shape[1], metric, sparse, self.device)
        self.index_ = choice.recipe.build(checked(rows), self.metric, ids)
        if choice.why:
            self.index_.why_ = f"{choice.why}; {self.index_.why_}" if self.index_.why_ else choice.why
        self._weigh_classes()
        self.agreement_ = None
        target = as_target(self.agreement)
        if needs_tuning(choice.recipe, target):
            self.index_, self.agreement_ = tune(self.index_, rows, ids, self.n_neighbors, self._winners, target)
        self._training = self._training.kept_by(self.index_)

    def _cost_formula(self) -> Formula:
        """Return the formula that estimates the cost of a fit."""
        from kway.planning import costs
        from kway.search.landmarks import Landmarks

        has_cells = self.index == "landmarks" or isinstance(self.index, Landmarks)
        return costs.landmarks if has_cells else costs.flat

    def _winners(self, neighbors: Neighbors) -> NDArray[np.int64]:
        """Return the winning class (q,) of the votes of neighbors; -1 if none of them votes."""
        return super()._counted(self._voter_weights().vote(neighbors, self.weights)).classes[:, 0]

    def _weigh_classes(self) -> None:
        """Set the weights of votes per class, and the ranks that decide ties."""
        counts = self._training.counts
        self._class_votes = class_votes(self.class_weight, self.classes_, counts)
        self._rank = pick_ties(self.ties, counts)

    def _device_of_rows(self, X: Any) -> Device | None:
        """Return the device that searches the rows of a fit if they are a tensor; None for the CPU."""
        is_flat = isinstance(self.index, Flat) or self.index in ("auto", "flat")
        return gpu_of_tensor(self.device, X) if is_flat else None

    # ---- one search, then votes

    def _rows(self, X: Any) -> Any:
        """Return X checked; a tensor that the index can search stays on its device."""
        index = getattr(self, "index_", None)
        if is_tensor(X) and isinstance(index, Index) and gpu_can_search(index, X, self.n_neighbors):
            return X
        return super()._rows(X)

    def _answer_type(self, rows: Any) -> np.dtype:
        return np.dtype(str(rows.dtype).removeprefix("torch."))

    def _ballot(self, rows: Any) -> Ballot:
        """Return the votes of the nearest rows whose weights sum to k: k rows unless a row has a weight below 1."""
        queries, k = rows if is_tensor(rows) else checked(rows), self.n_neighbors
        _check_neighbors(k, self.index_.n_rows, f", n_samples = {rows.shape[0]}")
        neighbors = self.index_.nearest(queries, k)
        weights = self._training.weights
        if weights is not None and weights[weights > 0].min() < 1:
            n_rows, total = self.index_.n_rows, self.n_neighbors
            while k < n_rows and self._training.weights_of(on_host(neighbors.ids)).sum(axis=1).min() < total:
                k = min(2 * k, n_rows)
                neighbors = self.index_.nearest(queries, k)
        return self._voter_weights().vote(Neighbors(*map(on_host, neighbors)), self.weights)

    def _voter_weights(self) -> VoterWeights:
        """Return what the weights of votes depend on."""
        training, k = self._training, self.n_neighbors
        parts = None if training.weights is None else lambda ids: take_weight(training.weights_of(ids), k)
        return VoterWeights(training.codes, self.index_.metric, self._class_votes, self.max_distance, parts)

    def _counted(self, ballot: Ballot) -> CountedVotes:
        return self._with_outliers(super()._counted(ballot))

    def _with_outliers(self, votes: CountedVotes) -> CountedVotes:
        """Give queries without voters to the outlier label if it is a class; raise InputError if none is set.

        If the label is not a class, `_labels` returns it for these queries.
        """
        outliers = votes.classes[:, 0] < 0
        if not outliers.any():
            return votes
        if self.outlier_label is None:
            raise InputError(
                f"No neighbors found for {outliers.sum()} test samples (the first is row {outliers.argmax()} of "
                f"{len(outliers)}) within max_distance={self.max_distance}; set an outlier_label, or a larger "
                "max_distance"
            )
        for code in np.flatnonzero(self.classes_ == self.outlier_label):
            votes.classes[outliers, 0] = code
            votes.shares[outliers, 0] = 1.0
        return votes

    def _class_counts(self) -> NDArray:
        return self._training.counts

    def _entries(self) -> int:
        return _VALUES_PER_VOTER * int(self.n_neighbors)

    def _labels(self, best: TopK) -> NDArray:
        """Return the labels of the winners; the outlier label for rows without a vote (share 0)."""
        labels, outliers = super()._labels(best), best.scores[:, 0] <= 0
        if outliers.any():
            labels = labels.astype(_common_dtype(self.classes_, self.outlier_label))
            labels[outliers] = self.outlier_label
        return labels

    # ---- methods that other classifiers do not have

    @reads
    def explain(self, X: Any, n_classes: int = 5) -> Explanation:
        """Return the predictions with the rows that voted for them, from one search.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_queries, n_features)
            Queries.
        n_classes : int, default=5
            Number of best classes that are listed per query, at least 2.

        Returns
        -------
        Explanation
            Labels, best classes with their shares, voters with weights and distances, and the runner-up.
        """
        ballot = self._whole_ballot(X)
        n_listed = max(2, min(n_classes, len(self.classes_)))
        best = best_classes_of_votes(self._counted(ballot), n_listed, self._class_counts())
        voters = np.where(ballot.codes >= 0, ballot.ids, -1)
        return Explanation(
            labels=self._labels(TopK(*best)),
            classes=self._labels_of(best.classes),
            probabilities=best.shares,
            voters=voters,
            voter_labels=self._labels_of(ballot.codes),
            weights=ballot.shares,
            distances=np.where(voters >= 0, ballot.distances, np.inf),
            runner_up=self._labels_of(best.classes[:, 1]),
            gap=best.shares[:, 0] - best.shares[:, 1],
        )

    def _labels_of(self, codes: NDArray[np.int64]) -> NDArray:
        """Return the labels of codes; the first label for code -1, whose weight is 0."""
        return self.classes_[np.maximum(codes, 0)]

    @reads
    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return the nearest training rows.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None, default=None
            Queries; None searches for the training rows, each without itself.
        n_neighbors : int or None, default=None
            Number of neighbors; None uses the classifier's.
        return_distance : bool, default=True
            Whether to return the distances too.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Only if return_distance is true; nearest first.
        indices : ndarray of shape (n_queries, n_neighbors)
            Positions in the training data.
        """
        check_is_fitted(self, "index_")
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        _check_neighbors(k, self.index_.n_rows - (X is None), " others" if X is None else "")
        if X is None:
            rows, self_ids = checked(self._training.rows(self.index_)), np.arange(self._training.n_rows)
            neighbors = without_self(self.index_.nearest(rows, k + 1), self_ids)
        elif is_tensor(X):
            neighbors = self.index_.nearest(X, k)
        else:
            blocks = self._blocks(self._rows(X), _VALUES_PER_VOTER * int(k))
            parts = [self.index_.nearest(checked(block), k) for block in blocks]
            neighbors = Neighbors(*map(np.concatenate, zip(*parts)))
        return (neighbors.distances, neighbors.ids) if return_distance else neighbors.ids

    @reads
    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity") -> Any:
        """Return the graph of nearest training rows.

        Parameters
        ----------
        X, n_neighbors
            As in `kneighbors`.
        mode : {"connectivity", "distance"}, default="connectivity"
            Entries: 1, or the distance.

        Returns
        -------
        csr_matrix of shape (n_queries, n_samples)
            One entry per query and neighbor.
        """
        one_of("connectivity", "distance").check("mode", mode)
        distances, ids = self.kneighbors(X, n_neighbors)
        values = np.ones(ids.size) if mode == "connectivity" else distances.ravel()
        starts = np.arange(0, ids.size + 1, ids.shape[1])
        return sp.csr_matrix((values, ids.ravel(), starts), shape=(len(ids), self._training.n_rows))

    # ---- checks and model files

    def _takes_sparse(self) -> bool:
        """Return whether index and metric accept sparse rows; False for an unknown metric, which `fit` refuses."""
        try:
            index_is_sparse = getattr(self.index, "sparse", self.index in ("auto", "flat"))
            return bool(index_is_sparse and pick_metric(self.metric).distance.sparse)
        except InputError:
            return False

    def _check_parameters(self) -> None:
        """Raise an error for bad parameters before any data is read."""
        metric = pick_metric(self.metric)
        distance_limit = NONE | above(-np.inf if metric.distance.signed else 0, or_infinite=True)
        check_parameters(self, n_neighbors=whole_number(1), max_distance=distance_limit, device=DEVICE)
        pick_vote(self.weights).weigh(np.ones((1, 1)), metric)  # raises if the metric lacks what the vote needs
        pick_ties(self.ties, np.ones(1))
        as_target(self.agreement)

    def _check_class_weight(self, classes: NDArray) -> None:
        """Raise InputError if a dict has other labels than the classes; `partial_fit` may add their rows later."""
        if isinstance(self.class_weight, dict):
            weight_per_class(self.class_weight, classes, classes)

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "index_")
        facts, arrays = self.index_.parts()
        state = self._training.arrays() | add_prefix("index.", arrays)
        return {"index": facts, "agreement": self.agreement_ and asdict(self.agreement_)}, state

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.index_ = restore(facts["index"], remove_prefix("index.", arrays))
        self.agreement_ = facts["agreement"] and Agreement(**facts["agreement"])
        self._training = TrainingRows.from_arrays(arrays, self.index_.n_features, len(self.classes_))
        self._weigh_classes()


def _check_neighbors(k: Any, n_rows: int, details: str = "") -> None:
    """Raise InputError unless 1 <= k <= n_rows."""
    if not (whole_number(1).allows(k) and k <= n_rows):
        raise InputError(
            f"Expected n_neighbors <= n_samples_fit and at least 1, but n_neighbors = {k}, n_samples_fit = "
            f"{n_rows}{details}; set a smaller n_neighbors"
        )


def _common_dtype(classes: NDArray, label: Any) -> np.dtype:
    """Return a dtype for the classes and one more label: numbers, text, or objects if they have different kinds."""
    kinds = {classes.dtype.kind, np.asarray(label).dtype.kind}
    is_common = len(kinds) == 1 or kinds <= set("iufb")
    return np.result_type(classes.dtype, np.asarray(label).dtype) if is_common else np.dtype(object)


def _rows_of(blocks: Iterable[tuple[Any, Any]], labels: list[NDArray]) -> Iterator[NDArray]:
    """Yield the rows of blocks, and append their labels to a list."""
    for X, y in dense_blocks(blocks):
        labels.append(y)
        yield X
