"""Learn features from the training rows and compare the families on them.

A view is another set of features of the same rows, for families that do better with them:

    no-text   all columns except for text, for neighbors
    text      only the columns of text, for naive Bayes and cosine similarity
    edges     edges and patches of images instead of pixels, for linear families
    columns   one number per column, with missing values and category codes, for trees
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway import progress
from kway.auto.fit_options import FitOptions
from kway.auto.leaks import Leak, find_leaks
from kway.auto.race.clock import Clock, default_budget
from kway.auto.race.compare import Comparison, compare_rows
from kway.auto.race.families import COLUMNS, EDGES, NO_TEXT, TEXT
from kway.auto.race.folds import few_rows_note
from kway.auto.race.paired import CLEAR, paired_difference
from kway.auto.race.rounds import TOO_LATE, TOO_SLOW, Race, Store
from kway.auto.race.scoring import MOST_POOLED, LeaderboardRow, are_embeddings
from kway.auto.train_test import TrainTest
from kway.errors import InputError
from kway.planning import costs
from kway.planning.costs import Size
from kway.suggest import listing
from kway.tables.features.features import Features

_MAX_PIXELS = 1.5e7  # pixels of all images up to which edges and patches are computed: about 3 s
_TEXT_ONLY = ("number", "true/false", "date", "category", "vector")  # kinds that the view of texts leaves out


class View(NamedTuple):
    """Features, and the training rows as numbers X (n, d)."""

    features: Features
    X: Any


@dataclass(frozen=True, eq=False)
class DataComparison:
    """The comparison on all views of the training rows, and notes for the user."""

    data: TrainTest
    options: FitOptions
    views: dict[str, View]  # the main one is ""
    comparison: Comparison
    notes: tuple[str, ...] = ()
    blend: bool = False  # whether the race was run for a blend
    leaks: tuple[Leak, ...] = ()  # possible leaks, also those that do not warn

    def view(self, model: str) -> View:
        """Return the view on which this family of the leaderboard was run."""
        return self.views.get(self.comparison.families[model].view, self.views[""])

    @property
    def folds(self) -> NDArray[np.int64]:
        """The fold (n,) of every training row."""
        return self.comparison.folds

    @property
    def size(self) -> Size:
        """The size of all training rows."""
        return costs.size_of(self.views[""].X, self.data.labels.n_classes)


def compare_data(
    data: TrainTest,
    options: FitOptions,
    clock: Clock | None = None,
    on_features: Callable[[Features], None] | None = None,
    store: Store | None = None,
    on_round: Callable[[Race, dict[str, View]], None] | None = None,
) -> DataComparison:
    """Learn features from the training rows and compare the families; `on_features` is called in between."""
    clock = clock or Clock(options.budget)
    formats = {w.column: w.how for w in data.written}
    features = Features(dict(data.kinds) or None, embed=options.embed, image=data.image, written=formats)
    views = {"": View(features, features.fit_transform(data.rows))}
    if on_features is not None:
        on_features(features)
    with progress.stage("looking for leaks"):
        X = views[""].X
        default = default_budget(costs.size_of(X, data.labels.n_classes), are_embeddings(X))
        budget = default if clock.budget is None else clock.budget
        leaks = find_leaks(data, features, X, budget, options.seed)
    if options.models is None or "naive-bayes" in options.models:
        views |= dict(other_views(features, data.rows, X))
    blend = can_blend(data, options, X)
    comparison = compare_rows(
        X, data.labels, options, data.groups, data.order, clock, weights=data.weights,
        views={name: view.X for name, view in views.items()}, blend=blend, store=store,
        categories=views[COLUMNS].features.categorical_ if COLUMNS in views else (),
        on_round=None if on_round is None else lambda race: on_round(race, views),
    )  # fmt: skip
    notes = [*data.notes, *_fold_notes(comparison, data, options), *few_rows_note(data.labels.codes, comparison.folds)]
    notes += [*_cut_notes(comparison, clock), *_left_out_notes(comparison.problems)]
    notes += [reference_note(comparison.best, other, comparison.measure.rises) for other in comparison.references]
    return DataComparison(data, options, views, comparison, tuple(notes), blend, leaks)


def can_blend(data: TrainTest, options: FitOptions, X: Any) -> bool:
    """Return whether the job may end in a blend: all families, not too many classes, dense rows in memory.

    On embeddings, a linear model is nearly as good as a blend and far faster.
    """
    wanted = options.models is None and not options.single and not options.guarantees
    suits = not hasattr(X, "tocsr") and not are_embeddings(X) and data.labels.n_classes <= MOST_POOLED
    return wanted and suits and data.larger is None


def other_views(main: Features, rows: Any, X: Any) -> Iterator[tuple[str, View]]:
    """Yield the other views of the rows, of which X (n, d) is the main one, by name."""
    forms: dict[str, Features | None]
    if main.is_table_:
        forms = {NO_TEXT: main.without("text"), TEXT: main.without(*_TEXT_ONLY)}
        if not hasattr(X, "tocsr"):
            forms[COLUMNS] = clone(main).set_params(form="columns", written=main.written_)
    else:
        forms = {EDGES: main.with_shapes(rows) if rows.size <= _MAX_PIXELS else None}
    for name, features in forms.items():
        if features is not None and not (name == TEXT and forms[NO_TEXT] is None):
            try:
                yield name, View(features, features.fit_transform(rows))
            except InputError:  # no column of the table suits the view
                continue


# ---- notes


def _fold_notes(comparison: Comparison, data: TrainTest, options: FitOptions) -> list[str]:
    """Return a note if there are fewer folds than requested; with `order` there is always one fold."""
    n_folds = int(comparison.folds.max()) + 1
    if data.order is not None or n_folds >= options.folds:
        return []
    what = "rows" if data.groups is None else "groups"
    return [f"there are {n_folds} folds instead of {options.folds}, because there are too few {what}"]


def _cut_notes(comparison: Comparison, clock: Clock) -> list[str]:
    """Return a note on what the budget or Ctrl-C left out."""
    if comparison.finished:
        return []
    why = "Ctrl-C" if clock.interrupted else f"the budget of {clock.budget:.3g} s"
    if clock.too_slow:
        why = "this machine is far slower than planned, so the safety limit of the default budget"
    late = [name for name, reason in comparison.problems.items() if _is_late(reason)]
    partial = [row.model for row in comparison.rows if _is_late(row.note)]
    note = f"{why} ended the comparison early"
    note += f"; not run: {listing(late)}" if late else ""
    return [note + (f"; run on some rows or folds only: {listing(partial)}" if partial else "")]


def _is_late(reason: str) -> bool:
    return TOO_LATE in reason or TOO_SLOW in reason


def _left_out_notes(problems: dict[str, str]) -> list[str]:
    reasons = [why for why in dict.fromkeys(problems.values()) if not _is_late(why)]
    families = {why: [n for n, w in problems.items() if w == why] for why in reasons}
    return [f"{listing(n)} {'was' if len(n) == 1 else 'were'} left out: {why}" for why, n in families.items()]


def reference_note(best: LeaderboardRow, other: LeaderboardRow, rises: bool) -> str:
    """Return a note on whether a reference is better than the best family, from the differences per fold."""
    n = min(len(best.fold_scores), len(other.fold_scores))
    ahead = np.subtract(other.fold_scores[:n], best.fold_scores[:n]) * (1 if rises else -1)
    folds = f"the same {n} folds" if n > 1 else "the same fold"
    scores = f"{np.mean(other.fold_scores[:n]):.3f} on {folds} and {best.model} has {np.mean(best.fold_scores[:n]):.3f}"
    verdict = "not better" if ahead.mean() <= 0 else "the difference is not significant"
    if n > 1 and paired_difference(ahead, np.zeros(n)).exceeds(errors=CLEAR):
        verdict = "it is better on these rows"
    return f"{other.model} (from another library, not saved) has {scores}: {verdict}"
