import numpy as np
import pytest

from kway.errors import InputError
from kway.report.mistakes import Mistake, worst_mistakes
from kway.report.model_views import weight_templates
from kway.report.style import ACCENT, CONTRAST, FAINT

RNG = np.random.default_rng(0)


def panels(figure):
    return [axes for axes in figure.axes if axes.images and axes.get_visible()]


def test_templates_are_the_rows_on_one_scale():
    coef = RNG.normal(size=(10, 48)) * np.arange(1, 11)[:, None]
    shown = panels(weight_templates(coef, (8, 6)))
    np.testing.assert_array_equal([axes.images[0].get_array() for axes in shown], coef.reshape(10, 8, 6))
    limits = {axes.images[0].get_clim() for axes in shown}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high == -np.quantile(np.abs(coef), 0.995)


def test_two_classes_have_one_template():
    (axes,) = panels(weight_templates(np.ones((1, 4)), (2, 2), ["cat", "dog"]))
    assert axes.get_title() == "dog against cat"


def test_colour_templates_are_grey_where_weights_are_zero():
    coef = np.zeros((3, 12))
    coef[0, 0] = 1
    first, second, _ = (axes.images[0].get_array() for axes in panels(weight_templates(coef, (2, 2, 3))))
    assert first[0, 0].tolist() == [1, 0.5, 0.5]
    assert (second == 0.5).all()


def test_many_templates_are_cut_and_it_is_said():
    figure = weight_templates(RNG.normal(size=(150, 16)), (4, 4))
    assert len(panels(figure)) == 40
    assert any("the first 40 of 150" in t.get_text() for t in figure.texts)


def test_templates_of_another_size_are_refused():
    with pytest.raises(InputError, match="12 features, an image of shape"):
        weight_templates(np.ones((3, 12)), (4, 4))
    with pytest.raises(InputError, match="2 labels were given for 3 rows"):
        weight_templates(np.ones((3, 12)), (4, 3), ["a", "b"])


def mistake(neighbors, query, labels=(7, 1, 4)):
    return Mistake(query, true=1, predicted=7, neighbors=neighbors, neighbor_labels=labels, distances=[0.5, 1, 2])


def test_a_mistake_is_the_query_and_its_neighbors_framed_by_side():
    query, near = RNG.random(16), RNG.random((3, 16))
    shown = panels(worst_mistakes([mistake(near, query)], (4, 4)))
    np.testing.assert_array_equal([axes.images[0].get_array().ravel() for axes in shown], [query, *near])
    from matplotlib.colors import to_hex

    assert [to_hex(axes.spines["left"].get_edgecolor()) for axes in shown[1:]] == [CONTRAST, ACCENT, FAINT]
    assert [axes.get_title() for axes in shown[1:]] == ["7 (0.5)", "1 (1)", "4 (2)"]


def test_fewer_neighbors_in_one_line_leave_their_places_empty():
    lines = [mistake(RNG.random((3, 16)), RNG.random(16)), mistake(RNG.random((1, 16)), RNG.random(16), labels=(7,))]
    assert len(panels(worst_mistakes(lines, (4, 4)))) == 4 + 2
