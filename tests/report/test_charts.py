import matplotlib.colors
import numpy as np
import pytest

from kway.auto.drift import ColumnDrift, Drift
from kway.auto.evaluation import wilson
from kway.errors import InputError
from kway.report import charts, style
from kway.report.drift import draw_drift

SCORES = np.array([[0.7, 0.8, 0.9], [0.8, 0.85, 0.87], [0.6, 0.65, 0.7]])


def lines(axes):
    """Label -> (x, y) of the lines that have one."""
    return {line.get_label(): line.get_xydata().T for line in axes.lines}


def bars_of(container):
    """(lower, upper) ends of error bars."""
    segments = np.array(container.lines[2][0].get_segments())
    return segments[:, 0], segments[:, 1]


def test_a_dot_a_fold_the_means_and_one_standard_deviation():
    axes = charts.cross_validation([1, 5, 9], SCORES, chosen=5).axes[0]
    x, y = lines(axes)["one fold"]
    np.testing.assert_array_equal(x, np.repeat([1, 5, 9], 3))
    np.testing.assert_array_equal(y, SCORES.ravel())
    container = axes.containers[0]
    np.testing.assert_allclose(container.lines[0].get_ydata(), SCORES.mean(axis=1))
    lower, upper = bars_of(container)
    np.testing.assert_allclose(upper[:, 1] - lower[:, 1], 2 * SCORES.std(axis=1))


def test_the_chosen_value_is_marked_at_its_mean():
    axes = charts.cross_validation([1, 5, 9], SCORES, chosen=5).axes[0]
    label = f"chosen: k = 5 ({SCORES[1].mean():.4g})"
    np.testing.assert_allclose(lines(axes)[label].ravel(), [5, SCORES[1].mean()])
    assert label in [t.get_text() for t in axes.get_legend().get_texts()]


def test_values_in_any_order_make_the_same_picture():
    order = [2, 0, 1]
    a = charts.cross_validation([1, 5, 9], SCORES).axes[0]
    b = charts.cross_validation(np.array([1, 5, 9])[order], SCORES[order]).axes[0]
    np.testing.assert_array_equal(lines(a)["one fold"], lines(b)["one fold"])


def test_alpha_is_on_a_logarithmic_axis():
    axes = charts.cross_validation([1e-4, 1e-2, 1], SCORES, name="alpha", log=True).axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "alpha"


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 3, 1)])
def test_scores_need_a_row_a_value(shape):
    with pytest.raises(InputError, match="one row per value"):
        charts.cross_validation([1, 5, 9], np.ones(shape))


def test_history_draws_the_values_and_counts_from_the_first():
    axes = charts.history({"training": [4.0, 2.0, 1.0], "validation": [5.0, 3.0]}, first=1).axes[0]
    np.testing.assert_array_equal(lines(axes)["training"], [[1, 2, 3], [4, 2, 1]])
    np.testing.assert_array_equal(lines(axes)["validation"], [[1, 2], [5, 3]])
    assert axes.get_yscale() == "linear"


@pytest.mark.parametrize(("values", "scale"), [([1.0, 0.5], "linear"), ([1.0, 1e-3], "log"), ([1.0, 0.0], "linear")])
def test_history_is_logarithmic_where_it_spans_decades(values, scale):
    assert charts.history({"a": values}).axes[0].get_yscale() == scale


def test_an_empty_history_says_so():
    axes = charts.history({"training": []}).axes[0]
    assert not axes.lines
    assert "no history" in axes.texts[0].get_text()


def test_leaderboard_keeps_the_order_given_and_its_bars_end_at_the_means():
    axes = charts.leaderboard(["chosen", "b", "one fold"], [0.8, 0.5, 0.9], [0.02, 0.03, 0]).axes[0]
    bars = axes.containers[0].patches
    np.testing.assert_allclose([bar.get_x() + bar.get_width() for bar in bars], [0.8, 0.5, 0.9])
    assert [t.get_text() for t in axes.get_yticklabels()] == ["chosen", "b", "one fold"]
    assert axes.yaxis_inverted()  # the first on top
    assert [matplotlib.colors.to_hex(bar.get_facecolor()) == style.ACCENT.lower() for bar in bars] == [
        True,
        False,
        False,
    ]
    lower, upper = bars_of(axes.containers[1])
    np.testing.assert_allclose(upper[:, 0] - lower[:, 0], [0.04, 0.06])
    assert [t.get_text() for t in axes.texts] == ["0.800 ± 0.020", "0.500 ± 0.030", "0.900"]


