"""compare: every family over all its settings on the same folds, losers stopped early.

    stage 1   all families on fold 0
    stage 2   the other folds, for the families that may still win: their best setting on fold 0 is not below the
              leader's by more than three standard errors of a difference and three points; with `curves` also for
              the best linear and the best neighbours family, so that their cross-validation can be drawn

What a family shares (one search, one Gram matrix, warm starts) is in kway.select.families. The budget and Ctrl-C end
the work between fits; what was scored until then is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.gate import Rows, plain_rows
from kway.data.labels import encode
from kway.errors import InputError, KwayError
from kway.select.families import ALIKE, FAMILIES, HEAVY, STRAW_MAN, Data, Family, Linear, Neighbors, Scan
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


def in_words(setting: dict[str, Any]) -> str:
    """A setting for people.

    >>> in_words({"weights": "uniform", "n_neighbors": 4}), in_words({"alpha": 0.00088})
    ('k 4, uniform', 'alpha 0.00088')
    """
    words = {"n_neighbors": "k {}", "weights": "{}", "metric": "{}", "targets": "{}", "alpha": "alpha {:.2g}"}
    first = sorted(setting.items(), key=lambda item: item[0] != "n_neighbors")
    return ", ".join(words.get(name, name + " {}").format(value) for name, value in first)


@dataclass(frozen=True)
class Comparison:
    """The leaderboard, best first, and the scans behind it."""

    standings: list[Standing]
    scans: dict[str, Scan]
    folds: NDArray[np.int64]
    classes: NDArray
    finished: bool = True  # False where the budget or Ctrl-C cut it short
    families: dict[str, Family] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # families that could not be scored, and why

    @property
    def best(self) -> Standing:
        """The leader."""
        return self.standings[0]

    def estimator(self, standing: Standing | None = None, seed: int = 0) -> Any:
        """An unfitted estimator of a line, by default the best."""
        line = standing or self.best
        return self.families[line.model].make(line.setting, seed)

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
    families: Iterable[str | Family] | None = None,
    n_folds: int = 5,
    groups: Any = None,
    order: Any = None,
    budget: float | None = None,
    seed: int = 0,
    told: Told | None = None,
    curves: bool = False,
) -> Comparison:
    """Score the families named (all by default) on rows X (n, d) with labels y (n,); `budget` in seconds.

    `groups` (n,) keeps rows together, `order` (n,) validates on the last rows. `told` hears what runs now.

    >>> from sklearn.datasets import load_iris
    >>> compare(*load_iris(return_X_y=True), families=["softmax", "centroid"]).best.model
    'softmax'
    """
    labels = encode(y)
    n_folds = max(2, min(n_folds, len(labels.codes)))
    data = Data(_rows(X), labels.codes, fold_numbers(labels.codes, n_folds, groups, order, seed), {})
    chosen, left_out = _worth(_pick(families), data) if families is None else (_pick(families), {})
    clock = _Clock(budget)
    work = _Work(data, clock, told, len(chosen))
    work.problems.update(left_out)
    try:
        _first_fold(work, chosen)
        _other_folds(work, {f.name: f for f in chosen}, curves)
    except KeyboardInterrupt:
        clock.cut = True
    if not work.scans:
        raise InputError(_nothing(work.problems))
    lines = [_standing(name, scan, work.notes.get(name, "")) for name, scan in work.scans.items()]
    lines.sort(key=lambda s: (bool(s.note), -s.accuracy, np.inf if s.log_loss is None else s.log_loss))
    known = {family.name: family for family in chosen}
    return Comparison(lines, work.scans, data.folds, labels.classes, not clock.cut, known, work.problems)


def _nothing(problems: dict[str, str]) -> str:
    if not problems:
        return "nothing was scored before the time was up; give a larger budget or fewer families"
    return "no model could be fitted; " + "; ".join(f"{name}: {why}" for name, why in problems.items())


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
        self.problems: dict[str, str] = {}

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
        except KwayError as error:
            work.problems[family.name] = str(error)
            continue
        if found is not None:
            work.scans[family.name] = found


def _other_folds(work: _Work, families: dict[str, Family], curves: bool) -> None:
    rest = list(range(1, int(work.data.folds.max()) + 1))
    if not rest or not work.scans:
        return
    held = int((work.data.folds == 0).sum())
    lead = max(float(np.nanmax(scan.accuracy[0])) for scan in work.scans.values())
    noise = 3 * np.sqrt(2 * max(lead * (1 - lead), 1 / held) / held)
    line = sorted(work.scans, key=lambda n: -float(np.nanmax(work.scans[n].accuracy[0])))
    drawn = _drawn(line, families) if curves else set()
    for name in line:
        own = float(np.nanmax(work.scans[name].accuracy[0]))
        if own < lead - max(HOPELESS, float(noise)) and name not in drawn:
            work.notes[name] = f"stopped after fold 1 of {len(rest) + 1}: {own:.3f} against {lead:.3f}"
            work.skip()
            continue
        more = work.run(families[name], rest, f"folds 2 to {len(rest) + 1}")
        if more is not None:
            work.scans[name] = work.scans[name].joined(more)
        elif work.clock.cut:
            work.notes[name] = "the time was up after fold 1"


def _drawn(line: list[str], families: dict[str, Family]) -> set[str]:
    """The best linear and the best neighbours family of a line that has the best first; a slow one is not worth it."""
    kinds = (Linear, Neighbors)
    best = [next((n for n in line if isinstance(families[n], kind) and n != "svm"), None) for kind in kinds]
    return {name for name in best if name is not None}


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


def _pick(families: Iterable[str | Family] | None) -> list[Family]:
    given = list(FAMILIES) if families is None else list(families)
    known = {**FAMILIES, STRAW_MAN.name: STRAW_MAN}
    unknown = [name for name in given if isinstance(name, str) and name not in known]
    if unknown or not given:
        raise InputError(f"families must be among {', '.join(FAMILIES)}; got {', '.join(map(str, unknown)) or 'none'}")
    return [known[name] if isinstance(name, str) else name for name in given]


def _worth(families: list[Family], data: Data) -> tuple[list[Family], dict[str, str]]:
    """The families to run unless asked for by name, and why the others are not."""
    seconds = data.pass_seconds()
    if seconds < HEAVY:
        return families, {}
    why = f"one pass over the rows takes about {seconds:.1f} s, and softmax stands for the linear ones; ask by name"
    return [f for f in families if f.name not in ALIKE], dict.fromkeys(ALIKE, why)


def _rows(X: Any) -> Rows:
    import scipy.sparse as sp

    return X.tocsr() if sp.issparse(X) else plain_rows(X)
