"""plan(): every way to do a job, and which is advised.

Advised is the first way, in the order of what they give up (nothing first), that can be used here, fits into memory, is
fitted within an hour and answers within a tenth of a second; where none is that quick, the quickest to fit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kway.errors import InputError
from kway.planning import words
from kway.planning.far_ways import on_machines
from kway.planning.gpu_ways import GPU_WAYS
from kway.planning.linear_ways import centroids, one_vs_all, sampled_softmax, softmax_way
from kway.planning.machine import available_bytes
from kway.planning.rates import Rates, machine_rates
from kway.planning.row_ways import as_bytes, bit_cells, bits, flat_way, landmarks
from kway.planning.size import Size, checked_size
from kway.planning.way import Formula, Way

WAYS: tuple[Formula, ...] = (
    softmax_way, one_vs_all, sampled_softmax, centroids, flat_way, landmarks, as_bytes, bits, bit_cells
)  # fmt: skip
ADVICE = ("softmax", "softmax, GPU", "kNN flat", "kNN flat, GPU", "kNN landmarks", "sampled softmax",
          "sampled softmax, GPU", "centroids", "kNN bytes", "kNN bits", "kNN bit cells")  # fmt: skip
_PATIENCE = 3600.0  # seconds of a fit
PROMPT = 0.1  # seconds of an answer
COLUMNS = ("way", "params", "memory", "disk", "to fit", "answer", "fits")


@dataclass(frozen=True)
class Plan:
    """The ways with their costs, the memory there is, and the way that is advised (None: none fits)."""

    size: Size
    memory: int
    rates: Rates
    ways: tuple[Way, ...]
    advised: Way | None

    def __getitem__(self, name: str) -> Way:
        for way in self.ways:
            if way.name == name:
                return way
        raise InputError(f"no way is called {name!r}; there are {', '.join(way.name for way in self.ways)}")

    def fits(self, way: Way) -> bool:
        """Whether the way can be used here and its fit stays within the memory, the GPU's too."""
        return _fits(way, self.memory, self.rates)

    def records(self) -> list[dict[str, Any]]:
        """One record a way."""
        return [way.record() | {"fits": self.fits(way), "advised": way is self.advised} for way in self.ways]

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(self.facts())

    def facts(self) -> dict[str, Any]:
        """What `to_json` writes, as plain values."""
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
        """The cells of the table for people, under COLUMNS."""
        return [
            (
                way.name, words.count(way.parameters), words.size(way.fit_bytes), words.size(way.disk_bytes),
                words.time(way.fit_seconds), words.time(way.predict_seconds),
                "later" if way.missing else "yes" if self.fits(way) else "no",
            )
            for way in self.ways
        ]  # fmt: skip

    def title(self) -> str:
        """What is planned, in a line."""
        s = self.size
        return (
            f"{words.count(s.n)} rows x {words.count(s.d)} features, {words.count(s.K)} classes, "
            f"{words.size(self.memory)} of memory"
        )

    def advice(self) -> str:
        """Which way, and why, in a sentence."""
        if self.advised is None:
            least = min(self.ways, key=lambda way: way.fit_bytes)
            return f"Nothing fits here; the least is {least.name}: {words.size(least.fit_bytes)} while fitting"
        given_up = self.advised.gives_up
        return f"Advised: {self.advised.name}, {self.advised.call}. {given_up[0].upper()}{given_up[1:]}."

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
    """What each way to classify so many rows, features and classes costs on this machine, before anything starts.

    Parameters
    ----------
    n_samples, n_features, n_classes : the size; 1e9 is a whole number.
    n_neighbors : rows that vote.
    density : share of the numbers that are not zero; below 1 the rows are CSR.
    dtype : "float32" | "float64".
    memory : bytes there are, or such as "24GB"; None: what this process may still take.
    machines : like this one, that share the rows (Ray).
    rates : of a machine, or some of them by name; None: this one's, measured at the first call (seconds) and kept.

    Times are those of typical data: passes of a solver and rows that bounds spare depend on more than sizes.

    >>> found = plan(10_000, 1000, 10, memory="24GB", rates=Rates())
    >>> found["softmax"].parameters, found.advised.name
    (10010, 'softmax')
    >>> print(plan(1e9, 512, 1e9, memory="24GB", rates=Rates()).advice())
    Nothing fits here; ...
    """
    try:
        itemsize = np.dtype(dtype).itemsize
    except TypeError:
        itemsize = 0
    if itemsize not in (4, 8):
        raise InputError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    if isinstance(machines, bool) or not isinstance(machines, int) or machines < 1:
        raise InputError(f"machines must be a whole number of at least 1, got {machines!r}")
    size = checked_size(n_samples, n_features, n_classes, n_neighbors, density, itemsize)
    room = available_bytes() if memory is None else words.bytes_of(memory)
    return ways_of(size, _rates(rates), room, machines)


def ways_of(size: Size, rates: Rates, memory: int, machines: int = 1) -> Plan:
    """The plan of a checked size."""
    found = [formula(size, rates) for formula in (*WAYS, *(GPU_WAYS if rates.gpu else ()))]
    ways = (*found, on_machines(size, rates, machines, memory))
    return Plan(size, memory, rates, ways, _advised(ways, memory, rates))


def _fits(way: Way, memory: int, rates: Rates) -> bool:
    """Here and, where it is done there and that is known, on the GPU."""
    there = rates.gpu_memory or float("inf")
    return not way.missing and way.fit_bytes <= memory and way.device_bytes <= there


def _advised(ways: tuple[Way, ...], memory: int, rates: Rates) -> Way | None:
    usable = {way.name: way for way in ways if _fits(way, memory, rates)}
    listed = [usable[name] for name in ADVICE if name in usable]
    quick = [way for way in listed if way.fit_seconds <= _PATIENCE and way.predict_seconds <= PROMPT]
    return quick[0] if quick else min(listed, key=lambda way: way.fit_seconds, default=None)


def _rates(given: Rates | Mapping[str, float] | None) -> Rates:
    if given is None:
        return machine_rates()
    if isinstance(given, Rates):
        return given
    rates = Rates.of(Rates().record() | dict(given)) if isinstance(given, Mapping) else None
    if rates is None:
        raise InputError(f"rates must be Rates, or positive numbers by the names {', '.join(Rates().record())}")
    return rates
