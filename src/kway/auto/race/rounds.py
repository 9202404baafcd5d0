"""The race: all families start on a sample of the rows, the sample doubles, and families that cannot win leave.

    rounds      Every family learns from a sample of the rows outside fold 0 and is scored on fold 0. Each round doubles
                the sample. Once it contains all rows outside fold 0, rounds double the number of folds: 1, 2, 4, all.
                Without a blend, two folds are enough if all families but one have left.
    entry       A family enters a round if its expected seconds for all folds fit into the time left. They come from
                formulas (planning/costs.py). If the user gave a budget, the measured seconds of the previous round,
                scaled to the rows, replace them. Members of the blend are planned together, best first. The other
                families share the time that is left.
    leaving     A family leaves if the leader is ahead by more than 3 standard errors plus the gain that is possible for
                the family: its gain from the last doubling of the rows, once per doubling to come (paired.py). Settings
                of a family leave in the same way.
    members     A blend needs probabilities of all rows. So trees, the kernel softmax and the two best other families
                stay to the end if there will be a blend.
    end         When the budget is used up, or after Ctrl-C, the race stops before the next fit and keeps what it has.

Inside `kway.cluster(...)` the nodes of the cluster fit the families and folds of a round at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.race.clock import REPORT_SECONDS, Clock
from kway.auto.race.family import Family, Runner
from kway.auto.race.folds import ROWS_PER_CLASS, stratified_order
from kway.auto.race.paired import CLEAR, paired_difference
from kway.auto.race.scoring import ACCURACY, STOPPED, FoldedRows, LeaderboardRow, Measure, Predictions, leaderboard_row
from kway.confidence.splits import Split, splits_of
from kway.errors import InputError, KwayError
from kway.rows.cluster.session import current
from kway.rows.cluster.work import Task, begin, send

START_ROWS = 1000  # rows of the first sample: on fewer, families that need many rows look worse than they are
OTHERS_IN_BLEND = 2  # families besides trees and kernels that a blend can contain (benchmarks/tables.py)
ENOUGH_FOLDS = 2  # folds after which the race ends if one family is left (row T11)
TOO_LATE = "the time was up"
TOO_SLOW = "its planned time exceeds the budget"
NOT_WEIGHTED = "class weights have no effect: it learns each class from sums over its rows"


class Round(NamedTuple):
    """The number of rows outside a fold that families learn from, and the number of splits."""

    rows: int
    splits: int


def plan_rounds(n_outside: int, n_splits: int, n_classes: int) -> list[Round]:
    """Return the rounds of a race with `n_outside` rows outside fold 0 and `n_splits` splits.

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


class _Stage(NamedTuple):
    """A stage of the progress bar: its text, and the number of splits done before it and in all rounds."""

    text: str
    done: int
    total: int


