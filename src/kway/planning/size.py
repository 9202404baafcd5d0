"""Size: what a job is about, in numbers; n rows, d features, K classes, k neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from kway.errors import InputError

LABEL_BYTES = 8  # bytes of a label, and of the code that it becomes
LABELLING = 15_000  # bytes passed that the label of a row and the checks cost as much as: about a microsecond


@dataclass(frozen=True)
class Size:
    """Rows (n, d) of `itemsize` bytes a number, a share `density` of them not zero (under 1: CSR), K classes."""

    n: int
    d: int
    K: int
    k: int = 5
    density: float = 1.0
    itemsize: int = 4

    @property
    def sparse(self) -> bool:
        """Whether the rows are CSR."""
        return self.density < 1

    @property
    def scores(self) -> int:
        """Scores a row, R: one for two classes."""
        return 1 if self.K == 2 else self.K

    @property
    def parameters(self) -> int:
        """Weights and biases of a linear classifier."""
        return self.scores * (self.d + 1)

    @property
    def values(self) -> float:
        """Numbers that are not zero among the rows."""
        return self.n * self.d * self.density

    @property
    def rows_bytes(self) -> int:
        """The rows as they are given; CSR has a 4-byte column a value and a 4-byte start a row."""
        if self.sparse:
            return int(self.values * (self.itemsize + 4)) + 4 * self.n
        return self.n * self.d * self.itemsize

    @property
    def data_bytes(self) -> int:
        """Rows, labels, and the labels as codes."""
        return self.rows_bytes + 2 * LABEL_BYTES * self.n


def checked_size(
    n_samples: float, n_features: float, n_classes: float, n_neighbors: float, density: float, itemsize: int
) -> Size:
    """The size, refused where it means nothing; 1e9 is as good a whole number as 1000000000."""
    n, d, K, k = (
        _whole(name, value, least)
        for name, value, least in (
            ("n_samples", n_samples, 1),
            ("n_features", n_features, 1),
            ("n_classes", n_classes, 2),
            ("n_neighbors", n_neighbors, 1),
        )
    )
    if n < K:
        raise InputError(
            f"n_classes must be at most n_samples, as each class needs a row, got {K:,} classes, {n:,} rows"
        )
    if not isinstance(density, Real) or not 0 < density <= 1:
        raise InputError(f"density must be a share above 0 and at most 1, got {density!r}")
    return Size(n, d, K, k, float(density), itemsize)


def _whole(name: str, value: float, least: int) -> int:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not least <= value < 1e18 or int(value) != value:
        raise InputError(f"{name} must be a whole number of at least {least} and below 1e18, got {value!r:.40}")
    return int(value)
