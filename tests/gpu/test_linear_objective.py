"""Linear models on a device, held against the CPU's: every loss, every pass over the rows, the solvers that work there.

Without a GPU the same code runs through torch on the CPU, so that its logic is covered everywhere.
"""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from kway.linear.losses import (  # noqa: E402
    LOSSES,
    Hinge,
    Loss,
    Targets,
    centered_kink,
)
from kway.linear.objective import Objective  # noqa: E402
from kway.linear.penalties import Penalty  # noqa: E402
from kway.linear.solvers.base import Control  # noqa: E402
from kway.linear.solvers.lbfgs import LBFGS  # noqa: E402
from kway.linear.solvers.preconditioners import moments  # noqa: E402
from kway.linear.solvers.proximal import Proximal  # noqa: E402
from kway.linear.solvers.registry import fastest_solver  # noqa: E402
from kway.rows.gpu import losses as device_losses  # noqa: E402
from kway.rows.gpu.device import Device  # noqa: E402
from kway.rows.passes import wrap_rows  # noqa: E402

pytestmark = pytest.mark.gpu

NAME = "cuda" if torch.cuda.is_available() else "cpu"
DEVICE = Device(NAME)
FORMS = [
    pytest.param(form, scores, id=f"{form.name}-{scores}")
    for forms in LOSSES.values()
    for form, scores in ((forms.columns, 1), (forms.columns, 4), (forms.joint, 4))
]


def on_device(objective):
    return replace(objective, rows=wrap_rows(objective.X, DEVICE))


def send(array):
    return torch.from_numpy(array).to(NAME)


def both(form, scores, codes, soft=None):
    """Values and slopes by the CPU's kernels, and by the device's formulas."""
    targets = device_losses.Targets(send(codes), None if soft is None else send(soft))
    found = device_losses.slopes(form.kernel, send(scores.copy()), targets, form.margin, form.width)
    return form.value_gradient(scores.copy(), Targets(codes, soft)), [t.cpu().numpy() for t in found]


def variants(form):
    return [form] if not isinstance(form, Hinge) else [form, form.smoothed(0.5), centered_kink(form, 2.0)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_losses_are_the_kernels(form, n_scores, dtype):
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.3, 3.0, 40.0, 3000.0):  # ties, ordinary scores, ones whose exponentials overflow
        scores = (scale * rng.standard_normal((60, n_scores))).astype(dtype)
        codes = rng.integers(0, max(2, n_scores), 60)
        soft = rng.dirichlet(np.ones(max(2, n_scores)), 60)[:, :n_scores].astype(dtype)
        for variant in variants(form):
            for targets in [None, soft] if form.soft_targets else [None]:
                (value, slope), (found, turned) = both(variant, scores, codes, targets)
                near = 2e-6 if dtype == np.float32 else 1e-12
                np.testing.assert_allclose(found, value, rtol=4 * near, atol=near * max(1, scale))
                np.testing.assert_allclose(turned, slope, rtol=4 * near, atol=near)


