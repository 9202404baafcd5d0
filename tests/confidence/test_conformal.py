import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom, kstest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import kway
from kway.confidence import ConformalClassifier, PredictionSets
from kway.confidence.conformal import METHODS, CoverageGuarantee, conformal_quantile
from kway.errors import BudgetError, CombinationError, InputError


def brute_sets(model, X, u):
    """{c : s_c <= q_c} from the whole table of probabilities."""
    p = model.estimator_.predict_proba(X)
    sets = []
    for row, v in zip(p, u):
        aps = [row[row > p_c].sum() + v * row[row == p_c].sum() for p_c in row]
        s = 1 - row if model.method == "lac" else np.array(aps)
        sets.append(set(np.flatnonzero(s <= model.thresholds_)))
    return sets


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["Listed", "Stated"])
def test_sets_are_those_of_the_definition(rng, kind, method, per_class, draw, request):
    X, y = draw(rng, 3000, n_classes=40, truth=0.4)  # hard: sets far longer than the first list
    model = ConformalClassifier(
        request.getfixturevalue(kind)(0.4).fit(X), method=method, per_class=per_class, cv="prefit", random_state=3
    )
    model.fit(X[:2000], y[:2000])
    sets = model.predict_set(X[2000:])
    u = np.random.RandomState(3).uniform(size=1000)
    found = [set(row) for row in sets.to_lists()]
    assert found == brute_sets(model, X[2000:], u)
    assert sets.sizes.max() > 16
    assert np.mean(sets.covers(y[2000:])) == np.mean([c in s for c, s in zip(y[2000:], found)])
    p = model.estimator_.predict_proba(X[2000:])
    assert all((np.diff(p[i, codes]) <= 0).all() for i, codes in enumerate(sets))  # most probable first


def counts(pit, covered, n, m, rank):
    """Randomised probability transform of covered counts, uniform if they are beta-binomial."""
    law = betabinom(n, rank, m + 1 - rank)
    return law.cdf(covered - 1) + pit.uniform(size=len(covered)) * law.pmf(covered)


