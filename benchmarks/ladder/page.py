"""Write docs/ladder.md from results/ladder.json."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from kway.report import style

from . import compiled, distances, figure, gradients, neighbors, products
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
    "products": "Level 1 calls BLAS once per element of the result, level 2 once per row, and level 3 once.",
    "distances": (
        "The loop over pairs has the overhead of Python for every pair. The loop over rows has it for every row, but "
        "writes a temporary array of all rows to memory each time. Without a loop, the square is expanded, "
        "‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b, and one matrix product does the work. `kway.pairwise` uses this product too. "
        "If the subtraction cancels, it computes the distance of the pair directly, so that the distance of equal rows "
        "is exactly 0."
    ),
    "logistic": (
        "With two classes, the scores are a matrix-vector product with few operations per number, so memory bandwidth "
        "limits full vectorization. Two products read each row twice. kway's kernel reads it once, for its score and "
        "for its part of the gradient."
    ),
    "softmax": (
        "With ten classes, a gradient needs ten times as many operations on the same bytes. Full vectorization reads "
        "the rows twice, once for the scores and once for the gradient. kway's kernel takes 32 rows at a time. It "
        "computes their scores, the exponentials and their part of the gradient while the rows are in the cache. The "
        "sums are kept in registers, and the exponentials are computed with vector instructions."
    ),
    "neighbors": (
        "The last rung computes fewer distances instead of computing them faster. Bounds prove that most rows cannot "
        "be among the nearest, so their distances are not computed. Its GFLOP/s include the distances that it skips."
    ),
}


C_LOOPS = "three loops, compiled (C)"
CODE: dict[str, dict[str, Any]] = {  # key of a ladder -> name of a rung -> the function that it runs
    "products": {
        "three loops, interpreted": products.scalar,
        "three loops, compiled (numba)": compiled.numba_product.__wrapped__,
        "dot: BLAS 1": products.dots,
        "matrix-vector: BLAS 2": products.matrix_vector,
        "matrix-matrix: BLAS 3": products.matrix_matrix,
    },
    "distances": {
        "three loops, interpreted": distances.scalar,
        "two loops over rows": distances.two_loops,
        "one loop": distances.one_loop,
        "no loop": distances.no_loop,
    },
    "logistic": {
        "loops over numbers, interpreted": gradients.logistic_scalar,
        "half: a loop over rows": gradients.logistic_half,
        "full: two products": gradients.logistic_full,
        "kway's kernel": gradients.kway_gradient,
    },
    "softmax": {
        "loops over numbers, interpreted": gradients.softmax_scalar,
        "half: a loop over rows": gradients.softmax_half,
        "full: two products": gradients.softmax_full,
        "kway's kernel": gradients.kway_gradient,
    },
    "neighbors": {
        "loops over numbers, interpreted": neighbors.scalar,
        "one loop over queries": neighbors.one_loop,
        "no loop: one product": neighbors.no_loop,
        "kway's exact index": neighbors.engine,
    },
}


def _opening(record: dict[str, Any]) -> str:
    steps = [(ladder["title"].lower().partition(",")[0], ladder["rungs"][0]["seconds"] / ladder["rungs"][-1]["seconds"])
             for ladder in record["ladders"]]  # fmt: skip
    said = ", ".join(f"{times(factor)} for the {title}" for title, factor in steps)
    return f"""# The vectorization ladder

Three rules make numerical Python fast: call a library function instead of writing a loop, work on whole arrays instead
of elements, and prefer operations that use each number many times. *Broadcasting* repeats a small array along an axis
without copying it: `X - mean` subtracts one row of means from every row, and `squares[:, None] + squares` has an entry
per pair.

The same task, computed with loops over single numbers, with vectors, with matrices and with kway's kernels (*rungs*).
Speedup of the last rung over the first: {said}. Every rung computes the same result, which is checked before it
is timed. Interpreted loops run on a few rows and their time is scaled up; the tables mark them as scaled. The code of
each rung is folded below its table.
`python -m benchmarks ladder` runs the ladder on your machine.

