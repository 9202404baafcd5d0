import pickle

import numpy as np
import pytest
from scipy.stats import betabinom, kstest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

import kway
from kway.confidence import OpenSetClassifier
from kway.confidence.impostors import auroc
from kway.confidence.known_scores import KNOWN_SCORES
from kway.confidence.openset import pick_unknown
from kway.errors import CombinationError, InputError
from kway.tables.datasets.catalog import folder


@pytest.fixture
def scene(rng, blobs):
    """Six clouds, of which four are known; rows to learn from, new known rows, strangers."""
    X, y = blobs(rng, 3000, n_classes=6, d=6)
    names = np.array(["ant", "bee", "cat", "dog"])
    known, stranger = np.flatnonzero(y < 4), np.flatnonzero(y >= 4)
    learn, new = known[:1200], known[1200:]
    return X[learn], names[y[learn]], X[new], names[y[new]], X[stranger]


@pytest.mark.parametrize("score", KNOWN_SCORES)
def test_strangers_are_turned_away_and_the_known_let_in(scene, score):
    X, y, X_new, _, strangers = scene
    model = OpenSetClassifier(score_by=score, false_rejects=0.05, class_groups=2, random_state=0).fit(X, y)
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    answers = model.predict(X_new)
    assert (answers == "unknown").mean() < 0.09  # 5 % promised, 240 held out
    assert (model.predict(strangers) == "unknown").mean() > (0.3 if score in ("distance", "joint") else 0.1)
    kept = answers != "unknown"
    np.testing.assert_array_equal(answers[kept], model.estimator_.predict(X_new)[kept])
    why = model.explain(X_new)
    np.testing.assert_array_equal(why.labels, answers)
    np.testing.assert_array_equal(why.rejected, model.known_score(X_new) < model.threshold_)
    np.testing.assert_array_equal(why.candidates, model.estimator_.predict(X_new))
    assert model.score_ == model.guarantee_.score == score
    assert model.predict_proba(X_new).shape == (len(X_new), 4)
    assert set(model.predict_topk(X_new, 2).ids.ravel()) <= set(model.classes_)


@pytest.mark.parametrize("rate", [0.05, 0.2])
@pytest.mark.parametrize("score", ["distance", "max-probability"])
def test_false_rejects_have_exactly_the_promised_distribution(blobs, score, rate):
    """Of m held-out rows the rate is Beta(r, m + 1 - r) with r = floor((m + 1) rate): mean r / (m + 1) <= rate."""
    rng, m, n, repeats = np.random.default_rng(3), 60, 80, 200
    rejected = np.empty(repeats)
    for i in range(repeats):
        X, y = blobs(rng, 240 + n)
        model = OpenSetClassifier(
            kway.CentroidClassifier(), score_by=score, false_rejects=rate, class_groups=0, cv=0.25, random_state=i
        ).fit(X[:240], y[:240])
        assert model.guarantee_.n_calibration == m
        rejected[i] = (model.predict(X[240:]) == -1).sum()
    rank = int(rate * (m + 1))
    law = betabinom(n, rank, m + 1 - rank)
    assert abs(rejected.mean() - law.mean()) < 3.5 * law.std() / np.sqrt(repeats)
    pit = law.cdf(rejected - 1) + rng.uniform(size=repeats) * law.pmf(rejected)
    assert kstest(pit, "uniform").pvalue > 1e-3


def test_choosing_the_score_does_not_break_the_promise(blobs):
    """ "auto" looks at impostors inside the rows to learn from only, so the held-out rows stay fresh."""
    rng, n, repeats = np.random.default_rng(4), 50, 60
    rejected = np.empty(repeats)
    for i in range(repeats):
        X, y = blobs(rng, 200 + n)
        model = OpenSetClassifier(kway.CentroidClassifier(), false_rejects=0.1, random_state=i).fit(X[:200], y[:200])
        rejected[i] = (model.predict(X[200:]) == -1).mean()
    assert rejected.mean() < 0.1 + 3 * rejected.std() / np.sqrt(repeats)
    assert rejected.mean() > 0.05


def test_impostors_like_the_classes_left_out(scene):
    """New classes made like the known ones get in no more often than promised."""
    X, y, _, _, strangers = scene
    model = OpenSetClassifier(false_rejects=0.05, random_state=0).fit(X, y)
    best = model.false_accepts_[0]
    assert model.guarantee_.false_accepts == best
    assert model.score_ == best.score
    areas = [report.auroc for report in model.false_accepts_]
    assert areas == sorted(areas, reverse=True)
    assert {report.score for report in model.false_accepts_} == set(KNOWN_SCORES)
    assert best.impostors == "classes left out"
    assert best.n_impostors == 960  # every row to learn from, once
    assert (model.predict(strangers) != "unknown").mean() < best.bound + 0.1
    assert "at most 0.05 of new known rows like the 240 held out are rejected" in str(model.guarantee_)
    assert "impostors (classes left out) were accepted" in str(model.guarantee_)


