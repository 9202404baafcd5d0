"""Classifier: score rows, keep the best k, vote. A family of classifiers implements three methods on validated rows:

    _best(rows, k, stated) -> TopK    codes (n, k) of the best classes and their scores
    _scores(rows) -> (n, R)           scores of all classes; R = 1 is the score of the second of two classes
    _shares(rows) -> (n, K)           probabilities of all classes, if the family has them

and, if its scores can be divided among the columns,

    _contributions(rows, codes)       how much each column moved the score of one class per row (contributions.py)

Every prediction uses them:

    predict             label of the first of _best
    predict_topk        labels and scores of _best
    decision_function   _scores; for two classes the score of the second minus that of the first, (n,)
    predict_proba       _shares
    explain             _contributions

X is validated once (`_rows`). Only a returned array has size n x K, and BudgetError is raised before it is allocated if
it does not fit into memory. If X is a torch tensor, the result is a tensor on the same device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.contributions import Contributions, Parts, check_room
from kway.errors import InputError
from kway.labels import column, encode_as
from kway.memory import BLOCK_BYTES, check_answer
from kway.parameters import THREADS, checked_k
from kway.rows.blocks import concatenate_rows, count_rows, row_blocks
from kway.rows.gpu.device import as_given, on_host, take_labels
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.results import TopK
from kway.threads import at_most
from kway.versions import current

Method = TypeVar("Method", bound=Callable[..., Any])


def on_own_threads(work: Method) -> Method:
    """Limit work(model, ...) to the number of threads in the model's n_jobs, including those of BLAS."""

    @wraps(work)
    def limited(model: Any, *args: Any, **kwargs: Any) -> Any:
        with at_most(model._threads()):
            return work(model, *args, **kwargs)

    return cast(Method, limited)


def reads(work: Method) -> Method:
    """Run work(model, ...) on the current version of the model, so that other threads may change it meanwhile.

    Threads are limited as by `on_own_threads`.
    """

    @wraps(work)
    def run(model: Any, *args: Any, **kwargs: Any) -> Any:
        now = current(model)
        with at_most(now._threads()):
            return work(now, *args, **kwargs)

    return cast(Method, run)


def states_probabilities(model: Classifier) -> bool:
    """Check for `available_if` that the model's scores are probabilities."""
    model._check_probabilities()
    return True


def has_contributions(model: Any) -> bool:
    """Return whether the model can divide its scores among the columns."""
    return type(model)._contributions is not Classifier._contributions


