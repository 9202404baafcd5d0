"""Answers of a linear model on a device, tensors in and out: what kway.linear.answers makes of numpy arrays.

    best            codes and scores (n, k), or probabilities where they are asked for; never (n, K)
    scores          (n, R)
    probabilities   (n, K): softmax(f / T), or sigmoid(f / T) normalised over the columns

R is 1 for two classes, whose scores are -f and f.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kway.compute.gpu.device import Device
from kway.compute.gpu.linear.best_classes import DeviceClasses, sigmoid_weights, softmax_weights
from kway.compute.gpu.linear.rows import DEVICE_BLOCK
from kway.compute.threads import spans
from kway.errors import InputError


class DeviceTopK(NamedTuple):
    """Codes (n, k) of the best classes, best first, and their scores (n, k)."""

    codes: Tensor
    scores: Tensor


@dataclass(frozen=True)
class ClassAnswers:
    """Class rows, and how their scores become probabilities, if they do; `joint`: by softmax, else each by itself."""

    classes: DeviceClasses
    joint: bool
    temperature: float
    states: bool = True  # scores stand for probabilities

    @property
    def device(self) -> Device:
        """Where."""
        return self.classes.device

    def best(self, X: Tensor, k: int, stated: bool) -> DeviceTopK:
        """The k best classes with their scores, or, if `stated` and there are any, their probabilities."""
        stated = stated and self.states
        with self.device.room(f"the best classes of {len(X):,} rows"):
            if len(self.classes.b) == 1:
                return self._best_of_two(X, k, stated)
            weights = (softmax_weights if self.joint else sigmoid_weights)(self.temperature)
            found = self.classes.best(X, k, weights if stated else None)
            _refuse_overflow(X, found.overflows, found.scores.dtype)
            if found.log_total is None:
                return DeviceTopK(found.codes, found.scores)
            return DeviceTopK(found.codes, (weights(found.scores) - found.log_total[:, None]).exp())

    def _best_of_two(self, X: Tensor, k: int, stated: bool) -> DeviceTopK:
        f = self.scores(X)
        first = (f > 0).long()
        codes, scores = torch.cat((first, 1 - first), dim=1)[:, :k], torch.cat((f.abs(), -f.abs()), dim=1)[:, :k]
        return DeviceTopK(codes, torch.sigmoid(scores / self.temperature) if stated else scores)

    def scores(self, X: Tensor) -> Tensor:
        """(n, R); BudgetError where they do not fit."""
        return self._table(X, len(self.classes.b), lambda f: f)

    def probabilities(self, X: Tensor) -> Tensor:
        """(n, K), whose argmax is the class of the largest score; BudgetError where they do not fit."""
        return self._table(X, max(2, len(self.classes.b)), self._probabilities)

    def _table(self, X: Tensor, width: int, answer: Callable[[Tensor], Tensor]) -> Tensor:
        kind = torch.promote_types(X.dtype, self.classes.W.dtype)
        with self.device.room(f"{len(X):,} rows x {width:,} classes", len(X) * width * kind.itemsize):
            out = torch.empty((len(X), width), dtype=kind, device=self.classes.W.device)
            for rows in spans(len(X), max(1, DEVICE_BLOCK // (kind.itemsize * width))):
                f = self.classes.scores(X[rows])
                _refuse_overflow(X[rows], ~f.isfinite().all(1), kind, rows.start)
                out[rows] = answer(f)
            return out

    def _probabilities(self, f: Tensor) -> Tensor:
        if f.shape[1] == 1:
            return lifted(torch.sigmoid(torch.cat((-f, f), dim=1) / self.temperature), (f[:, 0] > 0).long())
        if self.joint:
            return lifted((f / self.temperature).softmax(1), f.argmax(1))
        p = torch.sigmoid(f / self.temperature)
        total = p.sum(1, keepdim=True)
        return lifted(torch.where(total > 0, p / total, 1 / p.shape[1]), f.argmax(1))


def on_its_device(X: Any) -> Tensor:
    """A tensor of floats, as rows are scored: float32 unless it is float64."""
    found: Tensor = X.detach()
    return found if found.dtype in (torch.float32, torch.float64) else found.float()


def lifted(p: Tensor, winners: Tensor) -> Tensor:
    """p (m, c) with the winner (m,) of each row as its argmax: one step of rounding above where another is as large."""
    here = winners[:, None]
    largest = p.amax(1, keepdim=True)
    above = torch.nextafter(largest, torch.full_like(largest, torch.inf))
    told = p.argmax(1, keepdim=True) == here
    return p.scatter(1, here, torch.where(told, p.gather(1, here), above))


def _refuse_overflow(X: Tensor, overflows: Tensor, kind: torch.dtype, first: int = 0) -> None:
    """Refuse rows whose scores are no numbers, with the value that made them so."""
    if not bool(overflows.any()):
        return
    row = int(overflows.nonzero()[0, 0])
    raise InputError(
        f"the scores of row {first + row} leave {str(kind).removeprefix('torch.')}: its largest value is "
        f"{float(X[row].abs().max()):.3g}; scale the column as in fit, or drop the row"
    )
