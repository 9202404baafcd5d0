"""The families of classifiers that are compared. Each predicts the same held-out rows with all its settings.

LinearFamily      a loss over a path of alphas (kway.linear.path). Alphas are multiples of the mean |x|^2 of the rows,
                  so that they mean the same in every unit of the features
KernelFamily      softmax on similarities to landmarks: one map of the rows per gamma, and a path of alphas on each
NeighborsFamily   nearest neighbors with every k and vote (neighbor_families.py)
PlainFamily       a classifier with a few settings that are fitted one by one, such as trees

To add a family, add an entry to FAMILIES and its description to FAMILY_DESCRIPTIONS (fit_options.py). An entry
is a `Family` (family.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kway.auto.fit_options import FAMILY_DESCRIPTIONS
from kway.auto.race.family import Family, Stop
from kway.auto.race.folds import FEW_ROWS, weights_to_fit
from kway.auto.race.neighbor_families import SIGMA, NeighborsFamily
from kway.auto.race.scoring import (
    CATEGORIES,
    MOST_POOLED,
    FoldedRows,
    Predictions,
    are_embeddings,
    predict_held_out,
)
from kway.confidence.splits import Split
from kway.labels import Labels
from kway.linear.classifier import LinearClassifier
from kway.linear.fitting import weighted_rows
from kway.linear.kernel_softmax import landmark_map
from kway.linear.named import SoftmaxClassifier
from kway.linear.path import Path, alpha_path
from kway.planning import costs
from kway.planning.costs import Size
from kway.planning.rates import Rates
from kway.search.metrics import Gaussian
from kway.validation import Rows

_COLD_FITS = 3  # a path of alphas with warm starts takes about as long as this many fits without
_MIN_ROWS_PER_CLASS = 4  # below, most leaves of a tree would have one row
_TOL = 1e-3  # relative tolerance of the fits on a path, which only have to rank the alphas
_SHARES = tuple(float(f"{share:.3g}") for share in np.logspace(-2, -7, 11))  # alphas / mean |x|^2, strong to weak
_EVERY_SECOND_SHARE = _SHARES[::2]  # for losses whose fits take longer
# Views of the rows: only the text columns, all other columns, images as edges and patches, one number per column.
TEXT, NO_TEXT, EDGES, COLUMNS = "text", "no-text", "edges", "columns"

# ---- linear


@dataclass(frozen=True)
class LinearFamily(Family):
    """A linear classifier over a path of alphas.

    Alphas are given as `alphas`, as `c_values` (values C of an SVM, with alpha = mean |x|^2 / (n C)), or else as
    `shares` of mean |x|^2.
    """

    shares: tuple[float, ...] = _SHARES
    alphas: tuple[float, ...] = ()
    c_values: tuple[float, ...] = ()
    relative_cost: float = 1.0  # seconds of a fit, compared with the softmax loss

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return one setting per alpha."""
        if self.alphas:
            return [{"alpha": alpha} for alpha in self.alphas]
        shares = [1 / (data.X.shape[0] * c) for c in self.c_values] or self.shares
        square = mean_square(data.X)
        return [{"alpha": float(f"{share * square:.2g}")} for share in shares]

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], active: Sequence[int], stop: Stop
    ) -> Predictions:
        """Fit the active alphas, strong to weak, with warm starts."""
        begun = time.perf_counter()
        predictions = Predictions.empty(len(split.held_out), len(settings))
        for X, positions in self._mapped_rows(data, split, settings, active, stop):
            alphas = [settings[at]["alpha"] for at in positions]
            path = self._path(X, data, split, alphas, stop)
            predictions.predicted[:, positions], predictions.losses[:, positions] = path.predicted, path.losses
        return predictions._replace(seconds=time.perf_counter() - begun)

    def _mapped_rows(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], active: Sequence[int], stop: Stop
    ) -> Iterator[tuple[Rows, Sequence[int]]]:
        """Yield the training rows and held-out rows, each time with the positions of settings that are fitted on them.

        The rows are as given here; a subclass may map them.
        """
        yield data.X[np.concatenate(split)], active

    def _path(self, X: Rows, data: FoldedRows, split: Split, alphas: Sequence[float], stop: Stop) -> Path:
        """Fit every alpha on the training rows of a split and predict its held-out rows, which follow them in X."""
        codes, n_held_out, weights = data.codes[np.concatenate(split)], len(split.held_out), None
        if data.weights is not None:  # held-out rows are only predicted
            weights = np.append(weights_to_fit(data.weights, split.train)["sample_weight"], np.ones(n_held_out))
        n_classes = int(codes.max()) + 1
        costs.check_fit(self.estimator, costs.softmax, costs.size_of(X, n_classes))
        labels = Labels(np.arange(n_classes), codes)
        weight = weighted_rows(X, labels, weights, self.params.get("class_weight")).weight
        loss, device = self._linear()._form(n_classes), self.params.get("device", "cpu")
        return alpha_path(X, codes, loss, alphas, len(split.train), weight, _TOL, stop, device)

    def _linear(self) -> LinearClassifier:
        """Return a linear classifier with the loss of this family."""
        classifier: LinearClassifier = self.make({}, 0)
        return classifier

    @property
    def _is_one_vs_all(self) -> bool:
        return self.params.get("multiclass") == "one-vs-all"

    def skip_reason(self, data: FoldedRows) -> str:
        """Leave out a loss that equals another one on these rows."""
        if data.n_classes == 2 and self.name in ("logistic", "svm"):
            return f"with two classes it is {'softmax' if self.name == 'logistic' else 'svm-one-vs-all'}"
        if self.name == SMOOTH and not data.sparse:
            return "it is for sparse rows; svm-one-vs-all runs instead"
        if self.name == "svm-one-vs-all" and data.sparse:
            return f"{SMOOTH}, whose scores of sparse rows vary less, runs instead"
        return ""

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all alphas."""
        if self.c_values:
            return len(self.c_values) * size.scores * _dual_seconds(size)
        cost = costs.one_vs_all if self._is_one_vs_all else costs.softmax
        return self.planned_fits() * self.relative_cost * cost(size, Rates()).fit_seconds

    def planned_fits(self) -> int:
        """Return the number of fits without warm starts that take as long as the path of alphas."""
        return len(self.c_values) or min(_COLD_FITS, len(self.alphas or self.shares))


def _dual_seconds(size: Size) -> float:
    """Return the expected seconds of the SVM of one class: a constant, and some passes of the dual solver."""
    return 0.01 + 150 * size.values / Rates().product


def _perceptron_seconds(size: Size) -> float:
    """Return the expected seconds of 100 epochs.

    An epoch has half the operations of a pass, at a tenth of the rate, because one row at a time is multiplied.
    """
    return 0.01 + 100 * 10 * costs.pass_operations(size) / 2 / Rates().product


def mean_square(X: Rows) -> float:
    """Return the mean of |x|^2 over at most 20,000 of the rows; 1 if it is not a positive number."""
    rows = X[:: max(1, X.shape[0] // (40 * FEW_ROWS))]
    values = rows.data if hasattr(rows, "tocsr") else rows
    mean = float(np.square(values, dtype=np.float64).sum() / max(1, rows.shape[0]))
    return mean if np.isfinite(mean) and mean > 0 else 1.0


# ---- softmax on similarities to landmarks


@dataclass(frozen=True)
class KernelFamily(LinearFamily):
    """Softmax on similarities to landmarks, for every gamma with every alpha."""

    gammas: tuple[float, ...] = (1.0, 3.0, 1 / 3)  # multiples of 1 / (d Var(X))
    n_landmarks: int = 600

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return every gamma with every alpha."""
        scale = 1 / max(data.X.shape[1] * float(data.X.var(dtype=np.float64)), np.finfo(np.float32).tiny)
        gammas = [float(f"{multiple * scale:.3g}") for multiple in self.gammas]
        return [{"gamma": gamma, "alpha": alpha} for gamma in gammas for alpha in self.alphas]

    def _mapped_rows(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], active: Sequence[int], stop: Stop
    ) -> Iterator[tuple[Rows, Sequence[int]]]:
        """Yield the similarities of the rows to landmarks for each gamma, with the positions of its settings."""
        for gamma in dict.fromkeys(settings[at]["gamma"] for at in active):
            if stop():
                return
            train_weights = weights_to_fit(data.weights, split.train).get("sample_weight")
            landmarks = landmark_map(data.X[split.train], self.n_landmarks, gamma, weight=train_weights)
            yield (
                landmarks.apply(data.X[np.concatenate(split)]),
                [at for at in active if settings[at]["gamma"] == gamma],
            )

    def _linear(self) -> LinearClassifier:
        return SoftmaxClassifier()

    def skip_reason(self, data: FoldedRows) -> str:
        """Leave out sparse rows and very many classes."""
        return _sparse_or_many_classes(data)

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all maps and fits."""
        mapped = replace(size, d=self.n_landmarks, density=1.0)
        products = 2.0 * size.n * self.n_landmarks * (size.values / size.n + self.n_landmarks)
        fits = super().planned_fits() * self.relative_cost * costs.softmax(mapped, Rates()).fit_seconds
        return len(self.gammas) * (products / Rates().product + fits)

    def planned_fits(self) -> int:
        """Return the number of fits without warm starts that take as long as one path of alphas per gamma."""
        return len(self.gammas) * super().planned_fits()


def _sparse_or_many_classes(data: FoldedRows) -> str:
    """Return why trees and the kernel softmax are left out on these rows; "" if they are not."""
    if data.sparse:
        return "it is for dense rows"
    if len(data.codes) < _MIN_ROWS_PER_CLASS * data.n_classes:
        return "there are too few rows per class"
    return f"it is for at most {MOST_POOLED:,} classes" if data.n_classes > MOST_POOLED else ""


# ---- classifiers with a few settings


@dataclass(frozen=True)
class PlainFamily(Family):
    """A classifier whose few settings are fitted one by one."""

    grid: tuple[dict[str, Any], ...] = ({},)
    planned: Callable[[Size], float] = lambda size: costs.centroids(size, Rates()).fit_seconds  # of one setting
    counts: bool = False  # whether it is only for sparse rows without negative values
    dense: bool = False  # whether it is only for dense rows of at most MOST_POOLED classes

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return the settings; on rows of length 1 without the Euclidean distance, which orders rows like cosine."""
        grid = list(self.grid)
        if len(grid) > 1 and data.unit:
            grid = [setting for setting in grid if setting.get("metric") != "euclidean"]
        return [{**setting, CATEGORIES: list(data.categories)} for setting in grid] if data.categories else grid

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], active: Sequence[int], stop: Stop
    ) -> Predictions:
        """Fit the active settings one by one; keep the probabilities if there is a single setting."""
        begun = time.perf_counter()
        X, codes = data.X[split.train], data.codes[split.train]
        held_out, held_out_codes = data.X[split.held_out], data.codes[split.held_out]
        predictions = Predictions.empty(len(held_out_codes), len(settings))
        for at in active:
            if stop():
                break
            model = self.make(settings[at], 0).fit(X, codes, **weights_to_fit(data.weights, split.train))
            result = predict_held_out(model, held_out, held_out_codes, data.n_classes)
            predictions.predicted[:, at], predictions.losses[:, at] = result.predicted[:, 0], result.losses[:, 0]
            if len(settings) == 1:
                predictions = predictions._replace(probabilities=result.probabilities)
        return predictions._replace(seconds=time.perf_counter() - begun)

    def skip_reason(self, data: FoldedRows) -> str:
        """Leave out naive Bayes on rows that are not counts, and trees on sparse rows, embeddings and many classes."""
        if self.counts and not (data.sparse and data.X.data.min(initial=0) >= 0):
            return "it is for word counts and TF-IDF: sparse rows without negative values"
        if self.dense and are_embeddings(data.X):
            return "it is for tables and images, and these rows are taken for embeddings"
        return _sparse_or_many_classes(data) if self.dense else ""

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all settings."""
        return self.planned_fits() * self.planned(size)

    def planned_fits(self) -> int:
        """Return the number of settings."""
        return len(self.grid)


_WEIGHTED_K = (1, 3, 5, 10, 20, 50)  # values of k if rows have weights, because each k is then a fit of its own


def weighted_neighbors(family: NeighborsFamily, n_rows: int) -> PlainFamily:
    """Return a family of neighbors for rows with weights, in which every k and vote is fitted on its own.

    A row of weight w counts as w rows, so the nearest rows that vote depend on the weights, and one search does not
    give the votes of every k.
    """
    return PlainFamily(
        family.name,
        "NeighborsClassifier",
        tuple({"weights": vote, "n_neighbors": k} for vote in family.votes for k in _WEIGHTED_K if 2 * k <= n_rows),
        params={"metric": family.metric, **family.params},
        planned=lambda size: family.planned_seconds(size) / family.planned_fits(),
        description=family.description,
        view=family.view,
    )


# ---- trees

_TREE_SECONDS = 8e-4  # of growing a tree, whatever the rows (measured by benchmarks/tables.py)
_VALUE_SECONDS = 1e-8  # of growing a tree, per value that it compares (measured by benchmarks/tables.py)


def _boosting_seconds(n_trees: int) -> Callable[[Size], float]:
    """Return a formula for boosting, in which each tree compares all values."""
    return lambda size: n_trees * size.scores * (_TREE_SECONDS + _VALUE_SECONDS * size.values)


def _forest_seconds(size: Size) -> float:
    """Return the seconds of 300 trees, which compare sqrt(d) values of each row in each of log2(n) levels."""
    n_compared = size.n * np.log2(size.n + 1) * np.sqrt(size.d)
    return float(300 * (_TREE_SECONDS + _VALUE_SECONDS * n_compared))


def _trees(name: str, planned: Callable[[Size], float], **params: Any) -> PlainFamily:
    return PlainFamily(
        name, "TreesClassifier", params=params, planned=planned, dense=True, for_blend=True, view=COLUMNS
    )


SMOOTH = "svm-smooth"
FAMILIES: dict[str, Any] = {  # name -> Family
    family.name: replace(family, description=FAMILY_DESCRIPTIONS[family.name])
    for family in (
        # Families that win often come first and slow ones last, because a short budget leaves out the last ones.
        PlainFamily("centroid", "CentroidClassifier", ({"metric": "cosine"}, {"metric": "euclidean"})),
        LinearFamily("softmax", "SoftmaxClassifier"),
        PlainFamily(
            "naive-bayes",
            "NaiveBayesClassifier",
            tuple({"smoothing": s} for s in (0.03, 0.1, 0.3, 1.0)),
            counts=True,
            view=TEXT,
        ),
        LinearFamily(
            SMOOTH,
            "LinearClassifier",
            params={"loss": "rounded-hinge", "multiclass": "one-vs-all", "tol": 0.1},
            c_values=(6.0, 2.0, 0.6, 20.0),
        ),
        LinearFamily(
            "svm-one-vs-all",
            "SVMClassifier",
            params={"multiclass": "one-vs-all", "tol": 0.1},
            c_values=(1.0, 3.0, 0.3, 10.0),
        ),
        NeighborsFamily("neighbors", "euclidean"),
        NeighborsFamily("neighbors-cosine", "cosine"),
        NeighborsFamily("neighbors-manhattan", "manhattan"),
        NeighborsFamily(
            "neighbors-nca", Gaussian(SIGMA), maps=("scales", "mixtures"), votes=("distance", "similarity")
        ),
        _trees("extra-trees", _forest_seconds, kind="extra"),
        KernelFamily(
            "kernel-softmax",
            "KernelSoftmaxClassifier",
            alphas=(1e-5, 1e-4, 1e-6),
            relative_cost=1.5,
            for_blend=True,
        ),
        # Without l2_regularization, leaves of rare classes get huge values (0.91 instead of 0.999 correct on shuttle).
        _trees("boosted", _boosting_seconds(100), kind="boosted", l2_regularization=1.0),
        _trees(
            "boosted-gentle",
            _boosting_seconds(250),
            kind="boosted",
            l2_regularization=1.0,
            learning_rate=0.05,
            max_leaf_nodes=15,
            n_trees=400,
            early_stopping=True,
            n_iter_no_change=20,
        ),
        LinearFamily("least-squares", "LeastSquaresClassifier", _EVERY_SECOND_SHARE),
        LinearFamily("logistic", "LogisticClassifier", _EVERY_SECOND_SHARE, params={"multiclass": "one-vs-all"}),
        PlainFamily("perceptron", "PerceptronClassifier", planned=_perceptron_seconds),
        LinearFamily("svm", "SVMClassifier", _EVERY_SECOND_SHARE, relative_cost=4.0),
    )
}
# A baseline that runs only if it is named.
CLASS_NUMBER = PlainFamily(
    "least-squares-number",
    "LeastSquaresClassifier",
    ({"targets": "number"},),
    description=FAMILY_DESCRIPTIONS["least-squares-number"],
)


def families_of_views(views: Iterable[str]) -> list[Any]:
    """Return the families that also run on other views, named after the family and the view.

    Neighbors give all columns the same weight: the many columns of a text hide a few informative numbers, and a few
    dates hide the text. On images, linear families learn from edges and patches.
    """
    neighbors = [family for family in FAMILIES.values() if isinstance(family, NeighborsFamily)]
    least_squares = replace(FAMILIES["least-squares"], shares=_SHARES)
    of_view = {
        NO_TEXT: (neighbors, "without the text columns"),
        TEXT: ([FAMILIES["neighbors-cosine"]], "of the text columns only"),
        EDGES: ([FAMILIES["softmax"], least_squares], "on edges and patches"),
    }
    return [
        replace(family, name=f"{family.name}-{view}", view=view, description=f"{family.description}, {addition}")
        for view, (families, addition) in of_view.items() if view in views for family in families
    ]  # fmt: skip
