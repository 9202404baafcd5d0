"""Flat search on a GPU, with the interface of the CPU's scan.

DeviceSearch    full rows or int8 rows: the GPU finds the k nearest by float64 distances
DeviceBits      codes of a few bits. Full rows, if they are stored, decide among the rows that the codes leave
                undecided: on the GPU if they fit into its memory, else on the CPU

For queries in arrays, the kernels of the CPU's scan measure (or estimate) the nearest rows again, so that all digits
and ties equal those of the CPU.

A search of codes may miss a row whose estimate is beyond its error bar, as on the CPU. If a filter of signs is used
first (sign_codes.py), it may also miss a row that differs in more bits than its cosine predicts. The probability of
each is at most half of `Bits(miss=)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from kway.kernels.jit import frozen
from kway.rows.gpu import exact_search
from kway.rows.gpu.bit_codes import BitCodes, CodeQueries, EncodedBits
from kway.rows.gpu.device import GPU_BLOCK_BYTES, MAX_NEIGHBORS, Device, Tensor
from kway.rows.gpu.exact_search import NearestRows
from kway.rows.gpu.int8_search import build_exact_search
from kway.rows.gpu.sign_codes import SignCodes, SignFilter


@dataclass
class DeviceSearch:
    """Exact search over rows on a GPU; the CPU's scan measures the nearest rows again."""

    scan: Any  # the CPU's scan of the same rows, kway.search.block_scan.Scan
    search: Any  # ExactSearch
    touched: float = float("nan")
    answers_tensors: ClassVar[bool] = True  # queries in tensors are answered without the host

    @staticmethod
    def over(scan: Any, device: Device) -> DeviceSearch:
        """Copy the rows to the device, unless they are on it, and return the search."""
        kept = scan.kept
        n, d = kept.shape
        with device.room(f"an index of {n:,} rows x {d} columns", kept.device_bytes()):
            return DeviceSearch(scan, build_exact_search(device, kept.on_device(device), scan.distance.name))

    @property
    def nbytes(self) -> int:
        """Number of bytes in the memory of the host."""
        return int(self.scan.nbytes)

    @property
    def device(self) -> Device:
        """Device of the rows."""
        device: Device = self.search.rows.device
        return device

    @property
    def why(self) -> str:
        """Description of the search, in one sentence."""
        rows = "exact" if self.scan.kept.has_full else "int8 rows, decoded"
        return f"flat, {rows}: a filter with an error bound excludes rows, and the others are measured in float64"

    def nearest(self, queries: Any, k: int) -> NearestRows:
        """Return the ids and distances of brute force on the CPU, which also computes very long lists."""
        if k > MAX_NEIGHBORS:
            return self.scan.nearest(queries, k)
        device, dense = self.device, queries.toarray() if sp.issparse(queries) else queries
        with device.room(f"a search of {len(dense):,} queries"):
            ids = device.fetch(self.search.nearest(device.put(dense), k).ids)
        self.touched = float(k)
        return exact_search.by_distance(ids, self.scan.measure(frozen(dense.astype(np.float64)), ids))

    def answer(self, queries: Tensor, k: int, limit: float) -> NearestRows | None:
        """Return the k < n nearest rows of queries (q, d) on the device, by (distance in float32, position).

        Return None if a query has NaN, infinity, or a largest absolute value outside of 1 / limit to limit.
        """
        nearest: NearestRows | None = self.search.nearest_in_float32(queries, k, limit)
        return nearest


