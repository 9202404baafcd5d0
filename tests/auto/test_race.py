"""The race: rounds double, losers leave by the paired test, no winner is left out, ties go to the lower log loss."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import kway
from kway.auto import job
from kway.auto.compare_data import compare_data
from kway.auto.fit_options import FitOptions
from kway.auto.job import run_job
from kway.auto.race.clock import Clock
from kway.auto.race.compare import compare_rows
from kway.auto.race.families import FAMILIES, PlainFamily
from kway.auto.race.family import Runner
from kway.auto.race.folds import fold_numbers, stratified_order
from kway.auto.race.pool import BLEND, _is_worse, _predictions, pool_of
from kway.auto.race.rounds import Race, Round, plan_rounds
from kway.auto.race.scoring import ACCURACY, MEASURES, FoldedRows, Predictions, are_embeddings
from kway.auto.train_test import read_train_test
from kway.confidence.splits import Split
from kway.labels import encode
from kway.tables.read_options import ReadOptions
from kway.tables.reading import RowsInMemory


def blobs(n=600, n_classes=3, spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    return (2 * rng.normal(size=(n_classes, 6))[y] + spread * rng.normal(size=(n, 6))).astype(np.float32), y


class Scripted(PlainFamily):
    """A family that is right with a probability that depends on the rows it learns from; its log loss is given."""

    def __init__(self, name, right, loss=0.5):
        super().__init__(name, "CentroidClassifier")
        object.__setattr__(self, "right", right)
        object.__setattr__(self, "loss_", loss)
        object.__setattr__(self, "learned", [])

    def configured(self, class_weight, device):
        return self

    def planned_seconds(self, size):
        return 1e-6

    def fit_predict(self, data, split, settings, active, stop):
        self.learned.append((len(split.train), int(split.held_out[0])))
        own = data.codes[split.held_out]
        lucky = np.random.default_rng(list(self.name.encode())).random(len(own)) < self.right(len(split.train))
        loss = np.full((len(own), 1), self.loss_, np.float32)
        return Predictions(np.where(lucky, own, (own + 1) % 3)[:, None].astype(np.int32), loss, 1e-6)


def scripted_race(*families, n=10_000):
    X, y = np.zeros((n, 1)), np.arange(n) % 3
    return compare_rows(X, encode(y), FitOptions(models=families), clock=Clock(1e6))


def test_the_rounds_double_the_rows_and_then_the_folds():
    assert plan_rounds(500, 5, 3) == [Round(500, 1), Round(500, 2), Round(500, 4), Round(500, 5)]
    sizes = [each.rows for each in plan_rounds(13_000, 5, 3)]
    assert sizes == [1625, 3250, 6500, 13_000, 13_000, 13_000, 13_000]
    assert plan_rounds(13_000, 1, 650) == [Round(6500, 1), Round(13_000, 1)]  # ten rows per class at least


def test_a_sample_has_every_class_and_grows_by_new_rows_only():
    rng = np.random.default_rng(0)
    codes = rng.choice(4, 10_000, p=[0.9, 0.09, 0.0098, 0.0002])
    order = stratified_order(codes, np.arange(10_000))
    assert sorted(order) == list(range(10_000))
    shares = np.bincount(codes[order[:1000]], minlength=4) / 1000
    np.testing.assert_allclose(shares, np.bincount(codes, minlength=4) / 10_000, atol=0.002)
    assert set(codes[order[:4]]) == {0, 1, 2, 3}


def test_a_loser_leaves_when_it_has_no_room_left():
    good = Scripted("good", lambda n: 0.9)
    flat = Scripted("flat", lambda n: 0.5)
    found = scripted_race(good, flat)
    notes = {line.model: line.note for line in found.rows}
    assert [rows for rows, _ in flat.learned] == [1000, 2000]  # the first gain is known after two rounds
    assert notes["flat"].startswith("left the race after learning from 2,000 of 8,000 rows: 0.5")
    assert notes["good"] == "no other family is left in the race"
    assert [rows for rows, _ in good.learned] == [1000, 2000, 4000, 8000, 8000]  # two folds are enough
    assert found.rows[0].folds_run == "2 of 5"


def test_wide_rows_of_length_1_are_taken_for_embeddings():
    X, y = np.random.default_rng(0).normal(size=(300, 129)).astype(np.float32), np.arange(300) % 3
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert are_embeddings(rows)
    assert not are_embeddings(X)  # pixels, or a wide table
    assert not are_embeddings(rows[:, :128] / np.linalg.norm(rows[:, :128], axis=1, keepdims=True))
    assert not are_embeddings(sp.csr_matrix(rows))
    found = kway.fit(rows, y, budget=20).result
    assert found.best.model != BLEND
    assert found.comparison.skipped["extra-trees"].startswith("it is for tables and images")


def test_a_family_that_runs_alone_learns_all_folds():
    alone = Scripted("alone", lambda n: 0.9)
    found = scripted_race(alone)
    assert [rows for rows, _ in alone.learned] == [1000, 2000, 4000, 8000, 8000, 8000, 8000, 8000]
    assert found.rows[0].note == ""


def test_a_late_bloomer_stays_and_wins():
    good = Scripted("good", lambda n: 0.8)
    late = Scripted("late", lambda n: {1000: 0.3, 2000: 0.5, 4000: 0.7}.get(n, 0.9))
    found = scripted_race(good, late)
    assert found.best.model == "late"


def test_the_first_families_have_time_before_trees_are_planned():
    first, second = (replace(FAMILIES["centroid"], name=name, planned=lambda size: size.n / 3000) for name in "ab")
    trees = replace(FAMILIES["extra-trees"], planned=lambda size: size.n / 200)  # 75 s in all
    X, y = np.zeros((3000, 1)), np.arange(3000) % 3
    folds = fold_numbers(y, 5)

    def entering(budget):
        clock = Clock(budget, in_planned_seconds=True)
        families = {"a": first, "b": second, "extra-trees": trees}
        race = Race({"": FoldedRows(X, y, folds)}, [folds], families, ACCURACY, clock, blend=True)
        return race._entering(race._in_order())

    assert entering(1000.0) == ["a", "b", "extra-trees"]
    assert entering(80.0) == ["a", "b"]


def test_among_equals_the_lower_log_loss_wins():
    sure, fair = Scripted("sure", lambda n: 0.901, loss=1.02), Scripted("fair", lambda n: 0.9, loss=0.93)
    assert scripted_race(sure, fair).best.model == "fair"
    better = Scripted("better", lambda n: 0.95, loss=1.02)
    assert scripted_race(better, fair).best.model == "better"


def test_a_race_answers_as_single_fits_do():
    X, y = blobs(400)
    folds = fold_numbers(y, 3)
    families = {name: FAMILIES[name] for name in ("softmax", "neighbors", "extra-trees")}
    race = Race({"": FoldedRows(X, y, folds)}, [folds], families, ACCURACY, Clock())
    race.run()
    for name, runner in race.scored().items():
        assert runner.rows == race.all_rows
        for fold, predictions in enumerate(runner.predictions):
            inside, setting = folds == fold, runner.settings[runner.scan.best]
            model = runner.family.make(setting, 0).fit(X[~inside], y[~inside])
            same = model.predict(X[inside]) == predictions.predicted[:, runner.scan.best]
            assert same.mean() > (0.98 if name == "softmax" else 0.999)


def test_the_setting_within_one_standard_error_with_the_lowest_log_loss_is_chosen():
    codes = np.zeros(400, np.int64)
    runner = Runner(FAMILIES["centroid"], None, [{"i": i} for i in range(3)], ACCURACY, [0, 1, 2])
    predicted = np.zeros((400, 3), np.int32)
    predicted[:1, 1] = predicted[:100, 2] = 1
    predicted[1, 0] = 1
    losses = np.repeat([[0.5, 0.3, 0.1]], 400, axis=0).astype(np.float32)
    runner.add(Predictions(predicted, losses, 1.0), codes, 100)
    assert runner.scan.best == 1
    runner.drop_settings(100)
    assert runner.active == [0, 1]
    unknown = Runner(FAMILIES["centroid"], None, [{"i": i} for i in range(3)], ACCURACY, [0, 1, 2])
    unknown.add(Predictions(predicted, np.full((400, 3), np.nan, np.float32), 1.0), codes, 100)
    assert unknown.scan.best == 0  # no log losses: the preferred setting


# ---- the family that would have won


def tickets(n=200, n_topics=8, seed=0):
    """Short texts: each topic prefers some of 400 words that all topics use, next to a date and a number of noise."""
    rng = np.random.default_rng(seed)
    words = np.array([f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in "lmnrstvxbd"])
    rare = rng.dirichlet(np.full(len(words), 0.15), n_topics)
    mixed = 0.45 * rare + 0.55 * rng.dirichlet(np.full(len(words), 0.5))
    y = rng.integers(0, n_topics, n)
    texts = [" ".join(rng.choice(words, rng.integers(6, 14), p=mixed[topic])) for topic in y]
    days = np.datetime64("2024-01-01") + rng.integers(0, 360, n).astype("timedelta64[D]")
    return pa.table({"subject": texts, "created": days, "length": rng.normal(size=n)}), y


def test_naive_bayes_is_not_left_out_on_short_texts_next_to_a_date():
    table, y = tickets(seed=1)
    data = read_train_test(RowsInMemory(table, y, "tickets"), ReadOptions())
    chosen = compare_data(data, FitOptions(budget=300))
    scores = {line.model: line.accuracy for line in chosen.comparison.rows if not line.stopped}
    assert chosen.comparison.best.model == "naive-bayes"
    others = [score for name, score in scores.items() if name != "naive-bayes"]
    assert scores["naive-bayes"] > max(others, default=0) + 0.03
    near = {line.model: line.accuracy for line in chosen.comparison.rows}
    assert near["neighbors-cosine-text"] > near["neighbors-cosine"] - 0.02  # no date drowns the text
    found = run_job(data, FitOptions(["naive-bayes"]))
    assert found.best.model == "naive-bayes"
    assert found.evaluation.scores.accuracy > 0.5


# ---- the blend


def test_the_blend_is_learned_from_rows_that_its_members_have_not_seen():
    X, y = blobs(500, spread=2.5)
    found = compare_rows(X, encode(y), FitOptions(), clock=Clock(600), blend=True)
    pool = pool_of(found.race, found.best.model, 0)
    assert set(pool.weights) <= set(found.race.members()) | {found.best.model}
    assert {"extra-trees", "kernel-softmax", "boosted", "boosted-gentle"} <= set(found.race.members())
    assert len(found.race.members()) == 6
    splits = found.race.splits
    for name in ("extra-trees", found.best.model):
        runner = found.race.runners[name]
        setting = runner.settings[runner.scan.best]
        tables = []
        for learn, held_out in splits:
            model = runner.family.make(setting, 0).fit(X[learn], y[learn])
            tables.append(model.predict_proba(X[held_out]))
        np.testing.assert_allclose(pool.held_out[name].probabilities(), np.concatenate(tables), atol=1e-5)
    assert pool.row.log_loss < min(line.log_loss for line in found.rows if line.log_loss is not None) + 0.01
    assert not pool.is_worse


def scored(p, codes):
    return _predictions(np.asarray(p, np.float64), codes)


def test_a_blend_is_worse_only_if_the_log_loss_per_row_says_so_clearly():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 500)
    p = np.clip(0.75 + 0.1 * rng.normal(size=500), 0.05, 0.95)  # of the true class
    good = np.where(codes[:, None] == np.arange(2), p[:, None], 1 - p[:, None])
    bad = 0.8 * good + 0.1  # less sure on every row
    log_loss = MEASURES["log-loss"]
    assert _is_worse(scored(bad, codes), scored(good, codes), codes, ACCURACY)
    assert not _is_worse(scored(good, codes), scored(bad, codes), codes, ACCURACY)
    assert not _is_worse(scored(good, codes), scored(good, codes), codes, log_loss)
    noise = np.roll(good, 1, axis=0)  # as good on average; which rows are lucky differs
    same_class = np.where(np.roll(codes, 1)[:, None] == codes[:, None], noise, noise[:, ::-1])
    assert not _is_worse(scored(same_class, codes), scored(good, codes), codes, ACCURACY)


def test_the_job_takes_the_single_family_if_the_blend_is_worse(monkeypatch):
    X, y = blobs(200, spread=2.5)
    monkeypatch.setattr(job, "pool_of", lambda *arguments: replace(pool_of(*arguments), is_worse=True))
    result = kway.fit(X, y, budget=600).result
    assert result.best.model != BLEND
    assert result.weights == {}
    assert result.temperature is not None


@pytest.fixture(scope="module")
def blended(tmp_path_factory):
    rng = np.random.default_rng(1)
    X, y = blobs(300, spread=2.5)
    table = pa.table({**{f"x{j}": X[:, j] for j in range(6)}, "word": rng.choice(["a", "b", "c"], 300)})
    return kway.fit(table, np.array(["u", "v", "w"])[y], budget=600)


def test_the_job_ends_in_a_blend_that_is_saved_and_explained(blended, tmp_path):
    result = blended.result
    assert result.best.model == BLEND
    assert list(result.weights) == blended.model.names_
    assert blended.leaderboard.best.model == BLEND
    assert result.comparison.rows[1].fitted is not None
    blended.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    rows = result.data.test_rows
    np.testing.assert_array_equal(again.predict(rows), result.evaluation.predicted)
    np.testing.assert_allclose(again.predict_proba(rows), blended.predict_proba(rows), atol=1e-7)
    assert again.predict_proba(rows).sum(axis=1) == pytest.approx(1)
    assert blended.explain().columns[0]
    blended.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert all(name in page for name in result.weights)


def test_single_keeps_one_family_and_so_do_guarantees():
    X, y = blobs(200, spread=2.5)
    one = kway.fit(X, y, single=True, budget=600)
    assert one.result.best.model != BLEND
    assert one.result.weights == {}
    assert one.result.temperature is not None
    sets = kway.fit(X, y, sets=0.9, budget=600)
    assert sets.result.best.model != BLEND
    assert sets.result.sets is not None


def test_splits_are_the_rows_outside_and_inside_the_folds():
    X, y = blobs(90)
    folds = fold_numbers(y, 3)
    race = Race({"": FoldedRows(X, y, folds)}, [folds], {"softmax": FAMILIES["softmax"]}, ACCURACY, Clock())
    for fold, split in enumerate(race.splits):
        assert isinstance(split, Split)
        np.testing.assert_array_equal(split.held_out, np.flatnonzero(folds == fold))
        np.testing.assert_array_equal(split.train, np.flatnonzero(folds != fold))
