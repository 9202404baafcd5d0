"""The README's table and chart, made from the records, so that they cannot show what was not measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from .race import WITH_FIT, Row
from .records import FOLDER, about, figure_text, load, short, whole_of, wholes

BEGIN, END = "<!-- this table is made by python -m benchmarks.render -->\n\n", "\n<!-- end of the table -->\n"
HEAD = ("| task | kway | other library | speed-up | including the build |", "|---|---|---|---|---|")


@dataclass(frozen=True)
class Line:
    """One line of the table: a row of the records and the words for it."""

    task: str
    target: str
    data: str  # the dataset's name in the records, or how it begins
    peer: str  # its name in the records
    name: str  # its name in the README
    work: str = ""  # a part of the job's name in the records


LINES = (
    Line("exact 5 nearest neighbors, MNIST", "T1", "mnist", "faiss Flat", "faiss Flat"),
    Line("exact 5 nearest neighbors, CLINC150 embeddings", "T1b", "clinc150", "faiss Flat", "faiss Flat"),
    Line("5 nearest neighbors at recall 0.99, MNIST", "T3b", "mnist", "SVS", "SVS Vamana"),
    Line("softmax regression, MNIST, same objective", "T4", "mnist", "LogisticRegression(lbfgs)", "scikit-learn"),
    Line(
        "tune k-NN, MNIST (50 values of k, 3 kinds of votes)",
        "T6",
        "mnist",
        "GridSearchCV",
        "GridSearchCV, estimated",
    ),
)


def find_row(line: Line, folder: Path = FOLDER) -> Row | None:
    """Return the row of the records that a line shows; None if it was not measured at the same quality."""
    record = load(line.target, folder) or {"rows": []}
    for row in record["rows"]:
        same = about(row, line.data) and row.peer.startswith(line.peer) and line.work in row.job
        if same and row.equal and not row.missing and not row.job.startswith(WITH_FIT):
            return row
    return None


def table(folder: Path = FOLDER) -> list[str]:
    """Return the lines of the table."""
    lines = list(HEAD)
    for line in LINES:
        row = find_row(line, folder)
        if row is not None:
            ours, theirs = figure_text(row.kway_seconds, "s"), _peer_time(row)
            build = _ratio_with_build(line, row, folder)
            lines.append(f"| {line.task} | {ours} | {line.name} {theirs} | {ratio_text(row.ratio)} | {build} |")
    return lines


def _peer_time(row: Row) -> str:
    """Return the time of the other library; from 1,000 s on with two digits, because it is an estimate."""
    seconds = row.peer_seconds
    return figure_text(seconds, "s") if seconds < 1000 else f"about {float(f'{seconds:.2g}'):,.0f} s"


def _ratio_with_build(line: Line, row: Row, folder: Path) -> str:
    records = [load(target, folder) or {"rows": []} for target in (line.target, "T1f")]
    found = whole_of(row, wholes(r for record in records for r in record["rows"]))
    return "" if found is None else ratio_text(found.ratio)


def ratio_text(ratio: float) -> str:
    """Format a ratio with two digits.

    >>> ratio_text(1296.5), ratio_text(34.39), ratio_text(1.98)
    ('about 1,300x', '34x', '2.0x')
    """
    return f"about {float(f'{ratio:.2g}'):,.0f}x" if ratio >= 99.5 else f"{short(ratio)}x"


def replace_table(text: str, folder: Path = FOLDER) -> str:
    """Return the README with the current table between its two marks."""
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return before + BEGIN + "\n".join(table(folder)) + "\n" + END + after


def chart(dark: bool, folder: Path = FOLDER) -> str:
    """Return the chart as SVG: one bar per line of the table, its length the logarithm of the ratio."""
    ink, muted, bar = ("#e6edf3", "#8b949e", "#7c8cf8") if dark else ("#1f2328", "#59636e", "#3f51b5")
    rows = [(line, row) for line in LINES if (row := find_row(line, folder)) is not None]
    widest = max((len(str(int(row.ratio))) for _, row in rows), default=1)  # powers of ten
    parts = [f'<text x="350" y="20" fill="{muted}" font-size="12">speed-up, logarithmic scale</text>']
    for i, (line, row) in enumerate(rows):
        y, width = 56 + 44 * i, max(4.0, 380 * max(0.0, math.log10(row.ratio)) / widest)
        parts.append(f'<text x="0" y="{y}" fill="{ink}" font-size="14">{escape(line.task)}</text>')
        parts.append(f'<text x="0" y="{y + 17}" fill="{muted}" font-size="12">compared with {escape(line.name)}</text>')
        parts.append(f'<rect x="350" y="{y - 13}" width="{width:.0f}" height="24" rx="3" fill="{bar}"/>')
        label = f'<text x="{358 + width:.0f}" y="{y + 4}" fill="{ink}" font-size="14">{ratio_text(row.ratio)}</text>'
        parts.append(label)
    height = 56 + 44 * len(rows)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {height}" font-family="sans-serif" role="img">'
    title = "<title>Speed-up over other libraries (logarithmic scale)</title>"
    return "\n".join([head, title, *parts, "</svg>\n"])


def write_charts(folder: Path) -> list[Path]:
    """Write the light and the dark chart into a folder."""
    paths = []
    for name, dark in (("faster-light.svg", False), ("faster-dark.svg", True)):
        paths.append(folder / name)
        paths[-1].write_text(chart(dark))
    return paths
