"""Families that cannot win are found out by little work, and only where nobody asked for them."""

import numpy as np
import pytest

import kway


def blobs(n_classes: int, places: int, rows: int = 20, seed: int = 0):
    """Each class in so many places of the plane: with one place a line can tell classes, with more only neighbours."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * rng.permutation(n_classes * places).reshape(places, n_classes) / (n_classes * places)
    y = np.tile(np.arange(n_classes), rows)
    where = angle[rng.integers(0, places, len(y)), y]
    X = 2 * np.column_stack([np.cos(where), np.sin(where)]) + 0.004 * rng.standard_normal((len(y), 2))
    return X.astype(np.float32), y


def test_a_path_ends_if_it_cannot_reach_the_leader_and_similar_families_are_skipped():
    X, y = blobs(8, 4, rows=40)
    found = kway.compare(X, y)
    line = next(line for line in found.rows if line.model == "softmax")
    assert line.stopped
    assert line.note.endswith("with 1 of 11 settings")
    assert {"logistic", "least-squares", "svm-one-vs-all", "perceptron"} <= set(found.skipped)
    assert "softmax, a similar family, has 0." in found.skipped["logistic"]


@pytest.mark.parametrize("names", [["neighbors", "softmax", "logistic"]])
def test_families_asked_for_by_name_are_run_whole(names):
    X, y = blobs(8, 4, rows=40)
    found = kway.compare(X, y, models=names)
    assert {line.model for line in found.rows} == set(names)
    assert np.isfinite(found.scans["softmax"].accuracy[0]).all()
