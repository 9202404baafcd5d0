"""LinearClassifier: minimize alpha R(W) + mean_i loss(f_i, y_i) with f = X W' + b, any loss, penalty and solver.

    fit      check -> plan -> objective -> solver -> coef_ (R, d), intercept_ (R,): fitting.py
    predict  class rows scored by inner product plus bias, the best kept (kway.base.class_rows)
    explain  the features that decided between the best two classes

R is 1 for two classes, whose score is that of classes_[1] against classes_[0], and K otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.class_rows import CLASS_BLOCK, best_classes, class_scores, class_shares
from kway.base.classifier import Classifier, on_own_threads, states_probabilities
from kway.errors import BudgetError
from kway.linear.losses import LOSSES, Loss
from kway.parameters import (
    CLASS_WEIGHT,
    DEVICE,
    VERBOSE,
    YES_OR_NO,
    above,
    at_least,
    between,
    check_parameters,
    one_of,
    share,
    whole,
    within,
)
from kway.probabilities import Shares
from kway.rows.gpu.device import is_tensor, on_host
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.results import TopK
from kway.text_tables import Table, first_rows, short_number
from kway.threads import at_most, spans
from kway.validation import Rows

_REASONS_SHOWN = 3  # features printed per row of an explanation


class ClassRows(NamedTuple):
    """A row (K, d) and a bias (K,) per class, whose largest score is the answer; two classes have (0, w)."""

    W: NDArray
    b: NDArray


class LinearClassifier(Classifier):
    """Linear classifier of any loss, penalty and solver.

    Parameters
    ----------
    loss : "softmax", "logistic", "hinge", "rounded-hinge", "perceptron", "squared", "softmax-squared" or
        "softmax-absolute"
    penalty : "l2", "l1", "elasticnet" or "none"; the bias is never penalised
    alpha : weight of the penalty against the MEAN loss, so it does not move with the number of rows
    solver : "auto", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", "sampled", or
        such as SGD(momentum=0.9)
    multiclass : "joint" (all classes in one problem) or "one-vs-all"
    l1_ratio : share of L1 in the elastic net
    temperature : T of softmax(f / T) in `predict_proba`
    fit_intercept : learn a bias b for each score; False: planes through the origin
    max_iter : most iterations (for sgd: epochs)
    tol : how far, relatively, the objective may stay above its optimum: a fit without a ConvergenceWarning is within
        it (an objective under a millionth of that at W = 0 counts as that much). float32 rows are worked on as
        float64 where it is under 1e-6. Of sgd also the least gain, relatively, of ten epochs that is worth going on
        for: it warns where that leaves it above tol, or where the problem is too large to check.
        Of sampled: the gain of three epochs, as a share of the loss at W = 0
    batch_size : rows a step of sgd; of sampled, 256 where this is 1 (up to 2,048 on a GPU)
    learning_rate : of sgd and sampled: a number, "auto", "constant", "decay", "cosine" or a schedule
    label_smoothing : eps; targets become 1 - eps and eps / (K - 1)
    class_weight : None, "balanced" or a dict {class: weight}
    early_stopping : keep a tenth of the rows (or the share given) to stop the iterations by
    warm_start : start from the last solution
    device : "cpu", "cuda" (rows, passes and answers on a GPU; lbfgs, proximal, gradient, sgd and sampled work there) or
        "auto": the GPU where there is one and the plan says that it pays, as `why_` tells
    n_jobs : threads; None uses every core
    random_state : seed of everything drawn
    verbose : 1 shows progress

    Attributes
    ----------
    classes_ (K,), coef_ (R, d), intercept_ (R,), n_iter_, objective_, history_ (objective an iteration; of sampled, and
    objective_ where all rows against all classes are too many, the exact one of at most 1,000 rows);
    for the hinge loss also support_ (rows on or inside the margin) and margin_ = 1 / ||w|| a row of coef_.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> LinearClassifier(alpha=0.01).fit(X, ["low", "low", "high", "high"]).predict([[0.5], [2.6]])
    array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        loss: str = "softmax",
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        solver: Any = "auto",
        multiclass: str = "joint",
        l1_ratio: float = 0.5,
        temperature: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        batch_size: int = 1,
        learning_rate: Any = "auto",
        label_smoothing: float = 0.0,
        class_weight: Any = None,
        early_stopping: bool | float = False,
        warm_start: bool = False,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.solver = solver
        self.multiclass = multiclass
        self.l1_ratio = l1_ratio
        self.temperature = temperature
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---------------------------------------------------------------- learning (fitting.py, with all the solvers)

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearClassifier:
        """Learn from X (n, d) and labels (n,), or soft targets (n, K) where the loss is about probabilities."""
        from kway.linear.fitting import prepare_fit, solve_plan  # half a second, and no prediction needs it

        with at_most(self._threads()):
            try:
                solve_plan(self, prepare_fit(self, X, y, sample_weight))
            except BudgetError:
                self._forget()
                raise
        return self

    def fit_folder(self, folder: str | Path, target: str | None = None) -> LinearClassifier:
        """Learn from a folder of parquet files, whose column `target` has the labels, or of .npy files.

        Inside `kway.cluster(...)` the nodes read the files, and keep the rows: they are never all here. Losses without
        kinks, by L-BFGS or, with an L1 penalty, the proximal solver. Here, rows that solver="sampled" learns from, or
        "auto" by sampling, and those that are larger than memory stay in the files and are read some at a time.
        """
        from kway.linear.from_files import fit_folder

        fit_folder(self, folder, target)
        return self

    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> LinearClassifier:
        """Learn from blocks (X, y), such as a generator's, kept in a file meanwhile: by sampled softmax or L-BFGS."""
        from kway.linear.from_files import fit_blocks

        fit_blocks(self, blocks)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> LinearClassifier:
        """One epoch of SGD over these rows; the first call must name every class, or show it."""
        from kway.linear.fitting import partial_fit

        with at_most(self._threads()):
            partial_fit(self, X, y, classes, sample_weight)
        return self

    # ---------------------------------------------------------------- answers, from class rows

    def _rows(self, X: Any) -> Any:
        """X checked; a tensor stays on its device."""
        if not is_tensor(X):
            return super()._rows(X)
        check_is_fitted(self)
        return validation.tensor_rows(self, X)

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        shares = self._link() if stated and self._form().probabilities else None
        return best_classes(self._sent(rows), self.coef_, self.intercept_, k, shares)

    def _scores(self, rows: Any) -> Any:
        return class_scores(self._sent(rows), self.coef_, self.intercept_)

    def _shares(self, rows: Any) -> Any:
        return class_shares(self._sent(rows), self.coef_, self.intercept_, self._link())

    def _sent(self, rows: Any) -> Any:
        """The rows, which a GPU is to score if the model's device says so and it pays."""
        if self.device == "cpu" or sp.issparse(rows) or isinstance(rows, TensorRows):
            return rows
        from kway.linear.plan import prediction_device  # the plan, which no answer on the CPU needs

        device = prediction_device(self.device, rows.shape[0], self.coef_)
        if device is None:
            return rows
        from kway.rows.gpu.class_scores import HostRows

        return HostRows(rows, device)

    def _link(self) -> Shares:
        """How scores become probabilities: softmax(f / T), or sigmoid(f / T) normalized over the columns."""
        return Shares(1 / self.temperature, self._form().joint)

    def _check_probabilities(self) -> None:
        forms = LOSSES.get(self.loss)
        if forms is None or not forms.joint.probabilities:
            raise AttributeError(
                f"predict_proba does not exist for the {self.loss} loss: its scores are not probabilities; "
                "use decision_function, or loss='softmax'"
            )

    @available_if(states_probabilities)
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithm of `predict_proba`."""
        p = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return p.log() if is_tensor(p) else np.log(p)

    @on_own_threads
    def explain(self, X: Any, n_features: int = 5) -> DecidingFeatures:
        """Each row's answer, its runner-up, and the features that decided between the two."""
        rows = super()._rows(X)
        codes = self._best(rows, 2, stated=False).ids
        return deciding_features(rows, codes, self.classes_, self._class_rows(), n_features)

    def _class_rows(self) -> ClassRows:
        """Rows whose largest score is the answer: (K, d) and (K,)."""
        if len(self.intercept_) > 1:
            return ClassRows(self.coef_, self.intercept_)
        return ClassRows(np.vstack([0 * self.coef_, self.coef_]), np.append(0 * self.intercept_, self.intercept_))

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy; soft targets count by their largest entry."""
        y = on_host(y)
        if np.ndim(y) == 2 and np.shape(y)[1] == len(self.classes_) > 1:
            y = self.classes_[np.asarray(y).argmax(axis=1)]
        return super().score(X, y, sample_weight)

    # ---------------------------------------------------------------- parts

    def _check_parameters(self) -> None:
        """Refuse parameters that mean nothing before any data is looked at."""
        check_parameters(
            self,
            loss=one_of(*LOSSES),
            multiclass=one_of("joint", "one-vs-all"),
            alpha=at_least(0),
            l1_ratio=within(0, 1),
            temperature=above(0),
            max_iter=whole(1),
            tol=at_least(0),
            batch_size=whole(1),
            label_smoothing=share(),
            fit_intercept=YES_OR_NO,
            class_weight=CLASS_WEIGHT,
            early_stopping=YES_OR_NO | between(0, 1),
            warm_start=YES_OR_NO,
            device=DEVICE,
            verbose=VERBOSE,
        )

    def _form(self, n_classes: int | None = None) -> Loss:
        forms, K = LOSSES[self.loss], len(self.classes_) if n_classes is None else n_classes
        return forms.columns if K == 2 or self.multiclass == "one-vs-all" else forms.joint

    # ---------------------------------------------------------------- model files

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self)
        facts = {"n_iter": self.n_iter_, "objective": self.objective_, "solver": self.solver_, "history": self.history_}
        arrays = {"coef": self.coef_, "intercept": self.intercept_}
        if hasattr(self, "support_"):
            arrays["support"] = self.support_
            arrays["margin"] = np.atleast_1d(self.margin_)
        return facts, arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.coef_, self.intercept_ = arrays["coef"], arrays["intercept"]
        self.n_iter_, self.objective_ = facts["n_iter"], facts["objective"]
        self.solver_, self.history_ = facts["solver"], facts["history"]
        if "support" in arrays:
            self.support_ = arrays["support"]
            margins = arrays["margin"]
            self.margin_ = float(margins[0]) if len(margins) == 1 else margins


class DecidingFeatures(NamedTuple):
    """Why each row got its class: the score of `labels` leads that of `runners_up` by `gaps`.

    `features` (n, m) are the columns that moved the lead most, `contributions` (n, m) by how much, each
    (w_label - w_runner_up)_j x_j; together with all other columns and the biases they add up to the gap.
    """

    labels: NDArray
    runners_up: NDArray
    gaps: NDArray
    features: NDArray[np.int64]
    contributions: NDArray

    def _table(self) -> Table:
        told = lambda i: (self.labels[i], self.runners_up[i], short_number(self.gaps[i]), self._reasons(i))  # noqa: E731
        columns = ("label", "before", "by", "columns that moved the lead most")
        return first_rows(f"DecidingFeatures: {len(self.labels):,} rows", len(self.labels), columns, told)

    def _reasons(self, i: int) -> str:
        some = zip(self.features[i, :_REASONS_SHOWN], self.contributions[i, :_REASONS_SHOWN])
        return ", ".join(f"{j} {value:+.3g}" for j, value in some)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def deciding_features(X: Rows, codes: NDArray, classes: NDArray, rows: ClassRows, n_features: int) -> DecidingFeatures:
    """The lead of each row's class over its runner-up, codes (n, 2), and the features it came from."""
    m, kind = min(n_features, X.shape[1]), np.result_type(X.dtype, rows.W.dtype)
    gaps, features = np.empty(X.shape[0], kind), np.empty((X.shape[0], m), np.int64)
    contributions = np.empty((X.shape[0], m), kind)
    for some in spans(X.shape[0], max(1, CLASS_BLOCK // X.shape[1])):
        x = X[some].toarray() if sp.issparse(X) else X[some]
        first, second = codes[some, 0], codes[some, 1]
        lead = x * (rows.W[first] - rows.W[second])  # (m, d)
        order = np.argsort(-np.abs(lead), axis=1, kind="stable")[:, :m]
        gaps[some] = np.maximum(0, lead.sum(axis=1) + rows.b[first] - rows.b[second])
        features[some], contributions[some] = order, np.take_along_axis(lead, order, axis=1)
    return DecidingFeatures(classes[codes[:, 0]], classes[codes[:, 1]], gaps, features, contributions)