![Seconds of every rung](images/bench/ladder.svg)
"""


def _blas(record: dict[str, Any], ladder: dict[str, Any]) -> str:
    roof, speeds = record["roofline"], {rung["name"]: rung["gflops"] for rung in ladder["rungs"]}
    peak, memory, cache = roof["peak_gflops"]["float64"], roof["bandwidth_gb"]["memory"], roof["bandwidth_gb"]["cache"]
    level1, level2, level3 = (
        speeds[name] for name in ("dot: BLAS 1", "matrix-vector: BLAS 2", "matrix-matrix: BLAS 3")
    )
    between = ", because its matrix is in the last level of the cache" if memory < 4 * level2 < cache else ""
    in_c = speeds.get("three loops, compiled (C)")
    same = (
        "There was no C compiler to compare with."
        if in_c is None
        else f"In C, they run at {speed(in_c)}. So the interpreter makes Python slow, and the remaining limit "
        "is the loop over single numbers, in any language."
    )
    return f"""## Why matrices are fast

BLAS, the library that numpy uses, has three levels:

| level | call | operations | numbers read | operations per number |
|---|---|---|---|---|
| 1 | vector with vector (dot) | 2 n | 2 n | 1 |
| 2 | matrix with vector | 2 n² | n² | 2 |
| 3 | matrix with matrix | 2 n³ | 2 n² | n |

A core computes much faster than memory delivers numbers. At levels 1 and 2, every number that is read is used in one or
two operations, and the cores wait. At level 3, every number is used in n operations, so blocks of the matrices are
loaded into the cache once and used many times. The *roofline* is the limit of all code: the smaller of the peak speed
and bandwidth × operations per byte. Measured on {roof["cores"]} cores: {peak:.0f} GFLOP/s in float64
({roof["peak_gflops"]["float32"]:.0f} in float32), {memory:.0f} GB/s from memory and {cache:.0f} GB/s from the cache.

| level | limit by memory | limit by the cache | measured |
|---|---|---|---|
| 1 | {speed(memory / 8)} | {speed(cache / 8)} | {speed(level1)}, because of a million calls from Python |
| 2 | {speed(memory / 4)} | {speed(cache / 4)} | {speed(level2)}{between} |
| 3 | | | {speed(level3)}; the peak is {peak:.0f} |

![Roofline of this machine](images/bench/roofline.svg)

**Is this different in C or Fortran?** Three interpreted loops run at {speed(speeds["three loops, interpreted"])}. The
same loops, compiled by numba, run at {speed(speeds["three loops, compiled (numba)"])}. {same}
Each addition waits for the previous one. BLAS computes many sums at once in vector registers, and
keeps the numbers that it has read in the cache.
"""


def _section(ladder: dict[str, Any], words: str) -> str:
    first = ladder["rungs"][0]["seconds"]
    lines = [f"## {ladder['title']}", "", f"{ladder['work'][0].upper()}{ladder['work'][1:]}. {words}".strip(), "",
             "| rung | time | GFLOP/s | speedup over the first |", "|---|---|---|---|"]  # fmt: skip
    for rung in ladder["rungs"]:
        part = "" if rung["rows"] == rung["of"] else f" ({rung['rows']:,} of {rung['of']:,} rows, scaled)"
        note = f"; {rung['note']}" if rung["note"] else ""
        figures = f"{duration(rung['seconds'])} | {float(format(rung['gflops'], '.2g')):g}"
        lines.append(f"| {rung['name']}{part}{note} | {figures} | {times(first / rung['seconds'])} |")
    code = [_code(ladder["key"], rung) for rung in ladder["rungs"]]
    return "\n".join([*lines, "", *filter(None, code)])


def _code(key: str, rung: dict[str, Any]) -> str:
    """Return the source of a rung, folded, under its name and time; "" if it only calls a library."""
    function, name = CODE[key].get(rung["name"]), rung["name"]
    if function is None and name != C_LOOPS:
        return ""
    source = compiled.SOURCE.read_text() if function is None else inspect.getsource(function)
    language = "text" if function is None else "python"
    body = ["<!-- not run -->", f"```{language}", *source.rstrip().split("\n"), "```"]
    indented = [f"    {line}".rstrip() for line in body]
    return "\n".join([f'??? example "Code: {name} ({duration(rung["seconds"])})"', "", *indented, ""])


def _closing(record: dict[str, Any]) -> str:
    m = record["machine"]
    versions = ", ".join(f"{name} {m['versions'][name]}" for name in ("numpy", "numba") if m["versions"].get(name))
    return (
        "GFLOP/s are the operations of the plain algorithm, divided by the time. A rung that needs fewer operations, "
        f"such as kway's exact index, can therefore exceed the peak speed. Measured on {m['cpu']}, "
        f"{m['cores']} cores, Python {m['python']}, {versions}, in {record['seconds']:.0f} s; medians of three runs.\n"
    )
