"""Results as files, benchmarks/results/<target>.json with one record per target, and their rows as text.

    {"target": "T1", "seconds": 71.4, "jit_seconds": 14.2, "machine": {...}, "rows": [{...}, ...]}

A row is `race.Row` plus its ratio and whether the goal holds. Older files lack newer fields, which get their default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .race import WITH_FIT, Row

if TYPE_CHECKING:
    from rich.table import Table

FOLDER = Path(__file__).parent / "results"


def save(record: dict[str, Any], folder: Path) -> Path:
    """Write the record of one target; NaN becomes null."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record['target']}.json"
    path.write_text(json.dumps(plain(record), indent=1, allow_nan=False) + "\n")
    return path


def load(target: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Read the record of one target, or None if it was not measured."""
    path = folder / f"{target}.json"
    if not path.exists():
        return None
    record = json.loads(path.read_text())
    return {**record, "rows": [row_of(r) for r in record["rows"]]} if "rows" in record else record


def row_of(saved: dict[str, Any]) -> Row:
    """Return a row from its JSON values."""
    known = {f.name for f in fields(Row)}
    values = {name: value for name, value in saved.items() if name in known}
    for name in ("kway_seconds", "peer_seconds"):
        values[name] = math.nan if values[name] is None else values[name]
    return Row(**values)


def ratios(row: Row) -> list[float]:
    """Return peer / kway per round; the two ran one after the other, so a slow phase affects both."""
    ours, theirs = row.rounds.get("kway", []), row.rounds.get(row.peer, [])
    return [b / a for a, b in zip(ours, theirs)]


def ratio_text(row: Row) -> str:
    """Return the ratio with the spread over the rounds: 21x (19-24)."""
    if math.isnan(row.ratio) or row.unit != "s" or row.peer == "limit":
        return ""
    seen = ratios(row)
    text = f"{short(row.ratio)}x"
    return text if len(seen) < 2 else f"{text} ({short(min(seen))}-{short(max(seen))})"


def figure_text(value: float, unit: str) -> str:
    """Format a time, MB or a slope with three digits."""
    if math.isnan(value):
        return ""
    if unit == "slope":
        return f"{value:.2f}"
    return f"{short(value)} {unit}" if unit != "s" or value >= 0.0995 else f"{short(value * 1000)} ms"


def short(value: float) -> str:
    """Format a number with two digits, or all digits of its whole part.

    >>> short(0.2566), short(0.3), short(4.0), short(20.89), short(755.3)
    ('0.26', '0.30', '4.0', '21', '755')
    """
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def memory_text(row: Row) -> str:
    """Return the MB of kway and of the peer."""
    both = [row.memory.get("kway"), row.memory.get(row.peer)]
    return "" if None in both else " / ".join(short(v) for v in both if v is not None)


def verdict(row: Row) -> str:
    """Return whether the goal is met."""
    if row.missing:
        return "not installed"
    if not row.equal:
        return "quality differs" if row.unit == "s" else "not met"
    return ("met" if row.holds else "not met") if row.least is not None or row.unit != "s" else ""


def aim_text(row: Row) -> str:
    """Return the goal."""
    if row.least is None:
        return ""
    return f"{row.least:g}x" if row.unit == "s" and row.peer != "limit" else ""


COLUMNS = (
    "ratio",
    "id",
    "peer",
    "data",
    "job",
    "kway",
    "peer's time",
    "fit + predict",
    "goal",
    "quality",
    "MB",
    "result",
)
NUMBERS = ("ratio", "kway", "peer's time", "fit + predict", "goal", "MB")


# Wording of earlier records, and the words of benchmarks/jobs/neighbors.py today
OLD_WORDS = {"has its probes tuned, too, to a promise": "tunes its probes too"}


def quality_text(row: Row) -> str:
    """Return the quality in the words that the benchmarks use today."""
    text: str = row.quality
    for old, new in OLD_WORDS.items():
        text = text.replace(old, new)
    return text


def cells(row: Row, whole: Row | None = None) -> tuple[str, ...]:
    """Return a row as text in the order of COLUMNS; the ratio comes first, so that narrow screens show it."""
    ours, theirs = figure_text(row.kway_seconds, row.unit), figure_text(row.peer_seconds, row.unit)
    return (ratio_text(row), row.target, row.peer, row.data, row.job, ours, theirs, whole_text(whole), aim_text(row),
            quality_text(row), memory_text(row), verdict(row))  # fmt: skip


def wholes(rows: Iterable[Row]) -> dict[tuple[str, str, str], Row]:
    """Return the rows that include the build, by job, dataset and peer of the row without it."""
    return {(r.job.removeprefix(WITH_FIT), r.data, r.peer): r for r in rows if r.job.startswith(WITH_FIT)}


def whole_of(row: Row, known: Mapping[tuple[str, str, str], Row]) -> Row | None:
    """Return the row that includes the build, if it was measured at the same quality."""
    found = known.get((row.job, row.data, row.peer))
    return found if found is not None and found.equal and not found.missing else None


def whole_text(row: Row | None) -> str:
    """Return the ratio with the build included, and both times: 4.2x (1.4 s / 5.9 s)."""
    if row is None:
        return ""
    return f"{short(row.ratio)}x ({figure_text(row.kway_seconds, 's')} / {figure_text(row.peer_seconds, 's')})"


def about(row: Row, data: str) -> bool:
    """Return whether a row is about a dataset or a part of it, such as "mnist 20,000 rows"."""
    return row.data == data or row.data.startswith(f"{data} ")


def table(record: dict[str, Any]) -> Table:
    """Return the table of one target for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    jit = record.get("jit_seconds")
    compiled = "" if jit is None else f", kernels compiled in {short(jit)} s apart"
    out = Table(title=f"{record['target']}: peer / kway, medians; {record['seconds']} s in all{compiled}")
    for column in COLUMNS:
        out.add_column(column, justify="right" if column in NUMBERS else "left", no_wrap=column == "ratio")
    rows = [row_of(saved) for saved in record["rows"]]
    known = wholes(rows)
    for row in rows:
        style = "green" if row.holds else "yellow" if row.missing else "red"
        out.add_row(*map(escape, cells(row, whole_of(row, known))[:-1]), f"[{style}]{verdict(row)}")
    return out


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
