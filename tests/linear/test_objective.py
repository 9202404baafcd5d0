"""The objective by its fast ways (fused kernel, BLAS, CSR) against the plain way in float64."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.linear.losses import LOSSES, Loss, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.rows import sparse as sparse_rows

FORMS = [form for forms in LOSSES.values() for form in forms if form.margin]


def smooth(loss: Loss) -> Loss:
    return loss if loss.smooth else loss.smoothed(0.5)


def problem(loss, n=90, d=70, R=5, dtype=np.float64, seed=0, **kwargs) -> Objective:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(dtype)
    codes = rng.integers(0, max(R, 2), n)
    return Objective(X, Targets(codes), R, smooth(loss), Penalty(0.01), **kwargs)


def theta_of(objective, seed=1):
    shape = (objective.n_scores, objective.d + 1)
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(objective.d)).astype(objective.X.dtype)


def plain(objective, theta):
    """alpha R + mean loss, by the definition and central differences: no kernel but the loss's own."""

    def value(t):
        scores = objective.X @ t[:, :-1].T + t[:, -1]
        losses, _ = objective.loss.value_gradient(np.ascontiguousarray(scores), objective.targets)
        weight = 1.0 if objective.weight is None else objective.weight
        return float(np.mean(losses * weight)) + objective.penalty.ridge / 2 * float((t[:, :-1] ** 2).sum())

    gradient = np.zeros_like(theta)
    for i in np.ndindex(*theta.shape):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        gradient[i] = (value(theta + step) - value(theta - step)) / 2e-5
    return value(theta), gradient


def shaped(loss: Loss, *numbers: int) -> list[tuple[Loss, int]]:
    """The loss with each number of scores that it can have: a joint one has two or more."""
    return [(loss, R) for R in numbers if R > 1 or not loss.joint]


def named(value):
    return f"{value.name}-{value.joint}" if isinstance(value, Loss) else str(value)


SHAPES = [pair for loss in FORMS for pair in shaped(loss, 1, 4)]
# a kernel is compiled for each number of scores: all of them for the two losses that have their own, few for the rest
COMPILED = [
    pair for loss in FORMS for pair in shaped(loss, *((1, 3, 10, 16) if loss.min_error_loss is not None else (1, 10)))
]


@pytest.mark.parametrize(("loss", "R"), SHAPES, ids=named)
def test_gradient_is_that_of_finite_differences(loss, R):
    objective = problem(loss, n=40, d=6, R=R, weight=np.random.default_rng(5).random(40) * 2)
    theta = theta_of(objective)
    value, gradient = objective.value_gradient(theta)
    expected, slopes = plain(objective, theta)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, slopes, atol=2e-4 if "absolute" in loss.name else 1e-6)


@pytest.mark.parametrize(("loss", "R"), COMPILED, ids=named)
@pytest.mark.parametrize("d", [48, 64, 83])
@pytest.mark.parametrize("weighted", [False, True])
def test_float32_ways_agree_with_float64(loss, R, d, weighted):
    n = 75
    weight = np.random.default_rng(2).random(n) * 2 if weighted else None
    exact = problem(loss, n=n, d=d, R=R, weight=weight)
    X = exact.X.astype(np.float32)
    X.flags.writeable = False
    quick = Objective(X, exact.targets, R, exact.loss, exact.penalty, weight=weight)
    theta = theta_of(exact)
    value, gradient = exact.value_gradient(theta)
    found, slopes = quick.value_gradient(theta.astype(np.float32))
    assert slopes.dtype == np.float32
    assert found == pytest.approx(value, rel=3e-6)
    np.testing.assert_allclose(slopes, gradient, atol=3e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["columns", "joint"])
@pytest.mark.parametrize("run_rows", [7, 1024])  # in several runs of rows, and in one
def test_sparse_rows_agree_with_dense(dtype, form, run_rows, monkeypatch):
    monkeypatch.setattr(sparse_rows, "RUN_ROWS", run_rows)
    monkeypatch.setattr(sparse_rows, "rows_per_block", lambda row_bytes: 5 * run_rows * 8 // row_bytes)
    objective = problem(getattr(LOSSES["softmax"], form), dtype=dtype)
    X = np.where(np.random.default_rng(3).random(objective.X.shape) < 0.2, objective.X, 0).astype(dtype)
    dense = Objective(X, objective.targets, 5, objective.loss, objective.penalty)
    sparse = Objective(sp.csr_matrix(X), objective.targets, 5, objective.loss, objective.penalty)
    theta = theta_of(dense)
    (value, gradient), (found, slopes) = dense.value_gradient(theta), sparse.value_gradient(theta)
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    assert found == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(slopes, gradient, atol=tolerance)


def test_rows_may_be_strided():
    objective = problem(LOSSES["softmax"].joint, dtype=np.float32, d=140)
    view = objective.X[::2, 20:120]
    targets = Targets(objective.targets.codes[::2])
    theta = theta_of(Objective(view, targets, 5, objective.loss, objective.penalty))
    strided = Objective(view, targets, 5, objective.loss, objective.penalty).value_gradient(theta)
    packed = Objective(view.copy(), targets, 5, objective.loss, objective.penalty).value_gradient(theta)
    assert strided[0] == pytest.approx(packed[0], rel=1e-6)
    np.testing.assert_allclose(strided[1], packed[1], atol=1e-6)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 130), d=st.integers(1, 100), seed=st.integers(0, 99))
def test_any_shape(n, d, seed):
    exact = problem(LOSSES["softmax"].joint, n=n, d=d, R=10, seed=seed)
    quick = Objective(exact.X.astype(np.float32), exact.targets, 10, exact.loss, exact.penalty)
    theta = theta_of(exact)
    value, gradient = exact.value_gradient(theta)
    found, slopes = quick.value_gradient(theta.astype(np.float32))
    assert found == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(slopes, gradient, atol=1e-5)


@pytest.mark.parametrize("scale", [1e10, 1e30])
def test_enormous_scores_do_not_overflow(scale):
    objective = replace(problem(LOSSES["softmax"].joint, dtype=np.float32), penalty=Penalty())
    value, gradient = objective.value_gradient(theta_of(objective) * np.float32(scale / 1e3))
    assert np.isfinite(gradient).all()
    assert value > 0


def test_rows_and_losses_can_be_exchanged():
    objective = problem(LOSSES["softmax"].joint, weight=np.linspace(0.5, 1.5, 90))
    part = objective.take(np.arange(30))
    assert part.n == 30
    assert part.weight.mean() == pytest.approx(1)
    assert objective.with_loss(LOSSES["hinge"].joint).loss.name == "joint hinge"
    assert objective.value(objective.zeros()) == pytest.approx(np.log(5))


def test_without_intercept_the_bias_has_no_gradient():
    objective = problem(LOSSES["softmax"].joint, dtype=np.float32, fit_intercept=False)
    _, gradient = objective.value_gradient(theta_of(objective))
    assert not gradient[:, -1].any()
