"""One reading of the rows by the fused kernel gives what BLAS gives in two, for every loss with a kernel."""

import numpy as np
import pytest

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.rows import dense as module

FORMS = {
    f"{name} {form}": loss
    for name, forms in LOSSES.items()
    for form in ("joint", "columns")
    if (loss := getattr(forms, form)) is not None and loss.compiled
}


def problem(loss, K, dtype, weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    n, d = 83, 61  # no multiple of a block, a tile or a vector
    X = rng.standard_normal((n, d)).astype(dtype)
    weight = rng.uniform(0.2, 2, n).astype(dtype) if weighted else None
    theta = (0.3 * rng.standard_normal((K, d + 1))).astype(dtype)
    y = rng.integers(0, max(2, K), n)
    return Objective(X, Targets(y), K, loss, Penalty(0.01), weight=weight), theta


def is_fused(objective):
    return objective.rows.reads_once(objective.losses, objective.n_scores)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS)
def test_both_ways_agree(form, dtype):
    loss, rows = FORMS[form], slice(0, 83)
    for K in (1, 7) if form.endswith("columns") else (7, 16) if form == "softmax joint" else (7,):
        objective, theta = problem(loss, K, dtype, weighted=K == 7)
        value, gradient = objective.rows.fused_share(theta, objective.losses, rows)
        expected, slopes = module.BlockRows.share_sums(objective.rows, theta, objective.losses, rows)
        close = 2e-4 if dtype is np.float32 else 1e-11
        assert value == pytest.approx(expected, rel=close)
        np.testing.assert_allclose(gradient, slopes, rtol=close, atol=close * np.abs(slopes).max())


def test_it_is_taken_where_a_pass_is_long(monkeypatch):
    objective, theta = problem(LOSSES["softmax"].joint, 7, np.float64)
    assert not is_fused(objective)
    plain = objective.value_gradient(theta)
    monkeypatch.setattr(module, "FUSED_PRODUCTS", 83 * 61 * 7)
    monkeypatch.setattr(module, "in_registers", lambda: True)
    assert is_fused(objective)
    fused = objective.value_gradient(theta)
    assert fused[0] == pytest.approx(plain[0], rel=1e-12)
    np.testing.assert_allclose(fused[1], plain[1], rtol=1e-10, atol=1e-12)


def test_a_sample_is_read_as_all_rows_are(monkeypatch):
    """What is compiled for all of them is there: a start on 7,000 of 60,000 images takes half the time."""
    objective, _ = problem(LOSSES["softmax"].joint, 7, np.float64)
    monkeypatch.setattr(module, "FUSED_PRODUCTS", 83 * 61 * 7)
    monkeypatch.setattr(module, "in_registers", lambda: True)
    assert is_fused(objective.subsample(20))
    assert is_fused(objective.take(np.arange(30)).subsample(10))
    assert not is_fused(problem(LOSSES["softmax"].joint, 3, np.float64)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["softmax joint", "logistic columns", "squared columns", "squared joint"])
def test_products_with_the_hessian_agree_both_ways(monkeypatch, form, dtype):
    for K in (1, 7, 16) if form.endswith("columns") else (7, 16):
        objective, theta = problem(FORMS[form], K, dtype, weighted=K == 7)
        direction = np.random.default_rng(K).standard_normal(theta.shape).astype(dtype)
        plain = objective.hessian_at(theta)
        expected = plain.product(direction)
        monkeypatch.setattr(module, "FUSED_PRODUCTS", 1)
        monkeypatch.setattr(module, "in_registers", lambda: True)
        assert is_fused(objective)
        once = objective.hessian_at(theta)
        close = 2e-4 if dtype is np.float32 else 1e-11
        np.testing.assert_allclose(once.product(direction), expected, rtol=close, atol=close * np.abs(expected).max())
        monkeypatch.undo()
