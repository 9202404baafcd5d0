"""Flat search over codes of a few bits on a device (gpu/codes/bit_codes.py), in the place of the CPU's BitScan.

The codes lie on the device. Full rows, where the store keeps them, lie there too if there is room, else those that the
codes leave in doubt are measured on the host. Either way what is found is measured, or estimated, once more by the
CPU's own kernels, so that every digit is what the CPU answers. A search loses at most what the CPU's may lose: a row
whose estimate lies beyond its error bar, and, where codes go through a filter of signs (sign_filter.py), one that
differs in more bits than its cosine lets expect, each with half of the chance `Bits(miss=)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Device, Tensor
from kway.compute.kernels.codes.bit_estimates import estimate_bits
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import EMPTY, measure
from kway.compute.threads import pmap, shares
from kway.search.codes.bit_filter import BitQueries
from kway.search.codes.bit_scan import BitScan
from kway.search.device.far_kept import in_space
from kway.search.device.on_device import MOST_LISTED
from kway.search.index import Neighbors
from kway.search.stores.bits import BitRows
from kway.search.stores.far_codes import FarBits
from kway.search.stores.kept import FarKept

if TYPE_CHECKING:
    from kway.compute.gpu.codes.codes_of_tensors import BitsThere

_BLOCK = 2**20  # rows that are brought there together
_SPARE = 2**31  # bytes that a search may need beside codes and rows


@dataclass
class DeviceBits:
    """Codes on a device, full rows there, on the host, or nowhere."""

    scan: BitScan
    codes: Any  # BitCodes
    rows: Tensor | None
    touched: float = float("nan")

    @staticmethod
    def over(scan: BitScan, device: Device) -> DeviceBits:
        """The search, its codes copied to the device, and the full rows where there is room."""
        from kway.compute.gpu.codes.bit_codes import BitCodes

        codes, kept = scan.codes, scan.kept
        n, d = codes.shape
        with device.room(f"an index of {n:,} rows x {d} columns as codes", _code_bytes(codes)):
            held = bits_there(codes, device)
            there = BitCodes(
                device, codes.frame.bits, held.words, held.factor, held.half if scan.distance.shifts else None,
                bar=scan.z * float(codes.widest[0]) if kept.has_full else 0.0,
                least=-EMPTY if scan.distance.signed else 0.0,
                filter=_sign_filter(scan, device, held),
            )  # fmt: skip
        if isinstance(kept, FarKept):
            return DeviceBits(scan, there, None if kept.far is None else kept.far.tensor)
        fits = kept.has_full and kept.full.nbytes + _SPARE <= device.free_bytes()
        return DeviceBits(scan, there, device.put(kept.full) if fits else None)

    @property
    def device(self) -> Device:
        """Where the codes are."""
        where: Device = self.codes.device
        return where

    @property
    def why(self) -> str:
        """What is measured where."""
        full = "full rows measured" if self.scan.kept.has_full else "only codes kept"
        where = "" if not self.scan.kept.has_full else " there" if self.rows is not None else " on the host"
        return f"flat over codes of {self.codes.bits} bits a column, approximate: {full}{where}"

    @property
    def nbytes(self) -> int:
        """Bytes on the host beside the rows."""
        return 0

    def nearest(self, queries: NDArray, k: int, n_jobs: int | None = None) -> Neighbors:
        """The k nearest of those in doubt, distances as the CPU gives them."""
        from kway.compute.gpu.codes.bit_codes import CodeQueries

        device, exact = self.device, frozen(np.asarray(queries, dtype=np.float64))
        asked = BitQueries.of(exact, self.scan.codes.frame)
        self.touched = 0.0

        def here(which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
            return self._measured(frozen(exact[which]), asked.take(which), frozen(ids), n_jobs)

        def there(which: Tensor, ids: Tensor) -> Tensor:
            self.touched += ids.numel() / len(exact)
            if self.rows is not None:
                return self._measured_there(device.put(exact)[which], ids)
            return device.put(here(device.fetch(which), device.fetch(ids)))

        with device.room(f"a search of {len(queries):,} queries"):
            placed = CodeQueries(*(device.put(values) for values in (asked.turned, asked.norms, asked.base)))
            found = self.codes.nearest(placed, k, there)
            ids, distances = device.fetch(found.ids), device.fetch(found.distances)
        if self.rows is not None:
            distances = here(np.arange(len(ids)), ids)
        order = np.lexsort((ids, distances), axis=1)
        return Neighbors(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1))

    def answer(self, queries: Tensor, k: int) -> Any:
        """The k nearest of queries (q, d) that are there, by (distance in float32, position), as tensors."""
        from kway.compute.gpu.search.exact import Asking, settled

        def nearest(some: Tensor, k: int) -> Any:
            exact, asked = some.double(), self._asked(some.double())

            def there(which: Tensor, ids: Tensor) -> Tensor:
                if self.rows is not None:
                    return self._measured_there(exact[which], ids)
                return self.codes.estimates(asked.take(which), ids)

            return self.codes.nearest(asked, k, there)

        return settled(Asking(len(self.codes), nearest, spare=0), queries, k)

    def pays(self, k: int) -> bool:
        """Whether a device lists so many."""
        return k <= MOST_LISTED

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
        """BitQueries.of for queries (q, d) float64 that are there."""
        from kway.compute.gpu.codes.bit_codes import CodeQueries

        frame, distance = self.scan.codes.frame, self.scan.distance
        centre = self.device.put(frame.centre.astype(np.float64))
        placed = in_space(queries, distance)
        turned = (placed - centre if distance.shifts else placed) @ self._turn
        norms = turned.square().sum(1).sqrt()
        base = norms.square() if distance.shifts else (0.0 if distance.signed else 1.0) - placed @ centre
        return CodeQueries(turned.float(), norms, base)

    def _measured_there(self, queries: Tensor, ids: Tensor) -> Tensor:
        from kway.compute.gpu.search.exact import measured
        from kway.compute.gpu.search.products import PRODUCTS

        assert self.rows is not None
        return measured(PRODUCTS[self.scan.distance.name], self.rows, queries, ids)

    def _measured(
        self, exact: NDArray[np.float64], asked: BitQueries, ids: NDArray[np.int64], n_jobs: int | None
    ) -> NDArray[np.float64]:
        """Distances (q, c) of the rows at ids (q, c), by the kernels of the CPU's scan."""
        codes, distance, kept = self.scan.codes, self.scan.distance, self.scan.kept
        distances, found = np.empty(ids.shape), kept.found(ids) if kept.has_full else None

        def work(part: slice) -> None:
            if found is not None:
                measure(distance.code, exact[part], found.rows, found.places[part], distances[part])
                return
            estimate_bits(
                distance.shifts, self.codes.least, codes.frame.bits, codes.head, codes.rest, codes.factor,
                codes.frame.unit, codes.half, asked.turned[part], asked.totals[part], asked.base[part], ids[part],
                distances[part],
            )  # fmt: skip

        pmap(work, shares(len(ids), n_jobs, least=64), n_jobs)
        return distances


