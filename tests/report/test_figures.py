"""Every figure, drawn from real data: the text is on the page, apart and large enough; nothing global is touched."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from tools.pictures import costs, lessons, planes

import kway
from kway import datasets, report

LONG = [f"a_rather_long_class_name_{i}" for i in range(150)]


@pytest.fixture(scope="module")
def iris():
    return datasets.load("iris")


def blocks(k, seed=0):
    """A confusion matrix in which classes i and i + k / 2 are taken for each other."""
    rng = np.random.default_rng(seed)
    counts = np.diag(rng.integers(20, 30, k))
    half = k // 2
    for i in range(half):
        counts[i, i + half], counts[i + half, i] = rng.integers(0, 9, 2)
    return counts


def mistakes(n):
    rng = np.random.default_rng(0)
    rows, near = rng.random((n, 64)), rng.random((4, 64))
    return [
        report.Mistake(row, "seven", "one", near, ["one", "seven", "two", "one"], [1, 2, 3, 4], 0.97) for row in rows
    ]


def scene(n_outliers):
    data = datasets.outliers(100, n_outliers)
    X, y = data.x_train, data.y_train
    models = {"least squares": kway.LeastSquaresClassifier(), "logistic": kway.LogisticClassifier(alpha=1e-3)}
    return planes.Scene(f"{n_outliers} outliers", X, y, {name: m.fit(X, y) for name, m in models.items()})


def linear_models(X, y):
    models = {"softmax": kway.SoftmaxClassifier(), "number": kway.LeastSquaresClassifier("number")}
    return {name: model.fit(X, y) for name, model in models.items()}


def plane():
    data = datasets.overlapping(90, 3, spread=0.5)
    return data.x_train, data.y_train


def regions(draw, **options):
    X, y = plane()
    return draw(kway.NeighborsClassifier(3).fit(X, y), X, y, resolution=40, **options)


DIGIT = np.outer(np.hanning(12), np.hanning(10))

CASES = {
    "cross_validation": lambda: report.cross_validation([1, 3, 5, 9], np.linspace(0.8, 0.9, 20).reshape(4, 5), 5),
    "cross_validation, alpha": lambda: report.cross_validation(
        np.logspace(-7, 2, 10), np.full((10, 3), 0.5), 1e-4, "alpha", log=True
    ),
    "cross_validation, one fold": lambda: report.cross_validation([1, 2], [[0.5], [0.6]], 2),
    "cross_validation, one value": lambda: report.cross_validation([7], [[0.5, 0.6]], 7),
    "tradeoff": lambda: report.tradeoff([1, 2, 9], [0.8, 0.9, 1.0], (2, 0.9), "labels in a set", "covered", 0.9),
    "history": lambda: report.history({"training": np.geomspace(9, 0.01, 80), "validation": [3, 2, 1]}),
    "history, empty": lambda: report.history({"training": []}),
    "cost": lambda: costs.cost(
        [1e3, 1e4, 1e6], {"seconds": {"kway": [1, 9, 800], "other": [2, np.nan, 5000]}, "MB": {"kway": [5, 6, 20]}}
    ),
    "cost, one point": lambda: costs.cost([1e3], {"seconds": {"kway": [2.0]}}),
    "leaderboard": lambda: report.leaderboard(LONG[:8], np.linspace(0.9, 0.95, 8), np.full(8, 0.01), baseline=0.1),
    "leaderboard, one": lambda: report.leaderboard(["only"], [1.0]),
    "leaderboard, none": lambda: report.leaderboard([], []),
    "reliability": lambda: report.reliability(np.linspace(0.1, 1, 400), np.arange(400) % 3 > 0),
    "reliability, one row": lambda: report.reliability([1.0], [True]),
    "confusion_matrix": lambda: report.confusion_matrix(blocks(10)),
    "confusion_matrix, 2": lambda: report.confusion_matrix([[9000, 1], [2, 8]], LONG[:2]),
    "confusion_matrix, 20": lambda: report.confusion_matrix(blocks(20) * 40, LONG[:20]),
    "confusion_matrix, 40": lambda: report.confusion_matrix(blocks(40), LONG[:40]),
    "confusion_matrix, 150": lambda: report.confusion_matrix(blocks(150), LONG),
    "confusion_matrix, perfect": lambda: report.confusion_matrix(np.eye(60, dtype=int) * 5),
    "weight_templates": lambda: report.weight_templates(np.random.default_rng(0).normal(size=(10, 64)), (8, 8)),
    "where_it_looks": lambda: report.where_it_looks(np.linspace(-0.02, 0.4, 25).reshape(5, 5), np.ones((28, 28))),
    "where_it_looks, wide": lambda: report.where_it_looks(np.full((5, 5), np.nan), np.zeros((16, 128))),
    "weight_templates, 2": lambda: report.weight_templates(np.ones((1, 48)), (8, 6), ["cat", "dog"]),
    "weight_templates, colour": lambda: report.weight_templates(np.eye(3, 48), (4, 4, 3), LONG[:3]),
    "weight_templates, 150": lambda: report.weight_templates(np.eye(150, 64), (8, 8), LONG),
    "worst_mistakes": lambda: report.worst_mistakes(mistakes(3), (8, 8)),
    "worst_mistakes, images with long names": lambda: report.worst_mistakes(
        [
            m._replace(neighbor_labels=LONG[: len(m.neighbor_labels)], distances=[149.25] * len(m.neighbor_labels))
            for m in mistakes(3)
        ],
        (8, 8),
    ),
    "losses_by_margin": lessons.losses_by_margin,
    "temperature": lambda: lessons.temperature([2, 1, 0.1, -1, 0.5], labels=["cat", "dog", "ship", "car", "bird"]),
    "temperature, 30": lambda: lessons.temperature(np.arange(30) / 3),
    "label_smoothing": lambda: lessons.label_smoothing([0, 0.1, 0.3], np.full((3, 10), 0.1), 3),
    "label_smoothing, 2": lambda: lessons.label_smoothing([0.1], [[0.2, 0.8]], 1, ["no", "yes"]),
    "softmax_and_sigmoid": lambda: lessons.softmax_and_sigmoid([2, 1, 0.1, -1]),
    "same_distance": lambda: lessons.same_distance(DIGIT, 2, DIGIT.T[:10, :10].repeat(2, 0)[:12], "another"),
    "decision_lines": lambda: planes.decision_lines([scene(0), scene(10)], "Outliers"),
    "linear_boundaries": lambda: planes.linear_boundaries(linear_models(*plane()), *plane(), "Lines"),
    "projected_regions": lambda: regions(report.projected_regions),
    "neighbor_regions": lambda: planes.neighbor_regions(*plane(), ks=(1,), resolution=30),
}


@pytest.mark.parametrize("name", CASES)
def test_text_is_on_the_page_apart_and_readable(name, looks):
    figure = CASES[name]()
    assert isinstance(figure, Figure)
    seen = looks(figure)
    assert seen.clipped() == []
    assert seen.collisions() == []
    assert seen.smallest >= 6.5
    assert figure.get_figwidth() <= 6.4 + 1e-9 or "regions" in name


def test_the_battery_sees_what_is_cut_off_and_what_collides(looks):
    figure = report.history({})
    figure.text(0.95, 0.5, "a word too long for the place that it has")
    figure.text(0.3, 0.5, "under")
    figure.text(0.3, 0.5, "over", fontsize=5)
    seen = looks(figure)
    assert seen.clipped() == ["a word too long for the place that it has"]
    assert ("under", "over") in seen.collisions()
    assert seen.smallest == 5


def test_every_figure_is_in_the_battery():
    others = {"save", "to_svg", "Mistake"}
    assert {name.split(",")[0] for name in CASES} >= set(report.__all__) - others


ALONE = """
import sys, kway
assert not any(m.startswith("matplotlib") for m in sys.modules), "import kway must not load matplotlib"
import matplotlib
settings = lambda: {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != "backend"}  # asking it loads pyplot
before = settings()
from kway import report
report.to_svg(report.cross_validation([1, 2], [[0.5, 0.6], [0.7, 0.8]]))
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
"""


def test_neither_pyplot_nor_settings_are_touched():
    subprocess.run([sys.executable, "-W", "error", "-c", ALONE], check=True, timeout=300)


def test_figures_of_real_data(iris, looks):
    names = np.asarray(iris.label_names)
    model = kway.SoftmaxClassifier().fit(iris.x_train, names[iris.y_train])
    figure = report.projected_regions(model, iris.x_train, names[iris.y_train], resolution=50)
    assert looks(figure).clipped() == []
    assert [t.get_text() for t in figure.legends[0].get_texts()] == list(names)
    assert figure.axes[0].get_xlabel() == "first principal component, 93% of the variance"


def test_the_shape_of_a_column_is_the_mean_over_rows_with_its_value_replaced():
    import pyarrow as pa

    import kway
    from kway.report.shapes import column_shapes, draw_shapes

    rng = np.random.default_rng(0)
    size, word = rng.normal(size=200), rng.choice(["red", "blue"], 200)
    y = (size + (word == "red") > 0.5).astype(int)
    table = pa.table({"size": size, "word": word})
    model = kway.fit(table, y, models="softmax").model
    shapes = column_shapes(model, table, ["size", "word"])
    assert [shape.column for shape in shapes] == ["size", "word"]
    assert (np.diff(shapes[0].p[:, 1]) >= 0).all()
    assert shapes[0].p[-1, 1] > shapes[0].p[0, 1] + 0.5
    red = shapes[1].p[list(shapes[1].values).index("red"), 1]
    expected = model.predict_proba(table.set_column(1, "word", pa.array(["red"] * 200)))[:, 1].mean()
    assert red == pytest.approx(expected)
    assert len(draw_shapes(shapes, np.array(["no", "yes"])).axes) == 2
    matrix = np.column_stack([size, y + rng.normal(size=200)])
    (shape,) = column_shapes(kway.SoftmaxClassifier().fit(matrix, y), matrix, ["x1"])
    assert shape.p[-1, 1] > shape.p[0, 1]
