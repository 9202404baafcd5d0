"""What LinearClassifier does beyond scikit-learn's checks."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning

import kway
from kway import LeastSquaresClassifier, LinearClassifier, LogisticClassifier, SoftmaxClassifier, SVMClassifier
from kway.errors import BudgetError, InputError
from kway.linear.solvers.least_squares import NormalEquations, solve_sparse_and_wide
from kway.linear.solvers.schedules import Constant, Cosine, Decay, pick_schedule
from kway.linear.solvers.sgd import SGD

pytestmark = pytest.mark.filterwarnings(  # sgd tells how far it is above its optimum: tests/linear/test_held_to_tol.py
    r"ignore:\w+ \(sgd\) stopped:sklearn.exceptions.ConvergenceWarning"
)


def blobs(n=300, classes=4, seed=0, spread=2.0):
    return make_blobs(n, 5, centers=classes, cluster_std=spread, random_state=seed)


def test_soft_targets_are_the_mean_of_repeated_hard_ones():
    X, y = blobs(80, 3)
    Y = np.eye(3)[y] * 0.75 + np.eye(3)[(y + 1) % 3] * 0.25
    soft = SoftmaxClassifier(alpha=1e-2, tol=1e-9).fit(X, Y)
    repeated = SoftmaxClassifier(alpha=1e-2, tol=1e-9).fit(
        np.vstack([X, X]), np.concatenate([y, (y + 1) % 3]), np.repeat([0.75, 0.25], len(X))
    )
    np.testing.assert_allclose(soft.predict_proba(X), repeated.predict_proba(X), atol=1e-5)
    assert soft.classes_.tolist() == [0, 1, 2]
    assert soft.score(X, Y) == soft.score(X, y)


def test_soft_targets_of_two_classes():
    X, y = blobs(60, 2)
    Y = np.eye(2)[y] * 0.9 + 0.05
    model, hard = SoftmaxClassifier(alpha=1e-3).fit(X, Y), SoftmaxClassifier(alpha=1e-3).fit(X, y)
    assert model.coef_.shape == (1, 5)
    assert model.predict_proba(X).max(1).mean() < hard.predict_proba(X).max(1).mean()


@pytest.mark.parametrize(("Y", "word"), [([[0.5, 0.6], [1.0, 0.0]], "sum to 1"), ([[1.5, -0.5], [1.0, 0.0]], ">= 0")])
def test_rows_that_are_no_distributions_are_refused(Y, word):
    with pytest.raises(InputError, match=word):
        SoftmaxClassifier().fit([[0.0], [1.0]], np.array(Y))


def test_hinge_takes_no_soft_targets():
    with pytest.raises(ValueError, match=r"1d array|one label per row"):
        SVMClassifier().fit([[0.0], [1.0]], np.array([[0.5, 0.5], [1.0, 0.0]]))


def test_partial_fit_learns_in_passes_and_wants_every_class_first():
    X, y = blobs(400)
    model = SoftmaxClassifier(alpha=1e-3, random_state=0)
    for epoch in range(15):
        order = np.random.default_rng(epoch).permutation(len(X))
        for part in np.array_split(order, 4):
            model.partial_fit(X[part], y[part], classes=np.arange(4))
    best = SoftmaxClassifier(alpha=1e-3).fit(X, y)
    assert model.score(X, y) >= best.score(X, y) - 0.03
    assert model.epochs_ == 60
    with pytest.raises(InputError, match="not among the 4 known classes"):
        model.partial_fit(X[:2], [0, 9])


def test_warm_start_goes_on_from_the_last_solution():
    X, y = blobs(300)
    cold = SoftmaxClassifier(alpha=1e-3, tol=1e-6).fit(X, y)
    warm = SoftmaxClassifier(alpha=1e-3, tol=1e-6, warm_start=True).fit(X, y)
    warm.fit(X, y)
    assert warm.n_iter_ < max(cold.n_iter_, 2)
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-5)


@pytest.mark.parametrize("solver", ["sgd", "gradient"])
def test_early_stopping_keeps_the_best_on_rows_held_out(solver):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 60)), rng.integers(0, 2, 120)  # noise: every further step only overfits
    stopped = LogisticClassifier(penalty="none", solver=solver, early_stopping=0.3, random_state=0, max_iter=300).fit(
        X, y
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        free = LogisticClassifier(penalty="none", solver=solver, random_state=0, max_iter=300, tol=1e-9).fit(X, y)
    assert np.linalg.norm(stopped.coef_) < 0.5 * np.linalg.norm(free.coef_)


def test_class_weight_moves_the_border():
    X, y = blobs(300, 2, spread=6.0)
    plain = LogisticClassifier().fit(X, y)
    tilted = LogisticClassifier(class_weight={0: 1, 1: 20}).fit(X, y)
    assert (tilted.predict(X) == 1).mean() > (plain.predict(X) == 1).mean()
    uneven = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:15]])
    balanced = LogisticClassifier(class_weight="balanced").fit(X[uneven], y[uneven])
    assert (balanced.predict(X) == 1).mean() > (LogisticClassifier().fit(X[uneven], y[uneven]).predict(X) == 1).mean()


def test_support_and_margin_of_a_hard_margin_by_hand():
    X, y = np.array([[0.0, 0.0], [0.0, 5.0], [2.0, 0.0], [2.0, 7.0]]), [0, 0, 1, 1]
    model = SVMClassifier(alpha=0, tol=1e-8).fit(X, y)
    assert model.margin_ == pytest.approx(1.0, rel=1e-3)  # half the street between x = 0 and x = 2
    np.testing.assert_allclose(model.decision_function([[1.0, 3.0]]), [0], atol=1e-3)
    assert set(model.support_) <= {0, 1, 2, 3}
    far = np.vstack([X, [[-9.0, 0.0], [9.0, 0.0]]])
    assert set(SVMClassifier(alpha=0, tol=1e-8).fit(far, [*y, 0, 1]).support_).isdisjoint({4, 5})


def test_joint_and_one_vs_all_hinge_both_learn():
    X, y = blobs(300, 5)
    for multiclass in ("joint", "one-vs-all"):
        model = SVMClassifier(multiclass=multiclass).fit(X, y)
        assert model.coef_.shape == (5, 5)
        assert model.margin_.shape == (5,)
        assert model.score(X, y) > 0.9


def test_top_k_of_many_classes_never_builds_all_scores(monkeypatch):
    classes, d = 200_000, 8
    rng = np.random.default_rng(0)
    model = SoftmaxClassifier()
    model.classes_ = np.arange(classes)
    model.coef_ = rng.standard_normal((classes, d)).astype(np.float32)
    model.intercept_ = np.zeros(classes, np.float32)
    model.n_features_in_ = d
    X = rng.standard_normal((40, d)).astype(np.float32)
    top = model.predict_topk(X, 3)
    scores = X.astype(np.float64) @ model.coef_.T.astype(np.float64)
    np.testing.assert_array_equal(top.ids, np.argsort(-scores, axis=1)[:, :3])
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(top.scores, np.take_along_axis(p, top.ids, 1), rtol=1e-3)
    monkeypatch.setenv("KWAY_MEMORY", "10MiB")
    with pytest.raises(BudgetError, match="predict_topk"):
        model.predict_proba(X)
    with pytest.raises(BudgetError, match="predict_topk"):
        model.decision_function(X)
    np.testing.assert_array_equal(model.predict(X), top.ids[:, 0])


@pytest.mark.parametrize("classes", [2, 4])
def test_explanation_adds_up(classes):
    X, y = blobs(120, classes)
    model = SoftmaxClassifier().fit(X, y)
    why = model.explain(X, n_features=5)
    np.testing.assert_array_equal(why.labels, model.predict(X))
    sign = np.where(why.labels == model.classes_[-1], 1, -1) if classes == 2 else None
    bias = (
        model.intercept_[0] * sign if classes == 2 else model.intercept_[why.labels] - model.intercept_[why.runners_up]
    )
    np.testing.assert_allclose(why.contributions.sum(1) + bias, why.gaps, rtol=1e-6, atol=1e-6)


def test_one_vs_all_probabilities_are_normalised():
    X, y = blobs(100, 3)
    np.testing.assert_allclose(LogisticClassifier().fit(X, y).predict_proba(X).sum(1), 1)


@pytest.mark.parametrize("loss", ["hinge", "perceptron", "squared"])
def test_losses_without_probabilities_have_no_predict_proba(loss):
    model = LinearClassifier(loss=loss)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        model.predict_proba([[0.0]])
    assert "not probabilities" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"loss": "huber"}, "loss must be one of 'softmax', 'logistic'"),
        ({"multiclass": "pairs"}, "'joint', 'one-vs-all', got 'pairs'"),
        ({"alpha": -1}, "alpha must be a number of at least 0, got -1"),
        ({"temperature": 0}, "temperature must be a number above 0, got 0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be a number from 0 to below 1, got 1.0"),
        ({"solver": "simplex"}, "auto, least-squares, lbfgs"),
        ({"penalty": "l0"}, "none, l2, l1"),
        ({"learning_rate": "fast", "solver": "sgd"}, "constant, decay, cosine"),
        ({"device": "tpu"}, "device must be one of 'cpu', 'cuda', 'auto' or 'cuda:N', got 'tpu'"),
    ],
)
def test_a_bad_parameter_is_named_with_what_is_allowed(parameters, words):
    with pytest.raises(InputError, match=words):
        LinearClassifier(**parameters).fit([[0.0], [1.0]], [0, 1])


def test_not_converged_is_one_warning_with_the_miss_and_the_way_out():
    X, y = make_classification(300, 20, n_informative=10, n_classes=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="above the optimum.*max_iter") as caught:
        SoftmaxClassifier(alpha=1e-6, solver="gradient", max_iter=5).fit(X, y)
    assert len(caught) == 1


def test_schedules():
    assert Constant().at(7.0, 0.5, 10) == 0.5
    assert Decay(rate=1.0).at(1.0, 0.5, 10) == 0.25
    assert Cosine().at(10.0, 0.5, 10) == pytest.approx(0)
    assert pick_schedule("cosine") == Cosine()
    assert pick_schedule(0.2) == Decay(0.2)


@pytest.mark.parametrize("sampling", ["epochs", "random"])
@pytest.mark.parametrize("batch_size", [1, 16])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_in_all_its_forms_comes_near_the_optimum(sampling, batch_size, momentum):
    X, y = blobs(300)
    X = (X - X.mean(0)) / X.std(0)
    best = SoftmaxClassifier(alpha=1e-2, tol=1e-8).fit(X, y).objective_
    solver = SGD(momentum=momentum, sampling=sampling, average=True)
    model = SoftmaxClassifier(alpha=1e-2, solver=solver, batch_size=batch_size, random_state=0, tol=1e-4, max_iter=300)
    assert model.fit(X, y).objective_ <= 1.05 * best


def test_sgd_does_not_depend_on_the_order_or_repetition_of_rows():
    X, y = blobs(100)
    order = np.random.default_rng(1).permutation(100)
    weights = np.random.default_rng(2).integers(1, 4, 100)
    fit = lambda X, y, w: SoftmaxClassifier(solver="sgd", random_state=0, max_iter=20, tol=0).fit(X, y, w)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first = fit(X, y, weights)
        second = fit(np.repeat(X[order], weights[order], 0), np.repeat(y[order], weights[order]), None)
    np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-9)


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
@pytest.mark.parametrize("solver", [SGD(), SGD(average=True)], ids=["last", "average"])
def test_sgd_l1_has_the_zeros_of_the_optimum(loss, solver):
    X, y = make_classification(300, 30, n_informative=5, n_redundant=0, n_classes=4, random_state=0)
    best = LinearClassifier(loss, "l1", alpha=0.05, tol=1e-6).fit(X, y)
    model = LinearClassifier(loss, "l1", alpha=0.05, solver=solver, random_state=0).fit(X, y)
    assert (model.coef_ == 0).mean() == pytest.approx((best.coef_ == 0).mean(), abs=0.2)
    assert model.objective_ <= 1.05 * best.objective_


@pytest.mark.parametrize(
    "kind", ["plain", "rank-deficient", "wide", "ill-conditioned", "sparse", "weighted", "no bias"]
)
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_least_squares_against_lapack(kind, ridge):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 8)) + 1, rng.normal(size=(60, 3))
    if kind == "rank-deficient":
        X[:, 5] = X[:, 1] + X[:, 2]
    if kind == "wide":
        X, Y = X[:5], Y[:5]
    if kind == "ill-conditioned":
        X = X * np.logspace(0, -7, 8)
    weight = rng.random(len(X)) if kind == "weighted" else None
    bias = kind != "no bias"
    theta = NormalEquations(sp.csr_matrix(X) if kind == "sparse" else X, Y, weight, bias).solve(ridge)
    w = np.ones(len(X)) if weight is None else weight
    centre = (w @ X / w.sum()) if bias else 0
    middle = (w @ Y / w.sum()) if bias else 0
    A = np.vstack([(X - centre) * np.sqrt(w)[:, None], np.sqrt(ridge * w.sum() / 2) * np.eye(8)])
    B = np.vstack([(Y - middle) * np.sqrt(w)[:, None], np.zeros((8, 3))])
    expected = np.linalg.lstsq(A, B, rcond=None)[0].T
    np.testing.assert_allclose(theta[:, :-1] @ (X - centre).T, expected @ (X - centre).T, atol=1e-6)
    if kind not in ("rank-deficient", "wide") or ridge:
        np.testing.assert_allclose(theta[:, :-1], expected, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(
        theta[:, -1], middle - expected @ (centre * np.ones(8)) if bias else 0, rtol=1e-5, atol=1e-6
    )


def test_least_squares_sparse_and_wide_never_becomes_dense():
    X = sp.random(80, 1500, density=0.03, format="csr", random_state=0)
    Y = np.random.default_rng(0).normal(size=(80, 2))
    theta = solve_sparse_and_wide(X, Y, 0.1, None, True)
    dense = NormalEquations(X.toarray(), Y).solve(0.1)
    np.testing.assert_allclose(theta, dense, atol=1e-6)


def test_squared_straw_men_in_three_forms():
    X, y = blobs(200, 3, spread=1.0)
    binary = LeastSquaresClassifier().fit(X[y < 2], y[y < 2])
    assert binary.coef_.shape == (1, 5)  # +-1 targets and the sign
    assert ((binary.decision_function(X[y < 2]) > 0) == y[y < 2]).mean() > 0.95
    assert LeastSquaresClassifier().fit(X, y).score(X, y) > 0.9  # one-hot and the largest
    number = LeastSquaresClassifier(targets="number").fit(X, y)  # the class's number, rounded
    assert number.coef_.shape == (1, 5)
    np.testing.assert_array_equal(number.predict_topk(X, 1).ids[:, 0], number.predict(X))
    with pytest.raises(InputError, match="one-hot"):
        LeastSquaresClassifier(targets="ordinal").fit(X, y)


def test_verbose_shows_progress_on_the_error_stream(capfd):
    X, y = blobs(100)
    SoftmaxClassifier(verbose=1).fit(X, y)
    out, err = capfd.readouterr()
    assert "objective" in err
    assert out == ""


def test_public_names_are_the_same_classes():
    assert kway.SoftmaxClassifier is SoftmaxClassifier


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_explanation_of_the_class_number_says_what_predict_says(classes):
    X, y = blobs(200, classes, spread=4.0)
    model = LeastSquaresClassifier(targets="number").fit(X, y)
    why = model.explain(X, n_features=5)
    np.testing.assert_array_equal(why.labels, model.predict(X))
    np.testing.assert_array_equal(why.runners_up, model.predict_topk(X, 2).ids[:, 1])
    assert (why.gaps >= 0).all()
    f = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(why.gaps, (why.labels - why.runners_up) * (2 * f - why.labels - why.runners_up))
    bias = (why.labels - why.runners_up) * (2 * model.intercept_[0] - why.labels - why.runners_up)
    np.testing.assert_allclose(why.contributions.sum(1) + bias, why.gaps, atol=1e-9)
    sums = why.gaps if classes == 2 else 2 * why.labels * f - why.labels**2
    np.testing.assert_allclose(why.details.scores, sums, atol=1e-9)


def test_the_class_number_has_no_partial_fit_and_one_hot_has():
    assert not hasattr(LeastSquaresClassifier(targets="number"), "partial_fit")
    X, y = blobs(100, 3)
    model = LeastSquaresClassifier().partial_fit(X, y, classes=[0, 1, 2])
    assert model.coef_.shape == (3, 5)
    assert model.predict(X).shape == (100,)


def test_a_fit_leaves_nothing_of_the_one_before(tmp_path):
    X, y = blobs(120, 3)
    model = LinearClassifier(loss="hinge").fit(X, y)
    assert hasattr(model, "support_")
    model.set_params(loss="softmax").fit(X, y)
    assert not hasattr(model, "support_")
    assert not hasattr(model, "margin_")
    model.save(tmp_path / "m.kway")
    assert not {"support", "margin"} & {t.name for t in kway.modelfile.info(tmp_path / "m.kway").tensors}
    model.partial_fit(X, y)
    assert model.epochs_ == 1
    model.fit(X, y)
    assert not hasattr(model, "epochs_")
    model.set_params(loss="hinge").partial_fit(X, y)
    assert hasattr(model, "support_")
    model.set_params(loss="softmax").partial_fit(X, y)
    assert not hasattr(model, "support_")


@pytest.mark.parametrize("classes", [[0, None, 2], [[0, 1, 2]]])
def test_odd_classes_of_a_first_part_are_refused(classes):
    with pytest.raises(InputError):
        SoftmaxClassifier().partial_fit(np.eye(3), [0, 1, 2], classes=classes)
