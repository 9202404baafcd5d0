"""Neighbours with learned columns as a family: better where columns differ in worth, blind to held-out labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from kway.auto.race.clock import Clock
from kway.auto.race.compare import compare
from kway.auto.race.families import FAMILIES
from kway.auto.race.folds import fold_numbers
from kway.auto.race.scoring import FoldedRows
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
    return FoldedRows(X, y, fold_numbers(y, 5, None, None, 0), {})


def test_it_wins_where_most_columns_tell_nothing():
    found = compare(*noisy(), models=["neighbors", "neighbors-nca"])
    by_name = {line.model: line for line in found.rows}
    assert found.best.model == "neighbors-nca"
    assert by_name["neighbors-nca"].accuracy > by_name["neighbors"].accuracy + 0.04
    model = found.estimator().fit(*noisy())
    assert model.score(*noisy(seed=1)) == pytest.approx(found.best.accuracy, abs=0.04)


def test_scores_are_those_of_the_estimator_on_the_fold():
    X, y = noisy(400)
    data = folded(X, y)
    scan = LEARNED.scan(data, [0], Clock())
    inside = data.folds == 0
    for at in (3, 60, 120, 199):
        model = LEARNED.make(scan.settings[at], None).fit(X[~inside], y[~inside])
        assert model.score(X[inside], y[inside]) == pytest.approx(scan.accuracy[0, at])


def test_labels_of_held_out_rows_shape_nothing():
    rng = np.random.default_rng(0)
    found = compare(rng.normal(size=(600, 30)), rng.integers(0, 2, 600), models=["neighbors-nca"])
    assert found.best.accuracy < 0.56  # the best of 200 settings on labels drawn at random


def test_later_folds_run_the_better_map_only():
    data = folded(*noisy(400))
    first = LEARNED.scan(data, [0], Clock())
    (kind,) = data.cache["neighbors-nca"]
    rest = LEARNED.scan(data, [1, 2], Clock())
    own = np.array([setting["map"] == kind for setting in first.settings])
    assert np.isfinite(rest.accuracy[:, own]).all()
    assert np.isnan(rest.accuracy[:, ~own]).all()
    assert first.joined(rest).settings[first.joined(rest).best]["map"] == kind


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
        (np.broadcast_to(np.float32(0), (10**6, 20)), np.arange(10**6) % 2, "would take long"),
        (np.zeros((50, 20)), np.arange(50) % 2, ""),
    ],
)
def test_when_it_is_idle(rows, y, why):
    said = LEARNED.skip_reason(FoldedRows(rows, y, np.arange(len(y)) % 5, {}))
    assert why in said
    assert bool(why) == bool(said)


def test_sparse_rows_are_refused_in_words():
    data = FoldedRows(sp.random(60, 10, 0.5, "csr"), np.arange(60) % 2, np.arange(60) % 5, {})
    with pytest.raises(InputError, match="dense columns"):
        LEARNED.scan(data, [0], Clock())
