"""The families of classifiers that are compared. Each is scored over all its settings on the same folds.

linear       a loss over a path of alphas (kway.linear.path). Alphas are given as shares of the mean square |x|^2 of a
             row, so that they mean the same in every unit of the features
neighbors    neighbor_families.py
plain        a classifier with a few settings, fitted one by one

To add a family, add an entry to FAMILIES and its description to FAMILY_DESCRIPTIONS (fit_options.py). `skip_reason`
decides whether a family runs if the user named none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import kway
from kway.auto.fit_options import FAMILY_DESCRIPTIONS
from kway.auto.race.clock import Clock
from kway.auto.race.neighbor_families import SLACK, NcaNeighborsFamily, NeighborsFamily
from kway.auto.race.scoring import FoldedRows, FoldScores, Scan, mean_square, scores_of
from kway.labels import Labels
from kway.linear.fitting import weighted_rows
from kway.linear.losses import LOSSES
from kway.linear.path import alpha_path
from kway.planning import costs
from kway.planning.costs import SPARSE_PRODUCT, Size
from kway.planning.rates import Rates

HEAVY_PASS = 0.03  # seconds of one pass above which a single linear family runs, with few alphas (T11, embeddings)
# Seconds of one pass above which work is saved: the multi-class SVM, which takes thousands of passes, is skipped, and
# folds after the first run only the alphas next to the best one (T11).
QUICK_PASS = 2e-4
_SPARSE_FIT_PRODUCTS = 6  # products with all rows in one fit of one-vs-all SVMs on sparse rows (T11, clinc150 texts)
_TOL = 1e-3  # tolerance of the fits on a path (T11)
WIDE_TOL = 1e-2  # tolerance of fits that take long: a third of the time at the same accuracy (T11, omniglot)
_SHARES = tuple(float(f"{a:.3g}") for a in np.logspace(-2, -7, 11))  # alphas as shares of |x|^2, strong to weak
_EVERY_SECOND = _SHARES[::2]  # for losses whose fits take longer


class Family(Protocol):
    """A kind of classifier with a grid of settings."""

    @property
    def name(self) -> str:
        """Its name on the leaderboard."""
        ...

    @property
    def description(self) -> str:
        """What it is, in one line."""
        ...

    @property
    def weighs_classes(self) -> bool:
        """Whether class weights change what it learns."""
        ...

    def configured(self, class_weight: str | None, device: str) -> Family:
        """Return the family with a class weight and on a device, if its estimators have these parameters."""
        ...

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score every setting on the folds `which`, as far as the clock allows."""
        ...

    def skip_reason(self, data: FoldedRows) -> str:
        """Return why the family is not run on these rows unless the user names it; "" if it is run."""
        ...

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a setting."""
        ...

    def expected_seconds(self, size: Size) -> float:
        """Return the expected seconds of a fit and of predicting a quarter as many rows, at the default rates."""
        ...


# ---- similar linear families

SPARSE_SVM = "svm-smooth"  # the fast linear family on sparse rows
LIKE_SOFTMAX = ("least-squares", "logistic", "perceptron", "svm", "svm-one-vs-all", SPARSE_SVM)  # similar to softmax


def _linear_skip_reason(name: str, data: FoldedRows) -> str:
    """Return why a similar linear family runs instead of this one; "" if this one runs.

    Linear boundaries are similar whatever the loss, so one family is enough if fits are slow.
    """
    if name == "svm" and data.pass_seconds() > QUICK_PASS:
        return "it takes thousands of passes over the rows; svm-one-vs-all runs instead"
    if name == SPARSE_SVM and not data.sparse:
        return "it is for sparse rows; svm-one-vs-all runs instead"
    if name == "svm-one-vs-all" and data.sparse:
        return f"{SPARSE_SVM}, whose scores of sparse rows are steadier, runs instead"
    fast = _fast_linear_family(data)
    if name not in (*LIKE_SOFTMAX, "softmax") or name == fast:
        return ""
    if fast == SPARSE_SVM and name != "softmax":
        return f"{fast}, as good on sparse rows and much faster, runs instead"
    if data.has_many_classes:
        return f"with {data.n_classes:,} classes only one linear family runs, {fast}"
    if (seconds := data.pass_seconds()) < HEAVY_PASS:
        return ""
    return f"one pass over the rows takes about {seconds:.1g} s, so only one linear family runs, {fast}"


def _fast_linear_family(data: FoldedRows) -> str:
    """Return softmax, or SVMs if the rows are sparse; log loss needs probabilities, which SVMs do not give."""
    several_classes = data.n_classes >= 4
    return SPARSE_SVM if data.sparse and several_classes and data.measure.rises else "softmax"


# ---- the kinds of families


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
    usual: int | None = None  # position of the C that is taken unless a smaller one is clearly better (T11, texts)
    description: str = ""

    weighs_classes = True

    def configured(self, class_weight: str | None, device: str) -> LinearFamily:
        """Return the family with a class weight, on a device."""
        more = {} if class_weight is None else {"class_weight": class_weight}
        more |= {} if device == "cpu" else {"device": device}
        return replace(self, params={**self.params, **more})

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score every alpha, strong to weak, with warm starts."""
        begun = time.perf_counter()
        costs.check_fit(self.estimator, costs.softmax, data.size())
        alphas = self.alphas or tuple(float(f"{share * mean_square(data.X):.2g}") for share in self._shares(data))
        scores = FoldScores.empty(len(which), len(alphas))
        seconds = self._run(data, which, clock, alphas, scores)
        run = np.isfinite(seconds)
        usual = None if self.alphas else self.usual
        scan = Scan(
            [{"alpha": alpha} for alpha in alphas],
            **scores._asdict(),
            seconds=time.perf_counter() - begun,
            fit_seconds=float(seconds[run].max()) if run.any() else 0.0,
            measure=data.measure,
            slack=0.0 if usual is None else SLACK,
            usual=usual,
        )
        data.cache.setdefault(self.name, scan)
        return scan

    def _run(
        self, data: FoldedRows, which: list[int], clock: Clock, alphas: tuple[float, ...], scores: FoldScores
    ) -> NDArray[np.float64]:
        """Fill the scores (folds, alphas) and return the seconds of each fit, nan if it was not run."""
        binary = data.n_classes == 2 or self.params.get("multiclass") == "one-vs-all"
        form = LOSSES[self.loss].columns if binary else LOSSES[self.loss].joint
        seconds, weight = np.full_like(scores.accuracy, np.nan), self._row_weights(data)
        tol = WIDE_TOL if data.pass_seconds() > HEAVY_PASS else _TOL
        device = self.params.get("device", "cpu")
        for own in self._pieces(data, scores, clock.budget is not None):
            stop = clock.pace(len(own) * len(which))
            some = [alphas[i] for i in own]
            for row, fold in enumerate(which):  # one by one: a lack of time leaves out folds, not weak alphas
                path = alpha_path(data.X, data.codes, form, some, data.folds, [fold], weight, tol, stop, device)
                for name, values in scores._asdict().items():
                    values[row, own] = getattr(path, name)
                seconds[row, own] = path.seconds
            if clock.up():
                break
        return seconds

    def _shares(self, data: FoldedRows) -> tuple[float, ...]:
        return tuple(1 / (data.X.shape[0] * c) for c in self.c_values) or self.shares

    def _row_weights(self, data: FoldedRows) -> NDArray | None:
        """Return weights of the rows (n,) if the estimator weighs classes."""
        labels = Labels(np.arange(data.n_classes), data.codes)
        return weighted_rows(data.X, labels, None, self.params.get("class_weight")).weight

    def _pieces(self, data: FoldedRows, scores: FoldScores, hurried: bool) -> Iterator[list[int]]:
        """Yield positions of alphas to run together.

        On fold 0 the alpha in the middle runs first if fits are slow, if time is limited or if a leader is known. The
        others follow unless that score is out of reach of the leader: all of them, or, if fits are slow or time is
        limited, those next to the best so far. Later folds run the best alpha of fold 0 and its neighbors, only the
        best if fits are slow, or all alphas if a pass is quick.
        """
        n, first, seconds = scores.accuracy.shape[1], data.cache.get(self.name), data.pass_seconds()
        if first is not None and seconds >= QUICK_PASS:
            reach = 0 if seconds >= HEAVY_PASS else 1
            near = {*range(max(0, first.best - reach), min(n, first.best + reach + 1))}
            yield sorted(near if first.usual is None else near | {first.usual})
            return
        slow, floor = seconds >= HEAVY_PASS or hurried, data.cache.get("floor", -np.inf)
        if n < len(_SHARES) or not (slow or (first is None and floor > -np.inf)):
            yield list(range(n))
            return
        yield [n // 2]
        while np.nanmax(data.measure.of(scores)[0]) >= floor:
            run = np.isfinite(scores.accuracy[0])
            best = int(np.nanargmax(data.measure.of(scores)[0]))
            piece = [i for i in range(n) if not run[i] and (not slow or abs(i - best) == 1)]
            if not piece:
                return
            yield piece

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip the family if a similar one is faster and fits are slow."""
        return _linear_skip_reason(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of an alpha."""
        return getattr(kway, self.estimator)(**self.params, **setting, random_state=seed)

    def expected_seconds(self, size: Size) -> float:
        """Return the expected seconds of a fit; predictions take hardly any."""
        one_vs_all = self.params.get("multiclass") == "one-vs-all"
        if one_vs_all and size.sparse and self.c_values:
            return _SPARSE_FIT_PRODUCTS * SPARSE_PRODUCT * size.values * size.scores / Rates().product
        return (costs.one_vs_all if one_vs_all else costs.softmax)(size, Rates()).fit_seconds


@dataclass(frozen=True)
class PlainFamily:
    """A classifier whose few settings are fitted one by one."""

    name: str
    estimator: str
    settings: tuple[dict[str, Any], ...] = ({},)
    counts: bool = False  # whether it is only for sparse rows without negative values
    description: str = ""

    @property
    def weighs_classes(self) -> bool:
        """Whether its estimator has class weights; nearest class means have none."""
        return self._has("class_weight")

    def configured(self, class_weight: str | None, device: str) -> PlainFamily:
        """The family with a class weight and on a device, if its estimator has these parameters."""
        more = {"class_weight": class_weight} if class_weight is not None and self._has("class_weight") else {}
        more |= {"device": device} if device != "cpu" and self._has("device") else {}
        return replace(self, settings=tuple({**s, **more} for s in self.settings))

    def _has(self, parameter: str) -> bool:
        return parameter in getattr(kway, self.estimator)().get_params()

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score every setting by one fit per fold."""
        begun = time.perf_counter()
        scores = FoldScores.empty(len(which), len(self.settings))
        stop = clock.pace(scores.accuracy.size)
        for row, fold in enumerate(which):
            inside = data.folds == fold
            for column, setting in enumerate(self.settings):
                if stop():
                    break
                if data.unit and setting.get("metric") == "euclidean":
                    continue  # nearly the same as cosine, and sparse rows stay sparse
                model = self.make(setting, 0).fit(data.X[~inside], data.codes[~inside])
                for values, value in zip(scores, scores_of(model, data.X[inside], data.codes[inside])):
                    values[row, column] = value
        seconds = time.perf_counter() - begun
        run = max(1, int(np.isfinite(scores.accuracy).sum()))
        return Scan(
            list(self.settings),
            **scores._asdict(),
            seconds=seconds,
            fit_seconds=seconds / run,
            measure=data.measure,
        )

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip naive Bayes on rows that are not counts, and the perceptron like other linear families."""
        if self.counts and not (data.sparse and data.X.data.min(initial=0) >= 0):
            return "it is for word counts and TF-IDF: sparse rows without negative values"
        return _linear_skip_reason(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a setting."""
        model = getattr(kway, self.estimator)(**setting)
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model

    def expected_seconds(self, size: Size) -> float:
        """Return the expected seconds of sums per class, or of the passes of a perceptron."""
        formula = costs.one_vs_all if self.name in LIKE_SOFTMAX else costs.centroids
        return formula(size, Rates()).fit_seconds


FAMILIES: dict[str, Any] = {  # name -> Family
    family.name: replace(family, description=FAMILY_DESCRIPTIONS[family.name])
    for family in (
        # Families that win often come first and slow ones last: a short budget leaves out what is missed least.
        PlainFamily("centroid", "CentroidClassifier", ({"metric": "euclidean"}, {"metric": "cosine"})),
        LinearFamily("softmax", "SoftmaxClassifier", "softmax"),
        PlainFamily(
            "naive-bayes", "NaiveBayesClassifier", tuple({"smoothing": s} for s in (0.03, 0.1, 0.3, 1.0)), counts=True
        ),
        LinearFamily(
            SPARSE_SVM,
            "LinearClassifier",
            "rounded-hinge",
            params={"loss": "rounded-hinge", "multiclass": "one-vs-all", "tol": 0.1},
            c_values=(0.6, 2.0, 6.0, 20.0),
            usual=2,
        ),
        LinearFamily(
            "svm-one-vs-all",
            "SVMClassifier",
            "hinge",
            params={"multiclass": "one-vs-all", "tol": 0.1},
            c_values=(0.3, 1.0, 3.0, 10.0),
        ),
        NeighborsFamily("neighbors", "euclidean"),
        NeighborsFamily("neighbors-cosine", "cosine"),
        NeighborsFamily("neighbors-manhattan", "manhattan"),
        NcaNeighborsFamily("neighbors-nca"),
        LinearFamily("least-squares", "LeastSquaresClassifier", "squared", _EVERY_SECOND),
        LinearFamily("logistic", "LogisticClassifier", "logistic", _EVERY_SECOND, {"multiclass": "one-vs-all"}),
        PlainFamily("perceptron", "PerceptronClassifier", ({},)),
        LinearFamily("svm", "SVMClassifier", "hinge", _EVERY_SECOND),
    )
}
# A baseline, which runs only if it is named.
CLASS_NUMBER = PlainFamily(
    "least-squares-number",
    "LeastSquaresClassifier",
    ({"targets": "number"},),
    description=FAMILY_DESCRIPTIONS["least-squares-number"],
)


def comparison_seconds(families: Iterable[Family], size: Size) -> float:
    """Return the expected seconds of one fit of each family, the measure of how long a comparison takes."""
    return sum(family.expected_seconds(size) for family in families)
