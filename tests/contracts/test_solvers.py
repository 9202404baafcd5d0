"""One battery over every solver: the same optimum as the others and as scikit-learn, or a refusal that says why."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC, LinearSVC

from kway.errors import CombinationError, NotSeparableError
from kway.labels import encode
from kway.linear.classifier import LinearClassifier
from kway.linear.losses import LOSSES
from kway.linear.penalties import pick_penalty
from kway.linear.plan import plan_fit
from kway.linear.solvers.base import list_properties
from kway.linear.solvers.registry import SOLVERS
from kway.linear.solvers.sgd import SGD
from kway.planning import costs

ALPHA = 1e-2
pytestmark = pytest.mark.filterwarnings(  # sgd tells how far it is above its optimum: tests/linear/test_held_to_tol.py
    r"ignore:\w+ \(sgd\) stopped:sklearn.exceptions.ConvergenceWarning"
)


def data(n_classes, n=240, seed=0):
    X, y = make_classification(
        n,
        8,
        n_informative=6,
        n_redundant=1,
        n_classes=n_classes,
        n_clusters_per_class=1,
        class_sep=0.7,
        random_state=seed,
    )
    return X, y


def fitted(loss, solver, penalty="l2", n_classes=3, alpha=ALPHA, tol=1e-9, **more):
    X, y = data(n_classes)
    more.setdefault("max_iter", 20_000)
    return LinearClassifier(loss, penalty, alpha, solver, tol=tol, random_state=0, **more).fit(X, y), X, y


def possible(loss, penalty, n_classes, multiclass):
    form = LOSSES[loss].columns if n_classes == 2 or multiclass == "one-vs-all" else LOSSES[loss].joint
    return {
        name for name, s in SOLVERS.items() if s.needs <= list_properties(form, pick_penalty(penalty, 0.5).times(ALPHA))
    }


PROBLEMS = list(
    itertools.product(
        ["softmax", "squared", "hinge", "rounded-hinge"],
        ["l2", "l1", "elasticnet"],
        [(2, "joint"), (3, "joint"), (3, "one-vs-all")],
    )
)


@pytest.mark.parametrize(("loss", "penalty", "shape"), PROBLEMS)
def test_every_solver_that_applies_finds_the_same_optimum(loss, penalty, shape):
    n_classes, multiclass = shape
    found = {}
    for name in sorted(possible(loss, penalty, n_classes, multiclass) - {"sgd", "sampled"}):
        model, _, _ = fitted(loss, name, penalty, n_classes, multiclass=multiclass, tol=1e-6)
        found[name] = model.objective_
    best = min(found.values())
    assert max(found.values()) <= best * (1 + 1e-4), found
    sgd, _, _ = fitted(loss, SGD(average=True), penalty, n_classes, multiclass=multiclass, tol=1e-4, max_iter=400)
    assert best * (1 - 1e-6) <= sgd.objective_ <= best * 1.03, (sgd.objective_, found)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("penalty", ["none", "l2", "l1", "elasticnet"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_combination_works_or_is_refused_with_what_is_missing(solver, loss, penalty, n_classes):
    X, y = data(n_classes, 60)
    model = LinearClassifier(loss, penalty, ALPHA, solver, max_iter=500, tol=1e-2, random_state=0)
    form = LOSSES[loss].columns if n_classes == 2 else LOSSES[loss].joint
    missing = SOLVERS[solver].needs - list_properties(form, pick_penalty(penalty, 0.5).times(ALPHA))
    if missing:
        with pytest.raises(CombinationError) as caught:
            model.fit(X, y)
        assert all(f"[{need}]" in str(caught.value) for need in missing)
    elif solver == "dual" and penalty == "none":
        with pytest.raises(NotSeparableError, match="wrong side"):
            model.fit(X, y)
    else:
        assert np.isfinite(model.fit(X, y).coef_).all()


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("solver", ["lbfgs", "proximal", "gradient"])
def test_softmax_l2_is_scikit_learns_logistic_regression(solver, n_classes):
    model, X, y = fitted("softmax", solver, n_classes=n_classes, tol=1e-10)
    theirs = LogisticRegression(C=1 / (len(X) * ALPHA), tol=1e-10, max_iter=5000).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-4)


def test_softmax_l1_is_scikit_learns():
    model, X, y = fitted("softmax", "auto", "l1", n_classes=3, tol=1e-9)
    theirs = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / (len(X) * ALPHA), tol=1e-10, max_iter=20_000).fit(
        X, y
    )
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-3)
    assert ((model.coef_ == 0) == (theirs.coef_ == 0)).mean() >= 0.99


def test_squared_is_scikit_learns_ridge():
    model, X, y = fitted("squared", "auto", n_classes=3)
    theirs = Ridge(alpha=len(X) * ALPHA / 2).fit(X, np.eye(3)[y])
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, atol=1e-8)


def test_binary_hinge_is_scikit_learns_svc_and_linear_svc():
    X, y = data(2)
    C = 1 / (len(X) * ALPHA)
    for solver in ("dual", "lbfgs"):
        model = LinearClassifier("hinge", alpha=ALPHA, solver=solver, tol=1e-6, max_iter=50_000).fit(X, y)
        svc = SVC(kernel="linear", C=C, tol=1e-8).fit(X, y)
        w = svc.coef_[0]
        theirs = ALPHA / 2 * w @ w + np.maximum(0, 1 - (2 * y - 1) * svc.decision_function(X)).mean()
        assert model.objective_ == pytest.approx(theirs, rel=1e-4)
        flat = LinearClassifier(
            "hinge", alpha=ALPHA, solver=solver, tol=1e-6, fit_intercept=False, max_iter=50_000
        ).fit(X, y)
        linear = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=1_000_000).fit(X, y)
        w = linear.coef_[0]
        theirs = ALPHA / 2 * w @ w + np.maximum(0, 1 - (2 * y - 1) * (X @ w)).mean()
        assert flat.objective_ == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("solver", ["lbfgs", "proximal", "gradient", "sgd", "least-squares", "dual"])
def test_sparse_rows_give_the_dense_answer(solver):
    loss = {"least-squares": "squared", "dual": "hinge"}.get(solver, "softmax")
    X, y = data(2 if solver == "dual" else 3)
    X[np.abs(X) < 0.5] = 0
    dense = LinearClassifier(loss, alpha=ALPHA, solver=solver, tol=1e-8, max_iter=3000, random_state=0).fit(X, y)
    sparse = LinearClassifier(loss, alpha=ALPHA, solver=solver, tol=1e-8, max_iter=3000, random_state=0).fit(
        sp.csr_matrix(X), y
    )
    assert sparse.objective_ == pytest.approx(dense.objective_, rel=1e-5)
    np.testing.assert_array_equal(sparse.predict(sp.csr_matrix(X)), dense.predict(X))


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_same_seed_same_answer_and_float_dtype_kept(solver):
    loss = {"least-squares": "squared", "dual": "hinge"}.get(solver, "softmax")
    X, y = data(3 if solver == "sampled" else 2)
    for dtype in (np.float32, np.float64):
        models = [
            LinearClassifier(loss, solver=solver, alpha=ALPHA, max_iter=500, random_state=3).fit(X.astype(dtype), y)
            for _ in range(2)
        ]
        np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
        assert models[0].coef_.dtype == models[0].decision_function(X.astype(dtype)).dtype == dtype


def test_default_tolerance_means_a_thousandth_of_the_objective():
    for seed, scale in itertools.product(range(3), [1.0, 100.0]):
        X, y = data(4, 400, seed)
        X = X * np.logspace(0, np.log10(scale), X.shape[1])
        for loss, alpha, tight in itertools.product(["softmax", "hinge"], [1e-2, 1e-4], [1e-6]):
            quick = LinearClassifier(loss, alpha=alpha).fit(X, y).objective_
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # rounding may stop it short of so small a tol
                best = LinearClassifier(loss, alpha=alpha, tol=tight, max_iter=50_000).fit(X, y).objective_
            assert quick <= best * 1.001, (loss, seed, scale, alpha)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_object_is_planned_like_its_name(name):
    X, labels = np.zeros((100, 5)), encode(np.arange(100) % 4)
    model = LinearClassifier()
    formulas = [plan_fit(model, X, labels, solver).formula for solver in (name, SOLVERS[name])]
    assert formulas[0] is formulas[1]
    assert (formulas[0] is costs.softmax) == SOLVERS[name].stores_pairs
