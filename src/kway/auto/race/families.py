"""The families of classifiers that are compared. Each is scored over all its settings on the same folds.

linear       a loss over a path of alphas (kway.linear.path). Alphas are given as shares of the mean square |x|^2 of a
             row, so that they mean the same whatever the unit of the features
neighbors    neighbor_families.py
plain        a classifier with a few settings, fitted one by one

To add a family, add an entry to FAMILIES. A family decides itself whether it is worth running unasked (`skipped`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import kway
from kway.auto.options import FAMILY_DESCRIPTIONS
from kway.auto.race.clock import Clock
from kway.auto.race.neighbor_families import SLACK, LearnedNeighborsFamily, NeighborsFamily
from kway.auto.race.scoring import FoldedRows, FoldScores, Scan, mean_square, scores_of
from kway.labels import Labels
from kway.linear.fitting import weighted_rows
from kway.linear.losses import LOSSES
from kway.linear.path import alpha_path
from kway.planning import costs, guard
from kway.planning.costs import SPARSE_PRODUCT, Size, factor_operations, pass_seconds
from kway.planning.rates import Rates

HEAVY = 0.02  # seconds of one pass above which one linear family is run for all, with few alphas (row T11)
_PASSES, _HEAVY_PASSES = 600, 120  # of all linear families; of the one family on heavy rows (row T11)
_FACTORED_FITS = 6  # fits of a comparison that make factors per class
_SPARSE_PRODUCTS = 25  # products of all alphas of one-vs-all SVMs on sparse rows (row T11)
_SPARSE_FIT_PRODUCTS = 6  # products of one alpha
_SEARCHES = 3.3  # by L2, by cosine, and by L1, which is a little slower
_DEFAULT = Rates()

_SHARES = tuple(float(f"{a:.3g}") for a in np.logspace(-2, -7, 11))  # alphas, as shares of |x|^2, strong to weak
_FEW_SHARES = (1e-3, 1e-4, 1e-5, 1e-6)  # the same for losses that take long (T11)
_TOL = 1e-3  # tolerance of the fits on a path (T11)
_HEAVY_TOL = 1e-2  # the same on heavy rows: a third of the time; with 2,500 classes 0.960 correct against 0.957
_COLD = 2.0  # seconds of a fit from zero, relative to a fit that starts at the alpha before it
# Seconds of a pass above which work is saved: joint hinges, which take thousands of passes, are not run; later folds
# run only the alphas next to the best of fold 0; a family that is alone is not run on every fold (T11).
QUICK_PASS = 5e-5
_MANY_CLASSES = 500  # classes above which one linear family runs for all: with 1,250, SVMs and perceptrons take minutes


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
        """The family with a class weight and on a device, if its estimators have these parameters."""
        ...

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score every setting on the folds `which`, as far as the clock allows."""
        ...

    def skip_reason(self, data: FoldedRows) -> str:
        """Why it is not worth running on these rows unless it is named; "" if it is."""
        ...

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a setting."""
        ...

    def expected_seconds(self, size: Size) -> float:
        """Expected seconds of a fit and of predicting a quarter as many rows, at the default rates."""
        ...


# ---- linear families that run for others

SPARSE_SVM = "svm-smooth"  # on sparse rows the fast linear family, which runs for the similar ones
LIKE_SOFTMAX = ("least-squares", "logistic", "perceptron", "svm", "svm-one-vs-all", SPARSE_SVM)  # linear, as softmax is


class _SkipRule(NamedTuple):
    """Rows on which a family is skipped, and why."""

    applies: Callable[[FoldedRows], bool]
    why: str


_SKIP_RULES = {
    "svm": _SkipRule(
        lambda data: data.pass_seconds() > QUICK_PASS,
        "hinges of all classes at once take thousands of passes, and svm-one-vs-all stands for them; ask by name",
    ),
    SPARSE_SVM: _SkipRule(
        lambda data: not data.sparse, "it is for sparse rows, and svm-one-vs-all stands for it; ask by name"
    ),
    "svm-one-vs-all": _SkipRule(
        lambda data: data.sparse,
        "svm-smooth, whose scores of sparse rows are steadier, stands for it; ask by name",
    ),
}


def skipped_for_another(name: str, data: FoldedRows) -> str:
    """Why a linear family is skipped in favor of another one on these rows; "" if it is not.

    Linear boundaries are much alike whatever the loss, so one family runs for all if a fit is slow.
    """
    rule = _SKIP_RULES.get(name)
    if rule is not None and rule.applies(data):
        return rule.why
    quick = _fast_linear_family(data)
    if name not in (*LIKE_SOFTMAX, "softmax") or name == quick:
        return ""
    if quick == SPARSE_SVM and name != "softmax":
        return "of sparse rows svm-smooth, as good and far quicker, stands for it; ask by name"
    if data.n_classes > _MANY_CLASSES:
        return f"with {data.n_classes:,} classes {quick} stands for the linear ones; ask by name"
    if (seconds := data.pass_seconds()) < HEAVY:
        return ""
    return f"one pass over the rows takes about {seconds:.1f} s, and {quick} stands for the linear ones; ask by name"


def _fast_linear_family(data: FoldedRows) -> str:
    """Softmax, or on sparse rows SVMs that share them; log loss needs probabilities, which SVMs do not give."""
    several, needs_probabilities = data.n_classes >= 4, not data.measure.rises
    return SPARSE_SVM if data.sparse and several and not needs_probabilities else "softmax"


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
    boxes: tuple[float, ...] = ()  # instead of shares: C of the SVM's dual, alpha = |x|^2 / (n C)
    # Position of the box that is taken unless a smaller one is clearly better. In 19 samples of 400 to 3,200 short
    # texts a smaller one was better on held-out rows once, by half a point; noise of the folds chose it in 6.
    usual: int | None = None
    description: str = ""

    weighs_classes = True

    def configured(self, class_weight: str | None, device: str) -> LinearFamily:
        """The family with a class weight, on a device."""
        more = {} if class_weight is None else {"class_weight": class_weight}
        more |= {} if device == "cpu" else {"device": device}
        return replace(self, params={**self.params, **more})

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every alpha, strong to weak, with warm starts."""
        begun = time.perf_counter()
        guard.check_fit(self.estimator, costs.softmax, data.size())
        alphas = self.alphas or tuple(float(f"{share * mean_square(data.X):.2g}") for share in self._shares(data))
        scores = FoldScores.empty(len(which), len(alphas))
        seconds = self._run(data, which, clock, alphas, scores)
        run = np.isfinite(seconds)
        usual = None if self.alphas else self.usual
        scan = Scan(
            [{"alpha": alpha} for alpha in alphas],
            **scores._asdict(),
            seconds=time.perf_counter() - begun,
            fit_seconds=_COLD * float(seconds[run].mean()) if run.any() else 0.0,
            measure=data.measure,
            slack=0.0 if usual is None else SLACK,
            usual=usual,
        )
        data.kept.setdefault(self.name, scan)
        return scan

    def _run(
        self, data: FoldedRows, which: list[int], clock: Clock, alphas: tuple[float, ...], scores: FoldScores
    ) -> NDArray[np.float64]:
        """Fill the scores (folds, alphas); seconds of each fit, nan if it was not run."""
        binary = data.n_classes == 2 or self.params.get("multiclass") == "one-vs-all"
        form = LOSSES[self.loss].columns if binary else LOSSES[self.loss].joint
        seconds, weight = np.full_like(scores.accuracy, np.nan), self._row_weights(data)
        tol = _HEAVY_TOL if data.pass_seconds() > HEAVY else _TOL
        device = self.params.get("device", "cpu")
        for own in self._pieces(data, scores, clock.budget is not None):
            stop = clock.pace(len(own) * len(which))
            some = [alphas[i] for i in own]
            for row, fold in enumerate(which):  # one by one: a cut leaves out folds, not the weak alphas of all
                path = alpha_path(data.X, data.codes, form, some, data.folds, [fold], weight, tol, stop, device)
                for name, values in scores._asdict().items():
                    values[row, own] = getattr(path, name)
                seconds[row, own] = path.seconds
            if clock.up():
                break
        return seconds

    def _shares(self, data: FoldedRows) -> tuple[float, ...]:
        return tuple(1 / (data.X.shape[0] * box) for box in self.boxes) or self.shares

    def _row_weights(self, data: FoldedRows) -> NDArray | None:
        """Weights of the rows (n,) if the estimator weighs classes."""
        labels = Labels(np.arange(data.n_classes), data.codes)
        return weighted_rows(data.X, labels, None, self.params.get("class_weight")).weight

    def _pieces(self, data: FoldedRows, scores: FoldScores, hurried: bool) -> Iterator[list[int]]:
        """Yield positions of alphas to run together.

        On fold 0 the alpha in the middle runs first if fits are slow, if time is limited or if a leader is known. The
        others follow unless that score is out of reach of the leader: all of them, or, if fits are slow or time is
        limited, those next to the best so far. Later folds run the best alpha of fold 0 and its neighbors, or all
        alphas if a pass is quick.
        """
        n, first, seconds = scores.accuracy.shape[1], data.kept.get(self.name), data.pass_seconds()
        if first is not None and seconds >= QUICK_PASS:
            beside = {*range(max(0, first.best - 1), min(n, first.best + 2))}
            yield sorted(beside if first.usual is None else beside | {first.usual})
            return
        slow, floor = seconds >= HEAVY or hurried, data.kept.get("floor", -np.inf)
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
        """One linear family runs for the others if a fit is slow."""
        return skipped_for_another(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of an alpha."""
        return getattr(kway, self.estimator)(**self.params, **setting, random_state=seed)

    def expected_seconds(self, size: Size) -> float:
        """Seconds of a fit; predictions take next to none."""
        one_vs_all = self.params.get("multiclass") == "one-vs-all"
        if one_vs_all and size.sparse and self.boxes:
            return sparse_svm_seconds(size)
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
        """Whether its estimator has class weights: nearest means have no rows to weigh."""
        return self._has("class_weight")

    def configured(self, class_weight: str | None, device: str) -> PlainFamily:
        """The family with a class weight and on a device, if its estimator has these parameters."""
        more = {"class_weight": class_weight} if class_weight is not None and self._has("class_weight") else {}
        more |= {"device": device} if device != "cpu" and self._has("device") else {}
        return replace(self, settings=tuple({**s, **more} for s in self.settings))

    def _has(self, parameter: str) -> bool:
        return parameter in getattr(kway, self.estimator)().get_params()

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """One fit per setting and fold."""
        begun = time.perf_counter()
        scores = FoldScores.empty(len(which), len(self.settings))
        stop = clock.pace(scores.accuracy.size)
        for row, fold in enumerate(which):
            inside = data.folds == fold
            for column, setting in enumerate(self.settings):
                if stop():
                    break
                if data.unit and setting.get("metric") == "euclidean":
                    continue  # the nearest mean by distance or by angle: nearly the same, and sparse rows stay sparse
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
        """Skip naive Bayes on rows that are no counts, and the perceptron as other linear families."""
        if self.counts and not (data.sparse and data.X.data.min(initial=0) >= 0):
            return "it is for counts and tf-idf, sparse rows without negative values"
        return skipped_for_another(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a setting."""
        model = getattr(kway, self.estimator)(**setting)
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model

    def expected_seconds(self, size: Size) -> float:
        """Sums per class, or the passes of a perceptron."""
        formula = costs.one_vs_all if self.name in LIKE_SOFTMAX else costs.centroids
        return formula(size, Rates()).fit_seconds


FAMILIES: dict[str, Any] = {  # name -> Family
    family.name: replace(family, description=FAMILY_DESCRIPTIONS[family.name])
    for family in (
        # those that win most often first and the slowest last, so that a budget cuts what is missed least
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
            boxes=(0.6, 2.0, 6.0, 20.0),
            usual=2,
        ),
        LinearFamily(
            "svm-one-vs-all",
            "SVMClassifier",
            "hinge",
            params={"multiclass": "one-vs-all", "tol": 0.1},  # 10,000 questions: accuracy 0.9146; 0.9140 at 0.01
            boxes=(0.3, 1.0, 3.0, 10.0),
        ),
        NeighborsFamily("neighbors", "euclidean"),
        NeighborsFamily("neighbors-cosine", "cosine"),
        NeighborsFamily("neighbors-manhattan", "manhattan"),
        LearnedNeighborsFamily("neighbors-nca"),
        LinearFamily("least-squares", "LeastSquaresClassifier", "squared", _FEW_SHARES),
        LinearFamily("logistic", "LogisticClassifier", "logistic", _FEW_SHARES, {"multiclass": "one-vs-all"}),
        PlainFamily("perceptron", "PerceptronClassifier", ({},)),
        LinearFamily("svm", "SVMClassifier", "hinge", _FEW_SHARES),
    )
}
# A baseline, which runs only if it is named.
CLASS_NUMBER = PlainFamily(
    "least-squares-number",
    "LeastSquaresClassifier",
    ({"targets": "number"},),
    description=FAMILY_DESCRIPTIONS["least-squares-number"],
)


