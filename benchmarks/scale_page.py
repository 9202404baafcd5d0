"""The figure of docs/scale.md and its list of errors of the plan, from the records of plan, C1, C2 and the GPU.

Lines are predictions of the plan. Filled marks were measured on the same machine, hollow ones on a GPU or with another
number of features, as the legend says. Without a record its marks are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from kway.planning.costs import Cost, Formula, Size, bits, centroids, sampled_softmax, softmax
from kway.planning.rates import Rates
from kway.report import style

from .race import Row
from .records import FOLDER, load

FEATURES, WIDE = 64, 512
CLASSES = np.logspace(1, 8, 29)
BEGIN, END = "<!-- what the plan misses, by python -m benchmarks.render -->\n\n", "\n<!-- end of what it misses -->\n"
PANELS = ("seconds to fit", "GiB while fitting", "seconds per prediction")
_MEMORY = 24e9 / 2**30  # GiB of the machine to plan for


class Line(NamedTuple):
    """An approach of the plan with a number of features, and its number of rows for K classes."""

    name: str
    formula: Formula
    features: int
    rows: Callable[[float], int]
    most: float  # classes at which the line ends


class Mark(NamedTuple):
    """A measured point; None if a value was not measured."""

    name: str
    classes: float
    values: tuple[float | None, float | None, float | None]  # in the order of the panels


def two_each(n_classes: float) -> int:
    """Return the rows of approaches with one row of weights per class."""
    return max(20_000, 2 * int(n_classes))


LINES = (
    Line("softmax", softmax, FEATURES, two_each, 1e5),
    Line("sampled softmax", sampled_softmax, FEATURES, two_each, 1e8),
    Line("centroids", centroids, FEATURES, two_each, 1e8),
    Line("kNN bits", bits, FEATURES, int, 1e8),
    Line(f"kNN bits, {WIDE} features", bits, WIDE, int, 1e8),
)


def picture(folder: Path = FOLDER) -> Figure | None:
    """Draw time and memory against K; None if the plan was not measured."""
    record = load("plan", folder)
    if record is None:
        return None
    saved = record["rows"][0].points["rates"]
    rates = Rates(**{name: saved[name] for name in Rates().record() if name in saved})  # old records have more rates
    figure = style.figure(width=9.4, height=4.4)
    panels = figure.subplots(1, len(PANELS))
    for i, line in enumerate(LINES):
        sizes = CLASSES[line.most >= CLASSES]
        planned = np.array([_costs(line.formula(_size(line, K), rates)) for K in sizes])
        for j, panel in enumerate(panels):
            panel.plot(sizes, planned[:, j], color=style.PALETTE[i], linewidth=1.4, label=line.name if j == 0 else None)
    marks = [*_fits(record["rows"]), *_codes(folder), *_sampled(folder), *_gpu(folder)]
    looks = _looks(marks)
    for mark in marks:
        for panel, value in zip(panels, mark.values):
            if value is not None:
                panel.plot(mark.classes, value, linestyle="", markersize=6, **looks[mark.name])
    _finish(figure, panels, looks)
    return figure


def _looks(marks: list[Mark]) -> dict[str, dict[str, str]]:
    """Return the style of the marks per name: those of a line have its color, others are hollow."""
    looks = {
        line.name: {"color": style.PALETTE[i], "marker": style.MARKERS[i], "markeredgecolor": "white"}
        for i, line in enumerate(LINES)
    }
    others = dict.fromkeys(mark.name for mark in marks if mark.name not in looks)
    hollow = {"color": style.INK, "markerfacecolor": "white"}
    return looks | {name: {**hollow, "marker": style.MARKERS[-1 - i]} for i, name in enumerate(others)}


def _size(line: Line, n_classes: float) -> Size:
    return Size(line.rows(n_classes), line.features, int(n_classes))


def _costs(way: Cost) -> tuple[float, float, float]:
    return way.fit_seconds, way.fit_bytes / 2**30, way.predict_seconds


def _finish(figure: Figure, panels: Any, looks: dict[str, dict[str, str]]) -> None:
    """Add the axes, the memory limit and one legend for all panels."""
    from matplotlib.lines import Line2D

    for panel, what in zip(panels, PANELS):
        panel.set_xscale("log")
        panel.set_yscale("log")
        style.dress(panel, x="classes", y=what)
        style.powers(panel.xaxis)
        style.powers(panel.yaxis)
    panels[1].axhline(_MEMORY, color=style.MUTED, linewidth=1.0, linestyle=":")
    panels[1].text(12, _MEMORY * 1.3, "24 GB", fontsize=style.TINY, color=style.MUTED)
    own = {line.name for line in LINES}
    handles = [
        Line2D([], [], label=name, markersize=6, linestyle="-" if name in own else "", **look)  # type: ignore[arg-type]
        for name, look in looks.items()
    ]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=style.TEXT, labelcolor=style.INK
    )


def _fits(rows: list[Row]) -> Iterator[Mark]:
    """Return the fits of the plan's record that belong to a line."""
    for row in rows:
        said, case = row.points, row.points["case"]
        named = case["way"], case["features"]
        line = next((line for line in LINES if (line.name, line.features) == named), None)
        if row.unit == "s" and line is not None and case["rows"] == line.rows(case["classes"]):
            yield Mark(line.name, case["classes"], (said["seconds"], said["megabytes"] / 1024, said["answer"]))


