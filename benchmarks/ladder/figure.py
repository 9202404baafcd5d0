"""Figures of the ladder: seconds per rung, and the rungs of the matrix product below the roofline."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kway.report import style

OURS = "kway"


def rungs(record: dict[str, Any]) -> Figure:
    """Draw one panel per ladder with one bar per rung, on a logarithmic axis, with the factor over the first rung."""
    ladders = record["ladders"]
    heights = [len(ladder["rungs"]) for ladder in ladders]
    figure = style.figure(width=8.0, height=0.6 + 0.3 * sum(heights) + 0.62 * len(ladders))
    panels = figure.subplots(len(ladders), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, ladder in zip(panels, ladders):
        _panel(axes, ladder)
    panels[-1].set_xlabel("seconds for the whole work (logarithmic)", fontsize=style.TEXT, color=style.INK)
    return figure


def _panel(axes: Any, ladder: dict[str, Any]) -> None:
    found = ladder["rungs"]
    seconds = np.array([rung["seconds"] for rung in found])
    places = np.arange(len(found))
    low = seconds.min() / 3
    colors = [style.CONTRAST if OURS in rung["name"] else style.ACCENT for rung in found]
    axes.barh(places, seconds - low, left=low, height=0.62, color=colors)
    axes.set_xscale("log")
    axes.set_xlim(low, seconds.max() * 8)
    for place, rung, spent in zip(places, found, seconds):
        scaled = "" if rung["rows"] == rung["of"] else " (scaled)"
        said = f"{duration(spent)}{scaled}, {times(seconds[0] / spent)}" if place else f"{duration(spent)}{scaled}"
        axes.text(spent * 1.1, place, said, va="center", fontsize=style.TEXT, color=style.INK)
    axes.set_yticks(places, [rung["name"] for rung in found])
    axes.invert_yaxis()
    style.dress(axes, title=f"{ladder['title']}: {ladder['work']}", grid="x")
    style.powers(axes.xaxis)


def roofline(record: dict[str, Any], key: str = "products") -> Figure:
    """Draw speed against intensity in float64: the roofline and the rungs of one ladder."""
    roof = record["roofline"]
    peak = roof["peak_gflops"]["float64"]
    ladder = next(ladder for ladder in record["ladders"] if ladder["key"] == key)
    figure = style.figure(width=7.0, height=4.4)
    axes = figure.subplots()
    x = np.logspace(-1.4, 3, 200)
    for place, color in (("cache", style.FAINT), ("memory", style.INK)):
        line = np.minimum(peak, roof["bandwidth_gb"][place] * x)
        axes.plot(x, line, color=color, linewidth=1.5, label=f"{place}: {roof['bandwidth_gb'][place]:.0f} GB/s")
    for i, rung in enumerate(ladder["rungs"]):
        axes.plot(
            rung["intensity"], rung["gflops"], linestyle="", marker=style.MARKERS[i], color=style.PALETTE[i],
            markersize=8, label=f"{rung['name']}: {speed(rung['gflops'])}",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.dress(
        axes, f"Roofline of {roof['cores']} cores: {ladder['title'].lower()}, peak {peak:.0f} GFLOP/s in float64",
        "operations for each byte moved", "GFLOP/s",
    )  # fmt: skip
    style.powers(axes.xaxis)
    style.powers(axes.yaxis)
    style.legend(axes, loc="lower right")
    return figure


def duration(seconds: float) -> str:
    """Format a time.

    >>> duration(95.0), duration(2.5), duration(0.0031), duration(4.2e-5)
    ('95 s', '2.5 s', '3.1 ms', '42 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def times(ratio: float) -> str:
    """Format a speed-up.

    >>> times(12345.0), times(3.21)
    ('12,000x', '3.2x')
    """
    rounded = float(f"{ratio:.2g}")
    return f"{rounded:,.0f}x" if rounded >= 10 else f"{rounded:.1f}x"


def speed(gflops: float) -> str:
    """Format GFLOP/s with two digits."""
    return f"{float(f'{gflops:.2g}'):g} GFLOP/s"
