"""Run the measurements, print the table, write benchmarks/results/<target>.json.

python -m benchmarks.run               every target
python -m benchmarks.run --only T4     one or several
python -m benchmarks.run --quick       fewer rounds and rows
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import datasets, machine

JOBS = {
    "T1": "neighbors.t1",
    "T1b": "neighbors.t1b",
    "T2": "neighbors.t2",
    "T2b": "neighbors.t2b",
    "T3": "neighbors.t3",
    "T4": "linear.t4",
    "T4b": "linear.t4b",
    "T4c": "linear.t4c",
    "T4d": "linear.t4d",
    "T7": "neighbors.t7",
    "T8": "start.t8",
}
RESULTS = Path(__file__).parent / "results"


def run(target: str, rounds: int, quick: bool) -> list:
    """Rows of one target."""
    module, name = JOBS[target].split(".")
    return getattr(importlib.import_module(f"benchmarks.jobs.{module}"), name)(rounds, quick)


def table(rows: list) -> Table:
    """What people read: ratio peer / kway beside what was aimed at and the quality of both."""
    out = Table(title="peer / kway, medians; more is better")
    for column in ("id", "job", "data", "peer", "kway s", "peer s", "ratio", "aim", "quality", ""):
        out.add_column(column, justify="right" if column in ("kway s", "peer s", "ratio", "aim") else "left")
    for r in rows:
        aim = "" if r.least is None else f"{r.least:g}x"
        mark = "[green]holds" if r.holds else "[red]short" if r.equal else "[red]quality differs"
        seconds = f"{r.kway_seconds:.4g}", f"{r.peer_seconds:.4g}"
        out.add_row(r.target, r.job, r.data, r.peer, *seconds, f"{r.ratio:.1f}x", aim, r.quality, mark)
    return out


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(JOBS), default=list(JOBS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-save", action="store_true", help="print only")
    chosen = parser.parse_args(arguments)
    console = Console(width=180)
    if datasets.folder() is None:
        console.print("KWAY_DATA is not set: embedded and synthetic data stand in, and nothing is saved")
    everything = []
    for target in chosen.only:
        start = time.perf_counter()
        try:
            rows = run(target, 2 if chosen.quick else chosen.rounds, chosen.quick)
        except ModuleNotFoundError as missing:
            console.print(
                f"[yellow]{target}: not measured, {missing.name} is not installed (pip install kway\\[bench])"
            )
            continue
        everything += rows
        console.print(table(rows))
        if datasets.folder() is not None and not chosen.quick and not chosen.no_save:
            record = {"target": target, "seconds": round(time.perf_counter() - start, 1), "machine": machine.facts(),
                      "rows": [r.record() for r in rows]}  # fmt: skip
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / f"{target}.json").write_text(json.dumps(record, indent=1) + "\n")
    short = [r for r in everything if not r.holds]
    console.print(f"{len(everything) - len(short)} of {len(everything)} rows hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
