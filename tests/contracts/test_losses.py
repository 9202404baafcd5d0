"""One battery over every registered loss, in both forms: gradient, convexity, reference values, overflow, facts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp
from scipy.special import softmax as scipy_softmax

from kway.kernels.linear import losses
from kway.kernels.linear.loss_numbers import HINGE, PERCEPTRON
from kway.linear.losses import LOSSES, Targets, centered_kink, sigmoid, softmax

FORMS = [
    pytest.param(form, scores, id=f"{form.name}-{scores}")
    for forms in LOSSES.values()
    for form, scores in ((forms.columns, 1), (forms.columns, 4), (forms.joint, 4))
]


def problem(n_scores, rows=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, n_scores)) * 2, rng.integers(0, max(2, n_scores), rows)


def rounded_gaps(g):
    """A quarter of the square up to 2, and a straight line from there."""
    return np.where(g < 2, np.maximum(0, g) ** 2 / 4, g - 1)


def reference(form, scores, codes):
    """The formulas of the documents, in float64, one line each."""
    rows = np.arange(len(scores))
    R = scores.shape[1]
    if form.joint:
        own = scores[rows, codes]
        others = np.delete(scores, 0, 1) if R == 1 else np.array([np.delete(f, y) for f, y in zip(scores, codes)])
        Y, p = np.eye(R)[codes], scipy_softmax(scores, axis=1)
        return {
            "softmax": lambda: logsumexp(scores, axis=1) - own,
            "joint hinge": lambda: np.maximum(0, 1 + others - own[:, None]).sum(1),
            "joint rounded hinge": lambda: rounded_gaps(1 + others - own[:, None]).sum(1),
            "joint perceptron": lambda: np.maximum(0, others - own[:, None]).sum(1),
            "squared one-hot": lambda: ((Y - scores) ** 2).sum(1),
            "softmax-squared": lambda: ((Y - p) ** 2).sum(1),
            "softmax-absolute": lambda: np.abs(Y - p).sum(1),
        }[form.name]()
    signs = np.where(codes == 1, 1, -1)[:, None] if R == 1 else 2 * np.eye(R)[codes] - 1
    t = signs * scores
    return {
        "logistic": lambda: np.log1p(np.exp(-t)),
        "hinge": lambda: np.maximum(0, 1 - t),
        "rounded hinge": lambda: rounded_gaps(1 - t),
        "perceptron": lambda: np.maximum(0, -t),
        "squared": lambda: (1 - t) ** 2,
        "sigmoid-squared": lambda: 2 * expit(-t) ** 2,
        "sigmoid-absolute": lambda: 2 * expit(-t),
    }[form.name]().sum(1)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_value_is_the_documents_formula(form, n_scores):
    scores, codes = problem(n_scores)
    value, _ = form.value_gradient(scores, Targets(codes))
    np.testing.assert_allclose(value, reference(form, scores, codes), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_gradient_is_the_slope_of_the_value(form, n_scores):
    scores, codes = problem(n_scores, seed=1)
    _, gradient = form.value_gradient(scores, Targets(codes))
    for c in range(n_scores):
        step = np.zeros(n_scores)
        step[c] = 1e-6
        up, _ = form.value_gradient(scores + step, Targets(codes))
        down, _ = form.value_gradient(scores - step, Targets(codes))
        np.testing.assert_allclose(gradient[:, c], (up - down) / 2e-6, atol=2e-8)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_smoothed_form_lies_below_by_at_most_half_its_width_per_gap(form, n_scores):
    if form.smooth or form.margin == 0:
        assert form.smooth or "perceptron" in form.name
        return
    scores, codes = problem(n_scores, seed=2)
    sharp, _ = form.value_gradient(scores, Targets(codes))
    for width in (1.0, 0.1):
        soft, gradient = form.smoothed(width).value_gradient(scores, Targets(codes))
        assert (sharp - soft).min() >= 0
        assert (sharp - soft).max() <= (n_scores - form.joint) * width / 2 + 1e-12
        up, _ = form.smoothed(width).value_gradient(scores + 1e-7, Targets(codes))
        np.testing.assert_allclose((up - soft) / 1e-7, gradient.sum(1), atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1))
@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_convex_losses_lie_below_their_chords(form, n_scores, seed, share):
    a, codes = problem(n_scores, 8, seed)
    b, _ = problem(n_scores, 8, seed + 1)
    at = lambda f: form.value_gradient(f, Targets(codes))[0]  # noqa: E731
    if form.convex:
        assert (at(share * a + (1 - share) * b) <= share * at(a) + (1 - share) * at(b) + 1e-9).all()


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_overflow_at_any_score(form, n_scores, dtype):
    scores = np.full((3, n_scores), 1e15, dtype)
    scores[1] *= -1
    scores[2, 0] = -1e15
    value, gradient = form.value_gradient(scores, Targets(np.array([0, 1, 1])))
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_soft_targets_of_certainty_are_hard_targets(form, n_scores):
    if not form.soft_targets:
        return
    scores, codes = problem(n_scores, seed=3)
    Y = (codes[:, None] == 1).astype(float) if n_scores == 1 else np.eye(n_scores)[codes]
    hard, soft = form.value_gradient(scores, Targets(codes)), form.value_gradient(scores, Targets(codes, Y))
    np.testing.assert_allclose(hard[0], soft[0], rtol=1e-12)
    np.testing.assert_allclose(hard[1], soft[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_gradient_may_be_written_over_the_scores(form, n_scores):
    scores, codes = problem(n_scores, seed=4)
    value, gradient = form.value_gradient(scores.copy(), Targets(codes))
    over = scores.copy()
    again, same = form.value_gradient(over, Targets(codes), over)
    assert same is over
    np.testing.assert_array_equal(value, again)
    np.testing.assert_array_equal(gradient, over)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_curvatures_are_the_diagonal_of_the_hessian_where_convex_and_smooth(form, n_scores):
    if not form.convex or form.margin == 0:
        return
    form = form if form.smooth else form.smoothed(0.5)
    scores, codes = problem(n_scores, seed=5)
    diagonal = form.curvatures(scores, Targets(codes))
    assert diagonal.min() >= 0
    for c in range(n_scores):
        step = np.zeros(n_scores)
        step[c] = 1e-6
        slopes = [form.value_gradient(scores + s * step, Targets(codes))[1][:, c] for s in (1, -1)]
        np.testing.assert_allclose(diagonal[:, c], (slopes[0] - slopes[1]) / 2e-6, atol=1e-6)


def hessians(form, scores, codes):
    """Second derivatives in the scores (m, R, R), by differences of the slopes."""
    sides = [
        form.hessian_product(scores, Targets(codes), np.broadcast_to(e, scores.shape)) for e in np.eye(scores.shape[1])
    ]
    return np.stack(sides, axis=1)


def rounded(form):
    return form if form.smooth else form.smoothed(0.5)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_a_loss_is_shift_free_where_it_says_so_and_only_there(form, n_scores):
    scores, codes = problem(n_scores, seed=6)
    here, there = (form.value_gradient(scores + shift, Targets(codes))[0] for shift in (0.0, 1.7))
    assert np.allclose(here, there, rtol=1e-10) == form.shift_free


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_classes_couple_where_the_loss_says_so_and_only_there(form, n_scores):
    scores, codes = problem(n_scores, seed=7)
    H = hessians(rounded(form), scores, codes)
    apart = np.abs(H * (1 - np.eye(n_scores))).max()
    assert (apart > 1e-3) == form.couples
    assert form.couples or apart < 1e-6


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_curvature_knows_no_label_where_the_loss_says_so(form, n_scores):
    scores, codes = problem(n_scores, seed=8)
    form = rounded(form)
    both = [form.curvatures(scores, Targets(c)) for c in (codes, (codes + 1) % max(2, n_scores))]
    assert np.array_equal(*both) == form.label_free_curvature


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 3.0])
def test_no_loss_bends_more_than_it_says(form, n_scores, scale):
    if not form.smooth or form.max_curvature is None:
        return
    scores, codes = problem(n_scores, 200, seed=9)
    most = np.linalg.eigvalsh(hessians(form, scale * scores, codes)).max()
    assert most <= form.max_curvature + 1e-6
    if form.convex and scale == 0:
        at_two = hessians(form, np.where(np.arange(n_scores) < 2, 0.0, -40.0) * np.ones((2, 1)), np.array([0, 1]))
        assert np.linalg.eigvalsh(at_two).max() == pytest.approx(form.max_curvature, rel=1e-5)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_a_hessian_changes_no_faster_than_the_loss_says(form, n_scores, scale):
    assert (form.hessian_change is not None) == (form.convex and form.smooth and not form.rounded)
    if form.hessian_change is None:
        return
    rng = np.random.default_rng(11)
    scores, codes = problem(n_scores, 200, seed=11)
    step = rng.uniform(0 if form.couples else -1, 1, size=scores.shape)  # differences of two are within 1
    along = rng.normal(size=scores.shape)
    before, after = (
        np.einsum("mi,mij,mj->m", along, hessians(form, scale * scores + turn, codes), along) for turn in (0, step)
    )
    assert np.abs(np.log(after / before)).max() <= form.hessian_change + 1e-4
    far = np.where(np.arange(n_scores) == 0, 12.0, 0.0) * np.ones((1, 1))  # where it changes fastest
    near, farther = (hessians(form, far * share, np.array([0]))[0, 0, 0] for share in (1, 13 / 12))
    assert np.log(near / farther) == pytest.approx(form.hessian_change, abs=1e-2)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_curvatures_are_those_of_probabilities_where_the_loss_says_so(form, n_scores):
    scores, codes = problem(n_scores, seed=12)
    p = scipy_softmax(scores, axis=1) if form.joint else expit(scores)
    assert np.allclose(form.curvatures(scores, Targets(codes)), p * (1 - p)) == form.p_curvatures


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_curvature_at_zero_is_that_of_the_formula(form, n_scores):
    if not form.convex or not form.smooth:
        return
    codes = np.arange(max(2, n_scores))
    H = hessians(form, np.zeros((len(codes), n_scores)), codes).mean(axis=0)
    along = np.eye(n_scores)[0] - (1 / n_scores if form.shift_free else 0)
    assert form.curvature_at_zero(n_scores) == pytest.approx(along @ H @ along / (along @ along), rel=1e-6)


@pytest.mark.parametrize(("form", "n_scores"), FORMS)
def test_the_other_facts_of_a_loss_hold(form, n_scores):
    scores, codes = problem(n_scores, 400, seed=10)
    value, _ = form.value_gradient(scores, Targets(codes))
    at_zero, _ = form.value_gradient(np.zeros_like(scores), Targets(codes))
    own = codes[:, None] == (1 if n_scores == 1 else np.arange(n_scores))
    assert form.minimized_by_zero == bool((at_zero == 0).all())
    if form.target_scores is not None:
        np.testing.assert_allclose(value, np.square(np.where(own, *form.target_scores) - scores).sum(1), rtol=1e-12)
    if form.cross_entropy:
        np.testing.assert_allclose(value, logsumexp(scores, axis=1) - scores[own], rtol=1e-12)
    if form.min_error_loss is not None:
        wrong = ((scores[:, 0] > 0) != codes) if n_scores == 1 else scores.argmax(1) != codes
        assert value[wrong].min() >= form.min_error_loss
        assert form.min_error_loss > value.min()
    assert form.hinge == (not form.smooth)
    if form.convex:
        assert value.min() >= 0


# ---------------------------------------------------------------- links, and hinges with their kink rounded


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_links_are_scipys(temperature):
    scores = np.random.default_rng(0).normal(size=(30, 4)) * 50
    np.testing.assert_allclose(softmax(scores, temperature), scipy_softmax(scores / temperature, axis=1), rtol=1e-9)
    np.testing.assert_allclose(sigmoid(scores), expit(scores), rtol=1e-12)
    np.testing.assert_array_equal(sigmoid(np.array([-1e30, -0.0, 1e30])), [0.0, 0.5, 1.0])


@pytest.mark.parametrize("width", [0.3, 2.0])
@pytest.mark.parametrize(("joint", "n_scores"), [(False, 1), (False, 4), (True, 4)])
def test_a_rounded_hinge_lies_below_and_a_centred_one_above(joint, n_scores, width):
    hinge = LOSSES["hinge"].joint if joint else LOSSES["hinge"].columns
    scores, codes = problem(n_scores, rows=400)
    exact, below, above = (
        form.value_gradient(scores, Targets(codes))[0]
        for form in (hinge, hinge.smoothed(width), centered_kink(hinge, width))
    )
    gaps = n_scores - 1 if joint else n_scores
    assert (below <= exact).all()
    assert (exact - below).max() <= gaps * width / 2 + 1e-12
    assert (exact - below).max() > width / 3  # it is rounded
    assert (above >= exact - 1e-12).all()
    assert 0 < (above - exact).max() <= gaps * width / 8 + 1e-12
    slopes = hinge.smoothed(width).curvatures(scores, Targets(codes))
    bent = hinge.smoothed(width).hessian_product(scores, Targets(codes), np.eye(n_scores)[np.zeros(400, int)])[:, 0]
    off_the_kinks = np.abs(slopes[:, 0] - bent) < 1e-6
    assert off_the_kinks.mean() > 0.98


# ---------------------------------------------------------------- the parts themselves


def test_the_polynomial_for_exponentials_keeps_seven_digits(monkeypatch):
    monkeypatch.setattr(losses, "float_of_bits", lambda bits: np.int32(bits).view(np.float32))  # compiled: a bitcast
    x = np.concatenate([np.linspace(-80, 0, 4001), np.linspace(-1e-3, 0, 11)]).astype(np.float32)
    found = np.array([losses._exp_polynomial(v) for v in x])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=2e-7)
    assert losses._exp_polynomial(np.float32(-1e30)) == losses._exp_polynomial(np.float32(-80))


def test_links_are_scipys_on_either_side_of_zero_and_along_the_last_axis():
    f = np.linspace(-6, 6, 49)
    np.testing.assert_allclose(sigmoid(f), expit(f), rtol=1e-12)
    for shape in ((7,), (7, 7), (1, 7, 7)):
        scores = f[: np.prod(shape)].reshape(shape)
        np.testing.assert_allclose(softmax(scores), scipy_softmax(scores, axis=-1), rtol=1e-12)
        np.testing.assert_allclose(softmax(scores, 3.0), scipy_softmax(scores / 3.0, axis=-1), rtol=1e-12)


def test_a_rounded_kink_bends_inside_its_width_alone():
    gaps = np.array([-1.0, 0.0, 0.1, 0.2, 0.4, 3.0])
    smooth = LOSSES["hinge"].columns.smoothed(0.4)
    scores, targets = 1 - gaps[:, None], Targets(np.ones(6, np.int64))
    np.testing.assert_allclose(smooth.value_gradient(scores, targets)[1][:, 0], [0, 0, -0.25, -0.5, -1, -1])
    np.testing.assert_allclose(smooth.curvatures(scores, targets)[:, 0], [0, 0, 2.5, 2.5, 0, 0])
    assert smooth.curvature == 2.5  # the most that its slope changes
    assert (smooth.width, smooth.smooth) == (0.4, True)


def test_a_hinge_without_rounding_is_flat_behind_its_margin_and_bends_as_ones():
    assert losses.margin_loss(HINGE, 1.0, 1.0) == (0.0, 0.0)
    assert losses.margin_loss(HINGE, 0.75, 1.0) == (0.25, -1.0)
    assert losses.margin_loss(PERCEPTRON, 0.0, 0.0) == (0.0, -1.0)  # a tie is a mistake
    assert losses.rounded_hinge(0.1, 0.5) == pytest.approx((0.01, 0.2))
    scores, codes = problem(4)
    np.testing.assert_array_equal(LOSSES["hinge"].columns.curvatures(scores, Targets(codes)), np.ones((40, 4)))


@pytest.mark.parametrize(("name", "width"), [("softmax", 0.0), ("hinge", 0.0), ("hinge", 0.3)])
def test_two_columns_are_two_problems(name, width):
    form = LOSSES[name].columns
    form = form.smoothed(width) if width else form
    scores, codes = problem(2)
    value, gradient = form.value_gradient(scores, Targets(codes))
    for c in range(2):
        one, slope = form.value_gradient(scores[:, [c]], Targets((codes == c).astype(np.int64)))
        value = value - one
        np.testing.assert_allclose(gradient[:, [c]], slope, rtol=1e-12)
    np.testing.assert_allclose(value, 0, atol=1e-12)


def test_logarithms_of_more_columns_than_one_product_holds():
    form = LOSSES["softmax"].columns
    scores, codes = problem(1100, 3)
    np.testing.assert_allclose(
        form.value_gradient(scores, Targets(codes))[0], reference(form, scores, codes), rtol=1e-12
    )


def test_a_perceptron_moves_where_scores_tie_and_a_hinge_does_not():
    codes, zeros = np.array([0, 2]), np.zeros((2, 3))
    own = np.eye(3)[codes]
    apart, joint = (form.value_gradient(zeros, Targets(codes))[1] for form in LOSSES["perceptron"])
    np.testing.assert_array_equal(apart, 1 - 2 * own)
    np.testing.assert_array_equal(joint, 1 - 3 * own)
    at_the_margin = LOSSES["hinge"].joint.value_gradient(own, Targets(codes))[1]
    np.testing.assert_array_equal(at_the_margin, zeros)


def test_probabilities_that_are_right_have_no_slope():
    soft = np.array([[0.25, 0.5, 0.25, 0.0]])
    found = LOSSES["softmax-absolute"].joint.value_gradient(np.zeros((1, 4)), Targets(np.array([1]), soft))
    np.testing.assert_array_equal(found[1], [[0, -0.25, 0, 0.25]])
    np.testing.assert_array_equal(found[0], [0.5])
