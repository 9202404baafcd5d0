"""A classifier behind a map of the columns that was learned from the labels.

fit: X, y -> map (d,) or (d, d) -> z -> estimator on z          predict: the same way, with the map of fit

"scales"     a weight a column, by neighbourhood components (kway.data.features.components)
"mixtures"   weights and then mixtures of the columns, likewise
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

import kway
from kway.base.estimator_inside import DelegatedAnswers, inner_has
from kway.base.own_threads import on_own_threads
from kway.data import gate
from kway.data.features.column_map import ColumnMap
from kway.data.features.components import learn_mixtures, learn_scales
from kway.parameters import check_parameters, checked_rng, one_of

LearnsMap = Callable[[Any, NDArray[np.int64], int, int | None], ColumnMap]  # rows, codes, seed, threads
_MAPS: dict[str, LearnsMap] = {"scales": learn_scales, "mixtures": learn_mixtures}


class MappedClassifier(DelegatedAnswers):
    """`estimator` (NeighborsClassifier() where None) on columns weighed by what the labels say of them.

    Neighbours count every column alike; here telling columns count for more. `mapped` gives the rows as the
    estimator sees them, so the map can stand in front of anything.

    Parameters
    ----------
    estimator : any classifier of dense rows.
    map : "scales" (a weight a column) | "mixtures" (of all columns: d x d weights).
    n_jobs : threads, of the estimator as well, whatever its own; None is all cores.
    random_state : seed of the rows that are drawn; None is 0.

    Attributes: `map_`, a ColumnMap with scale (d,), centre (d,) and, of mixtures, turn (d, d); `estimator_`.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MappedClassifier().fit(X, y)
    >>> model.score(X, y) > 0.95, model.mapped(X).shape
    (True, (150, 4))
    """

    map_: ColumnMap

    def __init__(
        self, estimator: Any = None, map: str = "scales", n_jobs: int | None = None, random_state: Any = None
    ) -> None:
        self.estimator = estimator
        self.map = map
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _unfitted(self) -> Any:
        return kway.NeighborsClassifier(n_jobs=self.n_jobs) if self.estimator is None else self.estimator

    @on_own_threads
    def fit(self, X: Any, y: Any) -> MappedClassifier:
        """Learn the map from rows X (n, d) with labels y (n,), then the estimator from mapped rows."""
        self._check_parameters()
        self._forget()
        rows, labels = gate.rows_and_labels(self, X, y, sparse=False)
        seed = 0 if self.random_state is None else int(checked_rng(self.random_state).randint(2**31))
        self.map_ = _MAPS[self.map](rows, labels.codes, seed, self.n_jobs)
        self.estimator_ = self._fresh().fit(self.map_.apply(rows), y)
        self.classes_ = np.asarray(self.estimator_.classes_)
        return self

    @on_own_threads
    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> MappedClassifier:
        """Learn the estimator again from blocks (X, y), such as a generator's, behind the map of an earlier fit."""
        check_is_fitted(self, "map_")
        self.estimator_ = self._fresh().fit_blocks((self.mapped(X), y) for X, y in blocks)
        self.classes_ = np.asarray(self.estimator_.classes_)
        return self

    def _rows(self, X: Any) -> Any:
        return self.mapped(X)

    def _passed(self, X: Any) -> Any:
        return X

    @on_own_threads
    def mapped(self, X: Any) -> NDArray:
        """Mapped rows (n, d), as the estimator sees them."""
        check_is_fitted(self, "estimator_")
        return self.map_.apply(gate.rows(self, X, reset=False, sparse=False))

    @available_if(inner_has("kneighbors"))
    @on_own_threads
    def kneighbors(self, X: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The estimator's nearest training rows, by distance between mapped rows."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.kneighbors(None if X is None else self.mapped(X), *args, **kwargs)

    # ---- checks and model files

    def _check_parameters(self) -> None:
        check_parameters(self, map=one_of(*_MAPS))

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        learned = {"scale": self.map_.scale, "centre": self.map_.centre, "turn": self.map_.turn}
        return {}, {f"map.{name}": array for name, array in learned.items() if array is not None}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.map_ = ColumnMap(arrays["map.scale"], arrays.get("map.centre"), arrays.get("map.turn"))
