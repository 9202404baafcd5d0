"""`kway.compare`: compares families over all their settings on the same folds, and returns a leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import Clock
from kway.auto.race.families import (
    CLASS_NUMBER,
    COLUMNS,
    FAMILIES,
    LinearFamily,
    families_of_views,
    weighted_neighbors,
)
from kway.auto.race.family import Family
from kway.auto.race.folds import fold_numbers
from kway.auto.race.neighbor_families import NO_MAP, NeighborsFamily
from kway.auto.race.references import score_references
from kway.auto.race.rounds import TOO_LATE, Race, Store
from kway.auto.race.scoring import (
    FoldedRows,
    LeaderboardRow,
    Measure,
    Scan,
    are_embeddings,
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

CANNOT_WEIGH = "it cannot learn with weights of the rows"


def compare(X: Any, y: Any, models: Any = None, *, groups: Any = None, order: Any = None, **options: Any) -> Comparison:
    """Compare families of classifiers by cross-validation.

    Every family is scored over a grid of its hyperparameters, first on samples of increasing size, then on more and
    more folds. Families that are clearly behind are eliminated.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels.
    models : str, list of str, or None, default=None
        Families to compare, such as ["softmax", "neighbors"]; None compares all.
    groups : array-like of shape (n_samples,), default=None
        Groups of the rows; rows of one group stay in one fold.
    order : array-like of shape (n_samples,), default=None
        Times, or other values by which the rows are ordered; the last rows are the only validation fold.
    alpha : float, default=None
        Weight of the penalty of linear families; None chooses it by cross-validation.
    budget : float or str, default=None
        Time for the comparison, in seconds or as "60s", "2m" or "1h". None depends on the size of the data: 60 seconds
        for 10,000 rows of 50 columns. They are estimated seconds, so that every machine compares the same models.
    embed : str, default=None
        Sentence-transformers model for text or images; used by `kway.fit` only.
    metric : {"accuracy", "balanced", "macro-f1", "log-loss"}, default="accuracy"
        Metric that ranks the families. With "accuracy", the lowest log loss decides among families that are equally
        good.
    class_weight : "balanced" or None, default=None
        "balanced" gives all classes the same total weight.
    folds : int, default=5
        Number of folds of the cross-validation.
    repeats : int, default=1
        How many times the folds are drawn.
    also : classifier, str, or list of these, default=None
        Classifiers of other libraries to score on the same folds, such as "sklearn.svm.SVC".
    seed : int, default=0
        Seed of all random numbers.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        Device on which families are fitted that can use it.

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
    weights: NDArray | None = None,
    views: Mapping[str, Rows] | None = None,
    categories: Sequence[int] = (),
    blend: bool = False,
    store: Store | None = None,
    on_round: Callable[[Race], None] | None = None,
) -> Comparison:
    """Compare families on rows X (n, d) with encoded labels, within the time of a job.

    `weights` (n,) are the weights of the rows. `views` are other forms of the rows by name, and `categories` are the
    categorical columns of the view for trees. With `blend`, the families that a blend may contain stay in the race to
    its end.
    """
    if options.repeats > 1 and order is not None:
        raise InputError("repeats draws the folds again, but with order there is only one fold; leave out one of them")
    resolve(options.device, pays=False)  # an error now, not one per family
    measure, rows = pick_measure(options.metric), _rows(X)
    n_folds = max(2, min(options.folds, len(labels.codes)))
    seeds = range(options.seed, options.seed + options.repeats)
    folds = [fold_numbers(labels.codes, n_folds, groups, order, seed) for seed in seeds]
    named = {"": rows, **(views or {})}
    forms = {name: FoldedRows(form, labels.codes, folds[0], weights=weights) for name, form in named.items()}
    if COLUMNS in forms:
        forms[COLUMNS] = forms[COLUMNS]._replace(categories=tuple(categories))
    clock = clock or Clock(options.budget)
    clock.use_default(forms[""].size(), are_embeddings(rows))
    families, skip_reasons = _families(options, forms)
    if not families:
        raise InputError(_nothing_scored(skip_reasons))
    race = Race(forms, folds, families, measure, clock, blend, store, on_round)
    race.run()
    scored = race.scored()
    if not scored:
        raise InputError(_nothing_scored(race.problems))
    references, errors = score_references(forms[""], () if clock.interrupted else options.also or (), clock, measure)
    unscored = {name: runner.note or TOO_LATE for name, runner in race.runners.items() if name not in scored}
    reasons = {**skip_reasons, **unscored}
    skipped = {name: reason for name, reason in reasons.items() if reason and reason != TOO_LATE}
    return Comparison(
        rows=race.leaderboard(options.class_weight is not None),
        scans={name: runner.scan for name, runner in scored.items()},
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


def _families(options: FitOptions, views: Mapping[str, FoldedRows]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the families that take part, and the reasons of those that are left out; "" if they are not."""
    chosen = [family.configured(options.class_weight, options.device) for family in chosen_families(options, views)]
    skip_reasons = dict[str, str]()
    if options.models is None:
        skip_reasons = {family.name: family.skip_reason(views.get(family.view, views[""])) for family in chosen}
    if views[""].weights is not None:
        chosen = [_weighted(family, len(views[""].codes)) for family in chosen]
        skip_reasons |= {family.name: CANNOT_WEIGH for family in chosen if not family.weighs_rows}
    return {family.name: family for family in chosen if not skip_reasons.get(family.name)}, skip_reasons


def chosen_families(options: FitOptions, views: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the families that the options name, by default all for these views, with the alpha of the options."""
    known = {**FAMILIES, CLASS_NUMBER.name: CLASS_NUMBER}
    if options.models is None:
        chosen = [*FAMILIES.values(), *families_of_views(views or {})]
    else:
        chosen = [known[model] if isinstance(model, str) else model for model in options.models]
    if options.alpha is None:
        return chosen
    return [replace(each, alphas=(options.alpha,)) if isinstance(each, LinearFamily) else each for each in chosen]


def _weighted(family: Any, n_rows: int) -> Any:
    """Return the family for rows with weights; neighbors then need a fit per k."""
    has_no_map = isinstance(family, NeighborsFamily) and family.maps == (NO_MAP,)
    return weighted_neighbors(family, n_rows) if has_no_map else family


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
        One row per family with its best setting, best first.
    scans : dict of str to Scan
        Scores of all settings, per family.
    folds : ndarray of shape (n_samples,)
        Fold of each row; -1 if a row is only learned from.
    classes : ndarray of shape (n_classes,)
        The labels, sorted.
    finished : bool
        False if the budget or Ctrl-C ended the comparison early.
    families : dict of str to Family
        Families that took part.
    problems : dict of str to str
        Reasons of the families that could not be scored, by name.
    skipped : dict of str to str
        Reasons of the families that were left out, by name. Name them in `models` to run them.
    measure : Measure
        Metric that ranks the families. With "accuracy", the lowest log loss decides among families that are equally
        good.
    references : list of LeaderboardRow
        Classifiers of other libraries, scored on the same folds.
    race : Race
        The race, with the predictions of the families for the held-out rows.
    """

    rows: list[LeaderboardRow]
    scans: dict[str, Scan]
    folds: NDArray[np.int64]
    classes: NDArray
    finished: bool
    families: dict[str, Family]
    problems: dict[str, str]
    skipped: dict[str, str]
    measure: Measure
    references: list[LeaderboardRow]
    race: Race

    @property
    def best(self) -> LeaderboardRow:
        """The row of the winner."""
        return self.rows[0]

    def estimator(self, row: LeaderboardRow | None = None, seed: int = 0) -> Any:
        """Return the unfitted estimator of a row, by default of the best single family."""
        row = row or next(each for each in self.rows if each.model in self.families)
        return self.families[row.model].make(row.setting, seed)

    def fit_seconds(self, model: str) -> float:
        """Return the expected seconds of one fit of this family on all rows, with one setting."""
        return self.race.fit_seconds(model)

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
    columns = list(_cells(leaderboard[0], measure))
    lines = [tuple(_cells(row, measure).values()) for row in leaderboard]
    lines += [tuple(_cells(replace(row, model=f"({row.model})"), measure).values()) for row in references]
    footnote = "(in brackets: classifiers of other libraries, on the same folds)" if references else ""
    families = "family" if len(leaderboard) == 1 else "families"
    title = f"{len(leaderboard)} {families} by {measure.words}, best first"
    return Table(title, tuple(columns), lines, footnote)


def _cells(row: LeaderboardRow, measure: Measure) -> dict[str, str]:
    """Return the cells of a row by column; the measure that decides comes first."""
    return {
        "model": row.model,
        measure.words: with_spread(row.score, row.score_std, len(row.fold_scores)),
        "accuracy": with_spread(row.accuracy, row.std, len(row.fold_accuracy)),
        **({} if measure.words == "log loss" else {"log loss": "–" if row.log_loss is None else f"{row.log_loss:.3f}"}),
        "folds": row.folds_run,
        "setting": setting_in_words(row.setting),
    }
