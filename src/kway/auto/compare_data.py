"""Learn features from the training rows and compare the families on them, on a sample if the rows are many.

Views are other features of the same rows, for families that do better with them:

    -no-text   neighbors without the columns of text. Neighbors weigh all columns equally, so the many columns of a text
               can hide a few informative numbers; a linear model learns to ignore them
    -edges     edges and patches of images instead of pixels, by least squares, or by softmax if log loss decides
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import COMPARISON_SECONDS, Clock
from kway.auto.race.compare import Comparison, chosen_families, compare_rows
from kway.auto.race.families import FAMILIES, HEAVY_PASS, comparison_seconds
from kway.auto.race.folds import Sample, draw_sample, few_rows_note, fold_numbers
from kway.auto.race.neighbor_families import NeighborsFamily
from kway.auto.race.references import TREES, reference_note, text_columns_note
from kway.auto.race.rounds import TOO_LATE
from kway.auto.race.scoring import FoldedRows, HeldOutProbabilities, LeaderboardRow, pick_measure
from kway.auto.refit import SampleToAll
from kway.auto.train_test import TrainTest, labels_at
from kway.planning import costs
from kway.planning.costs import Size, pass_seconds
from kway.planning.rates import Rates
from kway.rows.blocks import take_rows
from kway.suggest import listing
from kway.tables.features.features import Features

NO_TEXT, EDGES = "-no-text", "-edges"  # endings of the names of families of a view
_MOST_PIXELS = 1.5e7  # pixels of all images up to which edges and patches are computed: 3 s (T11, digits)


class View(NamedTuple):
    """Features, the training rows as numbers X (n, d), and the ending of the names of the families that run on them."""

    features: Features
    X: Any
    ending: str = ""


@dataclass(frozen=True, eq=False)
class DataComparison:
    """The comparison on all views of the training rows, and notes for the user."""

    data: TrainTest
    options: FitOptions
    views: tuple[View, ...]  # the whole rows first
    comparison: Comparison
    notes: tuple[str, ...]
    sample: NDArray[np.int64] | None = None  # rows that were compared on; None: all

    def view(self, model: str) -> View:
        """Return the view that this family of the leaderboard was run on."""
        return next((view for view in self.views[1:] if model.endswith(view.ending)), self.views[0])

    def folds(self) -> NDArray[np.int64]:
        """Return the fold (n,) of every training row, in the sample or not."""
        if self.sample is None:
            return self.comparison.folds
        data, options = self.data, self.options
        return fold_numbers(data.labels.codes, options.folds, data.groups, data.order, options.seed)

    def folded_rows(self, X: Any) -> FoldedRows:
        """Return the rows of a view that families were compared on, with their folds."""
        codes = labels_at(self.data.labels, self.sample).codes
        return FoldedRows(_at(X, self.sample), codes, self.comparison.folds, {}, self.comparison.measure)

    @property
    def sizes(self) -> SampleToAll:
        """The sizes of all training rows and of the sample."""
        size = costs.size_of(self.views[0].X, self.data.labels.n_classes)
        if self.sample is None:
            return SampleToAll(size)
        return SampleToAll(size, replace(size, n=len(self.sample), K=len(self.comparison.classes)))

    def held_out(self, row: LeaderboardRow) -> HeldOutProbabilities | None:
        """Return probabilities of held-out rows from the votes of the comparison; None if it ran on a sample."""
        return self.comparison.scans[row.model].held_out(row.setting) if self.sample is None else None


def _at(values: Any, rows: NDArray[np.int64] | None) -> Any:
    return values if rows is None or values is None else take_rows(values, rows)


def compare_data(
    data: TrainTest,
    options: FitOptions,
    clock: Clock | None = None,
    on_features: Callable[[Features], None] | None = None,
) -> DataComparison:
    """Learn features from the training rows and compare the families; `on_features` is called in between."""
    clock = clock or Clock(options.budget)
    written = {w.column: w.how for w in data.written}
    features = Features(dict(data.kinds) or None, embed=options.embed, image=data.image, written=written)
    whole = View(features, features.fit_transform(data.rows))
    if on_features is not None:
        on_features(features)
    sample = _sample(data, whole.X, options)
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
        notes += text_columns_note(whole.X, [r.column for r in features.records_ if r.used and r.kind == "text"])
    notes += [*_cut_notes(found, clock), *_left_out_notes(found.problems)]
    notes += [reference_note(found.best, other, found.measure.rises) for other in found.references]
    return DataComparison(data, options, tuple(views), found, tuple(notes), rows)


def references_of(options: FitOptions) -> Sequence[Any]:
    """Return the references that were named; if none was, trees if all families are compared."""
    if options.also is not None:
        return options.also
    return (TREES,) if options.models is None else ()


def _sample(data: TrainTest, X: Any, options: FitOptions) -> Sample | None:
    """Draw the rows to compare on if all would take too long and no family was named."""
    if options.models is not None:
        return None
    rows = FoldedRows(X, data.labels.codes, np.zeros(data.n, np.int64), {}, pick_measure(options.metric))
    families = [family for family in chosen_families(options) if not family.skip_reason(rows)]
    expected = lambda size: comparison_seconds(families, size)  # noqa: E731
    sample = draw_sample(data.labels.codes, rows.size(), expected, COMPARISON_SECONDS, options.seed)
    if sample is not None:
        progress.note(sample.note)
    return sample


# ---- views


def other_views(whole: Features, rows: Any, n_classes: int, rises: bool) -> Iterator[tuple[View, list[Any]]]:
    """Yield the other views of the rows, each with its families; `rises`: higher is better, so not log loss."""
    if whole.is_table_:
        if (features := whole.without("text")) is not None:
            near = [f for f in FAMILIES.values() if isinstance(f, NeighborsFamily)]
            families = [_renamed(f, NO_TEXT, "without the text columns") for f in near]
            yield View(features, features.fit_transform(rows), NO_TEXT), families
        return
    slow = pass_seconds(Size(rows.shape[0], rows.size // rows.shape[0], n_classes), Rates()) > HEAVY_PASS
    if rows.size <= _MOST_PIXELS and not slow and (features := whole.with_shapes(rows)) is not None:
        family = replace(FAMILIES["least-squares" if rises else "softmax"], shares=FAMILIES["softmax"].shares)
        families = [_renamed(family, EDGES, "on edges and patches of the images")]
        yield View(features, features.fit_transform(rows), EDGES), families


def _renamed(family: Any, ending: str, rows: str) -> Any:
    """Return the family under the name that it has on another view of the rows."""
    return replace(family, name=family.name + ending, description=f"{family.description}, {rows}")


# ---- notes


def _fold_notes(found: Comparison, data: TrainTest, options: FitOptions) -> list[str]:
    """Return a note if there are fewer folds than asked for; with `order` there is always one."""
    made = int(found.folds.max()) + 1
    if data.order is not None or made >= options.folds:
        return []
    what = "rows" if data.groups is None else "groups"
    return [f"there are {made} folds instead of {options.folds}, because there are too few {what}"]


def _cut_notes(found: Comparison, clock: Clock) -> list[str]:
    """Return a note on what the budget or Ctrl-C left out."""
    if found.finished:
        return []
    why = "Ctrl-C" if clock.interrupted else f"the budget of {clock.budget:g} s"
    late = [name for name, reason in found.problems.items() if reason == TOO_LATE]
    short = [row.model for row in found.rows if TOO_LATE in row.note]
    note = f"{why} ended the comparison early; the best family so far was kept"
    note += f"; not run: {listing(late)}" if late else ""
    return [note + (f"; run with some settings or folds only: {listing(short)}" if short else "")]


def _left_out_notes(problems: dict[str, str]) -> list[str]:
    reasons = [why for why in dict.fromkeys(problems.values()) if why != TOO_LATE]
    names = {why: [n for n, w in problems.items() if w == why] for why in reasons}
    return [f"{listing(n)} {'was' if len(n) == 1 else 'were'} left out: {why}" for why, n in names.items()]
