"""A first filter of codes of 512 signs on a Hopper GPU: rows that agree most with a query, and whether they are enough.

    lists     rows whose signs differ from the query's in at most `most` bits (codes.py): some hundreds of a billion
    enough    a row as near as the k-th found has a cosine to the query of at least c (its length, the k-th key), so
              that its bits differ in Binomial(512, arccos(c) / pi); where its z-th deviation lies within `most`, rows
              outside the list may be left out, but for the chance that z stands for

The rule is the CPU's (kernels/codes/bit_scan.py: least_cosine, most_bits), for all bits instead of the first few.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import NamedTuple

from kway.compute.gpu import nvrtc
from kway.compute.gpu.codes.codes import BITS, CodeLists, SignCodes
from kway.compute.gpu.device import Device, Tensor

_KEEP = 128  # rows listed at least
LEAST_LISTED = 2**20  # rows from which on lists pay
LIST_TOGETHER = 1024  # queries whose lists are filled together


class SignLists(NamedTuple):
    """Rows (q, c), whether they are real (q, c), sums of q_j (+-1) (q, c), and `most` (q,), -1: not all listed."""

    ids: Tensor
    real: Tensor
    products: Tensor
    most: Tensor


@dataclass(frozen=True)
class SignFilter:
    """Codes of 512 signs; z normal deviations; the shortest and the longest of the rows."""

    signs: SignCodes
    z: float
    shortest: float
    longest: float

    @staticmethod
    def pays(device: Device, bits: int, wide: int, rows: int) -> bool:
        """Whether such codes are filtered there."""
        wanted = bits == 1 and wide == BITS and rows >= LEAST_LISTED
        return wanted and device.is_gpu and nvrtc.can_compile()

    def lists(self, turned: Tensor) -> SignLists:
        """The rows that agree most with queries (q, 512) float32."""
        torch = self.signs.device.torch
        lists = CodeLists(self.signs, turned, _KEEP)
        lists.fill()
        agree, products = lists.measured()
        real = agree >= 0  # padding is not measured
        last = lists.thresholds[: lists.q] - lists.shift + 1  # agreeing bits from which on every row is listed
        most = (BITS - last).where(lists.counts <= agree.shape[1], -1)
        return SignLists(torch.where(real, lists.ids.long(), 0), real, products, most)

    def enough(self, keys: Tensor, norms: Tensor, squared: bool, most: Tensor) -> Tensor:
        """Whether (q,) no row outside the lists can have a key of at most keys (q,); norms (q,) of the queries."""
        if squared:  # l^2 / 2 - l |q| cos <= key; the cosine is least where l^2 = -2 key
            length = (-2.0 * keys).clamp(min=0.0).sqrt().clamp(self.shortest, self.longest)
            need, least = 0.5 * length.square() - keys, length * norms
        else:
            length = keys.new_full(keys.shape, self.shortest).where(keys >= 0, self.longest)
            need, least = -keys, length * norms
        cosine = (need / least.where(least > 0, 1.0)).where(least > 0, -1.0).clamp(-1.0, 1.0)
        p = cosine.arccos() / pi
        allowed = BITS * p + self.z * (BITS * p * (1.0 - p)).sqrt() + 0.5
        return keys.isfinite() & (allowed < most + 1)
