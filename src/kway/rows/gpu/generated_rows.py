"""Rows that are computed from their number: row c of 512 features is a hash of (c, feature), so none is stored.

counter_rows(classes)             (m, 512) float32, on the host
CounterRows("cuda").rows(classes) the same on a device
CounterRows("cuda").codes(n)      SignCodes of the first n rows, computed in the GPU's registers
CounterRows("cuda").queries(...)  rotated rows with noise, at a given cosine to the originals
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kway.rows.gpu.device import Device, Tensor
from kway.rows.gpu.sign_codes import BITS, SignCodes, device_sign_words
from kway.rows.gpu.tile_plans import TILE, TILE_CLASSES, TILE_DEPTH

WIDTH = BITS  # features of a row: one per bit of its code


def counter_rows(classes: NDArray) -> NDArray[np.float32]:
    """Compute rows from their numbers.

    Parameters
    ----------
    classes : ndarray of shape (m,)
        Numbers of the rows, whole numbers from 0 to 2^32 - 1.

    Returns
    -------
    ndarray of shape (m, 512)
        The rows in float32, each value between -127.5 and 127.5.

    Examples
    --------
    >>> counter_rows([0, 7]).shape
    (2, 512)
    """
    features = np.arange(WIDTH, dtype=np.uint32) * np.uint32(0x9E3779B1)
    seeds = _mix(np.asarray(classes).astype(np.uint32) + np.uint32(12345))
    return (_mix(seeds[:, None] ^ features) >> np.uint32(24)).astype(np.float32) - np.float32(127.5)


def _mix(h: NDArray[np.uint32]) -> NDArray[np.uint32]:
    h = h ^ (h >> np.uint32(16))
    h *= np.uint32(0x7FEB352D)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x846CA68B)
    h ^= h >> np.uint32(16)
    return h


@dataclass(frozen=True)
class CounterRows:
    """Rows that a device computes from their numbers, and their codes: the signs of the rotated rows.

    Parameters
    ----------
    name : str, default="cuda"
        Name of the device, "cuda" or "cpu".

    Attributes
    ----------
    device : Device
        The device.
    turn : tensor of shape (512, 512)
        The rotation in bfloat16.
    """

    name: str = "cuda"
    device: Device = field(init=False)
    turn: Tensor = field(init=False)  # (512, 512) bfloat16

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", Device(self.name))
        normal = np.random.default_rng(0).standard_normal((WIDTH, WIDTH))
        turn = self.device.put(np.linalg.qr(normal)[0]).to(self.device.torch.bfloat16).contiguous()
        object.__setattr__(self, "turn", turn)

    def rows(self, classes: Tensor) -> Tensor:
        """Compute rows on the device.

        Parameters
        ----------
        classes : tensor of shape (m,)
            Numbers of the rows.

        Returns
        -------
        tensor of shape (m, 512)
            The rows of `counter_rows` in float32.
        """
        if not self.device.is_gpu:
            return self.device.put(counter_rows(self.device.fetch(classes)))
        from kway.rows.gpu.code_kernels import fill_rows

        out = self.device.empty((len(classes), WIDTH))
        with self.device.selected():
            fill_rows[(len(classes),)](out, classes.int())
        return out

    def codes(self, n: int) -> SignCodes:
        """Compute the codes of the first n rows, without storing the rows.

        Parameters
        ----------
        n : int
            Number of rows.

        Returns
        -------
        SignCodes
            The codes, 512 bits per row.
        """
        bm, bn, bk = TILE, TILE_CLASSES, TILE_DEPTH
        whole = -(-n // bm) * bm
        with self.device.room(f"{n:,} codes", 64 * whole):
            words = self.device.empty((whole, WIDTH // 32), "int32")
        if self.device.is_gpu:
            from kway.rows.gpu.code_kernels import fill_codes

            with self.device.selected():
                fill_codes[(whole // bm * (WIDTH // bn),)](words, self.turn, bm, bn, bk, num_warps=8, num_stages=3)
        else:
            for first in range(0, whole, 2**14):
                some = self.device.torch.arange(first, min(whole, first + 2**14))
                words[some] = device_sign_words(self.rows(some) @ self.turn.float())
        return SignCodes.build(self.device, words, n)

    def queries(self, classes: Tensor, cosine: float, seed: int = 0) -> Tensor:
        """Draw one query per row at a given cosine to it, in a random direction.

        Parameters
        ----------
        classes : tensor of shape (m,)
            Numbers of the rows.
        cosine : float
            Cosine between each query and its row, between -1 and 1.
        seed : int, default=0
            Seed of the random directions.

        Returns
        -------
        tensor of shape (m, 512)
            Rotated queries of length 1, which `SignCodes` can search.
        """
        torch = self.device.torch
        source = torch.Generator(device=self.device.name).manual_seed(seed)
        own = self.rows(classes)
        own /= own.square().sum(1, keepdim=True).sqrt_()
        away = torch.randn(own.shape, generator=source, device=self.device.name)
        away -= (away * own).sum(1, keepdim=True) * own
        away /= away.square().sum(1, keepdim=True).sqrt_()
        with self.device.full_precision():
            return (cosine * own + (1 - cosine**2) ** 0.5 * away) @ self.turn.float()
