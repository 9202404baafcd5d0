"""Regions: the painted colors are the predictions of the classifier."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.decomposition import PCA

import kway
from kway import datasets
from kway.errors import InputError
from kway.report import model_views, style


def test_the_slice_is_that_of_principal_components():
    data = datasets.load("wine")
    X = data.x_train / data.x_train.std(axis=0)
    model = kway.CentroidClassifier().fit(X, data.y_train)
    cut, pca = model_views.principal_slice(model, X), PCA(2).fit(X)
    axes = cut.plane.components_
    np.testing.assert_allclose(np.abs(axes @ pca.components_.T), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(cut.plane.explained_variance_ratio_, pca.explained_variance_ratio_)
    z = (X - X.mean(axis=0))[:20] @ axes.T
    np.testing.assert_array_equal(cut.predict(z), model.predict(X.mean(axis=0) + z @ axes))


def test_projected_regions_paint_the_answers_on_the_plane(monkeypatch):
    monkeypatch.setattr(model_views, "BLOCK_BYTES", 800)  # many blocks
    data = datasets.load("iris")
    model = kway.NeighborsClassifier(3).fit(data.x_train, data.y_train)
    axes = model_views.projected_regions(model, data.x_train, data.y_train, resolution=25, max_rows=40).axes[0]
    painted = np.asarray(axes.images[0].get_array()).astype(int)
    cut = model_views.principal_slice(model, data.x_train)
    left, right, bottom, top = axes.images[0].get_extent()
    grid = np.stack(np.meshgrid(np.linspace(left, right, 25), np.linspace(bottom, top, 25)), axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(painted.ravel(), cut.predict(grid))
    assert sum(len(c.get_offsets()) for c in axes.collections if len(c.get_offsets()) > 1) == 40


def test_one_column_cannot_be_projected():
    with pytest.raises(InputError, match="at least 2 columns"):
        model_views.principal_slice(None, np.ones((4, 1)))


def test_rows_of_labels_that_the_model_does_not_know_are_gray():
    data = datasets.load("iris")
    known = np.flatnonzero(data.y_train != data.y_train[0])
    model = kway.NeighborsClassifier(3).fit(data.x_train[known], data.y_train[known])
    figure = model_views.projected_regions(model, data.x_train, data.y_train, resolution=25)
    rows = figure.axes[0].collections[-1]
    assert len(rows.get_offsets()) == len(data.y_train) - len(known)
    assert to_hex(rows.get_facecolor()[0]) == style.MUTED
    assert any("does not know are gray" in text.get_text() for text in figure.texts)
