"""compare: every family over all its settings on the same folds, losers stopped early.

    heats     where a pass over the rows is slow, linear families first run against the others on a few classes
    stage 1   all families on fold 0, on dense rows without a budget neighbours first: what they reach tells a path
              when to give up, and where softmax is out of sight the families that are alike are not run
    stage 2   the other folds, for the families that may still win: their best setting on fold 0 is not below the
              leader's by more than three standard errors of a difference and a point and a half (measures.py), and
              of those alike softmax they are the better, of those alike machines, on sparse rows, by a standard error:
              softmax takes ten times as long there, and on held-out rows of nine sets of 500 to 2,000 short texts it
              was ahead once (by 1.1 points), level once and behind seven times (by 0.1 to 1.0);
              with `curves` also for the best linear (unless that takes long) and the best neighbours family, so that
              their cross-validation can be drawn
              where a whole comparison leaves one family, two folds more choose its setting, unless rows are few
    repeats   the same families on folds drawn anew

What a family shares (one search, one Gram matrix, warm starts) is in families.py. The budget and Ctrl-C end
the work between fits; what was scored until then is kept, and what was not is told.

Inside `kway.cluster(...)` families, and folds of a family, are scored at once by its nodes (spread_scans.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kway import progress
from kway.compute.gpu.device import resolve
from kway.data.gate import Rows, plain_rows
from kway.data.labels import encode
from kway.errors import InputError, KwayError
from kway.parameters import whole
from kway.planning.comparison import HEAVY
from kway.select.contest.clock import Clock
from kway.select.contest.families import (
    FAMILIES,
    STRAW_MAN,
    Family,
    LinearFamily,
    NeighborsFamily,
    computed_on,
    weighs_classes,
    with_class_weight,
)
from kway.select.contest.folds import fold_numbers
from kway.select.contest.heats import outrun
from kway.select.contest.learned_neighbors import LearnedNeighborsFamily
from kway.select.contest.measures import pick_measure
from kway.select.contest.references import Referred, begin_references, checked_references
from kway.select.contest.scans import FoldedRows, Scan
from kway.select.contest.spread_scans import ScansAhead
from kway.select.contest.stand_ins import ALIKE, MACHINES, QUICK_PASS
from kway.select.contest.standings import STOPPED, Comparison, Standing, in_order, setting_in_words, standing_of

__all__ = ["Comparison", "Standing", "compare", "setting_in_words"]

FOLDS = 5  # unless another number is asked for
ALONE = 3  # of them, where one family alone is left: enough to choose its setting by, and to see a spread
ALPHAS_APART = 0.02  # by which the best of all alphas may be above the best of a few in the middle
ALIKE_GAP = 0.1  # by which a family that is alike softmax may be ahead of it
TOO_LATE = "the time was up"
UNWEIGHED = "class weights change nothing here: it learns each class from sums, however many rows it has"


def compare(
    X: Any,
    y: Any,
    families: str | Iterable[str | Family] | None = None,
    n_folds: int = FOLDS,
    groups: Any = None,
    order: Any = None,
    budget: float | Clock | None = None,
    seed: int = 0,
    curves: bool = False,
    metric: str = "accuracy",
    class_weight: str | None = None,
    repeats: int = 1,
    also: str | Iterable[Any] = (),
    device: str = "cpu",
) -> Comparison:
    """Score the families named (all by default) on rows X (n, d) with labels y (n,); `budget` in seconds, or a clock.

    `groups` (n,) keeps rows together, `order` (n,) validates on the last rows. kway.progress tells what runs.
    `metric` is what the choice is made by: "accuracy", "balanced", "macro-f1" or "log-loss". `class_weight="balanced"`
    lets rows of rare classes count for more. `repeats` draws the folds so many times. `also` are classifiers of other
    libraries, as they are or by name ("sklearn.svm.SVC"), or one such name: scored on the same folds, never chosen.
    `device` is that of the classifiers that have one.

    >>> from sklearn.datasets import load_iris
    >>> compare(*load_iris(return_X_y=True), families=["softmax", "centroid"]).best.model
    'softmax'
    """
    labels = encode(y)
    measure = pick_measure(metric)
    _check_wishes(class_weight, repeats, order)
    asked = checked_references(also)
    whole(2).check("folds", n_folds)
    n_folds = max(2, min(n_folds, len(labels.codes)))
    resolve(device, pays=False)  # refused now, rather than by every family
    rows = _rows(X)
    rounds = [
        FoldedRows(rows, labels.codes, fold_numbers(labels.codes, n_folds, groups, order, seed + r), {}, measure)
        for r in range(repeats)
    ]
    data = rounds[0]
    clock = budget if isinstance(budget, Clock) else Clock(budget)
    chosen = [computed_on(with_class_weight(family, class_weight), device) for family in _pick(families)]
    known, idle = _entrants(chosen, data, clock, whole=families is None)
    refer = begin_references(data, asked, clock, seed)
    work = _Work(data, known, clock, whole=families is None)
    _every_fold(work, rounds[1:], curves, spare=families is None and n_folds == FOLDS and repeats == 1)
    if not work.scans:
        raise InputError(_nothing_scored(work.problems))
    lines = work.standings(repeats * (int(data.folds.max()) + 1), class_weight is not None)
    others, trouble = Referred([], {}) if clock.interrupted else refer()
    silent = {*work.scans, *work.problems, *work.idle}
    problems = {**work.problems, **{name: TOO_LATE for name in known if name not in silent}, **trouble}
    return Comparison(
        in_order(lines, measure), work.scans, data.folds, labels.classes, not clock.cut, known, problems,
        {**idle, **work.idle}, measure, others,
    )  # fmt: skip


class _Entrants(NamedTuple):
    """Families that are run, by name, and why the others are not."""

    known: dict[str, Family]
    idle: dict[str, str]


def _entrants(chosen: list[Family], data: FoldedRows, clock: Clock, whole: bool) -> _Entrants:
    """All that were asked for; of the `whole` house those that are worth running on these rows."""
    known = {family.name: family for family in chosen}
    if not whole:
        return _Entrants(known, {})
    idle = {name: why for name, family in known.items() if (why := family.idle(data))}
    idle |= outrun(data, {name: family for name, family in known.items() if name not in idle}, clock)
    return _Entrants({name: family for name, family in known.items() if name not in idle}, idle)


def _check_wishes(class_weight: Any, repeats: Any, order: Any) -> None:
    if class_weight not in (None, "balanced"):
        raise InputError(f"class_weight must be None or 'balanced' here, got {class_weight!r}")
    whole(1).check("repeats", repeats)
    if repeats > 1 and order is not None:
        raise InputError("repeats draws the folds anew, and with order there is one: the last rows; leave it out")


def _nothing_scored(problems: dict[str, str]) -> str:
    if not problems:
        return "nothing was scored before the time was up; give a larger budget or fewer families"
    return "no model could be fitted; " + "; ".join(f"{name}: {why}" for name, why in problems.items())


class _Work:
    """The comparison under way."""

    def __init__(self, data: FoldedRows, families: dict[str, Family], clock: Clock, whole: bool) -> None:
        self.data, self.families, self.clock = data, families, clock
        self.whole = whole  # nobody said which families
        self._done = 0
        self.ahead = ScansAhead()
        self.scans: dict[str, Scan] = {}
        self.notes: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        self.idle: dict[str, str] = {}

    def run(self, name: str, which: list[int], what: str, part: float = 1.0) -> None:
        """Score a family on these folds, as far as this part of the time left goes."""
        clock = self._time_of(part)
        with progress.stage(f"{name}: {what}", self._done, 2 * len(self.families), _scores_so_far(self.scans)):
            found = self.ahead.scan(self.families[name], self.data, which, clock)
        if clock.cut:
            self.notes[name] = f"not every setting was run: {TOO_LATE}"
            self.clock.cut = True
        self._done += 1
        if np.isfinite(found.accuracy).any() and not np.isfinite(found.scores).any():
            raise InputError(f"it has no {found.measure.words}: it states no probabilities")
        if np.isfinite(found.scores).any():
            self.scans[name] = self.scans[name].joined(found) if name in self.scans else found
            self.clock.keep(self.scans[self.line()[0]].fit_seconds)
            self.data.kept["lead"] = self.first(self.line()[0])

    def begin(self, names: Iterable[str], which: list[int], part: float = 1.0, apart: bool = False) -> None:
        """Begin what `run` will be asked for, where there is a cluster to do it meanwhile."""
        scored = bool(self.scans)
        for name in names:
            clock = self.clock.share(part) if scored else Clock()  # as `_time_of`: the first in any case
            self.ahead.begin(self.families[name], self.data, which, clock, apart)
            scored = True

    def standings(self, folds: int, weighed: bool) -> list[Standing]:
        """A line a family; `weighed`: classes were, which not every family can do."""
        lines = []
        for name, scan in self.scans.items():
            uneven = UNWEIGHED if weighed and not weighs_classes(self.families[name]) else ""
            note = "; ".join(filter(None, (self.notes.get(name), uneven)))
            lines.append(standing_of(name, scan, note, folds))
        return lines

    def _time_of(self, part: float) -> Clock:
        """The clock of a step; something is scored in any case, however little time there is."""
        return self.clock.share(part) if self.scans else Clock()

    def skip(self) -> None:
        """A step that is not needed."""
        self._done += 1

    def line(self) -> list[str]:
        """Families by their best score on the first fold."""
        return sorted(self.scans, key=lambda name: -self.first(name))

    def first(self, name: str) -> float:
        """A family's best score on the first fold, higher is better."""
        return float(np.nanmax(self.scans[name].scores[0]))


