"""Linear estimators with device="cuda": the CPU's answers, its errors, and files that need no GPU.

Without a GPU "cuda" is made to mean torch on the CPU: the same code, one word apart.
"""

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

from tests.helpers.rows import blobs  # noqa: E402

import kway  # noqa: E402
from kway.errors import BudgetError, CombinationError, InputError  # noqa: E402
from kway.linear import plan as planning  # noqa: E402
from kway.linear.solvers import sgd  # noqa: E402
from kway.linear.solvers.sgd import SGD  # noqa: E402
from kway.rows.gpu import device as devices  # noqa: E402
from kway.rows.gpu.device import ChosenDevice, Device  # noqa: E402

pytestmark = pytest.mark.gpu

UNFINISHED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # where both are cut short
NAME = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _some_device(monkeypatch):
    """ "cuda" is the GPU, or torch on the CPU where there is none."""

    def resolve(device, pays=True):
        if device == "cpu" or (device == "auto" and not pays):
            return ChosenDevice(None, "on the CPU: too small" if device == "auto" else "")
        return ChosenDevice(Device(NAME), "on the GPU")

    monkeypatch.setattr(planning, "resolve", resolve)


CASES = {
    "softmax": (kway.SoftmaxClassifier, {}),
    "softmax, L1": (kway.SoftmaxClassifier, {"penalty": "l1", "alpha": 1e-3}),
    "softmax, elastic net": (kway.SoftmaxClassifier, {"penalty": "elasticnet", "alpha": 1e-3}),
    "softmax, smoothed": (kway.SoftmaxClassifier, {"label_smoothing": 0.1}),
    "softmax, gradient": (kway.SoftmaxClassifier, {"solver": "gradient", "alpha": 1e-2}),
    "logistic": (kway.LogisticClassifier, {"class_weight": "balanced"}),
    "svm": (kway.SVMClassifier, {"multiclass": "one-vs-all", "alpha": 1e-2}),
    "least squares": (kway.LeastSquaresClassifier, {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("K", [2, 4])
def test_fits_reach_the_objective_of_the_cpu(name, K):
    kind, params = CASES[name]
    X, y = blobs(K=K)
    here, there = (kind(device=device, tol=1e-4, **params).fit(X, y) for device in ("cpu", "cuda"))
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-4)
    assert there.coef_.dtype == X.dtype
    assert (there.predict(X) == here.predict(X)).mean() > 0.99
    assert there.why_ == "on the GPU"
    assert not hasattr(here, "why_")


def test_wide_sparse_and_weighted_rows():
    X, y = blobs(60, 200, 3)
    weight = np.random.default_rng(1).exponential(size=60)
    rows = sp.csr_matrix(np.where(np.abs(X) > 1, X, 0))
    for given in (X, rows):
        here, there = (kway.SoftmaxClassifier(device=d).fit(given, y, sample_weight=weight) for d in ("cpu", "cuda"))
        assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)


def test_a_model_of_a_gpu_is_a_file_like_any_other(tmp_path, monkeypatch):
    X, y = blobs()
    model = kway.SoftmaxClassifier(device="cuda").fit(X, y)
    model.save(tmp_path / "m.kway")
    monkeypatch.setattr(planning, "resolve", None)  # nobody asks for a device any more
    again = kway.load(tmp_path / "m.kway")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@UNFINISHED
@pytest.mark.parametrize("solver", [SGD(), SGD(momentum=0.9), SGD(adagrad=True), SGD(average=True)])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_sgd_comes_as_close_as_on_the_cpu(solver, penalty):
    X, y = blobs()
    given = {"penalty": penalty, "alpha": 1e-2, "solver": solver, "batch_size": 16, "max_iter": 60, "random_state": 0}
    here, there = (kway.SoftmaxClassifier(device=device, **given).fit(X, y) for device in ("cpu", "cuda"))
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-3)  # the same draws, the same steps
    np.testing.assert_allclose(there.history_[:5], here.history_[:5], rtol=1e-3)


@UNFINISHED
@pytest.mark.parametrize("loss", ["hinge", "perceptron", "squared", "softmax-absolute"])
def test_sgd_takes_every_loss(loss):
    X, y = blobs()
    given = {"loss": loss, "solver": "sgd", "batch_size": 16, "max_iter": 40, "random_state": 0, "tol": 0.0}
    here, there = (kway.LinearClassifier(device=device, **given).fit(X, y) for device in ("cpu", "cuda"))
    assert there.score(X, y) == pytest.approx(here.score(X, y), abs=0.02)


