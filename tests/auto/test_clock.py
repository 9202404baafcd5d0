"""The clock of a job: pieces of work that do not fit are not begun, and the end of the job keeps its time."""

import time
from dataclasses import replace

import numpy as np
import pytest

from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import REPORT_SECONDS, Clock, default_budget
from kway.auto.race.compare import compare, compare_rows
from kway.auto.race.families import FAMILIES, PlainFamily
from kway.auto.race.rounds import TOO_SLOW, Race
from kway.auto.race.scoring import ACCURACY, FoldedRows, Predictions
from kway.labels import encode
from kway.planning.costs import Size
from kway.progress import stage, watched

STEP = 0.02  # seconds of a fit of Slow


ONE_SETTING = {
    "softmax": {"alphas": (1.0,)},
    "kernel-softmax": {"gammas": (1.0,), "alphas": (1.0,)},
    "centroid": {"grid": ({},)},
    "neighbors-nca": {"maps": ("scales",)},
    "svm-one-vs-all": {"c_values": (1.0,)},
}


class Slow(PlainFamily):
    """A family whose splits take STEP each and are all alike."""

    def planned_seconds(self, size):
        return STEP

    def fit_predict(self, data, split, settings, active, stop):
        time.sleep(STEP)
        guess = np.zeros((len(split.held_out), 1), np.int32)
        return Predictions(guess, np.full(guess.shape, np.log(2), np.float32), STEP)


class VerySlow(Slow):
    """A family whose plan exceeds any budget."""

    def planned_seconds(self, size):
        return 1e9


def test_without_a_budget_the_time_is_never_up():
    clock = Clock()
    assert not clock.up(1e9)
    clock.interrupted = True
    assert clock.up()


def test_a_piece_that_does_not_fit_is_refused_and_a_smaller_one_is_not():
    clock = Clock(100.0)
    assert not clock.up(50)
    clock.reserve = 60
    assert clock.up(50)
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


def test_the_race_leaves_time_for_the_end():
    X, y = np.arange(40.0)[:, None], np.arange(40) % 2
    clock = Clock(REPORT_SECONDS + 12 * STEP, time.perf_counter())
    families = [Slow(name, "CentroidClassifier") for name in ("a", "b", "c", "d", "e")]
    found = compare_rows(X, encode(y), FitOptions(models=families), clock=clock)
    assert time.perf_counter() - clock.begun < 12 * STEP + 0.2
    assert not found.finished
    assert {line.model for line in found.rows} | set(found.problems) == set("abcde")
    reasons = [line.note for line in found.rows] + list(found.problems.values())
    assert any("time" in reason for reason in reasons)


def test_a_family_whose_plan_exceeds_the_budget_does_not_enter():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 8)), rng.integers(0, 2, 300)
    found = compare(X, y, ["centroid", VerySlow("slow", "CentroidClassifier")], budget=1e6)
    assert found.skipped == {"slow": TOO_SLOW}
    assert {line.model for line in found.rows} == {"centroid"}
    assert found.finished


class Planned(Slow):
    """A family whose plan says 5 s per split, whatever it takes."""

    seconds = 0.0

    def planned_seconds(self, size):
        return 5.0

    def fit_predict(self, data, split, settings, active, stop):
        time.sleep(self.seconds)
        right = np.random.default_rng(len(self.name)).random(len(split.held_out)) < 0.7
        guess = np.where(right, data.codes[split.held_out], 0)[:, None].astype(np.int32)
        return Predictions(guess, np.full(guess.shape, np.log(2), np.float32), self.seconds)


def test_by_default_the_speed_of_the_machine_decides_nothing(monkeypatch):
    X, y = np.arange(60.0)[:, None], np.arange(60) % 2
    families = [Planned(name, "CentroidClassifier") for name in ("a", "bb", "ccc", "dddd")]
    found = []
    for seconds in (0.0, 0.05):
        monkeypatch.setattr(Planned, "seconds", seconds)
        found.append(compare(X, y, families, folds=2))
    quick, slow = (
        ([(line.model, line.note, line.fold_accuracy) for line in each.rows], each.skipped) for each in found
    )
    assert quick == slow
    assert not found[0].finished  # the plan exceeds 20 s
    in_time = compare(X, y, families, folds=2, budget=100)
    assert in_time.finished
    assert {line.folds_run for line in in_time.rows} == {"2"}


def test_a_default_budget_ends_on_a_machine_that_is_far_too_slow():
    clock = Clock(begun=time.perf_counter() - 300)
    clock.use_default(Size(700, 13, 11))
    assert clock.left() < 0
    assert clock.up()
    assert clock.too_slow
    quick = Clock(begun=time.perf_counter() - 100)
    quick.use_default(Size(700, 13, 11))
    assert quick.left() == pytest.approx(22.8)
    quick.charge(25.0, 1.0)
    assert quick.up()
    assert not quick.too_slow


def test_the_default_budget_grows_with_the_table():
    assert default_budget(Size(700, 13, 11)) == pytest.approx(22.8)
    assert default_budget(Size(10_000, 50, 5)) == default_budget(Size(15_000, 16, 26)) == 60.0
    assert default_budget(Size(20_000, 50, 5)) == default_budget(Size(10_000, 100, 5)) == 120.0
    assert default_budget(Size(10_000, 3000, 5)) == default_budget(Size(10_000, 128, 5))  # images
    assert default_budget(Size(20_000, 3000, 5), embeddings=True) == 120.0
    assert default_budget(Size(10_000, 40_000, 5, density=1e-3)) == pytest.approx(48.0 * 10 / 8)


@pytest.mark.parametrize("name", ["softmax", "kernel-softmax", "centroid", "neighbors-nca", "svm-one-vs-all"])
def test_a_fit_of_one_setting_is_planned_as_a_part_of_the_grid_whatever_was_eliminated(name):
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    folds = np.arange(60) % 5
    race = Race({"": FoldedRows(X, y, folds)}, [folds], {name: FAMILIES[name]}, ACCURACY, Clock())
    race.clock.use_default(Size(60, 3, 2))
    runner, grid = race.runners[name], race.runners[name].planned_seconds(60)
    before = race.fit_seconds(name)
    runner.active = runner.active[:1]
    assert race.fit_seconds(name) == before == pytest.approx(grid / FAMILIES[name].planned_fits())
    alone = replace(FAMILIES[name], **ONE_SETTING[name]).planned_seconds(runner.data.size())
    assert alone / 3 < before < 1.01 * alone  # less than alone if settings share work, such as a map of the rows


def test_metrics_that_agree_are_not_all_run():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 8))
    y, folds = np.arange(50) % 2, np.arange(50) % 5
    plain = FoldedRows(X, y, folds)
    unit = FoldedRows(X / np.linalg.norm(X, axis=1, keepdims=True), y, folds)
    assert FAMILIES["neighbors"].skip_reason(plain) == ""
    assert "length 1" in FAMILIES["neighbors"].skip_reason(unit)
    found = compare(unit.X, y)
    assert "neighbors" in found.skipped
    assert "neighbors" not in {line.model for line in found.rows}
    assert compare(unit.X, y, ["neighbors"]).best.model == "neighbors"  # asked for by name
    from scipy.sparse import csr_matrix

    assert "sparse" in FAMILIES["neighbors-manhattan"].skip_reason(FoldedRows(csr_matrix(X), y, folds))


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
