"""The families compared on DATA: features are learned from the training rows, on a sample of the rows if they are many.

Views are the same rows as other numbers, for families that do better with them:

    -no-text   neighbors weigh all columns equally, so a text of a thousand hashes can hide a few telling numbers; a
               linear model learns to ignore it. If a table has text and other columns, neighbors also run without text
    -edges     edges and patches of images, by least squares, which is as good as softmax there and quicker (digits
               0.97, pixels 0.95), or by softmax if probabilities decide
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.options import FitOptions
from kway.auto.race.clock import Clock
from kway.auto.race.compare import Comparison, compare_rows
from kway.auto.race.families import FAMILIES, comparison_seconds
from kway.auto.race.folds import Sample, draw_sample, few_rows_note, fold_numbers
from kway.auto.race.neighbor_families import NeighborsFamily
from kway.auto.race.references import TREES, verdict, words_note
from kway.auto.race.rounds import TOO_LATE
from kway.auto.race.scoring import FoldedRows, HeldOut, LeaderboardRow
from kway.auto.refit import SampleToAll
from kway.auto.train_test import TrainTest, labels_at
from kway.planning import guard
from kway.planning.costs import Size
from kway.rows.blocks import take_rows
from kway.suggest import listing
from kway.tables.features.features import Features

TOO_LONG = 240.0  # expected seconds of a comparison above which its rows are sampled (T11)
SAMPLE_SECONDS = 60.0  # expected seconds of the comparison on the sample (T11)
NO_TEXT, EDGES = "-no-text", "-edges"  # endings of the names of families of a view
_MOST_VALUES = 1.5e7  # pixels of all images up to which shapes are made: 10,000 images of 28 x 28 take 3 s (T11)
_MOST_SCORES = 2e6  # rows x classes up to which shapes are made: a pass over 2,000 columns takes 0.1 s (T11)


class View(NamedTuple):
    """Features and what they make of the training rows, X (n, d); `ending` of the names of its families."""

    features: Features
    X: Any
    ending: str = ""


@dataclass(frozen=True, eq=False)
class DataComparison:
    """The comparison, the views of the rows, and notes for the user."""

    data: TrainTest
    options: FitOptions
    views: tuple[View, ...]  # the whole rows first
    comparison: Comparison
    notes: tuple[str, ...]
    sample: NDArray[np.int64] | None = None  # rows that were compared on; None: all

    def view(self, model: str) -> View:
        """The rows as this family of the leaderboard saw them."""
        return next((view for view in self.views[1:] if model.endswith(view.ending)), self.views[0])

    def folds(self) -> NDArray[np.int64]:
        """The fold (n,) of every training row, in the sample or not."""
        if self.sample is None:
            return self.comparison.folds
        data, options = self.data, self.options
        return fold_numbers(data.labels.codes, options.folds, data.groups, data.order, options.seed)

    def folded_rows(self, X: Any) -> FoldedRows:
        """The rows of a view that were compared on, with their folds."""
        codes = labels_at(self.data.labels, self.sample).codes
        return FoldedRows(_at(X, self.sample), codes, self.comparison.folds, {}, self.comparison.measure)

    @property
    def sizes(self) -> SampleToAll:
        """The sizes of all training rows and of the sample."""
        size = guard.size_of(self.views[0].X, self.data.labels.n_classes)
        if self.sample is None:
            return SampleToAll(size)
        return SampleToAll(size, replace(size, n=len(self.sample), K=len(self.comparison.classes)))

    def held_out(self, row: LeaderboardRow) -> HeldOut | None:
        """Probabilities of held-out rows from the votes of the comparison, if all rows took part."""
        return self.comparison.scans[row.model].held_out(row.setting) if self.sample is None else None


def _at(values: Any, rows: NDArray[np.int64] | None) -> Any:
    return values if rows is None or values is None else take_rows(values, rows)


def compare_data(
    data: TrainTest,
    options: FitOptions,
    clock: Clock | None = None,
    on_features: Callable[[Features], None] | None = None,
) -> DataComparison:
    """Learn features from the training rows and compare the families; `on_features` is called between the two."""
    clock = clock or Clock(options.budget)
    written = {w.column: w.how for w in data.written}
    features = Features(dict(data.kinds) or None, embed=options.embed, image=data.image, written=written)
    whole = View(features, features.fit_transform(data.rows))
    if on_features is not None:
        on_features(features)
    sample = _sample(data, guard.size_of(whole.X, data.labels.n_classes), options)
    rows = None if sample is None else sample.rows
    labels, groups, order = labels_at(data.labels, rows), _at(data.groups, rows), _at(data.order, rows)
    also = references_of(options)
    found = compare_rows(_at(whole.X, rows), labels, replace(options, also=also), groups, order, clock)
    views = [whole]
    if options.models is None and not clock.up():
        for view, families in other_views(whole.features, data.rows, labels.n_classes, found.measure.rises):
            own = replace(options, models=families, alpha=None, also=())
            found = found.joined(compare_rows(_at(view.X, rows), labels, own, groups, order, clock))
            views.append(view)
    notes = [*data.notes, *([] if sample is None else [sample.note]), *_fold_notes(found, data, options)]
    notes += few_rows_note(labels.codes, found.folds)
    if TREES in also:
        notes += words_note(whole.X, [r.column for r in features.records_ if r.used and r.kind == "text"])
    notes += [*_cut_notes(found, clock), *_left_out_notes(found.problems)]
    notes += [verdict(found.best, other, found.measure.rises) for other in found.references]
    return DataComparison(data, options, tuple(views), found, tuple(notes), rows)


def references_of(options: FitOptions) -> Sequence[Any]:
    """The references that were named; if none was, trees when all families are compared."""
    if options.also is not None:
        return options.also
    return (TREES,) if options.models is None else ()


def _sample(data: TrainTest, size: Size, options: FitOptions) -> Sample | None:
    """The rows to compare on if all would take too long and no family was named; the user is told at once."""
    if options.models is not None:
        return None
    sample, codes = None, data.labels.codes
    if comparison_seconds(size) > TOO_LONG:
        sample = draw_sample(codes, size, comparison_seconds, SAMPLE_SECONDS, options.seed)
    if sample is not None:
        progress.note(sample.note.replace("were compared", "are compared").replace("was then", "will then be"))
    return sample


# ---- views


class ViewFamilies(NamedTuple):
    """A view and the families that run on it."""

    view: View
    families: list[Any]


def other_views(whole: Features, rows: Any, n_classes: int, rises: bool) -> Iterator[ViewFamilies]:
    """The views beside the whole rows, each made when it is its turn; `rises`: more is better, so no log loss."""
    if whole.is_table_ and (features := whole.without("text")) is not None:
        near = [f for f in FAMILIES.values() if isinstance(f, NeighborsFamily)]
        view = View(features, features.fit_transform(rows), NO_TEXT)
        yield ViewFamilies(view, [_renamed(f, NO_TEXT, "without the text columns") for f in near])
    many = not whole.is_table_ and (rows.size > _MOST_VALUES or rows.shape[0] * n_classes > _MOST_SCORES)
    if not whole.is_table_ and not many and (features := whole.with_shapes(rows)) is not None:
        family = replace(FAMILIES["least-squares" if rises else "softmax"], shares=FAMILIES["softmax"].shares)
        view = View(features, features.fit_transform(rows), EDGES)
        yield ViewFamilies(view, [_renamed(family, EDGES, "on edges and patches of the images")])


def _renamed(family: Any, ending: str, rows: str) -> Any:
    """Return the family under the name that it has on another view of the rows."""
    return replace(family, name=family.name + ending, description=f"{family.description}, {rows}")


# ---- notes


def _fold_notes(found: Comparison, data: TrainTest, options: FitOptions) -> list[str]:
    """A note if there are fewer folds than asked for; with `order` there is one, whatever was asked."""
    made = int(found.folds.max()) + 1
    if data.order is not None or made >= options.folds:
        return []
    what = "rows" if data.groups is None else "groups"
    return [f"{made} folds were made and not {options.folds}: there are no more {what} to divide"]


def _cut_notes(found: Comparison, clock: Clock) -> list[str]:
    """What the budget or Ctrl-C cut."""
    if found.finished:
        return []
    why = "Ctrl-C" if clock.interrupted else f"the budget of {clock.budget:g} s"
    late = [name for name, reason in found.problems.items() if reason == TOO_LATE]
    short = [row.model for row in found.rows if TOO_LATE in row.note]
    note = f"{why} cut the comparison short; the best until then was kept"
    note += f"; not run: {listing(late)}" if late else ""
    return [note + (f"; not with every setting or fold: {listing(short)}" if short else "")]


def _left_out_notes(problems: dict[str, str]) -> list[str]:
    reasons = [why for why in dict.fromkeys(problems.values()) if why != TOO_LATE]
    names = {why: [n for n, w in problems.items() if w == why] for why in reasons}
    return [f"{listing(n)} {'was' if len(n) == 1 else 'were'} left out: {why}" for why, n in names.items()]
