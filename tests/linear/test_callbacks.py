"""scikit-learn's callbacks see every iteration, and a model with the weights so far."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

import kway
from kway.base import callbacks
from kway.errors import InputError

X, y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)
ITERATIVE = [
    kway.SoftmaxClassifier(),
    kway.SoftmaxClassifier(solver="sgd", max_iter=20),
    kway.SoftmaxClassifier(penalty="l1", alpha=1e-3, solver="proximal"),
    kway.LogisticClassifier(),
    kway.SVMClassifier(multiclass="one-vs-all", solver="dual"),
    kway.PerceptronClassifier(max_iter=50),
    kway.KernelSoftmaxClassifier(n_landmarks=30),
]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Recorder:
    """A callback that keeps what it sees, and stops after some iterations."""

    def __init__(self, stop_after=None):
        self.events, self.accuracy, self.stop_after = [], [], stop_after

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        if fitted_estimator is not None:
            self.accuracy.append(fitted_estimator.score(X, y))
        return self.stop_after is not None and len(self.accuracy) >= self.stop_after


@pytest.fixture
def protocol():
    return pytest.importorskip("sklearn.callback")


@pytest.mark.parametrize("model", ITERATIVE, ids=str)
def test_every_iteration_is_seen(protocol, model):
    seen = Recorder()
    fitted = clone(model).set_callbacks(seen).fit(X, y)
    assert seen.events[:3] == ["setup", "begin fit", "begin iteration"]
    assert seen.events[-2:] == ["end fit", "teardown"]
    assert seen.events.count("begin iteration") == seen.events.count("end iteration") == len(seen.accuracy)
    assert len(seen.accuracy) >= (1 if model.get_params().get("solver") == "dual" else 3)  # dual: one call per round
    assert seen.accuracy[-1] == fitted.score(X, y)
    assert seen.accuracy[-1] > 0.9
    plain = clone(model).fit(X, y)
    np.testing.assert_allclose(fitted.decision_function(X), plain.decision_function(X), rtol=0.02, atol=0.02)


def test_the_score_monitor_of_scikit_learn(protocol):
    monitor = protocol.ScoringMonitor(scoring="accuracy")
    model = kway.SoftmaxClassifier().set_callbacks(monitor).fit(X, y)
    rows = monitor.get_logs().data
    assert len(rows) > 3
    assert rows[-1]["accuracy"] == model.score(X, y)


def test_the_progress_bar_of_scikit_learn(protocol, capsys):
    kway.SVMClassifier().set_callbacks(protocol.ProgressBar()).fit(X, y)
    assert "SVMClassifier - fit" in capsys.readouterr().out


def test_a_callback_can_stop_the_fit(protocol):
    seen = Recorder(stop_after=2)
    model = kway.SoftmaxClassifier().set_callbacks(seen).fit(X, y)
    assert seen.events.count("begin iteration") <= 3
    assert model.n_iter_ <= 2


def test_one_epoch_of_sgd_is_a_task(protocol):
    seen = Recorder()
    model = kway.SoftmaxClassifier(solver="sgd").set_callbacks(seen)
    for _ in range(3):
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert seen.events.count("end partial_fit") == seen.events.count("setup") == seen.events.count("teardown") == 3
    assert len(seen.accuracy) == 3


def test_callbacks_are_told_of_a_failed_fit(protocol):
    seen = Recorder()
    model = kway.SoftmaxClassifier().set_callbacks(seen)
    with pytest.raises(InputError):
        model.fit(X, np.zeros(len(X)))
    assert seen.events[-1] == "teardown"
    model.set_callbacks().fit(X, y)
    assert seen.events[-1] == "teardown"


def test_grid_search_clones_and_files_work(protocol, tmp_path):
    from sklearn.model_selection import cross_val_score

    seen = Recorder()
    model = kway.SoftmaxClassifier().set_callbacks(seen)
    assert cross_val_score(model, X, y, cv=2).mean() > 0.9
    assert seen.events.count("teardown") == 2
    model.fit(X, y).save(tmp_path / "m.kway")
    assert kway.load(tmp_path / "m.kway").score(X, y) > 0.9


def test_without_the_protocol_there_is_no_method(monkeypatch):
    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    model = kway.SoftmaxClassifier()
    assert not hasattr(model, "set_callbacks")
    assert model.fit(X, y).score(X, y) > 0.9
