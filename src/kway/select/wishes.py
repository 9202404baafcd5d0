"""Wishes: what is asked of the main job, checked before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kway.parameters import NONE, SEED, above, at_least, between, whole
from kway.select.contest.measures import pick_measure


@dataclass(frozen=True)
class Wishes:
    """What the caller asks for; `families` None compares all, `alpha` fixes the penalty, `budget` is in seconds."""

    families: Sequence[str] | None = None
    alpha: float | None = None
    budget: float | None = None
    seed: int = 0
    n_folds: int = 5
    embed: Any = None
    metric: str = "accuracy"  # what the choice is made by
    class_weight: str | None = None
    repeats: int = 1
    also: Sequence[Any] | None = None  # references; None: trees, where these are quick
    sets: float | None = None  # coverage promised of sets of labels
    unknown: float | None = None  # share of known rows that may be called unknown
    device: str = "cpu"  # "cuda", "auto": where the classifiers that can compute

    def __post_init__(self) -> None:
        rules = {"folds": (whole(2), self.n_folds), "seed": (SEED, self.seed), "budget": (NONE | above(0), self.budget)}
        rules |= {name: (NONE | between(0, 1), getattr(self, name)) for name in ("sets", "unknown")}
        for name, (rule, value) in (rules | {"alpha": (NONE | at_least(0), self.alpha)}).items():
            rule.check(name, value)

    @property
    def even(self) -> bool:
        """Whether rows count the same, whatever their class."""
        return self.class_weight is None and not pick_measure(self.metric).by_class