def _every_fold(work: _Work, repeats: list[FoldedRows], curves: bool, spare: bool) -> None:
    """All stages, until Ctrl-C."""
    try:
        _first_fold(work)
        _other_folds(work, curves, spare)
        for number, again in enumerate(repeats):
            _again(work, again, number + 2)
    except KeyboardInterrupt:
        work.clock.interrupted = work.clock.cut = True
    finally:
        work.ahead.drop()


def _first_fold(work: _Work) -> None:
    """Every family on fold 0. Where nobody named them or gave a time, neighbours first: what they reach is kept as the
    `sight` of the others, which on a cluster are begun only then. On sparse rows neighbours are the slow ones (18,000
    questions: 16 s of processor time against 7 of machines) and come after, so that a few rows show if they can lead;
    machines are first there, the quick ones, which softmax has to beat.
    """
    names = list(work.families)
    if not work.whole or work.clock.budget is not None:
        _on_first_fold(work, names)
        return
    sparse, near = work.data.sparse, (NeighborsFamily, LearnedNeighborsFamily)
    first = [name for name in names if (name == MACHINES if sparse else isinstance(work.families[name], near))]
    _on_first_fold(work, first)
    if work.scans:
        lead = work.first(work.line()[0])
        work.data.kept["sight"] = lead + _luck(work, lead) - ALPHAS_APART if sparse else work.data.sight(lead)
    _on_first_fold(work, [name for name in names if name not in first])


