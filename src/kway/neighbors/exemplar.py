"""ExemplarClassifier: one linear SVM a training row, against the rows of other classes; the best exemplars vote.

    J_i(w, b) = alpha/2 (||w||^2 + b^2) + positive/2 h(1 - f_i(x_i))^2 + 1/(2 m_i) sum_j h(1 + f_i(x_j))^2
    f_i(x) = w_i . x + b_i,  h(t) = max(0, t),  j over the m_i rows of other classes outside i's fold

All exemplars are trained together (exemplar_svm.py): one matrix product a step gives the scores of a block of them on
every row, one more their gradients, and one factor shared by all gives the start. Rows of other classes in i's own
fold are held out: on them, and on the rows of i's class, which exemplar i never trains on, a sigmoid(slope_i f_i +
offset_i) is fitted, which makes the scores comparable. Only those with a high f_i count, where exemplar i would vote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.classifier import on_own_threads
from kway.errors import BudgetError
from kway.neighbors.exemplar_svm import ExemplarProblem, strong_axes
from kway.neighbors.votes import Ballot, VotingClassifier, shares_of
from kway.parameters import above, at_least, check_parameters, whole
from kway.probabilities import log_sigmoid
from kway.search.distances import EUCLIDEAN
from kway.search.scan import top_products
from kway.search.units import Unit
from kway.threads import pmap, spans

_MOST_ROWS = 6000  # the work grows as the square of the rows
_NEGLIGIBLE = 0.01  # of alpha: mean squares that are left out; 515 of the 784 axes of MNIST images stay
_BLOCK = 256  # exemplars trained together: their scores on all rows stay in cache


class ExemplarClassifier(VotingClassifier):
    """Exemplar-SVM for up to some thousands of rows.

    Each exemplar is a linear classifier, so this is for spaces in which linear classifiers do well: on 8 x 8 digits it
    comes close to nearest neighbours; learned from the pixels of 5,000 MNIST images it gets 0.904 of 4,000 others
    right, they 0.918. Its worth is the payload: every training row says, with a calibrated probability, whether a query
    is like itself.

    Parameters
    ----------
    n_exemplars : exemplars that vote on a query, each with its calibrated probability.
    alpha : weight of the penalty, on rows centred and scaled to mean squared length 1; less takes more steps (on MNIST
        images 1e-2 is a third of the time and 0.02 less accurate, 3e-4 twice the time and 0.01 more).
    positive : weight of the exemplar itself against all its negatives together (1).
    max_iter, tol : steps at most, and the relative fall of the objective at which a block of exemplars stops.
    n_jobs : threads; None is all cores.

    >>> model = ExemplarClassifier(n_exemplars=1).fit([[0.0], [1.0], [4.0], [5.0]], ["a", "a", "b", "b"])
    >>> model.predict([[0.4], [4.6]]).tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        n_exemplars: int = 5,
        alpha: float = 1e-3,
        positive: float = 0.1,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_jobs: int | None = None,
    ) -> None:
        self.n_exemplars = n_exemplars
        self.alpha = alpha
        self.positive = positive
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    @on_own_threads
    def fit(self, X: Any, y: Any) -> ExemplarClassifier:
        """Train one exemplar a row of X (n, d)."""
        check_parameters(
            self,
            n_exemplars=whole(1),
            alpha=above(0),
            positive=above(0),
            max_iter=whole(1),
            tol=at_least(0),
        )
        self._forget()
        X, labels = validation.rows_and_labels(self, X, y, sparse=False)
        if len(X) > _MOST_ROWS:
            raise BudgetError(
                f"ExemplarClassifier trains one SVM a row against all others, so {len(X):,} rows are more than the "
                f"{_MOST_ROWS:,} it takes; pass a sample of them, or use NeighborsClassifier"
            )
        self.classes_ = labels.classes
        self._codes = labels.codes
        self._range = Unit.of(X, EUCLIDEAN, X.dtype == np.float32)
        X = self._range.rows(X)
        self._centre = X.mean(axis=0, dtype=np.float64)
        spread = float(np.sqrt(np.square(X - self._centre).sum(axis=1).mean()))
        rounding = 1e-12 * float(np.abs(self._centre).max())  # all that is left where all rows are the same
        self._unit = spread if spread > rounding else 1.0
        self._train(self._scaled(X))
        return self

    def _scaled(self, X: NDArray) -> NDArray:
        """Centred rows of mean squared length 1 with a column of ones for the bias, which is one more weight."""
        scaled = np.ones((len(X), X.shape[1] + 1), X.dtype)
        scaled[:, :-1] = (X - self._centre) / self._unit
        return scaled

    def _train(self, rows: NDArray) -> None:
        """Every exemplar's weights and calibration, found among the leading principal axes."""
        axes = strong_axes(rows[:, :-1], _NEGLIGIBLE * self.alpha)  # (d, r)
        turned = np.column_stack([rows[:, :-1] @ axes, rows[:, -1]])  # (n, r + 1)
        problem = ExemplarProblem.of(turned, self._codes, self.alpha, self.positive)
        parts = pmap(lambda block: problem.solve(block, self.max_iter, self.tol), spans(len(rows), _BLOCK))
        weights = np.concatenate([part.weights for part in parts])  # (n, r + 1)
        slopes, offsets = (np.concatenate([getattr(part, name) for part in parts]) for name in ("slopes", "offsets"))
        self.n_iter_ = max(part.n_iter for part in parts)
        self.exemplars_ = (slopes[:, None] * weights[:, :-1] @ axes.T).astype(rows.dtype)  # (n, d)
        self.offsets_ = (slopes * weights[:, -1] + offsets).astype(rows.dtype)

    # ---- the best exemplars vote

    def _ballot(self, rows: NDArray) -> Ballot:
        """The best exemplars (q, k) of a block of checked rows; each votes with its probability of "same class"."""
        placed = self._range.queries(rows).rows.astype(self.exemplars_.dtype, copy=False)  # float32 may be too narrow
        scaled, k = self._scaled(placed)[:, :-1], min(self.n_exemplars, len(self.exemplars_))
        ids, logits = top_products(scaled, self.exemplars_, k, offset=self.offsets_)
        logs = log_sigmoid(logits.astype(np.float64))
        votes = np.exp(logs - logs.max(axis=1, keepdims=True))  # far from all: proportions, not zeros
        return Ballot(ids, self._codes[ids], shares_of(votes, ids >= 0), -logs)

    def _class_counts(self) -> NDArray:
        return np.bincount(self._codes, minlength=len(self.classes_))

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "exemplars_")
        arrays = {"exemplars": self.exemplars_, "offsets": self.offsets_, "codes": self._codes, "centre": self._centre}
        facts: dict[str, Any] = {"unit": self._unit, "n_iter": self.n_iter_}
        return facts | ({"power": self._range.exponent} if self._range.exponent else {}), arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self._unit, self.n_iter_ = float(facts["unit"]), int(facts["n_iter"])
        self.exemplars_, self.offsets_ = arrays["exemplars"], arrays["offsets"]
        self._codes, self._centre = arrays["codes"], arrays["centre"]
        kind = self.exemplars_.dtype
        self._range = Unit.again(int(facts.get("power", 0)), kind, EUCLIDEAN, narrow=kind == np.float32)
