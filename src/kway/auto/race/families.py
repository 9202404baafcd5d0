"""The families of classifiers that are compared. Each predicts the same held-out rows with all its settings.

linear       a loss over a path of alphas (kway.linear.path). Alphas are given as shares of the mean square |x|^2 of a
             row, so that they mean the same in every unit of the features
neighbors    neighbor_families.py
kernel       softmax on similarities to landmarks: one map per gamma, a path of alphas on each
plain        a classifier with a few settings, fitted one by one; trees are such

To add a family, add an entry to FAMILIES and its description to FAMILY_DESCRIPTIONS (fit_options.py). An entry has a
name, the view of the data that it learns from, its settings (the preferred one first), its predictions of held-out rows
for each setting, its planned seconds, and how to make the estimator of a setting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import kway
from kway.auto.fit_options import FAMILY_DESCRIPTIONS
from kway.auto.race.folds import FEW_ROWS, Split
from kway.auto.race.neighbor_families import SIGMA, NeighborsFamily
from kway.auto.race.scoring import CATEGORIES, MOST_POOLED, FoldedRows, Predictions, predict_held_out
from kway.labels import Labels
from kway.linear.fitting import weighted_rows
from kway.linear.kernel_softmax import landmark_map
from kway.linear.losses import LOSSES
from kway.linear.path import Path, alpha_path
from kway.planning import costs
from kway.planning.costs import Size
from kway.planning.rates import Rates
from kway.search.metrics import Gaussian
from kway.validation import Rows

COLD_FITS = 3  # a path of alphas with warm starts takes as long as so many fits (T5)
_DUAL_PRODUCTS = 150  # operations per value and class of one fit of one-vs-all SVMs (T11, texts)
_DUAL_SECONDS = 0.01  # seconds of one fit of one class, whatever the rows (tables)
_LEAST_ROWS = 4  # rows per class below which no trees are grown: most leaves would have one row (tables)
_TOL = 1e-3  # tolerance of the fits on a path (T11)
_SHARES = tuple(float(f"{a:.3g}") for a in np.logspace(-2, -7, 11))  # alphas as shares of |x|^2, strong to weak
_EVERY_SECOND = _SHARES[::2]  # for losses whose fits take longer
# Views of the data: only the columns of text, all but these, images as edges and patches, and one number per column.
TEXT, NO_TEXT, EDGES, COLUMNS = "text", "no-text", "edges", "columns"


class Family(Protocol):
    """A kind of classifier with a list of settings."""

    @property
    def name(self) -> str:
        """Its name on the leaderboard."""
        ...

    @property
    def description(self) -> str:
        """What it is, in one line."""
        ...

    @property
    def view(self) -> str:
        """The view of the data that it learns from, if there is this view; "" is the main one."""
        ...

    @property
    def weighs_classes(self) -> bool:
        """Whether class weights change what it learns."""
        ...

    @property
    def for_blend(self) -> bool:
        """Whether it runs on all folds, so that a blend can contain it."""
        ...

    def configured(self, class_weight: str | None, device: str) -> Family:
        """Return the family with a class weight and on a device, if its estimators have these parameters."""
        ...

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return the settings for these rows; of equally good ones without log loss, the first is chosen."""
        ...

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], wanted: Sequence[int], stop: Stop
    ) -> Predictions:
        """Learn and answer with the settings at the positions `wanted`, until `stop()` is true between two fits."""
        ...

    def skip_reason(self, data: FoldedRows) -> str:
        """Return why the family is not run on these rows unless the user names it; "" if it is run."""
        ...

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a setting."""
        ...

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds, at the default rates, of all settings on rows of this size."""
        ...


Stop = Callable[[], bool]


# ---- linear


