"""`python -m benchmarks.render` writes from benchmarks/results/*.json: docs/benchmarks/index.md, gpu.md and cluster.md,
docs/ladder.md, their figures, the figure and the list of docs/scale.md, and the table of the README. Nothing of it is
written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from . import cluster_page, gpu_page, plots, readme, scale_page, shortfalls, targets
from .race import Row
from .records import COLUMNS, FOLDER, cells, load, short, whole_of, wholes
from .run import GROUPS, JOBS

CHECKOUT = Path(__file__).parents[1]


def write(docs: Path, folder: Path = FOLDER) -> list[Path]:
    """Write the pages and their figures."""
    from kway.report import style

    records = measured(folder)
    images = docs / "images" / "bench"
    images.mkdir(parents=True, exist_ok=True)
    written = [style.save(figure, images / name) for name, figure in plots.drawn(records).items()]
    page = docs / "benchmarks" / "index.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(text(records))
    if "R1" in records:
        written.append(style.save(cluster_page.figure(records["R1"]), images / "shards.svg"))
    on_cluster = page.with_name("cluster.md")
    on_cluster.write_text(cluster_page.text(records.get("R1")))
    on_gpu = page.with_name("gpu.md")
    on_gpu.write_text(gpu_page.text(gpu_page.measured(folder)))
    written += scale_page.write(docs, folder)
    ladder = load("ladder", folder)
    if ladder is not None:
        from .ladder import page as ladder_page

        ladder_page.write(ladder, docs)
        written.append(docs / "ladder.md")
    return [*written, page, on_gpu, on_cluster]


def measured(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Return the records that exist, in the order of the targets, with the current goals."""
    found = {target: load(target, folder) for target in JOBS if target not in GROUPS["gpu"]}  # another machine
    return {
        target: {**record, "rows": targets.aimed(record["rows"], _has_vnni(record.get("machine", {})))}
        for target, record in found.items()
        if record is not None
    }


def text(records: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    rows = [r for target, record in records.items() if target != "frontier" for r in record["rows"]]
    parts = [
        OPENING,
        _pictures(records),
        "## All measurements\n",
        _table(rows),
        shortfalls.text(rows),
        _measured(records),
    ]
    return "\n".join(parts)


OPENING = """# Benchmarks

These benchmarks compare kway with other libraries (*peers*) on the same task, on the same machine and at the same
quality. Each ratio is the time of the peer divided by the time of kway. See also [one command against tuned
classifiers](main_job.md) and [the vectorization ladder](../ladder.md). `python -m benchmarks` repeats all measurements;
`python -m benchmarks --quick` runs a small part in less than two minutes.
"""


def _pictures(records: dict[str, dict[str, Any]]) -> str:
    said = ["![Times faster than each peer](../images/bench/ratios.svg)\n"]
    if "frontier" in records:
        said.append("Time against quality. Each line shows one library with different settings:\n")
        said.append("![Time against quality](../images/bench/frontier.svg)\n")
    if "T10" in records:
        said.append(
            "Time and memory as the data grows. Dotted lines show the slope that theory predicts (T10 in the table):\n"
        )
        said.append("![Time and memory against n, d and K](../images/bench/curves.svg)\n")
    return "\n".join(said)


def _table(rows: list[Row]) -> str:
    known = wholes(rows)
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines = ["| " + " | ".join(cell.replace("|", "/") for cell in cells(r, whole_of(r, known))) + " |" for r in rows]
    return "\n".join([*head, *lines]) + "\n"


def _measured(records: dict[str, dict[str, Any]]) -> str:
    first = next(iter(records.values())).get("machine", {}) if records else {}
    others = [target for target, record in records.items() if _has_vnni(record.get("machine", {})) != _has_vnni(first)]
    elsewhere = f"- Measured {_other(first)}: {', '.join(others)}.\n" if others else ""
    versions = ", ".join(f"{name} {v}" for name, v in first.get("versions", {}).items() if v)
    vnni = "AVX-512 VNNI," if first.get("avx512_vnni") else "no AVX-512 VNNI,"
    on = f"; {first['date']}" if "date" in first else ""
    total = sum(record["seconds"] for record in records.values())
    jit = [
        f"{target} {short(record['jit_seconds'])} s" for target, record in records.items() if record.get("jit_seconds")
    ]
    compiled = f" The first compilation on a machine takes, by target: {', '.join(jit)}." if jit else ""
    return f"""## How it was measured

- kway and the peers take turns in one process (A B A B). The table shows medians, and in parentheses the range of the
  ratio over the rounds. Half a second passes between two runs, because OpenMP threads keep spinning for a while.
- Every library uses two threads. Peers use their best reasonable settings. If a solver of a peer stops early, it gets
  more iterations until its objective is as low as that of kway.
- *fit + predict* includes the time to build the index. T1f measures both together; T3 and T3b add the build time to the
  search time.
- ScaNN, SVS and usearch are tried with several kinds of index, and cyanure with three solvers. Each is tuned before the
  measurement until it reaches the required recall or objective, and the fastest one is timed. SVS compresses rows only
  on Intel hardware.
- The quality of both results is compared first. If it differs, the row is marked "quality differs", and its ratio does
  not count.
- kway's kernels are compiled before the measurement.{compiled}
- MB: peak resident memory during the timed call minus the resident memory before it, kway / peer, each measured in a
  separate process.
- Machine: {first.get("cpu", "?")}, {first.get("cores", "?")} cores, {vnni}
  {first.get("memory_gib", "?")} GiB, {first.get("system", "?")}, Python {first.get("python", "?")}; {versions}{on}.
{elsewhere}- All measurements together take {total / 60:.0f} minutes. The records are in `benchmarks/results`.
"""


def _has_vnni(machine: dict[str, Any]) -> bool:
    """Return whether the CPU has AVX-512 VNNI; unknown CPUs are assumed to have it."""
    return bool(machine.get("avx512_vnni", True))


def _other(machine: dict[str, Any]) -> str:
    without = "without" if _has_vnni(machine) else "with"
    return f"earlier, on a machine {without} AVX-512 VNNI and with an earlier version of kway"


def main() -> int:
    """Write everything into the checkout."""
    for path in write(CHECKOUT / "docs"):
        print(path.relative_to(CHECKOUT))
    page = CHECKOUT / "README.md"
    if readme.BEGIN in page.read_text():
        page.write_text(readme.replace_table(page.read_text()))
        print("README.md")
    for path in readme.write_charts(CHECKOUT / "docs" / "images" / "bench"):
        print(path.relative_to(CHECKOUT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
