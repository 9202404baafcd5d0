"""The blend of a race: probabilities of its families for rows that they did not learn from, and the weights.

Families that were run on all folds may be members: trees, the kernel softmax, and the two best others. If the setting
of a family was chosen among several, one more fit per fold gives its probabilities. Scores that are not probabilities
are divided by the temperature that is best for the same rows.

The blend is taken unless the paired measure per row says that it is worse than the best single family. Its predictions
come from weights that were learned on the other folds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.race.paired import CLEAR, paired_difference
from kway.auto.race.rounds import Race
from kway.auto.race.runner import Runner
from kway.auto.race.scoring import ACCURACY, MEASURES, LeaderboardRow, Predictions, Scan, leaderboard_row, spread
from kway.confidence.blend import HeldOut, learn_weights, log_probabilities
from kway.confidence.temperature import LOGS, SCORES, score_columns
from kway.errors import KwayError
from kway.measures import log_losses
from kway.probabilities import softmax

BLEND = "blend"  # its name on the leaderboard


@dataclass(frozen=True, eq=False)
class Pool:
    """Members with their predictions for the same rows, and the weights of the blend."""

    held_out: dict[str, HeldOut]  # by family
    codes: NDArray[np.int64]  # (m,)
    fold: NDArray[np.int64]  # (m,)
    row: LeaderboardRow  # of the blend
    weights: dict[str, float]  # of the members that are not negligible
    is_worse: bool  # than the best single family


def pool_of(race: Race, single: str, seed: int) -> Pool | None:
    """Return the blend of a race, or None if fewer than two families can be members; `single` is the best family."""
    splits = {name: len(race.runners[name].predictions) for name in {single: 0, **dict.fromkeys(race.members())}}
    most = max(splits.values())  # a family that was run on less than half of these folds would cost the others too many
    names = [name for name in splits if race.runners[name].rows == race.all_rows and 2 * splits[name] >= most]
    n_folds = min(int(race.folds.max()) + 1, *(splits[name] for name in names)) if names else 0
    if n_folds == 0:
        return None
    codes, fold = [np.concatenate(parts) for parts in zip(*_held_out_rows(race, n_folds))]
    held_out = dict[str, HeldOut]()
    for name in names:
        with progress.stage(f"{name}: probabilities for the blend", left=race.clock.left()):
            found = held_out_predictions(race.runners[name], race, n_folds, seed)
        if found is not None:
            held_out[name] = found
    if len(held_out) < 2 or single not in held_out:
        return None
    tables = [each.probabilities(codes) for each in held_out.values()]
    sample_weight = _class_weights(race.runners[single], codes)
    weights = learn_weights(tables, codes, sample_weight)
    pooled = _cross_fitted(tables, codes, fold, weights, sample_weight)
    kept = {name: float(weight) for name, weight in zip(held_out, weights) if weight > 0}
    row, predictions = _row(pooled, codes, fold, kept, race)
    worse = _is_worse(predictions, codes, held_out[single].probabilities(codes), race.runners[single])
    return Pool(held_out, codes, fold, row, kept, worse)


def _held_out_rows(race: Race, n_folds: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    rows = [race.splits[number].held_out for number in range(n_folds)]
    return [(race.codes[own], np.full(len(own), number)) for number, own in enumerate(rows)]


def held_out_predictions(runner: Runner, race: Race, n_folds: int, seed: int) -> HeldOut | None:
    """Return what a family predicts for the held-out rows of the folds; None if there is no time, or it cannot."""
    kept = [p for each in runner.predictions[:n_folds] if (p := each.probabilities) is not None]
    if len(kept) == n_folds:
        return HeldOut(np.concatenate(kept))
    tables, source, seconds = list[NDArray](), LOGS, race.fit_seconds(runner.family.name)
    for number in range(n_folds):
        if race.clock.up(seconds):
            return None
        race.clock.charge(seconds, seconds)
        learn, held_out = race.splits[number]
        try:
            model = runner.family.make(runner.scan.settings[runner.scan.best], seed)
            model.fit(runner.data.X[learn], runner.data.codes[learn])
            source = LOGS if hasattr(model, "predict_proba") else SCORES
            rows = runner.data.X[held_out]
            table = score_columns(model, rows) if source == SCORES else model.predict_proba(rows)
        except (KwayError, MemoryError):
            return None
        tables.append(
            spread(table, model.classes_, race.n_classes, table.min(initial=0.0) if source == SCORES else 0.0)
        )
    return HeldOut(np.concatenate(tables), source)


def _class_weights(runner: Runner, codes: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Return weights of rows (m,) by which every class counts the same, if the measure asks for it."""
    if not runner.measure.by_class:
        return None
    counts = np.bincount(codes)
    return np.asarray(1 / counts[codes], np.float64)


def _cross_fitted(
    tables: list[NDArray], codes: NDArray[np.int64], fold: NDArray[np.int64], weights: NDArray, sample: NDArray | None
) -> NDArray[np.float64]:
    """Return probabilities (m, K) of the blend, with weights that were learned on the other folds if there are any."""
    logs = [log_probabilities(table) for table in tables]
    pooled = softmax(sum(w * log for w, log in zip(weights, logs)))
    for number in range(int(fold.max()) + 1) if fold.max() > 0 else ():
        own, others = fold == number, fold != number
        learned = learn_weights([t[others] for t in tables], codes[others], None if sample is None else sample[others])
        pooled[own] = softmax(sum(w * log[own] for w, log in zip(learned, logs)))
    return pooled


def _row(
    p: NDArray[np.float64], codes: NDArray[np.int64], fold: NDArray[np.int64], weights: dict[str, float], race: Race
) -> tuple[LeaderboardRow, Predictions]:
    """Return the row of the blend on the leaderboard, and its predictions on all held-out rows."""
    losses = log_losses(p[np.arange(len(p)), codes])
    predictions = Predictions(p.argmax(axis=1)[:, None].astype(np.int32), losses[:, None].astype(np.float32), 0.0)
    parts = [fold == number for number in range(int(fold.max()) + 1)]
    each = [(Predictions(predictions.predicted[own], predictions.losses[own], 0.0), codes[own]) for own in parts]
    measure = next(iter(race.runners.values())).measure
    scan = Scan(
        settings=[{name: round(weight, 3) for name, weight in sorted(weights.items(), key=lambda item: -item[1])}],
        accuracy=np.array([ACCURACY.of(*pair) for pair in each]),
        log_loss=np.array([own.loss() for own, _ in each]),
        scores=np.array([measure.of(*pair) for pair in each]),
        measure=measure,
        best=0,
        rows=race.all_rows,
        seconds=0.0,
    )
    return leaderboard_row(BLEND, scan, "", len(race.splits)), predictions


def _is_worse(blend: Predictions, codes: NDArray[np.int64], single: NDArray[np.float64], runner: Runner) -> bool:
    """Return whether the blend is clearly worse than a single family, in log loss unless classes count alike."""
    measure = runner.measure if runner.measure.by_class else MEASURES["log-loss"]
    losses = log_losses(single[np.arange(len(codes)), codes])
    theirs = measure.per_row(single.argmax(axis=1), losses, codes)
    own = measure.per_row(blend.predicted[:, 0], blend.losses[:, 0], codes)
    return paired_difference(theirs, own).exceeds(errors=CLEAR)