# ---- the expected time of a comparison, which decides whether it runs on a sample


def comparison_seconds(size: Size) -> float:
    """Expected seconds of comparing all families, at the default rates.

        passes x a + factors + 3.3 s      a: one pass over all rows and classes; s: all rows searched by all rows

    A path of alphas over five folds with warm starts takes 60 to 100 passes per fold for 11 alphas, 20 to 40 for the
    three that are run if a pass is heavy. On heavy sparse rows one-vs-all SVMs replace all linear families.
    """
    heavy, search = pass_seconds(size, _DEFAULT) > HEAVY, size.n * costs.flat(size, _DEFAULT).predict_seconds
    if heavy and size.sparse:
        return _SPARSE_PRODUCTS * _sparse_product_seconds(size) + search
    passes, factors = _HEAVY_PASSES if heavy else _PASSES, _FACTORED_FITS * factor_operations(size)
    return passes * pass_seconds(size, _DEFAULT) + factors / _DEFAULT.product + _SEARCHES * search


def sparse_svm_seconds(size: Size) -> float:
    """Return the seconds of one fit of one-vs-all SVMs on sparse rows: 2 s for 15,100 texts of 151 classes."""
    return _SPARSE_FIT_PRODUCTS * _sparse_product_seconds(size)


def _sparse_product_seconds(size: Size) -> float:
    return SPARSE_PRODUCT * size.values * size.scores / _DEFAULT.product