def test_an_axis_that_does_not_start_at_zero_says_so():
    whole, cut = (
        charts.leaderboard(["a", "b"], [0.1, 0.9]).axes[0],
        charts.leaderboard(["a", "b"], [0.90, 0.95]).axes[0],
    )
    assert whole.get_xlim()[0] == 0
    assert "starts" not in whole.get_xlabel()
    assert 0 < cut.get_xlim()[0] < 0.9
    assert f"the axis starts at {cut.get_xlim()[0]:g}" in cut.get_xlabel()


@pytest.mark.parametrize(
    ("baseline", "words", "lines"), [(0.3, "dashed: most frequent class, 0.3", 1), (-1, "most frequent class, -1", 0)]
)
def test_always_guessing_is_named_and_drawn_where_it_is_on_the_axis(baseline, words, lines):
    axes = charts.leaderboard(["a", "b"], [0.2, 0.9], baseline=baseline).axes[0]
    assert words in axes.get_xlabel()
    assert len([line for line in axes.lines if line.get_linestyle() == "--"]) == lines


@pytest.mark.filterwarnings("error")
def test_models_that_are_never_right_are_drawn_too():
    axes = charts.leaderboard(["a", "b"], [0.0, 0.0], [0.0, 0.0]).axes[0]
    assert axes.get_xlim()[0] <= 0
    assert [t.get_text() for t in axes.texts] == ["0.000", "0.000"]


def test_only_the_first_of_many_models_are_drawn():
    axes = charts.leaderboard([str(i) for i in range(50)], np.linspace(1, 0, 50), max_models=7).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["0", "1", "2", "3", "4", "5", "6"]


def test_reliability_draws_the_bins_and_their_ece():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 1, 3000)
    right = rng.random(3000) < p**2  # overconfident
    figure = charts.reliability(p, right, bins=10)
    place = np.minimum(np.ceil(p * 10).astype(int) - 1, 9)
    groups = [place == b for b in range(10)]
    accuracy = [right[g].mean() for g in groups if g.any()]
    ece = sum(abs(right[g].mean() - p[g].mean()) * g.mean() for g in groups if g.any())
    upper, lower = figure.axes
    dots = next(drawn for drawn in upper.collections if drawn.get_label().startswith("bins"))
    np.testing.assert_allclose(dots.get_offsets()[:, 1], accuracy)
    rows = np.array([g.sum() for g in groups if g.any()])
    areas = dots.get_sizes() - dots.get_sizes().min()
    np.testing.assert_allclose(areas / areas.max(), (rows - rows.min()) / (rows - rows.min()).max())
    assert upper.texts[0].get_text() == f"ECE = {ece:.3f}"
    assert [bar.get_height() for bar in lower.patches] == [g.sum() for g in groups]


def test_reliability_needs_a_value_a_row():
    with pytest.raises(InputError, match="one value per row"):
        charts.reliability([0.5, 0.6], [1])


def test_wilson_covers_as_promised():
    rng = np.random.default_rng(0)
    right = rng.binomial(40, 0.9, 20_000)
    low, high = wilson(right, np.full(20_000, 40))
    assert 0.93 < ((low <= 0.9) & (high >= 0.9)).mean() < 0.98


def test_a_dollar_in_the_name_of_a_column_is_escaped_once():
    column = ColumnDrift("US$", ["low", "high $"], [0.5, 0.5], [0.4, 0.6], 0.1, 1.0)
    axes = draw_drift(Drift([column], 10)).axes[0]
    assert axes.get_title(loc="left") == r"US\$ (no drift)"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["low", r"high \$"]
