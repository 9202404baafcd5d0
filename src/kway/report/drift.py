"""Draw how columns changed since training: the share of rows per bin, in training rows and in new rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kway.auto.drift import Drift
from kway.report import style
from kway.report.page import template
from kway.tables.outputs import replacing


def draw_drift(drift: Drift, max_columns: int = 8) -> Figure:
    """Draw the columns with the lowest p-values, two per line.

    Parameters
    ----------
    drift : Drift
        Comparison of new rows with the training rows.
    max_columns : int, default=8
        Maximum number of columns to draw.

    Returns
    -------
    matplotlib.figure.Figure
        Figure with one panel per column.
    """
    columns = drift.columns[:max_columns]
    lines = max(1, -(-len(columns) // 2))
    figure = style.figure(height=2.5 * lines + 0.4)
    panels = figure.subplots(lines, 2, squeeze=False).ravel()
    for axes in panels[len(columns) :]:
        axes.set_visible(False)
    for axes, column in zip(panels, columns):
        positions = np.arange(len(column.bins))
        note = f"p = {column.adjusted:.2g}" if column.adjusted < drift.level else "no drift"
        style.dress(axes, f"{style.shorten(column.name)} ({note})", "", "share of rows", grid="y")
        axes.bar(positions - 0.2, column.before, 0.4, color=style.FAINT, label="training")
        axes.bar(positions + 0.2, column.after, 0.4, color=style.ACCENT, label="new")
        step = max(1, -(-len(positions) // 6))
        names = [style.shorten(label, 14) for label in column.bins]
        axes.set_xticks(positions[::step], names[::step], rotation=30, ha="right")
    if columns:
        style.legend(panels[0])
    return figure


def save_drift(drift: Drift, path: Path) -> None:
    """Write the figure to a .svg, .png or .html file."""
    figure = draw_drift(drift)
    if path.suffix.lower() not in (".html", ".htm"):
        style.save(figure, path)
        return
    svg = style.to_svg(figure, "Drift of columns")
    page = template("drift.html").render(text=drift.headline(), svg=svg)
    with replacing(path) as draft:
        draft.write_text(page, encoding="utf-8")