@UNFINISHED
@pytest.mark.parametrize("solver", [SGD(), SGD(adagrad=True)])
@pytest.mark.parametrize("bias", [True, False])
def test_softmax_over_many_classes_steps_in_place(solver, bias, monkeypatch):
    monkeypatch.setattr("kway.rows.gpu.stochastic_steps.MANY_CLASSES", 30)
    X, y = blobs(900, 20, 30)
    given = {"solver": solver, "batch_size": 64, "max_iter": 30, "tol": 1e-3, "random_state": 0, "fit_intercept": bias}
    there = kway.SoftmaxClassifier(device="cuda", alpha=1e-3, **given).fit(X, y)
    here = kway.SoftmaxClassifier(alpha=1e-3, **given).fit(X, y)
    assert there.objective_ == pytest.approx(here.objective_, rel=0.02)
    assert bias or not there.intercept_.any()
    monkeypatch.setattr(sgd, "WATCHED_WORK", 500 * 20 * 30)  # the objective of 500 rows
    some = kway.SoftmaxClassifier(device="cuda", alpha=1e-3, **given).fit(X, y)
    assert some.objective_ == pytest.approx(there.objective_, rel=0.2)  # of 500 rows


def test_partial_fit_and_early_stopping():
    X, y = blobs()
    model = kway.SoftmaxClassifier(device="cuda", batch_size=32, random_state=0)
    for _ in range(5):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.8
    assert kway.SoftmaxClassifier(device="cuda", early_stopping=True).fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize("solver", ["dual", "least-squares"])
def test_solvers_of_the_host_say_so(solver):
    X, y = blobs()
    with pytest.raises(CombinationError, match="device='cpu'"):
        kway.LinearClassifier("softmax", solver=solver, device="cuda").fit(X, y)
    with pytest.raises(CombinationError, match="hard margin"):
        kway.SVMClassifier(alpha=0, device="cuda").fit(X, y)


def test_sparse_rows_too_large_to_be_dense_are_refused(monkeypatch):
    monkeypatch.setattr("kway.rows.gpu.linear_passes.MAX_DENSE_BYTES", 1000)
    X, y = blobs()
    with pytest.raises(InputError, match="X is sparse"):
        kway.SoftmaxClassifier(device="cuda").fit(sp.csr_matrix(X), y)


def test_rows_beyond_the_devices_memory_are_refused_and_nothing_is_fitted(monkeypatch):
    monkeypatch.setattr(devices.Device, "free_bytes", lambda self: 10_000)
    X, y = blobs()
    model = kway.SoftmaxClassifier(device="cuda")
    with pytest.raises(BudgetError, match=r"needs 1 GiB on c\w+, which has 9.8 KiB free"):
        model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]  # nothing is half fitted


def test_auto_stays_here_for_small_problems_and_says_why():
    X, y = blobs()
    why = kway.SoftmaxClassifier(device="auto").fit(X, y).why_
    assert why.startswith("on the CPU: too small to pay for a GPU: about")


def test_auto_goes_there_where_the_plan_says_so_and_tells_its_figures(monkeypatch):
    monkeypatch.setattr("kway.planning.costs.GPU_START_SECONDS", -1.0)
    X, y = blobs()
    assert kway.SoftmaxClassifier(device="auto").fit(X, y).why_.startswith("on the GPU: about")
    monkeypatch.setattr(devices.Device, "free_bytes", lambda self: 10_000)
    assert "9.8 KiB are free" in kway.SoftmaxClassifier(device="auto").fit(X, y).why_


def test_comparisons_compute_there_and_choose_the_same(monkeypatch):
    monkeypatch.setattr("kway.auto.race.compare.resolve", planning.resolve)
    X, y = blobs()
    names = ["softmax", "logistic", "least-squares", "perceptron"]
    here, there = (kway.compare(X, y, models=names, device=device) for device in ("cpu", "cuda"))
    assert not there.problems
    for name in names:
        one, other = (next(line for line in found.rows if line.model == name) for found in (here, there))
        np.testing.assert_allclose(other.fold_accuracy, one.fold_accuracy, atol=0.03)
    assert there.estimator().device == "cuda"


@pytest.mark.skipif(NAME == "cuda", reason="there is one")
def test_a_comparison_without_a_gpu_says_so_at_once():
    with pytest.raises(InputError, match="needs a GPU"):
        kway.compare(*blobs(), device="cuda")


def test_memory_that_runs_out_in_the_middle_is_told_and_nothing_is_half_fitted(monkeypatch):
    def short(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("kway.rows.gpu.linear_passes.GpuRows.value_gradient", short)
    model = kway.SoftmaxClassifier(device="cuda", solver="lbfgs")
    with pytest.raises(BudgetError, match="planned for 1 GiB on the device, ran out of memory"):
        model.fit(*blobs())
    assert not [name for name in vars(model) if name.endswith("_")]
    monkeypatch.setattr("kway.auto.race.compare.resolve", planning.resolve)
    with pytest.raises(InputError, match=r"softmax: .* ran out of memory"):
        kway.compare(*blobs(), models=["softmax"], device="cuda")
