"""Answers print as people read them: a few lines with shapes and first rows, and as tables in notebooks."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

import kway
from kway.errors import InputError


@pytest.fixture(scope="module")
def answers():
    X, y = load_iris(return_X_y=True)
    near, line = kway.NeighborsClassifier().fit(X, y), kway.SoftmaxClassifier().fit(X, y)
    return {
        "Explanation": near.explain(X),
        "TopK": line.predict_topk(X, 2),
        "DecidingFeatures": line.explain(X),
        "PredictionSets": kway.ConformalClassifier(line, random_state=0).fit(X, y).predict_set(X),
        "Neighbors": kway.search.Flat().build(X).nearest(X, 3),
        "families": kway.compare(X, y, ["softmax", "centroid", "neighbors"]),
        "Strongest columns": kway.explain(line, X),
    }


def test_they_are_short_and_named(answers):
    for name, answer in answers.items():
        text = str(answer)
        assert name in text
        assert 3 <= text.count("\n") <= 13, name
        assert max(map(len, text.splitlines())) < 160
        assert repr(answer) == text
        assert answer._repr_html_().count("<tr>") == len(text.splitlines()) - 1 - ("…" in text.splitlines()[-1])


def test_tuples_are_still_tuples(answers):
    labels, scores = answers["TopK"]
    assert labels.shape == scores.shape == (150, 2)
    assert np.array_equal(answers["TopK"].ids, labels)


def test_a_mixed_frame_names_the_column():
    import pandas as pd

    frame = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0], "colour": ["red", "blue", "red", "blue"]})
    with pytest.raises(InputError, match="colour"):
        kway.SoftmaxClassifier().fit(frame, [0, 1, 0, 1])
