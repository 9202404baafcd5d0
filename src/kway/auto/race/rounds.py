"""The race: all families start on a sample of the rows, the sample doubles, and families that cannot win leave.

    rounds      a family learns from a sample of the rows outside fold 0 and is scored on fold 0. Each round doubles the
                sample. When it has all rows outside fold 0, further rounds double the number of folds: 1, 2, 4, all
    enter       a family enters a round if its seconds for all folds fit into the time left. They come from formulas
                (planning/costs.py); if the user gave a budget, after its first round from the measured time, scaled to
                the rows of the next round. Families that stay to the end for the blend are planned together, the best
                first; the others share what these leave
    leave       a family leaves if the leader is better by more than 3 standard errors plus the room that the family has
                left: its own gain from the last doubling times the doublings left (paired.py). Settings of a family
                leave in the same way
    stay        if there will be a blend, trees, the kernel softmax and the two best other families stay to the end,
                because a blend needs their probabilities of all rows
    end         the budget or Ctrl-C ends the race between fits; the predictions so far are kept

Inside `kway.cluster(...)` the nodes work on the families and folds of a round at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.race.clock import REPORT_SECONDS, Clock
from kway.auto.race.families import COLD_FITS, Family
from kway.auto.race.folds import ROWS_PER_CLASS, Split, stratified_order
from kway.auto.race.paired import CLEAR, paired_difference
from kway.auto.race.scoring import (
    ACCURACY,
    STOPPED,
    FoldedRows,
    LeaderboardRow,
    Measure,
    Predictions,
    Scan,
    leaderboard_row,
)
from kway.errors import InputError, KwayError
from kway.rows.cluster.session import current
from kway.rows.cluster.work import Task, begin, send

START_ROWS = 1000  # rows of the first sample at least: fewer would tell little about families that need rows (T11)
OTHERS_IN_BLEND = 2  # families besides trees and kernels that a blend can contain (tables)
TOO_LATE = "the time was up"
TOO_SLOW = "its planned time exceeds the budget"
NOT_WEIGHTED = "class weights have no effect: it learns each class from sums over its rows"


class Round(NamedTuple):
    """How many rows outside a fold are learned from, and on how many splits."""

    rows: int
    splits: int


def plan_rounds(n_outside: int, n_splits: int, n_classes: int) -> list[Round]:
    """Return the rounds of a race.

    >>> plan_rounds(4000, 5, 10)
    [Round(rows=1000, splits=1), Round(rows=2000, splits=1), Round(rows=4000, splits=1), Round(rows=4000, splits=2),
     Round(rows=4000, splits=4), Round(rows=4000, splits=5)]
    """
    sizes = [n_outside]
    while sizes[0] // 2 >= max(START_ROWS, ROWS_PER_CLASS * n_classes):
        sizes.insert(0, sizes[0] // 2)
    counts = [1]
    while counts[-1] < n_splits:
        counts.append(min(2 * counts[-1], n_splits))
    return [*(Round(size, 1) for size in sizes[:-1]), *(Round(n_outside, count) for count in counts)]


class _Place(NamedTuple):
    """The place of a family in the progress bar: what it does, the families before it in all rounds, all rounds."""

    what: str
    done: int
    rounds: int


class Store(Protocol):
    """Keeps predictions, so that an interrupted race can be resumed (checkpoint.py)."""

    def get(self, key: str) -> Predictions | None:
        """Return stored predictions, if there are any."""
        ...

    def put(self, key: str, predictions: Predictions) -> None:
        """Store predictions."""
        ...


@dataclass
class Runner:
    """A family in the race: its settings, and its predictions on the splits so far."""

    family: Family
    data: FoldedRows
    settings: list[dict[str, Any]]
    measure: Measure
    wanted: list[int]  # settings that are still run
    predictions: list[Predictions] = field(default_factory=list)  # one per split, learned from `rows` rows
    codes: list[NDArray[np.int64]] = field(default_factory=list)  # of the held-out rows of these splits
    rows: int = 0
    gain: float = np.inf  # of the score by the last doubling of the rows
    seconds: float = 0.0  # of all splits so far
    cost: float = 0.0  # of the last split, in the seconds of the clock
    note: str = ""
    beaten: bool = False  # it left the race, or raised an error
    late: bool = False  # there was no time for it
    _scan: Scan | None = None

    def add(self, predictions: Predictions, codes: NDArray[np.int64], rows: int, cost: float = 0.0) -> None:
        """Add the predictions of one split; those learned from fewer rows are replaced."""
        before = self.score if self.predictions and rows > self.rows else None
        if rows > self.rows:
            self.predictions, self.codes, self.rows = [], [], rows
        self.predictions.append(predictions)
        self.codes.append(codes)
        self.seconds += predictions.seconds
        self._scan, self.cost = None, cost
        if before is not None:
            self.gain = max(0.0, self.score - before)

    def add_folds(self, stop: Callable[[], bool]) -> None:
        """Learn every setting outside each fold of the data, until `stop()` is true."""
        for fold in range(self.data.n_folds):
            inside = self.data.folds == fold
            split = Split(np.flatnonzero(~inside), np.flatnonzero(inside))
            predictions = self.family.fit_predict(self.data, split, self.settings, self.wanted, stop)
            if predictions.run.any():
                self.add(predictions, self.data.codes[inside], len(self.data.codes))

    @property
    def scan(self) -> Scan:
        """The scores of all settings, with the chosen one."""
        if self._scan is None:
            pairs = list(zip(self.predictions, self.codes))
            scores = np.array([self.measure.of(predictions, codes) for predictions, codes in pairs])
            accuracy = np.array([ACCURACY.of(predictions, codes) for predictions, codes in pairs])
            losses = np.array([predictions.loss() for predictions in self.predictions])
            best = self._choose(scores.mean(axis=0), losses.mean(axis=0))
            self._scan = Scan(self.settings, accuracy, losses, scores, self.measure, best, self.rows, self.seconds)
        return self._scan

    def _choose(self, scores: NDArray, losses: NDArray) -> int:
        """Return the best setting: of those within one standard error of the best score, the lowest log loss wins.

        Without log losses it is the one that is listed first. A measure other than accuracy decides alone.
        """
        first = int(np.nanargmax(scores))
        if self.measure is not ACCURACY:
            return first
        best, run = self.per_row(first), np.flatnonzero(np.isfinite(scores)).tolist()
        close = [at for at in run if not paired_difference(best, self.per_row(at)).exceeds(errors=1.0)]
        return min(close, key=lambda at: (losses[at] if np.isfinite(losses[at]) else np.inf, at))

    @property
    def score(self) -> float:
        """The mean score of the chosen setting; higher is better."""
        return float(self.scan.scores[:, self.scan.best].mean())

    @property
    def loss(self) -> float:
        """The mean log loss of the chosen setting; infinite without probabilities."""
        loss = float(self.scan.log_loss[:, self.scan.best].mean())
        return loss if np.isfinite(loss) else np.inf

    @property
    def finish(self) -> tuple[Any, ...]:
        """How far it came, and its scores; greater is better."""
        return not self.note.startswith(STOPPED), self.rows, len(self.predictions), self.score, -self.loss

    def per_row(self, at: int | None = None, splits: int | None = None, measure: Measure | None = None) -> NDArray:
        """Return the measure per held-out row of some splits, for one setting, by default the chosen one."""
        at, measure = self.scan.best if at is None else at, measure or self.measure
        some = list(zip(self.predictions, self.codes))[:splits]
        return np.concatenate([measure.per_row(a.predicted[:, at], a.losses[:, at], codes) for a, codes in some])

    def room(self, all_rows: int) -> float:
        """Return how much the family may still gain from more rows."""
        doublings = np.log2(all_rows / self.rows)
        return self.gain * doublings if doublings > 0 else 0.0

    def drop_settings(self, all_rows: int) -> None:
        """Leave out settings that are clearly worse than the best one."""
        best, room = self.per_row(), self.room(all_rows)
        self.wanted = [at for at in self.wanted if not paired_difference(best, self.per_row(at)).exceeds(room)]

    def planned_seconds(self, rows: int) -> float:
        """Return the seconds of one split with so many rows, by the formula of the family."""
        return self.family.planned_seconds(self.data.size(rows))

    def split_seconds(self, rows: int) -> float:
        """Return the expected seconds of one split with so many rows.

        The cost of the last split is scaled, or shifted, by the formula: compiling kernels does not grow with the rows.
        """
        planned = self.planned_seconds(rows)
        if not self.predictions:
            return planned
        before = self.planned_seconds(self.rows)
        return min(self.cost * planned / before, self.cost + max(0.0, planned - before))


class Race:
    """A running comparison of families.

    Parameters
    ----------
    views : mapping of str to FoldedRows
        The views of the rows by name; "" is the main one.
    folds : list of ndarray of shape (n,)
        The folds, once per repeat.
    families : dict of str to Family
        Families in the order of the first round.
    measure : Measure
        Measure that the choice is made by.
    clock : Clock
        Time of the job.
    blend : bool
        Whether there will be a blend.
    store : Store or None
        Keeps the predictions of an earlier run.
    on_round : callable or None
        Called with this object after each round.
    """

    def __init__(
        self,
        views: Mapping[str, FoldedRows],
        folds: list[NDArray[np.int64]],
        families: dict[str, Family],
        measure: Measure,
        clock: Clock,
        blend: bool = False,
        store: Store | None = None,
        on_round: Callable[[Race], None] | None = None,
    ) -> None:
        self.codes, self.folds, self.clock = views[""].codes, folds[0], clock
        self.n_classes = int(self.codes.max()) + 1
        self.blend, self.store, self.on_round = blend, store, on_round
        self.splits = [
            Split(np.flatnonzero(each != fold), np.flatnonzero(each == fold))
            for each in folds for fold in range(int(each.max()) + 1)
        ]  # fmt: skip
        self.all_rows = len(self.splits[0].train)
        self.order = stratified_order(self.codes, self.splits[0].train)  # its beginning is the sample
        self.runners: dict[str, Runner] = {}
        self.problems: dict[str, str] = {}
        for name, family in families.items():
            data = views.get(family.view, views[""])
            settings = family.settings(data)
            self.runners[name] = Runner(family, data, settings, measure, list(range(len(settings))))
        self._nodes = Nodes()

    def run(self) -> None:
        """Run all rounds, until the time is up or the user presses Ctrl-C."""
        rounds = plan_rounds(self.all_rows, len(self.splits), self.n_classes)
        try:
            for number, each in enumerate(rounds):
                self._run_round(each, number, len(rounds))
                if self.on_round is not None and self.ranking():
                    self.on_round(self)
        except KeyboardInterrupt:
            self.clock.interrupted = self.clock.cut = True
        finally:
            self._nodes.cancel()

    # ---- one round

    def _run_round(self, each: Round, number: int, rounds: int) -> None:
        """Let every family that enters learn the splits of a round."""
        order = self._in_order()
        entering = self._entering(order) or self._last_hope(order, each)
        splits = {name: self._missing(self.runners[name], each) for name in entering}
        self._nodes.begin(self, each.rows, splits)
        for place, name in enumerate(entering):
            what = f"{name}: {each.rows:,} rows" + (f", {each.splits} folds" if each.splits > 1 else "")
            self._run(name, each.rows, splits[name], _Place(what, number * len(self.runners) + place, rounds))

    def _last_hope(self, order: list[str], each: Round) -> list[str]:
        """Return a family for a round that no plan fits: the best one that has time for one more split.

        The first round has one in any case.
        """
        fits = lambda name: self.runners[name].split_seconds(each.rows) <= self.clock.left()  # noqa: E731
        entering = [name for name in order if not self.runners[name].beaten and fits(name)][:1]
        entering = entering or ([] if self.ranking() else order[:1])
        for name in entering:
            self.runners[name].late, self.runners[name].note = False, ""
        return entering

    def _missing(self, runner: Runner, each: Round) -> range:
        return range(len(runner.predictions) if runner.rows == each.rows else 0, each.splits)

    def _run(self, name: str, rows: int, splits: range, place: _Place) -> None:
        """Let a family learn some splits; an error that it raises ends its race."""
        runner, folds = self.runners[name], len(self.splits)
        for count, split in enumerate(splits):
            if self.ranking() and self.clock.up(runner.split_seconds(rows)):
                self._late(runner)
                return
            done, of = place.done * folds + count, place.rounds * len(self.runners) * folds
            try:
                with progress.stage(place.what, done, of, self._scores_so_far(), self.clock.left()):
                    predictions = self._predictions(name, rows, split)
                if predictions.run.any() and not np.isfinite(runner.measure.of(predictions, self._codes(split))).any():
                    words = runner.measure.words
                    raise InputError(f"it has no {words}, because it gives no probabilities")
            except (KwayError, MemoryError) as error:
                self.problems[name], runner.beaten = str(error) or "memory was too small", True
                return
            if not predictions.run.any():
                self._late(runner)
                return
            cost = self.clock.charge(runner.planned_seconds(rows), predictions.seconds)
            runner.add(predictions, self._codes(split), rows, cost)
        runner.drop_settings(self.all_rows)
        kept = [each for each in self.members() if self.runners[each].rows == self.all_rows] or self.ranking()[:1]
        self.clock.reserve = REPORT_SECONDS + sum(self._ending_seconds(each) for each in kept)

    def _late(self, runner: Runner) -> None:
        runner.late, runner.note = True, TOO_LATE
        self.clock.cut = True

    def _codes(self, split: int) -> NDArray[np.int64]:
        return self.codes[self.splits[split].held_out]

    def _predictions(self, name: str, rows: int, number: int) -> Predictions:
        """Return what a family predicts on a split: as stored, from a node of the cluster, or computed now."""
        key = f"{name} {rows} {number}"
        stored = None if self.store is None else self.store.get(key)
        if stored is not None:
            return stored
        predictions = self._nodes.fit_predict(self, name, rows, number)
        if self.store is not None and predictions.run.any():
            self.store.put(key, predictions)
        return predictions

    def split(self, rows: int, number: int) -> Split:
        """Return a split with so many rows to learn from; only the first one has samples."""
        split = self.splits[number]
        return split if rows >= self.all_rows else split._replace(train=np.sort(self.order[:rows]))

    # ---- who enters, and who leaves

    def _entering(self, order: list[str]) -> list[str]:
        """Return the families that run in the next round.

        Families that stay to the end for the blend are planned together: each leaves less time for those after it.
        """
        entering, members, planned = set[str](), self.members(), 0.0
        stay = [name for name in order if name in members or (self.blend and self.runners[name].family.for_blend)]
        for name in [*stay, *(name for name in order if name not in stay)]:
            if self._enters(name, self.clock.left() - planned):
                entering.add(name)
                planned += self._planned_seconds(name) if name in stay else 0.0
        return [name for name in order if name in entering]

    def _enters(self, name: str, left: float) -> bool:
        """Return whether a family runs in the next round, if so many seconds are left for it."""
        runner = self.runners[name]
        if runner.predictions and (why := self._why_it_leaves(name)):
            runner.beaten, runner.note = True, f"{STOPPED} after {self._learned(runner)}: {why}"
            return False
        if self._planned_seconds(name) > left:
            runner.late, runner.note = True, f"{TOO_SLOW}; {self._learned(runner)}" if runner.predictions else TOO_SLOW
            self.clock.cut = self.clock.cut or bool(runner.predictions)
            return False
        return True

    def _planned_seconds(self, name: str) -> float:
        """Return the expected seconds of a family until the end: all folds of all rows, and the fits after the race."""
        runner = self.runners[name]
        done = len(runner.predictions) if runner.rows == self.all_rows else 0
        ending = 0.0 if done else self._ending_seconds(name)  # else it is part of the reserve
        return (len(self.splits) - done) * runner.split_seconds(self.all_rows) + ending

    def _learned(self, runner: Runner) -> str:
        """Return from how many rows and folds a family has learned, in words."""
        if runner.rows < self.all_rows:
            return f"learning from {runner.rows:,} of {self.all_rows:,} rows"
        return f"fold {len(runner.predictions)} of {len(self.splits)}"

    def _why_it_leaves(self, name: str) -> str:
        """Return why a family cannot win any more; "" if it can, or if a blend may contain it."""
        leader = self.ranking()[0]
        if name == leader or name in self.members():
            return ""
        own, lead = self.runners[name], self.runners[leader]
        common = min(len(own.predictions), len(lead.predictions))
        difference = paired_difference(lead.per_row(splits=common), own.per_row(splits=common))
        if not difference.exceeds(own.room(self.all_rows)):
            return ""
        shown = own.measure.shown
        return f"{shown(own.score):.3f}, and {leader} has {shown(lead.score):.3f}"

    def members(self) -> list[str]:
        """Return the families in the race that a blend may contain, best first."""
        if not self.blend:
            return []
        ranking = self.ranking()
        others = [name for name in ranking if not self.runners[name].family.for_blend][:OTHERS_IN_BLEND]
        return [name for name in ranking if self.runners[name].family.for_blend or name in others]

    def _ending_seconds(self, name: str) -> float:
        """Return the expected seconds of a family after the race: a fit on all rows, and those for its probabilities.

        A blend needs one per fold if the setting was chosen among several, a single family one for its temperature.
        """
        again = 1 if not self.blend else len(self.splits) if len(self.runners[name].settings) > 1 else 0
        return (1 + again) * self.fit_seconds(name)

    def fit_seconds(self, name: str) -> float:
        """Return the expected seconds of one fit on all rows, of one setting."""
        runner = self.runners[name]
        return runner.split_seconds(len(self.codes)) / max(1, min(COLD_FITS, len(runner.wanted)))

    # ---- order

    def _in_order(self) -> list[str]:
        """Return the families that may run: those with scores best first, then the others."""
        ranking = self.ranking()
        names = ranking + [name for name in self.runners if name not in ranking]
        return [name for name in names if not self.runners[name].beaten and not self.runners[name].late]

    def ranking(self) -> list[str]:
        """Return the families that have scores and are not beaten, best first; more rows come before fewer."""
        there = [name for name, each in self.runners.items() if each.predictions and not each.beaten]
        return sorted(there, key=lambda name: (-self.runners[name].rows, -self.runners[name].score))

    def scored(self) -> dict[str, Runner]:
        """Return the families that have scores, in the race or not."""
        return {name: each for name, each in self.runners.items() if each.predictions and name not in self.problems}

    def leaderboard(self, weighted: bool) -> list[LeaderboardRow]:
        """Return a row per family, the winner first; `weighted`: the user asked for class weights."""
        found = sorted(self.scored().items(), key=lambda item: item[1].finish, reverse=True)
        winner = self._winner([each for _, each in found])
        found.sort(key=lambda item: item[1] is not winner)  # stable
        rows = []
        for name, each in found:
            same = NOT_WEIGHTED if weighted and not each.family.weighs_classes else ""
            note = "; ".join(filter(None, (each.note, same)))
            rows.append(leaderboard_row(name, each.scan, note, len(self.splits)))
        return rows

    def _winner(self, found: list[Runner]) -> Runner:
        """Return the best family. If accuracy decides, it is the lowest log loss among those that are hardly behind.

        Hardly behind are families whose paired difference to the best one is not significant.
        """
        best = found[0]
        if best.measure is not ACCURACY:
            return best
        close = [best]
        for each in found[1:]:
            common = min(len(each.predictions), len(best.predictions))
            alike = each.rows == best.rows and len(each.predictions) == len(best.predictions)
            if alike and not paired_difference(
                best.per_row(splits=common), each.per_row(splits=common)
            ).exceeds(errors=CLEAR):  # fmt: skip
                close.append(each)
        return min(close, key=lambda each: each.loss)

    def _scores_so_far(self) -> tuple[tuple[str, ...], ...]:
        """Return the families so far, best first: name, score of the chosen setting, what it learned from."""
        shown = {name: self.runners[name].measure.shown(self.runners[name].score) for name in self.ranking()}
        return tuple((name, f"{score:.4f}", self._learned(self.runners[name])) for name, score in shown.items())


# ---- splits on a cluster


class Nodes:
    """Splits that the nodes of a cluster learn in advance; without a cluster they are learned in this process."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, int, int], Task] = {}
        self._sent_rows: dict[int, Any] = {}  # rows sent to the cluster, by identity

    def begin(self, race: Race, rows: int, splits: dict[str, range]) -> None:
        """Begin the splits of a round if there is a cluster."""
        if current() is None:
            return
        left = race.clock.real_seconds()
        until = None if not np.isfinite(left) or not race.ranking() else time.time() + left
        for name, numbers in splits.items():
            runner = race.runners[name]
            if id(runner.data.X) not in self._sent_rows:
                self._sent_rows[id(runner.data.X)] = send(runner.data)
            sent = self._sent_rows[id(runner.data.X)]
            for number in numbers:
                task = runner.family, sent, race.split(rows, number), runner.settings, runner.wanted, until
                self._calls[name, rows, number] = begin(_fit_predict_on_node, *task)

    def fit_predict(self, race: Race, name: str, rows: int, number: int) -> Predictions:
        """Return the predictions of a split that was begun, or learn it now."""
        if (name, rows, number) in self._calls:
            predictions: Predictions = self._calls.pop((name, rows, number)).result()
            return predictions
        runner, split = race.runners[name], race.split(rows, number)
        first = not race.ranking()  # the first family is scored even if the time is up
        stop = (lambda: False) if first else race.clock.pace(len(runner.wanted))
        return runner.family.fit_predict(runner.data, split, runner.settings, runner.wanted, stop)

    def cancel(self) -> None:
        """Cancel all running calls."""
        for call in self._calls.values():
            call.cancel()
        self._calls, self._sent_rows = {}, {}


def _fit_predict_on_node(
    family: Family,
    data: FoldedRows,
    split: Split,
    settings: list[dict[str, Any]],
    wanted: list[int],
    until: float | None,
) -> Predictions:
    """Learn a split on a node of the cluster; `until` is the time of day at which the time is up."""
    return family.fit_predict(data, split, settings, wanted, lambda: until is not None and time.time() > until)
