"""Figures of one idea each: losses, temperature, label smoothing, softmax and sigmoid, equal distances.

The curves and bars come from kway's own losses, softmax and sigmoid, so that a picture cannot differ from the code.

same_distance shows why raw pixels are a poor representation: three altered images at exactly the same L2 distance D.

    shifted   moved by some pixels; its distance is D
    boxed     x + s (box - x) on the smallest square for which s <= 1
    tinted    x + s (color - x) everywhere

The distance of a blend x + s (full - x) from x is s ||full - x||, so s = D / ||full - x|| gives the distance D exactly.
The values of a blend lie between those of its ends, so nothing is clipped. Images are (h, w, 3) in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.linear.losses import LOSSES, Targets, sigmoid, softmax
from kway.report import style

_TINTS = ((1.0, 0.75, 0.2), (0.25, 0.55, 1.0))


def losses_by_margin(low: float = -3.0, high: float = 3.0, n_classes: int = 10) -> Figure:
    """Draw the binary losses over the margin t = y f, and the cross-entropy of K classes.

    For the cross-entropy, the margin is the score of the true class minus the equal scores of the K - 1 others. With
    K = 2, it equals the logistic loss.
    """
    t = np.linspace(low, high, 601)
    figure = style.figure(height=4.4)
    axes = style.dress(figure.subplots(), "Losses against the margin", "margin  t = y f", "loss")
    axes.plot(t, (t <= 0).astype(float), color=style.INK, linewidth=2.2, drawstyle="steps-mid", label="0-1")
    colors = dict(zip(("squared", "perceptron", "hinge", "logistic"), style.PALETTE))
    for name, color in colors.items():
        axes.plot(t, loss_at_margins(name, t), color=color, linewidth=1.8, label=name)
    joint = LOSSES["softmax"].joint
    scores = np.zeros((len(t), n_classes))
    scores[:, 0] = t
    entropy = joint.value_gradient(scores, Targets(np.zeros(len(t), np.int64)))[0]
    axes.plot(t, entropy, color=style.PALETTE[6], linewidth=1.8, linestyle=(0, (5, 2)),
              label=f"cross-entropy, {n_classes} classes")  # fmt: skip
    axes.axvline(0, color=style.FAINT, linewidth=1, zorder=1)
    axes.set(xlim=(low, high), ylim=(-0.08, 4.2))
    for away, side, words in ((-6, "right", "wrong"), (6, "left", "right")):  # spaces would be lost in an svg
        axes.annotate(
            words, (0, 4.05), xytext=(away, 0), textcoords="offset points", ha=side, va="top", fontsize=style.TEXT,
            color=style.MUTED,
        )  # fmt: skip
    style.legend_above(axes, columns=3)
    return figure


def updates_by_margin(low: float = -3.0, high: float = 3.0) -> Figure:
    """Draw the weight of a row in an update of SGD, minus the slope of its loss, over the margin t = y f."""
    t = np.linspace(low, high, 601)
    figure = style.figure(height=4.0)
    axes = style.dress(figure.subplots(), "Weight of a row in the update", "margin  t = y f", "factor of η y x")
    for name, color in zip(("squared", "perceptron", "hinge", "logistic"), style.PALETTE):
        axes.plot(t, -slope_at_margins(name, t), color=color, linewidth=1.8, label=name)
    axes.axhline(0, color=style.FAINT, linewidth=1, zorder=1)
    axes.axvline(0, color=style.FAINT, linewidth=1, zorder=1)
    axes.set(xlim=(low, high), ylim=(-2.2, 4.2))
    style.legend_above(axes, columns=4)
    return figure


def slope_at_margins(name: str, margins: NDArray) -> NDArray:
    """Return the derivatives of a binary loss at margins (m,), computed by kway's kernel."""
    scores = np.asarray(margins, float)[:, None].copy()
    return LOSSES[name].columns.value_gradient(scores, Targets(np.ones(len(scores), np.int64)))[1][:, 0]


def loss_at_margins(name: str, margins: NDArray) -> NDArray:
    """Return the values of a binary loss at margins (m,), computed by kway's kernel."""
    scores = np.asarray(margins, float)[:, None]
    return LOSSES[name].columns.value_gradient(scores, Targets(np.ones(len(scores), np.int64)))[0]


