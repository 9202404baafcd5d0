"""Write docs/benchmarks/cluster.md: R1 measured with 1 to 3 shards, and a simulation of 8 to 1,024 shards."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kway.report import style
from kway.units import format_bytes, format_count

from . import shards
from .records import figure_text, short

SHOWN = (8, 64, 256, 1024)  # shards of the table


def text(record: dict[str, Any] | None) -> str:
    """Return the page for a record of R1."""
    if record is None:
        return "# On a cluster\n\nNot measured yet; run `python -m benchmarks R1`.\n"
    measured = shards.points(record)
    found = shards.fitted(measured)
    return "\n".join([OPENING, _measured(record), _model(record, measured, found), _simulated(found), _bytes()])


OPENING = """# On a cluster

Results of `python -m benchmarks R1` on one machine, and a simulation of many machines that is based on them. See also
[how to use a cluster](../howto/cluster.md).
"""


def _measured(record: dict[str, Any]) -> str:
    """Return the table of R1. The nodes share a machine, so R1 measures the overhead of a call."""
    lines = []
    for r in record["rows"]:
        rate = f"{r.points['queries_per_second']:,.0f}"
        over = figure_text(r.kway_seconds - r.peer_seconds, "s")
        here, there = figure_text(r.peer_seconds, "s"), figure_text(r.kway_seconds, "s")
        lines.append(f"| {r.job} | {r.points['shards']} | {there} | {here} | {over} | {rate} | {r.quality} |")
    machine = record["machine"]
    return f"""## Measured: 1, 2 and 3 shards

Exact search of {record["rows"][0].data.rpartition(", ")[0]}, three Ray nodes on one machine ({machine["cpu"]},
{machine["cores"]} cores, {machine["date"]}). The nodes share the cores, so more shards cannot be faster here. The
measurement shows the overhead of sending queries to shards and results back.

![Queries per second with 1 to 3 shards, and simulated time against the number of shards](../images/bench/shards.svg)

| queries | shards | time of a call | in one process | overhead | queries/s | result |
|---|---|---|---|---|---|---|
""" + "\n".join(lines) + "\n"  # fmt: skip


def _caller(record: dict[str, Any]) -> str:
    """Return how the time of the caller was measured."""
    if not shards.has_caller(record):
        return (
            "The time of the caller was not measured in this run. The model attributes all time to the caller, which "
            "makes many shards look slower than they are."
        )
    return (
        "The part of the caller is the CPU time of the calling process, but at most the total. The rest is the part of "
        "the shard. How a total is divided is less certain than the total."
    )


def _model(record: dict[str, Any], measured: list[shards.Point], found: shards.Costs) -> str:
    errors = [100 * abs(shards.on_one_machine(p, found) / p.seconds - 1) for p in measured]
    micro = {name: f"{1e6 * value:,.1f}" for name, value in vars(found).items()}
    return f"""## The model

Times in microseconds:

| | at the caller | at the shard |
|---|---|---|
| per call | {micro["start"]} | |
| per shard of a call | {micro["call"]} | {micro["answer"]} |
| per query and shard | {micro["query"]} | {micro["sketch"]}, and the scan |

The caller handles one shard after another. Each line of the table is a cost with two parts. The total of both parts is
fitted to the {len(measured)} measurements above. The fit has a largest error of {max(errors):.0f}% and a mean error of
{float(np.mean(errors)):.0f}%. For other numbers of shards, the error of the model is not known.

{_caller(record)}

The model assumes that costs stay proportional to the number of shards. This may make many shards look faster than they
are, because the caller checks all pending responses whenever one arrives.

Shards on separate machines run in parallel, so the slowest one decides. The simulation assumes, without a measurement:

- machines with {shards.CORES} cores like this one;
- a network with {shards.NETWORK * 8 / 1e9:.0f} Gbit/s and a latency of {1e6 * shards.LATENCY:.0f} microseconds one way;
- response times that vary by {100 * shards.JITTER:.0f}%, and one response in {shards.ONE_IN:,} that is
  {shards.LATE:g} s late;
- with replicas, a second request to the replica after twice the usual time (`patience`, whose default is 1 s).
"""


def _simulated(found: shards.Costs) -> str:
    rate = 1.25  # billion rows per second and core, as in the plan
    head = f"""## Simulated: 8 to 1,024 shards, 1G to 100G classes