def test_rows_labelled_unknown_are_impostors_not_a_class(scene):
    X, y, X_new, _, strangers = scene
    both, labels = np.vstack([X, strangers[:300]]), np.concatenate([y, ["alien"] * 300])
    order = np.random.default_rng(5).permutation(len(both))
    model = OpenSetClassifier(unknown="alien", false_rejects=0.05, random_state=0).fit(both[order], labels[order])
    assert "alien" not in model.classes_
    best = model.false_accepts_[0]
    assert (best.impostors, best.n_impostors, best.worst_class) == ("rows labeled unknown", 300, "alien")
    assert best.share == pytest.approx((model.predict(strangers[300:]) != "alien").mean(), abs=0.12)
    assert (model.predict(X_new) == "alien").mean() < 0.09
    rows = np.arange(len(both))
    chosen = labels[order] != "alien"
    split = [(rows[rows % 4 > 0], rows[rows % 4 == 0])]
    explicit = OpenSetClassifier(unknown="alien", score_by="margin", cv=split).fit(both[order], labels[order])
    assert explicit.guarantee_.n_calibration == chosen[rows % 4 == 0].sum()
    by_hand = kway.SoftmaxClassifier().fit(both[order][chosen & (rows % 4 > 0)], labels[order][chosen & (rows % 4 > 0)])
    np.testing.assert_allclose(explicit.estimator_.coef_, by_hand.coef_)


def test_the_unknown_label_goes_with_the_labels():
    assert pick_unknown(None, np.array(["unknown", "b"])) == "unknown_"
    assert pick_unknown(None, np.array([3, 4])) == -1
    assert pick_unknown(None, np.array([-1.0, -0.5])) == -2
    assert pick_unknown(None, np.array([False, True])) == -1
    assert pick_unknown(None, np.array(["a"], dtype=object)) == "unknown"
    assert pick_unknown(np.int64(99), np.array([1, 2])) == 99
    assert pick_unknown(None, np.array([0, 2**63], np.uint64)) == 2**63 + 1  # -1 would make floats of them
    assert pick_unknown(None, np.array([-(2**63), -1])) == 0
    with pytest.raises(InputError, match="does not fit labels that are of dtype int64"):
        pick_unknown("none", np.array([1, 2]))
    with pytest.raises(InputError, match="does not fit labels that are text"):
        pick_unknown(-1, np.array(["a", "b"]))
    with pytest.raises(InputError, match="does not fit labels that are of dtype uint64"):
        pick_unknown(-1, np.array([0, 2**63], np.uint64))
    with pytest.raises(InputError, match="have no free label for unknown rows; convert them to text"):
        pick_unknown(None, np.array(["2020-01-01"], "M8[D]"))


@pytest.mark.parametrize("labels", [["a", "b", "c"], [0, 1, 2], [-1, 0, 1], [0.0, 1.0, 2.0]], ids=str)
@pytest.mark.parametrize("as_objects", [False, True])
def test_every_kind_of_label(rng, blobs, labels, as_objects):
    X, codes = blobs(rng, 300)
    y = np.array(labels, dtype=object if as_objects else None)[codes]
    model = OpenSetClassifier(false_rejects=0.1, score_by="distance", random_state=0).fit(X, y)
    answers = model.predict(np.vstack([X, X + 50]))
    assert set(answers[300:]) == {model.unknown_}
    assert model.unknown_ not in labels
    assert (answers[:300] == y).mean() > 0.9


def test_too_few_held_out_rows_reject_nothing_and_say_so(rng, blobs):
    X, y = blobs(rng, 100)
    model = OpenSetClassifier(random_state=0).fit(X, y)
    assert model.threshold_ == -np.inf
    assert "nothing is rejected, because fewer than 99 rows were held out" in str(model.guarantee_)
    np.testing.assert_array_equal(model.predict(X + 50), model.estimator_.predict(X + 50))


def test_two_classes_have_no_class_to_leave_out(rng, blobs):
    X, y = blobs(rng, 200, n_classes=2)
    model = OpenSetClassifier(random_state=0, false_rejects=0.1).fit(X, y)
    assert model.false_accepts_ == ()
    assert model.guarantee_.false_accepts is None
    assert model.score_ == "distance"
    assert (model.predict(X + 50) == -1).all()


