"""Goals that are not met, and why: a section of the benchmarks page.

Each line has the measured ratio, the goal and the reason. The reason comes from the record (the share of the build, the
iterations of a peer) or from WHY.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import targets
from .race import WITH_FIT, Row
from .records import about, figure_text, short, verdict

_PROVEN = (
    "Exact search in cells takes 40 microseconds per query and thread. A fifth of it is the projection of the query "
    "and the choice of cells, a fifth the products with 2,100 rows, an eighth the second filter of 110 rows, and a "
    "third the distances of 30 rows in float64, which read the query again in every cell."
)
_NARROW = (
    "Measured on a CPU without AVX-512. AVX2 scans bytes at about 60% of the speed, while the matrix product of faiss "
    "loses only a third of its speed."
)
_NO_CLASS = (
    "kway's search is exact. A fifth of the queries belong to no class and are far from every row. The bounds leave "
    "3,300 of 15,100 rows for them, but 170 rows for other queries, so these queries take two fifths of the time."
)
_PROOF = (
    "A fit computes 6 or 7 gradients, close to the peak speed of two cores. It also computes three products with the "
    "Hessian, a quarter of its time, which prove how close the optimum is; version 0.1.0 did not."
)
_GRADIENTS = (
    "A gradient of 60,000 images takes 22 ms without AVX-512 and 12 ms with it. Gradients are half of a fit; the other "
    "half is a first fit on 7,000 images and one matrix factorization per class."
)
_BOUNDED = "A seventh of the time computes a bound of the remaining error, which version 0.1.0 did not compute."
_CLOSED = "A third of the steps close the duality gap; version 0.1.0 stopped at an estimate instead."
_EARLY = (
    "cyanure stops after the first number of passes that is within the tolerance, slightly above the objective of "
    "kway. The tenth of a second of kway is a first fit on some rows, factorizations for 26 classes and a dozen passes."
)

# (target, dataset, peer) -> reason; an empty name stands for any
WHY = {
    ("T1", "", ""): _NARROW,
    ("T1b", "", ""): _NARROW,
    ("T1b", "clinc150", ""): _NO_CLASS,
    ("T1f", "", ""): _NARROW,
    ("T2", "", ""): "Measured on a CPU without AVX-512, which sums 32 differences of bytes at a time instead of 64.",
    ("T2b", "clinc150", ""): _NO_CLASS,
    ("T3", "mnist", "hnswlib"): _PROVEN,
    ("T3b", "mnist", ""): _PROVEN,
    ("T3b", "clinc150", ""): _NO_CLASS,
    ("T4", "mnist", ""): _GRADIENTS,
    ("T4b", "letter", "cyanure"): _EARLY,
    ("T4b", "letter, standardized", "cyanure"): _EARLY,
    ("T4b", "banking77", ""): _PROOF,
    ("T4b", "clinc150", ""): _PROOF,
    ("T4c", "", ""): _BOUNDED,
    ("T4d", "mnist", ""): _CLOSED,
    ("T8", "", ""): "Raw pixels are separable at the default alpha, so the fit needs 200 iterations, half of the time.",
    ("T10", "", ""): "Exact search first scans 253 of 256 features, but only 381 of 512. About 2,000 of 20,000 rows "
    "pass this filter instead of 38, so the time grows faster than theory predicts.",
}


def text(rows: list[Row]) -> str:
    """Return the section: how many goals hold, those that do not, and those not measured."""
    goals = [r for r in rows if r.least is not None or r.unit != "s"]
    bad = [r for r in rows if not r.holds and not r.missing]
    missing = [r for r in rows if r.missing]
    held = sum(r.holds for r in goals)
    others = " The others, and measurements whose quality differs:" if bad else ""
    said = [f"## Goals that are not met\n\n{held} of {len(goals)} goals are met.{others}\n"]
    said += [_line(r, rows) for r in bad]
    said.append("")
    if missing:
        said.append(f"Not installed, so not measured: {_named(missing)}.\n")
    later = dict.fromkeys(f"{g.target} {g.where}, {g.peer} ({g.least:g}x)" for g in targets.unmeasured(rows))
    if later:
        said.append(f"Not measured yet: {'; '.join(later)}.")
    return "\n".join(said).rstrip() + "\n"


def _named(rows: Iterable[Row]) -> str:
    """Return each missing peer once, with its targets."""
    targets: dict[str, list[str]] = {}
    for r in rows:
        targets.setdefault(f"{r.peer} (`pip install {r.missing}`)", []).append(r.target)
    return "; ".join(f"{peer} in {', '.join(dict.fromkeys(at))}" for peer, at in targets.items())


def _line(row: Row, rows: list[Row]) -> str:
    where = f"- **{row.target}** {row.job}, {row.data}, against {row.peer}: {_reached(row)}."
    return " ".join([where, *_reasons(row, rows)])


def _reached(row: Row) -> str:
    if row.unit != "s" or not row.equal:
        return f"{verdict(row)} ({row.quality})"
    if row.peer == "limit":
        return f"{figure_text(row.kway_seconds, 's')}; limit {figure_text(row.peer_seconds, 's')}"
    return f"{row.ratio:.3g}x; goal {row.least:g}x ({row.quality})"


def _reasons(row: Row, rows: list[Row]) -> list[str]:
    said = []
    build = row.points.get("build")
    if build:
        ours, theirs = figure_text(build["kway"], "s"), figure_text(build[row.peer], "s")
        whole = figure_text(row.kway_seconds, "s")
        said.append(f"Building the index takes {ours} of the {whole} of kway, and {theirs} with {row.peer}.")
    alone = next((r for r in rows if WITH_FIT + r.job == row.job and (r.data, r.peer) == (row.data, row.peer)), None)
    if alone is not None and alone.equal:
        said.append(f"The search alone reaches {short(alone.ratio)}x.")
    for (target, data, peer), why in WHY.items():
        if target == row.target and (not data or about(row, data)) and peer in ("", row.peer):
            said.append(why)
    return said
