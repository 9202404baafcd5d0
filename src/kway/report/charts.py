"""Charts of scores and losses.

cross_validation   scores of the values of a hyperparameter on the folds
history            the objective per iteration, one curve per model
tradeoff           one share against another, with the chosen point
leaderboard        mean and standard deviation of a score over the folds, per model
reliability        accuracy against confidence in bins, above the histogram of confidence

figures.py decides which figures the report shows. To add a figure to the report, add a function there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.auto.evaluation import wilson
from kway.confidence.reliability import reliability_of
from kway.errors import InputError
from kway.report import style


def cross_validation(
    values: ArrayLike,
    scores: ArrayLike,
    chosen: float | None = None,
    name: str = "k",
    score_name: str = "accuracy",
    log: bool = False,
    title: str = "",
) -> Figure:
    """Draw the scores of a hyperparameter: a dot per fold, the means, and bars of one standard deviation.

    Parameters
    ----------
    values : array-like of shape (n_values,)
        Values of the hyperparameter.
    scores : array-like of shape (n_values, n_folds)
        One score per value and fold.
    chosen : float, default=None
        Chosen value, which is marked.
    name, score_name : str
        Labels of the axes.
    log : bool, default=False
        Whether the axis of the values is logarithmic.
    title : str, default=""
        Title of the figure; by default, the number of folds.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.

    Examples
    --------
    >>> from kway import report
    >>> figure = report.cross_validation([1, 3, 5], [[0.8, 0.7], [0.9, 0.8], [0.7, 0.7]], chosen=3)
    """
    x, s = np.asarray(values, float), np.asarray(scores, float)
    if s.ndim != 2 or len(s) != len(x):
        raise InputError(
            f"scores must have one row per value and one column per fold, got {s.shape} for {len(x)} values"
        )
    figure = style.figure(height=3.8)
    title = title or (f"{s.shape[1]}-fold cross-validation" if s.shape[1] > 1 else "One validation split")
    axes = style.dress(figure.subplots(), title, name, score_name)
    order = np.argsort(x)
    x, s = x[order], s[order]
    mean, std = s.mean(axis=1), s.std(axis=1)
    if log:
        axes.set_xscale("log")
    axes.plot(np.repeat(x, s.shape[1]), s.ravel(), ".", color=style.FAINT, markersize=6, label="one fold", zorder=2)
    axes.errorbar(
        x, mean, std, color=style.ACCENT, linewidth=1.8, elinewidth=1.2, capsize=2.5,
        label="mean ± one standard deviation" if s.shape[1] > 1 else "score", zorder=3,
    )  # fmt: skip
    if chosen is not None:
        _mark_chosen(axes, x, mean, chosen, name)
    _write_ticks(axes, x, log)
    style.legend_above(axes)
    return figure


def _write_ticks(axes: Any, x: NDArray, log: bool) -> None:
    """Write powers on a logarithmic axis, and only whole numbers for values that are whole."""
    if log:
        style.powers(axes.xaxis)
    elif (x == np.round(x)).all():
        axes.xaxis.get_major_locator().set_params(integer=True)


def _mark_chosen(axes: Any, x: NDArray, mean: NDArray, chosen: float, name: str) -> None:
    i = int(np.argmin(np.abs(x - chosen)))
    axes.axvline(x[i], color=style.CONTRAST, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.plot(
        x[i], mean[i], "o", color=style.CONTRAST, markersize=7, markeredgecolor="white", zorder=4,
        label=f"chosen: {name} = {style.power(x[i]) or '0'} ({mean[i]:.4g})",
    )  # fmt: skip


def tradeoff(
    x: ArrayLike, y: ArrayLike, at: tuple[float, float], x_name: str, y_name: str, guaranteed: float | None = None
) -> Figure:
    """Draw one share against another over all thresholds, and mark the chosen point.

    Parameters
    ----------
    x, y : array-like of shape (n_thresholds,)
        Values of the two shares, one per threshold.
    at : tuple of two floats
        Chosen point, which is marked.
    x_name, y_name : str
        Labels of the axes.
    guaranteed : float, default=None
        Guaranteed value of y, drawn as a dashed line.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.
    """
    figure = style.figure(height=3.6)
    axes = style.dress(figure.subplots(), "", x_name, y_name)
    axes.plot(np.asarray(x, float), np.asarray(y, float), color=style.ACCENT, linewidth=1.8, label="all thresholds")
    axes.plot(
        *at, "o", color=style.CONTRAST, markersize=7, markeredgecolor="white", clip_on=False, zorder=4,
        label=f"chosen: {at[0]:.3g}, {at[1]:.3g}",
    )  # fmt: skip
    if guaranteed is not None:
        axes.axhline(
            guaranteed, color=style.MUTED, linewidth=1, linestyle=(0, (4, 3)), label=f"guaranteed: {guaranteed:g}"
        )
    style.legend_above(axes)
    return figure


def history(
    curves: Mapping[str, ArrayLike],
    x_name: str = "iteration",
    y_name: str = "objective",
    first: int = 0,
    title: str = "",
) -> Figure:
    """Draw losses per iteration. The vertical axis is logarithmic if positive values span more than a factor of 20.

    Parameters
    ----------
    curves : mapping of str to array-like
        One curve per name, such as `history_` of a linear classifier.
    x_name, y_name : str
        Labels of the axes.
    first : int, default=0
        Number of the first value; 0 if it was measured before the first step.
    title : str, default=""
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.

    Examples
    --------
    >>> from kway import report
    >>> figure = report.history({"softmax": [2.3, 0.9, 0.5]})
    """
    figure = style.figure(height=3.6)
    axes = style.dress(figure.subplots(), title or "Learning", x_name, y_name)
    drawn = {name: np.asarray(values, float) for name, values in curves.items() if np.size(values)}
    if not drawn:
        style.write_empty(axes, "no history: the solver needs one step")
        return figure
    for (name, values), color in zip(drawn.items(), style.class_colors(len(drawn))):
        steps = np.arange(first, first + len(values))
        marker = "o" if len(values) <= 25 else ""
        axes.plot(steps, values, color=color, linewidth=1.8, marker=marker, markersize=3.5, label=name)
    lowest, highest = min(map(np.nanmin, drawn.values())), max(map(np.nanmax, drawn.values()))
    if 0 < 20 * lowest < highest:
        axes.set_yscale("log")
        style.powers(axes.yaxis)
    axes.xaxis.get_major_locator().set_params(integer=True)
    style.legend_above(axes)
    return figure


def leaderboard(
    names: ArrayLike,
    means: ArrayLike,
    stds: ArrayLike | None = None,
    score_name: str = "accuracy",
    baseline: float | None = None,
    title: str = "Leaderboard",
    max_models: int = 20,
) -> Figure:
    """Draw one bar per model with its standard deviation. The first model is highlighted as the chosen one.

    If all scores are close to the best, the axis starts above zero, and the axis label states this.

    Parameters
    ----------
    names : array-like of str
        Names of the models, in the order in which they are drawn.
    means, stds : array-like of float
        Mean and standard deviation of the score over the folds; `stds` may be None.
    score_name : str, default="accuracy"
        Label of the axis.
    baseline : float, default=None
        Score of always predicting the most frequent class, drawn as a dashed line.
    title : str, default="Leaderboard"
        Title of the figure.
    max_models : int, default=20
        Maximum number of models to draw.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.

    Examples
    --------
    >>> from kway import report
    >>> figure = report.leaderboard(["softmax", "neighbors"], [0.95, 0.93], [0.01, 0.02], baseline=0.1)
    """
    values = np.asarray(means, float)[:max_models]
    spread = np.zeros_like(values) if stds is None else np.asarray(stds, float)[:max_models]
    labels = [style.shorten(name, 34) for name in np.asarray(names, object)[:max_models]]
    figure = style.figure(height=1.15 + 0.3 * max(len(values), 2))
    axes = style.dress(figure.subplots(), title, score_name, "", grid="x")
    if not len(values):
        style.write_empty(axes, "no model was compared")
        return figure
    start = _axis_start(values, spread)
    _draw_bars(axes, values, spread, start)
    _write_values(axes, values, spread, stds is not None)
    axes.set_yticks(np.arange(len(values)), labels)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    label_parts = [score_name if start <= 0 else f"{score_name} (the axis starts at {start:g})"]
    if baseline is not None:
        is_visible = baseline > start
        label_parts.append(f"{'dashed: ' if is_visible else ''}most frequent class, {baseline:.3g}")
        if is_visible:
            axes.axvline(baseline, color=style.CONTRAST, linewidth=1.2, linestyle=(0, (4, 3)), zorder=4)
    axes.set_xlabel("; ".join(label_parts))
    return figure


def _draw_bars(axes: Any, values: NDArray, spread: NDArray, start: float) -> None:
    """Draw one bar per value from `start`, with its spread; the first is highlighted."""
    rows = np.arange(len(values))
    colors = [style.ACCENT, *[style.tint(style.ACCENT, 0.45)] * (len(values) - 1)]
    axes.barh(rows, values - start, left=start, height=0.62, color=colors, zorder=2)
    has_spread = spread > 0  # one fold has none
    axes.errorbar(
        values[has_spread], rows[has_spread], xerr=spread[has_spread], fmt="none", ecolor=style.INK, elinewidth=1,
        capsize=2.5, zorder=3,
    )  # fmt: skip


def _axis_start(values: NDArray, spread: NDArray) -> float:
    """Return 0, or a round number below the lowest score if all bars would look the same."""
    lowest, highest = float((values - spread).min()), float((values + spread).max())
    if lowest < 0.75 * highest or highest <= 0:
        return min(0.0, lowest)
    height = max(highest - lowest, 1e-3 * highest) * 1.5
    step = 10.0 ** np.floor(np.log10(height))
    return float(np.round(max(0.0, np.floor((lowest - height / 2) / step) * step), 12))


def _write_values(axes: Any, values: NDArray, spread: NDArray, with_spread: bool) -> None:
    for row, (value, std) in enumerate(zip(values, spread)):
        text = f"{value:.3f} ± {std:.3f}" if with_spread and std > 0 else f"{value:.3f}"
        axes.annotate(
            text, (value + std, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=style.TEXT,
            color=style.INK, annotation_clip=False,
        )  # fmt: skip
    # room for the text, whose width does not depend on the scale
    left, right = axes.get_xlim()
    axes.set_xlim(left, right + 0.24 * (right - left))
    if values.max() <= 1:  # a share has no ticks beyond 1
        axes.set_xticks([tick for tick in axes.get_xticks() if left - 1e-9 <= tick <= 1 + 1e-9])


def reliability(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, title: str = "Reliability diagram"
) -> Figure:
    """Draw accuracy against confidence in bins, with 95% Wilson intervals, above the histogram of confidence.

    The expected calibration error is ECE = sum_b (n_b / n) |accuracy_b - confidence_b|.

    Parameters
    ----------
    confidence : array-like of shape (n_rows,)
        Probability of the predicted class.
    correct : array-like of bool of shape (n_rows,)
        Whether the prediction is correct.
    bins : int, default=15
        Number of bins of equal width.
    title : str, default="Reliability diagram"
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017.
    """
    p, is_correct = np.asarray(confidence, float), np.asarray(correct, bool)
    if p.shape != is_correct.shape or p.ndim != 1:
        raise InputError(
            f"confidence and correct must have one value per row, got shapes {p.shape} and {is_correct.shape}"
        )
    table = reliability_of(p, is_correct, bins)
    figure = style.figure(width=5.2, height=5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 1])
    style.dress(upper, title, "", "accuracy")
    style.dress(lower, "", "confidence: probability of the predicted class", "rows", grid="y")
    upper.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1, linestyle=(0, (4, 3)), label="perfect calibration")
    known = table.rows > 0
    low, high = wilson(table.accuracy[known] * table.rows[known], table.rows[known])
    x, y = table.confidence[known], table.accuracy[known]
    weight = table.rows[known] / table.rows.max()
    upper.vlines(
        x, np.minimum(x, y), np.maximum(x, y), color=style.tint(style.CONTRAST, 0.55), linewidth=1 + 5 * weight**0.5,
        label="gap",
    )  # fmt: skip
    upper.vlines(x, low, high, color=style.ACCENT, linewidth=1, clip_on=False, label="95% interval")
    upper.scatter(
        x, y, s=190 * (0.1 + 0.9 * weight), color=style.ACCENT, edgecolor="white", linewidth=0.6,
        clip_on=False, zorder=3, label="bins; area: number of rows",
    )  # fmt: skip
    upper.set(xlim=(0, 1), ylim=(0, 1.02))
    ece = f"ECE = {table.error:.3f}"
    upper.text(0.97, 0.06, ece, transform=upper.transAxes, ha="right", fontsize=style.TITLE, color=style.INK)
    style.legend_above(upper, columns=2)
    width = np.diff(table.edges)
    lower.bar(table.edges[:-1], table.rows, width=width, align="edge", color=style.tint(style.ACCENT, 0.6),
              edgecolor="white", linewidth=0.8)  # fmt: skip
    return figure
