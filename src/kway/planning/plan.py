"""kway.plan: the cost of every approach to a job before any work starts, and the advised approach.

The approaches are listed from exact to approximate. The advised approach is the first one that can be used, fits into
memory, and takes at most an hour to fit and another hour to predict as many rows. If none is so fast, it is the one
that is fitted fastest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kway.errors import InputError
from kway.memory import available_bytes
from kway.parameters import whole
from kway.planning.costs import COSTS, GPU_COSTS, MAX_FIT_SECONDS, Cost, Size, check_size, sharded
from kway.planning.rates import Rates, check_rates
from kway.text_tables import Table
from kway.units import format_bytes, format_count, format_rough_time, parse_bytes

ADVICE = ("softmax", "softmax, GPU", "kNN flat", "kNN flat, GPU", "kNN landmarks", "sampled softmax",
          "sampled softmax, GPU", "centroids", "kNN bytes", "kNN bits", "kNN bit cells")  # fmt: skip
COLUMNS = ("approach", "params", "memory", "disk", "to fit", "predict", "fits")


@dataclass(frozen=True)
class Plan:
    """The approaches with their costs, the available memory, and the advised approach.

    Attributes
    ----------
    size : Size
        Rows, features, classes and neighbors.
    memory : int
        Bytes that may be used.
    rates : Rates
        Speed and memory of the machine.
    ways : tuple of Cost
        One cost per approach.
    advised : Cost or None
        The advised approach; None if none fits.
    """

    size: Size
    memory: int
    rates: Rates
    ways: tuple[Cost, ...]
    advised: Cost | None

    def __getitem__(self, name: str) -> Cost:
        for cost in self.ways:
            if cost.name == name:
                return cost
        raise InputError(f"unknown approach {name!r}; the approaches are {', '.join(cost.name for cost in self.ways)}")

    def fits(self, cost: Cost) -> bool:
        """Return whether the approach can be used, and its fit needs at most the available memory, also on the GPU."""
        return _fits(cost, self.memory, self.rates)

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per approach."""
        return [cost.record() | {"fits": self.fits(cost), "advised": cost is self.advised} for cost in self.ways]

    def to_json(self) -> str:
        """Return the plan as one JSON object."""
        return json.dumps(self.facts())

    def facts(self) -> dict[str, Any]:
        """Return the plan as a dict, which `to_json` writes."""
        s = self.size
        return {
            "n_samples": s.n,
            "n_features": s.d,
            "n_classes": s.K,
            "n_neighbors": s.k,
            "density": s.density,
            "itemsize": s.itemsize,
            "memory": self.memory,
            "advised": None if self.advised is None else self.advised.name,
            "ways": self.records(),
            "rates": self.rates.record(),
        }

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table under COLUMNS."""
        return [
            (
                cost.name, format_count(cost.parameters), format_bytes(cost.fit_bytes), format_bytes(cost.disk_bytes),
                format_rough_time(cost.fit_seconds), format_rough_time(cost.predict_seconds),
                "yes" if self.fits(cost) else "no",
            )
            for cost in self.ways
        ]  # fmt: skip

    def _repr_html_(self) -> str:
        return Table(self.title(), COLUMNS, self.rows(), self.advice()).html()

    def title(self) -> str:
        """Return the size and the memory in one line."""
        s = self.size
        return (
            f"{format_count(s.n)} rows x {format_count(s.d)} features, {format_count(s.K)} classes, "
            f"{format_bytes(self.memory)} of memory"
        )

    def advice(self) -> str:
        """Return the advised approach and the reason in a sentence."""
        if self.advised is None:
            smallest = min(self.ways, key=lambda cost: cost.fit_bytes)
            needed = format_bytes(smallest.fit_bytes)
            return f"Nothing fits; {smallest.name} needs the least memory: {needed} while fitting"
        return f"Advised: {self.advised.name}, {self.advised.call} ({self.advised.quality})."

    def __str__(self) -> str:
        rows = [COLUMNS, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        return "\n".join([self.title(), *lines, self.advice()])


def plan(
    n_samples: float,
    n_features: float,
    n_classes: float,
    *,
    n_neighbors: int = 5,
    density: float = 1.0,
    dtype: Any = "float32",
    memory: float | str | None = None,
    machines: int = 1,
    rates: Rates | Mapping[str, float] | None = None,
) -> Plan:
    """Return the cost of each approach to a job on this machine, before any work starts.

    Parameters
    ----------
    n_samples, n_features, n_classes : int or float
        The size; a float such as 1e9 must be a whole number.
    n_neighbors : int, default=5
        Neighbors that vote.
    density : float, default=1.0
        Share of the numbers that are not zero. Rows with a density below 1 are stored as CSR.
    dtype : {"float32", "float64"}, default="float32"
        Type of the numbers.
    memory : int or str, default=None
        Bytes that may be used, such as "24GB"; None uses what is available to this process.
    machines : int, default=1
        Machines like this one that share the rows (Ray).
    rates : Rates or dict, default=None
        Speed and memory of the machine; None measures them, in under a second.

    Returns
    -------
    Plan
        Parameters, bytes, operations and seconds per approach. Seconds are an order of magnitude: the passes that a
        solver needs and the rows that bounds skip depend on the data.

    Examples
    --------
    >>> costs = plan(10_000, 1000, 10, memory="24GB", rates=Rates())
    >>> costs["softmax"].parameters, costs.advised.name
    (10010, 'softmax')
    >>> print(plan(1e9, 512, 1e9, memory="24GB", rates=Rates()).advice())
    Nothing fits; ...
    """
    try:
        itemsize = np.dtype(dtype).itemsize
    except TypeError:
        itemsize = 0
    if itemsize not in (4, 8):
        raise InputError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    whole(1).check("machines", machines)
    size = check_size(n_samples, n_features, n_classes, n_neighbors, density, itemsize)
    usable = available_bytes() if memory is None else parse_bytes(memory)
    return make_plan(size, check_rates(rates), usable, machines)


def make_plan(size: Size, rates: Rates, memory: int, machines: int = 1) -> Plan:
    """Return the plan of a checked size."""
    formulas = (*COSTS, *(GPU_COSTS if rates.gpu else ()))
    costs = (*(formula(size, rates) for formula in formulas), sharded(size, rates, machines, memory))
    return Plan(size, memory, rates, costs, _advise(costs, size, memory, rates))


def _fits(cost: Cost, memory: int, rates: Rates) -> bool:
    gpu_memory = rates.gpu_memory or float("inf")
    return not cost.missing and cost.fit_bytes <= memory and cost.device_bytes <= gpu_memory


def _advise(costs: tuple[Cost, ...], size: Size, memory: int, rates: Rates) -> Cost | None:
    usable = {cost.name: cost for cost in costs if _fits(cost, memory, rates)}
    listed = [usable[name] for name in ADVICE if name in usable]
    fast = [c for c in listed if max(c.fit_seconds, size.n * c.predict_seconds) <= MAX_FIT_SECONDS]
    return fast[0] if fast else min(listed, key=lambda cost: cost.fit_seconds, default=None)
