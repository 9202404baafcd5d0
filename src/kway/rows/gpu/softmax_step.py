"""An SGD step of softmax over very many classes: the loss, and weights updated in place. Sums are float32 and exact.

    e = exp(X W' - r), s = its row sums        loss = r + log s - f_y
    dW = E' (X / s),  E = e less s at the row's own class: the rows of X are divided instead of E

So there is no second pass over the scores, and no gradient is stored: the product is added to the weights. r is the
best score of the first classes, not a running maximum. The formula holds for any r. Only if a score exceeds r by 69 (s
above 1e30), the pass is repeated with the true maximum of every row.

    keep        e of all classes is stored, 2 B K bytes: two products
    not keep    nothing of size (rows, classes) is stored, and scores are computed twice: three products

Weights (K, D) are bfloat16, or float32 of which products read a rounded copy, one chunk at a time. Measurements:
benchmarks/results/gpu_softmax.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kway.kernels.float32 import FLOAT32_SAFE
from kway.rows.gpu.class_scores import MANY_CLASSES
from kway.rows.gpu.device import Device
from kway.rows.gpu.tile_plans import softmax_stages

CHUNK = 4 * MANY_CLASSES  # classes at a time; a quarter of that is equally fast (G2)
MAX_SUM = FLOAT32_SAFE[1] ** 2  # row sum above which bfloat16, which has the range of float32, may overflow
ALIGNED = 16 // torch.bfloat16.itemsize  # values in the 16 bytes to which rows of tiles are aligned


class Batch(NamedTuple):
    """Rows of a step: X (B, D) in bfloat16, codes (B,), weights (B,) or None."""

    X: Tensor
    codes: Tensor
    weight: Tensor | None = None


@dataclass(frozen=True)
class Descent:
    """w <- prox(w - rate g), by one product that is added to the weights."""

    def update(self, W: Tensor, first: int, E: Tensor, X: Tensor, rate: float, ridge: float, free: int) -> None:
        """Set W to (W - rate E' X) / (1 + rate ridge), without the division for the bias."""
        shrink = 1 / (1 + rate * ridge)
        add_product(W, E, X, shrink, -rate * shrink)
        if free and ridge:
            W[:, -free:].div_(shrink)


@dataclass(frozen=True)
class RowAdagrad:
    """One rate per class, rate / sqrt(sum of its mean squared gradients): squares (K,) float32."""

    squares: Tensor

    def update(self, W: Tensor, first: int, E: Tensor, X: Tensor, rate: float, ridge: float, free: int) -> None:
        """Store the gradient of a chunk in the precision of the weights, and subtract the step."""
        G = bf16_product(E, X, W.dtype)
        squares, penalized = self.squares[first : first + len(W)], W.shape[1] - free
        if W.is_cuda:
            from kway.rows.gpu.softmax_kernels import adagrad_rows

            adagrad_rows(W, G, squares, rate, 1.0, ridge, penalized)
            return
        g = G.float()
        squares.add_(g.square().mean(1))
        step = (rate / (squares.sqrt() + 1e-30))[:, None]
        w = W.float() - step * g
        w[:, :penalized] /= 1 + step * ridge
        W.copy_(w)


UpdateRule = Descent | RowAdagrad
Exponentials = Callable[..., None]


@dataclass
class SoftmaxStep:
    """Weights (K, D) that steps change; the last `free` columns are biases (their X is 1) and have no penalty.

    D is a multiple of 8. `keep`: whether exponentials are stored (16 GB for 8192 rows and a million classes).
    """

    W: Tensor
    keep: bool = True
    rule: UpdateRule = field(default_factory=Descent)
    free: int = 0
    exponentials: Exponentials | None = None  # default: a Triton kernel on a GPU, else torch
    redone: int = 0  # steps that were repeated with the true maximum
    _buffers: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.exponentials is None:
            self.exponentials = _exponentials(self.W.device)

    def __call__(self, batch: Batch, rate: float, ridge: float = 0.0) -> Tensor:
        """Take one step, and return the weighted mean loss before it."""
        B, X = len(batch.X), batch.X
        weight = X.new_ones(B, dtype=torch.float32) if batch.weight is None else batch.weight.float()
        own = (X.float() * self.W[batch.codes].to(X.dtype).float()).sum(1)  # f_y
        reference, sums = self._sums(X, batch.codes)
        E = self._kept(batch.codes, own, reference, sums) if self.keep else None
        scaled = (X.float() * (weight / (sums * B))[:, None]).to(X.dtype)  # rows of X divided by s and B
        for c in self._chunks():
            W = self.W[c : c + CHUNK]
            here = self._again(X, W, batch.codes, c, reference, sums) if E is None else E[:, c : c + CHUNK]
            self.rule.update(W, c, here, scaled, rate, ridge, self.free)
        return ((reference + sums.log() - own) * weight).sum() / B

    # ---- the first pass: sums over all classes

    def _sums(self, X: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reference (B,) and the row sums (B,) of the exponentials, which are stored if `keep`."""
        reference = (X @ self.W[:MANY_CLASSES].to(X.dtype).T).amax(1).float()
        sums = self._pass(X, codes, reference)
        if not bool((sums < MAX_SUM).all()):
            self.redone += 1
            large = torch.nonzero(~(sums < MAX_SUM)).squeeze(1)
            reference[large] = self._maxima(X[large])
            sums = self._pass(X, codes, reference)
        return reference, sums

    def _pass(self, X: Tensor, codes: Tensor, reference: Tensor) -> Tensor:
        sums = torch.zeros_like(reference)
        for c in self._chunks():
            W = self._operand(self.W[c : c + CHUNK])
            into = self._exps(len(X))[:, c : c + len(W)] if self.keep else self._exps(len(X))[:, : len(W)]
            self._call(X, W, into, reference, sums, codes, c, store=self.keep)
        return sums

    def _maxima(self, X: Tensor) -> Tensor:
        """Return the largest score (m,) of each row."""
        found = [(X @ self._operand(self.W[c : c + CHUNK]).T).amax(1) for c in self._chunks()]
        return torch.stack(found).amax(0).float()

    # ---- the second pass: E of a chunk

    def _kept(self, codes: Tensor, own: Tensor, reference: Tensor, sums: Tensor) -> Tensor:
        """Return all exponentials less s at the own class, from float32, because e of a certain row is nearly s."""
        E = self._exps(len(codes))
        rows = torch.arange(len(codes), device=E.device)
        E[rows, codes] = ((own - reference).exp() - sums).to(E.dtype)
        return E[:, : len(self.W)]

    def _again(self, X: Tensor, W: Tensor, codes: Tensor, first: int, reference: Tensor, sums: Tensor) -> Tensor:
        into = self._exps(len(X))[:, : len(W)]
        self._call(X, self._operand(W), into, reference, sums, codes, first, add=False, less=True)
        return into

    # ---- buffers

    def _call(self, *args: Any, **how: bool) -> None:
        assert self.exponentials is not None
        self.exponentials(*args, **how)

    def _chunks(self) -> range:
        return range(0, len(self.W), CHUNK)

    def _exps(self, B: int) -> Tensor:
        """Return a buffer for exponentials: of all classes if `keep`, else of a chunk."""
        classes = len(self.W) if self.keep else min(CHUNK, len(self.W))
        return self._buffer("exps", B, -(-classes // ALIGNED) * ALIGNED)

    def _operand(self, W: Tensor) -> Tensor:
        """Return a chunk of weights in bfloat16."""
        if W.dtype == torch.bfloat16:
            return W
        return self._buffer("operand", CHUNK, W.shape[1])[: len(W)].copy_(W)

    def _buffer(self, name: str, rows: int, columns: int) -> Tensor:
        room = self._buffers.get(name)
        if room is None or len(room) < rows:
            room = self._buffers[name] = torch.empty((rows, columns), dtype=torch.bfloat16, device=self.W.device)
        return room[:rows]


def padded_classes(columns: int) -> int:
    """Return the columns of stored weights: a multiple of the alignment of tiles."""
    return -(-columns // ALIGNED) * ALIGNED


def add_product(W: Tensor, E: Tensor, X: Tensor, beta: float, alpha: float) -> None:
    """Set W to beta W + alpha E' X in place, summed in float32 for any dtype of W."""
    if W.dtype == E.dtype:
        W.addmm_(E.T, X, beta=beta, alpha=alpha)
    elif W.is_cuda:
        torch.addmm(W, E.T, X, beta=beta, alpha=alpha, out_dtype=W.dtype, out=W)
    else:
        W.addmm_(E.float().T, X.float(), beta=beta, alpha=alpha)


def bf16_product(E: Tensor, X: Tensor, dtype: torch.dtype) -> Tensor:
    """Return E' X, summed in float32."""
    if dtype == E.dtype:
        return E.T @ X
    return torch.mm(E.T, X, out_dtype=dtype) if E.is_cuda else E.float().T @ X.float()


def plain_exponentials(
    X: Tensor, W: Tensor, into: Tensor, reference: Tensor, sums: Tensor, codes: Tensor, first: int = 0, *,
    store: bool = True, add: bool = True, less: bool = False,
) -> None:  # fmt: skip
    """Do what the Triton kernel does, by torch's operations."""
    e = (X.float() @ W.float().T - reference[:, None]).exp_()
    if add:
        sums += e.sum(1)
    if less:
        here = torch.nonzero((codes >= first) & (codes < first + len(W))).squeeze(1)
        e[here, codes[here] - first] -= sums[here]
    if store:
        into.copy_(e)


def _exponentials(device: torch.device) -> Exponentials:
    """Return the Triton kernel if the GPU is Hopper or newer and a tile fits into its shared memory, else torch's."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 9:
        return plain_exponentials
    stages = softmax_stages(Device(str(device)).shared_bytes)
    if not stages:
        return plain_exponentials
    from kway.rows.gpu.softmax_kernels import exp_tiles

    return partial(exp_tiles, stages=stages)
