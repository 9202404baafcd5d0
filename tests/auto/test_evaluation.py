"""Figures of a test agree with scikit-learn's and with arithmetic."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import f1_score, log_loss, precision_recall_fscore_support, top_k_accuracy_score

import kway
from kway.auto.evaluation import (
    _class_records,
    check_same_label_type,
    evaluate_model,
    mcnemar,
    tally_blocks,
    wilson,
)
from kway.errors import InputError


@pytest.fixture(scope="module")
def seen():
    data = kway.datasets.load("digits8x8")
    model = kway.SoftmaxClassifier(alpha=1e-2).fit(data.x_train[:600], data.y_train[:600])
    return model, data.x_train[600:1000], data.y_train[600:1000]


def test_scores_are_scikit_learns(seen):
    model, X, y = seen
    scores = evaluate_model(model, X, y).scores
    predicted, p = model.predict(X), model.predict_proba(X)
    assert scores.accuracy == np.mean(predicted == y)
    assert scores.macro_f1 == pytest.approx(f1_score(y, predicted, average="macro"))
    assert scores.log_loss == pytest.approx(log_loss(y, p / p.sum(axis=1, keepdims=True)), rel=1e-4)
    assert scores.top5 == pytest.approx(top_k_accuracy_score(y, p, k=5))
    precision, recall, f1, rows = precision_recall_fscore_support(y, predicted)
    assert [c["precision"] for c in scores.classes] == pytest.approx(precision)
    assert [c["recall"] for c in scores.classes] == pytest.approx(recall)
    assert [c["f1"] for c in scores.classes] == pytest.approx(f1)
    assert [c["rows"] for c in scores.classes] == list(rows)


def test_the_list_of_a_scaled_model_is_that_of_its_probabilities(seen):
    _, X, y = seen
    model = kway.TemperatureScaledClassifier(kway.NeighborsClassifier(), cv=2).fit(X[:300], y[:300])
    listed = (model.predict_topk(X[300:], 5).ids == y[300:, None]).any(axis=1)
    assert evaluate_model(model, X[300:], y[300:]).scores.top5 == listed.mean()


def test_figures_that_a_model_does_not_have_are_none():
    X, y = load_iris(return_X_y=True)
    scores = evaluate_model(kway.SVMClassifier().fit(X, y), X, y).scores
    assert scores.log_loss is scores.ece is scores.top5 is None


def test_mcnemar_sees_only_rows_on_which_the_models_differ():
    right = np.array([True, True, False, True])
    assert mcnemar(right, right).p_value == 1.0
    found = mcnemar(np.ones(20, bool), np.arange(20) < 10)
    assert (found.only_first, found.only_second) == (10, 0)
    assert found.p_value == pytest.approx(2 * 0.5**10)


def test_text_is_not_compared_with_numbers():
    with pytest.raises(InputError, match="the labels are text such as 'a', those of the model numbers such as"):
        check_same_label_type(np.array(["a"]), np.array([1, 2]))


def test_blocks_give_the_figures_of_all_rows():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = kway.SoftmaxClassifier(alpha=0.1).fit(X[::2], names[::2])
    whole = evaluate_model(model, X, names).scores
    order = np.random.default_rng(0).permutation(150)
    parts = [order[:7], order[7:100], order[100:]]
    found = tally_blocks(model, ((X[part], names[part]) for part in parts)).scores()
    assert found.classes == whole.classes
    assert (found.rows, found.accuracy, found.macro_f1) == (150, whole.accuracy, whole.macro_f1)
    for name in ("log_loss", "ece", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-6)


def test_mcnemar_is_the_exact_binomial_test():
    from scipy.stats import binomtest

    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 7, 40, 3000, 100_000):
        first, second = rng.random(n) < 0.5, rng.random(n) < rng.random()
        found = mcnemar(first, second)
        differ = found.only_first + found.only_second
        expected = binomtest(found.only_first, differ).pvalue if differ else 1.0
        assert found.p_value == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_weighted_scores_are_scikit_learns(seen):
    model, X, y = seen
    w = np.random.default_rng(0).uniform(0.1, 3, len(y))
    scores = evaluate_model(model, X, y, w).scores
    predicted, p = model.predict(X), model.predict_proba(X)
    assert scores.accuracy == pytest.approx(np.average(predicted == y, weights=w))
    assert scores.macro_f1 == pytest.approx(f1_score(y, predicted, average="macro", sample_weight=w))
    assert scores.log_loss == pytest.approx(log_loss(y, p, sample_weight=w), rel=1e-5)
    assert scores.rows == len(y)
    n = w.sum() ** 2 / np.square(w).sum()  # the effective sample size
    low, high = wilson(np.array(scores.accuracy * n), np.array(n))
    assert (scores.low, scores.high) == pytest.approx((float(low), float(high)))
    equal, plain = evaluate_model(model, X, y, np.full(len(y), 7.0)).scores, evaluate_model(model, X, y).scores
    assert (equal.accuracy, equal.ece, equal.top5) == pytest.approx((plain.accuracy, plain.ece, plain.top5))


def test_a_class_whose_rows_have_no_weight_has_scores_of_zero():
    lines = _class_records({("a", "a"): 2.0, ("b", "a"): 0.0}, {"a": 2, "b": 1})
    assert [(line["recall"], line["f1"]) for line in lines] == [(1.0, 1.0), (0.0, 0.0)]
