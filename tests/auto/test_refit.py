"""Neighbors among very many rows get an approximate index for the fit on all rows."""

import pytest

import kway
from kway.auto.refit import adapted
from kway.planning.costs import Size

LARGE = Size(2_000_000, 50, 10)


def test_neighbors_among_very_many_rows_use_landmarks():
    model, note = adapted(kway.NeighborsClassifier(metric="cosine"), LARGE)
    assert model.index == "landmarks"
    assert "landmarks" in note
    assert adapted(kway.NeighborsClassifier(index="flat"), LARGE)[0].index == "flat"  # asked for
    assert adapted(kway.MappedClassifier(kway.NeighborsClassifier()), LARGE)[0].estimator.index == "landmarks"


@pytest.mark.parametrize("size", [Size(100_000, 50, 10), Size(2_000_000, 4, 10), Size(2_000_000, 50, 10, density=0.1)])
def test_few_rows_a_tree_and_sparse_rows_stay_as_they_are(size):
    model, note = adapted(kway.NeighborsClassifier(), size)
    assert (model.index, note) == ("auto", "")
    assert adapted(kway.SoftmaxClassifier(alpha=0.5), size)[0].alpha == 0.5
