"""What families are scored on, and their scores (folds, settings), nan where not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.class_scores import class_scores
from kway.data.gate import Rows
from kway.log_loss import log_loss, own_probability
from kway.neighbors.sweep import Electors, vote_shares
from kway.planning.guard import size_of
from kway.planning.size import Size
from kway.search.index import Neighbors
from kway.select.contest.measures import ACCURACY, Measure


class FoldedRows(NamedTuple):
    """What every family is scored on: rows (n, d), codes (n,), folds (n,); `kept` holds what a later scan can use."""

    X: Rows
    codes: NDArray[np.int64]
    folds: NDArray[np.int64]
    kept: dict[str, Any]
    measure: Measure = ACCURACY  # what the choice is made by

    def pass_seconds(self) -> float:
        """About what one gradient of a linear loss over all rows and classes takes, on two cores of 2023."""
        width = int(self.codes.max()) + 1
        work = self.X.nnz * width / 3e8 if hasattr(self.X, "nnz") else self.X.size * width / 3e10
        return float(work + 40 * self.X.shape[1] * width / 1e9)  # the solver keeps 40 vectors of d K numbers

    def size(self) -> Size:
        """For the plan."""
        return size_of(self.X, int(self.codes.max()) + 1)

    def pairs(self) -> float:
        """Values that a search of all rows among all rows compares; those of sparse rows are ten times as slow."""
        values = 10 * self.X.nnz if self.sparse else self.X.size
        return float(self.X.shape[0]) * float(values)

    def far(self, lead: float) -> float:
        """How far below the leader's score on the first fold is beyond luck."""
        return self.measure.far(lead, np.bincount(self.codes[self.folds == 0]))

    def sight(self, lead: float) -> float:
        """The score below which no setting brings a family near the leader: twice as far, and a tenth more."""
        return lead - 2 * self.far(lead) - 0.1

    @property
    def sparse(self) -> bool:
        """Whether the rows are CSR."""
        return hasattr(self.X, "tocsr")

    @property
    def unit(self) -> bool:
        """Whether rows have length 1, but for a few: hashed text and most embeddings."""
        if "unit" not in self.kept:
            some = self.X[:: max(1, self.X.shape[0] // 2000)]
            squares = some.multiply(some).sum(axis=1) if self.sparse else np.square(some, dtype=np.float64).sum(axis=1)
            self.kept["unit"] = bool((np.abs(np.sqrt(np.asarray(squares)) - 1) < 0.01).mean() > 0.99)
        return bool(self.kept["unit"])


HELD_ROWS = 1000  # rows that tell one temperature to within a few per cent
_HELD_ENTRIES = 1 << 24  # of a table of rows and classes that a temperature is learned from


class HeldVotes(NamedTuple):
    """Held-out rows with class codes (m,), their nearest electors (m, k), and the map of columns, "" for none."""

    codes: NDArray[np.int64]
    found: Neighbors
    electors: Electors
    map: str = ""

    def some(self, most: int) -> HeldVotes:
        """So many of the rows at most, evenly spaced."""
        own = slice(None, None, max(1, -(-len(self.codes) // most)))
        return self._replace(codes=self.codes[own], found=Neighbors(self.found.ids[own], self.found.distances[own]))


class HeldOut(NamedTuple):
    """Probabilities (m, K) of held-out rows, and their class codes (m,)."""

    values: NDArray[np.float64]
    codes: NDArray[np.int64]


@dataclass(frozen=True)
class Scan:
    """Settings of a family with their scores, (folds, settings), nan where a fold was not run."""

    settings: list[dict[str, Any]]
    accuracy: NDArray[np.float64]
    log_loss: NDArray[np.float64]
    seconds: float  # of the whole scan
    fit_seconds: float = 0.0  # about what one fit on all rows will take
    balanced: NDArray[np.float64] | None = None  # None: not known
    macro_f1: NDArray[np.float64] | None = None
    measure: Measure = ACCURACY  # by which `best` is the best
    slack: float = 0.0  # standard errors below the best score within which the lower log loss decides
    held: tuple[HeldVotes, ...] = ()  # of neighbours: their votes are found, and need no search to be counted again
    usual: int | None = None  # the setting before which none is chosen unless it is better by more than the slack

    def joined(self, other: Scan) -> Scan:
        """This scan and another of the same settings on more folds."""
        return Scan(
            self.settings,
            np.vstack([self.accuracy, other.accuracy]),
            np.vstack([self.log_loss, other.log_loss]),
            self.seconds + other.seconds,
            max(self.fit_seconds, other.fit_seconds),
            _stacked(self.balanced, other.balanced),
            _stacked(self.macro_f1, other.macro_f1),
            self.measure,
            self.slack,
            self.held if sum(len(votes.codes) for votes in self.held) >= HELD_ROWS else (*self.held, *other.held),
            self.usual,
        )

    def held_out(self, setting: dict[str, Any]) -> HeldOut | None:
        """What a setting of neighbours states on rows held out; None of any other family."""
        own = [votes for votes in self.held if votes.map == setting.get("map", "")]
        if not own:
            return None
        most = max(1, _HELD_ENTRIES // len(own) // len(own[0].electors.counts))
        own = [votes.some(most) for votes in own]
        how = setting["n_neighbors"], setting["weights"]
        values = [vote_shares(votes.found, votes.electors, *how) for votes in own]
        return HeldOut(np.concatenate(values), np.concatenate([votes.codes for votes in own]))

    @property
    def scores(self) -> NDArray[np.float64]:
        """(folds, settings) by the measure, higher is better."""
        return self.measure.of(self)

    @property
    def best(self) -> int:
        """The setting of the best mean score, of those run on most folds; among equals the lower log loss.

        Settings within the slack of the best are as good by what is known, and the lower log loss decides: a few
        voters more, or votes by distance, whose shares are not k + 1 levels. Machines state none, and a penalty
        stronger than the usual one has to show that it is better.
        """
        run = np.isfinite(self.scores).sum(axis=0)
        mean = np.where(run == run.max(), _fold_means(self.scores), -np.inf)
        loss = np.nan_to_num(_fold_means(self.log_loss), nan=np.inf)
        first = int(np.lexsort((loss, -mean))[0])
        if self.slack == 0 or not self.measure.rises or run.max() < 2:
            return first
        folds = self.scores[:, first]
        error = float(np.nanstd(folds, ddof=1)) / np.sqrt(run.max())
        close = np.flatnonzero(mean >= mean[first] - self.slack * error)
        if self.usual is not None:
            return self.usual if first < self.usual and self.usual in close else first
        return int(close[np.lexsort((-mean[close], loss[close]))[0]])


def _stacked(first: NDArray | None, second: NDArray | None) -> NDArray | None:
    return None if first is None or second is None else np.vstack([first, second])


def mean_square(X: Rows) -> float:
    """Mean of |x|^2 over some 10,000 rows; 1 where that is no scale."""
    some = X[:: max(1, X.shape[0] // 10_000)]
    values = some.data if hasattr(some, "tocsr") else some
    mean = float(np.square(values, dtype=np.float64).sum() / max(1, some.shape[0]))
    return mean if np.isfinite(mean) and mean > 0 else 1.0


def scan_of(
    settings: list[dict[str, Any]],
    scores: FoldScores,
    seconds: float,
    fit_seconds: float,
    data: FoldedRows,
    slack: float = 0.0,
    held: tuple[HeldVotes, ...] = (),
    usual: int | None = None,
) -> Scan:
    """Scores of settings on some folds as a scan."""
    accuracy, loss, balanced, macro_f1 = scores
    return Scan(settings, accuracy, loss, seconds, fit_seconds, balanced, macro_f1, data.measure, slack, held, usual)


class FoldScores(NamedTuple):
    """Scores of one model on the rows of a fold, or of many, (folds, settings); log_loss nan without probabilities."""

    accuracy: Any
    log_loss: Any
    balanced: Any
    macro_f1: Any


def scores_of(model: Any, X: Rows, codes: NDArray) -> FoldScores:
    """Of a model on rows it has not seen."""
    predicted = np.asarray(model.predict(X), np.int64)
    by_class = class_scores(codes, predicted[:, None])
    loss = np.nan
    if hasattr(model, "predict_proba"):
        loss = log_loss(own_probability(model.predict_proba(X), codes, model.classes_))
    return FoldScores(float((predicted == codes).mean()), loss, *(float(v[0]) for v in by_class))


def _fold_means(scores: NDArray) -> NDArray:
    """Mean over the folds that were run; nan where none was."""
    run = np.isfinite(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(run, scores, 0).sum(axis=0) / run.sum(axis=0)