@pytest.mark.parametrize("method", METHODS)
def test_coverage_has_exactly_the_promised_distribution(method, draw, Stated):
    """Of m held-out rows, coverage is Beta(r, m + 1 - r) with r = ceil((m + 1) 0.9): mean r / (m + 1) >= 0.9.

    With m in place of m + 1, or the interpolated quantile, the mean moves by 8 standard errors.
    """
    rng, m, n, repeats = np.random.default_rng(1), 50, 100, 400
    covered = np.empty(repeats)
    for i in range(repeats):
        X, y = draw(rng, m + n)
        model = ConformalClassifier(Stated(3.0).fit(X), method=method, cv="prefit", random_state=int(rng.integers(1e9)))
        model.fit(X[:m], y[:m])
        model.random_state = int(rng.integers(1e9))  # u of new rows is independent of that of held-out rows
        covered[i] = model.predict_set(X[m:]).covers(y[m:]).sum()
    rank = 46
    law = betabinom(n, rank, m + 1 - rank)
    assert abs(covered.mean() - law.mean()) < 3.5 * law.std() / np.sqrt(repeats)
    assert kstest(counts(rng, covered, n, m, rank), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:predict_set")  # with so few rows some sets are of every class
def test_coverage_holds_for_votes_with_ties_and_zeros(method, blobs):
    """Discrete scores: the promise is a lower bound, kept on average over repetitions that fit and split anew."""
    rng, repeats, n = np.random.default_rng(2), 150, 60
    covered = np.empty(repeats)
    for i in range(repeats):
        X, y = blobs(rng, 120 + n, spread=2.0)
        model = ConformalClassifier(kway.NeighborsClassifier(), 0.8, method, cv=0.25, random_state=i)
        model.fit(X[:120], y[:120])
        model.random_state = i + 10_000
        covered[i] = model.predict_set(X[120:]).covers(y[120:]).mean()
    assert covered.mean() > 0.8 - 3 * covered.std() / np.sqrt(repeats)


def test_coverage_of_every_class(rng, draw, Stated):
    """One class is hard: on average is not enough for it, a promise a class is."""
    X, y = draw(rng, 40_000, n_classes=4)
    X[:, 0] -= 2 * (rng.uniform(size=len(X)) < 0.5)  # class 0 is underrated on half of the rows
    held, new = slice(0, 20_000), slice(20_000, None)
    missed = {}
    for per_class in (False, True):
        model = ConformalClassifier(Stated().fit(X), per_class=per_class, cv="prefit").fit(X[held], y[held])
        covered = model.predict_set(X[new]).covers(y[new])
        missed[per_class] = covered[y[new] == 0].mean()
    assert missed[False] < 0.85
    assert missed[True] == pytest.approx(0.9, abs=0.015)


def test_digits():
    data = kway.datasets.digits()
    X, y = data.x_train[::2] / 255.0, data.y_train[::2]
    model = ConformalClassifier(kway.SoftmaxClassifier(alpha=1e-3), 0.95, random_state=0).fit(X, y)
    sets = model.predict_set(data.x_test / 255.0)
    assert abs(sets.covers(data.y_test).mean() - 0.95) < 0.03  # 500 held out, 1,000 tested: two standard errors
    assert 1 < sets.sizes.mean() < 2
    np.testing.assert_array_equal(model.predict(data.x_test / 255.0), model.estimator_.predict(data.x_test / 255.0))


def test_too_few_held_out_rows_say_so(rng, draw, Stated):
    X, y = draw(rng, 60, n_classes=3)
    model = ConformalClassifier(Stated().fit(X), cv="prefit").fit(X[:8], y[:8])
    assert "every class is in every set, because fewer than 9 rows" in str(model.guarantee_)
    with pytest.warns(UserWarning, match="every class is in every set"):
        sets = model.predict_set(X[8:])
    assert (sets.sizes == 3).all()
    nine = ConformalClassifier(Stated().fit(X), cv="prefit").fit(X[:9], y[:9])
    assert nine.guarantee_.n_short == 0
    assert "at least 0.9 of new rows like the 9 held out (LAC)" in str(nine.guarantee_)
    some = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:3]])
    few = ConformalClassifier(Stated().fit(X), per_class=True, cv="prefit").fit(X[some], y[some])
    assert few.guarantee_.n_short == 2  # class 1 has three rows, class 2 none
    assert few.guarantee_.n_full == 0
    with pytest.warns(UserWarning, match="2 classes are in every set, because fewer than 9 rows of each") as said:
        sets = few.predict_set(X)
    assert said[0].filename == __file__
    assert [sorted(labels) for labels in sets] == [sorted(labels) for labels in brute_sets(few, X, np.zeros(60))]
    none = ConformalClassifier(coverage=0.4, cv=0.001).fit(X, y)  # one row would do, none is held out
    assert (none.guarantee_.n_calibration, none.guarantee_.n_short) == (0, 3)
    one = CoverageGuarantee(0.9, "lac", True, 20, 1, 3)
    assert one.vague
    assert "1 classes are in every set" in str(one)


def test_lists_stay_short_where_classes_are_many(rng, Listed):
    """2,000 classes: no list is longer than the sets need, so nothing of size n x K is asked for."""
    n, n_classes = 300, 2000
    y = rng.integers(0, n_classes, n)
    X = rng.standard_normal((n, n_classes))
    X[np.arange(n), y] += 9
    model = ConformalClassifier(Listed().fit(X), cv="prefit").fit(X[:200], y[:200])
    model.estimator_.asked_ = []
    sets = model.predict_set(X[200:])
    assert sets.covers(y[200:]).mean() > 0.8
    assert max(k for _, k in model.estimator_.asked_) <= 64
    assert sum(rows * k for rows, k in model.estimator_.asked_) < 100 * n_classes / 4


def test_a_set_of_all_classes_that_would_not_fit_is_refused(rng, monkeypatch, draw, Stated):
    X, y = draw(rng, 20)
    model = ConformalClassifier(Stated().fit(X), cv="prefit").fit(X[:5], y[:5])
    monkeypatch.setenv("KWAY_MEMORY", str(25 * len(model.classes_) * 8))  # 80% of it is just enough
    with pytest.warns(UserWarning, match="every class"):
        model.predict_set(X)
    monkeypatch.setenv("KWAY_MEMORY", "100")
    with pytest.warns(UserWarning, match="every class"), pytest.raises(BudgetError, match="predict_set"):
        model.predict_set(X)


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_sets_of_every_class_say_why(rng, draw, method):
    X, y = draw(rng, 600, n_classes=10)
    y = rng.integers(0, 10, len(y))  # one neighbor names the right class of one row in ten
    model = ConformalClassifier(kway.NeighborsClassifier(1), 0.9, method=method, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="of the held-out rows have a label of probability 0.*use more neighbors"):
        sets = model.predict_set(X)
    assert (sets.sizes == 10).all()
    assert "every class is in every set" in str(model.guarantee_)
    assert model.guarantee_.n_zero > 0.8 * model.guarantee_.n_calibration
    plain = ConformalClassifier(kway.CentroidClassifier(), 0.9, method=method, random_state=0).fit(X, y)
    assert not plain.guarantee_.vague


