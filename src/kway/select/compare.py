"""compare: every family over all its settings on the same folds, losers stopped early; tune: one estimator's own.

    stage 1   all families on fold 0
    stage 2   the other folds, for the families that may still win: their best setting on fold 0 is not below the
              leader's by more than three standard errors of a difference and three points

What a family shares (one search, one Gram matrix, warm starts) is in kway.select.families. The budget and Ctrl-C end
the work between fits; what was scored until then is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.gate import Rows, plain_rows
from kway.data.labels import encode
from kway.errors import InputError
from kway.select.families import FAMILIES, Data, Family, Scan
from kway.select.folds import fold_numbers

HOPELESS = 0.03  # accuracy below the leader's on fold 0, beyond the noise, at which a family is not run further

Told = Callable[[str, int, int], None]  # (what runs now, steps done, steps in all)


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

    def record(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "fold_accuracy": list(self.fold_accuracy)}


@dataclass(frozen=True)
class Comparison:
    """The leaderboard, best first, and the scans behind it."""

    standings: list[Standing]
    scans: dict[str, Scan]
    folds: NDArray[np.int64]
    classes: NDArray
    finished: bool = True  # False where the budget or Ctrl-C cut it short

    @property
    def best(self) -> Standing:
        """The leader."""
        return self.standings[0]

    def estimator(self, standing: Standing | None = None, seed: int = 0) -> Any:
        """An unfitted estimator of a line, by default the best."""
        line = standing or self.best
        return FAMILIES[line.model].make(line.setting, seed)

    def records(self) -> list[dict[str, Any]]:
        """One plain record a line."""
        return [line.record() for line in self.standings]

    def to_pandas(self) -> Any:
        """The leaderboard as a frame."""
        import pandas as pd

        return pd.DataFrame(self.records())


def compare(
    X: Any,
    y: Any,
    families: Iterable[str] | None = None,
    n_folds: int = 5,
    groups: Any = None,
    order: Any = None,
    budget: float | None = None,
    seed: int = 0,
    told: Told | None = None,
) -> Comparison:
    """Score the families named (all by default) on rows X (n, d) with labels y (n,); `budget` in seconds.

    >>> from sklearn.datasets import load_iris
    >>> compare(*load_iris(return_X_y=True), families=["softmax", "centroid"]).best.model
    'softmax'
    """
    labels = encode(y)
    data = Data(_rows(X), labels.codes, fold_numbers(labels.codes, n_folds, groups, order, seed))
    chosen = _pick(families)
    clock = _Clock(budget)
    work = _Work(data, clock, told, len(chosen))
    try:
        _first_fold(work, chosen)
        _other_folds(work)
    except KeyboardInterrupt:
        clock.cut = True
    if not work.scans:
        raise InputError("nothing was scored before the time was up; give a larger budget or fewer families")
    lines = [_standing(name, scan, work.notes.get(name, "")) for name, scan in work.scans.items()]
    lines.sort(key=lambda s: (bool(s.note), -s.accuracy, np.inf if s.log_loss is None else s.log_loss))
    return Comparison(lines, work.scans, data.folds, labels.classes, not clock.cut)


@dataclass
class _Clock:
    """Whether time is up."""

    budget: float | None
    begun: float = 0.0
    cut: bool = False

    def __post_init__(self) -> None:
        self.begun = time.perf_counter()

    def up(self) -> bool:
        """Asked between fits."""
        self.cut = self.cut or (self.budget is not None and time.perf_counter() - self.begun > self.budget)
        return self.cut


class _Work:
    """The comparison under way."""

    def __init__(self, data: Data, clock: _Clock, told: Told | None, n_families: int) -> None:
        self.data, self.clock = data, clock
        self._told, self._steps, self._done = told, 2 * n_families, 0
        self.scans: dict[str, Scan] = {}
        self.notes: dict[str, str] = {}

    def run(self, family: Family, which: list[int], what: str) -> Scan | None:
        """A scan, or None where the time was up before any of it was done."""
        if self.clock.up() and self.scans:
            return None
        if self._told is not None:
            self._told(f"{family.name}: {what}", self._done, self._steps)
        first = not self.scans  # however small the budget, something is scored
        found = family.scan(self.data, which, (lambda: False) if first else self.clock.up)
        self._done += 1
        return found if np.isfinite(found.accuracy).any() else None

    def skip(self) -> None:
        """A step that is not needed."""
        self._done += 1


def _first_fold(work: _Work, chosen: list[Family]) -> None:
    for family in chosen:
        try:
            found = work.run(family, [0], "fold 1")
        except InputError as error:
            work.notes[family.name] = str(error)
            continue
        if found is not None:
            work.scans[family.name] = found


def _other_folds(work: _Work) -> None:
    rest = list(range(1, int(work.data.folds.max()) + 1))
    if not rest:
        return
    held = int((work.data.folds == 0).sum())
    lead = max(float(np.nanmax(scan.accuracy[0])) for scan in work.scans.values())
    noise = 3 * np.sqrt(2 * max(lead * (1 - lead), 1 / held) / held)
    for name in sorted(work.scans, key=lambda n: -float(np.nanmax(work.scans[n].accuracy[0]))):
        own = float(np.nanmax(work.scans[name].accuracy[0]))
        if own < lead - max(HOPELESS, float(noise)):
            work.notes[name] = f"stopped after fold 1 of {len(rest) + 1}: {own:.3f} against {lead:.3f}"
            work.skip()
            continue
        more = work.run(FAMILIES[name], rest, f"folds 2 to {len(rest) + 1}")
        if more is not None:
            work.scans[name] = work.scans[name].joined(more)
        elif work.clock.cut:
            work.notes[name] = "the time was up after fold 1"


def _standing(name: str, scan: Scan, note: str) -> Standing:
    at = scan.best
    scores = scan.accuracy[:, at]
    scores = scores[np.isfinite(scores)]
    losses = scan.log_loss[:, at]
    loss = float(np.nanmean(losses)) if np.isfinite(losses).any() else None
    std = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return Standing(
        name, scan.settings[at], float(scores.mean()), std, tuple(map(float, scores)), loss, scan.seconds, note
    )


def _pick(families: Iterable[str] | None) -> list[Family]:
    names = list(FAMILIES) if families is None else list(families)
    unknown = [name for name in names if name not in FAMILIES]
    if unknown or not names:
        raise InputError(f"families must be among {', '.join(FAMILIES)}; got {', '.join(unknown) or 'none'}")
    return [FAMILIES[name] for name in names]


def _rows(X: Any) -> Rows:
    import scipy.sparse as sp

    return X.tocsr() if sp.issparse(X) else plain_rows(X)
