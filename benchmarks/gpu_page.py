"""Write docs/benchmarks/gpu.md from the records of `python -m benchmarks gpu`, measured on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .records import FOLDER, figure_text, load, ratio_text, verdict
from .run import GROUPS

OPENING = """# On a GPU

Results of `python -m benchmarks gpu`. Times are medians on the GPU; ids and predictions are checked in the same run. If
the comparison is a *limit*, its time is the goal. See also [how to use a GPU](../howto/gpu.md).
"""
COLUMNS = ("job", "data", "kway", "compared with", "time or limit", "ratio", "quality", "result")


def measured(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Return the records that exist."""
    found = {target: load(target, folder) for target in GROUPS["gpu"]}
    return {target: record for target, record in found.items() if record is not None}


def text(records: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    return "\n".join([OPENING, *(_part(target, record) for target, record in records.items())])


def _part(target: str, record: dict[str, Any]) -> str:
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines = [
        f"| {r.job} | {r.data} | {figure_text(r.kway_seconds, r.unit)} | {r.peer} "
        f"| {figure_text(r.peer_seconds, r.unit)} | {ratio_text(r)} | {r.quality} | {verdict(r)} |"
        for r in record["rows"]
    ]
    return "\n".join([f"## {target}\n", *head, *lines, "", _machine(record), ""])


def _machine(record: dict[str, Any]) -> str:
    """Return the GPU and the machine, as text."""
    said = next((r.points["machine"] for r in record["rows"] if "machine" in r.points), {})
    versions = ", ".join(f"{name} {said[name]}" for name in ("driver", "cuda", "torch", "triton") if name in said)
    around = record["machine"]
    return f"{said.get('gpu', 'A GPU')}, {versions}; {around['cpu']}, {around['cores']} cores; {around['date']}."
