"""Compare families over all their settings on the same folds (`kway.compare`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import Clock
from kway.auto.race.families import CLASS_NUMBER, COLUMNS, FAMILIES, Family, LinearFamily, families_of_views
from kway.auto.race.folds import fold_numbers
from kway.auto.race.references import score_references
from kway.auto.race.rounds import TOO_LATE, Race, Store
from kway.auto.race.scoring import (
    ACCURACY,
    FoldedRows,
    LeaderboardRow,
    Measure,
    Scan,
    pick_measure,
    setting_in_words,
    with_spread,
)
from kway.declared_options import options_of, refuse_unknown
from kway.errors import InputError
from kway.labels import Labels, encode
from kway.rows.gpu.device import resolve
from kway.text_tables import Printed, Table
from kway.validation import Rows, plain_rows


def compare(X: Any, y: Any, models: Any = None, *, groups: Any = None, order: Any = None, **options: Any) -> Comparison:
    """Compare families of classifiers by cross-validation.

    Every family is scored over all its hyperparameters, first on a sample of the rows that doubles, then on more and
    more folds. Families that cannot win any more leave.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels.
    models : str, list of str, or None, default=None
        Families to compare, such as ["softmax", "neighbors"]; None compares all.
    groups : array-like of shape (n_samples,), default=None
        Rows of one group stay in one fold.
    order : array-like of shape (n_samples,), default=None
        Time or another order; the last rows are the only validation fold.
    alpha : float, default=None
        Weight of the penalty of linear families; None chooses it by cross-validation.
    budget : float or str, default=None
        Time for the comparison, in seconds or as "60s", "2m" or "1h". None depends on the size: planned seconds, 60 for
        10,000 rows of 50 columns, which are the same on every machine.
    embed : str, default=None
        Sentence-transformers model for text or images; used by `kway.fit` only.
    metric : {"accuracy", "balanced", "macro-f1", "log-loss"}, default="accuracy"
        Measure that the choice is made by.
    class_weight : "balanced" or None, default=None
        "balanced" gives rows of rare classes more weight.
    folds : int, default=5
        Number of folds of the cross-validation.
    repeats : int, default=1
        How many times the folds are drawn.
    also : classifier, str, or list of these, default=None
        Classifiers of other libraries to score on the same folds, such as "sklearn.svm.SVC".
    seed : int, default=0
        Seed of all random numbers.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        Device that computes.

    Returns
    -------
    Comparison
        The leaderboard. It prints as a table.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> compare(*load_iris(return_X_y=True), models=["softmax", "centroid"]).best.model
    'softmax'
    """
    refuse_unknown(options, [*options_of(FitOptions, "compare"), "groups", "order"])
    with progress.shown_in_notebook():
        return compare_rows(X, encode(y), FitOptions(models=models, **options), groups, order)


def compare_rows(
    X: Any,
    labels: Labels,
    options: FitOptions,
    groups: Any = None,
    order: Any = None,
    clock: Clock | None = None,
    *,
    views: Mapping[str, Rows] | None = None,
    categories: Sequence[int] = (),
    blend: bool = False,
    store: Store | None = None,
    on_round: Callable[[Race], None] | None = None,
) -> Comparison:
    """Compare families on rows with encoded labels, with the clock of a job.

    `views` are other forms of the rows by name, and `categories` the columns of categories of the view for trees.
    `blend` keeps the families in the race that a blend may contain.
    """
    if options.repeats > 1 and order is not None:
        raise InputError("repeats draws the folds again, but with order there is only one fold; leave out one of them")
    resolve(options.device, pays=False)  # an error now, not one per family
    measure, rows = pick_measure(options.metric), _rows(X)
    n_folds = max(2, min(options.folds, len(labels.codes)))
    seeds = range(options.seed, options.seed + options.repeats)
    folds = [fold_numbers(labels.codes, n_folds, groups, order, seed) for seed in seeds]
    forms = {name: FoldedRows(form, labels.codes, folds[0]) for name, form in {"": rows, **(views or {})}.items()}
    if COLUMNS in forms:
        forms[COLUMNS] = forms[COLUMNS]._replace(categories=tuple(categories))
    clock = clock or Clock(options.budget)
    clock.use_default(forms[""].size())
    chosen = [family.configured(options.class_weight, options.device) for family in chosen_families(options, forms)]
    may_skip = options.models is None
    why = {family.name: family.skip_reason(forms.get(family.view, forms[""])) for family in chosen if may_skip}
    families = {family.name: family for family in chosen if not why.get(family.name)}
    race = Race(forms, folds, families, measure, clock, blend, store, on_round)
    race.run()
    scored = race.scored()
    if not scored:
        raise InputError(_nothing_scored(race.problems))
    also = () if clock.interrupted else options.also or ()
    references, errors = score_references(forms[""], also, clock, measure)
    unscored = {name: each.note or TOO_LATE for name, each in race.runners.items() if name not in scored}
    skipped = {name: reason for name, reason in {**why, **unscored}.items() if reason and reason != TOO_LATE}
    return Comparison(
        rows=race.leaderboard(options.class_weight is not None),
        scans={name: each.scan for name, each in scored.items()},
        folds=folds[0],
        classes=labels.classes,
        finished=not clock.cut,
        families=families,
        problems={**{name: TOO_LATE for name in unscored if name not in skipped}, **race.problems, **errors},
        skipped={name: reason for name, reason in skipped.items() if name not in race.problems},
        measure=measure,
        references=references,
        race=race,
    )


def chosen_families(options: FitOptions, views: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the families named, or all that these views allow, at the alpha of the options if there is one."""
    known = {**FAMILIES, CLASS_NUMBER.name: CLASS_NUMBER}
    if options.models is None:
        chosen = [*FAMILIES.values(), *families_of_views(views or {})]
    else:
        chosen = [known[model] if isinstance(model, str) else model for model in options.models]
    if options.alpha is None:
        return chosen
    return [replace(f, alphas=(options.alpha,)) if isinstance(f, LinearFamily) else f for f in chosen]


