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
    parts = [OPENING, _pictures(records), "## Every row\n", _table(rows), shortfalls.text(rows), _measured(records)]
    return "\n".join(parts)


OPENING = """# Benchmarks

kway beside the libraries people use today: the same work, the same machine, the same quality of the answer. A ratio
is *peer / kway*: how many times longer the peer takes. [The main job](main_job.md) has a page of its own, and so has
[the vectorisation ladder](../ladder.md). `python -m benchmarks` measures all of this again,
`python -m benchmarks --quick` a small part in under two minutes.
"""


def _pictures(records: dict[str, dict[str, Any]]) -> str:
    said = ["![Times faster than each peer](../images/bench/ratios.svg)\n"]
    if "frontier" in records:
        said.append("Speed is worth little without quality. Each line is one library over its settings:\n")
        said.append("![Time against quality](../images/bench/frontier.svg)\n")
    if "T10" in records:
        said.append("How the cost grows with the data; dotted, the slope that theory allows (T10 in the table):\n")
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
    elsewhere = f"- Measured on {_other(first)}: {', '.join(others)}.\n" if others else ""
    versions = ", ".join(f"{name} {v}" for name, v in first.get("versions", {}).items() if v)
    vnni = "AVX-512 VNNI," if first.get("avx512_vnni") else "no AVX-512 VNNI,"
    on = f"; {first['date']}" if "date" in first else ""
    total = sum(record["seconds"] for record in records.values())
    jit = [
        f"{target} {short(record['jit_seconds'])} s" for target, record in records.items() if record.get("jit_seconds")
    ]
    compiled = f" On the first run ever they take, by target: {', '.join(jit)}." if jit else ""
    return f"""## How it was measured

- kway and the peers run in turn, A B A B, in one process; the table has medians, and the spread of the ratio over the
  rounds in brackets. Between two runs there is half a second of rest: threads of OpenMP go on spinning for a while.
- Two threads each. Peers at their best sensible settings; where a solver stops early, it gets more iterations until
  its objective is as low as kway's.
- *fit + predict* counts the build of both sides as well (T1f races it; T3 and T3b add the one build to the search).
- ScaNN, SVS and usearch get several kinds of index each, cyanure three solvers: each is tuned outside the clock until
  it reaches the recall or the objective, and the quickest races. SVS's compressed rows run on Intel's hardware only.
- The quality of both answers is computed before a ratio is quoted; where it differs, the row says so and has no claim.
- kway's kernels are compiled before the clock starts.{compiled}
- MB: the peak of resident memory during the timed call less what was resident before it, kway / peer, each in a
  process of its own.
- The machine: {first.get("cpu", "?")}, {first.get("cores", "?")} cores, {vnni}
  {first.get("memory_gib", "?")} GiB, {first.get("system", "?")}, Python {first.get("python", "?")}; {versions}{on}.
{elsewhere}- All of it takes {total / 60:.0f} minutes; the records are in `benchmarks/results`.
"""


def _has_vnni(machine: dict[str, Any]) -> bool:
    """Return whether the CPU has AVX-512 VNNI; unknown CPUs are assumed to have it."""
    return bool(machine.get("avx512_vnni", True))


def _other(machine: dict[str, Any]) -> str:
    without = "without" if _has_vnni(machine) else "with"
    return f"another day, on a machine {without} AVX-512 VNNI and with the version of that day"


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
