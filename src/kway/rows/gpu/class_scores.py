"""Scores of classes on a GPU, f = X W' + b, and the means of classes. Called by kway.base.class_rows.

    scores   (n, R)   scores of all classes
    shares   (n, K)   probabilities of all classes; the class of the largest score has the largest
    best     (n, k)   codes and scores, best first, ties by the lower code; computed without an array of shape (n, K)

Rows and classes are processed in blocks. The k best classes of a block are among the k groups of 64 classes with the
largest maxima: one pass over the scores finds these groups, and only k x 64 scores per row are sorted, stably, so that
ties keep their order. Products have full precision. The rows are `TensorRows`, or `HostRows`, which are on the host.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.errors import InputError
from kway.memory import BLOCK_BYTES
from kway.probabilities import Shares
from kway.rows.gpu.device import GPU_BLOCK_BYTES, Device, row_blocks, rows_that_fit
from kway.rows.gpu.exact_search import GROUP
from kway.threads import spans

MANY_CLASSES = 16_384  # classes scored at a time; SGD over more classes rounds its operands to bfloat16


class BestClasses(NamedTuple):
    """The k best classes of n rows.

    codes, scores   (n, k)
    total           (n,)  sum of the weights of all classes, relative to that of the best; None if not requested
    overflows       (n,)  whether a score is not finite
    """

    codes: Tensor
    scores: Tensor
    total: Tensor | None
    overflows: Tensor


class DeviceClasses(NamedTuple):
    """W (R, d) and b (R,) on a device. `shares` defines how scores become probabilities."""

    device: Device
    W: Tensor
    b: Tensor

    @staticmethod
    def copy(device: Device, W: NDArray, b: NDArray) -> DeviceClasses:
        """Copy the weights in parts; raise BudgetError if they and a block of scores do not fit."""
        with device.room(f"the weights of {len(b):,} classes", W.nbytes + b.nbytes + GPU_BLOCK_BYTES):
            dtype = device.put(b[:1]).dtype
            copied = torch.empty(W.shape, dtype=dtype, device=device.name)
            for part in row_blocks(len(b), W[:1].nbytes):
                copied[part] = device.put(W[part])
            return DeviceClasses(device, copied, device.put(b))

    def kind(self, X: Tensor) -> torch.dtype:
        """Return the float type of the scores of rows X."""
        return torch.promote_types(X.dtype, self.W.dtype)

    def block_scores(self, X: Tensor, classes: slice = slice(None)) -> Tensor:
        """Return the scores (m, c) of rows X (m, d) for a slice of the classes."""
        kind = self.kind(X)
        with self.device.full_precision():
            return torch.addmm(self.b[classes].to(kind), X.to(kind), self.W[classes].to(kind).T)

    def scores(self, X: Tensor) -> Tensor:
        """Return the scores (n, R); raise BudgetError if they do not fit."""
        return self._table(X, len(self.b), lambda f: f)

    def shares(self, X: Tensor, shares: Shares) -> Tensor:
        """Return the probabilities (n, K); raise BudgetError if they do not fit."""
        return self._table(X, max(2, len(self.b)), lambda f: probabilities(f, shares))

    def _table(self, X: Tensor, width: int, answer: Callable[[Tensor], Tensor]) -> Tensor:
        kind = self.kind(X)
        with self.device.room(f"{len(X):,} rows x {width:,} classes", len(X) * width * kind.itemsize):
            out = torch.empty((len(X), width), dtype=kind, device=self.W.device)
            for rows in row_blocks(len(X), kind.itemsize * width):
                f = self.block_scores(X[rows])
                _refuse_overflow(X[rows], ~f.isfinite().all(1), kind, rows.start)
                out[rows] = answer(f)
            return out

    def best_answers(self, X: Tensor, k: int, shares: Shares | None) -> tuple[Tensor, Tensor]:
        """Return codes (n, k) of the best classes, and their scores or, with `shares`, their probabilities."""
        with self.device.room(f"the best classes of {len(X):,} rows"):
            if len(self.b) == 1:
                f = self.scores(X)
                first = (f > 0).long()
                codes, scores = torch.cat((first, 1 - first), 1)[:, :k], torch.cat((f.abs(), -f.abs()), 1)[:, :k]
                return codes, scores if shares is None else torch.sigmoid(scores * shares.scale)
            best = self.best(X, k, shares)
            _refuse_overflow(X, best.overflows, best.scores.dtype)
            if shares is None or best.total is None:
                return best.codes, best.scores
            return best.codes, log_weights(shares, best.scores, best.scores[:, :1]).exp() / best.total[:, None]

    def best(self, X: Tensor, k: int, shares: Shares | None = None) -> BestClasses:
        """Return the k best classes of every row, and with `shares` the sum of the weights of all classes."""
        row_bytes = self.W.element_size() * min(MANY_CLASSES, len(self.b))
        free_bytes = self.device.free_bytes() // 8  # up to eight arrays of this size exist at the same time
        size = min(rows_that_fit(row_bytes), free_bytes // row_bytes)
        parts = [self._best(X[rows], k, shares) for rows in spans(len(X), max(1, size))]
        if len(parts) == 1:
            return parts[0]
        return BestClasses(*(None if arrays[0] is None else torch.cat(arrays) for arrays in zip(*parts)))

    def _best(self, X: Tensor, k: int, shares: Shares | None) -> BestClasses:
        X = X.to(self.kind(X))
        codes, scores = X.new_empty((len(X), 0), dtype=torch.int64), X.new_empty((len(X), 0))
        total, overflows = None, X.new_zeros((len(X),), dtype=torch.bool)
        for classes in spans(len(self.b), MANY_CLASSES):
            f = self.block_scores(X, classes)  # (m, c)
            low, high = torch.aminmax(f, dim=1)
            overflows |= ~(low.isfinite() & high.isfinite())
            columns, before = largest_columns(f, min(k, f.shape[1])), scores[:, :1]
            codes, scores = _merge_best(codes, scores, columns + classes.start, f.gather(1, columns), k)
            if shares is not None:
                peak = scores[:, :1]
                block_total = log_weights(shares, f, peak).exp().sum(1)
                total = (
                    block_total
                    if total is None
                    else block_total + total * log_weights(shares, before, peak).exp()[:, 0]
                )
        return BestClasses(codes, scores, total, overflows)


def log_weights(shares: Shares, f: Tensor, peak: Tensor) -> Tensor:
    """Return the log of the weight of each score (m, c), relative to the largest score (m, 1) of its row: <= 0."""
    scale = min(shares.scale, torch.finfo(f.dtype).max)
    if shares.joint:
        return (f - peak) * scale
    log_sigmoid = torch.nn.functional.logsigmoid
    return log_sigmoid(f * scale) - log_sigmoid(peak * scale)


def probabilities(f: Tensor, shares: Shares) -> Tensor:
    """Return probabilities (m, K) of scores (m, R); the class of the largest score has the largest probability."""
    if f.shape[1] == 1:
        return lift_winners(torch.sigmoid(torch.cat((-f, f), dim=1) * shares.scale), (f[:, 0] > 0).long())
    if shares.joint:
        return lift_winners(log_weights(shares, f, f.amax(1, keepdim=True)).softmax(1), f.argmax(1))
    p = torch.sigmoid(f * shares.scale)
    total = p.sum(1, keepdim=True)
    return lift_winners(torch.where(total > 0, p / total, 1 / p.shape[1]), f.argmax(1))


def lift_winners(p: Tensor, winners: Tensor) -> Tensor:
    """Return p (m, c) with the winner (m,) of each row as its argmax.

    A winner whose probability equals another one after rounding is set to the next larger float.
    """
    at = winners[:, None]
    largest = p.amax(1, keepdim=True)
    above = torch.nextafter(largest, torch.full_like(largest, torch.inf))
    wins = p.argmax(1, keepdim=True) == at
    return p.scatter(1, at, torch.where(wins, p.gather(1, at), above))


def largest_columns(f: Tensor, k: int) -> Tensor:
    """Return the columns (m, k) of the k largest values per row of f (m, c), largest first, ties by lower column."""
    m, c = f.shape
    if k == 1:
        return f.argmax(1, keepdim=True)
    if 2 * k * GROUP >= c:
        return f.sort(dim=1, descending=True, stable=True).indices[:, :k]
    padding = -c % GROUP
    padded = torch.nn.functional.pad(f, (0, padding), value=-torch.inf) if padding else f
    grouped = padded.view(m, -1, GROUP)
    groups = grouped.amax(2).sort(dim=1, descending=True, stable=True).indices[:, :k]
    groups = groups.sort(dim=1).values  # in the order of their columns, which the stable sort keeps
    candidates = grouped.gather(1, groups[:, :, None].expand(-1, -1, GROUP)).view(m, -1)  # (m, k 64)
    order = candidates.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return groups.gather(1, order // GROUP) * GROUP + order % GROUP


def _merge_best(codes: Tensor, scores: Tensor, new_codes: Tensor, new_scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best of both lists; new codes are larger, so that a stable sort keeps ties in their order."""
    scores, codes = torch.cat((scores, new_scores), dim=1), torch.cat((codes, new_codes), dim=1)
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return codes.gather(1, order), scores.gather(1, order)


