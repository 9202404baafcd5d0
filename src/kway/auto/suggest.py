"""Which unlabeled rows to label next: rows that the model is unsure of, and that differ from each other (BADGE [1]_).

With the probabilities p_i of row i, its predicted class c and its features x_i (scaled, with a 1 at the end), the
gradient of the log loss of a linear classifier, if c were the label, is

    g_i = (p_i - e_c) x_i^T        short if the model is sure

For a blend, x_i are the features of its first member.

The first row has the longest g_i. Each further row is drawn with a probability proportional to the squared distance of
g_i to the nearest g_j of the rows chosen so far (k-means++). The products that this needs factor, so that no g_i is
computed: g_i . g_j = (a_i . a_j) (x_i . x_j) with a_i = p_i - e_c.

References
----------
.. [1] J. Ash, C. Zhang, A. Krishnamurthy, J. Langford and A. Agarwal (2020), Deep batch active learning by diverse,
   uncertain gradient lower bounds. ICLR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.parameters import SEED, whole
from kway.pipelines import features_of, label_separator
from kway.tables.sources.frames import n_rows
from kway.text_tables import Printed, Table, first_rows, short_number


@dataclass(frozen=True, eq=False, repr=False)
class Suggestions(Printed):
    """Rows to label next, in the order in which they were chosen.

    Attributes
    ----------
    rows : ndarray of shape (m,)
        Row numbers, from 0.
    predicted : ndarray of shape (m,)
        Predicted labels.
    margins : ndarray of shape (m,)
        Probability of the predicted label minus that of the second best.
    """

    rows: NDArray[np.int64]
    predicted: NDArray
    margins: NDArray[np.float64]

    def columns(self) -> dict[str, NDArray]:
        """Return the rows as columns, for a file."""
        return {"row": self.rows, "prediction": self.predicted, "margin": self.margins}

    def _table(self) -> Table:
        def cells(i: int) -> tuple[Any, ...]:
            return self.rows[i], self.predicted[i], short_number(self.margins[i])

        return first_rows("Rows to label next", len(self.rows), ("number", "prediction", "margin"), cells)


def suggest_rows(model: Any, X: Any, n: int = 20, seed: int = 0) -> Suggestions:
    """Choose unlabeled rows to label next: uncertain and different from each other.

    Parameters
    ----------
    model : classifier
        A fitted classifier with `predict_proba`.
    X : table or array-like of shape (n_samples, n_features)
        Unlabeled rows, in the form that the model takes.
    n : int, default=20
        Number of rows to choose; all rows if there are fewer.
    seed : int, default=0
        Seed of the random numbers.

    Returns
    -------
    Suggestions
        Row numbers, predicted labels and margins.

    References
    ----------
    Ash, Zhang, Krishnamurthy, Langford and Agarwal (2020), "Deep batch active learning by diverse, uncertain gradient
    lower bounds", ICLR.

    Examples
    --------
    >>> import kway
    >>> data = kway.datasets.load("iris")
    >>> model = kway.SoftmaxClassifier(alpha=1e-2).fit(data.x_train[::10], data.y_train[::10])
    >>> suggestions = suggest_rows(model, data.x_train, 3)
    >>> len(suggestions.rows), float(suggestions.margins[0]) < 0.1  # the model is unsure of the first row
    (3, True)
    """
    whole(1).check("n", n)
    SEED.check("seed", seed)
    model = getattr(model, "model", model)  # a result of kway.fit contains the model
    if label_separator(model) is not None:
        raise InputError("suggest does not support several labels per row; pass a model that predicts one label")
    if not hasattr(model, "predict_proba"):
        raise InputError(f"{type(model).__name__} gives no probabilities; pass a model that does, as `kway fit` writes")
    if n_rows(X) == 0:
        raise InputError("there are no rows to choose from; pass at least one unlabeled row")
    p = np.asarray(model.predict_proba(X), np.float64)  # (m, K)
    features = features_of(model)
    rows = choose_rows(p, features[0].transform(X) if features else X, n, seed)
    best = p.argmax(axis=1)
    best_two = np.sort(p[rows], axis=1)[:, -2:]
    return Suggestions(rows, np.asarray(model.classes_)[best[rows]], best_two[:, 1] - best_two[:, 0])


def choose_rows(p: NDArray[np.float64], X: Any, n: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers of n rows, from probabilities p (m, K) and features X (m, d), by k-means++ on gradients.

    X is dense or sparse.
    """
    m, rng = len(p), np.random.default_rng(seed)
    residuals = p.copy()
    residuals[np.arange(m), p.argmax(axis=1)] -= 1.0
    X = X.tocsr() if hasattr(X, "tocsr") else np.nan_to_num(np.asarray(X, np.float64))
    square_norms = np.asarray(X.multiply(X).sum(axis=1)).ravel() if hasattr(X, "tocsr") else np.square(X).sum(axis=1)
    scale = float(square_norms.mean()) or 1.0
    squared_gradients = np.square(residuals).sum(axis=1) * (square_norms / scale + 1.0)  # |g_i|^2
    chosen = [int(squared_gradients.argmax())]
    squared_distances = np.full(m, np.inf)  # to the nearest chosen row
    while len(chosen) < min(n, m):
        last = chosen[-1]
        row = X[[last]].toarray()[0] if hasattr(X, "tocsr") else X[last]
        products = (residuals @ residuals[last]) * (np.asarray(X @ row) / scale + 1.0)
        to_last = np.maximum(squared_gradients + squared_gradients[last] - 2 * products, 0.0)
        squared_distances = np.minimum(squared_distances, to_last)
        squared_distances[chosen] = 0.0
        if not squared_distances.sum() > 0:  # all other rows are equal to chosen ones
            chosen += np.setdiff1d(np.arange(m), chosen)[: min(n, m) - len(chosen)].tolist()
            break
        chosen.append(int(rng.choice(m, p=squared_distances / squared_distances.sum())))
    return np.array(chosen)