@dataclass(frozen=True)
class LinearFamily:
    """A linear loss over a path of alphas."""

    name: str
    estimator: str
    loss: str
    shares: tuple[float, ...] = _SHARES
    params: dict[str, Any] = field(default_factory=dict)
    alphas: tuple[float, ...] = ()  # instead of shares
    c_values: tuple[float, ...] = ()  # instead of shares: C of the SVM's dual, alpha = |x|^2 / (n C)
    passes: float = 1.0  # over the rows, compared with softmax
    description: str = ""
    view: str = ""

    weighs_classes = True
    for_blend = False

    def configured(self, class_weight: str | None, device: str) -> LinearFamily:
        """Return the family with a class weight, on a device."""
        more = {} if class_weight is None else {"class_weight": class_weight}
        more |= {} if device == "cpu" else {"device": device}
        return replace(self, params={**self.params, **more})

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return one setting per alpha."""
        shares = tuple(1 / (data.X.shape[0] * c) for c in self.c_values) or self.shares
        return [{"alpha": a} for a in self.alphas or [float(f"{s * mean_square(data.X):.2g}") for s in shares]]

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], wanted: Sequence[int], stop: Stop
    ) -> Predictions:
        """Fit the wanted alphas, strong to weak, with warm starts."""
        begun = time.perf_counter()
        rows = np.concatenate([split.train, split.held_out])
        alphas = [settings[i]["alpha"] for i in wanted]
        predictions = Predictions.empty(len(split.held_out), len(settings))
        path = self.path(data.X[rows], data.codes[rows], len(split.train), alphas, stop)
        predictions.predicted[:, wanted], predictions.losses[:, wanted] = path.predicted[0], path.losses[0]
        return predictions._replace(seconds=time.perf_counter() - begun)

    def path(self, X: Rows, codes: NDArray[np.int64], n_learn: int, alphas: Sequence[float], stop: Stop) -> Path:
        """Fit every alpha on the first n_learn rows and answer for the others."""
        n_classes = int(codes.max()) + 1
        costs.check_fit(self.estimator, costs.softmax, costs.size_of(X, n_classes))
        binary = n_classes == 2 or self.params.get("multiclass") == "one-vs-all"
        form = LOSSES[self.loss].columns if binary else LOSSES[self.loss].joint
        folds = np.repeat([-1, 0], [n_learn, len(codes) - n_learn])
        labels = Labels(np.arange(n_classes), codes)
        weight = weighted_rows(X, labels, None, self.params.get("class_weight")).weight
        return alpha_path(X, codes, form, alphas, folds, [0], weight, _TOL, stop, self.params.get("device", "cpu"))

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip a loss that is another one on these rows."""
        if data.n_classes == 2 and self.name in ("logistic", "svm"):
            return f"with two classes it is {'softmax' if self.name == 'logistic' else 'svm-one-vs-all'}"
        if self.name == SMOOTH and not data.sparse:
            return "it is for sparse rows; svm-one-vs-all runs instead"
        if self.name == "svm-one-vs-all" and data.sparse:
            return f"{SMOOTH}, whose scores of sparse rows are steadier, runs instead"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of an alpha."""
        return getattr(kway, self.estimator)(**self.params, **setting, random_state=seed)

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all alphas."""
        if self.c_values:  # the dual passes over the rows of a class a few times
            fit = size.scores * (_DUAL_SECONDS + _DUAL_PRODUCTS * size.values / Rates().product)
            return len(self.c_values) * fit
        one_vs_all = self.params.get("multiclass") == "one-vs-all"
        fit = (costs.one_vs_all if one_vs_all else costs.softmax)(size, Rates()).fit_seconds
        return min(COLD_FITS, len(self.alphas or self.shares)) * self.passes * fit