def _refuse_overflow(X: Tensor, overflows: Tensor, kind: torch.dtype, first: int = 0) -> None:
    """Raise InputError if the scores of a row are not finite, with the row's largest value."""
    if not bool(overflows.any()):
        return
    row = int(overflows.nonzero()[0, 0])
    raise InputError(
        f"the scores of row {first + row} overflow {str(kind).removeprefix('torch.')}: its largest value is "
        f"{float(X[row].abs().max()):.3g}; scale the column as in fit, or drop the row"
    )


# ---- large weights are copied once


class _Copy(NamedTuple):
    """Weights on a device, and the arrays that they were copied from."""

    W: weakref.ref[NDArray]
    b: weakref.ref[NDArray]
    classes: DeviceClasses


_COPIES: dict[int, _Copy] = {}  # by the id of W; the entry is removed with W


def classes_on_device(device: Device, W: NDArray, b: NDArray) -> DeviceClasses:
    """Return W and b on the device; a copy of large weights is reused while they are the same arrays."""
    copy = _COPIES.get(id(W))
    if copy is not None and copy.W() is W and copy.b() is b and copy.classes.device == device:
        return copy.classes
    classes = DeviceClasses.copy(device, W, b)
    if W.nbytes >= BLOCK_BYTES:
        key = id(W)
        _COPIES[key] = _Copy(weakref.ref(W, lambda _: _COPIES.pop(key, None)), weakref.ref(b), classes)
    return classes


