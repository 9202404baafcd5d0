"""What the learning curve says of more rows."""

import numpy as np
import pytest

from kway.auto.learning_curve import LearningCurve


@pytest.mark.parametrize(
    ("scores", "higher_is_better", "said"),
    [
        ([[0.6, 0.61], [0.7, 0.71], [0.8, 0.81]], True, "More rows would help: from 50 to 100 rows"),
        (
            [[0.6, 0.61], [0.7, 0.80], [0.81, 0.7]],
            True,
            "help little: from 50 to 100 rows the score improved by 0.005; the noise of the folds is 0.210.",
        ),
        (
            [[0.6, 0.61], [0.8, 0.81], [0.7, 0.711]],
            True,
            "not clear whether more rows would help: from 50 to 100 rows the score became worse",
        ),
        ([[0.9, 0.9], [0.5, 0.51], [0.6, 0.611]], False, "became worse by 0.100; the noise of the folds is 0.001."),
        (
            [[0.6, 0.61], [0.7, 0.72], [0.69, 0.725]],
            True,
            "help little: from 50 to 100 rows the score became worse by 0.002",
        ),
        (
            [[0.59], [0.69], [0.82]],
            True,
            "not clear whether more rows would help: from 50 to 100 rows the score improved by 0.130, but one fold",
        ),
        ([[0.6], [0.5], [0.55]], False, "the score became worse by 0.050, but one fold does not show the noise."),
    ],
)
def test_what_is_said(scores, higher_is_better, said):
    """A fall of 0.062 was called an improvement of -0.062, within a noise of 0.042."""
    assert said in str(LearningCurve(np.array([25, 50, 100]), np.array(scores), higher_is_better))
