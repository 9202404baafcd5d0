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
        return "# On a cluster\n\nNot measured yet: `python -m benchmarks R1`.\n"
    measured = shards.points(record)
    found = shards.fitted(measured)
    return "\n".join([OPENING, _measured(record), _model(record, measured, found), _simulated(found), _bytes()])


OPENING = """# On a cluster

What `python -m benchmarks R1` measured on one machine, and what follows from it for many. [How to use
it](../howto/cluster.md).
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
{machine["cores"]} cores, {machine["date"]}). They share its cores, so shards cannot add speed here: what is seen is
what the way to the shards and back costs.

![Queries a second through 1 to 3 shards, and time against shards as simulated](../images/bench/shards.svg)

| asked | shards | a call | in one process | the way | queries/s | answers |
|---|---|---|---|---|---|---|
""" + "\n".join(lines) + "\n"  # fmt: skip


def _caller(record: dict[str, Any]) -> str:
    """Explain the time of the caller, and what it means for many shards."""
    if not shards.has_caller(record):
        return (
            "The caller's share was not measured in this run: all is taken as its, which makes many shards look slower"
        )
    return "The caller's share is the processor time of the calling process, at most the sum"


def _model(record: dict[str, Any], measured: list[shards.Point], found: shards.Costs) -> str:
    errors = [100 * abs(shards.on_one_machine(p, found) / p.seconds - 1) for p in measured]
    micro = {name: f"{1e6 * value:,.1f}" for name, value in vars(found).items()}
    return f"""## The model

A call costs {micro["start"]} microseconds, each shard in it {micro["call"]} at the caller, one after another, and
{micro["answer"]} at the shard; each query adds {micro["query"]} a shard at the caller (its bytes, its merge) and
{micro["sketch"]} at the shard beside the scan. Three sums are fitted to the {len(measured)} points above and meet them
within {max(errors):.0f} % ({float(np.mean(errors)):.0f} % in the mean); that is a fit, not a forecast.

How the sums divide between caller and shard is less sure.
{_caller(record)}.
That costs stay in proportion beyond three shards is assumed, and may make many look quicker: the caller looks over all
open answers whenever one comes.

Shards on machines of their own answer at once, and the slowest counts. Assumed, not measured: machines of
{shards.CORES} cores like this one, {shards.NETWORK * 8 / 1e9:.0f} Gbit/s between them and {1e6 * shards.LATENCY:.0f}
microseconds one way, answers that vary by {100 * shards.JITTER:.0f} %, and one in {shards.ONE_IN:,} that is
{shards.LATE:g} s late. With a replica, a shard is asked again there after twice the usual time (`patience`,
whose default is 1 s).
"""


def _simulated(found: shards.Costs) -> str:
    rate = 1.25  # billion rows per second and core, as in the cost plan
    head = f"""## Simulated: 8 to 1,024 shards, 1G to 100G classes

A class is 512 bits; every shard passes over all of its codes, at the rate of the plan ({rate:.1f}e9 rows a second and
core, which holds where few rows pass the first filter). *slow*: one call in a hundred takes longer.
`python -m benchmarks.shards` prints this again.

| classes | shards | a shard holds | one query | slow | slow, a replica each | 1,000 queries, each |
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
    """Explain from where on more shards do not help."""
    best = {
        classes: min(shards.SHARDS, key=lambda count: shards.simulate(found, classes, count, replicas=2).median)
        for classes in shards.CLASSES
    }
    said = ", ".join(f"{count:,} shards for {format_count(classes)}" for classes, count in best.items())
    alone = shards.simulate(found, 1e11, 1024)
    return f"""A query alone is quickest through {said}:
beyond that, by this model, asking costs more than scanning saves, since one caller asks all.
Late answers are what replicas are for: through 1,024 shards without any, most calls wait for somebody
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
    return f"""## Bytes a query and a step

A query of {shards.FEATURES} float32 columns goes to every shard, {shards.BEST} ids and distances come back from each:

| shards | out | back |
|---|---|---|
{queries}

A step of a linear fit over row shards sends the weights, 4 R (d + 1) bytes, to every node and gets as much back:

| nodes | features | scores R | out | back |
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
        colour, label = style.PALETTE[place], "one query" if queries == 1 else f"{queries:,} queries"
        counts = [p.shards for p in own]
        left.plot(counts, [queries / shards.on_one_machine(p, found) for p in own], color=colour, linewidth=1.4)
        left.plot(counts, [queries / p.seconds for p in own], "o", color=colour, markersize=5, label=label)
    left.set_yscale("log")
    left.set_xticks([1, 2, 3])
    style.dress(left, "Measured (line: model)", "shards", "queries a second")
    for place, classes in enumerate(shards.CLASSES):
        colour = style.PALETTE[place + 2]
        for replicas, look in ((2, "-"), (1, ":")):
            seconds = [shards.simulate(found, classes, count, replicas=replicas).median for count in shards.SHARDS]
            label = f"{format_count(classes)} classes" if replicas == 2 else None
            right.plot(shards.SHARDS, seconds, look, color=colour, linewidth=1.4, label=label)
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xticks(shards.SHARDS, [f"{count:,}" for count in shards.SHARDS])
    style.dress(right, "Simulated, one query (dotted: no replicas)", "shards", "seconds")
    for axes in (left, right):
        style.powers(axes.yaxis)
        style.legend(axes)
    return drawn
