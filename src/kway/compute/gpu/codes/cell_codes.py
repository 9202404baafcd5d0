"""Codes about landmarks (kway.search.stores.centred_bits) on a device, in the order of their cells, read as rows are.

    r = R (x - m_c), y and f its code; q' = R (q - mean), m' = R (m - mean)
    x'  = m' + f y                        what stands for the row in products
    o   = |m'|^2 / 2 + half + f m'.y      so that o - q'.x' = half - f <q' - m', y> + |m'|^2 / 2 - q'.m', the key
    dot has no o: its distance is -q'.x', with a mean of 0

    distance   sqrt(|t|^2 + 2 (half - f <t, y>)), t = q' - m'  |  half of that square, of unit rows (cosine)  |  -q'.x'

Cells (compute/gpu/search/cells.py) take the least keys; the few of them are estimated once more about their landmark.
"""

from __future__ import annotations

from dataclasses import dataclass

from kway.compute.gpu.codes.bit_codes import BitCodes
from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.search.cells import of_length_one
from kway.compute.gpu.search.exact import VALUES, parts_of


@dataclass(frozen=True)
class CellCodes:
    """Codes of n rows in the order of cells; `squared`: distances are roots, `by_angle`: rows have length one."""

    codes: BitCodes
    cells: Tensor  # (n,) int64
    landmarks: Tensor  # (c, D) float32: m'
    mean: Tensor  # (d,) float64
    turn: Tensor  # (d, D) float64
    squared: bool
    by_angle: bool
    scale: Tensor  # (n,) 1
    offset: Tensor  # (n,)

    @staticmethod
    def of(
        codes: BitCodes, cells: Tensor, centres: Tensor, mean: Tensor, turn: Tensor, squared: bool, by_angle: bool
    ) -> CellCodes:
        """Codes (their half known where distances are not dot's) about centres (c, d) float64."""
        landmarks = ((centres - mean) @ turn).float()
        scale, offset = codes.device.zeros(len(cells)) + 1, codes.device.zeros(len(cells))
        if codes.half is not None:
            squares = 0.5 * landmarks.square().sum(1)
            for part in parts_of(len(cells), VALUES // (8 * turn.shape[1])):
                along = (landmarks[cells[part]] * codes.grid(codes.words[part], landmarks.dtype)).sum(1)
                offset[part] = squares[cells[part]] + codes.half[part] + codes.factor[part] * along
        return CellCodes(codes, cells, landmarks, mean, turn, squared, by_angle, scale, offset)

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def device(self) -> Device:
        """Where they are."""
        return self.codes.device

    def asked(self, queries: Tensor) -> Tensor:
        """q' (q, D) of queries (q, d) float64."""
        return ((of_length_one(queries) if self.by_angle else queries) - self.mean) @ self.turn

    def sides(self, at: Tensor, kind: object) -> Tensor:
        """x' (..., D) of the rows at places (...)."""
        grid = self.codes.grid(self.codes.words[at.reshape(-1)], self.landmarks.dtype).view(*at.shape, -1)
        return (grid * self.codes.factor[at][..., None] + self.landmarks[self.cells[at]]).to(kind)

    def limit(self, worst: Tensor, norms: Tensor) -> Tensor:
        """No key is too large: estimates err by more than their rounding, for which some more than k are kept."""
        return worst.new_full(worst.shape, -float("inf"))

    def measured(self, queries: Tensor, places: Tensor) -> Tensor:
        """Estimated distances (q, c) float64 to the rows at places (q, c)."""
        step = max(1, VALUES // (16 * places.shape[1] * self.turn.shape[1]))
        parts = parts_of(len(queries), step)
        return self.device.torch.cat([self._estimated(queries[part], places[part]) for part in parts])

    def _estimated(self, queries: Tensor, places: Tensor) -> Tensor:
        turned, codes = self.asked(queries).float()[:, None], self.codes  # (q, 1, D)
        m = self.landmarks[self.cells[places]]  # (q, c, D)
        grid = codes.grid(codes.words[places.reshape(-1)], m.dtype).view(*m.shape)
        local = turned.expand_as(m) if codes.half is None else turned - m
        keys = -(codes.factor[places] * (local * grid).sum(2)).double()
        if codes.half is None:
            return keys - (turned * m).sum(2).double()
        squares = local.double().square().sum(2) + 2 * (keys + codes.half[places].double())
        if self.squared:
            return squares.clamp(min=0.0).sqrt()
        blank = (queries.square().sum(1, keepdim=True) == 0).double()  # a cosine of 0 to everything
        return (0.5 * (squares + blank)).clamp(min=0.0)
