"""The runner of `python -m benchmarks`: measure each target, print its table and save it as JSON.

If a target fails, the failure is reported and the others still run.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import child, datasets, machine, race, records, targets
from .models import NotInstalled
from .race import Row

JOBS = {
    "T1": "exact.t1",
    "T1b": "exact.t1b",
    "T1f": "exact.t1f",
    "T2": "exact.t2",
    "T2b": "exact.t2b",
    "T3": "neighbors.t3",
    "T3b": "recall.t3b",
    "T4": "linear.t4",
    "T4b": "linear.t4b",
    "T4c": "linear.t4c",
    "T4d": "linear.t4d",
    "T4e": "wide.t4e",
    "T5": "tuning.t5",
    "T6": "tuning.t6",
    "T7": "neighbors.t7",
    "T8": "start.t8",
    "T9": "memory.t9",
    "T10": "curves.t10",
    "T11": "whole.t11",
    "C1": "codes.c1",
    "C2": "sampled.c2",
    "C2b": "anchors.c2b",
    "frontier": "frontier.frontier",
    "JOB": "main_job.main_job",
    "plan": "plan.plan",
    "gpu_search": "gpu_search.gpu_search",
    "gpu_softmax": "gpu_softmax.g2",
    "R1": "cluster.r1",
}
GROUPS = {"gpu": tuple(name for name in JOBS if name.startswith("gpu_"))}  # one name for several
BY_NAME_ONLY = (
    "JOB",
    "C1",
    "C2",
    "C2b",
    "plan",
    *GROUPS["gpu"],
    "R1",
)  # these take long or need a GPU or Ray: they run only if named
QUICK = datasets.Limit(rows=1500, queries=500)


@dataclass(frozen=True)
class Plan:
    """How to measure."""

    rounds: int = 5
    quick: bool = False
    memory: bool = True  # a second pass, each contestant in its own process
    classes: int | None = None  # number of classes of C1 and C2; None: all


def job(target: str) -> Callable[[int, bool], list[Row]]:
    """Return the function (rounds, quick) -> rows of one target."""
    module, name = JOBS[target].split(".")
    return getattr(importlib.import_module(f".jobs.{module}", __package__), name)


def measure(target: str, plan: Plan) -> dict[str, Any]:
    """Return the record of one target: rows, machine and seconds, or `error` instead of rows."""
    start = time.perf_counter()
    record: dict[str, Any] = {"target": target, "quick": plan.quick, "machine": machine.facts(), "rows": []}
    datasets.limit(QUICK if plan.quick else None)
    datasets.limit_classes(plan.classes)
    try:
        with tempfile.TemporaryDirectory() as folder:
            record |= _passes(target, plan, Path(folder))
    except NotInstalled as error:  # the job needs this peer
        record["rows"] = [race.absent(target, "all of it", "-", error.package, error).record()]
    except Exception as error:  # the other targets can still be measured
        record["error"] = f"{type(error).__name__}: {error}"
    finally:
        datasets.limit(None)
    return record | {"seconds": round(time.perf_counter() - start, 1)}


def _passes(target: str, plan: Plan, folder: Path) -> dict[str, Any]:
    """Return the rows of the timed pass, with the memory of every contestant if asked."""
    memory = plan.memory and not plan.quick
    pause = race.SHORT_PAUSE if plan.quick else race.PAUSE
    now = race.begin(race.Pass(pause=pause, folder=folder if memory else None))
    rows = job(target)(2 if plan.quick else plan.rounds, plan.quick)
    if not plan.quick and datasets.folder() is not None:  # goals hold for the full real data
        rows = targets.aimed(rows, machine.facts()["avx512_vnni"])
    added = _memory(target, plan, folder, now, rows) if memory and now.races else {}
    missed = [f"{r.job}, {r.data}: {r.quality}" for r in rows if not r.equal]
    return {"rows": [r.record() for r in rows], **({"missed": missed} if missed else {}), **added}


def _memory(target: str, plan: Plan, folder: Path, now: race.Pass, rows: list[Row]) -> dict[str, Any]:
    """Write the working memory of each contestant into its rows; return compile seconds and errors."""
    (folder / "settled.json").write_text(json.dumps(now.settled))
    added: dict[str, Any] = {}
    for contestant in dict.fromkeys(name for names in now.races.values() for name in names):
        try:
            said = child.measure(target, contestant, folder, plan.rounds)
        except RuntimeError as error:  # the times are valid without it
            added.setdefault("notes", []).append(str(error))
            continue
        if contestant == "kway":
            added["jit_seconds"] = said["jit_seconds"]
        for r in rows:
            used = said["megabytes"].get(str(r.race))
            if used is not None and contestant in ("kway", r.peer):
                r.memory[contestant] = round(used, 1)
    return added


def run(targets: Iterable[str], plan: Plan, out: Path | None, tell: Callable[[Any], None]) -> list[dict[str, Any]]:
    """Measure all targets and save each at once; `tell` is called with lines and tables to print."""
    measured = []
    for target in targets:
        record, table = _ladder(plan) if target == "ladder" else (measure(target, plan), records.table)
        measured.append(record)
        if "error" in record:
            tell(f"{target}: failed after {record['seconds']} s: {record['error']}")
            continue
        if out is not None:
            records.save(record, out)
        tell(table(record))
        for line in absent(record):
            tell(f"{target}: {line}")
        for note in record.get("notes", []):
            tell(f"{target}: {note}")
    return measured


def absent(record: dict[str, Any]) -> list[str]:
    """Return one line per peer that is not installed."""
    missing = {row["missing"]: row["peer"] for row in record.get("rows", []) if row.get("missing")}
    return [f"not installed: {peer} (pip install {package})" for package, peer in missing.items()]


def _ladder(plan: Plan) -> tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]:
    """Measure the vectorization ladder, which has rungs instead of peers."""
    from .ladder import record

    return record.measure(plan.quick), record.table
