import numpy as np
import pytest
from sklearn.decomposition import PCA

import kway
from kway import datasets
from kway.errors import InputError
from kway.report import planes, slices

BOX = (-4.0, 4.0, -3.0, 3.0)


@pytest.fixture(scope="module")
def four():
    data = datasets.overlapping(200, 4, spread=0.4)
    return data.x_train.astype(float), data.y_train


MODELS = {
    "softmax": kway.SoftmaxClassifier(alpha=1e-2),
    "one-vs-all": kway.LogisticClassifier(alpha=1e-2),
    "one-hot": kway.LeastSquaresClassifier(),
    "number": kway.LeastSquaresClassifier("number"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [2, 4])
def test_the_answer_changes_across_every_segment(name, classes, four):
    X, y = four[0][four[1] < classes], four[1][four[1] < classes]
    model = MODELS[name].fit(X, y)
    segments = planes.boundary_segments(planes.class_rows(model), BOX)
    assert segments
    for first, second, ends in segments:
        along = ends[1] - ends[0]
        across = np.array([-along[1], along[0]]) / np.linalg.norm(along) * 1e-4
        middle = ends[0] + 0.5 * along
        sides = {int(v) for v in model.predict(np.array([middle + across, middle - across]))}
        assert sides == {first, second}
        assert (ends >= np.array([BOX[0], BOX[2]]) - 1e-9).all()
        assert (ends <= np.array([BOX[1], BOX[3]]) + 1e-9).all()


def test_class_rows_answer_as_the_model(four):
    for model in MODELS.values():
        rows = planes.class_rows(model.fit(*four))
        best = (four[0] @ rows.weights.T + rows.biases).argmax(axis=1)
        np.testing.assert_array_equal(model.classes_[best], model.predict(four[0]))


def test_a_class_never_on_top_has_no_segment():
    rows = planes.Planes(np.array([[1.0, 0], [-1, 0], [0, 0]]), np.array([0.0, 0, -1]))
    assert [(s.first, s.second) for s in planes.boundary_segments(rows, BOX)] == [(0, 1)]
    assert planes.boundary_segments(planes.Planes(np.zeros((2, 2)), np.zeros(2)), BOX) == []


def test_outliers_move_least_squares_and_not_logistic():
    scenes = []
    for n in (0, 20):
        data = datasets.outliers(100, n)
        models = {"squares": kway.LeastSquaresClassifier(alpha=0), "logistic": kway.LogisticClassifier(alpha=1e-3)}
        models = {name: m.fit(data.x_train, data.y_train) for name, m in models.items()}
        scenes.append(planes.Scene(f"{n}", data.x_train, data.y_train, models))
    clean, pulled = planes.decision_lines(scenes).axes
    assert clean.get_xlim() == pulled.get_xlim()

    def angle(axes, name):
        (line,) = (line for line in axes.lines if line.get_label() == name)
        along = np.diff(line.get_xydata(), axis=0)[0]
        return np.degrees(np.arctan2(along[1], along[0])) % 180

    assert abs(angle(clean, "squares") - angle(pulled, "squares")) > 30
    assert abs(angle(clean, "logistic") - angle(pulled, "logistic")) < 10
    assert sum(len(c.get_offsets()) for c in pulled.collections) == 120


def test_a_panel_a_model_with_its_lines_and_score(four):
    models = {name: model.fit(*four) for name, model in MODELS.items()}
    figure = planes.linear_boundaries(models, *four)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 4
    for axes, (name, model) in zip(shown, models.items()):
        assert axes.get_title() == f"{name}: {model.score(*four):.1%} right"
        expected = planes.boundary_segments(planes.class_rows(model), (*axes.get_xlim(), *axes.get_ylim()))
        assert len(axes.lines) == len(expected)


def test_the_slice_is_that_of_principal_components():
    data = datasets.load("wine")
    X = data.x_train / data.x_train.std(axis=0)
    model = kway.CentroidClassifier().fit(X, data.y_train)
    cut, pca = slices.principal_slice(model, X), PCA(2).fit(X)
    np.testing.assert_allclose(np.abs(cut.axes @ pca.components_.T), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(cut.share, pca.explained_variance_ratio_)
    z = cut.project(X)[:20]
    np.testing.assert_array_equal(cut.predict(z), model.predict(cut.mean + z @ cut.axes))


def test_projected_regions_paint_the_answers_on_the_plane(monkeypatch):
    monkeypatch.setattr(slices, "_GRID_NUMBERS", 100)  # many blocks
    data = datasets.load("iris")
    model = kway.NeighborsClassifier(3).fit(data.x_train, data.y_train)
    axes = planes.projected_regions(model, data.x_train, data.y_train, resolution=25, most=40).axes[0]
    painted = np.asarray(axes.images[0].get_array()).astype(int)
    cut = slices.principal_slice(model, data.x_train)
    left, right, bottom, top = axes.images[0].get_extent()
    grid = np.stack(np.meshgrid(np.linspace(left, right, 25), np.linspace(bottom, top, 25)), axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(painted.ravel(), cut.predict(grid))
    assert sum(len(c.get_offsets()) for c in axes.collections if len(c.get_offsets()) > 1) == 40


def test_one_column_cannot_be_projected():
    with pytest.raises(InputError, match="at least 2 columns"):
        slices.principal_slice(None, np.ones((4, 1)))
