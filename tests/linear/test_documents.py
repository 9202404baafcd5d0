"""The lectures' own examples, as tests."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from kway import LeastSquaresClassifier, LogisticClassifier, PerceptronClassifier, SoftmaxClassifier
from kway.linear.classifier import LinearClassifier
from kway.linear.losses import LOSSES, Targets, sigmoid, softmax


def class_rows(scores):
    """A classifier whose scores of the input [1] are these."""
    model = SoftmaxClassifier()
    model.classes_ = np.arange(len(scores))
    model.coef_ = np.asarray(scores, float)[:, None]
    model.intercept_ = np.zeros(len(scores))
    model.n_features_in_ = 1
    return model


def test_index_of_the_largest_score():
    assert class_rows([0.9, -5, 10, -20, 0]).predict([[1.0]]) == [2]


def test_ten_digit_scores_say_three_then_eight():
    top = class_rows([-5, -8, 0.4, 15, -2, 0.9, 2.3, -4.2, 13.1, 2.3]).predict_topk([[1.0]], 2)
    assert top.ids.tolist() == [[3, 8]]


def test_regression_on_the_class_number_rounds():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    model = LeastSquaresClassifier(targets="number", alpha=0).fit(X, [0, 1, 2, 3])
    assert model.predict([[2.2], [1.835], [7.0], [-1.0], [1e30], [-1e30]]).tolist() == [2, 2, 3, 0, 3, 0]


CAT_DOG_SHIP = np.array([[65.1, 101.4, 24.9]])  # an image of a cat


def directions(form):
    _, gradient = form.value_gradient(CAT_DOG_SHIP, Targets(np.array([0])))
    return [{-1.0: "decrease", 0.0: "nothing", 1.0: "increase"}[-np.sign(g)] for g in gradient[0]]


def test_independent_perceptrons_and_the_joint_one_update_different_classes():
    assert directions(LOSSES["perceptron"].columns) == ["nothing", "decrease", "decrease"]
    assert directions(LOSSES["perceptron"].joint) == ["increase", "decrease", "nothing"]


def test_one_perceptron_update_changes_the_response_by_eta_y_squared_norm():
    x, eta = np.array([[3.0, -4.0]]), 0.1
    model = PerceptronClassifier(fit_intercept=False, learning_rate=eta, random_state=0)
    for label in (0, 1):
        model.partial_fit(x, [label], classes=[0, 1])
        before = model.decision_function(x)[0]
        sign = -1 if label else 1  # now the other label, so that the row is on the wrong side
        rate = eta / (1 + 0.1 * model.epochs_)
        model.partial_fit(x, [1 - label])
        moved = model.decision_function(x)[0] - before
        assert moved == pytest.approx(sign * rate * 25 if sign * before <= 0 else 0.0)


def test_softmax_and_sigmoid_identities():
    f = np.linspace(-8, 8, 33)
    np.testing.assert_allclose(softmax(np.stack([0 * f, f], 1)), np.stack([1 - sigmoid(f), sigmoid(f)], 1), atol=1e-15)
    np.testing.assert_allclose(
        softmax(np.stack([f, -f], 1)), np.stack([sigmoid(2 * f), sigmoid(-2 * f)], 1), atol=1e-15
    )
    np.testing.assert_allclose(1 - sigmoid(f), sigmoid(-f), atol=1e-15)
    scores = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_allclose(softmax(scores + 17.0), softmax(scores), rtol=1e-12)


def test_temperature_to_zero_is_one_hot_and_to_infinity_uniform():
    scores = np.array([[1.0, 3.0, 2.0]])
    np.testing.assert_allclose(softmax(scores, 1e-6), [[0, 1, 0]])
    np.testing.assert_allclose(softmax(scores, 1e9), np.full((1, 3), 1 / 3), rtol=1e-8)
    np.testing.assert_allclose(softmax(scores, 2.0), softmax(scores / 2))


def test_no_overflow_at_1e30():
    model = class_rows([1e30, -1e30, 0.0])
    np.testing.assert_array_equal(model.predict_proba([[1.0]]), [[1, 0, 0]])
    assert sigmoid(np.array([1e30, -1e30])).tolist() == [1, 0]


def test_temperature_of_the_estimator_is_that_of_its_probabilities():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    model = SoftmaxClassifier().fit(X, y)
    hot = model.predict_proba(X)
    model.temperature = 1e9
    np.testing.assert_allclose(model.predict_proba(X), 1 / 3, atol=1e-6)
    assert (model.predict(X) == model.classes_[hot.argmax(1)]).all()


def test_label_smoothing_targets():
    from kway.labels import encode
    from kway.linear.fitting import soft_targets

    Y = soft_targets(encode([0, 1, 2, 3, 4]), 0.1, np.float64)
    np.testing.assert_allclose(np.diag(Y), 0.9)
    np.testing.assert_allclose(Y[~np.eye(5, dtype=bool)], 0.1 / 4)
    np.testing.assert_allclose(Y.sum(1), 1)


def test_label_smoothing_keeps_probabilities_from_certainty():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(50, 2)) + 8 * i for i in range(3)])
    y = np.repeat(np.arange(3), 50)
    plain = SoftmaxClassifier(alpha=1e-6).fit(X, y).predict_proba(X).max()
    smooth = SoftmaxClassifier(alpha=1e-6, label_smoothing=0.2).fit(X, y).predict_proba(X).max()
    assert plain > 0.99
    assert smooth < 0.9


def test_logistic_on_separable_data_without_a_penalty_is_named_and_does_not_loop():
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    with pytest.warns(ConvergenceWarning, match="separable"):
        LogisticClassifier(penalty="none").fit(X, [0, 0, 1, 1])


def test_weights_vanish_with_the_penalty_and_alpha_does_not_move_with_n():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 3)), rng.integers(0, 3, 80)
    once = LinearClassifier(alpha=0.1, tol=1e-8).fit(X, y)
    twice = LinearClassifier(alpha=0.1, tol=1e-8).fit(np.vstack([X, X]), np.concatenate([y, y]))
    np.testing.assert_allclose(once.coef_, twice.coef_, atol=1e-5)
    assert np.abs(LinearClassifier(alpha=1e4).fit(X, y).coef_).max() < 1e-3