def _luck(work: _Work, lead: float) -> float:
    """By how much softmax, or what is alike it, has to beat machines on the first fold: a standard error."""
    return work.data.far(lead) / 3


def _on_first_fold(work: _Work, names: list[str]) -> None:
    work.begin(names, [0], part=0.5)
    for name in names:
        if work.whole and (why := _out_of_sight(work, name)):
            work.idle[name] = why
            work.skip()
            continue
        if work.scans and work.clock.up():
            work.problems[name] = TOO_LATE
            continue
        try:
            work.run(name, [0], "fold 1", part=0.5)  # the first must not leave nothing to the others
        except KwayError as error:
            work.problems[name] = str(error)
            continue
        if name not in work.scans:
            late = work.notes.pop(name, TOO_LATE)
            work.problems[name] = TOO_LATE if TOO_LATE in late else late


def _other_folds(work: _Work, curves: bool, spare: bool) -> None:
    """The folds after the first; `spare`: nobody asked for a number of them, so they are spent where they decide."""
    rest = list(range(1, int(work.data.folds.max()) + 1))
    if not rest or not work.scans:
        return
    line, few = work.line(), work.data.pass_seconds() < QUICK_PASS
    drawn = _families_to_draw(work, line) if curves else set()
    losers = {name: why for name in line if name not in drawn and (why := _hopeless(work, name))}
    alone = spare and not few and len(losers) == len(line) - 1
    asked = rest[: ALONE - 1] if alone else rest
    work.begin([name for name in line if name not in losers], asked, apart=True)
    for name in line:
        if name in losers:
            work.notes[name] = f"{STOPPED} after fold 1 of {len(rest) + 1}: {losers[name]}"
            work.skip()
            continue
        if not work.clock.up():
            work.run(name, asked, f"folds 2 to {len(asked) + 1}")
        run = int(np.isfinite(work.scans[name].scores[:, work.scans[name].best]).sum())
        if run <= len(asked):
            work.notes[name] = f"the time was up after {run} of {len(rest) + 1} folds"
        elif alone:
            work.notes.setdefault(name, f"{run} of {len(rest) + 1} folds: no other family came near it")


