"""Weights of sampled softmax on a device: steps on few class rows, in place, as kernels/linear/sampled.py makes them.

    f = X W_C' + b_C + log weight     C the classes of a step, log weight of those that were drawn
    W_c <- W_c (1 + r_c ridge)^-(steps since),  a_c <- a_c + mean_j g_cj^2,  W_c <- W_c - r_c g_c

r_c = eta / sqrt(a_c). Nothing of the size of all classes is made in a step; no step waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.compute.gpu.linear.best_classes import SENT_BYTES, DeviceClasses
from kway.compute.gpu.linear.rows import DeviceRows
from kway.compute.threads import spans


class StepPlan(NamedTuple):
    """A step: rows (b,), where each one's own class is among `ids`, the classes (c,), the first `known` of them not
    drawn; what the logarithm of each drawn one's weight is, and the rate."""

    rows: NDArray[np.int64]
    own: NDArray[np.int64]
    ids: NDArray[np.int64]
    known: int
    log_weight: float
    eta: float


@dataclass(frozen=True)
class SampledWeights:
    """W (K, d), b (K,), Adagrad's sums of squares (K,) and the step up to which each class has decayed (K,)."""

    held: DeviceRows
    W: Tensor
    b: Tensor
    sizes: Tensor
    met: Tensor
    ridge: float
    fit_intercept: bool

    @staticmethod
    def on(
        held: DeviceRows, theta: NDArray, sizes: NDArray, met: NDArray, ridge: float, fit_intercept: bool
    ) -> SampledWeights:
        """The state of a run, copied there in parts."""
        K, columns = theta.shape
        device = held.device
        with device.room(f"sampled softmax over {K:,} classes", theta.nbytes + 16 * K + SENT_BYTES):
            W = torch.empty((K, columns - 1), dtype=held.X.dtype, device=device.name)
            b = torch.empty(K, dtype=held.X.dtype, device=device.name)
            for some in _parts(theta):
                part = device.put(theta[some])
                W[some], b[some] = part[:, :-1], part[:, -1]
            return SampledWeights(held, W, b, device.put(sizes).clone(), device.put(met).clone(), ridge, fit_intercept)

    def fetch(self, theta: NDArray, sizes: NDArray, met: NDArray) -> None:
        """Into arrays of the host."""
        for some in _parts(theta):
            theta[some, :-1], theta[some, -1] = self.W[some].cpu().numpy(), self.b[some].cpu().numpy()
        sizes[:], met[:] = self.sizes.cpu().numpy(), self.met.cpu().numpy()

    @property
    def classes(self) -> DeviceClasses:
        """The class rows as they stand."""
        return DeviceClasses(self.held.device, self.W, self.b)

    def step(self, plan: StepPlan, number: int) -> None:
        """Step `number` (from 0) of the rows' classes and those drawn."""
        held, b = self.held, len(plan.rows)
        sent = held.device.put(np.concatenate((plan.rows, plan.own, plan.ids)))  # one way for all numbers
        rows, own, ids = sent[:b], sent[b : 2 * b, None], sent[2 * b :]
        X, size = held.X[rows], self.sizes[ids]  # (b, d), (c,)
        W, bias = self.W[ids], self.b[ids]  # (c, d), (c,)
        if self.ridge:
            bend = torch.log1p(size.rsqrt() * (plan.eta * self.ridge))
            W.mul_(_shrunk(bend, number - self.met[ids], W))
        with held.device.full_precision():
            scores = torch.addmm(bias, X, W.T)  # (b, c)
            scores[:, plan.known :] += plan.log_weight
            slope = _slopes(scores, own, None if held.weight is None else held.weight[rows, None], b)
            gradient = slope.T @ X  # (c, d)
        if self.ridge:
            W.mul_(_shrunk(bend, 1, W))
        size += torch.linalg.vector_norm(gradient, dim=1).square_().div_(gradient.shape[1])
        rate = size.rsqrt().mul_(plan.eta).to(W.dtype)
        self.W.index_copy_(0, ids, W.addcmul_(gradient, rate[:, None], value=-1))
        if self.fit_intercept:
            self.b.index_copy_(0, ids, bias.addcmul_(rate, slope.sum(0), value=-1))
        self.sizes.index_copy_(0, ids, size)
        self.met.index_fill_(0, ids, number + 1)

    def decay(self, step: int, eta: float) -> None:
        """Every class has all the decay that it is due."""
        if self.ridge:
            bend = torch.log1p(self.sizes.rsqrt() * (eta * self.ridge))
            self.W.mul_(_shrunk(bend, step - self.met, self.W))
        self.met.fill_(step)

    def finite(self) -> bool:
        """Whether all steps so far were numbers."""
        return bool(self.sizes.isfinite().all())

    def squares(self) -> float:
        """||W||^2."""
        parts = spans(len(self.W), max(1, SENT_BYTES // (8 * self.W.shape[1])))
        return sum(float(self.W[some].square().sum(dtype=torch.float64)) for some in parts)


def _shrunk(bend: Tensor, steps: Tensor | int, W: Tensor) -> Tensor:
    """(1 + r ridge)^-steps of each class (c, 1), from bend = log(1 + r ridge)."""
    return (bend * -steps).exp_().to(W.dtype)[:, None]


def _slopes(scores: Tensor, own: Tensor, weight: Tensor | None, b: int) -> Tensor:
    """softmax less one at the row's own class, weighed, over b; by the others' shares: 1 - p keeps its digits."""
    p = scores.softmax(1).scatter_(1, own, 0)
    p.scatter_(1, own, -p.sum(1, keepdim=True))
    return p.div_(b) if weight is None else p.mul_(weight / b)


def _parts(theta: NDArray) -> list[slice]:
    return spans(len(theta), max(1, SENT_BYTES // theta[:1].nbytes))
