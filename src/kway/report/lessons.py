"""Lessons in one picture each: losses against the margin, temperature, label smoothing, softmax and sigmoid.

The curves and bars come from kway's own losses, softmax and sigmoid, so a picture cannot differ from the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.linear.losses import LOSSES, Targets, sigmoid, softmax
from kway.report import style


def losses_by_margin(low: float = -3.0, high: float = 3.0, n_classes: int = 10) -> Figure:
    """0-1, squared, perceptron, hinge and logistic loss over the margin t = y f, and cross-entropy of K classes.

    For the last the margin is the lead of the true class over K - 1 rivals of equal score; K = 2 is the logistic loss.
    """
    t = np.linspace(low, high, 601)
    figure = style.figure(height=4.4)
    axes = style.dress(figure.subplots(), "Losses against the margin", "margin  t = y f", "loss")
    axes.plot(t, (t <= 0).astype(float), color=style.INK, linewidth=2.2, drawstyle="steps-mid", label="0-1")
    colours = dict(zip(("squared", "perceptron", "hinge", "logistic"), style.PALETTE))
    for name, colour in colours.items():
        axes.plot(t, loss_at_margins(name, t), color=colour, linewidth=1.8, label=name)
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
            words, (0, 4.05), xytext=(away, 0), textcoords="offset points", ha=side, va="top", fontsize=style.SMALL,
            color=style.MUTED,
        )  # fmt: skip
    style.legend_above(axes, columns=3)
    return figure


def loss_at_margins(name: str, margins: NDArray) -> NDArray:
    """Value of a binary loss at margins (m,), by kway's own kernel."""
    scores = np.asarray(margins, float)[:, None]
    return LOSSES[name].columns.value_gradient(scores, Targets(np.ones(len(scores), np.int64)))[0]


def temperature(
    scores: ArrayLike,
    temperatures: Sequence[float] = (0.25, 0.5, 1, 2, 10),
    labels: ArrayLike | None = None,
) -> Figure:
    """softmax(f / T) of one vector of scores (K,): near one-hot when T is small, near uniform when it is large."""
    f = np.asarray(scores, float)
    if f.ndim != 1 or min(temperatures) <= 0:
        raise InputError(f"one vector of scores and temperatures above 0 are needed, got {f.shape} and {temperatures}")
    names = [style.shorten(n, 10) for n in style.names_of(labels, len(f))]
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
    """Targets 1 - eps and eps / (K - 1) above; below, what models trained on them answer, probabilities (E, K).

    `true` is the code of the true class of the row (or of the rows whose mean answer is given).
    """
    p = np.asarray(probabilities, float)
    if p.ndim != 2 or len(p) != len(eps):
        raise InputError(f"probabilities must have a row for each of {len(eps)} values of eps, got shape {p.shape}")
    k = p.shape[1]
    names = [style.shorten(n, 10) for n in style.names_of(labels, k)]
    room = max(36 // len(eps), 1)  # names that fit under a panel
    figure = style.figure(height=4.3)
    grid = figure.subplots(2, len(eps), squeeze=False)
    for column, (smooth, answer) in enumerate(zip(eps, p)):
        target = np.full(k, smooth / (k - 1))
        target[true] = 1 - smooth
        _probability_bars(grid[0, column], target, names, f"eps = {smooth:g}", room, true)
        _probability_bars(grid[1, column], answer, names, "", room, true)
    for row, words in zip(grid, ("target", "answer of the model")):
        row[0].set_ylabel(words, fontsize=style.LABEL, color=style.INK)
        for axes in row[1:]:
            axes.set_yticklabels([])
    style.headline(
        figure, "Label smoothing", "targets 1 − eps and eps / (K − 1), and the answers of models trained on them"
    )
    return figure


def softmax_and_sigmoid(scores: ArrayLike, labels: ArrayLike | None = None) -> Figure:
    """Left: two classes, where softmax is a sigmoid. Right: scores (K,) of K classes, where sigmoids do not add up."""
    f = np.asarray(scores, float)
    names = [style.shorten(n, 10) for n in style.names_of(labels, len(f))]
    figure = style.figure(height=3.7)
    left, right = figure.subplots(1, 2)
    _two_classes(left)
    style.dress(right, "", "class", "", grid="y")
    place, width = np.arange(len(f)), 0.4
    pairs = (("softmax", softmax(f[None])[0], style.ACCENT), ("sigmoid of each", sigmoid(f), style.CONTRAST))
    for shift, (name, values, colour) in zip((-width / 2, width / 2), pairs):
        label = f"{name}: adds up to {values.sum():.2f}"
        right.bar(place + shift, values, width, color=colour, label=label)
    right.set_xticks(place, names)
    right.set_ylim(0, 1.02)
    style.legend_above(right, columns=1)
    style.headline(figure, "Softmax and sigmoid")
    return figure


def _two_classes(axes: Any) -> None:
    """sigma(f) and sigma(2 f) as lines; softmax of two scores as dots on them."""
    style.dress(axes, "", "score f", "probability of the first class")
    f, dots = np.linspace(-5, 5, 201), np.linspace(-5, 5, 21)
    zero = np.zeros_like(dots)
    pairs = (
        ("σ(f)", sigmoid(f), "softmax(f, 0)", np.stack([dots, zero], 1), style.PALETTE[0], "o"),
        ("σ(2f)", sigmoid(2 * f), "softmax(f, −f)", np.stack([dots, -dots], 1), style.PALETTE[2], "s"),
    )
    for line, values, name, two, colour, marker in pairs:
        axes.plot(f, values, color=colour, linewidth=1.5, label=line)
        axes.plot(dots, softmax(two)[:, 0], marker, color=colour, markersize=4.5, markeredgecolor="white", label=name)
    axes.set_ylim(-0.02, 1.02)
    style.legend_above(axes, columns=2)


def _bars(axes: Any, values: NDArray, names: list[str], title: str, colours: Any, room: int) -> None:
    style.dress(axes, "", "", "", grid="y")
    axes.set_title(title, fontsize=style.LABEL, color=style.INK)
    axes.bar(np.arange(len(values)), values, width=0.75, color=colours)
    upright = max(map(len, names)) > 2
    step = -(-len(names) // room)  # so that names stay apart
    axes.set_xticks(np.arange(0, len(values), step), names[::step])
    axes.tick_params(axis="x", labelsize=style.TINY, rotation=90 if upright else 0, length=0)


def _probability_bars(axes: Any, p: NDArray, names: list[str], title: str, room: int, true: int | None = None) -> None:
    """Bars of a distribution; the largest, or the true class, in the strong colour."""
    colours = [style.tint(style.ACCENT, 0.5)] * len(p)
    colours[int(p.argmax()) if true is None else true] = style.ACCENT
    _bars(axes, p, names, title, colours, room)
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1])
