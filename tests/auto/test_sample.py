"""Rows to compare on: as many as the time allows, every class alike, whole classes left out where rows would be few."""

import numpy as np
import pytest

from kway.auto import compare_data
from kway.auto.fit_options import FitOptions
from kway.auto.job import run_job
from kway.auto.race.folds import draw_sample
from kway.auto.train_test import TrainTest
from kway.labels import encode
from kway.planning.costs import Size


def rows_times_classes(size):
    return size.n * size.K * 1e-6


def test_all_rows_where_they_take_no_longer():
    codes = np.arange(30_000) % 10
    assert draw_sample(codes, Size(30_000, 4, 10), rows_times_classes, 1.0, 0) is None


def test_every_class_keeps_its_share():
    rng = np.random.default_rng(0)
    codes = rng.choice(4, 100_000, p=[0.9, 0.09, 0.00998, 0.00002])
    found = draw_sample(codes, Size(100_000, 4, 4), rows_times_classes, 0.1, 0)
    assert 20_000 <= len(found.rows) <= 25_002
    assert (np.diff(found.rows) > 0).all()
    assert f"{len(found.rows):,} of the 100,000" in found.note
    whole, part = np.bincount(codes), np.bincount(codes[found.rows])
    np.testing.assert_allclose(part[:3] / part.sum(), whole[:3] / whole.sum(), rtol=0.01)
    assert part[3] == min(2, whole[3])


def test_classes_go_before_their_rows_do():
    codes = np.random.default_rng(1).permutation(np.arange(100_000) % 10_000)
    found = draw_sample(codes, Size(100_000, 4, 10_000), rows_times_classes, 30.0, 0)
    counts = np.bincount(codes[found.rows], minlength=10_000)
    assert set(counts) == {0, 10}
    assert 1000 <= (counts > 0).sum() < 2000
    assert "of the 10,000 classes" in found.note


@pytest.mark.parametrize("grouped", [False, True])
def test_the_job_compares_on_a_sample_and_fits_on_all(monkeypatch, grouped):
    monkeypatch.setattr(compare_data, "comparison_seconds", lambda _, size: 0.0 if size.n <= 200 else 1e6)
    monkeypatch.setattr("kway.auto.race.folds.SAMPLE_ROWS", 200)
    monkeypatch.setattr(compare_data, "references_of", lambda options: ())
    rng = np.random.default_rng(2)
    y = np.arange(1000) % 4
    X = (rng.normal(size=(1000, 6)) + 3 * np.eye(6)[y]).astype(np.float32)
    groups = np.arange(1000) // 3 if grouped else None
    data = TrainTest(
        "made", X[:800], y[:800], X[800:], y[800:], None if groups is None else groups[:800], labels=encode(y[:800])
    )
    found = run_job(data, FitOptions(folds=3))
    assert len(found.comparison.folds) == 200
    assert any("200 of the 800 training rows" in note for note in found.notes)
    assert found.evaluation.scores.accuracy > 0.9
    best = found.best.fitted
    learned = getattr(best, "_training", None)
    assert learned is None or learned.n_rows == 800
