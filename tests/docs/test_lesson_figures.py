"""The figures of the lessons show what their titles state."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.special import softmax as scipy_softmax
from tools.pictures import lessons, planes
from tools.pictures.costs import cost, exponent
from tools.pictures.lessons import alterations, as_color, same_distance
from tools.pictures.maps import landmark_cells
from tools.pictures.planes import neighbor_regions

import kway
from kway import datasets
from kway.errors import InputError
from kway.report import projected_regions

RNG = np.random.default_rng(0)
DIGIT = np.zeros((28, 28))
DIGIT[6:22, 10:14] = 1
DIGIT[6:10, 10:20] = 0.7


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
        assert axes.get_title() == f"{name}: {model.score(*four):.1%} correct"
        expected = planes.boundary_segments(planes.class_rows(model), (*axes.get_xlim(), *axes.get_ylim()))
        assert len(axes.lines) == len(expected)


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    return rng.normal(size=(60, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[y], np.array(["a", "b", "c"])[y]


def test_every_k_and_metric_has_a_panel(clouds):
    figure = neighbor_regions(*clouds, resolution=30)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["k = 1, L2", "k = 3, L2", "k = 15, L2", "k = 1, L1", "k = 3, L1", "k = 15, L1"]
    one, many = (np.asarray(figure.axes[i].images[0].get_array()) for i in (0, 2))
    assert (one != many).any()


def test_pictures_are_drawn_without_a_display(clouds, tmp_path):
    projected_regions(kway.CentroidClassifier().fit(*clouds), *clouds, resolution=30).savefig(tmp_path / "regions.png")
    landmark_cells(datasets.load("post-offices").x_train[::20], n_landmarks=12, query=(40.7, -74.0), probes=2).savefig(
        tmp_path / "cells.png"
    )
    assert (tmp_path / "regions.png").stat().st_size > 5_000
    assert (tmp_path / "cells.png").stat().st_size > 5_000


def test_the_title_of_the_map_has_the_number_of_searched_places():
    figure = landmark_cells(datasets.load("post-offices").x_train[::20], n_landmarks=12, query=(40.7, -74.0), probes=12)
    titles = [text.get_text() for text in figure.texts]
    assert titles == ["1,500 places in the cells of 12 landmarks", "the query probes 12 cells with 1,500 places"]


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


@pytest.mark.parametrize("image", [DIGIT, 1 - DIGIT, RNG.random((16, 20, 3)), (DIGIT * 255).astype(np.uint8)])
@pytest.mark.parametrize("pixels", [1, 2])
def test_three_alterations_at_exactly_the_same_distance(image, pixels):
    x = as_color(image)
    made = alterations(image, pixels)
    assert [one.name for one in made] == ["boxed", "shifted", "tinted"]
    distances = [np.linalg.norm(one.image - x) for one in made]
    assert distances[0] > 0
    np.testing.assert_allclose(distances, distances[0], rtol=1e-12)
    assert all(one.image.min() >= -1e-12 and one.image.max() <= 1 + 1e-12 for one in made)


def test_the_distances_are_shown():
    figure = same_distance(DIGIT, 1, other=DIGIT * 0.9, other_name="a seven")
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels[0] == "distance 0.000"
    assert labels[1] == labels[2] == labels[3] != labels[4]
    assert figure.axes[4].get_title() == "a seven"
    assert any("nearer" in t.get_text() for t in figure.texts)


def test_images_that_cannot_be_altered_are_refused():
    with pytest.raises(InputError, match="does not change"):
        alterations(np.zeros((5, 5)))
    with pytest.raises(InputError, match=r"\(h, w\) or \(h, w, 3\)"):
        as_color(np.zeros((5, 5, 2)))


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_cost_is_annotated_with_its_exponent(power):
    n = np.array([1e3, 1e4, 1e5])
    figure = cost(n, {"seconds": {"kway": 3e-6 * n**power}, "MB": {"kway": n}})
    assert len(figure.axes) == 2
    assert f"kway:  n^{power:.2f}" in curves(figure.axes[0])
    assert all(axes.get_xscale() == axes.get_yscale() == "log" for axes in figure.axes)


def test_exponent_ignores_what_was_not_measured():
    assert exponent([1, 10, 100], [2, np.nan, 200]) == pytest.approx(1)
    assert exponent([1, 10], [2, np.nan]) is None
    assert exponent([5, 5], [2, 3]) is None