def problem(form, n_scores, dtype=np.float64, n=300, d=7, soft=False, weighted=True, bias=True, penalty=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(dtype)
    codes = rng.integers(0, max(2, n_scores), n)
    codes = np.where(rng.random(n) < 0.6, (X[:, 0] > 0) * 1, codes)  # something to learn
    Y = rng.dirichlet(np.ones(max(2, n_scores)), n)[:, :n_scores].astype(dtype) if soft else None
    weight = rng.exponential(size=n).astype(dtype) if weighted else None
    if weight is not None:
        weight /= weight.mean()
    return Objective(X, Targets(codes, Y), n_scores, form, penalty or Penalty(ridge=1e-2), bias, weight)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
@pytest.mark.parametrize("bias", [True, False])
def test_value_gradient_scores_and_bends_are_the_cpus(form, n_scores, bias, monkeypatch):
    monkeypatch.setattr("kway.rows.gpu.device.GPU_BLOCK_BYTES", 256 * n_scores * 8)  # more blocks than one
    for form_ in variants(form):
        here = problem(form_, n_scores, soft=form.soft_targets, bias=bias, n=700)
        there = on_device(here)
        rng = np.random.default_rng(1)
        theta, V = rng.standard_normal((2, n_scores, here.d + 1))
        assert there.value(theta) == pytest.approx(here.value(theta), rel=1e-12)
        (value, gradient), (found, turned) = here.value_gradient(theta), there.value_gradient(theta)
        assert found == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(turned, gradient, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(there.scores(theta, slice(3, 90)), here.scores(theta, slice(3, 90)), rtol=1e-12)
        if form_.smooth:
            ours, theirs = here.hessian_at(theta), there.hessian_at(theta)
            np.testing.assert_allclose(theirs.product(V), ours.product(V), rtol=1e-10, atol=1e-12)


def test_objectives_of_other_rows_hold_those_rows():
    here = problem(LOSSES["softmax"].joint, 4)
    there = on_device(here)
    theta = np.random.default_rng(2).standard_normal((4, here.d + 1))
    some = np.arange(5, 250, 3)
    assert there.take(some).value(theta) == pytest.approx(here.take(some).value(theta), rel=1e-12)
    other = there.with_loss(LOSSES["hinge"].joint)
    assert other.rows.labeled(other.losses) is there.rows.labeled(there.losses)  # nothing is sent twice
    moved = on_device(replace(there, rows=2 * here.X))
    assert moved.value(theta) == pytest.approx(replace(here, rows=2 * here.X).value(theta), rel=1e-12)


class Quartic(Loss):
    """A loss written in Python: the device computes its scores, the host its slopes."""

    def value_gradient(self, scores, targets, gradient=None):
        miss = scores - np.eye(scores.shape[1])[targets.codes]
        gradient = np.empty_like(scores) if gradient is None else gradient
        gradient[:] = 4 * miss**3
        return (miss**4).sum(axis=1), gradient


def test_a_loss_without_a_kernel_works_through_the_host():
    here = problem(Quartic("quartic", joint=True, smooth=True, convex=True), 3)
    theta = np.random.default_rng(3).standard_normal((3, here.d + 1))
    found, turned = on_device(here).value_gradient(theta)
    value, gradient = here.value_gradient(theta)
    assert found == pytest.approx(value)
    np.testing.assert_allclose(turned, gradient, rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lasso", [0.0, 3e-3])
@pytest.mark.parametrize("name", ["softmax", "logistic", "hinge", "squared", "softmax-squared"])
def test_solvers_reach_the_objective_of_the_cpu(name, lasso, dtype):
    if lasso and name == "hinge":
        pytest.skip("thousands of passes, each of which is tested above")
    solver = Proximal() if lasso else LBFGS()
    for seed, form in enumerate(LOSSES[name]):
        for n, d in ((300, 5), (120, 20)):
            here = problem(form, 4, dtype, n=n, d=d, penalty=Penalty(3e-2, lasso), seed=seed)
            control = Control(tol=1e-2 if form.hinge else 1e-4, max_iter=5000)
            ours = solver.solve(here, here.zeros(), control)
            theirs = solver.solve(on_device(here), here.zeros(), control)
            best = here.value(ours.theta)
            assert theirs.converged
            assert here.value(theirs.theta) == pytest.approx(best, rel=2 * control.tol if form.convex else 5e-2)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["softmax", "logistic", "hinge", "squared"])
def test_factors_of_each_class_are_the_cpus(name, bias, monkeypatch):
    """From all rows, so that nothing is drawn: the same matrices inverted in two places."""
    monkeypatch.setattr("kway.linear.solvers.preconditioners.rows_per_class", lambda rows: 10**9)
    form = LOSSES[name].columns if name == "logistic" else LOSSES[name].joint.smoothed(1.0)
    here = problem(form, 4, bias=bias)
    there = on_device(here)
    ours, theirs = moments(here), moments(there)
    np.testing.assert_allclose(np.triu(theirs.gram), np.triu(ours.gram), rtol=1e-10, atol=1e-12)
    rng = np.random.default_rng(4)
    theta, g = rng.standard_normal((2, 4, here.d + 1))
    found = theirs.per_class(there, theta)(g)
    np.testing.assert_allclose(found, ours.per_class(here, theta)(g), rtol=1e-7, atol=1e-9)


def test_auto_makes_passes_over_rows_on_a_device():
    assert fastest_solver(on_device(problem(LOSSES["softmax"].joint, 4))).name == "lbfgs"


def test_matrices_that_have_no_factor_get_a_floor():
    here = problem(LOSSES["logistic"].columns, 3, penalty=Penalty())
    X = np.hstack([here.X, here.X[:, :2], np.zeros((here.n, 1))])  # columns twice, and one that is always zero
    there = on_device(replace(here, rows=X))
    step = moments(there).per_class(there, np.zeros((3, X.shape[1] + 1)))(np.ones((3, X.shape[1] + 1)))
    assert np.isfinite(step).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_curvatures_and_their_sums_per_class_are_those_of_the_cpu(weighted):
    rng = np.random.default_rng(3)
    X, codes = rng.standard_normal((300, 7)), rng.integers(0, 5, 300)
    weight = rng.random(300) + 0.5 if weighted else None
    here = Objective(wrap_rows(X), Targets(codes), 5, LOSSES["softmax"].joint, Penalty(ridge=0.1), weight=weight)
    theta = rng.standard_normal((5, 8))
    np.testing.assert_allclose(on_device(here).curvatures(theta), here.curvatures(theta), rtol=1e-10, atol=1e-14)
    for found, expected in zip(on_device(here).class_sums(theta), here.class_sums(theta)):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
