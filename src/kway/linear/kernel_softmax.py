"""KernelSoftmaxClassifier: softmax regression on similarities to landmarks, a linear approximation of a kernel machine.

    k(x, z) = exp(-gamma |x - z|^2)                            the Gaussian kernel
    phi(x) = k(x, L) V s^(-1/2)                                L (m, d) landmarks, k(L, L) = V diag(s) V'
    f = W phi(x) + b                                           a linear classifier on the r <= m columns of phi

phi(x) phi(z)' is the Nystroem approximation of k(x, z) [1]_, which is exact if x or z is a landmark. The landmarks are
drawn from the training rows. Eigenvectors of k(L, L) whose eigenvalues are rounding errors are left out, so r may be
less than m.

The rows are used as given: standardize columns with different units first. To compare several alphas, map the rows once
with `landmark_map` and pass them to `alpha_path` (path.py).

References
----------
.. [1] C. Williams and M. Seeger (2001), Using the Nystroem method to speed up kernel machines. NeurIPS.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base import callbacks
from kway.base.callbacks import Attributes, Watch
from kway.base.classifier import Classifier, on_own_threads
from kway.base.contributions import Parts, background_sample, pick_scores, shapley
from kway.linear.fitting import prepare_fit, solve_plan
from kway.linear.named import SoftmaxClassifier
from kway.memory import check_room, rows_per_block
from kway.parameters import CLASS_WEIGHT, VERBOSE, above, at_least, check_parameters, checked_rng, one_of, whole
from kway.rows.blocks import row_blocks
from kway.search.metrics import Gaussian
from kway.search.pairwise import pairwise
from kway.search.results import TopK
from kway.threads import single_blas, spans


@dataclass(frozen=True, eq=False)
class LandmarkMap:
    """The map phi: landmarks (m, d), projection V s^(-1/2) (m, r), and gamma > 0."""

    landmarks: NDArray
    projection: NDArray[np.float64]
    gamma: float

    def apply(self, X: NDArray) -> NDArray:
        """Map rows (n, d) to phi (n, r) of the same float type, block by block."""
        m, r = self.projection.shape
        out = np.empty((len(X), r), X.dtype)
        for block in spans(len(X), rows_per_block(8 * m)):
            out[block] = self._similarities(X[block]) @ self.projection
        return out

    def _similarities(self, X: NDArray) -> NDArray[np.float64]:
        """Return k(x, l) (n, m) for rows X (n, d) and all landmarks."""
        return pairwise(validation.checked(X), validation.checked(self.landmarks), Gaussian(self.gamma**-0.5))


def landmark_map(
    X: NDArray, n_landmarks: int, gamma: float | str = "scale", seed: int = 0, weight: NDArray | None = None
) -> LandmarkMap:
    """Return the map of `n_landmarks` rows drawn from X (n, d), without duplicates.

    Rows of weight 0 are not drawn. gamma="scale" is 1 / (d Var(X)), where `weight` (n,) weighs the rows.
    """
    if weight is not None and not weight.all():
        X, weight = X[weight > 0], weight[weight > 0]
    drawn = np.random.default_rng(seed).permutation(len(X))[:n_landmarks]
    landmarks = np.unique(X[drawn], axis=0)
    gamma = _scale_gamma(X, weight) if isinstance(gamma, str) else float(gamma)
    unprojected = LandmarkMap(landmarks, np.eye(len(landmarks)), gamma)
    with single_blas():
        eigenvalues, vectors = np.linalg.eigh(unprojected._similarities(landmarks))  # ascending
    # The rounding error of an eigenvalue is at most about m eps times the largest eigenvalue.
    kept = eigenvalues > len(eigenvalues) * np.finfo(np.float64).eps * eigenvalues[-1]
    return LandmarkMap(landmarks, np.ascontiguousarray(vectors[:, kept] / np.sqrt(eigenvalues[kept])), gamma)


def _scale_gamma(X: NDArray, weight: NDArray | None) -> float:
    """Return 1 / (d Var(X)), or 1 if all values are equal."""
    w = np.ones(len(X)) if weight is None else weight.astype(np.float64)
    blocks = row_blocks(X)
    mean = sum(w[rows] @ X[rows].mean(axis=1, dtype=np.float64) for rows in blocks) / w.sum()
    variance = sum(w[rows] @ np.square(X[rows] - mean).mean(axis=1, dtype=np.float64) for rows in blocks) / w.sum()
    scale = float(X.shape[1] * variance)
    return 1 / scale if scale > np.finfo(np.float64).tiny else 1.0


class KernelSoftmaxClassifier(Classifier):
    """Softmax regression on similarities to landmarks: a linear approximation [1]_ of a Gaussian kernel machine.

    X is used as given. Standardize columns with different units first, for example with `StandardScaler`.

    Parameters
    ----------
    n_landmarks : int, default=600
        Number of training rows to use as landmarks. More landmarks give finer decision boundaries. Memory grows in
        proportion to this number.
    gamma : float or "scale", default="scale"
        Inverse width of the kernel exp(-gamma |x - z|^2). "scale" means 1 / (n_features * X.var()).
    alpha : float, default=1e-5
        Weight of the L2 penalty, which is added to the mean loss. Raise it to regularize more. As the loss is a mean,
        the same value suits any number of rows.
    max_iter : int, default=1000
        Maximum number of iterations of the solver.
    tol : float, default=1e-3
        Largest relative excess of the objective over its optimum. A fit without a ConvergenceWarning is within `tol`.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed for drawing the landmarks; None is a fixed seed, too.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    map_ : LandmarkMap
        Landmarks, projection and gamma. `map_.apply(X)` returns the columns that the linear classifier learns from.
    gamma_ : float
        The gamma of the kernel.
    softmax_ : SoftmaxClassifier
        The linear classifier on the mapped rows.
    n_iter_ : int
        Number of iterations of the solver.
    n_features_in_ : int
        Number of features.

    References
    ----------
    .. [1] C. Williams and M. Seeger (2001), Using the Nystroem method to speed up kernel machines. NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> X, y = make_circles(200, noise=0.1, factor=0.4, random_state=0)
    >>> KernelSoftmaxClassifier().fit(X, y).score(X, y) > 0.95
    True
    """

    map_: LandmarkMap
    softmax_: SoftmaxClassifier

    def __init__(
        self,
        n_landmarks: int = 600,
        gamma: float | str = "scale",
        alpha: float = 1e-5,
        max_iter: int = 1000,
        tol: float = 1e-3,
        class_weight: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.gamma = gamma
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    set_callbacks = callbacks.set_callbacks

    @on_own_threads
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> KernelSoftmaxClassifier:
        """Draw the landmarks, and fit a softmax classifier to the mapped rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        KernelSoftmaxClassifier
            The fitted classifier.
        """
        with callbacks.callback_task(self, X, y, sample_weight, "fit") as watch:
            self._fit(X, y, sample_weight, watch)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None, watch: Watch | None) -> None:
        self._check_parameters()
        self._forget()
        X, labels = validation.rows_and_labels(self, X, y, sparse=False, squared=True)
        weight = validation.weights(sample_weight, X)
        m, advice = min(self.n_landmarks, len(X)), "use fewer landmarks (n_landmarks) or fewer rows"
        check_room(len(X) * m * X.itemsize, f"the table of similarities of {len(X):,} rows to {m:,} landmarks", advice)
        seed = 0 if self.random_state is None else int(checked_rng(self.random_state).randint(2**31))
        self.map_ = landmark_map(X, self.n_landmarks, self.gamma, seed, weight)
        mapped = validation.checked(self.map_.apply(X))
        softmax = self._linear()

        def watch_softmax(attributes: Attributes) -> bool:
            assert watch is not None
            return watch(lambda: {"classes_": labels.classes, "softmax_": _with_attributes(softmax, attributes())})

        plan = prepare_fit(softmax, mapped, labels.classes[labels.codes], weight)
        solve_plan(softmax, plan, None if watch is None else watch_softmax)
        self.softmax_ = softmax
        self._set_public_attributes()

    def _linear(self) -> SoftmaxClassifier:
        shared = ("alpha", "max_iter", "tol", "class_weight", "n_jobs", "verbose")
        return SoftmaxClassifier(**{name: getattr(self, name) for name in shared})

    def _set_public_attributes(self) -> None:
        self.classes_ = self.softmax_.classes_
        self.n_iter_ = self.softmax_.n_iter_
        self.gamma_ = self.map_.gamma

    # ---- predictions of the linear classifier on mapped rows, block by block

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        return self._best_of_blocks(rows, lambda block: self.softmax_._best(self.map_.apply(block), k, stated))

    def _scores(self, rows: Any) -> Any:
        return self.softmax_._scores(self.map_.apply(rows))

    def _shares(self, rows: Any) -> Any:
        return self.softmax_._shares(self.map_.apply(rows))

    def _entries(self) -> int:
        return max(len(self.map_.landmarks), len(self.classes_))

    def _contributions(self, rows: Any, codes: NDArray[np.int64]) -> Parts:
        def score(rows: NDArray, codes: NDArray[np.int64]) -> NDArray:
            return pick_scores(self._scores(rows), codes)

        return shapley(score, rows, codes, background_sample(self.map_.landmarks))

    def _log_scale(self) -> float | None:
        return self.softmax_._log_scale()

    # ---- parameters and model files

    def _check_parameters(self) -> None:
        check_parameters(
            self,
            n_landmarks=whole(1),
            gamma=one_of("scale") | above(0),
            alpha=at_least(0),
            max_iter=whole(1),
            tol=at_least(0),
            class_weight=CLASS_WEIGHT,
            verbose=VERBOSE,
        )

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "softmax_")
        facts, arrays = self.softmax_._fitted()
        arrays_of_map = {"landmarks": self.map_.landmarks, "projection": self.map_.projection}
        return {**facts, "gamma": self.gamma_}, {**arrays, **arrays_of_map}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.map_ = LandmarkMap(arrays["landmarks"], arrays["projection"], facts["gamma"])
        self.softmax_ = self._linear()
        self.softmax_.classes_, self.softmax_.n_features_in_ = self.classes_, self.map_.projection.shape[1]
        self.softmax_._restore(facts, arrays)
        self._set_public_attributes()


def _with_attributes(model: SoftmaxClassifier, attributes: dict[str, Any]) -> SoftmaxClassifier:
    """Return a copy of the model with these fitted attributes."""
    fitted = copy.copy(model)
    fitted.__dict__.update(attributes)
    return fitted
