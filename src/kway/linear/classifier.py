"""LinearClassifier: minimise alpha R(W) + mean_i loss(f_i, y_i) with f = X W^T + b, any loss, penalty and solver.

    fit      gate -> targets and weights -> Objective -> solver -> coef_ (R, d), intercept_ (R,): fitting.py
    predict  class rows scored by inner product plus bias, the best kept (kway.base)

R is 1 for two classes, whose score is that of classes_[1] against classes_[0], and K otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway.base import class_rows
from kway.base.classifier import states_probabilities
from kway.base.own_threads import on_own_threads
from kway.compute.gpu.device import is_tensor, on_host
from kway.linear import answers, problem
from kway.linear.answers import ClassRows, DecidingFeatures
from kway.linear.losses import LOSSES, Loss, sigmoid
from kway.linear.on_device import AnswersOnDevice
from kway.search.index import TopK

if TYPE_CHECKING:
    from kway.linear.problem import WeightedRows
    from kway.planning.size import Size
    from kway.planning.way import Formula


class LinearClassifier(AnswersOnDevice):
    """Linear classifier of any loss, penalty and solver.

    Parameters
    ----------
    loss : "softmax", "logistic", "hinge", "rounded-hinge", "perceptron", "squared", "softmax-squared" or
        "softmax-absolute"
    penalty : "l2", "l1", "elasticnet" or "none"; the bias is never penalised
    alpha : weight of the penalty against the MEAN loss, so it does not move with the number of rows
    solver : "auto", "newton", "lbfgs", "proximal", "least-squares", "dual", "sweeps", "gradient", "sgd", "sampled", or
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
        from kway.linear.fitting import fit_linear  # half a second, and no prediction needs it

        fit_linear(self, X, y, sample_weight)
        return self

    def fit_folder(self, folder: str | Path, target: str | None = None) -> LinearClassifier:
        """Learn from a folder of parquet files, whose column `target` has the labels, or of .npy files.

        Inside `kway.cluster(...)` the nodes read the files, and keep the rows: they are never all here. Losses without
        kinks, by L-BFGS or, with an L1 penalty, the proximal solver. Here, rows that solver="sampled" learns from, or
        "auto" by sampling, and those that are larger than memory stay in the files and are read some at a time.
        """
        from kway.linear.from_folder import fit_folder

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

        partial_fit(self, X, y, classes, sample_weight)
        return self

    def _learn(self, given: WeightedRows, last: NDArray | None) -> None:
        """Minimise the objective from `last`, the solution of the last fit (None: from the beginning)."""
        from kway.linear.fitting import learn

        learn(self, given, last)

    def _way(self, size: Size, hard: bool) -> Formula:
        """What the plan counts the fit as."""
        from kway.linear.fit_ways import fit_way

        return fit_way(self, size, hard)

    # ---------------------------------------------------------------- answers: the engine's, from class rows

    def _best_here(self, rows: Any, k: int, stated: bool) -> TopK:
        form = self._form()
        stated = stated and form.probabilities
        if len(self.intercept_) == 1:
            codes, scores = answers.best_of_two(self._scores(rows)[:, 0], k)
            return TopK(codes, sigmoid(scores / scores.dtype.type(self.temperature)) if stated else scores)
        weights = answers.log_weights(form, self.temperature) if stated else None
        return class_rows.top(rows, self.coef_, self.intercept_, k, weights, self.n_jobs)

    def _scores(self, rows: Any) -> NDArray:
        there = self._there(rows)
        if there is not None:
            return there.device.fetch(there.scores(there.device.put(rows[:])))
        return class_rows.scores(rows, self.coef_, self.intercept_, self.n_jobs)

    def _probabilities(self, scores: NDArray) -> NDArray:
        return answers.probabilities(scores, self._form(), self.temperature)

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
        rows = self._rows(X)
        codes = self._top(rows, 2, stated=False).ids
        return answers.deciding_features(rows, codes, self.classes_, self._class_rows(), n_features)

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
        problem.check_problem(self)

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