def temperature(
    scores: ArrayLike,
    temperatures: Sequence[float] = (0.25, 0.5, 1, 2, 10),
    labels: ArrayLike | None = None,
) -> Figure:
    """Draw softmax(f / T) of scores (K,): almost one-hot if T is small, almost uniform if T is large."""
    f = np.asarray(scores, float)
    if f.ndim != 1 or min(temperatures) <= 0:
        raise InputError(f"one vector of scores and temperatures above 0 are needed, got {f.shape} and {temperatures}")
    names = [style.shorten(n, 10) for n in style.class_names(labels, len(f))]
    figure = style.figure(height=2.9)
    panels = figure.subplots(1, len(temperatures) + 1, sharey=False)
    room = max(36 // (len(temperatures) + 1), 1)  # names that fit under a panel
    _bars(panels[0], f, names, "scores f", style.MUTED, room)
    panels[0].axhline(0, color=style.FAINT, linewidth=0.8)
    for axes, heat in zip(panels[1:], temperatures):
        _probability_bars(axes, softmax(f[None], heat)[0], names, f"T = {heat:g}", room)
        axes.axhline(1 / len(f), color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))
    for axes in panels[2:]:
        axes.set_yticklabels([])
    style.headline(figure, "Temperature", "softmax(f / T); dotted: the uniform distribution")
    return figure


def label_smoothing(
    eps: Sequence[float], probabilities: ArrayLike, true: int, labels: ArrayLike | None = None
) -> Figure:
    """Draw the targets 1 - eps and eps / (K - 1), and below them the probabilities (E, K) of models trained with them.

    `true` is the code of the true class of the rows.
    """
    p = np.asarray(probabilities, float)
    if p.ndim != 2 or len(p) != len(eps):
        raise InputError(f"probabilities must have a row for each of {len(eps)} values of eps, got shape {p.shape}")
    k = p.shape[1]
    names = [style.shorten(n, 10) for n in style.class_names(labels, k)]
    room = max(36 // len(eps), 1)  # names that fit under a panel
    figure = style.figure(height=4.3)
    grid = figure.subplots(2, len(eps), squeeze=False)
    for column, (smooth, answer) in enumerate(zip(eps, p)):
        target = np.full(k, smooth / (k - 1))
        target[true] = 1 - smooth
        _probability_bars(grid[0, column], target, names, f"eps = {smooth:g}", room, true)
        _probability_bars(grid[1, column], answer, names, "", room, true)
    for row, words in zip(grid, ("target", "prediction")):
        row[0].set_ylabel(words, fontsize=style.TEXT, color=style.INK)
        for axes in row[1:]:
            axes.set_yticklabels([])
    style.headline(
        figure, "Label smoothing", "targets 1 − eps and eps / (K − 1), and the predictions of models trained on them"
    )
    return figure


def softmax_and_sigmoid(scores: ArrayLike, labels: ArrayLike | None = None) -> Figure:
    """Draw softmax and sigmoid: for two classes, where they are equal, and for the scores (K,) of K classes."""
    f = np.asarray(scores, float)
    names = [style.shorten(n, 10) for n in style.class_names(labels, len(f))]
    figure = style.figure(height=3.7)
    left, right = figure.subplots(1, 2)
    _two_classes(left)
    style.dress(right, "", "class", "", grid="y")
    place, width = np.arange(len(f)), 0.4
    pairs = (("softmax", softmax(f[None])[0], style.ACCENT), ("sigmoid of each", sigmoid(f), style.CONTRAST))
    for shift, (name, values, color) in zip((-width / 2, width / 2), pairs):
        label = f"{name}: adds up to {values.sum():.2f}"
        right.bar(place + shift, values, width, color=color, label=label)
    right.set_xticks(place, names)
    right.set_ylim(0, 1.02)
    style.legend_above(right, columns=1)
    style.headline(figure, "Softmax and sigmoid")
    return figure


def _two_classes(axes: Any) -> None:
    """Draw sigma(f) and sigma(2 f) as lines, and the softmax of two scores as dots on them."""
    style.dress(axes, "", "score f", "probability of the first class")
    f, dots = np.linspace(-5, 5, 201), np.linspace(-5, 5, 21)
    zero = np.zeros_like(dots)
    pairs = (
        ("σ(f)", sigmoid(f), "softmax(f, 0)", np.stack([dots, zero], 1), style.PALETTE[0], "o"),
        ("σ(2f)", sigmoid(2 * f), "softmax(f, −f)", np.stack([dots, -dots], 1), style.PALETTE[2], "s"),
    )
    for line, values, name, two, color, marker in pairs:
        axes.plot(f, values, color=color, linewidth=1.5, label=line)
        axes.plot(dots, softmax(two)[:, 0], marker, color=color, markersize=4.5, markeredgecolor="white", label=name)
    axes.set_ylim(-0.02, 1.02)
    style.legend_above(axes, columns=2)


def _bars(axes: Any, values: NDArray, names: list[str], title: str, colors: Any, room: int) -> None:
    style.dress(axes, "", "", "", grid="y")
    axes.set_title(title, fontsize=style.TEXT, color=style.INK)
    axes.bar(np.arange(len(values)), values, width=0.75, color=colors)
    upright = max(map(len, names)) > 2
    step = -(-len(names) // room)  # so that names stay apart
    axes.set_xticks(np.arange(0, len(values), step), names[::step])
    axes.tick_params(axis="x", labelsize=style.TINY, rotation=90 if upright else 0, length=0)


def _probability_bars(axes: Any, p: NDArray, names: list[str], title: str, room: int, true: int | None = None) -> None:
    """Draw the bars of a distribution, and highlight the largest or the true class."""
    colors = [style.tint(style.ACCENT, 0.5)] * len(p)
    colors[int(p.argmax()) if true is None else true] = style.ACCENT
    _bars(axes, p, names, title, colors, room)
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1])