# ---- rows on the host


@dataclass(frozen=True)
class HostRows:
    """Rows (n, d) on the host, whose classes a device scores; answers are arrays."""

    rows: Any  # an array or `ConvertedRows`
    device: Device

    def answers_of(
        self, W: NDArray, b: NDArray, answer: Callable[[DeviceClasses, Tensor], Sequence[Tensor]]
    ) -> list[NDArray]:
        """Return the answers (n, ...) of classes with weights W (R, d) and b (R,), which `answer` computes."""
        classes = classes_on_device(self.device, W, b)
        n, d = self.rows.shape
        blocks = row_blocks(n, self.rows.dtype.itemsize * d)
        parts = [[self.device.fetch(t) for t in answer(classes, self.device.put(self.rows[block]))] for block in blocks]
        return [np.concatenate(arrays) for arrays in zip(*parts)]


# ---- the means of classes


class BatchMeans(NamedTuple):
    """Weights (c,), means (c, d) and the weighted sum of squared deviations of a batch of rows, float64."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    spread: float


def batch_means(device: Device, rows: Callable[[slice], Tensor], place: NDArray, w: NDArray, d: int) -> BatchMeans:
    """Return the weighted means of the classes of a batch.

    `rows` returns a slice of the rows, (m, d), on the device; `place` (n,) has their classes 0..c - 1, `w` (n,) their
    weights.
    """
    n, c = len(place), int(place.max()) + 1
    parts = row_blocks(n, 8 * d)
    with device.room(f"the means of {c:,} classes x {d} columns", 16 * c * d + 24 * n):
        codes, weight = device.put(place), device.put(w, torch.float64)
        weights = device.zeros(c, "float64").index_add_(0, codes, weight)
        means = device.zeros((c, d), "float64")
        for part in parts:
            means.index_add_(0, codes[part], rows(part).double() * weight[part][:, None])
        means /= weights.clamp(min=1e-300)[:, None]
        spread = device.zeros(1, "float64")
        for part in parts:
            spread += weight[part] @ (rows(part).double() - means[codes[part]]).square().sum(1)
        return BatchMeans(device.fetch(weights), device.fetch(means), float(spread))
