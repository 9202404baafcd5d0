"""The clock of a job: pieces of work that do not fit are not begun, and the end of the job keeps its time."""

import time
from dataclasses import replace

import numpy as np
import pytest

from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import Clock
from kway.auto.race.compare import compare, compare_rows
from kway.auto.race.families import PlainFamily
from kway.auto.race.scoring import FoldedRows, Scan
from kway.auto.refit import SampleToAll, fit_leaderboard
from kway.labels import encode
from kway.planning.costs import size_of
from kway.progress import stage, watched

STEP = 0.02  # seconds of a fit of Slow


class Slow(PlainFamily):
    """A family whose fits take STEP each and are all alike."""

    def scan(self, data, which, clock):
        scores = np.full((len(which), 10), np.nan)
        stop = clock.pace(scores.size)
        for at in np.ndindex(scores.shape):
            if stop():
                break
            time.sleep(STEP)
            scores[at] = 0.5
        return Scan([{"i": i} for i in range(10)], scores, scores, 1.0, STEP)


def test_without_a_budget_the_time_is_never_up():
    clock = Clock()
    assert not clock.up(1e9)
    assert not clock.cut
    clock.interrupted = True
    assert clock.up()


def test_a_piece_that_does_not_fit_is_refused_and_a_smaller_one_is_not():
    clock = Clock(100.0, ending=lambda fit: 10 * fit)
    assert not clock.up(50)
    clock.keep(6.0)
    assert clock.reserve == 60
    assert clock.up(50)
    assert clock.cut
    assert not clock.up(30)


def test_the_pace_is_that_of_the_last_fit(slept):
    clock = Clock(1.0, time.perf_counter())
    told = []
    with watched(told.append), stage("fold 1", 0, 2):
        stop = clock.pace(7)
        assert not stop()
        time.sleep(0.4)
        assert not stop()
        time.sleep(0.4)
        assert stop()  # 0.2 s are left, and a fit takes 0.4
    assert [news.what for news in told[1:]] == [f"fold 1, fit {i} of 7" for i in (1, 2, 3)]


def test_the_comparison_leaves_time_for_the_end(slept):
    X, y = np.arange(40.0)[:, None], np.arange(40) % 2
    clock = Clock(1.0, time.perf_counter(), ending=lambda fit: 30 * fit)
    families = [Slow(name, "CentroidClassifier") for name in ("a", "b", "c", "d", "e")]
    found = compare_rows(X, encode(y), FitOptions(models=families), clock=clock)
    assert 0.2 < clock.spent() < 1.0 - 30 * STEP + 3 * STEP
    assert not found.finished
    assert {line.model for line in found.rows} | set(found.problems) == set("abcde")
    assert all("the time was up" in line.note for line in found.rows)


def test_a_search_that_would_take_too_long_is_not_begun(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 8)), rng.integers(0, 2, 300)
    monkeypatch.setattr(FoldedRows, "search_seconds", lambda _: 1e9)
    found = compare(X, y, ["centroid", "neighbors"], budget=1e6)
    assert "neighbors" in found.problems
    assert {line.model for line in found.rows} == {"centroid"}


def test_what_is_fitted_beside_the_best_follows_from_sizes_not_from_seconds():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = 2 * rng.normal(size=(3, 5))[y] + rng.normal(size=(300, 5))
    found = compare(X, y, ["softmax", "neighbors", "logistic"])
    asked = lambda found: [  # noqa: E731
        (line.model, line.fitted is None)
        for line in fit_leaderboard(found, lambda _: X, y, 0, Clock(), SampleToAll(size_of(X, 3)))
    ]
    busy = replace(found, scans={name: replace(scan, fit_seconds=1e9) for name, scan in found.scans.items()})
    assert asked(busy) == asked(found)
    assert sum(not left_out for _, left_out in asked(found)) >= 2


def test_without_a_budget_no_clock_is_asked(monkeypatch):
    """The same command and seed give the same model on a busy machine and on a quiet one."""
    monkeypatch.setattr("kway.auto.race.clock.Clock.up", lambda self, needed=0.0: self.budget is not None)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(3, 5))[y] + rng.normal(size=(300, 5))
    found = compare(X, y)
    assert found.finished
    assert not any("time" in line.note for line in found.rows)


def test_metrics_that_agree_are_not_all_run():
    from kway.auto.race.families import FAMILIES

    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 8))
    y, folds = np.arange(50) % 2, np.arange(50) % 5
    plain = FoldedRows(X, y, folds, {})
    unit = FoldedRows(X / np.linalg.norm(X, axis=1, keepdims=True), y, folds, {})
    assert FAMILIES["neighbors"].skip_reason(plain) == ""
    assert "length 1" in FAMILIES["neighbors"].skip_reason(unit)
    found = compare(unit.X, y)
    assert "neighbors" in found.skipped
    assert "neighbors" not in {line.model for line in found.rows}
    assert compare(unit.X, y, ["neighbors"]).best.model == "neighbors"  # asked for by name
    from scipy.sparse import csr_matrix

    assert "sparse" in FAMILIES["neighbors-manhattan"].skip_reason(FoldedRows(csr_matrix(X), y, folds, {}))


@pytest.mark.parametrize("budget", [None, 1e-9])
def test_the_temperature_of_one_split_belongs_to_the_model_of_all_rows(budget, tmp_path):
    """Where time is short one fit on part of the rows gives the temperature; the model saved is that of all rows."""
    import kway
    from kway.auto.job import run_job
    from kway.auto.train_test import read_train_test

    found = run_job(read_train_test("wine"), FitOptions(["softmax"], alpha=0.01, budget=budget))
    alone = kway.SoftmaxClassifier(alpha=0.01, random_state=0).fit(found.X, found.data.y)
    np.testing.assert_allclose(found.model.estimator_.estimator_.coef_, alone.coef_, rtol=1e-5, atol=1e-6)
    assert 0.1 < found.temperature < 10
    assert found.hurried == (budget is not None)
    found.model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway").predict_proba(found.data.test_rows)
    np.testing.assert_allclose(again, found.model.predict_proba(found.data.test_rows))
