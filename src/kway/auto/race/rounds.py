"""The rounds of a comparison: which families run on which folds, and when a family is stopped.

    fold 0        all families. If the user named none and gave no budget, neighbors (on sparse rows: SVMs) run first.
                  Their score tells a path of alphas when to give up, and if softmax is far behind, similar families
                  are skipped
    other folds   the families that may still win: their best setting on fold 0 is at most `largest_lag` behind the
                  leader (scoring.py). Among similar linear families only the best one goes on
    repeats       the same families on other folds

The budget and Ctrl-C end the work between fits. The scores so far are kept.

Inside `kway.cluster(...)` the nodes score families, and folds of a family, at the same time (`RemoteScans`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kway import progress
from kway.auto.race.clock import Clock
from kway.auto.race.families import LIKE_SOFTMAX, SPARSE_SVM, Family
from kway.auto.race.neighbor_families import NcaNeighborsFamily, NeighborsFamily
from kway.auto.race.scoring import STOPPED, FoldedRows, LeaderboardRow, Scan, leaderboard_row
from kway.errors import InputError, KwayError
from kway.rows.cluster.session import current
from kway.rows.cluster.work import Task, begin, send

_FAR_BEHIND = 0.1  # on top of twice the largest lag: no other alpha, and no similar family, reaches the leader (T11)
TOO_LATE = "the time was up"
NOT_WEIGHTED = "class weights have no effect: it learns each class from sums over its rows"


class Rounds:
    """A running comparison: the scans so far, and why families were stopped or skipped."""

    def __init__(self, data: FoldedRows, families: dict[str, Family], clock: Clock, may_skip: bool) -> None:
        self.data, self.families, self.clock = data, families, clock
        self.may_skip = may_skip  # the user named no families
        self._done = 0
        self._remote = RemoteScans()
        self.scans: dict[str, Scan] = {}
        self.notes: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        self.skipped: dict[str, str] = {}

    def run_all(self, repeats: list[FoldedRows]) -> None:
        """Run all rounds, until the time is up or the user presses Ctrl-C."""
        try:
            self._first_fold()
            self._other_folds()
            for number, again in enumerate(repeats):
                self._repeat(again, number + 2)
        except KeyboardInterrupt:
            self.clock.interrupted = self.clock.cut = True
        finally:
            self._remote.cancel()

    def leaderboard(self, n_folds: int, weighted: bool) -> list[LeaderboardRow]:
        """Return a row per family; `weighted`: the user asked for class weights, which not every family has."""
        rows = []
        for name, scan in self.scans.items():
            same = NOT_WEIGHTED if weighted and not self.families[name].weighs_classes else ""
            note = "; ".join(filter(None, (self.notes.get(name), same)))
            rows.append(leaderboard_row(name, scan, note, n_folds))
        return rows

    # ---- one step

    def _run(self, name: str, which: list[int], what: str, part: float = 1.0) -> None:
        """Score a family on these folds, using at most this part of the time left."""
        clock = self._clock_of(part)
        with progress.stage(f"{name}: {what}", self._done, 2 * len(self.families), _scores_so_far(self.scans)):
            found = self._remote.scan(self.families[name], self.data, which, clock)
        if clock.cut:
            self.notes[name] = f"not every setting was run: {TOO_LATE}"
            self.clock.cut = True
        self._done += 1
        if np.isfinite(found.accuracy).any() and not np.isfinite(found.scores).any():
            raise InputError(f"it has no {found.measure.words}, because it gives no probabilities")
        if np.isfinite(found.scores).any():
            self.scans[name] = self.scans[name].joined(found) if name in self.scans else found
            self.clock.keep(self.scans[self._ranking()[0]].fit_seconds)

    def _begin(self, names: Iterable[str], which: list[int], part: float = 1.0, apart: bool = False) -> None:
        """Start scans on the cluster, if there is one."""
        scored = bool(self.scans)
        for name in names:
            clock = self.clock.share(part) if scored else Clock()  # as in `_clock_of`
            self._remote.begin(self.families[name], self.data, which, clock, apart)
            scored = True

    def _clock_of(self, part: float) -> Clock:
        """Return the clock of a step; the first family is scored even if the time is up."""
        return self.clock.share(part) if self.scans else Clock()

    def _ranking(self) -> list[str]:
        """Return the families, best score on fold 0 first."""
        return sorted(self.scans, key=lambda name: -self._first_score(name))

    def _first_score(self, name: str) -> float:
        """Return the best score of a family on fold 0; higher is better."""
        return float(np.nanmax(self.scans[name].scores[0]))

    def _floor(self, lead: float) -> float:
        """Return the score below which no other setting and no similar family reaches the leader."""
        return lead - 2 * self.data.largest_lag(lead) - _FAR_BEHIND

    # ---- the rounds

    def _first_fold(self) -> None:
        """Score every family on fold 0."""
        names = list(self.families)
        if not self.may_skip or self.clock.budget is not None:
            self._on_first_fold(names)
            return
        sparse, near = self.data.sparse, (NeighborsFamily, NcaNeighborsFamily)
        first = [name for name in names if (name == SPARSE_SVM if sparse else isinstance(self.families[name], near))]
        self._on_first_fold(first)
        if self.scans:
            self.data.cache["floor"] = self._floor(self._first_score(self._ranking()[0]))
        self._on_first_fold([name for name in names if name not in first])

    def _on_first_fold(self, names: list[str]) -> None:
        self._begin(names, [0], part=0.5)
        for name in names:
            if self.may_skip and (why := self._softmax_far_behind(name)):
                self.skipped[name] = why
                self._done += 1
                continue
            if self.scans and self.clock.up():
                self.problems[name] = TOO_LATE
                continue
            try:
                self._run(name, [0], "fold 1", part=0.5)  # one family must not use up all the time
            except KwayError as error:
                self.problems[name] = str(error)
                continue
            if name not in self.scans:
                late = self.notes.pop(name, TOO_LATE)
                self.problems[name] = TOO_LATE if TOO_LATE in late else late

    def _other_folds(self) -> None:
        """Score the families that may still win on the folds after fold 0."""
        rest = list(range(1, self.data.n_folds))
        if not rest or not self.scans:
            return
        ranking = self._ranking()
        losers = {name: why for name in ranking if (why := self._why_stopped(name))}
        self._begin([name for name in ranking if name not in losers], rest, apart=True)
        for name in ranking:
            if name in losers:
                self.notes[name] = f"{STOPPED} after fold 1 of {len(rest) + 1}: {losers[name]}"
                self._done += 1
                continue
            if not self.clock.up():
                self._run(name, rest, f"folds 2 to {len(rest) + 1}")
            run = int(np.isfinite(self.scans[name].scores[:, self.scans[name].best]).sum())
            if run <= len(rest):
                self.notes[name] = f"the time was up after {run} of {len(rest) + 1} folds"

    def _repeat(self, data: FoldedRows, number: int) -> None:
        """Score the families that were run on every fold on other folds."""
        self.data = data
        every = list(range(data.n_folds))
        names = [name for name in self.scans if name not in self.notes]
        self._begin(names, every)
        for name in names:
            if self.clock.up():
                self.notes[name] = f"the time was up before draw {number} of the folds"
                continue
            self._run(name, every, f"folds, draw {number}")

    # ---- families that are stopped or skipped

    def _why_stopped(self, name: str) -> str:
        """Return why a family is not run on more folds; "" if it is."""
        own, lead, shown = self._first_score(name), self._first_score(self._ranking()[0]), self.data.measure.shown
        scores = self.scans[name].scores[0]
        tried = int(np.isfinite(scores).sum())
        some = f", with {tried} of {len(scores)} settings" if tried < len(scores) else ""
        if own < lead - self.data.largest_lag(lead):
            return f"{shown(own):.3f} against {shown(lead):.3f}{some}"
        similar = SPARSE_SVM if SPARSE_SVM in self.scans else "softmax"
        if name not in (*LIKE_SOFTMAX, "softmax") or name == similar or similar not in self.scans:
            return ""
        theirs = self._first_score(similar)
        if own > theirs:
            return ""
        return f"{shown(own):.3f}, no better than {similar}, a similar family, with {shown(theirs):.3f}{some}"

    def _softmax_far_behind(self, name: str) -> str:
        """Return why a family similar to softmax is not run at all; "" if it is."""
        if name not in LIKE_SOFTMAX or "softmax" not in self.scans:
            return ""
        own, leader, shown = self._first_score("softmax"), self._ranking()[0], self.data.measure.shown
        lead = self._first_score(leader)
        if own >= self._floor(lead):
            return ""
        return f"softmax, a similar family, has {shown(own):.3f} and {leader} has {shown(lead):.3f}"


def _scores_so_far(scans: dict[str, Scan]) -> tuple[tuple[str, ...], ...]:
    """Return the families so far, best first: name, mean score of the best setting, folds."""
    scores = {name: scan.scores[:, scan.best] for name, scan in scans.items()}
    scores = {name: run[np.isfinite(run)] for name, run in scores.items()}
    best_first = sorted(scores, key=lambda name: -scores[name].mean())
    folds = {name: f"{len(run)} fold{'' if len(run) == 1 else 's'}" for name, run in scores.items()}
    shown = {name: scans[name].measure.shown(float(run.mean())) for name, run in scores.items()}
    return tuple((name, f"{shown[name]:.4f}", folds[name]) for name in best_first)


# ---- scans on a cluster

_SENT = (Scan, tuple)  # cached results that are sent to the nodes; an index is built again instead


class _RemoteScan(NamedTuple):
    """A scan, what its family caches for the next one, and whether it ran out of time."""

    scan: Scan
    cached: Any
    cut: bool


class RemoteScans:
    """Scans that the nodes of a cluster run in advance; without a cluster a scan runs in this process.

    Folds that can be scored separately are calls of their own.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[int, str, tuple[int, ...]], list[Task]] = {}
        self._sent_rows: dict[int, Any] = {}  # rows sent to the cluster, by identity

    def begin(self, family: Family, data: FoldedRows, which: list[int], clock: Clock, apart: bool = False) -> None:
        """Begin a scan if there is a cluster; `apart`: each fold by itself."""
        if current() is None:
            return
        own = data.cache.get(family.name)
        cached: dict[str, Any] = {family.name: own} if isinstance(own, _SENT) else {}
        cached |= {"floor": data.cache["floor"]} if "floor" in data.cache else {}
        until = None if clock.budget is None else time.time() + clock.budget - clock.reserve - clock.spent()
        one_by_one = apart and not isinstance(family, NeighborsFamily)  # these score all folds from one search
        pieces = [[fold] for fold in which] if one_by_one else [which]
        if id(data.cache) not in self._sent_rows:
            self._sent_rows[id(data.cache)] = send(data._replace(cache={}))
        rows = self._sent_rows[id(data.cache)]
        self._calls[_key(family, data, which)] = [begin(_scan_on_node, family, rows, cached, p, until) for p in pieces]

    def scan(self, family: Family, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Return the result of a scan that was begun, or run it now."""
        if current() is None:
            return family.scan(data, which, clock)
        key = _key(family, data, which)
        if key not in self._calls:
            self.begin(family, data, which, clock)
        found: list[_RemoteScan] = [call.result() for call in self._calls.pop(key)]
        clock.cut = clock.cut or any(each.cut for each in found)
        for each in found:
            if each.cached is not None:
                data.cache.setdefault(family.name, each.cached)
        scan = found[0].scan
        for each in found[1:]:
            scan = scan.joined(each.scan)
        return scan

    def cancel(self) -> None:
        """Cancel all running calls."""
        for calls in self._calls.values():
            for call in calls:
                call.cancel()
        self._calls, self._sent_rows = {}, {}


def _key(family: Family, data: FoldedRows, which: list[int]) -> tuple[int, str, tuple[int, ...]]:
    return id(data.cache), family.name, tuple(which)


def _scan_on_node(
    family: Family, rows: FoldedRows, cached: dict[str, Any], which: list[int], until: float | None
) -> _RemoteScan:
    """Run a scan on a node of the cluster; `until` is the time of day at which the time is up."""
    data = rows._replace(cache=cached)
    clock = Clock() if until is None else Clock(max(0.0, until - time.time()))
    scan = family.scan(data, which, clock)
    own = data.cache.get(family.name)
    return _RemoteScan(scan, own if isinstance(own, _SENT) else None, clock.cut)
