"""The weights are optimal, the blend is the pooled formula, and it comes back from a file the same."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import kway
from kway.auto.reasons import kept_facts
from kway.confidence import blend
from kway.confidence.blend import (
    NEGLIGIBLE,
    PULL,
    BlendClassifier,
    _has_explanation,
    _minimize,
    _named,
    learn_weights,
    log_probabilities,
    loss_and_gradient,
)
from kway.errors import BudgetError, CombinationError, InputError, ModelFileError
from kway.measures import MIN_PROBABILITY
from kway.pipelines import FeaturedClassifier


def drawn(seed):
    """Probabilities of m members for n rows of K classes: informative, random, over-confident or with zeros."""
    rng = np.random.default_rng(seed)
    n, K, m = int(rng.integers(5, 400)), int(rng.integers(2, 12)), int(rng.integers(1, 7))
    codes = rng.integers(0, K, n)
    tables = []
    for _ in range(m):
        z = rng.normal(size=(n, K)) + rng.uniform(-1, 4) * np.eye(K)[codes]
        p = np.exp(z * 10 ** rng.uniform(-1, 1))
        p[rng.random((n, K)) < rng.choice([0, 0.3])] = 0
        tables.append((p + 1e-300) / (p + 1e-300).sum(axis=1, keepdims=True))
    share = rng.random(n) if seed % 2 else np.ones(n)
    return tables, codes, share / share.sum()


def loss_of(weights, tables, codes, share, pull=PULL):
    """The objective, straight from its formula."""
    clipped = [np.clip(p, MIN_PROBABILITY, None) for p in tables]
    normalized = [p / p.sum(axis=1, keepdims=True) for p in clipped]
    pooled = np.prod([p**w for p, w in zip(normalized, weights)], axis=0)
    pooled /= pooled.sum(axis=1, keepdims=True)
    own = pooled[np.arange(len(codes)), codes]
    return -share @ np.log(own) + pull * ((weights - 1 / len(weights)) ** 2).sum()


@pytest.mark.parametrize("seed", range(8))
def test_the_gradient_is_that_of_finite_differences(seed):
    tables, codes, share = drawn(seed)
    logs = np.stack([log_probabilities(p) for p in tables])
    w = np.random.default_rng(seed).uniform(0, 1.5, len(tables))
    value, gradient = loss_and_gradient(w, logs, codes, share)
    assert value == pytest.approx(loss_of(w, tables, codes, share), rel=1e-9)
    numeric = approx_fprime(w, lambda v: loss_and_gradient(v, logs, codes, share)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=1e-5 * max(1, np.abs(gradient).max()))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("least", [0.0, NEGLIGIBLE])
def test_weights_are_optimal(seed, least):
    """Karush-Kuhn-Tucker: the slope is 0 for a free weight, and not negative for one at its bound; L is convex."""
    tables, codes, share = drawn(seed)
    logs = np.stack([log_probabilities(p) for p in tables])
    w = _minimize(logs, codes, share, least)
    assert (w >= least).all()
    _, slope = loss_and_gradient(w, logs, codes, share)
    free = w > least + 1e-9
    np.testing.assert_allclose(slope[free], 0, atol=2e-5)
    assert (slope[~free] > -2e-5).all()


@pytest.mark.parametrize("seed", range(40))
def test_a_blend_is_never_worse_than_its_best_member_beyond_the_pull(seed):
    """The best member alone, with weight 1, is a point of the problem; dropping moves log p by NEGLIGIBLE at most."""
    tables, codes, share = drawn(seed)
    weights = learn_weights(tables, codes, share)
    assert ((weights == 0) | (weights >= NEGLIGIBLE)).all()
    alone = [loss_of(row, tables, codes, share) for row in np.eye(len(tables))]
    dropped = NEGLIGIBLE * -np.log(MIN_PROBABILITY) * np.count_nonzero(weights == 0)
    assert loss_of(weights, tables, codes, share, pull=0) <= min(alone) + dropped + 1e-9


def test_useless_members_are_dropped_and_equal_members_share():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 600)
    good = np.exp(2 * rng.normal(size=(600, 3)) + 4 * np.eye(3)[codes])
    noise = np.exp(rng.normal(size=(600, 3)))
    good, noise = (p / p.sum(axis=1, keepdims=True) for p in (good, noise))
    weights = learn_weights([good, noise, good], codes)
    assert weights[1] == 0
    assert weights[0] == pytest.approx(weights[2], rel=1e-3)
    hopeless = learn_weights([noise, noise], (codes + 1) % 3 * 0 + noise.argmin(axis=1))
    np.testing.assert_allclose(hopeless, NEGLIGIBLE)


def test_sample_weights_count_rows():
    tables, codes, _ = drawn(4)
    weight = np.random.default_rng(0).integers(0, 3, len(codes))
    repeated = learn_weights([np.repeat(p, weight, axis=0) for p in tables], np.repeat(codes, weight))
    np.testing.assert_allclose(learn_weights(tables, codes, weight), repeated, atol=1e-5)


def test_weights_are_learned_from_rows_that_count(monkeypatch):
    """Only the last row has a weight, and a block of memory holds three rows."""
    tables, codes, _ = drawn(4)
    weight = np.zeros(len(codes))
    weight[-1] = 2.0
    monkeypatch.setattr(blend, "table_rows", lambda n_columns: 3)
    found = learn_weights(tables, codes, weight)
    np.testing.assert_allclose(found, learn_weights([p[-1:] for p in tables], codes[-1:]))
    assert len(set(found)) > 1


def test_many_classes_are_learned_from_some_of_the_rows(monkeypatch):
    tables, codes, share = drawn(12)
    monkeypatch.setattr(blend, "table_rows", lambda columns: len(codes) // 2)
    sizes, measure = [], blend.loss_and_gradient
    monkeypatch.setattr(
        blend, "loss_and_gradient", lambda w, logs, *rest: sizes.append(logs.shape[1]) or measure(w, logs, *rest)
    )
    found = learn_weights(tables, codes, share)
    assert set(sizes) == {len(codes) // 2}
    np.testing.assert_array_equal(found, learn_weights(tables, codes, share))


# ---- the classifier


def members():
    return [
        ("line", kway.SoftmaxClassifier()),
        ("kernel", kway.KernelSoftmaxClassifier(100)),
        ("near", kway.NeighborsClassifier()),
        ("margin", kway.SVMClassifier()),
    ]


def problem(n_classes=3, seed=0, n=300):
    X, y = make_classification(
        n,
        6,
        n_informative=4,
        n_redundant=0,
        n_classes=n_classes,
        n_clusters_per_class=2,
        class_sep=0.7,
        random_state=seed,
    )
    return X, np.array(["ant", "bee", "cat", "dog"])[y]


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    X, y = problem(request.param)
    return BlendClassifier(members(), random_state=0).fit(X, y), X, y


def test_probabilities_are_the_weighted_product(fitted):
    model, X, _ = fitted
    assert len(model.names_) == len(model.weights_) == len(model.estimators_)
    log = sum(w * log_probabilities(m.predict_proba(X)) for w, m in zip(model.weights_, model.estimators_))
    p = np.exp(log - log.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), p, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    top = model.predict_topk(X, 2)
    np.testing.assert_allclose(top.scores, -np.sort(-p, axis=1)[:, :2], atol=1e-12)
    f = model.decision_function(X)
    np.testing.assert_allclose(f, np.log(p[:, 1] / p[:, 0]) if p.shape[1] == 2 else np.log(p), rtol=1e-6, atol=1e-9)


def test_weights_are_those_of_the_same_folds_by_hand():
    X, y = problem()
    splitter = StratifiedKFold(4, shuffle=True, random_state=1)
    given = members()[:3]
    model = BlendClassifier(given, cv=splitter).fit(X, y)
    tables, codes = [np.zeros((len(y), 3)) for _ in given], np.unique(y, return_inverse=True)[1]
    for train, held in splitter.split(X, y):
        for table, (_, member) in zip(tables, given):
            table[held] = clone(member).fit(X[train], y[train]).predict_proba(X[held])
    weights = learn_weights(tables, codes)
    np.testing.assert_allclose(model.weights_, weights[weights > 0], atol=1e-6)


def test_a_member_without_probabilities_gets_a_temperature():
    X, y = problem()
    model = BlendClassifier([kway.SVMClassifier(), kway.LeastSquaresClassifier()]).fit(X, y)
    assert {type(m) for m in model.estimators_} == {kway.TemperatureScaledClassifier}
    assert model.names_[0] == "SVMClassifier"
    assert model.explain(X[:3]).values.shape == (3, 6)


def test_it_is_as_good_as_its_best_member_on_fresh_rows():
    """The best member is chosen in hindsight, by the fresh rows."""
    gains = []
    for load in (load_wine, load_breast_cancer):
        X, y = load(return_X_y=True)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        for seed in range(2):
            order = np.random.default_rng(seed).permutation(len(y))
            train, fresh = order[: len(y) // 2], order[len(y) // 2 :]
            model = BlendClassifier(members()[:3]).fit(X[train], y[train])
            own = [clone(m).fit(X[train], y[train]).predict_proba(X[fresh]) for _, m in members()[:3]]
            losses = [-np.log(np.maximum(p, 1e-6))[np.arange(len(fresh)), y[fresh]].mean()
                      for p in (model.predict_proba(X[fresh]), *own)]  # fmt: skip
            gains.append(min(losses[1:]) - losses[0])
    assert np.mean(gains) > 0
    assert min(gains) > -0.02


def test_weights_of_rows_reach_the_members_and_the_blend():
    X, y = problem()
    weight = np.where(y == "ant", 20.0, 1.0)
    plain, weighted = (BlendClassifier(members()[:2]).fit(X, y, **more) for more in ({}, {"sample_weight": weight}))
    assert (weighted.predict(X) == "ant").sum() > (plain.predict(X) == "ant").sum()
    with pytest.raises(InputError, match="'KNeighborsClassifier' takes no sample_weight"):
        BlendClassifier([KNeighborsClassifier()]).fit(X, y, sample_weight=weight)
    with pytest.raises(TypeError, match="'groups'"):
        BlendClassifier(members()).fit(X, y, groups=y)


def test_weights_of_rows_count_in_the_temperature_of_scores():
    """Weights of whole numbers are the same as repeated rows."""
    X, y = problem(n=60)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    rows = np.repeat(np.arange(len(y)), weight)
    pairs = [(np.arange(40), np.arange(40, 60))]
    repeated = [(np.flatnonzero(rows < 40), np.flatnonzero(rows >= 40))]
    margin = [("margin", kway.SVMClassifier(tol=1e-6))]
    weighted = BlendClassifier(margin, pairs).fit(X, y, sample_weight=weight)
    wanted = BlendClassifier(margin, repeated).fit(X[rows], y[rows])
    assert weighted.estimators_[0].temperature_ == pytest.approx(wanted.estimators_[0].temperature_, rel=1e-4)


def test_weights_are_requested_by_metadata_routing_and_passed_on_by_wrappers():
    X, y = problem(n=100)
    weight = np.where(y == "ant", 20.0, 1.0)
    model = BlendClassifier(members()[:2], 0.5)
    plain, weighted = (
        kway.TemperatureScaledClassifier(model, cv=0.5).fit(X, y, sample_weight=given) for given in (None, weight)
    )
    assert (weighted.predict(X) == "ant").sum() > (plain.predict(X) == "ant").sum()
    with config_context(enable_metadata_routing=True):
        routed = make_pipeline(model.set_fit_request(sample_weight=True)).fit(X, y, sample_weight=weight)
    alone = clone(model).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(routed.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize("kind", ["boosted", "extra"])
def test_nan_is_refused_also_if_the_member_that_refuses_it_is_dropped(kind, tmp_path, monkeypatch):
    X, y = problem(n=100)
    trees = ("trees", kway.TreesClassifier(kind, n_trees=3))
    only_trees = BlendClassifier([trees]).fit(X, y)
    monkeypatch.setattr(blend, "learn_weights", lambda *_: np.array([0.0, 1.0]))
    model = BlendClassifier([("line", kway.SoftmaxClassifier()), trees]).fit(X, y)
    model.save(tmp_path / "m.kway")
    bad = np.where(np.arange(6) == 0, np.nan, X)
    for each in (model, kway.load(tmp_path / "m.kway")):
        for ask in (each.predict, each.predict_proba, each.predict_topk):
            with pytest.raises(InputError, match="NaN"):
                ask(bad)
    assert only_trees.predict(bad).shape == y.shape


def test_seeds_repeat():
    X, y = problem()
    a, b, c = (BlendClassifier(members()[:2], random_state=seed).fit(X, y).weights_ for seed in (None, 0, 5))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"estimators": []}, "list of classifiers"),
        ({"estimators": kway.SoftmaxClassifier()}, "list of classifiers"),
        ({"estimators": [("a", 3)]}, "member 'a' must be a classifier"),
        ({"estimators": [("a", kway.SoftmaxClassifier()), ("a", kway.SVMClassifier())]}, "the name 'a'"),
        ({"cv": "prefit"}, "BlendClassifier.of"),
        ({"cv": 1}, "cv must be"),
    ],
)
def test_bad_parameters_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        BlendClassifier(**wrong).fit(*problem())


def test_members_without_a_name_get_a_free_one():
    softmax = kway.SoftmaxClassifier()
    found = _named([softmax, ("SoftmaxClassifier-3", softmax), softmax])
    assert [member.name for member in found] == ["SoftmaxClassifier", "SoftmaxClassifier-3", "SoftmaxClassifier-4"]
    with pytest.raises(InputError, match="two members have the name '1'"):
        _named([(1, softmax), (1, softmax)])


def test_a_member_that_gives_no_scores_is_refused():
    from sklearn.cluster import KMeans

    class Labels(KMeans):
        """Predicts labels, and nothing else."""

    with pytest.raises((CombinationError, InputError)):
        BlendClassifier([("labels", Labels(2))]).fit(*problem())


def test_every_class_with_one_row():
    X = np.arange(8.0).reshape(4, 2)
    model = BlendClassifier([kway.SoftmaxClassifier(), kway.CentroidClassifier()]).fit(X, list("abcd"))
    np.testing.assert_array_equal(model.weights_, 0.5)


def test_many_classes_are_answered_in_blocks(monkeypatch):
    X, y = problem()
    model = BlendClassifier(members()[:1]).fit(X, y)
    whole, asked = model.predict_proba(X), []
    monkeypatch.setattr(type(model), "_most_rows", staticmethod(lambda entries: asked.append(entries) or 7))
    np.testing.assert_allclose(model.predict_topk(X, 1).scores[:, 0], whole.max(axis=1))
    assert min(asked) >= 4 * 3
    monkeypatch.setenv("KWAY_MEMORY", "1KB")
    with pytest.raises(BudgetError, match="predict_topk"):
        model.predict_proba(X)


# ---- members with features


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "id": [f"r{i}" for i in range(n)],
            "size": y + rng.normal(size=n) * 0.7,
            "color": np.array(["red", "blue", "green"])[np.where(rng.random(n) < 0.7, y, rng.integers(0, 3, n))],
            "noise": rng.normal(size=n),
        }
    )
    frame.loc[::17, "size"] = np.nan
    return frame, np.array(["x", "y", "z"])[y]


def featured():
    return [
        ("line", FeaturedClassifier(kway.SoftmaxClassifier())),
        ("kernel", FeaturedClassifier(kway.KernelSoftmaxClassifier(80))),
        ("near", FeaturedClassifier(kway.NeighborsClassifier(15))),
        ("margin", FeaturedClassifier(kway.SVMClassifier())),
    ]


@pytest.fixture(scope="module")
def of_a_table():
    frame, y = table()
    fitted = [member.fit(frame, y) for _, member in featured()[:3]]
    return BlendClassifier.of(["line", "kernel", "near"], fitted, [0.5, 0.4, 0.3], ["x", "y", "z"], frame), frame, y


def test_members_take_the_raw_rows_of_a_table():
    frame, y = table()
    model = BlendClassifier(featured()).fit(frame, y)
    assert model.score(frame, y) > 0.7
    assert list(model.feature_names_in_) == list(frame.columns)
    assert all(isinstance(member, FeaturedClassifier) for member in model.estimators_)


def test_every_form_of_a_table_is_answered_alike(of_a_table):
    model, frame, y = of_a_table
    want = model.predict_proba(frame)
    columns = {name: frame[name].tolist() for name in frame}
    for rows in (columns, frame.to_dict("records"), pa.table(frame)):
        np.testing.assert_allclose(model.predict_proba(rows), want)
    few = frame[:20]
    explained = model.explain(few).values
    for rows in ({name: few[name].tolist() for name in few}, few.to_dict("records"), pa.table(few)):
        np.testing.assert_allclose(model.explain(rows).values, explained)
    fitted = BlendClassifier(featured()[:1]).fit(columns, y)
    assert fitted.score(columns, y) > 0.7


def test_rows_are_transformed_once_for_members_with_equal_features(of_a_table, tmp_path, monkeypatch):
    model, frame, _ = of_a_table
    model.save(tmp_path / "m.kway")
    for loaded in (model, kway.load(tmp_path / "m.kway")):
        assert len({id(member.features_) for member in loaded.estimators_}) == 1
        calls, transform = [], kway.Features.transform
        monkeypatch.setattr(kway.Features, "transform", lambda self, X: calls.append(1) or transform(self, X))  # noqa: B023
        loaded.predict(frame)
        monkeypatch.undo()
        assert len(calls) == 1


def test_a_table_is_explained_by_its_own_columns(of_a_table, tmp_path):
    model, frame, _ = of_a_table
    found = model.explain(frame)
    assert found.names == tuple(frame.columns)
    assert found.values.shape == (len(frame), 4)
    assert "color" in str(found)
    importance = np.abs(found.values).mean(axis=0)
    assert importance[0] == 0  # the id is not used
    assert importance[1:3].min() > importance[3]
    model.save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").explain(frame[:4]).values, found.values[:4])


def test_explanations_of_members_with_features_name_the_columns():
    frame, y = table()
    line, kernel = (member.fit(frame, y).explain(frame) for _, member in featured()[:2])
    assert "color=red" in str(line) or "color=blue" in str(line)
    assert kernel.names == tuple(frame.columns)


# ---- explanation


def unbounded(model, X):
    """Rows without a probability at the bound: log-probabilities of the members are bounded, their scores are not."""
    dividing = [member for member in model.estimators_ if _has_explanation(member)]
    smallest = np.min([member.predict_proba(X).min(axis=1) for member in dividing], axis=0)
    near = smallest > MIN_PROBABILITY
    assert near.sum() > 5
    return near


def test_contributions_of_two_classes_add_up_to_the_log_odds():
    X, y = problem(2)
    model = BlendClassifier(members()).fit(X, y)
    for labels in (None, "ant"):
        found = model.explain(X[:20], labels)
        f = model.decision_function(X[:20])
        own, near = np.where(found.labels == model.classes_[1], f, -f), unbounded(model, X[:20])
        np.testing.assert_allclose(found.scores[near], own[near], atol=1e-6)


def test_contributions_of_many_classes_differ_as_the_scores_do():
    X, y = problem(3)
    model = BlendClassifier(members()).fit(X, y)
    a, b = (model.explain(X[:20], label) for label in ("ant", "bee"))
    f = model.decision_function(X[:20])
    near = unbounded(model, X[:20])
    np.testing.assert_allclose((a.scores - b.scores)[near], (f[:, 0] - f[:, 1])[near], atol=1e-6)


def test_the_default_members_are_linear_and_trees():
    X, y = problem(2)
    model = BlendClassifier().fit(X, y)
    assert set(model.names_) <= {"softmax", "kernel", "boosted", "extra"}
    assert {"boosted", "extra"} & set(model.names_)
    found, f = model.explain(X[:20]), model.decision_function(X[:20])
    near = unbounded(model, X[:20])
    np.testing.assert_allclose(found.scores[near], np.abs(f[near]), atol=1e-6)


def test_sparse_rows_of_linear_members():
    X, y = problem()
    thin = sp.csr_matrix(np.where(np.abs(X) < 0.5, 0, X))
    model = BlendClassifier([kway.SoftmaxClassifier(), kway.LogisticClassifier()]).fit(thin, y)
    np.testing.assert_allclose(model.predict_proba(thin), model.predict_proba(thin.toarray()), atol=1e-9)
    found = model.explain(thin[:9])
    np.testing.assert_allclose(found.values, model.explain(thin[:9].toarray()).values, atol=1e-9)


def test_a_blend_without_training_rows_says_what_to_pass():
    X, y = problem()
    fitted = [kway.NeighborsClassifier().fit(X, y)]
    with pytest.raises(InputError, match=r"rows= to BlendClassifier\.of"):
        BlendClassifier.of(["near"], fitted, [1.0], np.unique(y)).explain(X[:2])
    found = BlendClassifier.of(["near"], fitted, [1.0], np.unique(y), X).explain(X[:2])
    np.testing.assert_allclose(found.scores, np.log(fitted[0].predict_proba(X[:2]).max(axis=1)), atol=1e-4)


def test_the_columns_that_count_per_class_are_kept_in_the_file(of_a_table, tmp_path):
    """`kway.explain` takes the mean contribution of each column over the rows of a predicted class."""
    model, frame, y = of_a_table
    found = kway.explain(model, frame, y, seconds=60)
    assert found.classes == ("x", "y", "z")
    assert {columns[0] for columns in found.columns} <= {"size", "color"}
    parts, label = model.explain(frame), model.predict(frame)
    column = list(frame).index(found.columns[2][0])
    assert found.pulls[2, 0] == pytest.approx(parts.values[label == "z", column].mean())
    again = BlendClassifier.of(model.names_, model.estimators_, model.weights_, model.classes_, frame)
    again.reasons_ = kept_facts(found)
    again.save(tmp_path / "m.kway")
    kept = kway.explain(kway.load(tmp_path / "m.kway"))
    assert (kept.classes, kept.columns, kept.how) == (found.classes, found.columns, found.how)
    np.testing.assert_allclose(kept.pulls, found.pulls)
    assert kept.measured


# ---- model files


def test_the_model_file_gives_the_same_answers(fitted, tmp_path):
    model, X, y = fitted
    model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway", verify=True)
    assert again.names_ == model.names_
    assert str(again.get_params()) == str(model.get_params())
    np.testing.assert_array_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.explain(X[:5]).values, model.explain(X[:5]).values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict(X), model.predict(X))
    clone(again).fit(X, y)


def test_a_blend_inside_other_classifiers(tmp_path):
    X, y = problem()
    model = kway.ConformalClassifier(BlendClassifier([BlendClassifier(members()[:1]), kway.CentroidClassifier()]))
    model.fit(X, y).save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict_proba(X), model.predict_proba(X))


def test_a_member_of_another_library_works_in_memory_alone(tmp_path):
    X, y = problem()
    model = BlendClassifier([("forest", RandomForestClassifier(20, random_state=0)), *members()[:1]]).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.explain(X[:2]).values.shape == (2, 6)
    with pytest.raises(ModelFileError, match="RandomForestClassifier"):
        model.save(tmp_path / "m.kway")


def changed(model, tmp_path, **changes):
    """Save a model whose facts or arrays were changed, and load it."""
    facts, arrays = model._fitted()
    for name, value in changes.items():
        (facts if name in facts else arrays)[name.replace("_", ".")] = value
    broken = BlendClassifier.of(model.names_, model.estimators_, model.weights_, model.classes_)
    broken._fitted = lambda: (facts, arrays)
    broken.save(tmp_path / "bad.kway", force=True)
    return kway.load(tmp_path / "bad.kway")


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": [-1.0, 1.0]},
        {"weights": [0.0, 1.0]},
        {"weights": [float("nan"), 1.0]},
        {"weights": [1.0]},
        {"names": ["a"]},
        {"names": ["a", 3]},
        {"members": []},
        {"members": "all"},
        {"background_1": np.zeros((3, 99))},
        {"background_1": np.zeros((3, 6), np.int64)},
        {"background_7": np.zeros((3, 6))},
        {"members_0.classes_": np.array(["ant", "bee"])},
        {"members_0.classes_": np.array(["ant", "bee", "dog"])},
    ],
    ids=str,
)
def test_hostile_values_are_refused(changes, tmp_path):
    X, y = problem()
    fitted = [kway.SoftmaxClassifier().fit(X, y), kway.NeighborsClassifier().fit(X, y)]
    model = BlendClassifier.of(["a", "b"], fitted, [0.5, 0.5], np.unique(y), X)
    with pytest.raises(ModelFileError):
        changed(model, tmp_path, **changes)


def test_a_file_may_not_name_an_embedding_model_in_a_member(tmp_path):
    X, y = problem()
    hidden = FeaturedClassifier(kway.SoftmaxClassifier(), kway.Features(embed="someone/model"))
    model = BlendClassifier([("a", kway.SoftmaxClassifier())]).fit(X, y)
    model.estimators = [("a", hidden)]
    model.save(tmp_path / "m.kway")
    with pytest.raises(ModelFileError, match="someone/model"):
        kway.load(tmp_path / "m.kway")
