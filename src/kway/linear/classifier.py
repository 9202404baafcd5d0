"""LinearClassifier: minimise alpha R(W) + mean_i loss(f_i, y_i) with f = X W^T + b, any loss, penalty and solver.

    fit      gate -> targets and weights -> Objective -> solver -> coef_ (R, d), intercept_ (R,)
    predict  class rows scored by inner product plus bias, the best kept (kway.linear.answers)

R is 1 for two classes, whose score is that of classes_[1] against classes_[0], and K otherwise.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway.base import Classifier, refuse_above_budget
from kway.data import gate
from kway.data.labels import Labels, encode_as
from kway.errors import InputError
from kway.linear import answers
from kway.linear import problem as setup
from kway.linear.losses import LOSSES, Loss, Targets
from kway.linear.objective.distinct_rows import condensed
from kway.linear.objective.objective import Objective
from kway.linear.penalties import pick_penalty
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.registry import pick_solver
from kway.linear.solvers.sgd import SGD
from kway.linear.solvers.watching import shown
from kway.linear.solvers.work import Work, cold_start
from kway.search.index import TopK


def _has_probabilities(estimator: LinearClassifier) -> bool:
    forms = LOSSES.get(estimator.loss)
    if forms is None or not forms.joint.probabilities:
        raise AttributeError(
            f"predict_proba does not exist for the {estimator.loss} loss: its scores are not probabilities; "
            "use decision_function, or loss='softmax'"
        )
    return True


class LinearClassifier(Classifier):
    """Linear classifier of any loss, penalty and solver.

    Parameters
    ----------
    loss : "softmax", "logistic", "hinge", "perceptron", "squared", "softmax-squared" or "softmax-absolute"
    penalty : "l2", "l1", "elasticnet" or "none"; the bias is never penalised
    alpha : weight of the penalty against the MEAN loss, so it does not move with the number of rows
    solver : "auto", "newton", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", or such as
        SGD(momentum=0.9)
    multiclass : "joint" (all classes in one problem) or "one-vs-all"
    l1_ratio : share of L1 in the elastic net
    temperature : T of softmax(f / T) in `predict_proba`
    max_iter : most iterations (for sgd: epochs)
    tol : how far, relatively, the objective may stay above its optimum: a fit without a ConvergenceWarning is within
        it (an objective under a millionth of that at W = 0 counts as that much). Of sgd: the least gain, relatively,
        of ten epochs that is worth going on for; it says nothing about the optimum
    batch_size : rows a step of sgd
    learning_rate : of sgd: a number, "auto", "constant", "decay", "cosine" or a schedule
    label_smoothing : eps; targets become 1 - eps and eps / (K - 1)
    class_weight : None, "balanced" or a dict {class: weight}
    early_stopping : keep a tenth of the rows (or the share given) to stop the iterations by
    warm_start : start from the last solution
    device : "cpu"
    n_jobs : threads; None uses every core
    random_state : seed of everything drawn
    verbose : 1 shows progress

    Attributes
    ----------
    classes_ (K,), coef_ (R, d), intercept_ (R,), n_iter_, objective_, history_ (objective an iteration);
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

    # ---------------------------------------------------------------- learning

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearClassifier:
        """Learn from X (n, d) and labels (n,), or soft targets (n, K) where the loss is about probabilities."""
        setup.check_parameters(self)
        X, labels = gate.rows_and_labels(self, X, y, soft=LOSSES[self.loss].joint.probabilities)
        setup.refuse_one_class(labels, type(self).__name__)
        self.classes_ = labels.classes
        training = setup.training(X, labels, gate.weights(sample_weight, X), self.class_weight)
        objective = self._objective(training)
        control = self._control()
        learned, validation = setup.hold_out(condensed(objective), self.early_stopping, control.rng)
        work = Work.on(learned, self.solver)
        start = work.start(self._last(objective), control.rng)
        with shown(f"{type(self).__name__} {work.solver.name}", self.max_iter, self.verbose) as progress:
            solution = work.solve(start, replace(control, progress=progress, validate=validation))
        if validation is not None and validation.theta is not None:
            solution = replace(solution, theta=validation.theta)
        self._keep(objective, solution, work.solver.name, training.kept)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> LinearClassifier:
        """One epoch of SGD over these rows; the first call must name every class, or show it."""
        setup.check_parameters(self)
        first = not hasattr(self, "coef_")
        X, labels = gate.rows_and_labels(self, X, y, reset=first)
        if first:
            self.classes_ = labels.classes if classes is None else np.unique(np.asarray(classes))
        labels = Labels(self.classes_, encode_as(labels.classes[labels.codes], self.classes_))
        setup.refuse_one_class(labels, type(self).__name__)
        objective = self._objective(setup.training(X, labels, gate.weights(sample_weight, X), self.class_weight))
        solver = self.solver if isinstance(self.solver, SGD) else SGD()
        pick_solver(solver, objective)
        epoch = getattr(self, "epochs_", 0)
        control = self._control(epoch)
        start = cold_start(objective, control.rng) if first else self._theta(objective)
        theta = solver.epoch(objective, start, control, epoch)
        self.epochs_ = epoch + 1
        history = [*getattr(self, "history_", []), objective.value(theta)]
        self._keep(objective, Solution(theta, self.epochs_, history=history), solver.name, np.arange(objective.n))
        return self

    # ---------------------------------------------------------------- answers

    def decision_function(self, X: Any) -> NDArray:
        """Scores f = X W^T + b: (n,) for two classes, (n, K) otherwise."""
        X = self._checked(X)
        refuse_above_budget(X.shape[0], len(self.intercept_), X.dtype.itemsize, "decision_function")
        scores = answers.scores(X, self.coef_, self.intercept_, self.n_jobs)
        return scores[:, 0] if len(self.intercept_) == 1 else scores

    def predict(self, X: Any) -> NDArray:
        """The class of the largest score; a tie goes to the first."""
        X = self._checked(X)
        return self.classes_[answers.best(X, self.coef_, self.intercept_, self.n_jobs)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray:
        """Probabilities (n, K) at the classifier's temperature."""
        X = self._checked(X)
        refuse_above_budget(X.shape[0], len(self.classes_), X.dtype.itemsize, "predict_proba")
        scores = answers.scores(X, self.coef_, self.intercept_, self.n_jobs)
        return answers.probabilities(scores, self._form(), self.temperature)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> NDArray:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best classes of each row, labels and scores (probabilities where the loss has them), best first."""
        X = self._checked(X)
        ids, scores = answers.top(X, self.coef_, self.intercept_, min(k, len(self.classes_)), self.n_jobs)
        if self._form().probabilities:
            scores = answers.top_probabilities(
                X, self.coef_, self.intercept_, scores, self._form(), self.temperature, self.n_jobs
            )
        return TopK(self.classes_[ids], scores)

    def explain(self, X: Any, n_features: int = 5) -> answers.Explanation:
        """Each row's answer, its runner-up, and the features that decided between the two."""
        X = self._checked(X)
        return answers.explain(X, self.classes_, self.coef_, self.intercept_, n_features, self.n_jobs)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy; soft targets count by their largest entry."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == len(self.classes_) > 1:
            y = self.classes_[y.argmax(axis=1)]
        return float(super().score(X, y, sample_weight))

    # ---------------------------------------------------------------- parts of a fit

    def _form(self) -> Loss:
        forms = LOSSES[self.loss]
        return forms.columns if len(self.classes_) == 2 or self.multiclass == "one-vs-all" else forms.joint

    def _objective(self, training: setup.Training) -> Objective:
        X, labels, weight, _ = training
        form = self._form()
        soft = setup.soft_targets(labels, self.label_smoothing, X.dtype)
        if soft is not None and not form.soft_targets:
            raise InputError(f"the {form.name} loss takes one label a row, not distributions or label_smoothing")
        n_scores = 1 if labels.n_classes == 2 else labels.n_classes
        penalty = pick_penalty(self.penalty, self.l1_ratio).times(self.alpha)
        return Objective(
            X, Targets(labels.codes, soft), n_scores, form, penalty, self.fit_intercept, weight, self.n_jobs
        )

    def _control(self, epoch: int = 0) -> Control:
        seed = check_random_state(self.random_state).randint(2**31 - 1) if self.random_state is not None else 0
        rng = np.random.default_rng((seed, epoch))
        return Control(self.max_iter, self.tol, self.batch_size, self.learning_rate, rng)

    def _last(self, objective: Objective) -> NDArray | None:
        """The solution of an earlier fit, where one of this shape is to be started from."""
        fits = hasattr(self, "coef_") and self.coef_.shape == (objective.n_scores, objective.d)
        return self._theta(objective) if self.warm_start and fits else None

    def _theta(self, objective: Objective) -> NDArray:
        return np.hstack([self.coef_, self.intercept_[:, None]]).astype(objective.X.dtype)

    def _keep(self, objective: Objective, solution: Solution, solver: str, kept: NDArray[np.int64]) -> None:
        self.coef_ = np.ascontiguousarray(solution.theta[:, :-1])
        self.intercept_ = np.ascontiguousarray(solution.theta[:, -1])
        self.n_iter_ = solution.n_iter
        self.history_ = solution.history
        self.objective_ = objective.value(solution.theta)
        self.solver_ = solver
        if objective.loss.hinge and not objective.loss.minimised_by_zero:
            self.support_ = kept[answers.support(objective, solution.theta)]
            norms = np.linalg.norm(self.coef_, axis=1)
            margins = 1 / np.maximum(norms, np.finfo(norms.dtype).tiny)
            self.margin_ = float(margins[0]) if len(margins) == 1 else margins
        if not solution.converged:
            missed = f", about {solution.miss:.2g} of the objective above the optimum" if solution.miss < np.inf else ""
            warnings.warn(
                f"{type(self).__name__} ({solver}) stopped after {solution.n_iter} iterations without converging"
                f"{missed} (tol={self.tol:g}); {solution.advice or 'raise max_iter'}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _checked(self, X: Any) -> gate.Rows:
        check_is_fitted(self)
        return gate.rows(self, X, reset=False, blocks=True)

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