@dataclass
class DeviceBits:
    """Codes on a device; full rows on the device, on the host, or not kept."""

    scan: Any  # kway.search.codecs.bit_scan.BitScan
    codes: BitCodes
    rows: Tensor | None
    touched: float = float("nan")

    @staticmethod
    def over(scan: Any, device: Device) -> DeviceBits:
        """Copy the codes to the device, and the full rows if they fit, and return the search."""
        codes, kept = scan.kept.codes, scan.kept
        n, d = codes.shape
        with device.room(f"an index of {n:,} rows x {d} columns as codes", codes.device_bytes()):
            encoded = codes.on_device(device)
            half = encoded.half if scan.distance.shifts else None
            searched = BitCodes(
                device, codes.frame.bits, encoded.words, encoded.factor, half,
                bar=scan.bar, least=scan.least,
                filter=_sign_filter(scan, device, encoded),
            )  # fmt: skip
        return DeviceBits(scan, searched, kept.full_on_device(device, spare=4 * GPU_BLOCK_BYTES))

    @property
    def device(self) -> Device:
        """Device of the codes."""
        return self.codes.device

    @property
    def why(self) -> str:
        """Description of the search, with the device of the full rows."""
        full = "full rows measured" if self.scan.kept.has_full else "only codes kept"
        where = "" if not self.scan.kept.has_full else " on the GPU" if self.rows is not None else " on the CPU"
        return f"flat over codes of {self.codes.bits} bits per column, approximate: {full}{where}"

    @property
    def nbytes(self) -> int:
        """Number of bytes in the memory of the host."""
        return int(self.scan.nbytes)

    def nearest(self, queries: Any, k: int) -> NearestRows:
        """Return the k nearest with the CPU's distances; the CPU computes very long lists."""
        if k > MAX_NEIGHBORS:
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
            encoded = self.scan.encode(exact)  # rotated by the CPU
            rotated = CodeQueries(*(device.put(values) for values in (encoded.rotated, encoded.norms, encoded.base)))
            nearest = self.codes.nearest(rotated, k, measure)
            ids, distances = device.fetch(nearest.ids), device.fetch(nearest.distances)
        return exact_search.by_distance(
            ids, self.scan.measure(exact, frozen(ids)) if self.rows is not None else distances
        )

    def answer(self, queries: Tensor, k: int, limit: float) -> NearestRows | None:
        """Return the k nearest rows of queries (q, d) on the device, by (distance in float32, position).

        Return None if a query has NaN, infinity, or a largest absolute value outside of 1 / limit to limit.
        """
        if not exact_search.all_within(queries, limit):
            return None

        exact = queries.double()
        rotated = self._rotate(exact)

        def measure(which: Tensor, ids: Tensor) -> Tensor:
            if self.rows is not None:
                return self._measured(exact[which], ids)
            return self.codes.estimates(rotated.take(which), ids)

        return self.codes.nearest(rotated, k, measure, rounded=queries.dtype.itemsize == 4)

    @property
    def answers_tensors(self) -> bool:
        """Whether queries in tensors are answered without the host: if it has no full rows to measure."""
        return self.rows is not None or not self.scan.kept.has_full

    @cached_property
    def _rotation(self) -> Tensor:
        """R' (d, D) float64, which rotates queries."""
        frame = self.scan.frame
        return self.device.put(frame.rotate(np.eye(len(frame.center), dtype=np.float32)).astype(np.float64))

    def _rotate(self, queries: Tensor) -> Any:
        """Return queries (q, d) float64 on the device as the search of codes expects them."""
        frame, distance = self.scan.frame, self.scan.distance
        center = self.device.put(frame.center.astype(np.float64))
        placed = exact_search.METRICS[distance.name].operand(queries)
        rotated = (placed - center if distance.shifts else placed) @ self._rotation
        norms = rotated.square().sum(1).sqrt()
        base = norms.square() if distance.shifts else (0.0 if distance.signed else 1.0) - placed @ center
        return CodeQueries(rotated.float(), norms, base)

    def _measured(self, queries: Tensor, ids: Tensor) -> Tensor:
        assert self.rows is not None
        return exact_search.measure_rows(exact_search.METRICS[self.scan.distance.name], self.rows, queries, ids)


def _sign_filter(scan: Any, device: Device, encoded: EncodedBits) -> Any:
    """Return the filter of signs if the device has one for such codes, else None."""
    frame, n = scan.frame, scan.n
    if not SignFilter.is_worthwhile(device, frame.bits, frame.wide, n):
        return None
    ends = (0.5, 0.5) if frame.plain else map(float, encoded.half.aminmax())
    shortest, longest = ((2.0 * end) ** 0.5 for end in ends)
    return SignFilter(SignCodes.build(device, encoded.room, n), scan.z, shortest, longest)