def test_a_fitted_estimator(scene):
    X, y, X_new, y_new, strangers = scene
    for inner, score in (
        (kway.SoftmaxClassifier(), "energy"),
        (kway.NeighborsClassifier(), "distance"),
        (GaussianNB(), "max-probability"),
    ):
        model = OpenSetClassifier(inner.fit(X, y), cv="prefit", false_rejects=0.05).fit(X_new[:600], y_new[:600])
        assert model.score_ == score
        assert model.estimator_ is inner
        assert (model.predict(X_new[600:]) == "unknown").mean() < 0.09
        assert model.false_accepts_ == ()
    labelled = np.concatenate([y_new[:600], ["alien"] * 10])
    model = OpenSetClassifier(inner, unknown="alien", cv="prefit").fit(
        np.vstack([X_new[:600], strangers[:10]]), labelled
    )
    assert model.guarantee_.n_calibration == 600
    (report,) = model.false_accepts_
    assert (report.n_impostors, report.accepted) == (10, (model.predict(strangers[:10]) != "alien").sum())
    with pytest.raises(CombinationError, match="needs decision_function, and training rows"):
        OpenSetClassifier(kway.SoftmaxClassifier().fit(X, y), score_by="joint", cv="prefit").fit(X, y)
    with pytest.raises(InputError, match="is a class of the fitted estimator"):
        OpenSetClassifier(inner, unknown="ant", cv="prefit").fit(X, y)


def test_wrong_parameters_are_refused(rng, blobs):
    X, y = blobs(rng, 60)
    for wrong in ({"false_rejects": 0}, {"false_rejects": 1.5}, {"class_groups": -1}, {"n_neighbors": 0}, {"cv": 5}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            OpenSetClassifier(**wrong).fit(X, y)
    with pytest.raises(InputError, match="score_by"):
        OpenSetClassifier(score_by="entropy").fit(X, y)


@pytest.mark.parametrize("inner", [kway.SoftmaxClassifier(), kway.NeighborsClassifier()], ids=str)
@pytest.mark.parametrize("score", ["auto", "distance", "margin"])
def test_model_files_and_pickles(scene, inner, score, tmp_path):
    X, y, X_new, _, strangers = scene
    model = OpenSetClassifier(inner, score_by=score, false_rejects=0.05, class_groups=2, random_state=0).fit(X, y)
    model.save(tmp_path / "model.kway")
    rows = np.vstack([X_new, strangers])
    for again in (kway.load(tmp_path / "model.kway"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
        np.testing.assert_array_equal(again.known_score(rows), model.known_score(rows))
        assert again.guarantee_ == model.guarantee_
        assert again.false_accepts_ == model.false_accepts_
        assert again.unknown_ == "unknown"


def test_accuracy_counts_a_right_unknown_as_right():
    X, y = load_iris(return_X_y=True)
    model = OpenSetClassifier(score_by="distance", false_rejects=0.05, random_state=0).fit(X, y)
    assert model.score(X + 100, np.full(150, -1)) == 1.0


@pytest.mark.slow
def test_out_of_scope_texts_of_clinc150():
    """False rejects guaranteed on validation rows hold on test rows, and the best score is chosen by impostors."""
    place = folder()
    if place is None:
        pytest.skip("set KWAY_DATA")
    with np.load(place / "clinc150_minilm.npz") as data:
        X, y, part = data["x"].astype(np.float32), data["label_names"][data["y"]], data["split"]
    rows = np.flatnonzero(part != "test")
    cv = [(np.flatnonzero(part[rows] == "train"), np.flatnonzero(part[rows] == "val"))]
    X_test, y_test, rate = X[part == "test"], y[part == "test"], 0.05
    model = OpenSetClassifier(kway.SoftmaxClassifier(alpha=1e-5), unknown="oos", false_rejects=rate, cv=cv)
    labels = model.fit(X[rows], y[rows]).predict(X_test)
    known = y_test != "oos"
    assert {report.score for report in model.false_accepts_} == set(KNOWN_SCORES)
    # 3,000 held out, 4,500 tested: three standard errors of the difference
    assert (labels[known] == "oos").mean() < rate + 3 * np.sqrt(rate * (1 / 3000 + 1 / 4500))
    scores = model.known_score(X_test)
    assert auroc(scores[known], scores[~known]) > 0.97
    assert (labels[~known] != "oos").mean() < 0.15
    assert (labels[known] == y_test[known]).mean() > 0.91
