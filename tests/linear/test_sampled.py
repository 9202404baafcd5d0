"""Sampled softmax: an unbiased Z, the gradient of the sum over all classes on average, and its answers; never n x K."""

import runpy
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.errors import CombinationError, InputError
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import sampled
from kway.linear.solvers.base import Control
from kway.linear.solvers.sampled import Sampled, draw_classes, exact_objective
from kway.planning import Rates, costs
from kway.planning.costs import Size


def problem(n=60, d=7, n_classes=40, ridge=0.0, seed=0, dtype=np.float64, weight=None):
    rng = np.random.default_rng(seed)
    X, codes = rng.standard_normal((n, d)).astype(dtype), rng.integers(n_classes, size=n)
    theta = rng.standard_normal((n_classes, d + 1)).astype(dtype) * 0.5
    return Objective(X, Targets(codes), n_classes, LOSSES["softmax"].joint, Penalty(ridge), weight=weight), theta


@pytest.mark.parametrize(("n_classes", "n_known", "m"), [(50, 3, 5), (50, 0, 7), (9, 8, 4), (9, 9, 4), (1000, 100, 1)])
def test_a_draw_is_the_known_and_others_once_each(n_classes, n_known, m):
    rng = np.random.default_rng(1)
    for _ in range(200):
        known = np.sort(rng.choice(n_classes, n_known, replace=False))
        ids, log_weight = draw_classes(known, n_classes, m, rng)
        np.testing.assert_array_equal(ids[:n_known], known)
        assert len(np.unique(ids)) == len(ids) == n_known + min(m, n_classes - n_known)
        assert ids.min() >= 0
        assert ids.max() < n_classes
        represented = n_known + (len(ids) - n_known) * np.exp(log_weight)  # the sum of e^0 over all classes
        assert represented == pytest.approx(n_classes)


def test_the_estimate_of_z_is_unbiased():
    rng = np.random.default_rng(2)
    f = rng.standard_normal(300) * 2
    known = np.sort(rng.choice(300, 20, replace=False))
    found = []
    for _ in range(20_000):
        ids, log_weight = draw_classes(known, 300, 15, rng)
        found.append(np.exp(f[ids[:20]]).sum() + np.exp(f[ids[20:]] + log_weight).sum())
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - np.exp(f).sum()) < 4 * error
    assert error < 0.01 * np.exp(f).sum()  # or the line above says nothing


def stepped(objective, theta, solver, seed, eta=1.0):
    """Return -(change of theta) / eta of one step on all rows: the gradient, as Adagrad's rates are made constant."""
    control = Control(batch_size=objective.n, learning_rate=eta, rng=np.random.default_rng(seed))
    run = sampled.SampledRun(solver, objective, control, theta.copy())
    run.sq_grad_sums[:] = 1e12
    run.take_step(np.arange(objective.n))
    return (theta - run.theta) * 1e6 / eta


def test_with_all_classes_the_step_is_the_gradient():
    weight = np.random.default_rng(3).uniform(0.2, 2, 60)
    objective, theta = problem(weight=weight / weight.mean())
    _, gradient = objective.value_gradient(theta)
    np.testing.assert_allclose(stepped(objective, theta, Sampled(negatives=40), 0), gradient, atol=1e-6)


def test_the_gradient_is_right_on_average():
    objective, theta = problem(n=12, n_classes=400)
    theta *= 0.5
    _, gradient = objective.value_gradient(theta)
    steps = np.array([stepped(objective, theta, Sampled(negatives=100), seed) for seed in range(1500)])
    mean, error = steps.mean(axis=0), steps.std(axis=0) / np.sqrt(len(steps))
    # 1 / Z is convex, so a share is a little too large on average: by the relative variance of Z, under 2 % here
    assert (np.abs(mean - gradient) <= 5 * error + 0.02 * np.abs(gradient) + 1e-4).all()
    drawn_only = np.setdiff1d(np.arange(400), objective.targets.codes)
    slope = np.polyfit(gradient[drawn_only].ravel(), mean[drawn_only].ravel(), 1)[0]
    assert slope == pytest.approx(1, abs=0.04)


