"""The figures of the benchmarks page."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kway.report import style

from .race import WITH_FIT, Row
from .records import ratios, short

APART = ("frontier", "C2b", "R1")  # these have a figure or a page of their own
AXES = {"n": "rows or queries", "d": "features", "K": "classes"}


def ratio_bars(rows: list[Row]) -> Figure:
    """Draw peer / kway of every row as a bar with the spread over the rounds and a mark at the goal."""
    rows = [r for r in rows if r.unit == "s" and r.equal and not r.missing and r.peer not in ("limit", "plan")]
    figure = style.figure(width=8.0, height=0.9 + 0.21 * max(1, len(rows)))
    axes = figure.subplots()
    places = np.arange(len(rows))
    values = np.array([r.ratio for r in rows])
    colors = [style.ACCENT if r.holds else style.CONTRAST for r in rows]
    axes.barh(places, values - 0.5, left=0.5, height=0.66, color=colors)
    seen = [ratios(r) or [r.ratio] for r in rows]
    aimed = [(place, r.least) for place, r in zip(places, rows) if r.least is not None]
    axes.hlines(places, [min(s) for s in seen], [max(s) for s in seen], color=style.INK, linewidth=1.2)
    axes.vlines([x for _, x in aimed], [y - 0.4 for y, _ in aimed], [y + 0.4 for y, _ in aimed], style.INK, lw=2.2)
    for place, r, spread in zip(places, rows, seen):
        end = max(*spread, r.ratio, r.least or 0.0)
        axes.text(end * 1.12, place, f"{short(r.ratio)}x", va="center", fontsize=style.TINY)
    axes.axvline(1.0, color=style.MUTED, linewidth=1.0)
    axes.set_xscale("log")
    axes.set_xlim(0.5, 2.4 * max(10.0, values.max(initial=1.0)))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(places, _labels(rows))
    style.dress(axes, "Times faster than the peer (thick tick: goal)", "peer / kway", grid="x")
    axes.tick_params(axis="y", labelsize=style.TINY, left=False)
    style.powers(axes.xaxis)
    figure.set_layout_engine("constrained", w_pad=0.3)  # a browser may have wider letters
    return figure


def _labels(rows: list[Row]) -> list[str]:
    """Return target, data and peer per row, and the job if two rows would have the same label."""
    about = [f"{r.target}  {style.shorten(r.data, 18)}" for r in rows]
    plain = [f"{what}, {style.shorten(r.peer, 30)}" for what, r in zip(about, rows)]
    return [
        text if plain.count(text) == 1 else f"{what}, {_work(r)}, {style.shorten(r.peer, 22)}"
        for text, what, r in zip(plain, about, rows)
    ]


def _work(row: Row) -> str:
    """Return a job in a word or two."""
    if row.job.startswith(WITH_FIT) and row.target != "T1f":  # every row includes the build
        return "fit + predict"
    return style.shorten(row.job.removeprefix(WITH_FIT).split(" k=")[0].split(", votes")[0], 22)


def frontier(rows: list[Row]) -> Figure:
    """Draw time against quality, one panel per job and one line per contestant; the best is at the lower right."""
    jobs = list(dict.fromkeys(r.job for r in rows))
    figure = style.figure(width=8.0, height=3.4 * len(jobs) + 0.2)
    for axes, job in zip(figure.subplots(len(jobs), 1, squeeze=False)[:, 0], jobs):
        chosen = [r for r in rows if r.job == job and not r.missing]
        for i, r in enumerate(chosen):
            p = r.points
            axes.plot(
                p["quality"], p["seconds"], color=style.PALETTE[i % 10], marker=style.MARKERS[i % 10], markersize=5,
                linewidth=1.4, linestyle="-" if len(p["seconds"]) > 1 else "", label=r.peer,
            )  # fmt: skip
        axes.set_yscale("log")
        style.dress(axes, job, chosen[0].points["what"], "seconds")
        style.powers(axes.yaxis)
        style.legend(axes, ncols=2)
    return figure


def curves(rows: list[Row]) -> Figure:
    """Draw time and memory against n, d and K; dotted lines have the slope of theory."""
    figure = style.figure(width=9.0, height=6.6)
    panels = figure.subplots(2, 3, squeeze=False)
    jobs = list(dict.fromkeys(_job(r) for r in rows))
    for column, axis in enumerate(AXES):
        for r in (r for r in rows if r.points["axis"] == axis):
            i, p = jobs.index(_job(r)), r.points
            look = {"color": style.PALETTE[i % 10], "marker": style.MARKERS[i % 10], "markersize": 4, "linewidth": 1.3}
            panels[0, column].plot(p["sizes"], p["seconds"], **look)
            x = np.asarray(p["sizes"], float)
            bound = p["seconds"][-1] * (x / x[-1]) ** r.peer_seconds
            panels[0, column].plot(x, bound, color=style.PALETTE[i % 10], linewidth=0.9, linestyle=":")
            panels[1, column].plot(p["sizes"], np.maximum(p["megabytes"], 0.1), **look)
        for panel, what in zip(panels[:, column], ("seconds", "MB above the data")):
            panel.set_xscale("log")
            panel.set_yscale("log")
            style.dress(panel, x=AXES[axis], y=what if column == 0 else "")
            style.powers(panel.xaxis)
            style.powers(panel.yaxis)
    _name(figure, jobs)
    return figure


def _name(figure: Figure, jobs: list[str]) -> None:
    """Add the legend of all panels below them."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=style.PALETTE[i % 10], marker=style.MARKERS[i % 10], markersize=4, label=job)
        for i, job in enumerate(jobs)
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=style.TEXT)


def _job(row: Row) -> str:
    return row.job.rpartition(", against ")[0]


def drawn(records: dict[str, dict[str, Any]]) -> dict[str, Figure]:
    """Return every figure whose records exist, by file name."""
    rows = [r for record in records.values() for r in record["rows"]]
    out = {"ratios.svg": ratio_bars([r for r in rows if r.target not in APART])}
    if "frontier" in records:
        out["frontier.svg"] = frontier(records["frontier"]["rows"])
    if "T10" in records:
        out["curves.svg"] = curves(records["T10"]["rows"])
    return out
