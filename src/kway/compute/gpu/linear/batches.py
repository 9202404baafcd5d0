"""Steps from a few rows at a time, weights and rows on the device: any loss, or softmax over very many classes.

v <- m v + (1 - m) g,  theta <- prox(theta - t v)     t the rate, or with Adagrad rate / sqrt(sizes) a row of theta
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.compute.gpu.linear.losses import Slopes
from kway.compute.gpu.linear.rows import DeviceRows, Weights
from kway.compute.gpu.linear.softmax_step import Batch, Descent, RowAdagrad, SoftmaxStep, padded_classes

LossOfSome = Callable[[Tensor, NDArray], Slopes]  # scores (b, R) of rows by number -> their values and slopes


@dataclass(frozen=True)
class BatchRule:
    """How steps are made; `sizes` (R, 1) are Adagrad's sums of squares at the start, None: one rate for all."""

    ridge: float = 0.0
    lasso: float = 0.0
    fit_intercept: bool = True
    momentum: float = 0.0
    sizes: NDArray | None = None


class Batches(Protocol):
    """Weights on a device that steps change."""

    def step(self, rows: NDArray, rate: float) -> Tensor:
        """One step from some rows; the sum of their weighted losses."""
        ...

    def theta(self) -> NDArray:
        """[W b], (R, d + 1), on the host."""
        ...


class AnyBatches:
    """Steps of any loss, in full precision."""

    def __init__(self, held: DeviceRows, weight: NDArray, theta: NDArray, rule: BatchRule, loss: LossOfSome) -> None:
        self._held, self._rule, self._loss = held, rule, loss
        self._weight = held.device.put(weight)
        self._weights = Weights.of(held.here(theta).clone())
        self._velocity = self._weights.zeros()
        self._sizes = None if rule.sizes is None else held.here(rule.sizes).clone()

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

    def __init__(self, held: DeviceRows, weight: NDArray, theta: NDArray, rule: BatchRule, batch: int) -> None:
        self._held, self._rule, self._columns = held, rule, theta.shape[1]
        self._weight = held.device.put(weight)
        K, free = len(theta), held.device.free_bytes()
        W = torch.zeros((K, padded_classes(self._columns)), dtype=torch.float32, device=held.X.device)
        W[:, : self._columns] = held.here(theta)
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
