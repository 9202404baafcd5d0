"""LinearClassifier: minimize alpha R(W) + mean_i loss(f_i, y_i) with f = X W' + b, any loss, penalty and solver.

    fit      validate -> plan -> objective -> solver -> coef_ (R, d), intercept_ (R,): fitting.py
    predict  score class rows by inner product plus bias, and keep the best (kway.base.class_rows)
    explain  the features that decided between the best two classes

R is 1 for two classes, with the score of classes_[1] against classes_[0], and K otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base import callbacks
from kway.base.class_rows import best_classes, class_scores, class_shares
from kway.base.classifier import Classifier, reads, states_probabilities
from kway.base.contributions import STRONGEST, Contributions, Parts
from kway.errors import BudgetError
from kway.linear.losses import LOSSES, Loss
from kway.memory import CACHE_BYTES, rows_per_block
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
from kway.rows.gpu.device import Device, is_tensor, on_host
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.results import TopK
from kway.text_tables import Table, first_rows, short_number
from kway.threads import at_most, spans
from kway.validation import Rows
from kway.versions import writes


class ClassRows(NamedTuple):
    """Weights (K, d) and biases (K,); the first of two classes has zeros. The largest score is predicted."""

    W: NDArray
    b: NDArray


def learns_by_epochs(model: LinearClassifier) -> bool:
    """Check for `available_if` that the model can learn from one epoch of SGD."""
    model._check_partial_fit()
    return True


class LinearClassifier(Classifier):
    """Linear classifier with any loss, penalty and solver.

    Parameters
    ----------
    loss : str, default="softmax"
        "softmax" (cross-entropy), "logistic", "hinge", "rounded-hinge" (with a smooth kink), "perceptron", "squared"
        (of the scores), "softmax-squared" or "softmax-absolute" (of the probabilities).
    penalty : {"l2", "l1", "elasticnet", "none"}, default="l2"
        Penalty on the weights. The bias is never penalized.
    alpha : float, default=1e-4
        Weight of the penalty, which is added to the mean loss. Raise it to regularize more. As the loss is a mean, the
        same value suits any number of rows.
    solver : str or solver object, default="auto"
        "auto", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", "sampled", or an object such as
        `SGD(momentum=0.9)`. "auto" chooses the fastest solver for the loss, the penalty and the rows.
    multiclass : {"joint", "one-vs-all"}, default="joint"
        "joint" fits all classes in one problem, "one-vs-all" one binary problem per class.
    l1_ratio : float, default=0.5
        Share of L1 in the elastic net.
    temperature : float, default=1.0
        T of softmax(f / T) in `predict_proba`.
    fit_intercept : bool, default=True
        Whether to learn a bias per score.
    max_iter : int, default=1000
        Maximum number of iterations; for "sgd" and "sampled", of epochs.
    tol : float, default=1e-3
        Relative excess of the objective over its optimum. A fit without a ConvergenceWarning is within tol; an
        objective below a millionth of its value at W = 0 counts as that much. Below 1e-6, float32 rows are converted
        to float64. "sgd" stops if ten epochs gain less than tol, and warns if it is not within tol or the problem is
        too large to check. "sampled" stops if three epochs gain less than tol times the loss at W = 0.
    batch_size : int, default=1
        Rows per step of "sgd". "sampled" uses 256 (up to 2,048 on a GPU) if this is 1.
    learning_rate : float, str or schedule, default="auto"
        Step size of "sgd" and "sampled": a number, "auto", "constant", "decay", "cosine" or a schedule object.
    label_smoothing : float, default=0.0
        eps: targets are 1 - eps for the class and eps / (K - 1) for each other class.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    early_stopping : bool or float, default=False
        Stop when the loss on a validation split no longer falls. True holds out a tenth of the rows, a float this
        share.
    warm_start : bool, default=False
        Whether `fit` starts from the last solution.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" keeps rows and weights on the GPU (solvers "lbfgs", "proximal", "gradient", "sgd" and "sampled").
        "auto" uses a GPU if there is one and it is expected to be faster; `why_` has the reason.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn at random; None is a fixed seed, too.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (n_scores, n_features)
        Weights; one row per class, or one row for two classes.
    intercept_ : ndarray of shape (n_scores,)
        Biases.
    n_iter_ : int
        Number of iterations.
    objective_ : float
        The penalty plus the mean loss at the solution.
    history_ : list of float
        The objective after each iteration.
    solver_ : str
        The solver that was used.
    n_features_in_ : int
        Number of features.
    support_ : ndarray of int
        Training rows on or inside the margin; for the hinge loss.
    margin_ : float or ndarray
        1 / ||w||, one per row of `coef_`; for the hinge loss.
    why_ : str
        Where the rows were placed, and why; for `device="auto"`, GPUs, clusters and files.

    Notes
    -----
    `objective_` and `history_` of the "sampled" solver are exact sums over at most 1,000 rows if all rows against all
    classes are too many.

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

    # ---- fitting (fitting.py, with all the solvers)

    set_callbacks = callbacks.set_callbacks

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearClassifier:
        """Fit the classifier.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_classes)
            Labels, or soft targets (rows that sum to 1) if the loss is defined on probabilities.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        LinearClassifier
            The fitted classifier.
        """
        from kway.linear.fitting import prepare_fit, solve_plan  # half a second, and no prediction needs it

        with at_most(self._threads()), callbacks.callback_task(self, X, y, sample_weight, "fit") as watch:
            try:
                solve_plan(self, prepare_fit(self, X, y, sample_weight), watch)
            except BudgetError:
                self._forget()
                raise
        return self

    def fit_folder(self, folder: str | Path, target: str | None = None) -> LinearClassifier:
        """Fit the classifier to a folder of parquet, csv or .npy files.

        On one machine the rows are read into memory; rows that are larger than memory, or that sampled softmax learns
        from, stay in their files and are read a block at a time. Inside `kway.cluster(...)` the nodes read the files
        and keep the rows; the loss must then be smooth, and the solver is L-BFGS or, for an L1 penalty, the proximal
        solver.

        Parameters
        ----------
        folder : str or Path
            The folder.
        target : str, default=None
            Column of the labels; not needed for .npy files, one of which has the labels.

        Returns
        -------
        LinearClassifier
            The fitted classifier.
        """
        from kway.linear.from_files import fit_folder

        fit_folder(self, folder, target)
        return self

    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> LinearClassifier:
        """Fit the classifier to blocks of rows, which are written to a temporary file, by sampled softmax or L-BFGS.

        Parameters
        ----------
        blocks : iterable of (X, y)
            Rows, dense or sparse, with their labels.

        Returns
        -------
        LinearClassifier
            The fitted classifier.
        """
        from kway.linear.from_files import fit_blocks

        fit_blocks(self, blocks)
        return self

    @available_if(learns_by_epochs)
    @writes
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> LinearClassifier:
        """Run one epoch of SGD over these rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), default=None
            All labels; required in the first call if its rows do not have all of them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. Each call divides them, times the class weights, by their mean. So they count only
            relative to the other rows of the call, and a single row always has weight 1.

        Returns
        -------
        LinearClassifier
            The fitted classifier.
        """
        from kway.linear.fitting import partial_fit

        with at_most(self._threads()), callbacks.callback_task(self, X, y, sample_weight, "partial_fit"):
            partial_fit(self, X, y, classes, sample_weight)
        return self

    # ---- predictions, from class rows

    def _rows(self, X: Any) -> Any:
        """Validate X; a tensor stays on its device."""
        if not is_tensor(X):
            return super()._rows(X)
        check_is_fitted(self)
        return validation.rows(self, X, reset=False, device=Device(str(X.device)))

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        shares = self._link() if stated and self._form().probabilities else None
        return best_classes(self._sent(rows), self.coef_, self.intercept_, k, shares)

    def _scores(self, rows: Any) -> Any:
        return class_scores(self._sent(rows), self.coef_, self.intercept_)

    def _shares(self, rows: Any) -> Any:
        return class_shares(self._sent(rows), self.coef_, self.intercept_, self._link())

    def _sent(self, rows: Any) -> Any:
        """Return the rows, wrapped to be scored on a GPU if `device` allows it and it pays."""
        if self.device == "cpu" or sp.issparse(rows) or isinstance(rows, TensorRows):
            return rows
        from kway.linear.plan import prediction_device  # not needed for predictions on the CPU

        device = prediction_device(self.device, rows.shape[0], self.coef_)
        if device is None:
            return rows
        from kway.rows.gpu.class_scores import HostRows

        return HostRows(rows, device)

    @property
    def _shares_of_all(self) -> bool:  # type: ignore[override]
        return self.device == "cpu"

    def _link(self) -> Shares:
        """Return how scores become probabilities: softmax(f / T), or sigmoid(f / T) normalized over the classes."""
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
        """Return the logarithm of `predict_proba`.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray or tensor of shape (n_samples, n_classes)
            Log-probabilities.
        """
        p = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return p.log() if is_tensor(p) else np.log(p)

    @reads
    def explain(self, X: Any, n_features: int = 5) -> DecidingFeatures:
        """Return the features that decided between the best two classes of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        n_features : int, default=5
            Number of features per row.

        Returns
        -------
        DecidingFeatures
            Labels, runners-up, gaps between their scores, features and contributions.
        """
        rows = super()._rows(X)
        codes = self._best(rows, 2, stated=False).ids
        return self._deciding_features(rows, codes, self._explained(rows, codes[:, 0]), n_features)

    def _deciding_features(
        self, rows: Rows, codes: NDArray, details: Contributions, n_features: int
    ) -> DecidingFeatures:
        """Return the features that decided between the best two classes, codes (n, 2), of each row."""
        (n, d), kind = rows.shape, np.result_type(rows.dtype, self.coef_.dtype)
        m = min(n_features, d)
        gaps, features, contributions = np.empty(n, kind), np.empty((n, m), np.int64), np.empty((n, m), kind)
        for block in spans(n, rows_per_block(8 * d, CACHE_BYTES)):
            lead, bias_lead = details.values[block], details.baseline[block]
            if len(self.classes_) > 2:  # the score of one of two classes is its lead
                second = self._contributions(rows[block], codes[block, 1])
                lead, bias_lead = lead - second.values, bias_lead - second.baseline
            lead = lead.toarray() if sp.issparse(lead) else lead
            order = np.argsort(-np.abs(lead), axis=1, kind="stable")[:, :m]
            gaps[block] = np.maximum(0, lead.sum(axis=1) + bias_lead)
            features[block], contributions[block] = order, np.take_along_axis(lead, order, axis=1)
        runners_up = self.classes_[codes[:, 1]]
        return DecidingFeatures(details.labels, runners_up, gaps, features, contributions, details)

    def _contributions(self, rows: Rows, codes: NDArray[np.int64]) -> Parts:
        """Return w_c x per column (n, d), sparse if the rows are sparse, and the bias."""
        W, b = (each.astype(np.float64) for each in self._class_rows())
        if len(self.classes_) == 2:
            W, b = W - W[::-1], b - b[::-1]
        values = rows.multiply(W[codes]).tocsr() if sp.issparse(rows) else rows * W[codes]
        return Parts(values, b[codes])

    def _log_scale(self) -> float | None:
        link = self._link() if self._form().probabilities else None
        return link.scale if link is not None and (link.joint or len(self.classes_) == 2) else None

    def _class_rows(self) -> ClassRows:
        """Return one row (d,) and bias per class, also for two classes."""
        if len(self.intercept_) > 1:
            return ClassRows(self.coef_, self.intercept_)
        return ClassRows(np.vstack([0 * self.coef_, self.coef_]), np.append(0 * self.intercept_, self.intercept_))

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy; soft targets count by their largest entry.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_classes)
            Labels, or soft targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Share of rows with the correct label.
        """
        y = on_host(y)
        if np.ndim(y) == 2 and np.shape(y)[1] == len(self.classes_) > 1:
            y = self.classes_[np.asarray(y).argmax(axis=1)]
        return super().score(X, y, sample_weight)

    # ---- parameters

    def _check_parameters(self) -> None:
        """Raise InputError if a parameter is invalid, before any data is read."""
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

    def _check_partial_fit(self) -> None:
        """Raise AttributeError if the model does not learn by epochs."""

    def _form(self, n_classes: int | None = None) -> Loss:
        forms, K = LOSSES[self.loss], len(self.classes_) if n_classes is None else n_classes
        return forms.columns if K == 2 or self.multiclass == "one-vs-all" else forms.joint

    # ---- model files

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self)
        facts = {"n_iter": self.n_iter_, "objective": self.objective_, "solver": self.solver_, "history": self.history_}
        if hasattr(self, "epochs_"):
            facts["epochs"] = self.epochs_
        arrays = {"coef": self.coef_, "intercept": self.intercept_}
        if hasattr(self, "support_"):
            arrays["support"] = self.support_
            arrays["margin"] = np.atleast_1d(self.margin_)
        return facts, arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.coef_, self.intercept_ = arrays["coef"], arrays["intercept"]
        self.n_iter_, self.objective_ = facts["n_iter"], facts["objective"]
        self.solver_, self.history_ = facts["solver"], facts["history"]
        if "epochs" in facts:  # partial_fit continues its learning rates
            self.epochs_ = facts["epochs"]
        if "support" in arrays:
            self.support_ = arrays["support"]
            margins = arrays["margin"]
            self.margin_ = float(margins[0]) if len(margins) == 1 else margins


class DecidingFeatures(NamedTuple):
    """Why each row got its label: the features that decided between the best two classes.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
        Predicted labels.
    runners_up : ndarray of shape (n_samples,)
        Labels of the second-largest scores.
    gaps : ndarray of shape (n_samples,)
        Differences between the two scores.
    features : ndarray of shape (n_samples, n_features)
        The columns that contribute most to the gap.
    contributions : ndarray of shape (n_samples, n_features)
        (w_label - w_runner_up)_j x_j of these columns; with all other columns and the biases they add up to the gap.
    details : Contributions
        w_label,j x_j of all columns, which add up to the score of the label. For two classes, it is the gap.
    """

    labels: NDArray
    runners_up: NDArray
    gaps: NDArray
    features: NDArray[np.int64]
    contributions: NDArray
    details: Contributions

    def named(self, names: Sequence[str]) -> DecidingFeatures:
        """Return the same result with names of the columns."""
        return self._replace(details=self.details.named(names))

    def _table(self) -> Table:
        def cells(i: int) -> tuple[Any, ...]:
            return self.labels[i], self.runners_up[i], short_number(self.gaps[i]), *self._reasons(i)

        columns = ("label", "before", "by", *STRONGEST[: self.features.shape[1]])
        return first_rows(f"DecidingFeatures: {len(self.labels):,} rows", len(self.labels), columns, cells)

    def _reasons(self, i: int) -> list[str]:
        pairs = zip(STRONGEST, self.features[i], self.contributions[i])
        return [f"{self.details.name(j)} {v:+.3g}" for _, j, v in pairs]

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()
