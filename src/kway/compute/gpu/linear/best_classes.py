"""Class rows on a device: f = X W' + b, a block of rows and classes at a time, the best k kept and a sum over all.

    scores   (n, R)   the whole table; the caller has checked that this fits
    best     (n, k)   codes and scores, best first, equals by the lower code; log_total (n,) = log sum_c e^{w(f_c)}

The k best of a block are among the k groups of 64 classes with the largest maxima: one pass over the scores finds
these, and only k x 64 scores a row are sorted (stably, so that equals keep their order). Products have full precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.compute.gpu.device import Device
from kway.compute.gpu.linear.rows import DEVICE_BLOCK
from kway.compute.threads import spans

_GROUP = 64  # classes whose largest score stands for them
_WIDE = 16_384  # classes of a block, where there are more
SENT_BYTES = 1 << 28  # of weights that are on the way at a time
_TABLES = 4  # arrays as large as a block's scores that are held at once

TensorWeights = Callable[[Tensor], Tensor]  # scores -> the logarithm of what each class weighs, before normalising


def softmax_weights(temperature: float) -> TensorWeights:
    """f / T."""
    return lambda f: f / temperature


def sigmoid_weights(temperature: float) -> TensorWeights:
    """log sigmoid(f / T)."""
    return lambda f: torch.nn.functional.logsigmoid(f / temperature)


class BestClasses(NamedTuple):
    """codes and scores (n, k), the log of all classes' weights (n,) where asked for, rows that overflow (n,)."""

    codes: Tensor
    scores: Tensor
    log_total: Tensor | None
    overflows: Tensor


class DeviceClasses(NamedTuple):
    """W (R, d) and b (R,) on a device."""

    device: Device
    W: Tensor
    b: Tensor

    @staticmethod
    def on(device: Device, W: NDArray, b: NDArray) -> DeviceClasses:
        """The class rows, copied there in parts; BudgetError where there is no room for them and a block of scores."""
        with device.room(f"the weights of {len(b):,} classes", W.nbytes + b.nbytes + DEVICE_BLOCK):
            kind = device.put(b[:1]).dtype
            there = torch.empty(W.shape, dtype=kind, device=device.name)
            for some in spans(len(b), max(1, SENT_BYTES // max(1, W[:1].nbytes))):
                there[some] = device.put(W[some])
            return DeviceClasses(device, there, device.put(b))

    def scores(self, X: Tensor) -> Tensor:
        """(m, R)."""
        kind = torch.promote_types(X.dtype, self.W.dtype)
        with self.device.full_precision():
            return torch.addmm(self.b.to(kind), X.to(kind), self.W.to(kind).T)

    def best(self, X: Tensor, k: int, log_weights: TensorWeights | None = None) -> BestClasses:
        """The k best classes of every row."""
        parts = [self._best(X[rows], k, log_weights) for rows in spans(len(X), self._rows())]
        if len(parts) == 1:
            return parts[0]
        totals = None if log_weights is None else torch.cat([part.log_total for part in parts])
        codes, found, bad = (torch.cat([getattr(p, name) for p in parts]) for name in ("codes", "scores", "overflows"))
        return BestClasses(codes, found, totals, bad)

    def _rows(self) -> int:
        """Rows of a block, whose scores on a block of classes stay small beside what memory there is."""
        room = min(DEVICE_BLOCK, self.device.free_bytes() // (2 * _TABLES))
        return max(1, room // (self.W.element_size() * min(_WIDE, len(self.b))))

    def _best(self, X: Tensor, k: int, log_weights: TensorWeights | None) -> BestClasses:
        kind = torch.promote_types(X.dtype, self.W.dtype)
        X = X.to(kind)
        codes, scores = X.new_empty((len(X), 0), dtype=torch.int64), X.new_empty((len(X), 0))
        log_total = None if log_weights is None else X.new_full((len(X),), -torch.inf)
        overflows = X.new_zeros((len(X),), dtype=torch.bool)
        with self.device.full_precision():
            for some in spans(len(self.b), _WIDE):
                f = torch.addmm(self.b[some].to(kind), X, self.W[some].to(kind).T)  # (m, c)
                low, high = torch.aminmax(f, dim=1)
                overflows |= ~(low.isfinite() & high.isfinite())
                if log_weights is not None and log_total is not None:
                    log_total = torch.logaddexp(log_total, log_weights(f).logsumexp(1))
                columns = largest_columns(f, min(k, f.shape[1]))
                codes, scores = _merged(codes, scores, columns + some.start, f.gather(1, columns), k)
        return BestClasses(codes, scores, log_total, overflows)


def largest_columns(f: Tensor, k: int) -> Tensor:
    """The columns (m, k) of the k largest of each row of f (m, c), largest first, equals by the lower column."""
    m, c = f.shape
    if k == 1:
        return f.argmax(1, keepdim=True)
    if 2 * k * _GROUP >= c:
        return f.sort(dim=1, descending=True, stable=True).indices[:, :k]
    short = -c % _GROUP
    whole = torch.nn.functional.pad(f, (0, short), value=-torch.inf) if short else f
    whole = whole.view(m, -1, _GROUP)
    groups = whole.amax(2).sort(dim=1, descending=True, stable=True).indices[:, :k]
    groups = groups.sort(dim=1).values  # in the order of their columns, which a stable sort keeps
    inside = whole.gather(1, groups[:, :, None].expand(-1, -1, _GROUP)).view(m, -1)  # (m, k 64)
    order = inside.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return groups.gather(1, order // _GROUP) * _GROUP + order % _GROUP


def _merged(codes: Tensor, scores: Tensor, more: Tensor, theirs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of both; codes are lower than `more`, so that equals keep their order."""
    both, names = torch.cat((scores, theirs), dim=1), torch.cat((codes, more), dim=1)
    order = both.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return names.gather(1, order), both.gather(1, order)
