"""Write docs/ladder.md from results/ladder.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kway.report import style

from . import figure
from .figure import duration, speed, times

PICTURES = {"ladder.svg": figure.rungs, "roofline.svg": figure.roofline}


def write(record: dict[str, Any], docs: Path) -> None:
    """Write the page and its figures."""
    images = docs / "images" / "bench"
    images.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        style.save(draw(record), images / name)
    (docs / "ladder.md").write_text(text(record))


def text(record: dict[str, Any]) -> str:
    """Return the page."""
    by_key = {ladder["key"]: ladder for ladder in record["ladders"]}
    parts = [_opening(record), _blas(record, by_key["products"])]
    parts += [_section(ladder, WORDS[ladder["key"]]) for ladder in record["ladders"]]
    return "\n".join([*parts, _closing(record)])


WORDS = {
    "products": "Level 1 is a call from Python for every cell, level 2 for every row, level 3 one for all.",
    "distances": (
        "The loop over pairs pays Python's price for every pair; the loop over rows pays it for every row but writes a "
        "temporary array of all rows each time, which goes through memory. Without a loop the squares are taken apart, "
        "‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b, and the work is one matrix product. `kway.pairwise` is that "
        "product too, and measures again the pairs where the subtraction cancels, so "
        "that equal rows are exactly 0 apart."
    ),
    "logistic": (
        "With two classes the scores are a matrix-vector product: the rows are read from memory for a handful of "
        "operations each, so that full vectorisation ends at the bandwidth. kway's kernel reads each row once, for its "
        "score and for its part of the gradient, where two products read it twice."
    ),
    "softmax": (
        "Ten classes make ten times the work on the same bytes. kway's kernel keeps a few rows in registers between "
        "the two products and computes the exponentials in vectors."
    ),
    "neighbors": (
        "The last rung is not a faster product but less of it: bounds prove of most rows that they cannot be among "
        "the nearest, and their distances are never computed. Its speed counts the distances that it spared."
    ),
}


def _opening(record: dict[str, Any]) -> str:
    steps = [(ladder["title"].lower().partition(",")[0], ladder["rungs"][0]["seconds"] / ladder["rungs"][-1]["seconds"])
             for ladder in record["ladders"]]  # fmt: skip
    said = ", ".join(f"{times(factor)} for the {title}" for title, factor in steps)
    return f"""# The vectorisation ladder

The same work, by loops over single numbers, by vectors, by matrices and by kway's kernels. From the lowest rung to
the highest: {said}. Every rung gives the same answer (checked before it is timed). Interpreted loops do a few rows of
the work and their time is scaled up, which is said at each. `python -m benchmarks ladder` climbs it on your machine.

![Seconds of every rung](images/bench/ladder.svg)
"""


def _blas(record: dict[str, Any], ladder: dict[str, Any]) -> str:
    roof, speeds = record["roofline"], {rung["name"]: rung["gflops"] for rung in ladder["rungs"]}
    peak, memory, cache = roof["peak_gflops"]["float64"], roof["bandwidth_gb"]["memory"], roof["bandwidth_gb"]["cache"]
    level2 = speeds["matrix-vector: BLAS 2"]
    between = ", as its matrix lies in the last level of the cache" if memory < 4 * level2 < cache else ""
    in_c = speeds.get("three loops, compiled (C)")
    same = (
        "No C compiler was there to compare with."
        if in_c is None
        else f"The same loops in C run at {speed(in_c)}: what made Python slow was the interpreter, and what is slow "
        "now is the loop over single numbers, in any language."
    )
    return f"""## Why matrices are fast

The BLAS, the library under numpy, has three levels:

| level | call | operations | numbers read | operations a number |
|---|---|---|---|---|
| 1 | vector with vector (dot) | 2 n | 2 n | 1 |
| 2 | matrix with vector | 2 n² | n² | 2 |
| 3 | matrix with matrix | 2 n³ | 2 n² | n |

A core computes far faster than memory delivers. At levels 1 and 2 every number read serves one or two operations, and
the cores wait; at level 3 each number serves n, so that blocks of the matrices are brought into the cache once and
used many times. That is the *roofline*: no code is faster than the lesser of the peak and bandwidth × operations a
byte. Measured here, on {roof["cores"]} cores: {peak:.0f} GFLOP/s in float64 ({roof["peak_gflops"]["float32"]:.0f} in
float32), {memory:.0f} GB/s from memory and {cache:.0f} GB/s from the cache. At level 2 that allows
{speed(memory / 4)} from memory and {speed(cache / 4)} from the cache, and the matrix-vector rung runs at
{speed(level2)}{between}. At level 1 the cache would allow {speed(cache / 8)}, and a million calls from Python leave
{speed(speeds["dot: BLAS 1"])} of it. The matrix product runs at {speed(speeds["matrix-matrix: BLAS 3"])}.

![Roofline of this machine](images/bench/roofline.svg)

**Is the answer the same in C or Fortran?** Three interpreted loops run at
{speed(speeds["three loops, interpreted"])}; compiled by numba at {speed(speeds["three loops, compiled (numba)"])}.
{same} Each sum waits for the one before it. BLAS keeps many sums in vector registers at once and every number it
has read in the cache.
"""


def _section(ladder: dict[str, Any], words: str) -> str:
    first = ladder["rungs"][0]["seconds"]
    lines = [f"## {ladder['title']}", "", f"{ladder['work'][0].upper()}{ladder['work'][1:]}. {words}".strip(), "",
             "| rung | time | GFLOP/s | times the first |", "|---|---|---|---|"]  # fmt: skip
    for rung in ladder["rungs"]:
        part = "" if rung["rows"] == rung["of"] else f" ({rung['rows']:,} of {rung['of']:,} rows, scaled)"
        note = f"; {rung['note']}" if rung["note"] else ""
        figures = f"{duration(rung['seconds'])} | {float(format(rung['gflops'], '.2g')):g}"
        lines.append(f"| {rung['name']}{part}{note} | {figures} | {times(first / rung['seconds'])} |")
    return "\n".join([*lines, ""])


def _closing(record: dict[str, Any]) -> str:
    m = record["machine"]
    versions = ", ".join(f"{name} {m['versions'][name]}" for name in ("numpy", "numba") if m["versions"].get(name))
    return (
        f"GFLOP/s count the operations of the work as written, whatever a rung really does. Measured on {m['cpu']}, "
        f"{m['cores']} cores, Python {m['python']}, {versions}, in {record['seconds']:.0f} s; medians of three.\n"
    )