class Store(Protocol):
    """Stores predictions, so that an interrupted race can be resumed (checkpoint.py)."""

    def get(self, key: str) -> Predictions | None:
        """Return the predictions stored under this key; None if there are none."""
        ...

    def put(self, key: str, predictions: Predictions) -> None:
        """Store predictions."""
        ...


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
        Measure that decides.
    clock : Clock
        Time of the job.
    blend : bool
        Whether there will be a blend.
    store : Store or None
        Stores the predictions, and has those of an interrupted run.
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
        self.weights = views[""].weights
        self.n_classes = int(self.codes.max()) + 1
        self.blend, self.store, self.on_round = blend, store, on_round
        self.splits = [split for each in folds for split in splits_of(each)]
        self.all_rows = len(self.splits[0].train)
        self.sample_order = stratified_order(self.codes, self.splits[0].train)  # samples are its first rows
        self.runners: dict[str, Runner] = {}
        self.problems: dict[str, str] = {}
        for name, family in families.items():
            data = views.get(family.view, views[""])
            settings = family.settings(data)
            self.runners[name] = Runner(family, data, settings, measure, list(range(len(settings))))
        self._executor = SplitExecutor()

    def run(self) -> None:
        """Run all rounds, until the time is up or the user presses Ctrl-C."""
        rounds = plan_rounds(self.all_rows, len(self.splits), self.n_classes)
        total = len(rounds) * len(self.runners) * len(self.splits)
        try:
            for number, each in enumerate(rounds):
                if each.splits > ENOUGH_FOLDS and self._is_decided():
                    self.runners[self._in_order()[0]].note = "no other family is left in the race"
                    break
                self._run_round(each, number * total // len(rounds), total)
                if self.on_round is not None and self.ranking():
                    self.on_round(self)
        except KeyboardInterrupt:
            self.clock.interrupted = self.clock.cut = True
        finally:
            self._executor.cancel()

    def _is_decided(self) -> bool:
        """Return whether all families but one have left; its setting is then that of the folds so far."""
        return not self.blend and len(self._in_order()) == 1 and len(self.scored()) > 1

    # ---- one round

    def _run_round(self, each: Round, done: int, total: int) -> None:
        """Let every family that enters learn the splits of a round; `done` of `total` splits come before it."""
        order = self._in_order()
        entering = self._entering(order) or self._fallback(order, each)
        splits = {name: self._missing(self.runners[name], each) for name in entering}
        self._executor.begin(self, each.rows, splits)
        for place, name in enumerate(entering):
            text = f"{name}: {each.rows:,} rows" + (f", {each.splits} folds" if each.splits > 1 else "")
            self._run(name, each.rows, splits[name], _Stage(text, done + place * len(self.splits), total))

    def _fallback(self, order: list[str], each: Round) -> list[str]:
        """Return the family that runs in a round that no family can enter: the best one with time for one more split.

        The first round has a family in any case.
        """
        remaining = [name for name in order if not self.runners[name].eliminated]
        names = [name for name in remaining if self.runners[name].split_seconds(each.rows) <= self.clock.left()][:1]
        names = names or ([] if self.ranking() else order[:1])
        for name in names:
            self.runners[name].out_of_time, self.runners[name].note = False, ""
        return names

    def _missing(self, runner: Runner, each: Round) -> range:
        """Return the numbers of the splits of a round that a family has not learned yet."""
        return range(len(runner.predictions) if runner.rows == each.rows else 0, each.splits)

    def _run(self, name: str, rows: int, splits: range, stage: _Stage) -> None:
        """Let a family learn some splits. An error that it raises eliminates it."""
        runner = self.runners[name]
        for count, split in enumerate(splits):
            if self.ranking() and self.clock.up(runner.split_seconds(rows)):
                self._end_early(runner)
                return
            left = self.clock.left()
            try:
                with progress.stage(stage.text, stage.done + count, stage.total, self._scores_so_far(), left):
                    predictions = self._predictions(name, rows, split)
                _check_measure(runner.measure, predictions, self._codes(split))
            except (KwayError, MemoryError) as error:
                self.problems[name], runner.eliminated = str(error) or "memory was too small", True
                return
            if not predictions.has_run.any():
                self._end_early(runner)
                return
            cost = self.clock.charge(runner.planned_seconds(rows), predictions.seconds)
            runner.add(predictions, self._codes(split), rows, cost)
        runner.drop_settings(self.all_rows)
        complete = [each for each in self.members() if self.runners[each].rows == self.all_rows]
        to_fit = complete or self.ranking()[:1]
        self.clock.reserve = REPORT_SECONDS + sum(self._final_seconds(each) for each in to_fit)

    def _end_early(self, runner: Runner) -> None:
        """End the race of a family because the time is up."""
        runner.out_of_time, runner.note = True, TOO_LATE
        self.clock.cut = True

    def held_out_rows(self, n_splits: int) -> NDArray[np.int64]:
        """Return the numbers of the held-out rows of the first splits, in this order."""
        return np.concatenate([split.held_out for split in self.splits[:n_splits]])

    def weights_of(self, n_splits: int) -> NDArray | None:
        """Return the weights of the held-out rows of the first splits, in this order; None without weights."""
        return None if self.weights is None else self.weights[self.held_out_rows(n_splits)]

    def _codes(self, split: int) -> NDArray[np.int64]:
        return self.codes[self.splits[split].held_out]

    def _predictions(self, name: str, rows: int, number: int) -> Predictions:
        """Return the predictions of a family on a split: stored ones, or those of the executor."""
        key = f"{name} {rows} {number}"
        stored = None if self.store is None else self.store.get(key)
        predictions = self._executor.fit_predict(self, name, rows, number) if stored is None else stored
        if stored is None and self.store is not None and predictions.has_run.any():
            self.store.put(key, predictions)
        return predictions.weighted(self.runners[name].data, self.splits[number].held_out)

    def split(self, rows: int, number: int) -> Split:
        """Return a split with this number of rows to learn from; only split 0 has samples."""
        split = self.splits[number]
        return split if rows >= self.all_rows else split._replace(train=np.sort(self.sample_order[:rows]))

    # ---- which families enter, and which leave

    def _entering(self, order: list[str]) -> list[str]:
        """Return the families that run in the next round.

        Members of the blend stay to the end, so they are planned together, best first: each leaves less time for the
        next one. The other families share the time that is left.
        """
        entering, members, planned = set[str](), self.members(), 0.0
        for name in [*members, *(name for name in order if name not in members)]:
            if self._enters(name, self.clock.left() - planned):
                entering.add(name)
                planned += self._remaining_seconds(name) if name in members else 0.0
        return [name for name in order if name in entering]

    def _enters(self, name: str, left: float) -> bool:
        """Return whether a family runs in the next round if `left` seconds are left for it."""
        runner = self.runners[name]
        if runner.predictions and (reason := self._reason_to_leave(name)):
            runner.eliminated, runner.note = True, f"{STOPPED} after {self._progress(runner)}: {reason}"
            return False
        if self._remaining_seconds(name) <= left:
            return True
        runner.out_of_time, runner.note = True, TOO_SLOW
        if runner.predictions:
            runner.note += f"; {self._progress(runner)}"
            self.clock.cut = True
        return False

    def _remaining_seconds(self, name: str) -> float:
        """Return the expected seconds of a family until the end: all splits with all rows, and the final fits."""
        runner = self.runners[name]
        done = len(runner.predictions) if runner.rows == self.all_rows else 0
        final = 0.0 if done else self._final_seconds(name)  # the reserve of the clock contains it once a split is done
        return (len(self.splits) - done) * runner.split_seconds(self.all_rows) + final

    def _progress(self, runner: Runner) -> str:
        """Return how many rows and folds a family has learned from, in words."""
        if runner.rows < self.all_rows:
            return f"learning from {runner.rows:,} of {self.all_rows:,} rows"
        return f"fold {len(runner.predictions)} of {len(self.splits)}"

    def _reason_to_leave(self, name: str) -> str:
        """Return why a family cannot win any more; "" if it can, or if it stays for the blend."""
        leader = self.ranking()[0]
        if name == leader or name in self.members():
            return ""
        runner, lead = self.runners[name], self.runners[leader]
        common = min(len(runner.predictions), len(lead.predictions))
        difference = paired_difference(lead.per_row(n_splits=common), runner.per_row(n_splits=common))
        if not difference.exceeds(runner.possible_gain(self.all_rows)):
            return ""
        shown = runner.measure.shown
        return f"{shown(runner.score):.3f}, and {leader} has {shown(lead.score):.3f}"

    def members(self) -> list[str]:
        """Return the families that a blend may contain, best first; without scores, in the order of the first round."""
        if not self.blend:
            return []
        ranking = self.ranking() or self._in_order()
        others = [name for name in ranking if not self.runners[name].family.for_blend][:OTHERS_IN_BLEND]
        return [name for name in ranking if self.runners[name].family.for_blend or name in others]

    def _final_seconds(self, name: str) -> float:
        """Return the expected seconds of the fits after the race: one on all rows, and those for probabilities.

        For a blend, these are one fit per fold if the setting was chosen among several. For a single family, one fit
        gives the temperature.
        """
        for_probabilities = 1
        if self.blend:
            for_probabilities = len(self.splits) if len(self.runners[name].settings) > 1 else 0
        return (1 + for_probabilities) * self.fit_seconds(name)

    def fit_seconds(self, name: str) -> float:
        """Return the expected seconds of one fit of a family on all rows, with one setting."""
        runner = self.runners[name]
        n_fits = runner.family.planned_fits()
        if not self.clock.in_planned_seconds:  # the measured seconds are those of the active settings
            n_fits = min(n_fits, len(runner.active))
        return runner.split_seconds(len(self.codes)) / n_fits

    # ---- order

    def _in_order(self) -> list[str]:
        """Return the families that may still run: those with scores best first, then the others."""
        ranking = self.ranking()
        names = ranking + [name for name in self.runners if name not in ranking]
        return [name for name in names if not self.runners[name].eliminated and not self.runners[name].out_of_time]

    def ranking(self) -> list[str]:
        """Return the families that have scores and are not eliminated, best first; more rows come before fewer."""
        names = [name for name, runner in self.runners.items() if runner.predictions and not runner.eliminated]
        return sorted(names, key=lambda name: (-self.runners[name].rows, -self.runners[name].score))

    def scored(self) -> dict[str, Runner]:
        """Return the families that have scores, eliminated ones included."""
        return {
            name: runner for name, runner in self.runners.items() if runner.predictions and name not in self.problems
        }

    def leaderboard(self, weighted: bool) -> list[LeaderboardRow]:
        """Return one row per family, the winner first.

        With `weighted`, the user has passed class weights, and families that ignore them get a note.
        """
        ranked = sorted(self.scored().items(), key=lambda item: item[1].rank_key, reverse=True)
        winner = _winner([runner for _, runner in ranked])
        ranked.sort(key=lambda item: item[1] is not winner)  # stable: only the winner moves
        rows = []
        for name, runner in ranked:
            not_weighted = NOT_WEIGHTED if weighted and not runner.family.weighs_classes else ""
            note = "; ".join(filter(None, (runner.note, not_weighted)))
            rows.append(leaderboard_row(name, runner.scan, note, len(self.splits)))
        return rows

    def _scores_so_far(self) -> tuple[tuple[str, ...], ...]:
        """Return name, score and progress of each family, best first."""
        runners = [(name, self.runners[name]) for name in self.ranking()]
        return tuple((name, f"{each.measure.shown(each.score):.4f}", self._progress(each)) for name, each in runners)


def _winner(ranked: list[Runner]) -> Runner:
    """Return the winner among families, of which the first has the best score.

    With accuracy as the measure, it is the family with the lowest log loss among those whose paired difference to the
    best one is not significant. Only families that learned from as many rows and folds are compared.
    """
    best = ranked[0]
    if best.measure is not ACCURACY:
        return best
    extent = best.rows, len(best.predictions)
    rivals = [each for each in ranked if (each.rows, len(each.predictions)) == extent]
    similar = [each for each in rivals if not paired_difference(best.per_row(), each.per_row()).exceeds(errors=CLEAR)]
    return min(similar, key=lambda each: each.loss)


def _check_measure(measure: Measure, predictions: Predictions, codes: NDArray[np.int64]) -> None:
    """Raise InputError if a measure needs probabilities that a family does not have."""
    if predictions.has_run.any() and not np.isfinite(measure.of(predictions, codes)).any():
        raise InputError(f"it has no {measure.words}, because it gives no probabilities")


# ---- where splits are learned


class SplitExecutor:
    """Learns splits in this process, or on the nodes of a cluster if there is one."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int, int], Task] = {}
        self._sent_rows: dict[int, Any] = {}  # rows sent to the cluster, by identity

    def begin(self, race: Race, rows: int, splits: dict[str, range]) -> None:
        """Begin the splits of a round on the cluster; without a cluster, do nothing."""
        if current() is None:
            return
        left = race.clock.real_seconds()
        deadline = None if not np.isfinite(left) or not race.ranking() else time.time() + left
        for name, numbers in splits.items():
            runner = race.runners[name]
            if id(runner.data.X) not in self._sent_rows:
                self._sent_rows[id(runner.data.X)] = send(runner.data)
            sent = self._sent_rows[id(runner.data.X)]
            for number in numbers:
                arguments = runner.family, sent, race.split(rows, number), runner.settings, runner.active, deadline
                self._tasks[name, rows, number] = begin(_fit_predict_on_node, *arguments)

    def fit_predict(self, race: Race, name: str, rows: int, number: int) -> Predictions:
        """Return the predictions of a split that was begun on the cluster, or learn it now."""
        if (name, rows, number) in self._tasks:
            predictions: Predictions = self._tasks.pop((name, rows, number)).result()
            return predictions
        runner, split = race.runners[name], race.split(rows, number)
        is_first = not race.ranking()  # the first family is scored even if the time is up
        stop = (lambda: False) if is_first else race.clock.pace(len(runner.active))
        return runner.family.fit_predict(runner.data, split, runner.settings, runner.active, stop)

    def cancel(self) -> None:
        """Cancel all running tasks."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks, self._sent_rows = {}, {}


def _fit_predict_on_node(
    family: Family,
    data: FoldedRows,
    split: Split,
    settings: list[dict[str, Any]],
    active: list[int],
    deadline: float | None,
) -> Predictions:
    """Learn a split on a node of the cluster; `deadline` is the time of day at which the time is up."""
    return family.fit_predict(data, split, settings, active, lambda: deadline is not None and time.time() > deadline)
