"""Figures of cost: seconds or bytes against n on two logarithmic axes, with the exponent of each curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.report import style


def cost(
    sizes: ArrayLike,
    panels: Mapping[str, Mapping[str, ArrayLike]],
    size_name: str = "rows n",
    title: str = "Cost against size",
) -> Figure:
    """Draw cost curves on two logarithmic axes, one panel per kind of cost.

    `panels` has the form {"seconds": {"kway": [...], "other": [...]}, ...}, and missing measurements are NaN. The label
    of a curve with at least two points contains its exponent b, the least-squares slope of log cost over log n, so that
    cost ~ n^b. The last word of `size_name` is the symbol of n in the label.
    """
    n = np.asarray(sizes, float)
    figure = style.figure(height=3.9 if len(panels) < 2 else 3.6)
    grid = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    colors = dict(zip(names, style.class_colors(len(names))))
    for axes, (cost_name, curves) in zip(grid, panels.items()):
        style.dress(axes, "", size_name, cost_name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for name, values in curves.items():
            label = _with_exponent(name, size_name.split()[-1], exponent(n, values))
            _cost_curve(axes, n, np.asarray(values, float), label, colors[name], names.index(name))
        style.powers(axes.xaxis)
        style.powers(axes.yaxis)
        style.legend_above(axes, columns=2 if len(panels) < 2 else 1)
    style.headline(figure, title)
    return figure


def _with_exponent(name: str, size: str, slope: float | None) -> str:
    """Return the name of a curve with its exponent.

    >>> _with_exponent("weights", "K", 1.0), _with_exponent("lists", "K", -1e-17)
    ('weights:  K^1.00', 'lists:  K^0.00')
    """
    return name if slope is None else f"{name}:  {size}^{round(slope, 2) + 0.0:.2f}"


def _cost_curve(axes: Any, n: NDArray, values: NDArray, label: str, color: str, code: int) -> None:
    axes.plot(
        n, values, color=color, linewidth=1.6, marker=style.class_marker(code), markersize=4.5,
        markeredgecolor="white", markeredgewidth=0.5, label=label,
    )  # fmt: skip


def exponent(sizes: ArrayLike, costs: ArrayLike | Sequence[float]) -> float | None:
    """Return the least-squares slope of log cost over log size, or None for fewer than two positive measurements.

    >>> round(exponent([10, 100, 1000], [1.0, 10.0, 100.0]), 6)
    1.0
    """
    n, values = np.asarray(sizes, float), np.asarray(costs, float)
    known = np.isfinite(values) & (values > 0) & (n > 0)
    if len(np.unique(n[known])) < 2:
        return None
    return float(np.polyfit(np.log(n[known]), np.log(values[known]), 1)[0])
