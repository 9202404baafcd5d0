"""Scans of families, begun ahead of their turn over a cluster; where there is none, run in this process at their turn.

    ahead = ScansAhead()
    ahead.begin(family, data, [0], clock)          every family at once: they share nothing but the rows
    ahead.scan(family, data, [0], clock)           what `family.scan` gives, and what it keeps in `data.kept`

Folds that can be scored apart are calls of their own. A search of many rows looks at who leads (`kept["lead"]`), so on
such rows it is begun at its turn, and finds the leader it finds on one machine.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from kway.compute.cluster.session import current
from kway.compute.cluster.tasks import Task, begin, send
from kway.select.contest.clock import Clock
from kway.select.contest.families import LONG_SEARCH, Family, NeighborsFamily
from kway.select.contest.scans import FoldedRows, Scan

_LIGHT = (Scan, tuple)  # what a family keeps that is sent from call to call; an index is made again


class _Scanned(NamedTuple):
    """A scan, what its family keeps, and whether the clock cut it."""

    scan: Scan
    kept: Any
    cut: bool


class ScansAhead:
    """Calls under way, by family and folds."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, str, tuple[int, ...]], list[Task]] = {}
        self._shared: dict[int, Any] = {}  # rows sent to the cluster, by their identity

    def begin(self, family: Family, data: FoldedRows, which: list[int], clock: Clock, apart: bool = False) -> None:
        """Begin a scan, where there is a cluster and nothing before it matters; `apart`: every fold by itself."""
        led = isinstance(family, NeighborsFamily) and data.pairs() > LONG_SEARCH and which[0] == 0
        if current() is not None and not led:
            self._begin(family, data, which, clock, apart)

    def _begin(self, family: Family, data: FoldedRows, which: list[int], clock: Clock, apart: bool) -> None:
        own = data.kept.get(family.name)
        kept: dict[str, Any] = {family.name: own} if isinstance(own, _LIGHT) else {}
        if which[0] == 0:  # on later folds a search is there already, on one machine, and no path is cut short
            kept |= {name: data.kept[name] for name in ("lead", "sight") if name in data.kept}
        until = None if clock.budget is None else time.time() + clock.budget - clock.reserve - clock.spent()
        one_by_one = apart and not isinstance(family, NeighborsFamily)  # these answer all folds from one search
        cuts = [[fold] for fold in which] if one_by_one else [which]
        rows = self._sent(data)
        self._calls[_key(family, data, which)] = [begin(_scan, family, rows, kept, cut, until) for cut in cuts]

    def _sent(self, data: FoldedRows) -> Any:
        """The rows, sent once."""
        if id(data.kept) not in self._shared:
            self._shared[id(data.kept)] = send(data._replace(kept={}))
        return self._shared[id(data.kept)]

    def scan(self, family: Family, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """The scores, whoever computed them."""
        if current() is None:
            return family.scan(data, which, clock)
        key = _key(family, data, which)
        if key not in self._calls:
            self._begin(family, data, which, clock, apart=False)
        found: list[_Scanned] = [call.result() for call in self._calls.pop(key)]
        clock.cut = clock.cut or any(each.cut for each in found)
        for each in found:
            if each.kept is not None:
                data.kept.setdefault(family.name, each.kept)
        scan = found[0].scan
        for each in found[1:]:
            scan = scan.joined(each.scan)
        return scan

    def drop(self) -> None:
        """End what is under way."""
        for calls in self._calls.values():
            for call in calls:
                call.cancel()
        self._calls, self._shared = {}, {}


def _key(family: Family, data: FoldedRows, which: list[int]) -> tuple[int, str, tuple[int, ...]]:
    return id(data.kept), family.name, tuple(which)


def _scan(family: Family, rows: FoldedRows, kept: dict[str, Any], which: list[int], until: float | None) -> _Scanned:
    """On a node of the cluster; `until` is the time of day that the clock ends at."""
    data = rows._replace(kept=kept)
    clock = Clock() if until is None else Clock(max(0.0, until - time.time()))
    scan = family.scan(data, which, clock)
    own = data.kept.get(family.name)
    return _Scanned(scan, own if isinstance(own, _LIGHT) else None, clock.cut)
