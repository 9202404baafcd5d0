"""Stochastic steps of linear models on a device, on which weights and rows stay.

GpuSteps         SGD for any loss, in full precision: v <- m v + (1 - m) g, theta <- prox(theta - t v), where t is the
                 rate, or with Adagrad rate / sqrt(sq_grad_sums) per row of theta
SoftmaxSteps     SGD for softmax over very many classes, by products in bfloat16 (softmax_step.py)
SampledWeights   sampled softmax: in-place steps on few classes, as in kernels/linear/sampled.py

    f = X W_C' + b_C + log weight     C are the classes of a step, log weight belongs to the drawn ones
    W_c <- W_c (1 + r_c ridge)^-(steps since the last one),  a_c <- a_c + mean_j g_cj^2,  W_c <- W_c - r_c g_c

with r_c = eta / sqrt(a_c). A sampled step allocates nothing of the size of all classes, and does not wait for the
device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.probabilities import Shares
from kway.rows.gpu.class_scores import MANY_CLASSES, DeviceClasses
from kway.rows.gpu.device import GPU_BLOCK_BYTES, row_blocks
from kway.rows.gpu.losses import BlockSlopes, LabeledRows, Weights, block_slopes
from kway.rows.gpu.softmax_step import Batch, Descent, RowAdagrad, SoftmaxStep, padded_columns
from kway.rows.passes import RowLosses, StepPlan, StepRule
from kway.threads import spans

if TYPE_CHECKING:
    from kway.rows.gpu.linear_passes import GpuRows


def gpu_steps(
    labeled: LabeledRows, losses: RowLosses, weight: NDArray, theta: NDArray, rule: StepRule, batch: int
) -> GpuSteps:
    """Return steps with bfloat16 products for softmax over many classes, else in full precision."""
    loss = losses.loss
    hard = losses.targets.soft is None and loss.cross_entropy and loss.joint
    if hard and len(theta) >= MANY_CLASSES and not rule.momentum and not rule.lasso:
        with labeled.device.room("the weights of all classes", 3 * theta.nbytes):
            return SoftmaxSteps(labeled, weight, theta, rule, batch)
    return GpuSteps(labeled, weight, theta, rule, batch, block_slopes(labeled, losses))


class GpuSteps:
    """SGD steps on batches of rows, of any loss, in full precision; weights and losses stay on the device."""

    def __init__(
        self, labeled: LabeledRows, weight: NDArray, theta: NDArray, rule: StepRule, batch: int, loss: BlockSlopes
    ) -> None:
        self._labeled, self._rule, self.batch, self._loss = labeled, rule, batch, loss
        self._weight = labeled.device.put(weight)
        self._weights = Weights.split(labeled.device.put(theta).clone())
        self._velocity = self._weights.zeros()
        self._sq_grad_sums = None if rule.sq_grad_sums is None else labeled.device.put(rule.sq_grad_sums).clone()

    def run(self, order: NDArray, eta: NDArray) -> float:
        """Take steps over the rows in this order, and return the sum of the losses."""
        parts = spans(len(order), self.batch)
        return float(sum(self.step(order[part], float(rate)) for part, rate in zip(parts, eta)))

    def step(self, rows: NDArray, rate: float) -> Tensor:
        """Update the weights by one batch, and return the sum of its losses."""
        labeled, rule, velocity = self._labeled, self._rule, self._velocity
        chosen = labeled.device.put(rows)
        X, weight = labeled.X[chosen], self._weight[chosen]
        with labeled.device.full_precision():
            scores = torch.addmm(self._weights.b, X, self._weights.W.T)  # (b, R)
            value, slope = self._loss(scores, chosen)
            slope = slope * (weight * ((1 - rule.momentum) / len(rows)))[:, None].to(slope.dtype)
            velocity.W.mul_(rule.momentum).addmm_(slope.T, X)
        velocity.b.mul_(rule.momentum)
        if rule.fit_intercept:
            velocity.b.add_(slope.sum(0))
        self._update_weights(rate)
        return value @ weight.double()

    def _update_weights(self, rate: float) -> None:
        """Set theta to prox(theta - t v)."""
        (W, b), velocity, rule = self._weights, self._velocity, self._rule
        length = self._step_lengths(rate)  # (R, 1), or (1, 1)
        W.sub_(length * velocity.W)
        b.sub_(length[:, 0] * velocity.b)
        if rule.lasso:
            W.copy_(W.sign() * (W.abs() - length * rule.lasso).clamp(min=0))
        if rule.ridge:
            W.div_(1 + length * rule.ridge)

    def _step_lengths(self, rate: float) -> Tensor:
        velocity, sq_grad_sums = self._velocity, self._sq_grad_sums
        if sq_grad_sums is None:
            return velocity.b.new_full((1, 1), rate)
        squares = velocity.W.square().sum(1) + velocity.b.square()
        sq_grad_sums += (squares / (velocity.W.shape[1] + 1))[:, None]
        return rate / sq_grad_sums.sqrt()

    def fetch(self) -> NDArray:
        """Return theta (R, d + 1), on the host."""
        return self._weights.joined()


class SoftmaxSteps(GpuSteps):
    """SGD steps of softmax with one label per row: float32 weights, products of their bfloat16 roundings.

    The bias is a column of the weights whose feature is 1.
    """

    def __init__(self, labeled: LabeledRows, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> None:
        self._labeled, self._rule, self._columns, self.batch = labeled, rule, theta.shape[1], batch
        self._weight = labeled.device.put(weight)
        K, free_bytes = len(theta), labeled.device.free_bytes()
        W = torch.zeros((K, padded_columns(self._columns)), dtype=torch.float32, device=labeled.X.device)
        W[:, : self._columns] = labeled.device.put(theta)
        sq_grad_sums = (
            None if rule.sq_grad_sums is None else labeled.device.put(rule.sq_grad_sums[:, 0]).float().clone()
        )
        self._padding = W.shape[1] - self._columns + 1  # columns without a penalty: the bias, and zeros
        update_rule = Descent() if sq_grad_sums is None else RowAdagrad(sq_grad_sums)
        self._step = SoftmaxStep(W, keep=4 * batch * K <= free_bytes, rule=update_rule, free=self._padding)

    def step(self, rows: NDArray, rate: float) -> Tensor:
        """Update the weights by one batch, and return the sum of its losses."""
        labeled = self._labeled
        chosen = labeled.device.put(rows)
        X = torch.zeros((len(rows), self._step.W.shape[1]), dtype=torch.bfloat16, device=labeled.X.device)
        X[:, : self._columns - 1] = labeled.X[chosen]
        if self._rule.fit_intercept:
            X[:, self._columns - 1] = 1
        batch = Batch(X, labeled.codes[chosen], self._weight[chosen])
        return self._step(batch, rate, self._rule.ridge).double() * len(rows)

    def fetch(self) -> NDArray:
        """Return theta (R, d + 1), on the host."""
        return self._labeled.device.fetch(self._step.W[:, : self._columns]).astype("float32", copy=True)


@dataclass(frozen=True)
class SampledWeights:
    """Weights of K classes, Adagrad's sums of squares (K,), and the step up to which each class has decayed (K,)."""

    labeled: LabeledRows
    classes: DeviceClasses  # W (K, d) and b (K,), which steps change in place
    sq_grad_sums: Tensor
    last_step: Tensor
    ridge: float
    fit_intercept: bool
    host: tuple[NDArray, NDArray, NDArray]  # the arrays theta, sq_grad_sums and last_step on the host

    @staticmethod
    def copy(
        labeled: LabeledRows, host: tuple[NDArray, NDArray, NDArray], ridge: float, fit_intercept: bool
    ) -> SampledWeights:
        """Copy the state of a run to the device, in parts."""
        theta, *per_class = host
        K, device = len(theta), labeled.device
        with device.room(f"sampled softmax over {K:,} classes", theta.nbytes + 16 * K + GPU_BLOCK_BYTES):
            classes = DeviceClasses.copy(device, theta[:, :-1], theta[:, -1])
            sq_grad_sums, last_step = (device.put(values).clone() for values in per_class)
            return SampledWeights(labeled, classes, sq_grad_sums, last_step, ridge, fit_intercept, host)

    def fetch(self) -> None:
        """Copy the state to the arrays on the host."""
        (theta, sq_grad_sums, last_step), (_, W, b) = self.host, self.classes
        for part in row_blocks(len(theta), theta[:1].nbytes):
            theta[part, :-1], theta[part, -1] = W[part].cpu().numpy(), b[part].cpu().numpy()
        sq_grad_sums[:], last_step[:] = self.sq_grad_sums.cpu().numpy(), self.last_step.cpu().numpy()

    def best(self, rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """Return the k best classes (m, k) of the given rows."""
        labeled = self.labeled
        return labeled.device.fetch(self.classes.best(labeled.X[labeled.device.put(rows)], k).codes)

    def mean_loss(self, watched: GpuRows, losses: RowLosses) -> float:
        """Return the mean loss of the watched rows, computed over blocks of classes."""
        labeled = watched.labeled(losses)
        best = self.classes.best(labeled.X, 1, Shares())
        label_scores = (labeled.X * self.classes.W[labeled.codes]).sum(1).double() + self.classes.b[
            labeled.codes
        ].double()
        assert best.total is not None
        log_total = best.scores[:, 0].double() + best.total.double().log()
        loss = labeled.device.fetch((log_total - label_scores).clamp(min=0))
        return float(np.average(loss, weights=losses.weight))

    def step(self, plan: StepPlan, number: int) -> None:
        """Take step `number` (from 0) on the classes of the rows and the drawn classes."""
        labeled, b = self.labeled, len(plan.rows)
        indices = labeled.device.put(np.concatenate((plan.rows, plan.own, plan.ids)))  # one copy for all indices
        rows, own, ids = indices[:b], indices[b : 2 * b, None], indices[2 * b :]
        X, size = labeled.X[rows], self.sq_grad_sums[ids]  # (b, d), (c,)
        W, bias = self.classes.W[ids], self.classes.b[ids]  # (c, d), (c,)
        if self.ridge:
            log_decay = torch.log1p(size.rsqrt() * (plan.eta * self.ridge))
            W.mul_(_shrunk(log_decay, number - self.last_step[ids], W))
        with labeled.device.full_precision():
            scores = torch.addmm(bias, X, W.T)  # (b, c)
            scores[:, plan.known :] += plan.log_weight
            slope = _slopes(scores, own, None if labeled.weight is None else labeled.weight[rows, None], b)
            gradient = slope.T @ X  # (c, d)
        if self.ridge:
            W.mul_(_shrunk(log_decay, 1, W))
        size += torch.linalg.vector_norm(gradient, dim=1).square_().div_(gradient.shape[1])
        rate = size.rsqrt().mul_(plan.eta).to(W.dtype)
        self.classes.W.index_copy_(0, ids, W.addcmul_(gradient, rate[:, None], value=-1))
        if self.fit_intercept:
            self.classes.b.index_copy_(0, ids, bias.addcmul_(rate, slope.sum(0), value=-1))
        self.sq_grad_sums.index_copy_(0, ids, size)
        self.last_step.index_fill_(0, ids, number + 1)

    def decay(self, step: int, eta: float) -> None:
        """Apply the weight decay that each class has accumulated since its last step."""
        if self.ridge:
            log_decay = torch.log1p(self.sq_grad_sums.rsqrt() * (eta * self.ridge))
            self.classes.W.mul_(_shrunk(log_decay, step - self.last_step, self.classes.W))
        self.last_step.fill_(step)

    def finite(self) -> bool:
        """Return whether all steps so far were finite."""
        return bool(self.sq_grad_sums.isfinite().all())

    def squares(self) -> float:
        """Return ||W||^2."""
        parts = row_blocks(len(self.classes.W), 8 * self.classes.W.shape[1])
        return sum(float(self.classes.W[part].square().sum(dtype=torch.float64)) for part in parts)


def _shrunk(log_decay: Tensor, steps: Tensor | int, W: Tensor) -> Tensor:
    """Return (1 + r ridge)^-steps of each class (c, 1), from log_decay = log(1 + r ridge)."""
    return (log_decay * -steps).exp_().to(W.dtype)[:, None]


def _slopes(scores: Tensor, own: Tensor, weight: Tensor | None, b: int) -> Tensor:
    """Return the weighted slopes p - Y of softmax, divided by the batch size b; `own` (b, 1) are the label columns.

    The slope of the label is minus the sum of the other probabilities, because 1 - p would cancel if p is near 1.
    """
    p = scores.softmax(1).scatter_(1, own, 0)
    p.scatter_(1, own, -p.sum(1, keepdim=True))
    return p.div_(b) if weight is None else p.mul_(weight / b)
