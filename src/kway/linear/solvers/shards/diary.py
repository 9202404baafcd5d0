"""Diaries of a descent: where it stood after each step, for a run that has to begin again.

    trail       the last points of an earlier run, oldest first, and its values so far: nothing where there was none
    enter       the point after a step; whether to stop
    chapter     the diary of one of the problems that a hinge is solved by, rounded ever less
    ended, end  the solution of a chapter: an earlier run's, if it got that far, and this run's

The one here keeps nothing; step_files.py has one in files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kway.linear.objective.objective import Objective
from kway.linear.solvers.point import Point

if TYPE_CHECKING:
    from kway.linear.solvers.base import Solution


class Trail(NamedTuple):
    """Points (the last some), and the values of all steps up to the last of them."""

    points: list[Point]
    history: list[float]


class Diary:
    """Who keeps the steps of a descent; this one does not."""

    def trail(self, objective: Objective) -> Trail:
        """What an earlier run left."""
        return Trail([], [])

    def enter(self, iteration: int, point: Point) -> bool:
        """Keep a step; whether to stop after it."""
        return False

    def chapter(self, width: float) -> Diary:
        """The diary of one problem in a series: a hinge rounded over this width."""
        return self

    def ended(self) -> Solution | None:
        """How an earlier run ended this chapter, if it did."""
        return None

    def end(self, found: Solution) -> None:
        """Keep how the chapter ended, instead of its steps."""


NO_DIARY = Diary()
