"""Stochastic steps of linear models on a device: weights and rows stay there.

GpuSteps         batches of SGD for any loss, in full precision: v <- m v + (1 - m) g, theta <- prox(theta - t v),
                 t the rate, or with Adagrad rate / sqrt(sizes) per row of theta; for softmax over very many classes by
                 products in bfloat16 (softmax_step.py)
SampledWeights   sampled softmax: steps on few class rows, in place, as kernels/linear/sampled.py makes them

    f = X W_C' + b_C + log weight     C the classes of a step, log weight of those that were drawn
    W_c <- W_c (1 + r_c ridge)^-(steps since),  a_c <- a_c + mean_j g_cj^2,  W_c <- W_c - r_c g_c

r_c = eta / sqrt(a_c). A sampled step makes nothing of the size of all classes, and waits for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.probabilities import Shares
from kway.rows.gpu.class_scores import SENT_BYTES, DeviceClasses
from kway.rows.gpu.losses import BlockSlopes, LabeledRows, Weights, block_slopes
from kway.rows.gpu.softmax_step import Batch, Descent, RowAdagrad, SoftmaxStep, padded_classes
from kway.rows.passes import RowLosses, StepPlan, StepRule
from kway.threads import spans

if TYPE_CHECKING:
    from kway.rows.gpu.passes import GpuRows

MANY_CLASSES = 16_384  # from which rounding the products' operands makes an epoch ten times faster (G2)


class GpuSteps:
    """Steps of batches on weights on the device; the losses are summed there."""

    def __init__(self, engine: AnyBatches | SoftmaxBatches, batch: int) -> None:
        self._engine, self._batch = engine, batch

    def run(self, order: NDArray, eta: NDArray) -> float:
        """Steps from these rows, a batch at a time; the sum of the losses met."""
        parts = spans(len(order), self._batch)
        return float(sum(self._engine.step(order[part], float(rate)) for part, rate in zip(parts, eta)))

    def fetch(self) -> NDArray:
        """theta (R, d + 1), on the host."""
        return self._engine.theta()


def gpu_steps(
    held: LabeledRows, losses: RowLosses, weight: NDArray, theta: NDArray, rule: StepRule, batch: int
) -> GpuSteps:
    """Steps by products in bfloat16 for softmax over many classes, else in full precision."""
    loss, given = losses.loss, (held, weight, theta, rule)
    hard = losses.targets.soft is None and loss.cross_entropy and loss.joint
    if hard and len(theta) >= MANY_CLASSES and not rule.momentum and not rule.lasso:
        with held.device.room("the weights of all classes", 3 * theta.nbytes):
            return GpuSteps(SoftmaxBatches(*given, batch=batch), batch)
    return GpuSteps(AnyBatches(*given, loss=block_slopes(held, losses)), batch)


class AnyBatches:
    """Steps of any loss, in full precision."""

    def __init__(self, held: LabeledRows, weight: NDArray, theta: NDArray, rule: StepRule, loss: BlockSlopes) -> None:
        self._held, self._rule, self._loss = held, rule, loss
        self._weight = held.device.put(weight)
        self._weights = Weights.of(held.device.put(theta).clone())
        self._velocity = self._weights.zeros()
        self._sizes = None if rule.sizes is None else held.device.put(rule.sizes).clone()

    def step(self, rows: NDArray, rate: float) -> Tensor:
        """One step."""
        held, rule, velocity = self._held, self._rule, self._velocity
        chosen = held.device.put(rows)
        X, weight = held.X[chosen], self._weight[chosen]
        with held.device.full_precision():
            scores = torch.addmm(self._weights.b, X, self._weights.W.T)  # (b, R)
            value, slope = self._loss(scores, rows)
            slope = slope * (weight * ((1 - rule.momentum) / len(rows)))[:, None].to(slope.dtype)
            velocity.W.mul_(rule.momentum).addmm_(slope.T, X)
        velocity.b.mul_(rule.momentum)
        if rule.fit_intercept:
            velocity.b.add_(slope.sum(0))
        self._move(rate)
        return value @ weight.double()

    def _move(self, rate: float) -> None:
        """theta <- prox(theta - t v)."""
        (W, b), velocity, rule = self._weights, self._velocity, self._rule
        length = self._lengths(rate)  # (R, 1), or (1, 1)
        W.sub_(length * velocity.W)
        b.sub_(length[:, 0] * velocity.b)
        if rule.lasso:
            W.copy_(W.sign() * (W.abs() - length * rule.lasso).clamp(min=0))
        if rule.ridge:
            W.div_(1 + length * rule.ridge)

    def _lengths(self, rate: float) -> Tensor:
        velocity, sizes = self._velocity, self._sizes
        if sizes is None:
            return velocity.b.new_full((1, 1), rate)
        squares = velocity.W.square().sum(1) + velocity.b.square()
        sizes += (squares / (velocity.W.shape[1] + 1))[:, None]
        return rate / sizes.sqrt()

    def theta(self) -> NDArray:
        """[W b] on the host."""
        return self._weights.together()


class SoftmaxBatches:
    """Steps of softmax with one label a row, by SoftmaxStep: weights in float32, products of their bfloat16 roundings.

    The bias is a column of the weights whose feature is 1.
    """

    def __init__(self, held: LabeledRows, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> None:
        self._held, self._rule, self._columns = held, rule, theta.shape[1]
        self._weight = held.device.put(weight)
        K, free = len(theta), held.device.free_bytes()
        W = torch.zeros((K, padded_classes(self._columns)), dtype=torch.float32, device=held.X.device)
        W[:, : self._columns] = held.device.put(theta)
        sizes = None if rule.sizes is None else held.device.put(rule.sizes[:, 0]).float().clone()
        self._padding = W.shape[1] - self._columns + 1  # columns that are not penalised: the bias, and zeros
        how = Descent() if sizes is None else RowAdagrad(sizes)
        self._step = SoftmaxStep(W, keep=4 * batch * K <= free, rule=how, free=self._padding)

    def step(self, rows: NDArray, rate: float) -> Tensor:
        """One step."""
        held = self._held
        chosen = held.device.put(rows)
        X = torch.zeros((len(rows), self._step.W.shape[1]), dtype=torch.bfloat16, device=held.X.device)
        X[:, : self._columns - 1] = held.X[chosen]
        if self._rule.fit_intercept:
            X[:, self._columns - 1] = 1
        batch = Batch(X, held.codes[chosen], self._weight[chosen])
        return self._step(batch, rate, self._rule.ridge).double() * len(rows)

    def theta(self) -> NDArray:
        """[W b] on the host."""
        return self._held.device.fetch(self._step.W[:, : self._columns]).astype("float32", copy=True)


@dataclass(frozen=True)
class SampledWeights:
    """W (K, d), b (K,), Adagrad's sums of squares (K,) and the step up to which each class has decayed (K,)."""

    held: LabeledRows
    W: Tensor
    b: Tensor
    sizes: Tensor
    met: Tensor
    ridge: float
    fit_intercept: bool
    host: tuple[NDArray, NDArray, NDArray]  # theta, sizes and met of the run

    @staticmethod
    def on(
        held: LabeledRows, theta: NDArray, sizes: NDArray, met: NDArray, ridge: float, fit_intercept: bool
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
            return SampledWeights(
                held,
                W,
                b,
                device.put(sizes).clone(),
                device.put(met).clone(),
                ridge,
                fit_intercept,
                (theta, sizes, met),
            )

    def fetch(self) -> None:
        """Bring the arrays of the run up to date."""
        theta, sizes, met = self.host
        for some in _parts(theta):
            theta[some, :-1], theta[some, -1] = self.W[some].cpu().numpy(), self.b[some].cpu().numpy()
        sizes[:], met[:] = self.sizes.cpu().numpy(), self.met.cpu().numpy()

    @property
    def classes(self) -> DeviceClasses:
        """The class rows as they stand."""
        return DeviceClasses(self.held.device, self.W, self.b)

    def best(self, rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """The k best classes of some rows (m, k)."""
        held = self.held
        return held.device.fetch(self.classes.best(held.X[held.device.put(rows)], k).codes)

    def mean_loss(self, watched: GpuRows, losses: RowLosses) -> float:
        """The mean loss of some rows, classes in blocks."""
        held = watched.held(losses)
        found = self.classes.best(held.X, 1, Shares())
        own = (held.X * self.W[held.codes]).sum(1).double() + self.b[held.codes].double()
        assert found.total is not None
        log_total = found.scores[:, 0].double() + found.total.double().log()
        loss = held.device.fetch((log_total - own).clamp(min=0))
        return float(np.average(loss, weights=losses.weight))

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