def test_a_step_touches_no_other_class():
    objective, theta = problem(n=12, n_classes=400)
    moved = (stepped(objective, theta, Sampled(negatives=30), 0) != 0).any(axis=1)
    assert moved[objective.targets.codes].all()
    assert moved.sum() == len(np.unique(objective.targets.codes)) + 30


def test_decay_put_off_is_decay_done():
    objective, theta = problem(n_classes=500, ridge=0.3, n=20)
    runs = []
    for often in (True, False):
        control = Control(batch_size=5, learning_rate=0.05, rng=np.random.default_rng(0))
        run = sampled.SampledRun(Sampled(negatives=10), objective, control, theta.copy())
        run.sq_grad_sums[:] = 1.0
        rate = run.rate()
        run.rate = lambda rate=rate: rate
        rng = np.random.default_rng(1)
        for _ in range(30):
            if often:
                sampled.decay_rows(run.theta, np.arange(500), run.sq_grad_sums, run.last_step, run.step, rate, 0.3)
            run.take_step(np.sort(rng.choice(20, 5, replace=False)))
        sampled.decay_rows(run.theta, np.arange(500), run.sq_grad_sums, run.last_step, run.step, rate, 0.3)
        runs.append(run.theta)
    np.testing.assert_allclose(*runs, rtol=1e-6, atol=1e-9)
    assert np.abs(runs[0][:, :-1]).sum() < 0.9 * np.abs(theta[:, :-1]).sum()


@pytest.mark.parametrize("rows", ["dense", "csr"])
def test_the_exact_objective_is_the_objective(rows):
    for seed, scale in enumerate([0.0, 1.0, 30.0]):
        objective, theta = problem(ridge=0.1, seed=seed, n_classes=7000, n=30)
        if rows == "csr":
            objective = Objective(
                sp.csr_matrix(objective.X), objective.targets, 7000, objective.loss, objective.penalty
            )
        weights = sampled.HostWeights(objective, theta * scale, np.ones(7000), np.zeros(7000, np.int32))
        assert exact_objective(weights, objective) == pytest.approx(objective.value(theta * scale), rel=1e-9)


