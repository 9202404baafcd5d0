"""Curves: scores over a hyper-parameter, losses over iterations, costs over sizes.

cross_validation   scores (V, F): V values of a hyper-parameter, F folds
tradeoff           one share against another, the promised point marked
history            objective an iteration, one curve a model or a part of the data
cost               seconds or bytes against n on two logarithmic axes, with the exponent of each curve
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

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
    """A dot for each fold, the line through the means, bars of one standard deviation, the chosen value marked.

    values (V,), scores (V, F); `log` for hyper-parameters such as alpha.
    """
    x, s = np.asarray(values, float), np.asarray(scores, float)
    if s.ndim != 2 or len(s) != len(x):
        raise InputError(f"scores must have one row a value and one column a fold, got {s.shape} for {len(x)} values")
    figure = style.figure(height=3.8)
    title = title or (f"{s.shape[1]}-fold cross-validation" if s.shape[1] > 1 else "One validation part: no spread")
    axes = style.dress(figure.subplots(), title, name, score_name)
    order = np.argsort(x)
    x, s = x[order], s[order]
    mean, std = s.mean(axis=1), s.std(axis=1)
    if log:
        axes.set_xscale("log")
    axes.plot(np.repeat(x, s.shape[1]), s.ravel(), ".", color=style.FAINT, markersize=6, label="a fold", zorder=2)
    axes.errorbar(
        x, mean, std, color=style.ACCENT, linewidth=1.8, elinewidth=1.2, capsize=2.5,
        label="mean ± one standard deviation" if s.shape[1] > 1 else "score", zorder=3,
    )  # fmt: skip
    if chosen is not None:
        _mark_chosen(axes, x, mean, chosen, name)
    if log:
        style.powers(axes.xaxis)
    elif (x == np.round(x)).all():
        axes.xaxis.get_major_locator().set_params(integer=True)
    style.legend_above(axes)
    return figure


def tradeoff(
    x: ArrayLike, y: ArrayLike, at: tuple[float, float], x_name: str, y_name: str, promised: float | None = None
) -> Figure:
    """A curve over thresholds and the point that is kept; a dashed line at the share that was `promised`."""
    figure = style.figure(height=3.6)
    axes = style.dress(figure.subplots(), "", x_name, y_name)
    axes.plot(np.asarray(x, float), np.asarray(y, float), color=style.ACCENT, linewidth=1.8, label="every threshold")
    axes.plot(
        *at, "o", color=style.CONTRAST, markersize=7, markeredgecolor="white", clip_on=False, zorder=4,
        label=f"kept: {at[0]:.3g}, {at[1]:.3g}",
    )  # fmt: skip
    if promised is not None:
        axes.axhline(promised, color=style.MUTED, linewidth=1, linestyle=(0, (4, 3)), label=f"promised: {promised:g}")
    style.legend_above(axes)
    return figure


def _mark_chosen(axes: Any, x: NDArray, mean: NDArray, chosen: float, name: str) -> None:
    at = int(np.argmin(np.abs(x - chosen)))
    axes.axvline(x[at], color=style.CONTRAST, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.plot(
        x[at], mean[at], "o", color=style.CONTRAST, markersize=7, markeredgecolor="white", zorder=4,
        label=f"chosen: {name} = {style.power(x[at]) or '0'} ({mean[at]:.4g})",
    )  # fmt: skip


def history(
    curves: Mapping[str, ArrayLike],
    x_name: str = "iteration",
    y_name: str = "objective",
    first: int = 0,
    best: int | None = None,
    title: str = "",
) -> Figure:
    """Losses as the solver saw them, one curve a name; `best` marks the iteration that was kept.

    `first` is the number of the first value: 0 where it was measured before the first step, as in `history_`.

    The vertical axis is logarithmic where the values are positive and span more than a factor of 20.
    """
    figure = style.figure(height=3.6)
    axes = style.dress(figure.subplots(), title or "Learning", x_name, y_name)
    drawn = {name: np.asarray(values, float) for name, values in curves.items() if np.size(values)}
    if not drawn:
        style.say_empty(axes, "no history: the model was solved in one step")
        return figure
    colours = style.class_colours(len(drawn))
    for (name, values), colour in zip(drawn.items(), colours):
        steps = np.arange(first, first + len(values))
        marker = "o" if len(values) <= 25 else ""
        axes.plot(steps, values, color=colour, linewidth=1.8, marker=marker, markersize=3.5, label=name)
    if best is not None:
        axes.axvline(best, color=style.MUTED, linewidth=1, linestyle=(0, (4, 3)), label=f"kept: {x_name} {best}")
    lowest, highest = min(map(np.nanmin, drawn.values())), max(map(np.nanmax, drawn.values()))
    if 0 < 20 * lowest < highest:
        axes.set_yscale("log")
        style.powers(axes.yaxis)
    axes.xaxis.get_major_locator().set_params(integer=True)
    style.legend_above(axes)
    return figure


def cost(
    sizes: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    size_name: str = "rows n",
    title: str = "Cost against size",
) -> Figure:
    """Cost curves on two logarithmic axes, a panel a kind of cost: {"seconds": {"kway": ..., "other": ...}, ...}.

    A curve through at least two points carries its exponent b, the least-squares slope of log cost over log n:
    cost ~ n^b, the size being called by the last word of `size_name`. Missing measurements are NaN.
    """
    n = np.asarray(sizes, float)
    figure = style.figure(height=3.9 if len(panels) < 2 else 3.6)
    grid = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    colours = dict(zip(names, style.class_colours(len(names))))
    for axes, (cost_name, curves) in zip(grid, panels.items()):
        style.dress(axes, "", size_name, cost_name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for name, values in curves.items():
            label = _with_exponent(name, size_name.split()[-1], exponent(n, values))
            _cost_curve(axes, n, np.asarray(values, float), label, colours[name], names.index(name))
        style.powers(axes.xaxis)
        style.powers(axes.yaxis)
        style.legend_above(axes, columns=2 if len(panels) < 2 else 1)
    style.headline(figure, title)
    return figure


def _with_exponent(name: str, size: str, slope: float | None) -> str:
    """The name of a curve with its exponent, of the size's own letter.

    >>> _with_exponent("weights", "K", 1.0), _with_exponent("lists", "K", -1e-17)
    ('weights:  K^1.00', 'lists:  K^0.00')
    """
    return name if slope is None else f"{name}:  {size}^{round(slope, 2) + 0.0:.2f}"


def _cost_curve(axes: Any, n: NDArray, values: NDArray, label: str, colour: str, code: int) -> None:
    axes.plot(
        n, values, color=colour, linewidth=1.6, marker=style.class_marker(code), markersize=4.5,
        markeredgecolor="white", markeredgewidth=0.5, label=label,
    )  # fmt: skip


def exponent(sizes: ArrayLike, costs: ArrayLike | Sequence[float]) -> float | None:
    """Least-squares slope of log cost over log size; None for fewer than two positive measurements.

    >>> round(exponent([10, 100, 1000], [1.0, 10.0, 100.0]), 6)
    1.0
    """
    n, values = np.asarray(sizes, float), np.asarray(costs, float)
    known = np.isfinite(values) & (values > 0) & (n > 0)
    if len(np.unique(n[known])) < 2:
        return None
    return float(np.polyfit(np.log(n[known]), np.log(values[known]), 1)[0])
