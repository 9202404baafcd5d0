"""Standings: the lines of a leaderboard, and the comparison they come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.select.contest.families import Family
from kway.select.contest.measures import ACCURACY, Measure
from kway.select.contest.scans import Scan
from kway.tables import Printed, Table

STOPPED = "stopped"  # how the note of a clear loser begins


@dataclass(frozen=True)
class Standing:
    """One line of the leaderboard."""

    model: str
    setting: dict[str, Any]
    accuracy: float  # mean over the folds
    std: float
    fold_accuracy: tuple[float, ...]
    log_loss: float | None
    seconds: float  # of scoring all its settings
    note: str = ""
    measure: str = ACCURACY.name  # what the choice is made by
    fold_scores: tuple[float, ...] = ()  # of that measure
    n_folds: int = 0  # that a finished line has

    @property
    def score(self) -> float:
        """Mean of the measure over the folds."""
        return float(np.mean(self.fold_scores)) if self.fold_scores else self.accuracy

    @property
    def score_std(self) -> float:
        """Standard deviation of the measure over the folds."""
        return float(np.std(self.fold_scores, ddof=1)) if len(self.fold_scores) > 1 else 0.0

    @property
    def stopped(self) -> bool:
        """Whether it was left behind as a clear loser."""
        return self.note.startswith(STOPPED)

    @property
    def folds_run(self) -> str:
        """How many folds the scores come from: "5", or "1 of 5" where it was stopped before."""
        run = len(self.fold_accuracy)
        return str(run) if run >= self.n_folds else f"{run} of {self.n_folds}"

    def record(self) -> dict[str, Any]:
        """Plain values."""
        lists = {"fold_accuracy": list(self.fold_accuracy), "fold_scores": list(self.fold_scores)}
        return {**vars(self), **lists, "score": self.score, "score_std": self.score_std, "folds_run": self.folds_run}


def standing_of(name: str, scan: Scan, note: str, n_folds: int) -> Standing:
    """The line of a family's best setting."""
    at = scan.best
    accuracy, losses = scan.accuracy[:, at], scan.log_loss[:, at]
    scores = scan.scores[:, at]
    scores = scan.measure.shown(scores[np.isfinite(scores)])
    accuracy = accuracy[np.isfinite(accuracy)]
    loss = float(np.nanmean(losses)) if np.isfinite(losses).any() else None
    std = float(accuracy.std(ddof=1)) if len(accuracy) > 1 else 0.0
    return Standing(
        name, scan.settings[at], float(accuracy.mean()), std, tuple(map(float, accuracy)), loss, scan.seconds, note,
        scan.measure.name, tuple(map(float, scores)), n_folds,
    )  # fmt: skip


def in_order(lines: Iterable[Standing], measure: Measure) -> list[Standing]:
    """By the measure, then by log loss; those stopped as losers come last: a lucky fold is no score of them all."""
    sign = -1 if measure.rises else 1
    loss = lambda s: np.inf if s.log_loss is None else s.log_loss  # noqa: E731
    return sorted(lines, key=lambda s: (s.stopped, sign * s.score, loss(s)))


def setting_in_words(setting: dict[str, Any]) -> str:
    """A setting for people.

    >>> setting_in_words({"weights": "uniform", "n_neighbors": 4}), setting_in_words({"alpha": 0.00088})
    ('k 4, uniform', 'alpha 0.00088')
    """
    words = {
        "n_neighbors": "k {}",
        "map": "{} of columns",
        "weights": "{}",
        "metric": "{}",
        "targets": "{}",
        "alpha": "alpha {:.2g}",
    }
    first = sorted(setting.items(), key=lambda item: item[0] != "n_neighbors")
    return ", ".join(words.get(name, name + " {}").format(value) for name, value in first)


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """The leaderboard, best first, and the scans behind it; it prints as a table."""

    standings: list[Standing]
    scans: dict[str, Scan]
    folds: NDArray[np.int64]
    classes: NDArray
    finished: bool = True  # False where the budget or Ctrl-C cut it short
    families: dict[str, Family] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # families that could not be scored, and why
    idle: dict[str, str] = field(default_factory=dict)  # families not worth running on such rows, and why
    measure: Measure = ACCURACY  # what the choice is made by
    references: list[Standing] = field(default_factory=list)  # classifiers that are not kway's, on the same folds

    @property
    def best(self) -> Standing:
        """The leader."""
        return self.standings[0]

    def estimator(self, standing: Standing | None = None, seed: int = 0) -> Any:
        """An unfitted estimator of a line, by default the best."""
        line = standing or self.best
        return self.families[line.model].make(line.setting, seed)

    def joined(self, other: Comparison) -> Comparison:
        """This comparison and that of other families on the same folds."""
        return replace(
            self,
            standings=in_order([*self.standings, *other.standings], self.measure),
            scans={**self.scans, **other.scans},
            finished=self.finished and other.finished,
            families={**self.families, **other.families},
            problems={**self.problems, **other.problems},
        )

    def records(self) -> list[dict[str, Any]]:
        """One plain record a line."""
        return [line.record() for line in self.standings]

    def to_pandas(self) -> Any:
        """The leaderboard as a frame."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def _table(self) -> Table:
        return leaderboard_table(self.standings, self.references, self.measure)


def leaderboard_table(standings: list[Standing], references: list[Standing], measure: Measure) -> Table:
    """The lines of a leaderboard, and below them those that are not kway's."""
    other = () if measure is ACCURACY else (measure.words,)
    columns = ("model", *other, "accuracy", *(() if "log loss" in other else ("log loss",)), "folds", "setting")
    lines = [_cells(line, bool(other)) for line in standings]
    lines += [_cells(replace(line, model=f"({line.model})"), bool(other)) for line in references]
    more = "(in brackets: not kway's, on the same folds for comparison)" if references else ""
    return Table(
        f"{len(standings)} {'family' if len(standings) == 1 else 'families'} by {measure.words}, best first",
        columns,
        lines,
        more,
    )


def _cells(line: Standing, measured: bool) -> tuple[str, ...]:
    score = with_spread(line.score, line.score_std, len(line.fold_scores))
    loss = "–" if line.log_loss is None else f"{line.log_loss:.3f}"
    own = with_spread(line.accuracy, line.std, len(line.fold_accuracy))
    words = setting_in_words(line.setting)
    stated = () if line.measure == "log-loss" else (loss,)
    return (line.model, *([score] if measured else []), own, *stated, line.folds_run, words)


def with_spread(mean: float, std: float, folds: int) -> str:
    """A score with its standard deviation, where there is more than one fold."""
    return f"{mean:.3f} ± {std:.3f}" if folds > 1 else f"{mean:.3f}"