class Altered(NamedTuple):
    """An altered image (h, w, 3) and its L2 distance from the original."""

    name: str
    image: NDArray
    distance: float


def as_color(image: ArrayLike) -> NDArray:
    """Convert gray levels or colors, 0 to 1 or 0 to 255, to (h, w, 3) in [0, 1]; gray images become ink on white."""
    pixels = np.asarray(image, float)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise InputError(f"an image has shape (h, w) or (h, w, 3), got {pixels.shape}")
    pixels = pixels / 255 if pixels.max(initial=0) > 1 else pixels
    return np.repeat(1 - pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def alterations(image: ArrayLike, pixels: int = 1) -> list[Altered]:
    """Return the image boxed, shifted and tinted, all at the same L2 distance from it."""
    x = as_color(image)
    shifted = _shift(x, pixels)
    far = float(np.linalg.norm(shifted - x))
    if far == 0:
        raise InputError(f"an image that a shift of {pixels} pixels does not change has no distance to match")
    made = [("boxed", _boxed(x, far)), ("shifted", shifted), ("tinted", _tinted(x, far))]
    return [Altered(name, y, float(np.linalg.norm(y - x))) for name, y in made]


def _shift(x: NDArray, pixels: int) -> NDArray:
    """Move the image right and down, and repeat its left and upper edges."""
    rows = np.clip(np.arange(x.shape[0]) - pixels, 0, None)
    columns = np.clip(np.arange(x.shape[1]) - pixels, 0, None)
    return x[rows][:, columns]


def _boxed(x: NDArray, far: float) -> NDArray:
    h, w = x.shape[:2]
    fill = 0.0 if x.mean() > 0.5 else 1.0
    for side in range(1, max(h, w) + 1):
        top, left = max(h - side, 0) // 2, max(w - side, 0) // 2
        full = x.copy()
        full[top : top + side, left : left + side] = fill
        if np.linalg.norm(full - x) >= far:
            return _blend(x, full, far)
    raise InputError(f"no box is as far from the image as {far:.3g}; alter it by fewer pixels")


def _tinted(x: NDArray, far: float) -> NDArray:
    fulls = [np.broadcast_to(np.asarray(c), x.shape) for c in _TINTS]
    full = max(fulls, key=lambda color: float(np.linalg.norm(color - x)))
    if np.linalg.norm(full - x) < far:
        raise InputError(f"no tint is as far from the image as {far:.3g}; alter it by fewer pixels")
    return _blend(x, full, far)


def _blend(x: NDArray, full: NDArray, far: float) -> NDArray:
    return x + far / float(np.linalg.norm(full - x)) * (full - x)


def same_distance(image: ArrayLike, pixels: int = 1, other: ArrayLike | None = None, other_name: str = "") -> Figure:
    """Draw an image and its three alterations with their distances; `other` is an image of another class."""
    x = as_color(image)
    shown = [Altered("original", x, 0.0), *alterations(image, pixels)]
    if other is not None:
        y = as_color(other)
        shown.append(Altered(other_name or "another class", y, float(np.linalg.norm(y - x))))
    figure = style.figure(height=0.95 + style.FIGURE_WIDTH / len(shown) * x.shape[0] / x.shape[1])
    for axes, one in zip(figure.subplots(1, len(shown)), shown):
        axes.imshow(np.clip(one.image, 0, 1), interpolation="nearest")
        style.bare(axes, one.name, style.TEXT)
        axes.set_xlabel(f"distance {one.distance:.3f}", fontsize=style.TEXT, color=style.INK)
    nearer = other is not None and shown[-1].distance < shown[1].distance
    note = "and an image of another class is nearer than any of them" if nearer else ""
    style.headline(figure, "Raw pixels: different changes, the same L2 distance", note)
    return figure
