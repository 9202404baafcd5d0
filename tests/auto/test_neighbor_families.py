"""Neighbors with learned columns as a family: better where columns differ in worth, blind to held-out labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from kway.auto.race.compare import compare
from kway.auto.race.families import FAMILIES
from kway.auto.race.folds import fold_numbers
from kway.auto.race.scoring import FoldedRows
from kway.confidence.splits import Split
from kway.errors import InputError

LEARNED = FAMILIES["neighbors-nca"]


def noisy(n=900, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = 2 * rng.normal(size=(n, 20)).astype(np.float32)
    X[:, [3, 7]] /= 2  # what tells is drowned
    X[:, 3] += 2.5 * (y == 1)
    X[:, 7] += 2.5 * (y == 2)
    return X, y


def folded(X, y):
    return FoldedRows(X, y, fold_numbers(y, 5, None, None, 0))


def test_it_wins_where_most_columns_tell_nothing():
    found = compare(*noisy(), models=["neighbors", "neighbors-nca"])
    by_name = {line.model: line for line in found.rows}
    assert found.best.model == "neighbors-nca"
    assert by_name["neighbors-nca"].accuracy > by_name["neighbors"].accuracy + 0.04
    model = found.estimator().fit(*noisy())
    assert model.score(*noisy(seed=1)) == pytest.approx(found.best.accuracy, abs=0.04)


def predictions(data, fold, wanted=None):
    inside = data.folds == fold
    split = Split(np.flatnonzero(~inside), np.flatnonzero(inside))
    settings = LEARNED.settings(data)
    wanted = range(len(settings)) if wanted is None else wanted
    return settings, inside, LEARNED.fit_predict(data, split, settings, list(wanted), lambda: False)


def test_answers_are_those_of_the_estimator_on_the_fold():
    X, y = noisy(400)
    settings, inside, found = predictions(folded(X, y), 0)
    for at in (3, 60, 120, 199):
        model = LEARNED.make(settings[at], None).fit(X[~inside], y[~inside])
        np.testing.assert_array_equal(model.predict(X[inside]), found.predicted[:, at])


def test_only_the_wanted_maps_run():
    data = folded(*noisy(400))
    settings = LEARNED.settings(data)
    own = [at for at, setting in enumerate(settings) if setting["map"] == "scales"]
    _, _, found = predictions(data, 1, own)
    np.testing.assert_array_equal(np.flatnonzero(found.has_run), own)
    assert np.isfinite(found.losses[:, own]).all()


def test_labels_of_held_out_rows_shape_nothing():
    rng = np.random.default_rng(0)
    found = compare(rng.normal(size=(600, 30)), rng.integers(0, 2, 600), models=["neighbors-nca"])
    assert found.best.accuracy < 0.56  # the best of 200 settings on labels drawn at random


def test_class_weights_reach_the_votes():
    X, y = noisy(600)
    rare = (y > 0) | (np.arange(600) % 8 == 0)
    found = compare(X[rare], y[rare], models=["neighbors-nca"], class_weight="balanced", metric="balanced")
    assert found.estimator().estimator.class_weight == "balanced"


@pytest.mark.parametrize(
    ("rows", "y", "why"),
    [
        (np.zeros((50, 200)), np.arange(50) % 2, "at most 128"),
        (sp.csr_matrix((50, 20)), np.arange(50) % 2, "at most 128"),
        (np.zeros((50, 20)), np.arange(50) % 25, "too few rows per class"),
        (np.zeros((50, 20)), np.arange(50) % 2, ""),
    ],
)
def test_when_it_is_idle(rows, y, why):
    said = LEARNED.skip_reason(FoldedRows(rows, y, np.arange(len(y)) % 5))
    assert why in said
    assert bool(why) == bool(said)


def test_sparse_rows_are_refused_in_words():
    data = FoldedRows(sp.random(60, 10, 0.5, "csr"), np.arange(60) % 2, np.arange(60) % 5)
    with pytest.raises(InputError, match="dense columns"):
        LEARNED.fit_predict(data, Split(np.arange(40), np.arange(40, 60)), [], [], lambda: False)
