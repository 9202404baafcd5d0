"""The space bounds are computed in: z = clip((x - centre) * unit, +-limit), float32, |z_i| <= 1.

Centred, so that a large offset costs no digits; a power of two as unit, so that scaling is exact and no square
overflows; clipped, because a projection on a box never lengthens a distance (Euclidean or Manhattan), so that outliers
and wild queries stay representable and only weaken their own bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.certified.sketch import peaks_of, place
from kway.compute.kernels.jit import frozen

ROUNDING = 2.0**-24  # half the distance of 1 to the next float32
UNDERFLOW = 1e-15  # covers what underflow can hide: squares below 1e-38 of values of size 1


class FramedRows(NamedTuple):
    """values (b, d) float32 in the frame, squares (b,) = |z|^2, sizes (b,) = |z|_1."""

    values: NDArray[np.float32]
    squares: NDArray[np.float64]
    sizes: NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """centre (d,) float64, unit (a power of two), limit of every coordinate after scaling."""

    centre: NDArray[np.float64]
    unit: float
    limit: float

    def place(self, block: NDArray) -> FramedRows:
        """Rows (b, d) of either float type, in this frame."""
        values = np.empty(block.shape, np.float32)
        squares, sizes = np.empty(len(block)), np.empty(len(block))
        place(frozen(block), self.centre, self.unit, self.limit, values, squares, sizes)
        return FramedRows(values, squares, sizes)


def measure_frame(sample: NDArray) -> Frame | None:
    """Frame that holds nearly all rows of the sample (s, d); None where there is no spread, or one out of all range."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre = sample.mean(axis=0, dtype=np.float64)
    peaks = np.empty(len(sample))
    peaks_of(frozen(sample), centre, peaks)
    usual = 4 * float(np.quantile(peaks, 0.99))
    reach = min(float(peaks.max()), usual) if usual > 0 else float(peaks.max())
    if not 1e-60 < reach < 1e60:  # also nan and inf; beyond, the units would leave float64
        return None
    unit = 2.0 ** -np.ceil(np.log2(reach))
    return Frame(frozen(centre), float(unit), float(reach * unit))
