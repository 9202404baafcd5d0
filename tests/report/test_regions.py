"""Pictures of regions: figures that hold what they say, and colours that are the classifier's answers."""

import numpy as np
import pytest

from kway.datasets import load
from kway.errors import InputError
from kway.neighbors import CentroidClassifier, NeighborsClassifier
from kway.report.regions import decision_regions, landmark_cells, neighbor_regions
from kway.report.slices import grid_over


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    return rng.normal(size=(60, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[y], np.array(["a", "b", "c"])[y]


def test_the_painted_answers_are_the_models(clouds):
    X, y = clouds
    model = NeighborsClassifier(3).fit(X, y)
    figure = decision_regions(model, X, y, "three", resolution=40)
    painted = np.asarray(figure.axes[0].images[0].get_array())
    grid = grid_over(X, 40)
    np.testing.assert_array_equal(model.classes_[painted.astype(int).ravel()], model.predict(grid.points))
    assert [text.get_text() for text in figure.texts] == ["three"]


def test_every_k_and_metric_has_a_panel(clouds):
    figure = neighbor_regions(*clouds, resolution=30)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["k = 1, L2", "k = 3, L2", "k = 15, L2", "k = 1, L1", "k = 3, L1", "k = 15, L1"]
    one, many = (np.asarray(figure.axes[i].images[0].get_array()) for i in (0, 2))
    assert (one != many).any()


def test_pictures_are_drawn_without_a_display(clouds, tmp_path):
    decision_regions(CentroidClassifier().fit(*clouds), *clouds, resolution=30).savefig(tmp_path / "regions.png")
    landmark_cells(load("post-offices").x_train[::20], n_landmarks=12, query=(40.7, -74.0), probes=2).savefig(
        tmp_path / "cells.png"
    )
    assert (tmp_path / "regions.png").stat().st_size > 5_000
    assert (tmp_path / "cells.png").stat().st_size > 5_000


def test_the_map_says_how_many_places_a_query_looks_at():
    figure = landmark_cells(load("post-offices").x_train[::20], n_landmarks=12, query=(40.7, -74.0), probes=12)
    said = [text.get_text() for text in figure.texts]
    assert said == ["1,500 places in the cells of 12 landmarks", "the query looks into 12 cells: 1,500 places"]


def test_other_than_two_columns_are_refused():
    with pytest.raises(InputError, match="2 columns"):
        decision_regions(None, np.zeros((5, 3)), np.zeros(5))