@pytest.mark.parametrize(("n_classes", "noise", "alpha"), [(200, 2.0, 1e-4), (500, 1.5, 1e-5)])
def test_as_right_as_the_full_softmax(n_classes, noise, alpha):
    rows = kway.datasets.many_classes(n_classes, 32, 10, 4000, noise, seed=1)
    full = kway.SoftmaxClassifier(alpha=alpha, solver="lbfgs", tol=1e-2).fit(rows.x_train, rows.y_train)
    drawn = Sampled(negatives=n_classes // 10, hard=n_classes // 20)
    part = kway.SoftmaxClassifier(alpha=alpha, solver=drawn, batch_size=32, random_state=0)
    part.fit(rows.x_train, rows.y_train)
    right = [model.score(rows.x_test, rows.y_test) for model in (full, part)]
    assert 0.1 < right[0] < 0.99, "too easy or too hard to tell them apart"
    assert right[1] > right[0] - 0.01, right


def test_as_right_where_classes_come_in_families():
    rng = np.random.default_rng(4)
    families = rng.standard_normal((25, 24))
    centres = np.repeat(families, 12, axis=0) + 0.4 * rng.standard_normal((300, 24))  # confused within a family
    y, asked = np.arange(6000) % 300, rng.integers(300, size=4000)
    X, Q = ((centres[c] + 0.6 * rng.standard_normal((len(c), 24))).astype(np.float32) for c in (y, asked))
    # alpha at which the full softmax is at its best: below, it fits the noise and stopping early beats it
    full = kway.SoftmaxClassifier(alpha=1e-3, solver="lbfgs").fit(X, y)
    part = kway.SoftmaxClassifier(alpha=1e-3, solver=Sampled(100, 30), batch_size=64, tol=1e-4, random_state=0)
    right = [full.score(Q, asked), part.fit(X, y).score(Q, asked)]
    assert 0.5 < right[0] < 0.99
    assert right[1] > right[0] - 0.01, right
    assert full.objective_ * 0.999 <= part.objective_ <= full.objective_ * 1.05


def test_the_example_learns():
    path = Path(__file__).parents[2] / "examples" / "million_classes.py"
    example = runpy.run_path(str(path))
    run = example["learn"](2000, 32, 6)
    assert run.accuracy > 0.95
    assert run.losses[-1] < run.losses[0]


def test_what_all_rows_share_costs_no_steps():
    rows = kway.datasets.many_classes(300, 16, 6, 100, 0.5, seed=0)
    X = rows.x_train.astype(np.float64)
    fit = lambda X, **how: kway.SoftmaxClassifier(  # noqa: E731
        alpha=1e-4, solver=Sampled(20, 10), batch_size=16, max_iter=4, tol=1e-9, random_state=0, **how
    ).fit(X, rows.y_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here, away = fit(X), fit(X + 30)
        early = fit(X + 30, early_stopping=0.2)
        sampled_without = fit(X + 30, fit_intercept=False)
    np.testing.assert_allclose(away.coef_, here.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(away.decision_function(X + 30), here.decision_function(X), rtol=1e-6, atol=1e-6)
    assert away.objective_ == pytest.approx(here.objective_, rel=1e-6)
    assert early.score(rows.x_test + 30, rows.y_test) > 0.9
    assert (sampled_without.intercept_ == 0).all()


def test_reported_is_the_exact_loss():
    rows = kway.datasets.many_classes(300, 16, 6, 100, 0.5, seed=0)
    X, y = rows.x_train, rows.y_train
    model = kway.SoftmaxClassifier(alpha=1e-4, solver=Sampled(20, 10), batch_size=16, random_state=0).fit(X, y)
    p = model.predict_proba(X)[np.arange(len(y)), y]
    penalty = 1e-4 / 2 * (model.coef_.astype(np.float64) ** 2).sum()
    assert model.objective_ == pytest.approx(-np.log(p).mean() + penalty, rel=1e-4)
    assert model.history_[-1] == pytest.approx(model.objective_, rel=0.02)  # of 1,000 of the 1,800 rows
    assert model.history_[-1] < model.history_[0] < np.log(300)
    assert len(model.history_) == model.n_iter_


def test_a_fit_never_holds_rows_times_classes():
    n_classes, d = 100_000, 64
    rows = kway.datasets.many_classes(n_classes, d, 1, 100, 0.1, seed=0)
    model = kway.SoftmaxClassifier(solver="sampled", alpha=1e-9, max_iter=1, random_state=0)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch, one row a class
        model.fit(rows.x_train, rows.y_train)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    weights = 4 * n_classes * (d + 1)
    assert peak < 5 * weights  # 130 MB, of which the rows gathered and codes are a part; 1,000 rows x K would be 400 MB
    assert np.isfinite(model.objective_)
    assert model.objective_ == model.history_[-1]  # of a sample: all rows would be 1e12 products
    assert kway.plan(n_classes, d, n_classes, memory="1GB", rates=Rates())["sampled softmax"].missing == ""


def test_auto_samples_above_a_size_and_says_so(monkeypatch, capsys):
    assert not costs.exceeds_softmax(Size(60_000, 784, 10))
    assert costs.exceeds_softmax(Size(2_000_000, 512, 100_000))  # a day
    rows = kway.datasets.many_classes(50, 8, 4, 10, 0.1, seed=0)
    assert kway.SoftmaxClassifier().fit(rows.x_train, rows.y_train).solver_ != "sampled"
    monkeypatch.setattr(costs, "MAX_FIT_SECONDS", 0.0)
    assert kway.SoftmaxClassifier().fit(rows.x_train, rows.y_train).solver_ == "sampled"
    assert "50 classes are too many" in capsys.readouterr().err
    assert kway.SoftmaxClassifier("l1").fit(rows.x_train, rows.y_train).solver_ != "sampled"
    soft = np.eye(50)[rows.y_train]
    assert kway.SoftmaxClassifier().fit(rows.x_train, soft).solver_ != "sampled"


def test_sparse_rows_give_the_dense_answer():
    rows = kway.datasets.many_classes(1500, 12, 3, 200, 0.2, seed=0)
    X = np.where(np.abs(rows.x_train) < 0.1, 0, rows.x_train)
    dense, sparse = (
        kway.SoftmaxClassifier(solver=Sampled(100, 50), alpha=1e-6, fit_intercept=False, random_state=0).fit(
            A, rows.y_train
        )
        for A in (X, sp.csr_matrix(X))  # without a bias: with one, dense rows are centred
    )
    assert sparse.objective_ == pytest.approx(dense.objective_, rel=1e-3)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-2)


def test_soft_targets_are_refused():
    rows = kway.datasets.many_classes(20, 8, 4, 10, 0.1, seed=0)
    with pytest.raises(CombinationError, match="one label per row"):
        kway.SoftmaxClassifier(solver="sampled", label_smoothing=0.1).fit(rows.x_train, rows.y_train)
    with pytest.raises(CombinationError, match="three or more classes"):
        kway.SoftmaxClassifier(solver="sampled").fit(rows.x_train, rows.y_train % 2)


def test_saved_and_loaded(tmp_path):
    rows = kway.datasets.many_classes(60, 8, 4, 50, 0.2, seed=0)
    model = kway.SoftmaxClassifier(solver=Sampled(20, 10), random_state=0).fit(rows.x_train, rows.y_train)
    model.save(tmp_path / "model.kway")
    again = kway.load(tmp_path / "model.kway")
    assert again.solver == Sampled(20, 10)
    assert again.history_ == model.history_
    np.testing.assert_array_equal(again.predict(rows.x_test), model.predict(rows.x_test))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_threads_do_not_change_the_answer():
    rows = kway.datasets.many_classes(3000, 16, 3, 10, 0.3, seed=0)
    fit = lambda n_jobs: kway.SoftmaxClassifier(solver="sampled", max_iter=2, tol=10, n_jobs=n_jobs, random_state=5)  # noqa: E731
    one, two = (fit(n_jobs).fit(rows.x_train, rows.y_train) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize("wrong", [{"negatives": 0}, {"negatives": 1.5}, {"hard": -1}])
def test_classes_to_draw_are_a_number(wrong):
    with pytest.raises(InputError, match="whole number"):
        Sampled(**wrong)


@pytest.mark.parametrize("index", ["landmarks", "flat"])
def test_an_index_over_the_weights_finds_the_hard_classes(index):
    objective, theta = problem(n=64, d=8, n_classes=3000, seed=5, dtype=np.float32)
    solver = Sampled(negatives=16, hard=200, index=index)
    run = sampled.SampledRun(solver, objective, Control(batch_size=32), theta.copy(), step=1)
    rows = np.arange(32)
    found = run.nearest_classes(rows, rebuild=True)
    scores = objective.X[rows] @ theta[:, :-1].T + theta[:, -1]
    best = np.argsort(-scores, axis=1)[:, : sampled.CANDIDATES]
    named, counts = np.unique(best[best != objective.targets.codes[rows][:, None]], return_counts=True)
    often = named[counts >= 3]  # these are among the 200 whatever ties do
    assert len(often) > 5
    assert np.isin(often, found).mean() > (0.99 if index == "flat" else 0.9)
    assert len(found) <= 200
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("index", [None, "flat"])
def test_a_fit_with_an_index_learns_as_well(index, tmp_path):
    data = kway.datasets.many_classes(1500, 24, 4, 600, 0.5, seed=3)
    solver = Sampled(negatives=64, hard=64, index=index)
    model = kway.SoftmaxClassifier(solver=solver, alpha=1e-6, max_iter=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.x_train, data.y_train)
    assert model.score(data.x_test, data.y_test) > 0.99
    kway.save(model, tmp_path / "m.kway")
    assert kway.load(tmp_path / "m.kway").solver == solver
