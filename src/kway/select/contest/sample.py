"""Sample: which rows families are compared on, where all would take too long; the best is fitted on all of them.

n' <= n rows of K' <= K classes     the most for which the plan expects no more than the time given
rows a class                        at least ROWS_A_CLASS, or all: with fewer, whole classes are left out instead,
                                    since families are told apart by how they learn a class, not by how many
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.planning.size import Size

ROWS_A_CLASS = 10
LEAST_A_CLASS = 10_000  # rows that are always compared on: a standard error of half a point
_SHRINK = 0.8  # from one try to the next


class Sample(NamedTuple):
    """Row numbers in ascending order (n',), and the note that tells of them."""

    rows: NDArray[np.int64]
    note: str


def draw_sample(
    codes: NDArray[np.int64], size: Size, expected: Callable[[Size], float], seconds: float, seed: int
) -> Sample | None:
    """Rows of classes codes (n,) whose comparison is expected to take so many seconds; None where all may."""
    a_class, wanted = min(ROWS_A_CLASS, size.n / size.K), size
    while expected(wanted) > seconds and wanted.n > LEAST_A_CLASS:
        n = max(LEAST_A_CLASS, int(_SHRINK * wanted.n))
        wanted = replace(wanted, n=n, K=max(2, min(size.K, int(n / a_class))))
    if wanted.n >= len(codes):
        return None
    rng = np.random.default_rng(seed)
    rows = _by_class(codes, some_classes(codes, wanted.K, rng), wanted.n, rng)
    of = f" of {wanted.K:,} of the {size.K:,} classes" if wanted.K < size.K else ""
    note = (
        f"families were compared on {len(rows):,} of the {len(codes):,} training rows{of}, drawn by class, to take "
        "minutes and not hours; the best was then fitted on all of them"
    )
    return Sample(rows, note)


def some_classes(codes: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of so many classes, in ascending order."""
    present = np.unique(codes)
    if count >= len(present):
        return np.arange(len(codes))
    chosen = np.zeros(int(codes.max()) + 1, bool)
    chosen[rng.choice(present, count, replace=False)] = True
    return np.flatnonzero(chosen[codes])


def _by_class(codes: NDArray[np.int64], rows: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """About n of the rows, the same share of each class, and no class without two where it has them."""
    shuffled = rng.permutation(rows)
    ordered = shuffled[np.argsort(codes[shuffled], kind="stable")]
    _, starts, counts = np.unique(codes[ordered], return_index=True, return_counts=True)
    kept = np.minimum(counts, np.maximum(2, np.rint(counts * min(1.0, n / len(rows)))))
    place = np.arange(len(ordered)) - np.repeat(starts, counts)  # of a row within its class
    return np.sort(ordered[place < np.repeat(kept, counts)])
