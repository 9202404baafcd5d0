"""The blend of a race: its members, their weights, and whether it is worse than the best single family.

Members are the best single family, trees, the kernel softmax, and the two best other families. The weights are learned
from probabilities for held-out rows. A family whose setting was chosen among several needs one more fit per fold for
these. Scores that are not probabilities are divided by a temperature first.

The blend is chosen unless a paired test shows that it is worse than the best single family. For this test, the weights
that predict a fold are learned on the other folds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.race.family import Runner
from kway.auto.race.folds import weights_to_fit
from kway.auto.race.paired import CLEAR, paired_difference
from kway.auto.race.rounds import Race
from kway.auto.race.scoring import (
    ACCURACY,
    MEASURES,
    LeaderboardRow,
    Measure,
    Predictions,
    Scan,
    leaderboard_row,
    spread,
)
from kway.confidence.blend import HeldOut, learn_weights, pool_probabilities
from kway.confidence.temperature import LOGS, SCORES, score_columns
from kway.errors import KwayError
from kway.measures import log_losses

BLEND = "blend"  # name of the blend on the leaderboard


@dataclass(frozen=True, eq=False)
class Pool:
    """The blend of a race, with the predictions of its members for the same m held-out rows."""

    held_out: dict[str, HeldOut]  # predictions of each member, by family
    codes: NDArray[np.int64]  # (m,) class codes of the rows
    fold: NDArray[np.int64]  # (m,) folds of the rows
    row: LeaderboardRow  # the row of the blend on the leaderboard
    weights: dict[str, float]  # weights above 0, by family
    sample_weight: NDArray | None  # (m,) weights of the rows with which the weights of the members are learned
    is_worse: bool  # whether the blend is clearly worse than the best single family


def pool_of(race: Race, single: str, seed: int) -> Pool | None:
    """Return the blend of a race; None if fewer than two families can be members.

    `single` is the best single family. The blend uses the folds on which all members were run.
    """
    n_splits = {name: len(race.runners[name].predictions) for name in dict.fromkeys([single, *race.members()])}
    # A family that was run on less than half of the folds would leave too few folds for the others.
    required = max(n_splits.values()) / 2
    names = [name for name in n_splits if race.runners[name].rows == race.all_rows and n_splits[name] >= required]
    if not names:
        return None
    n_folds = min(int(race.folds.max()) + 1, *(n_splits[name] for name in names))
    codes = race.codes[race.held_out_rows(n_folds)]
    fold = np.repeat(np.arange(n_folds), [len(split.held_out) for split in race.splits[:n_folds]])
    held_out = dict[str, HeldOut]()
    for name in names:
        with progress.stage(f"{name}: probabilities for the blend", left=race.clock.left()):
            predictions = held_out_predictions(race.runners[name], race, n_folds, seed)
        if predictions is not None:
            held_out[name] = predictions
    if len(held_out) < 2 or single not in held_out:
        return None
    tables = [each.probabilities() for each in held_out.values()]
    sample_weight = _sample_weight(race.runners[single], codes, race.weights_of(n_folds))
    weights = learn_weights(tables, codes, sample_weight)
    pooled = _cross_fitted(tables, codes, fold, weights, sample_weight)
    positive = {name: float(weight) for name, weight in zip(held_out, weights) if weight > 0}
    blend = _predictions(pooled, codes, race.weights_of(n_folds))
    single_predictions = _predictions(held_out[single].probabilities(), codes, race.weights_of(n_folds))
    is_worse = _is_worse(blend, single_predictions, codes, race.runners[single].measure)
    row = _leaderboard_row(blend, codes, fold, positive, race)
    return Pool(held_out, codes, fold, row, positive, sample_weight, is_worse)


def own_predictions(race: Race, model: str, seed: int) -> tuple[HeldOut | None, NDArray[np.int64]]:
    """Return the predictions of one family for held-out rows, and the row numbers.

    These are all folds, or if the time was too short for the race, those that it has learned with all rows, and at
    least one.
    """
    runner, n_folds = race.runners[model], int(race.folds.max()) + 1
    if race.clock.cut:
        n_folds = min(len(runner.predictions), n_folds) if runner.rows == race.all_rows else 1
    return held_out_predictions(runner, race, n_folds, seed), race.held_out_rows(n_folds)


def held_out_predictions(runner: Runner, race: Race, n_folds: int, seed: int) -> HeldOut | None:
    """Return the predictions of a family for the held-out rows of the folds; None if time or memory are too short."""
    codes, weights = race.codes[race.held_out_rows(n_folds)], race.weights_of(n_folds)
    stored = [p for each in runner.predictions[:n_folds] if (p := each.probabilities) is not None]
    if len(stored) == n_folds:
        return HeldOut(np.concatenate(stored), codes, weights=weights)
    tables, source, seconds = list[NDArray](), LOGS, race.fit_seconds(runner.family.name)
    for number in range(n_folds):
        if race.clock.up(seconds):
            return None
        race.clock.charge(seconds, seconds)
        train, held_out = race.splits[number]
        try:
            model = runner.family.make(runner.scan.settings[runner.scan.best], seed)
            model.fit(runner.data.X[train], runner.data.codes[train], **weights_to_fit(runner.data.weights, train))
            source = LOGS if hasattr(model, "predict_proba") else SCORES
            rows = runner.data.X[held_out]
            table = score_columns(model, rows) if source == SCORES else model.predict_proba(rows)
        except (KwayError, MemoryError):
            return None
        missing = table.min(initial=0.0) if source == SCORES else 0.0  # for classes without a training row
        tables.append(spread(table, model.classes_, race.n_classes, missing))
    return HeldOut(np.concatenate(tables), codes, source, weights)


def _sample_weight(runner: Runner, codes: NDArray[np.int64], weights: NDArray | None) -> NDArray[np.float64] | None:
    """Return the weights (m,) of rows, scaled to the same total weight per class if the measure does so."""
    if not runner.measure.by_class:
        return weights
    counts = np.bincount(codes, weights)
    return np.asarray((1 if weights is None else weights) / counts[codes], np.float64)


def _cross_fitted(
    tables: list[NDArray], codes: NDArray[np.int64], fold: NDArray[np.int64], weights: NDArray, sample: NDArray | None
) -> NDArray[np.float64]:
    """Return probabilities (m, K) of the blend, with weights learned on the other folds; with one fold, `weights`."""
    pooled = pool_probabilities(weights, tables)
    for number in range(int(fold.max()) + 1) if fold.max() > 0 else ():
        inside, others = fold == number, fold != number
        learned = learn_weights([t[others] for t in tables], codes[others], None if sample is None else sample[others])
        pooled[inside] = pool_probabilities(learned, [table[inside] for table in tables])
    return pooled


def _predictions(p: NDArray[np.float64], codes: NDArray[np.int64], weights: NDArray | None = None) -> Predictions:
    """Return probabilities (m, K) of one setting as predictions for rows with weights (m,)."""
    losses = log_losses(p[np.arange(len(p)), codes])
    predicted = p.argmax(axis=1)[:, None].astype(np.int32)
    return Predictions(predicted, losses[:, None].astype(np.float32), 0.0, weights=weights)


def _leaderboard_row(
    blend: Predictions, codes: NDArray[np.int64], fold: NDArray[np.int64], weights: dict[str, float], race: Race
) -> LeaderboardRow:
    """Return the row of the blend on the leaderboard."""
    inside = [fold == number for number in range(int(fold.max()) + 1)]
    pairs = [(blend.at(rows), codes[rows]) for rows in inside]
    measure = next(iter(race.runners.values())).measure
    scan = Scan(
        settings=[{name: round(weight, 3) for name, weight in sorted(weights.items(), key=lambda item: -item[1])}],
        accuracy=np.array([ACCURACY.of(*pair) for pair in pairs]),
        log_loss=np.array([predictions.loss() for predictions, _ in pairs]),
        scores=np.array([measure.of(*pair) for pair in pairs]),
        measure=measure,
        best=0,
        seconds=0.0,
    )
    return leaderboard_row(BLEND, scan, "", len(race.splits))


def _is_worse(blend: Predictions, single: Predictions, codes: NDArray[np.int64], measure: Measure) -> bool:
    """Return whether the blend is significantly worse than a single family.

    Log losses are compared, or the measure itself if it gives all classes the same weight.
    """
    measure = measure if measure.by_class else MEASURES["log-loss"]
    per_row = [measure.per_row(each, 0, codes) for each in (single, blend)]
    return paired_difference(*per_row).exceeds(errors=CLEAR)
