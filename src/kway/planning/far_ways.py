"""Ways beyond this machine: m machines, by arithmetic.

Rows are split, each searches its share exactly, the k best of each are merged.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from math import ceil

from kway.planning import words
from kway.planning.linear_ways import softmax_way
from kway.planning.rates import Rates
from kway.planning.row_ways import flat_way
from kway.planning.size import Size
from kway.planning.way import Way

ROUND_TRIP = 2e-3  # seconds that a question to the machines and back takes


def split_softmax(size: Size, rates: Rates) -> Way:
    """Softmax with its classes on the nodes of a cluster: here are the rows, the weights and the model made of them."""
    way = softmax_way(size, rates)
    return replace(way, fit_bytes=size.data_bytes + 3 * size.parameters * size.itemsize)


def on_machines(size: Size, rates: Rates, machines: int, memory: int) -> Way:
    """Exact neighbours, the rows on so many machines like this one; bytes are those of one machine."""
    share = replace(size, n=ceil(size.n / machines), K=min(size.K, ceil(size.n / machines)))
    one = flat_way(share, rates)
    enough = ceil(flat_way(size, rates).fit_bytes / memory)
    gives_up = (
        f"takes {words.count(enough)} machines like this one to hold it all"
        if enough > 1
        else "gives up nothing: one is enough"
    )
    return replace(
        one, name=f"kNN {machines} machine{'s' if machines > 1 else ''}", call="index=Sharded(...) on Ray",
        parameters=size.n * size.d, predict_seconds=one.predict_seconds + ROUND_TRIP, gives_up=gives_up,
        operations=2.0 * size.values, missing=_unless("kway.compute.cluster"),
    )  # fmt: skip


def _unless(module: str) -> str:
    """Why a way is missing; empty where the module that does it is there."""
    return "" if find_spec(module) else "not yet in this version"