def _again(work: _Work, data: FoldedRows, number: int) -> None:
    """The families that were run on every fold, on folds drawn anew."""
    work.data = data
    every = list(range(int(data.folds.max()) + 1))
    names = [name for name in work.scans if name not in work.notes]
    work.begin(names, every)
    for name in names:
        if work.clock.up():
            work.notes[name] = f"the time was up before draw {number} of the folds"
            continue
        work.run(name, every, f"folds, draw {number}")


def _hopeless(work: _Work, name: str) -> str:
    """Why a family is not run on more folds; "" where it is."""
    own, lead, shown = work.first(name), work.first(work.line()[0]), work.data.measure.shown
    scores = work.scans[name].scores[0]
    tried = int(np.isfinite(scores).sum())
    some = f", with {tried} of {len(scores)} settings" if tried < len(scores) else ""
    if own < lead - work.data.far(lead):
        return f"{shown(own):.3f} against {shown(lead):.3f}{some}"
    stands = MACHINES if MACHINES in work.scans else "softmax"  # of sparse rows the quick one, and as a rule the better
    if name not in (*ALIKE, "softmax") or name == stands or stands not in work.scans:
        return ""
    theirs = work.first(stands)
    if own > theirs + (_luck(work, lead) if stands == MACHINES else 0.0):
        return ""
    better = "hardly" if own > theirs else "no"
    return f"{shown(own):.3f}, {better} better than {stands}, which is alike and has {shown(theirs):.3f} there{some}"


def _out_of_sight(work: _Work, name: str) -> str:
    """Why a family that is alike softmax is not run at all; "" where it is."""
    if name not in ALIKE or "softmax" not in work.scans:
        return ""
    own, leader, shown = work.first("softmax"), work.line()[0], work.data.measure.shown
    lead = work.first(leader)
    if own >= lead - work.data.far(lead) - ALIKE_GAP:
        return ""
    return f"softmax, which is alike, has {shown(own):.3f} where {leader} has {shown(lead):.3f}; ask by name"


def _families_to_draw(work: _Work, line: list[str]) -> set[str]:
    """The best linear family, unless it takes long, and the best neighbours; of a line that has the best first."""
    quick = work.data.pass_seconds() < HEAVY
    linear = [n for n in line if isinstance(work.families[n], LinearFamily) and quick]
    near = [n for n in line if isinstance(work.families[n], NeighborsFamily)]
    return {*linear[:1], *near[:1]}


def _scores_so_far(scans: dict[str, Scan]) -> tuple[tuple[str, ...], ...]:
    """The families so far, best first: name, mean score of the best setting, folds."""
    scores = {name: scan.scores[:, scan.best] for name, scan in scans.items()}
    scores = {name: run[np.isfinite(run)] for name, run in scores.items()}
    best_first = sorted(scores, key=lambda name: -scores[name].mean())
    folds = {name: f"{len(run)} fold{'' if len(run) == 1 else 's'}" for name, run in scores.items()}
    shown = {name: scans[name].measure.shown(float(run.mean())) for name, run in scores.items()}
    return tuple((name, f"{shown[name]:.4f}", folds[name]) for name in best_first)


def _pick(families: str | Iterable[str | Family] | None) -> list[Family]:
    given = list(FAMILIES) if families is None else [families] if isinstance(families, str) else list(families)
    known = {**FAMILIES, STRAW_MAN.name: STRAW_MAN}
    unknown = [name for name in given if isinstance(name, str) and name not in known]
    if unknown or not given:
        raise InputError(f"families must be among {', '.join(FAMILIES)}; got {', '.join(map(str, unknown)) or 'none'}")
    return [known[name] if isinstance(name, str) else name for name in given]


def _rows(X: Any) -> Rows:
    import scipy.sparse as sp

    return X.tocsr() if sp.issparse(X) else plain_rows(X)
