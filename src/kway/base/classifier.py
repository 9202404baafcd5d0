"""Classifier: score rows, keep the best k, vote. A family gives two things; every answer is made of them here.

    _best(rows, k, stated) -> TopK    codes (m, k) of the best classes of a block of rows, and their scores
    _scores(rows) -> (m, R)           scores of all classes; R = 1 is the score of the second of two classes

    predict             label of the first of _best
    predict_topk        labels and scores of _best, k clipped to the classes
    decision_function   _scores; of two classes the second's less the first's (n,)
    predict_proba       _probabilities(_scores), whose argmax is the class that `predict` names

X passes the gate once; its rows are answered in blocks, so that nothing but an answer itself is of size n x K. Such
an answer is refused, before anything is allocated, where it would not fit (kway.base.budget).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from kway.base.best_columns import lift_winners
from kway.base.budget import refuse_above_budget
from kway.base.own_threads import on_own_threads
from kway.compute.gpu.device import on_host
from kway.data import gate
from kway.data.blocks.row_blocks import joined_rows, row_blocks
from kway.data.labels import column
from kway.errors import InputError
from kway.parameters import THREADS, checked_k
from kway.search.index import TopK

ENTRIES = 2**23  # numbers held at a time while rows are answered


def states_probabilities(model: Classifier) -> bool:
    """A check for `available_if`: the model's scores stand for probabilities."""
    model._check_probabilities()
    return True


class Classifier(ClassifierMixin, BaseEstimator):
    """Base of every kway classifier: scikit-learn's conventions, top-k lists, a memory budget and model files."""

    classes_: NDArray

    # ---- what a family gives

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        """The k best classes of a block of checked rows: codes (m, k) and scores (m, k), best first, k <= K.

        `stated`: with the scores that `predict_topk` states; else any that order the classes will do.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _best")

    def _scores(self, rows: Any) -> NDArray:
        """Scores (m, R) of a block of checked rows."""
        raise NotImplementedError(f"{type(self).__name__} has no _scores")

    def _probabilities(self, scores: NDArray) -> NDArray:
        """Probabilities (m, K) of scores (m, R); a family whose scores are probabilities leaves them as they are."""
        return scores

    def _check_probabilities(self) -> None:
        """Raise AttributeError where the scores are no probabilities."""

    def _labels(self, best: TopK) -> NDArray:
        """Labels (n,) of the winners (n, 1)."""
        return self.classes_[best.ids[:, 0]]

    def _entries(self) -> int:
        """Numbers held a row while its best classes are found."""
        return 1

    def _answer_type(self, rows: Any) -> np.dtype:
        """The float type of scores and probabilities."""
        return np.dtype(rows.dtype)

    def _threads(self) -> int | None:
        """The n_jobs that all work of this model is held to; None is every core."""
        given: int | None = getattr(self, "n_jobs", None)
        THREADS.check("n_jobs", given)
        return given

    # ---- rows, through the gate once, and in blocks

    def _rows(self, X: Any) -> Any:
        if not hasattr(self, "classes_"):
            check_is_fitted(self)
        fits = not gate.is_sparse(X) or bool(get_tags(self).input_tags.sparse)  # tags take longer than a row's check
        return gate.rows(self, X, reset=False, sparse=fits, blocks=True)

    def _passed(self, X: Any) -> Any:
        """X as several calls of this classifier take it, through the gate once for all of them."""
        return gate.checked(self._rows(X))

    def _blocks(self, rows: Any, entries: int) -> Iterator[Any]:
        """The rows in blocks, each holding at most ENTRIES numbers where a row holds so many."""
        return (rows[block] for block in row_blocks(rows, self._most_rows(entries)))

    @staticmethod
    def _most_rows(entries: int) -> int:
        return max(1, ENTRIES // max(1, entries))

    def _top(self, rows: Any, k: int, stated: bool) -> TopK:
        parts = [self._best(block, k, stated) for block in self._blocks(rows, self._entries())]
        return parts[0] if len(parts) == 1 else TopK(*map(np.concatenate, zip(*parts)))

    def _table(self, X: Any, what: str, answer: Callable[[NDArray], NDArray]) -> NDArray:
        """(n, K) or (n,) answers from the scores of blocks of rows."""
        rows = self._rows(X)
        n, width = _num_samples(rows), len(self.classes_)
        refuse_above_budget(n, width, self._answer_type(rows).itemsize, what)
        return joined_rows(
            n, (answer(self._scores(block)) for block in self._blocks(rows, max(width, self._entries())))
        )

    # ---- answers

    @on_own_threads
    def predict(self, X: Any) -> NDArray:
        """Labels (n,)."""
        return self._labels(self._top(self._rows(X), 1, stated=False))

    @on_own_threads
    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row, all of them where there are fewer, and their scores, best first.

        Scores are probabilities where the model has them.
        """
        rows = self._rows(X)
        codes, scores = self._top(rows, checked_k(k, len(self.classes_)), stated=True)
        return TopK(self.classes_[codes], scores)

    @on_own_threads
    def decision_function(self, X: Any) -> NDArray:
        """Scores (n, K); of two classes, the second's less the first's (n,)."""
        return self._table(X, "decision_function", self._two_in_one)

    @available_if(states_probabilities)
    @on_own_threads
    def predict_proba(self, X: Any) -> NDArray:
        """Probabilities (n, K)."""
        return self._table(X, "predict_proba", self._settled)

    def _two_in_one(self, scores: NDArray) -> NDArray:
        if len(self.classes_) != 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    def _settled(self, scores: NDArray) -> NDArray:
        """Probabilities whose argmax is the class of the largest score, also where they are equal in their digits."""
        table = self._probabilities(scores)
        if table is scores:
            return table
        alone = scores.shape[1] < len(self.classes_)
        return lift_winners(table, (scores[:, 0] > 0).astype(np.int64) if alone else scores.argmax(axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on rows with labels y (n,), taken as `fit` takes them."""
        from sklearn.metrics import accuracy_score  # half a second, and no prediction needs it

        found, labels = on_host(self.predict(X)), column(on_host(y))
        try:
            return float(accuracy_score(labels, found, sample_weight=on_host(sample_weight)))
        except (ValueError, TypeError) as error:
            raise InputError(f"{str(error).rstrip('.')}; pass one label a row, such as {found[0]!r}") from error

    # ---- learning and model files

    def _forget(self) -> None:
        """Drop what an earlier fit learned, so that nothing of it is left beside what this one learns."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the fitted model to one file that cannot run code; `kway.load(path)` reads it back.

        A file that is no model of kway's is replaced only with `force`.
        """
        from kway.store import save

        save(self, path, force=force)

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """JSON facts and arrays that, with the parameters, make up the fitted state."""
        raise TypeError(f"{type(self).__name__} cannot be saved to a model file")

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        """Reverse of `_fitted`."""
        raise TypeError(f"{type(self).__name__} cannot be read from a model file")
