"""Log loss is scikit-learn's where nothing is at the floor, and the same figure wherever it is computed."""

import numpy as np
import pytest
from sklearn import metrics

import kway
from kway.auto.evaluation import evaluate_model
from kway.auto.race.scoring import predict_held_out
from kway.measures import MIN_PROBABILITY, log_loss, log_losses, own_probability


@pytest.mark.parametrize("kind", [int, str, object])
def test_it_is_scikit_learns(kind):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 300)
    classes = np.array(["3", "5", "7", "9"]).astype(kind)
    y = rng.choice(classes, 300)
    assert log_loss(own_probability(p, y, classes)) == pytest.approx(metrics.log_loss(y, p, labels=classes), rel=1e-12)


def test_what_was_ruled_out_costs_the_floor():
    p = np.array([[1.0, 0.0], [0.0, 1.0]])
    own = own_probability(p, ["b", "z"], np.array(["a", "b"]))  # z was never seen
    assert own.tolist() == [0.0, 0.0]
    assert log_losses(own).tolist() == [-np.log(MIN_PROBABILITY)] * 2


def test_every_stage_counts_alike():
    """Neighbors give no vote to many a right class, a sharp softmax nearly none: both are held at one floor."""
    data = kway.datasets.overlapping(400, n_classes=5, spread=1.5, seed=0)
    for model in (kway.NeighborsClassifier(2), kway.SoftmaxClassifier(alpha=1e-6)):
        model.fit(data.x_train, data.y_train)
        own = np.maximum(model.predict_proba(data.x_test)[np.arange(len(data.y_test)), data.y_test], 1e-6)
        expected = -np.log(own).mean()
        predictions = predict_held_out(model, data.x_test, data.y_test, len(model.classes_))
        assert predictions.loss()[0] == pytest.approx(expected)
        assert evaluate_model(model, data.x_test, data.y_test).scores.log_loss == pytest.approx(expected)
        scaled = kway.TemperatureScaledClassifier(model, cv="prefit").fit(data.x_test, data.y_test)
        assert scaled.log_loss_before_ == pytest.approx(expected)