Each class is a code of 512 bits. Every shard scans all of its codes at the rate of `kway plan`, {rate:g}e9 rows per
second and core, which is correct if few rows pass the first filter. *99%* is the time that 99% of the calls do not
exceed. `python -m benchmarks.shards` prints these tables.

| classes | shards | memory per shard | one query | 99% | 99% with replicas | 1,000 queries, per query |
|---|---|---|---|---|---|---|
"""
    lines = []
    for classes in shards.CLASSES:
        for count in SHOWN:
            one = shards.simulate(found, classes, count)
            twice = shards.simulate(found, classes, count, replicas=2)
            many = shards.simulate(found, classes, count, shards.BATCH, replicas=2)
            cells = (
                format_count(classes), f"{count:,}", format_bytes(shards.shard_bytes(classes, count)),
                figure_text(one.median, "s"), figure_text(one.slow, "s"), figure_text(twice.slow, "s"),
                figure_text(many.median / shards.BATCH, "s"),
            )  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return head + "\n".join(lines) + "\n\n" + _lesson(found)


def _lesson(found: shards.Costs) -> str:
    """Return the number of shards beyond which more do not help."""
    best = {
        classes: min(shards.SHARDS, key=lambda count: shards.simulate(found, classes, count, replicas=2).median)
        for classes in shards.CLASSES
    }
    said = ", ".join(f"{count:,} shards for {format_count(classes)} classes" for classes, count in best.items())
    alone = shards.simulate(found, 1e11, 1024)
    return f"""In this model, a single query is fastest with {said}.
With more shards, the caller needs more time for requests than the shards save, because one caller handles all shards.
Replicas help against late responses. With 1,024 shards and no replicas, most calls wait for a late response
({short(alone.median)} s for 100G classes).
"""


def _bytes() -> str:
    rows = [(count, shards.bytes_a_query(count)) for count in SHOWN]
    queries = "\n".join(f"| {count:,} | {t.out / 1e3:,.0f} KB | {t.back / 1e3:,.1f} KB |" for count, t in rows)
    step = [
        (nodes, d, R, shards.bytes_a_step(nodes, d, R))
        for nodes, d, R in ((3, 784, 10), (8, 1024, 1000), (64, 1024, 100_000))
    ]
    steps = "\n".join(
        f"| {n:,} | {d:,} | {R:,} | {t.out / 1e6:,.1f} MB | {t.back / 1e6:,.1f} MB |" for n, d, R, t in step
    )
    return f"""## Bytes per query and per step

A query of {shards.FEATURES} float32 columns is sent to every shard, and each returns {shards.BEST} ids and distances:

| shards | sent | received |
|---|---|---|
{queries}

A step of a linear fit on sharded rows sends the weights, 4 R (d + 1) bytes, to every node and receives as many bytes:

| nodes | features | scores R | sent | received |
|---|---|---|---|---|
{steps}
"""


def figure(record: dict[str, Any]) -> Figure:
    """Draw seconds per call against shards: R1's points, the model, and the simulation beyond."""
    measured = shards.points(record)
    found = shards.fitted(measured)
    drawn = style.figure(width=8.0, height=4.2)
    left, right = drawn.subplots(1, 2, width_ratios=(1, 1.6))
    for place, queries in enumerate(sorted({p.queries for p in measured})):
        own = [p for p in measured if p.queries == queries]
        color, label = style.PALETTE[place], "one query" if queries == 1 else f"{queries:,} queries"
        counts = [p.shards for p in own]
        left.plot(counts, [queries / shards.on_one_machine(p, found) for p in own], color=color, linewidth=1.4)
        left.plot(counts, [queries / p.seconds for p in own], "o", color=color, markersize=5, label=label)
    left.set_yscale("log")
    left.set_xticks([1, 2, 3])
    style.dress(left, "Measured (line: model)", "shards", "queries per second")
    for place, classes in enumerate(shards.CLASSES):
        color = style.PALETTE[place + 2]
        for replicas, look in ((2, "-"), (1, ":")):
            seconds = [shards.simulate(found, classes, count, replicas=replicas).median for count in shards.SHARDS]
            label = f"{format_count(classes)} classes" if replicas == 2 else None
            right.plot(shards.SHARDS, seconds, look, color=color, linewidth=1.4, label=label)
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xticks(shards.SHARDS, [f"{count:,}" for count in shards.SHARDS])
    style.dress(right, "Simulated, one query (dotted: no replicas)", "shards", "seconds")
    for axes in (left, right):
        style.powers(axes.yaxis)
        style.legend(axes)
    return drawn