class Classifier(ClassifierMixin, BaseEstimator):
    """Base of every kway classifier: scikit-learn's conventions, top-k lists, a memory budget and model files."""

    classes_: NDArray
    _shares_of_all: bool = False  # whether `_shares` takes all rows at once, in bounded memory

    # ---- what a family implements

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        """Return the k best classes of validated rows: codes (n, k) and scores (n, k), best first, k <= K.

        With `stated` the scores are those that `predict_topk` returns; otherwise any scores in the same order.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _best")

    def _scores(self, rows: Any) -> Any:
        """Return scores (n, R) of validated rows."""
        raise NotImplementedError(f"{type(self).__name__} has no _scores")

    def _shares(self, rows: Any) -> Any:
        """Return probabilities (n, K) of validated rows; by default the scores."""
        return self._scores(rows)

    def _check_probabilities(self) -> None:
        """Raise AttributeError if the scores are not probabilities."""

    def _contributions(self, rows: Any, codes: NDArray[np.int64]) -> Parts:
        """Return contributions of the columns of validated rows to the scores of the classes `codes` (n,)."""
        raise NotImplementedError(f"{type(self).__name__} has no _contributions")

    def _log_scale(self) -> float | None:
        """Return the factor that turns scores into log-probabilities plus a constant per row; None if none does."""
        return None

    def _labels(self, best: TopK) -> Any:
        """Return the labels (n,) of the best classes (n, 1)."""
        return take_labels(self.classes_, best.ids[:, 0])

    def _entries(self) -> int:
        """Return how many numbers per row are in memory during the search for its best classes."""
        return 1

    def _answer_type(self, rows: Any) -> np.dtype:
        """Return the float type of scores and probabilities."""
        return np.dtype(rows.dtype)

    def _threads(self) -> int | None:
        """Return n_jobs, which limits all work of this model; None stands for all cores."""
        n_jobs: int | None = getattr(self, "n_jobs", None)
        if n_jobs is not None:
            THREADS.check("n_jobs", n_jobs)
        return n_jobs

    # ---- rows: validated once, and predicted in blocks

    def _rows(self, X: Any) -> Any:
        """Validate X: an array, CSR, `ConvertedRows`, or rows on a GPU if the family predicts there."""
        if not hasattr(self, "classes_"):
            check_is_fitted(self)
        sparse = not validation.is_sparse(X) or bool(get_tags(self).input_tags.sparse)  # tags are slow
        return validation.rows(self, X, reset=False, sparse=sparse, blocks=True)

    def _passed(self, X: Any) -> Any:
        """Return X in a form that several calls of this classifier can share, validated once."""
        return validation.checked(self._rows(X))

    def _blocks(self, rows: Any, entries: int) -> Iterator[Any]:
        """Yield the rows in blocks of BLOCK_BYTES if each row holds `entries` numbers."""
        return (rows[block] for block in row_blocks(rows, self._most_rows(entries)))

    @staticmethod
    def _most_rows(entries: int) -> int:
        return max(1, BLOCK_BYTES // (8 * max(1, entries)))

    def _best_of_blocks(self, rows: Any, best: Callable[[Any], TopK]) -> TopK:
        """Return the best classes of all rows, block by block; rows on a GPU are one block."""
        if isinstance(rows, TensorRows):
            return best(rows)
        parts = [best(block) for block in self._blocks(rows, self._entries())]
        return parts[0] if len(parts) == 1 else TopK(*map(np.concatenate, zip(*parts)))

    def _table(self, X: Any, what: str, answer: Callable[[Any], Any], at_once: bool = False) -> Any:
        """Return answers (n, K) or (n,), block by block; rows on a GPU check the memory of the GPU themselves."""
        rows = self._rows(X)
        if isinstance(rows, TensorRows):
            return answer(rows)
        n, width = count_rows(rows), len(self.classes_)
        check_answer(n, width, self._answer_type(rows).itemsize, what)
        if at_once:
            return answer(rows)
        return concatenate_rows(n, (answer(block) for block in self._blocks(rows, max(width, self._entries()))))

    # ---- predictions

    def predict(self, X: Any) -> Any:
        """Predict the label of each row.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray or tensor of shape (n_samples,)
            Labels; a tensor if X is a tensor and the labels are numbers.
        """
        now = current(self)  # as in `reads`, without its call: predictions of single rows are frequent
        with at_most(now._threads()):
            return now._as_given(X, now._labels(now._best(now._rows(X), 1, stated=False)))

    @reads
    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """Return the k best labels of each row and their scores, best first.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        k : int, default=5
            Number of labels; all labels if there are fewer.

        Returns
        -------
        TopK
            Labels and scores of shape (n_samples, k). Scores are probabilities if the model has them.
        """
        codes, scores = self._best(self._rows(X), checked_k(k, len(self.classes_)), stated=True)
        return TopK(self._as_given(X, take_labels(self.classes_, codes)), self._as_given(X, scores))

    @reads
    def decision_function(self, X: Any) -> Any:
        """Return the scores of all classes.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray or tensor of shape (n_samples, n_classes) or (n_samples,)
            Scores; for two classes the score of the second minus that of the first.
        """
        return self._as_given(X, self._table(X, "decision_function", self._decisions))

    def _as_given(self, X: Any, answer: Any) -> Any:
        """Return the answer as a tensor if X is one."""
        return as_given(X, answer)

    def _decisions(self, rows: Any) -> Any:
        scores = self._scores(rows)
        if len(self.classes_) != 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    @available_if(states_probabilities)
    @reads
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of all classes.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray or tensor of shape (n_samples, n_classes)
            Probabilities.
        """
        return self._as_given(X, self._table(X, "predict_proba", self._shares, self._shares_of_all))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels, in the form that `fit` accepts.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            Share of rows with the correct label.
        """
        from sklearn.metrics import accuracy_score  # half a second, and no prediction needs it

        predicted, labels = on_host(self.predict(X)), column(on_host(y))
        try:
            return float(accuracy_score(labels, predicted, sample_weight=on_host(sample_weight)))
        except (ValueError, TypeError) as error:
            raise InputError(f"{str(error).rstrip('.')}; pass one label per row, such as {predicted[0]!r}") from error

    @available_if(has_contributions)
    @reads
    def explain(self, X: Any, labels: Any = None) -> Any:
        """Return how much each column moved the score of a class, row by row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        labels : label or array-like of shape (n_samples,), default=None
            The class to explain, one for all rows or one per row; None explains the predicted class.

        Returns
        -------
        Contributions
            Contributions of the columns and the baseline. They add up to the score of `decision_function`, unless the
            documentation of the classifier names another score.
        """
        rows = self._rows(on_host(X))
        return self._explained(rows, self._codes_to_explain(rows, labels))

    def _codes_to_explain(self, rows: Any, labels: Any) -> NDArray[np.int64]:
        """Return the codes (n,) of the given labels, or of the predicted classes."""
        n = count_rows(rows)
        if labels is None:
            return np.asarray(on_host(self._best(rows, 1, stated=False).ids))[:, 0]
        codes = encode_as([labels] if np.ndim(labels) == 0 else labels, self.classes_)
        if len(codes) not in (1, n):
            raise InputError(f"labels has {len(codes)} entries for {n} rows; pass one label, or one label per row")
        return np.broadcast_to(codes, n)

    def _explained(self, rows: Any, codes: NDArray[np.int64]) -> Contributions:
        """Return the contributions for validated rows and class codes (n,), computed block by block."""
        n, d = rows.shape
        if not sp.issparse(rows):
            check_room(n, d)
        parts, done = list[Parts](), 0
        for block in self._blocks(rows, max(d, self._entries())):
            parts.append(self._contributions(block, codes[done : done + count_rows(block)]))
            done += count_rows(block)
        values, baselines = zip(*parts)
        joined = sp.vstack(values, "csr") if sp.issparse(values[0]) else np.concatenate(values)
        contributions = Contributions(self.classes_[codes], joined, np.concatenate(baselines))
        return contributions.named(getattr(self, "feature_names_in_", None))

    # ---- fitting and model files

    def _forget(self) -> None:
        """Delete the attributes that an earlier fit learned."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the fitted model to one file, which cannot run code; `kway.load(path)` reads it.

        Parameters
        ----------
        path : str or Path
            The file.
        force : bool, default=False
            Whether to replace a file that is not a model of kway.
        """
        from kway.modelfile import save

        save(self, path, force=force)

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return JSON facts and arrays that, with the parameters, make up the fitted state."""
        raise TypeError(f"{type(self).__name__} cannot be saved to a model file")

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        """Restore the fitted state from what `_fitted` returned."""
        raise TypeError(f"{type(self).__name__} cannot be read from a model file")