def _codes(folder: Path) -> Iterator[Mark]:
    """Return the marks of C1: one row per class, as bits."""
    for row in _rows("C1", folder):
        if row.job != "one query":
            continue
        said, n = row.points, _first_number(row.data)
        built = said["build_seconds"] if "build_seconds" in said else n / said["rows_per_second"]
        fit = None if said.get("resumed") else built
        name = "bit cells, 512 features (C1)" if "clustered" in row.data else LINES[-1].name
        yield Mark(name, n, (fit, said["peak"] / 1024, said["one"]))


def _sampled(folder: Path) -> Iterator[Mark]:
    """Return the marks of C2: memory of sampled softmax with a million classes; its seconds are those of one pass."""
    for row in _rows("C2", folder):
        if row.unit == "MB":
            yield Mark(
                "sampled softmax, 1,000 features (C2)", _first_number(row.data), (None, row.kway_seconds / 1024, None)
            )


def _gpu(folder: Path) -> Iterator[Mark]:
    """Return the marks of the GPU: codes of a billion classes, and softmax over all classes."""
    for row in _rows("gpu_search", folder):
        held = re.search(r"; ([\d.]+) GB", row.quality)
        if row.job == "nearest by codes, one query":
            memory = None if held is None else float(held[1]) * 1e9 / 2**30
            yield Mark("bits on a GPU, 512 features", _first_number(row.data), (None, memory, row.kway_seconds))
    for row in _rows("gpu_softmax", folder):
        named = re.search(r"([\d,]+) classes", row.data)
        if "whole fit" in row.job and "all classes" in row.job and named is not None:
            yield Mark("softmax on a GPU, 256 features", _number(named[1]), (row.kway_seconds, None, None))


def _rows(target: str, folder: Path) -> list[Row]:
    record = load(target, folder)
    return [] if record is None else [row for row in record["rows"] if not row.missing and row.kway_seconds > 0]


def _first_number(text: str) -> float:
    return _number(text.split()[0])


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def misses(folder: Path = FOLDER) -> str:
    """Return a table of the errors of the plan."""
    record = load("plan", folder)
    if record is None:
        return ""
    rows = record["rows"]
    wrong = [r for r in rows if not r.equal]
    within = f"{len(rows) // 2} fits were measured: {_share(rows, 's')} within a factor of 2 in time, "
    within += f"{_share(rows, 'MB')} within 20% in memory"
    if not wrong:
        return within + ".\n"
    head = "| approach | rows x features, classes | planned | took |\n|---|---|---|---|\n"
    lines = (
        f"| {r.job} | {r.data} | {_text(r.peer_seconds, r.unit)} | {_text(r.kway_seconds, r.unit)} |" for r in wrong
    )
    return f"{within}. The others:\n\n{head}" + "\n".join(lines) + "\n"


def _share(rows: list[Row], unit: str) -> str:
    own = [r.equal for r in rows if r.unit == unit]
    return f"{sum(own)} of {len(own)}"


def _text(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def put(page: str, folder: Path = FOLDER) -> str:
    """Return the page with the new list."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + misses(folder) + END + rest.split(END)[1]


def write(docs: Path, folder: Path = FOLDER) -> list[Path]:
    """Write the figure, and the list into the page if it exists."""
    from kway.report import style

    drawn, page = picture(folder), docs / "scale.md"
    written = [] if drawn is None else [style.save(drawn, docs / "images" / "bench" / "scaling.svg")]
    if page.exists():
        page.write_text(put(page.read_text(), folder))
        written.append(page)
    return written
