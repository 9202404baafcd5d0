"""Int8: rows as one byte per value, a quarter of the memory of float32.

Row r is decoded as x_rj = center_j + scale_r * code_rj, with codes in -127..127 and
scale_r = max_j |x_rj - center_j| / 127.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.memory import CACHE_BYTES, rows_per_block
from kway.parameters import YES_OR_NO, check_parameters
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.codecs.stores import Codes, GpuStoredRows, Store
from kway.search.distances import Distance
from kway.threads import pmap, spans


@dataclass(frozen=True)
class Int8(Store):
    """Rows stored as one byte per value.

    Parameters
    ----------
    rerank : bool, default=True
        Whether full rows are stored next to the codes; they may be memory-mapped. A search then scans the codes and
        measures the full rows that the error of the codes cannot rule out, so its results are exact. Otherwise only
        the codes are stored, and distances are those of the decoded rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kway.search import Flat, Int8
    >>> rows = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    >>> Flat(store=Int8(rerank=False)).build(rows).search(rows[:2], k=1).ids.tolist()
    [[0], [1]]
    """

    rerank: bool = True

    name = "int8"

    @property
    def bits_per_value(self) -> int:
        """Bits per value of the codes."""
        return 8

    def __post_init__(self) -> None:
        check_parameters(self, rerank=YES_OR_NO)

    def encode(self, rows: NDArray, distance: Distance) -> ByteRows:
        """Encode rows about their mean.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Rows.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        ByteRows
            The codes.
        """
        return _encode(rows, (rows.sum(axis=0, dtype=np.float64) / max(1, len(rows))).astype(np.float32))

    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> ByteRows | None:
        """Return the codes of a model file.

        Parameters
        ----------
        arrays : dict of str to ndarray
            Arrays of the model file by name.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        ByteRows or None
            The codes; None if the file has none.
        """
        if "codes" not in arrays:
            return None
        return ByteRows(*(np.asarray(arrays[key]) for key in ("codes", "codes.scale", "codes.center")))

    def store_on_gpu(self, rows: TensorRows, distance: Distance) -> GpuStoredRows:
        """Store rows on a GPU; codes are computed on the GPU.

        Parameters
        ----------
        rows : TensorRows of shape (n, d)
            Rows on the GPU.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        GpuStoredRows
            The full rows, which a GPU searches directly, or only their codes.
        """
        from kway.search.codecs.gpu_codes import encode_bytes_on_gpu

        return GpuStoredRows(rows) if self.rerank else GpuStoredRows(None, encode_bytes_on_gpu(rows))


@dataclass(frozen=True)
class ByteRows(Codes):
    """Rows (n, d) as bytes."""

    codes: NDArray[np.int8]  # (n, d)
    scale: NDArray[np.float32]  # (n,)
    center: NDArray[np.float32]  # (d,)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.codes.nbytes + self.scale.nbytes + self.center.nbytes

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return self.codes[where] * self.scale[where][..., None] + self.center

    def on_device(self, device: Device) -> Any:
        """Return a copy of the codes on a device."""
        from kway.rows.gpu.bit_codes import EncodedBytes

        return EncodedBytes(*map(device.put, (self.codes, self.scale, self.center)))

    def like(self, rows: NDArray) -> ByteRows:
        """Encode more rows about the same center."""
        return _encode(rows, self.center)

    def join(self, more: ByteRows) -> ByteRows:
        """Return these codes followed by more codes about the same center."""
        return ByteRows(np.concatenate([self.codes, more.codes]), np.concatenate([self.scale, more.scale]), self.center)

    def take(self, positions: NDArray[np.int64]) -> ByteRows:
        """Return the codes at positions."""
        return ByteRows(self.codes[positions], self.scale[positions], self.center)

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        return {"codes": self.codes, "codes.scale": self.scale, "codes.center": self.center}


def _encode(rows: NDArray, center: NDArray[np.float32]) -> ByteRows:
    """Return rows (n, d) as bytes about the center."""
    n, d = rows.shape
    codes, scale = np.empty((n, d), dtype=np.int8), np.empty(n, dtype=np.float32)

    def work(part: slice) -> None:
        centered = rows[part] - center
        steps = (np.abs(centered).max(axis=1) / 127.0).astype(np.float32)  # 0 at the center, and next to it
        scale[part] = np.where(steps > 0, steps, 1.0)
        codes[part] = np.clip(np.rint(centered / scale[part][:, None]), -127, 127)

    pmap(work, spans(n, rows_per_block(8 * d, CACHE_BYTES)))
    return ByteRows(codes, scale, center)
