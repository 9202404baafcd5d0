"""Flat search on a device, in the place of a scan on the CPU and with its interface.

DeviceSearch    full rows or bytes: the device finds the k nearest by float64 distances
DeviceBits      codes of a few bits: the codes are on the device; full rows, if they are kept, are there too if there is
                room, else the rows that the codes leave in doubt are measured on the CPU

What is found is measured, or estimated, once more by the kernels of the CPU's scan, so that every digit, and with it
every tie, is what the CPU answers. A search of bits loses at most what the CPU's may lose: a row whose estimate lies
beyond its error bar, and, if codes go through a filter of signs (sign_codes.py), one that differs in more bits than its
cosine lets expect, each with half of the chance `Bits(miss=)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.jit import frozen
from kway.rows.gpu.bit_codes import BitCodes, CodeQueries, EncodedBits
from kway.rows.gpu.device import MOST_LISTED, Device, Tensor
from kway.rows.gpu.exact_search import METRICS, ListSearch, NearestRows, by_distance, measured, place_rows, resolve_ties
from kway.rows.gpu.int8_search import build_exact_search
from kway.rows.gpu.sign_codes import SignCodes, SignFilter

SEARCH_BYTES = 2**31  # bytes that a search may need beside codes and rows


class HostScan(Protocol):
    """The scan on the CPU whose rows a device searches: kway.search.block_scan.Scan."""

    kept: Any
    distance: Any

    @property
    def nbytes(self) -> int:
        """Int8Queries held."""

    def nearest(self, queries: Any, k: int) -> Any:
        """The k nearest, found by the CPU."""

    def measure(self, queries: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances (q, c) of the rows at ids (q, c), by the CPU's kernels."""


@dataclass
class DeviceSearch:
    """Rows on a device, searched exactly; what is found is measured again by the scan on the CPU."""

    scan: HostScan
    engine: Any
    touched: float = float("nan")

    @staticmethod
    def over(scan: HostScan, device: Device) -> DeviceSearch:
        """The search, its rows copied to the device if they are not there yet."""
        kept = scan.kept
        n, d = kept.shape
        with device.room(f"an index of {n:,} rows x {d} columns", kept.device_bytes()):
            return DeviceSearch(scan, build_exact_search(device, kept.on_device(device), scan.distance.name))

    @property
    def nbytes(self) -> int:
        """Int8Queries on the host."""
        return self.scan.nbytes

    @property
    def device(self) -> Device:
        """Where the rows are."""
        where: Device = self.engine.device
        return where

    @property
    def why(self) -> str:
        """What is searched, and how."""
        rows = "exact" if self.scan.kept.has_full else "bytes alone, decoded"
        return f"flat, {rows}: a filter with a bound rules rows out, survivors are measured in float64"

    @property
    def answers_tensors(self) -> bool:
        """Always."""
        return True

    def nearest(self, queries: Any, k: int) -> NearestRows:
        """The k nearest, ids and distances as brute force on the CPU gives them; the CPU lists very many."""
        if k > MOST_LISTED:
            return self.scan.nearest(queries, k)
        device, dense = self.engine.device, queries.toarray() if sp.issparse(queries) else queries
        with device.room(f"a search of {len(dense):,} queries"):
            ids = device.fetch(self.engine.nearest(device.put(dense), k).ids)
        self.touched = float(k)
        return by_distance(ids, self.scan.measure(frozen(dense.astype(np.float64)), ids))

    def answer(self, queries: Any, k: int) -> Any:
        """The k nearest of tensors, as tensors."""
        rows = self.engine.rows
        brute = lambda some, k: rows.brute(some.double(), k, rounded=True)  # noqa: E731
        return resolve_ties(ListSearch(len(rows), self.engine.nearest, brute), queries, k)


