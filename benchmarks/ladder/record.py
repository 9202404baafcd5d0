"""`python -m benchmarks ladder`: time every ladder and measure the roofline, in one record."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .. import machine
from . import distances, gradients, neighbors, products, roofline
from .rungs import Ladder, climb

if TYPE_CHECKING:
    from rich.table import Table


def ladders(quick: bool) -> list[Ladder]:
    """Return all ladders; a quick run has less work."""
    if quick:
        small = products.ladder(256), distances.ladder(50, 500), gradients.logistic(200), gradients.softmax(500)
        return [*small, neighbors.ladder(100, 500)]
    return [products.ladder(), distances.ladder(), gradients.logistic(), gradients.softmax(), neighbors.ladder()]


def measure(quick: bool = False) -> dict[str, Any]:
    """Return the record that is saved to results/ladder.json."""
    start = time.perf_counter()
    record = {
        "target": "ladder",
        "quick": quick,
        "machine": machine.facts(),
        "roofline": roofline.measure(),
        "ladders": [climb(ladder) for ladder in ladders(quick)],
    }
    return record | {"seconds": round(time.perf_counter() - start, 1)}


def table(record: dict[str, Any]) -> Table:
    """Return the rungs as a table."""
    from rich.table import Table

    roof = record["roofline"]
    peak, memory = roof["peak_gflops"]["float64"], roof["bandwidth_gb"]["memory"]
    at = f"{peak:.0f} GFLOP/s in float64, {memory:.0f} GB/s from memory"
    out = Table(title=f"The ladder ({record['seconds']} s; this machine: {at})")
    for column in ("work", "rung", "seconds", "GFLOP/s", "times the first"):
        out.add_column(column, justify="left" if column in ("work", "rung") else "right")
    for ladder in record["ladders"]:
        first = ladder["rungs"][0]["seconds"]
        for i, rung in enumerate(ladder["rungs"]):
            part = "" if rung["rows"] == rung["of"] else f" ({rung['rows']} of {rung['of']} rows, scaled)"
            figures = f"{rung['seconds']:.3g}", f"{rung['gflops']:.3g}", f"{first / rung['seconds']:,.0f}"
            out.add_row(ladder["title"] if i == 0 else "", rung["name"] + part, *figures)
    return out