def mean_square(X: Rows) -> float:
    """Return the mean of |x|^2 over some of the rows; 1 if that is not a positive number."""
    some = X[:: max(1, X.shape[0] // (40 * FEW_ROWS))]
    values = some.data if hasattr(some, "tocsr") else some
    mean = float(np.square(values, dtype=np.float64).sum() / max(1, some.shape[0]))
    return mean if np.isfinite(mean) and mean > 0 else 1.0


# ---- softmax on similarities to landmarks


@dataclass(frozen=True)
class KernelFamily(LinearFamily):
    """Softmax on similarities to landmarks, for some gammas around the usual one and some alphas."""

    gammas: tuple[float, ...] = (1.0, 3.0, 1 / 3)  # times 1 / (d Var(X))
    n_landmarks: int = 600

    for_blend = True

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return every gamma with every alpha."""
        scale = 1 / max(data.X.shape[1] * float(data.X.var(dtype=np.float64)), np.finfo(np.float32).tiny)
        gammas = [float(f"{times * scale:.3g}") for times in self.gammas]
        return [{"gamma": gamma, "alpha": alpha} for gamma in gammas for alpha in self.alphas]

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], wanted: Sequence[int], stop: Stop
    ) -> Predictions:
        """Map the rows once per gamma, and fit the wanted alphas on mapped rows."""
        begun = time.perf_counter()
        rows = np.concatenate([split.train, split.held_out])
        predictions = Predictions.empty(len(split.held_out), len(settings))
        for gamma in dict.fromkeys(settings[at]["gamma"] for at in wanted):
            if stop():
                break
            learned = landmark_map(data.X[split.train], self.n_landmarks, gamma)
            own = [at for at in wanted if settings[at]["gamma"] == gamma]
            alphas = [settings[at]["alpha"] for at in own]
            path = self.path(learned.apply(data.X[rows]), data.codes[rows], len(split.train), alphas, stop)
            predictions.predicted[:, own], predictions.losses[:, own] = path.predicted[0], path.losses[0]
        return predictions._replace(seconds=time.perf_counter() - begun)

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip rows that are sparse."""
        return _sparse_or_many_classes(data)

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all maps and fits."""
        mapped = replace(size, d=self.n_landmarks, density=1.0)
        products = 2.0 * size.n * self.n_landmarks * (size.values / size.n + self.n_landmarks)
        fits = self.passes * COLD_FITS * costs.softmax(mapped, Rates()).fit_seconds
        return len(self.gammas) * (products / Rates().product + fits)


def _sparse_or_many_classes(data: FoldedRows) -> str:
    if data.sparse:
        return "it is for dense rows"
    if len(data.codes) < _LEAST_ROWS * data.n_classes:
        return "there are too few rows per class"
    return f"it is for at most {MOST_POOLED:,} classes" if data.n_classes > MOST_POOLED else ""


# ---- classifiers with a few settings


@dataclass(frozen=True)
class PlainFamily:
    """A classifier whose few settings are fitted one by one."""

    name: str
    estimator: str
    grid: tuple[dict[str, Any], ...] = ({},)
    planned: Callable[[Size], float] = lambda size: costs.centroids(size, Rates()).fit_seconds  # of one setting
    params: dict[str, Any] = field(default_factory=dict)  # of every setting
    counts: bool = False  # whether it is only for sparse rows without negative values
    dense: bool = False  # whether it is only for dense rows of at most MOST_POOLED classes
    for_blend: bool = False
    description: str = ""
    view: str = ""

    @property
    def weighs_classes(self) -> bool:
        """Whether its estimator has class weights; nearest class means have none."""
        return self._has("class_weight")

    def configured(self, class_weight: str | None, device: str) -> PlainFamily:
        """The family with a class weight and on a device, if its estimator has these parameters."""
        more = {"class_weight": class_weight} if class_weight is not None and self._has("class_weight") else {}
        more |= {"device": device} if device != "cpu" and self._has("device") else {}
        return replace(self, params={**self.params, **more})

    def _has(self, parameter: str) -> bool:
        return parameter in getattr(kway, self.estimator)().get_params()

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return the settings; on rows of length 1 without the Euclidean distance, which is then like cosine."""
        cosine = [s for s in self.grid if s.get("metric") != "euclidean"]
        grid = cosine if cosine and data.unit else self.grid
        return [{**s, CATEGORIES: list(data.categories)} for s in grid] if data.categories else list(grid)

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], wanted: Sequence[int], stop: Stop
    ) -> Predictions:
        """Fit the wanted settings one by one."""
        begun = time.perf_counter()
        X, codes = data.X[split.train], data.codes[split.train]
        held_out, own = data.X[split.held_out], data.codes[split.held_out]
        predictions = Predictions.empty(len(own), len(settings))
        for at in wanted:
            if stop():
                break
            found = predict_held_out(self.make(settings[at], 0).fit(X, codes), held_out, own, data.n_classes)
            predictions.predicted[:, at], predictions.losses[:, at] = found.predicted[:, 0], found.losses[:, 0]
            predictions = predictions._replace(probabilities=found.probabilities if len(settings) == 1 else None)
        return predictions._replace(seconds=time.perf_counter() - begun)

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip naive Bayes on rows that are not counts."""
        if self.counts and not (data.sparse and data.X.data.min(initial=0) >= 0):
            return "it is for word counts and TF-IDF: sparse rows without negative values"
        return _sparse_or_many_classes(data) if self.dense else ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a setting."""
        model = getattr(kway, self.estimator)(**self.params, **setting)
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all settings."""
        return len(self.grid) * self.planned(size)


# ---- trees

_SPLIT = 1e-8  # seconds of boosting per value of its rows and tree (tables)
_TREE = 8e-4  # seconds per tree, whatever the rows (tables)
_GROWN = 1e-8  # seconds of a tree of a forest per row, level, and square root of the columns (tables)
# The usual setting learns fast; the gentle one takes smaller steps with smaller trees, until that helps no more.
# Without l2_regularization, leaves of rare classes get huge values: 0.91 instead of 0.999 on shuttle (tables).
_GENTLE = {
    "learning_rate": 0.05, "max_leaf_nodes": 15, "n_trees": 400, "early_stopping": True, "n_iter_no_change": 20
}  # fmt: skip


def _boosting(n_trees: int) -> Callable[[Size], float]:
    return lambda size: n_trees * size.scores * (_TREE + _SPLIT * size.values)


def _forest(size: Size) -> float:
    return 300 * (_TREE + _GROWN * size.n * np.log2(size.n + 1) * np.sqrt(size.d))


def _trees(name: str, planned: Callable[[Size], float], **params: Any) -> PlainFamily:
    return PlainFamily(
        name, "TreesClassifier", params=params, planned=planned, dense=True, for_blend=True, view=COLUMNS
    )


SMOOTH = "svm-smooth"
FAMILIES: dict[str, Any] = {  # name -> Family
    family.name: replace(family, description=FAMILY_DESCRIPTIONS[family.name])
    for family in (
        # Families that win often come first and slow ones last: a short budget leaves out what is missed least.
        PlainFamily("centroid", "CentroidClassifier", ({"metric": "cosine"}, {"metric": "euclidean"})),
        LinearFamily("softmax", "SoftmaxClassifier", "softmax"),
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
            "rounded-hinge",
            params={"loss": "rounded-hinge", "multiclass": "one-vs-all", "tol": 0.1},
            c_values=(6.0, 2.0, 0.6, 20.0),
        ),
        LinearFamily(
            "svm-one-vs-all",
            "SVMClassifier",
            "hinge",
            params={"multiclass": "one-vs-all", "tol": 0.1},
            c_values=(1.0, 3.0, 0.3, 10.0),
        ),
        NeighborsFamily("neighbors", "euclidean"),
        NeighborsFamily("neighbors-cosine", "cosine"),
        NeighborsFamily("neighbors-manhattan", "manhattan"),
        NeighborsFamily(
            "neighbors-nca", Gaussian(SIGMA), maps=("scales", "mixtures"), votes=("distance", "similarity")
        ),
        _trees("extra-trees", _forest, kind="extra"),
        KernelFamily("kernel-softmax", "KernelSoftmaxClassifier", "softmax", alphas=(1e-5, 1e-4, 1e-6), passes=1.5),
        _trees("boosted", _boosting(100), kind="boosted", l2_regularization=1.0),
        _trees("boosted-gentle", _boosting(250), kind="boosted", l2_regularization=1.0, **_GENTLE),
        LinearFamily("least-squares", "LeastSquaresClassifier", "squared", _EVERY_SECOND),
        LinearFamily("logistic", "LogisticClassifier", "logistic", _EVERY_SECOND, {"multiclass": "one-vs-all"}),
        PlainFamily(
            "perceptron", "PerceptronClassifier", planned=lambda size: costs.one_vs_all(size, Rates()).fit_seconds
        ),
        LinearFamily("svm", "SVMClassifier", "hinge", _EVERY_SECOND, passes=4.0),
    )
}
# A baseline, which runs only if it is named.
CLASS_NUMBER = PlainFamily(
    "least-squares-number",
    "LeastSquaresClassifier",
    ({"targets": "number"},),
    description=FAMILY_DESCRIPTIONS["least-squares-number"],
)


def families_of_views(views: Iterable[str]) -> list[Any]:
    """Return the families that run on other views in addition, named after them.

    Neighbors weigh all columns alike: the many columns of a text hide a few informative numbers, and a few dates hide
    the text. On images, a linear family learns from edges and patches.
    """
    near = [family for family in FAMILIES.values() if isinstance(family, NeighborsFamily)]
    also = {
        NO_TEXT: (near, "without the text columns"),
        TEXT: ([FAMILIES["neighbors-cosine"]], "of the text columns only"),
        EDGES: ([FAMILIES["softmax"], replace(FAMILIES["least-squares"], shares=_SHARES)], "on edges and patches"),
    }
    return [
        replace(f, name=f"{f.name}-{view}", view=view, description=f"{f.description}, {words}")
        for view, (families, words) in also.items() if view in views for f in families
    ]  # fmt: skip
