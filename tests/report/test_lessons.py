import numpy as np
import pytest
from scipy.special import expit
from scipy.special import softmax as scipy_softmax

from kway.errors import InputError
from kway.report import lessons


def curves(axes):
    return {line.get_label(): line.get_xydata().T for line in axes.lines}


def heights(axes):
    return [bar.get_height() for bar in axes.patches]


def test_the_curves_are_the_formulas():
    drawn = curves(lessons.losses_by_margin(n_classes=10).axes[0])
    t = drawn["hinge"][0]
    formulas = {
        "0-1": t <= 0,
        "squared": (1 - t) ** 2,
        "perceptron": np.maximum(0, -t),
        "hinge": np.maximum(0, 1 - t),
        "logistic": np.log1p(np.exp(-t)),
        "cross-entropy, 10 classes": np.log1p(9 * np.exp(-t)),
    }
    for name, values in formulas.items():
        np.testing.assert_allclose(drawn[name][1], values, atol=1e-9, err_msg=name)


def test_temperature_is_softmax_at_each_t():
    f = np.array([2.0, 1.0, -1.0])
    scores, *panels = lessons.temperature(f, (0.1, 1, 100)).axes
    np.testing.assert_allclose(heights(scores), f)
    for axes, heat in zip(panels, (0.1, 1, 100)):
        np.testing.assert_allclose(heights(axes), scipy_softmax(f / heat), atol=1e-12)
        assert axes.get_title() == f"T = {heat:g}"


def test_temperature_must_be_positive():
    with pytest.raises(InputError, match="temperatures above 0"):
        lessons.temperature([1, 2], (0, 1))


def test_smoothed_targets_above_the_answers():
    answers = np.array([[0.0, 0.9, 0.1], [0.1, 0.7, 0.2]])
    grid = np.array(lessons.label_smoothing([0, 0.2], answers, true=1, labels=["a", "b", "c"]).axes).reshape(2, 2)
    np.testing.assert_allclose([heights(axes) for axes in grid[0]], [[0, 1, 0], [0.1, 0.8, 0.1]])
    np.testing.assert_allclose([heights(axes) for axes in grid[1]], answers)


def test_smoothing_needs_a_row_for_each_eps():
    with pytest.raises(InputError, match="a row for each of 2 values"):
        lessons.label_smoothing([0, 0.1], [[0.5, 0.5]], 0)


def test_softmax_of_two_is_a_sigmoid_and_sigmoids_do_not_add_up():
    f = np.array([2.0, 1.0, 0.1])
    left, right = lessons.softmax_and_sigmoid(f).axes
    drawn = curves(left)
    np.testing.assert_allclose(drawn["softmax(f, 0)"][1], expit(drawn["softmax(f, 0)"][0]))
    np.testing.assert_allclose(drawn["softmax(f, −f)"][1], expit(2 * drawn["softmax(f, −f)"][0]))
    np.testing.assert_allclose(heights(right), [*scipy_softmax(f), *expit(f)])
    labels = [t.get_text() for t in right.get_legend().get_texts()]
    assert labels == ["softmax: adds up to 1.00", f"sigmoid of each: adds up to {expit(f).sum():.2f}"]