def test_empty_sets_can_be_filled_with_the_answer(rng, draw, Stated):
    X, y = draw(rng, 2000, truth=5.0)
    model = ConformalClassifier(Stated(5.0).fit(X), 0.5, cv="prefit").fit(X[:1000], y[:1000])
    sets = model.predict_set(X[1000:])
    empty = sets.sizes == 0
    assert 0.2 < empty.mean() < 0.6
    model.allow_empty = False
    full = model.predict_set(X[1000:])
    assert (full.sizes >= 1).all()
    np.testing.assert_array_equal(full.ids[full.indptr[:-1]][empty], model.predict(X[1000:])[empty])
    assert [a.tolist() for a, e in zip(full, empty) if not e] == [a.tolist() for a, e in zip(sets, empty) if not e]


def test_the_quantile_is_the_finite_sample_one(rng):
    scores = rng.permutation(99).astype(float)
    assert conformal_quantile(scores, 0.9) == 89  # the 90th smallest, not the 91st that rounding would give
    assert conformal_quantile(scores, 0.99) == 98
    assert conformal_quantile(scores, 0.991) == np.inf
    assert conformal_quantile(np.empty(0), 0.5) == np.inf
    for m in range(1, 200):
        some = rng.normal(size=m)
        assert conformal_quantile(some, 0.5) == np.sort(some)[(m + 2) // 2 - 1]


def test_what_cannot_work_is_refused(rng, draw):
    X, y = draw(rng, 30, n_classes=3)
    with pytest.raises(CombinationError, match="TemperatureScaledClassifier"):
        ConformalClassifier(kway.SVMClassifier()).fit(X, y)
    for coverage in (0, 1, 1.5, 90):
        with pytest.raises(InputError, match="coverage"):
            ConformalClassifier(coverage=coverage).fit(X, y)
    with pytest.raises(InputError, match="method"):
        ConformalClassifier(method="raps").fit(X, y)
    with pytest.raises(InputError, match="cv must be"):
        ConformalClassifier(cv=5).fit(X, y)
    with pytest.raises(InputError, match="one label per set"):
        PredictionSets(np.array([0, 1]), np.array(["a"])).covers(["a", "b"])


def test_wraps_another_wrapper_in_files_and_pickles(rng, tmp_path, draw):
    X, y = draw(rng, 300, n_classes=4)
    y = np.array(["a", "bb", "c", "d"])[y]
    inner = kway.TemperatureScaledClassifier(kway.SVMClassifier(alpha=0.01), cv=2)
    model = ConformalClassifier(inner, method="aps", per_class=True, random_state=0).fit(X, y)
    model.save(tmp_path / "model.kway")
    for again in (kway.load(tmp_path / "model.kway"), pickle.loads(pickle.dumps(model))):
        assert again.predict_set(X).to_lists() == model.predict_set(X).to_lists()
        assert again.guarantee_ == model.guarantee_
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_frames_and_another_librarys_pipeline(rng):
    n = 300
    frame = pd.DataFrame({"colour": rng.choice(["red", "green", "blue"], n), "size": rng.standard_normal(n)})
    y = np.where(frame["size"] + (frame["colour"] == "red") + 0.3 * rng.standard_normal(n) > 0.5, "yes", "no")
    columns = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough")
    model = ConformalClassifier(make_pipeline(columns, LogisticRegression()), random_state=0).fit(frame[:200], y[:200])
    assert model.predict_set(frame[200:]).covers(y[200:]).mean() > 0.85
    assert model.feature_names_in_.tolist() == ["colour", "size"]
    top = model.predict_topk(frame, 5)
    assert top.ids.shape == (n, 2)
    np.testing.assert_array_equal(top.ids[:, 0], model.predict(frame))
    np.testing.assert_allclose(top.scores[:, 0], model.predict_proba(frame).max(axis=1))
    assert not hasattr(model, "explain")
    assert hasattr(ConformalClassifier(), "explain")
