"""Sampled softmax on a device: the host's draws and steps, held against the host's weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import kway  # noqa: E402
from kway.errors import BudgetError, CombinationError  # noqa: E402
from kway.linear import plan as planning  # noqa: E402
from kway.linear.solvers.sampled import Sampled  # noqa: E402
from kway.planning import costs  # noqa: E402
from kway.rows.gpu.device import ChosenDevice, Device  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]

NAME = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _some_device(monkeypatch):
    def resolve(device, pays=True):
        return ChosenDevice(None, "") if device == "cpu" else ChosenDevice(Device(NAME), "on the GPU")

    monkeypatch.setattr(planning, "resolve", resolve)


def many(n=900, d=12, K=90, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(K), rng.integers(0, K, n - K)]
    return (rng.standard_normal((K, d))[y] + 0.4 * rng.standard_normal((n, d))).astype(dtype), y


def both(X, y, weight=None, **given):
    given = {"solver": Sampled(negatives=16, hard=8), "batch_size": 32, "max_iter": 6, "random_state": 3} | given
    fits = (
        kway.SoftmaxClassifier(device=device, **given).fit(X, y, sample_weight=weight) for device in ("cpu", "cuda")
    )
    return tuple(fits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("bias", [True, False])
def test_the_same_seed_takes_the_same_steps_as_on_the_cpu(dtype, alpha, bias):
    here, there = both(*many(dtype=dtype), alpha=alpha, fit_intercept=bias)
    close = {"rtol": 2e-3, "atol": 2e-4} if dtype == np.float32 else {"rtol": 1e-5, "atol": 1e-6}  # sizes are float32
    np.testing.assert_allclose(there.coef_, here.coef_, **close)
    np.testing.assert_allclose(there.intercept_, here.intercept_, **close)
    np.testing.assert_allclose(there.history_, here.history_, rtol=1e-3)
    assert there.coef_.dtype == dtype
    assert there.solver_ == "sampled"


def test_weights_of_rows_and_refreshed_hard_classes(monkeypatch):
    monkeypatch.setattr("kway.linear.solvers.sampled._REFRESH", 5)  # many scorings against all classes
    X, y = many()
    weight = np.random.default_rng(1).exponential(size=len(y))
    here, there = both(X, y, weight, alpha=1e-5)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=5e-3, atol=5e-4)


def test_every_class_drawn_is_full_softmax():
    X, y = many(300, 6, 8)
    here, there = both(X, y, alpha=1e-3, solver=Sampled(negatives=8, hard=0), max_iter=60)
    optimum = kway.SoftmaxClassifier(alpha=1e-3).fit(X, y).objective_
    assert there.objective_ == pytest.approx(optimum, rel=0.1)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-3)


def test_it_goes_on_from_a_checkpoint(tmp_path):
    X, y = many()
    given = {
        "device": "cuda",
        "batch_size": 32,
        "random_state": 3,
        "alpha": 1e-4,
        "tol": 0.0,
        "learning_rate": "constant",
    }
    whole = kway.SoftmaxClassifier(solver=Sampled(16, 8), max_iter=6, **given).fit(X, y)
    for epochs in (2, 6):
        parts = kway.SoftmaxClassifier(solver=Sampled(16, 8, str(tmp_path)), max_iter=epochs, **given).fit(X, y)
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-4, atol=1e-5)


def test_early_stopping_sees_the_weights():
    X, y = many()
    model = kway.SoftmaxClassifier(device="cuda", solver="sampled", early_stopping=True, batch_size=32).fit(X, y)
    assert model.score(X, y) > 0.8


def test_soft_targets_are_refused():
    X, y = many()
    with pytest.raises(CombinationError, match="one label per row"):
        kway.SoftmaxClassifier(device="cuda", solver="sampled", label_smoothing=0.1).fit(X, y)


@pytest.mark.parametrize(("hours", "name"), [(False, "sgd"), (True, "sampled")])
def test_auto_sums_over_all_classes_until_that_takes_hours(hours, name, monkeypatch):
    monkeypatch.setattr(costs, "exceeds_softmax", lambda size: True)
    monkeypatch.setattr(costs, "exceeds_gpu_steps", lambda size: hours)
    X, y = many()
    assert kway.SoftmaxClassifier(device="cuda", max_iter=2, batch_size=32).fit(X, y).solver_ == name


def test_weights_beyond_the_devices_memory_are_refused_and_nothing_is_fitted(monkeypatch):
    room = Device.room

    def tight(self, what, needed=0):
        if "sampled softmax" in what:
            monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
        return room(self, what, needed)

    monkeypatch.setattr(Device, "room", tight)
    model = kway.SoftmaxClassifier(device="cuda", solver="sampled")
    with pytest.raises(BudgetError, match="sampled softmax over 90 classes needs"):
        model.fit(*many())
    assert not hasattr(model, "coef_")