def _rows(X: Any) -> Rows:
    import scipy.sparse as sp

    return X.tocsr() if sp.issparse(X) else plain_rows(X)


def _nothing_scored(problems: dict[str, str]) -> str:
    if not problems:
        return "no family was scored before the time was up; pass a larger budget or fewer families"
    return "no model could be fitted; " + "; ".join(f"{name}: {why}" for name, why in problems.items())


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """The result of `kway.compare`. It prints as a leaderboard.

    Attributes
    ----------
    rows : list of LeaderboardRow
        One row per family at its best setting, best first.
    scans : dict of str to Scan
        Scores of all settings, per family.
    folds : ndarray of shape (n_samples,)
        Fold of each row; -1 if a row is only learned from.
    classes : ndarray of shape (n_classes,)
        Labels.
    finished : bool
        False if the budget or Ctrl-C ended the comparison early.
    families : dict of str to Family
        Families that were run.
    problems : dict of str to str
        Families that could not be scored, and why.
    skipped : dict of str to str
        Families that were not run on these rows, and why. Name them in `models` to run them.
    measure : Measure
        Measure that the choice is made by.
    references : list of LeaderboardRow
        Classifiers of other libraries, scored on the same folds.
    race : Race or None
        The predictions of the families on the held-out rows.
    """

    rows: list[LeaderboardRow]
    scans: dict[str, Scan]
    folds: NDArray[np.int64]
    classes: NDArray
    finished: bool = True
    families: dict[str, Family] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    measure: Measure = ACCURACY
    references: list[LeaderboardRow] = field(default_factory=list)
    race: Race | None = field(default=None, repr=False)

    @property
    def best(self) -> LeaderboardRow:
        """The best row."""
        return self.rows[0]

    def estimator(self, row: LeaderboardRow | None = None, seed: int = 0) -> Any:
        """Return an unfitted estimator of a row, by default the best; a blend has none."""
        row = row or next(each for each in self.rows if each.model in self.families)
        return self.families[row.model].make(row.setting, seed)

    def fit_seconds(self, model: str) -> float:
        """Return the expected seconds of a fit of this family, at one setting, on all rows."""
        return 0.0 if self.race is None else self.race.fit_seconds(model)

    def records(self) -> list[dict[str, Any]]:
        """Return one dict of plain values per row."""
        return [row.record() for row in self.rows]

    def to_pandas(self) -> Any:
        """Return the leaderboard as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def _table(self) -> Table:
        return leaderboard_table(self.rows, self.references, self.measure)


def leaderboard_table(
    leaderboard: Sequence[LeaderboardRow], references: Sequence[LeaderboardRow], measure: Measure
) -> Table:
    """Return a leaderboard as a table, with the classifiers of other libraries at the end."""
    other = () if measure is ACCURACY else (measure.words,)
    columns = ("model", *other, "accuracy", *(() if "log loss" in other else ("log loss",)), "folds", "setting")
    lines = [_cells(row, bool(other)) for row in leaderboard]
    lines += [_cells(replace(row, model=f"({row.model})"), bool(other)) for row in references]
    more = "(in brackets: classifiers of other libraries, on the same folds)" if references else ""
    return Table(
        f"{len(leaderboard)} {'family' if len(leaderboard) == 1 else 'families'} by {measure.words}, best first",
        columns,
        lines,
        more,
    )


def _cells(row: LeaderboardRow, measured: bool) -> tuple[str, ...]:
    score = with_spread(row.score, row.score_std, len(row.fold_scores))
    loss = "–" if row.log_loss is None else f"{row.log_loss:.3f}"
    accuracy = with_spread(row.accuracy, row.std, len(row.fold_accuracy))
    stated = () if row.measure == "log-loss" else (loss,)
    return (row.model, *([score] if measured else []), accuracy, *stated, row.folds_run, setting_in_words(row.setting))