def _code_bytes(codes: BitRows) -> int:
    """What codes take on a device, 0 where they are there."""
    return 0 if isinstance(codes, FarBits) else codes.nbytes + 4 * len(codes)


def bits_there(codes: BitRows, device: Device) -> BitsThere:
    """Codes on the device, brought there where they were made here."""
    from kway.compute.gpu.codes.codes import TILE
    from kway.compute.gpu.codes.codes_of_tensors import BitsThere

    if isinstance(codes, FarBits):
        return codes.there
    n = len(codes)
    room = device.zeros((-(-n // TILE) * TILE, 2 * codes.frame.bits * codes.frame.wide // 64), "int32")
    for first in range(0, n, _BLOCK):
        part = slice(first, min(n, first + _BLOCK))
        ordered = np.concatenate([codes.head[:, part].T, codes.rest[part]], axis=1)
        room[part] = device.put(ordered.view(np.int32))
    return BitsThere(room, room[:n], device.put(codes.factors()), device.put(codes.half), float(codes.widest[0]))


def _sign_filter(scan: BitScan, device: Device, held: BitsThere) -> Any:
    """The filter of signs where the device has one for such codes."""
    from kway.compute.gpu.codes.codes import SignCodes
    from kway.compute.gpu.codes.sign_filter import SignFilter

    frame, n = scan.codes.frame, len(scan.codes)
    if not SignFilter.pays(device, frame.bits, frame.wide, n):
        return None
    ends = (0.5, 0.5) if frame.plain else map(float, held.half.aminmax())
    shortest, longest = ((2.0 * end) ** 0.5 for end in ends)
    return SignFilter(SignCodes.of(device, held.room, n), scan.z, shortest, longest)
