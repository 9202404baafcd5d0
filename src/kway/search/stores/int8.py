"""How rows are kept: as given (store=None), or as bytes.

Int8()                x_rj = centre_j + scale_r * code_rj, codes in -127..127: a quarter of float32
Int8(rerank=True)     the full rows are kept too (they may be memory-mapped); the scan reads the codes, and rows
                      that the error of the codes cannot rule out are measured in full: answers stay exact
Int8(rerank=False)    only the codes are kept; distances are those of the coded rows, so answers are approximate
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import spans


@dataclass(frozen=True)
class Int8:
    """Rows as one byte a value; `rerank` keeps the full rows beside them, which makes answers exact."""

    rerank: bool = True


@dataclass(frozen=True)
class Coded:
    """Rows (n, d) as codes; a slice or an array of positions gives them back as float32."""

    codes: NDArray[np.int8]  # (n, d)
    scale: NDArray[np.float32]  # (n,)
    centre: NDArray[np.float32]  # (d,)

    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.codes.nbytes + self.scale.nbytes + self.centre.nbytes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return self.codes[where] * self.scale[where][..., None] + self.centre

    def append(self, more: Coded) -> Coded:
        """These rows and more, coded about the same centre."""
        return Coded(np.concatenate([self.codes, more.codes]), np.concatenate([self.scale, more.scale]), self.centre)

    def take(self, positions: NDArray[np.int64]) -> Coded:
        """The rows at positions."""
        return Coded(self.codes[positions], self.scale[positions], self.centre)

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file; `coded_from` reverses it."""
        return {"codes": self.codes, "codes.scale": self.scale, "codes.centre": self.centre}


def coded_from(arrays: dict[str, NDArray]) -> Coded:
    """The coded rows of a model file."""
    return Coded(*(np.asarray(arrays[key]) for key in ("codes", "codes.scale", "codes.centre")))


def coded(rows: NDArray, centre: NDArray | None = None) -> Coded:
    """Rows (n, d) as codes about their mean, or about the centre given."""
    n, d = rows.shape
    middle = (rows.sum(axis=0, dtype=np.float64) / max(1, n) if centre is None else centre).astype(np.float32)
    codes = np.empty((n, d), dtype=np.int8)
    scale = np.empty(n, dtype=np.float32)
    for part in spans(n, max(64, 2**20 // d)):
        moved = rows[part] - middle
        widest = np.abs(moved).max(axis=1)
        scale[part] = np.where(widest > 0, widest / 127.0, 1.0)
        codes[part] = np.clip(np.rint(moved / scale[part][:, None]), -127, 127)
    return Coded(codes, scale, middle)


def code_errors(rows: NDArray, kept: Coded, base: str) -> NDArray[np.float64]:
    """||x - coded x|| of each row (n,), in the L1 norm for manhattan, else in the L2 norm."""
    errors = np.empty(len(rows))
    for part in spans(len(rows), max(64, 2**20 // rows.shape[1])):
        gaps = rows[part].astype(np.float64) - kept[part]
        errors[part] = np.abs(gaps).sum(axis=1) if base == "manhattan" else np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
    return errors