@dataclass
class DeviceBits:
    """Codes on a device, full rows there, on the host, or nowhere."""

    scan: Any  # kway.search.codecs.bit_scan.BitScan
    codes: BitCodes
    rows: Tensor | None
    touched: float = float("nan")

    @staticmethod
    def over(scan: Any, device: Device) -> DeviceBits:
        """The search, its codes copied to the device, and the full rows where there is room."""
        codes, kept = scan.codes, scan.kept
        n, d = codes.shape
        with device.room(f"an index of {n:,} rows x {d} columns as codes", codes.device_bytes()):
            held = codes.on_device(device)
            there = BitCodes(
                device, codes.frame.bits, held.words, held.factor, held.half if scan.distance.shifts else None,
                bar=scan.bar, least=scan.least,
                filter=_sign_filter(scan, device, held),
            )  # fmt: skip
        return DeviceBits(scan, there, kept.full_on_device(device, spare=SEARCH_BYTES))

    @property
    def device(self) -> Device:
        """Where the codes are."""
        return self.codes.device

    @property
    def why(self) -> str:
        """What is measured where."""
        full = "full rows measured" if self.scan.kept.has_full else "only codes kept"
        where = "" if not self.scan.kept.has_full else " there" if self.rows is not None else " on the host"
        return f"flat over codes of {self.codes.bits} bits a column, approximate: {full}{where}"

    @property
    def nbytes(self) -> int:
        """Int8Queries on the host."""
        return self.scan.nbytes

    def nearest(self, queries: Any, k: int) -> NearestRows:
        """The k nearest of those in doubt, distances as the CPU gives them; the CPU lists very many."""
        if k > MOST_LISTED:
            return self.scan.nearest(queries, k)
        device, exact = self.device, frozen(np.asarray(queries, dtype=np.float64))
        self.touched = 0.0

        def measure(which: Tensor, ids: Tensor) -> Tensor:
            self.touched += ids.numel() / len(exact)
            if self.rows is not None:
                return self._measured(device.put(exact)[which], ids)
            host = device.fetch(which), device.fetch(ids)
            return device.put(self.scan.measure(frozen(exact[host[0]]), frozen(host[1])))

        with device.room(f"a search of {len(queries):,} queries"):
            asked = self.scan.asked(exact)  # as the CPU rotates them
            placed = CodeQueries(*(device.put(values) for values in (asked.turned, asked.norms, asked.base)))
            found = self.codes.nearest(placed, k, measure)
            ids, distances = device.fetch(found.ids), device.fetch(found.distances)
        return by_distance(ids, self.scan.measure(exact, frozen(ids)) if self.rows is not None else distances)

    def answer(self, queries: Tensor, k: int) -> Any:
        """The k nearest of queries (q, d) that are there, by (distance in float32, position), as tensors."""

        def nearest(some: Tensor, k: int) -> Any:
            exact, asked = some.double(), self._asked(some.double())

            def there(which: Tensor, ids: Tensor) -> Tensor:
                if self.rows is not None:
                    return self._measured(exact[which], ids)
                return self.codes.estimates(asked.take(which), ids)

            return self.codes.nearest(asked, k, there)

        return resolve_ties(ListSearch(len(self.codes), nearest, spare=0), queries, k)

    @property
    def answers_tensors(self) -> bool:
        """Whether nothing has to be measured on the host."""
        return self.rows is not None or not self.scan.kept.has_full

    @cached_property
    def _turn(self) -> Tensor:
        """R' (d, D) float64: queries are turned by one product."""
        frame = self.scan.codes.frame
        return self.device.put(frame.turned(np.eye(len(frame.centre), dtype=np.float32)).astype(np.float64))

    def _asked(self, queries: Tensor) -> Any:
        """Queries (q, d) float64 on the device, as codes read them."""
        frame, distance = self.scan.codes.frame, self.scan.distance
        centre = self.device.put(frame.centre.astype(np.float64))
        placed = place_rows(queries, distance.by_angle)
        turned = (placed - centre if distance.shifts else placed) @ self._turn
        norms = turned.square().sum(1).sqrt()
        base = norms.square() if distance.shifts else (0.0 if distance.signed else 1.0) - placed @ centre
        return CodeQueries(turned.float(), norms, base)

    def _measured(self, queries: Tensor, ids: Tensor) -> Tensor:
        assert self.rows is not None
        return measured(METRICS[self.scan.distance.name], self.rows, queries, ids)


def _sign_filter(scan: Any, device: Device, held: EncodedBits) -> Any:
    """The filter of signs where the device has one for such codes."""
    frame, n = scan.codes.frame, len(scan.codes)
    if not SignFilter.pays(device, frame.bits, frame.wide, n):
        return None
    ends = (0.5, 0.5) if frame.plain else map(float, held.half.aminmax())
    shortest, longest = ((2.0 * end) ** 0.5 for end in ends)
    return SignFilter(SignCodes.of(device, held.room, n), scan.z, shortest, longest)
