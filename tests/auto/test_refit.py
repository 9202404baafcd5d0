"""What was chosen on a sample, as all rows want it: alpha by the classes, landmarks where exact answers are slow."""

import numpy as np
import pytest

import kway
from kway.auto.refit import SampleToAll
from kway.planning.costs import Size

SMALL, LARGE = Size(20_000, 50, 10), Size(2_000_000, 50, 10)


def test_nothing_changes_where_all_rows_were_compared_on():
    rows = SampleToAll(LARGE)
    assert rows.times(True) == rows.times(False) == 1.0
    assert rows.estimator(kway.NeighborsClassifier()).index == "auto"
    assert rows.estimator(kway.SoftmaxClassifier(alpha=0.5)).alpha == 0.5
    assert rows.notes(kway.NeighborsClassifier()) == ()


def test_neighbours_among_very_many_rows_go_by_landmarks():
    rows = SampleToAll(LARGE, SMALL)
    assert rows.times(False) == 100
    assert rows.estimator(kway.NeighborsClassifier(metric="cosine")).index == "landmarks"
    assert rows.estimator(kway.NeighborsClassifier(index="flat")).index == "flat"  # asked for
    assert "landmarks" in rows.notes(kway.NeighborsClassifier())[0]
    mapped = rows.estimator(kway.MappedClassifier(kway.NeighborsClassifier()))
    assert mapped.estimator.index == "landmarks"


@pytest.mark.parametrize("size", [Size(100_000, 50, 10), Size(2_000_000, 4, 10), Size(2_000_000, 50, 10, density=0.1)])
def test_few_rows_a_tree_and_sparse_rows_stay_as_they_are(size):
    rows = SampleToAll(size, SMALL)
    assert rows.estimator(kway.NeighborsClassifier()).index == "auto"
    assert rows.notes(kway.NeighborsClassifier()) == ()


def test_a_class_has_a_smaller_part_in_the_mean_of_more():
    rows = SampleToAll(Size(80_000, 50, 10_000), Size(20_000, 50, 2500))
    assert rows.times(True) == 16
    assert rows.estimator(kway.SoftmaxClassifier(alpha=0.4)).alpha == pytest.approx(0.1)
    assert "2,500 / 10,000" in rows.notes(kway.SoftmaxClassifier())[0]
    assert rows.estimator(kway.SoftmaxClassifier(tol=1e-3)).tol == pytest.approx(1e-2)  # a fit of minutes
    assert "tol=0.01" in rows.notes(kway.SoftmaxClassifier(tol=1e-3))[1]
    assert SampleToAll(Size(80_000, 50, 10), SMALL).estimator(kway.SoftmaxClassifier(tol=1e-3)).tol == 1e-3
    assert rows.notes(kway.CentroidClassifier()) == ()


def test_that_alpha_is_as_good_on_all_classes():
    data = kway.datasets.many_classes(400, 32, 5, 2000, 0.5, seed=0)
    part = data.y_train < 100
    few = kway.SoftmaxClassifier(alpha=0.002).fit(data.x_train[part], data.y_train[part])
    rows = SampleToAll(Size(len(data.y_train), 32, 400), Size(int(part.sum()), 32, 100))
    every = rows.estimator(kway.SoftmaxClassifier(alpha=0.002)).fit(data.x_train, data.y_train)
    lengths = [float(np.linalg.norm(model.coef_[:100], axis=1).mean()) for model in (few, every)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.2)  # weights as long: neither more nor less is believed
