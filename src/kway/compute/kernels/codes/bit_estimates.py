"""Estimated distances of rows that somebody else has picked, to the digit those of a scan of codes (bit_scan.py)."""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.codes.bit_scan import distance_of, product
from kway.compute.kernels.jit import kernel


@kernel
def estimate_bits(squared, least, bits, head, rest, factor, unit, half, turned, totals, base, found, distances):
    """distances (q, k) of the rows found (q, k); queries as `scan_bits` takes them."""
    held = np.empty(bits * (turned.shape[1] // 64), np.uint64)
    for i in range(len(found)):
        for j in range(found.shape[1]):
            r = found[i, j]
            f = np.float32(factor[r]) * unit
            key = np.float64(-f * product(bits, head, rest, r, turned[i], totals[i], held))
            if squared:
                key += half[r]
            distances[i, j] = distance_of(squared, key, base[i], least)
