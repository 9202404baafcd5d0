"""ExemplarClassifier: one linear SVM a training row, against the rows of other classes; the best exemplars vote.

    J_i(w, b) = alpha/2 (||w||^2 + b^2) + positive/2 h(1 - f_i(x_i))^2 + 1/(2 m_i) sum_j h(1 + f_i(x_j))^2
    f_i(x) = w_i . x + b_i,  h(t) = max(0, t),  j over the m_i rows of other classes outside i's fold

All exemplars are trained together (esvm.py): one matrix product a step gives the scores of a block of exemplars on
every row, one more their gradients, and one factor shared by all gives the start. Rows of other classes in i's own
fold are held out: on them, and on the rows of i's class, which exemplar i never trains on, a sigmoid(slope_i f_i +
offset_i) is fitted, which makes the scores comparable. Only those with a high f_i count, where exemplar i would vote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kway.base import Classifier, labels_of, refuse_above_budget
from kway.compute.threads import pmap, spans
from kway.data import gate
from kway.data.row_blocks import row_blocks
from kway.errors import BudgetError, InputError
from kway.neighbors.classifier import Voters
from kway.neighbors.exemplar_svm import Problem, leading_axes
from kway.neighbors.votes import Tally, count_votes, dense, padded, pick_ties, prior_order, shares_of
from kway.search.blocks import top_products
from kway.search.index import TopK

MOST_ROWS = 6000  # the work grows as the square of the rows
_NEGLIGIBLE = 0.01  # of alpha: mean squares that are left out; 515 of the 784 axes of MNIST images stay
_BLOCK = 256  # exemplars trained together: their scores on all rows stay in cache


class ExemplarClassifier(Classifier):
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

    def fit(self, X: Any, y: Any) -> ExemplarClassifier:
        """Train one exemplar a row of X (n, d)."""
        self._check_parameters()
        X, labels = gate.rows_and_labels(self, X, y, sparse=False)
        if len(X) > MOST_ROWS:
            raise BudgetError(
                f"ExemplarClassifier trains one SVM a row against all others, so {len(X):,} rows are more than the "
                f"{MOST_ROWS:,} it takes; pass a sample of them, or use NeighborsClassifier"
            )
        self.classes_ = labels.classes
        self._codes = labels.codes
        self._centre = X.mean(axis=0, dtype=np.float64)
        lengths = np.square(X - self._centre).sum(axis=1)
        self._unit = float(np.sqrt(lengths.mean())) or 1.0
        self._train(self._scaled(X))
        return self

    def _scaled(self, X: NDArray) -> NDArray:
        """Centred rows of mean squared length 1 with a column of ones for the bias, which is one more weight."""
        scaled = np.ones((len(X), X.shape[1] + 1), X.dtype)
        scaled[:, :-1] = (X - self._centre) / self._unit
        return scaled

    def _train(self, rows: NDArray) -> None:
        """Every exemplar's weights and calibration, found among the leading principal axes."""
        axes = leading_axes(rows[:, :-1], _NEGLIGIBLE * self.alpha)  # (d, r)
        turned = np.column_stack([rows[:, :-1] @ axes, rows[:, -1]])  # (n, r + 1)
        problem = Problem.of(turned, self._codes, self.alpha, self.positive)
        parts = pmap(lambda block: problem.solve(block, self.max_iter, self.tol), spans(len(rows), _BLOCK), self.n_jobs)
        weights = np.concatenate([part.weights for part in parts])  # (n, r + 1)
        slopes, offsets = (np.concatenate([getattr(part, name) for part in parts]) for name in ("slopes", "offsets"))
        self.n_iter_ = max(part.n_iter for part in parts)
        self.exemplars_ = (slopes[:, None] * weights[:, :-1] @ axes.T).astype(rows.dtype)  # (n, d)
        self.offsets_ = (slopes * weights[:, -1] + offsets).astype(rows.dtype)

    # ---- the best exemplars vote

    def _best(self, X: Any) -> TopK:
        """The best exemplars (q, k) and their logits of "same class"."""
        check_is_fitted(self, "exemplars_")
        X = gate.rows(self, X, reset=False, sparse=False, blocks=True)
        k = min(self.n_exemplars, len(self.exemplars_))
        scaled = (self._scaled(X[block])[:, :-1] for block in row_blocks(X))
        found = [top_products(rows, self.exemplars_, k, offset=self.offsets_, n_jobs=self.n_jobs) for rows in scaled]
        return TopK(*map(np.concatenate, zip(*found)))

    def _ballot(self, X: Any) -> Voters:
        ids, logits = self._best(X)
        logs = -np.logaddexp(0.0, -logits.astype(np.float64))  # log sigmoid
        votes = np.exp(logs - logs.max(axis=1, keepdims=True))  # far from all: proportions, not zeros
        return Voters(ids, shares_of(votes, ids >= 0))

    def _votes(self, X: Any) -> Tally:
        rows, shares = self._ballot(X)
        return count_votes(self._codes[rows], shares, pick_ties("nearest", self._counts()))

    def _counts(self) -> NDArray:
        return np.bincount(self._codes, minlength=len(self.classes_))

    def voters(self, X: Any) -> Voters:
        """The exemplars (training rows) that vote on each query, best first, and their shares of the vote."""
        return self._ballot(X)

    def predict(self, X: Any) -> NDArray:
        """Labels (q,)."""
        winners = self._votes(X).classes[:, 0]
        return self.classes_[winners]

    def predict_proba(self, X: Any) -> NDArray:
        """Shares of the best exemplars' vote (q, K)."""
        votes = self._votes(X)
        refuse_above_budget(len(votes.classes), len(self.classes_), self.exemplars_.itemsize, "predict_proba")
        return dense(votes, len(self.classes_), self.exemplars_.dtype)

    def decision_function(self, X: Any) -> NDArray:
        """Shares of the vote (q, K); of two classes, the second's less the first's (q,)."""
        table = self.predict_proba(X)
        return table[:, 1] - table[:, 0] if table.shape[1] == 2 else table

    def predict_topk(self, X: Any, k: int) -> TopK:
        """The k best labels and their shares of the vote, best first."""
        votes = padded(self._votes(X), k, prior_order(self._counts()))
        return TopK(labels_of(self.classes_, votes.classes), np.where(votes.classes >= 0, votes.shares, -np.inf))

    def _check_parameters(self) -> None:
        if not isinstance(self.n_exemplars, int | np.integer) or self.n_exemplars < 1:
            raise InputError(f"n_exemplars must be a whole number of at least 1, got {self.n_exemplars!r}")
        if not (self.alpha > 0 and self.positive > 0):
            raise InputError(f"alpha and positive must be above 0, got {self.alpha!r} and {self.positive!r}")

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "exemplars_")
        arrays = {"exemplars": self.exemplars_, "offsets": self.offsets_, "codes": self._codes, "centre": self._centre}
        return {"unit": self._unit, "n_iter": self.n_iter_}, arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self._unit, self.n_iter_ = float(facts["unit"]), int(facts["n_iter"])
        self.exemplars_, self.offsets_ = arrays["exemplars"], arrays["offsets"]
        self._codes, self._centre = arrays["codes"], arrays["centre"]
