"""Synthetic rows for the example and the benchmarks of a search over a billion classes.

Value (c, j) is a hash of the row number c and the feature j, so that rows are generated when they are needed and never
stored. The hash exists twice, in numpy here and in Triton in code_kernels.py; tests/gpu/test_codes.py compares them.

counter_rows(classes)               the rows (m, 512) on the host
CounterRows("cuda").rows(classes)   the same rows on a device
CounterRows("cuda").codes(n)        the sign codes of the first n rows, generated in the registers of the GPU
CounterRows("cuda").queries(...)    rotated rows with noise, at a given cosine to the originals
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kway.rows.gpu.device import Device, Tensor
from kway.rows.gpu.sign_codes import BITS, SignCodes, device_sign_words
from kway.rows.gpu.tile_plans import TILE, TILE_CLASSES, TILE_DEPTH
from kway.threads import spans

WIDTH = BITS  # features of a row: one per bit of its code


def counter_rows(classes: NDArray) -> NDArray[np.float32]:
    """Generate rows on the host.

    Parameters
    ----------
    classes : ndarray of shape (m,)
        Row numbers, integers from 0 to 2^32 - 1.

    Returns
    -------
    ndarray of shape (m, 512)
        The rows in float32, with values from -127.5 to 127.5.

    Examples
    --------
    >>> counter_rows([0, 7]).shape
    (2, 512)
    """
    column_seeds = np.arange(WIDTH, dtype=np.uint32) * np.uint32(0x9E3779B1)
    row_seeds = _mix_bits(np.asarray(classes).astype(np.uint32) + np.uint32(12345))
    return (_mix_bits(row_seeds[:, None] ^ column_seeds) >> np.uint32(24)).astype(np.float32) - np.float32(127.5)


def _mix_bits(h: NDArray[np.uint32]) -> NDArray[np.uint32]:
    h = h ^ (h >> np.uint32(16))
    h *= np.uint32(0x7FEB352D)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x846CA68B)
    h ^= h >> np.uint32(16)
    return h


@dataclass(frozen=True)
class CounterRows:
    """Generator of rows and of their codes, the signs of the rotated rows, on a device.

    Parameters
    ----------
    name : str, default="cuda"
        Name of the device: "cuda", "cuda:N" or "cpu".

    Attributes
    ----------
    device : Device
        The device.
    turn : tensor of shape (512, 512)
        The rotation in bfloat16.
    """

    name: str = "cuda"

    @cached_property
    def device(self) -> Device:
        """The device."""
        return Device(self.name)

    @cached_property
    def turn(self) -> Tensor:
        """The rotation (512, 512) in bfloat16."""
        normal = np.random.default_rng(0).standard_normal((WIDTH, WIDTH))
        return self.device.put(np.linalg.qr(normal)[0]).to(self.device.torch.bfloat16).contiguous()

    def rows(self, classes: Tensor) -> Tensor:
        """Generate rows on the host and copy them to the device.

        Parameters
        ----------
        classes : tensor of shape (m,)
            Row numbers.

        Returns
        -------
        tensor of shape (m, 512)
            The same values as `counter_rows`, in float32.
        """
        return self.device.put(counter_rows(self.device.fetch(classes)))

    def codes(self, n: int) -> SignCodes:
        """Generate the codes of the first n rows, without storing the rows.

        Parameters
        ----------
        n : int
            Number of rows.

        Returns
        -------
        SignCodes
            The codes, 512 bits per row.
        """
        n_padded = -(-n // TILE) * TILE
        with self.device.room(f"{n:,} codes", n_padded * BITS // 8):
            words = self.device.empty((n_padded, WIDTH // 32), "int32")
        if self.device.is_gpu:
            from kway.rows.gpu.code_kernels import generate_codes

            programs = n_padded // TILE * (WIDTH // TILE_CLASSES)
            with self.device.selected():
                generate_codes[(programs,)](words, self.turn, TILE, TILE_CLASSES, TILE_DEPTH, num_warps=8, num_stages=3)
        else:
            for block in spans(n_padded, 2**14):
                row_ids = self.device.torch.arange(block.start, block.stop)
                words[block] = device_sign_words(self.rows(row_ids) @ self.turn.float())
        return SignCodes.build(self.device, words, n)

    def queries(self, classes: Tensor, cosine: float, seed: int = 0) -> Tensor:
        """Draw one query per row at a given cosine to it, in a random direction.

        Parameters
        ----------
        classes : tensor of shape (m,)
            Row numbers.
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
        generator = torch.Generator(device=self.device.name).manual_seed(seed)
        rows = self.rows(classes)
        rows /= rows.square().sum(1, keepdim=True).sqrt_()
        noise = torch.randn(rows.shape, generator=generator, device=self.device.name)
        noise -= (noise * rows).sum(1, keepdim=True) * rows  # orthogonal to its row
        noise /= noise.square().sum(1, keepdim=True).sqrt_()
        with self.device.full_precision():
            return (cosine * rows + (1 - cosine**2) ** 0.5 * noise) @ self.turn.float()
