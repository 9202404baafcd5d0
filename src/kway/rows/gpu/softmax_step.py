"""An SGD step of softmax over very many classes, which adds its product to the weights and stores no gradient.

    E = exp(X W' - r)     (B, K), with row sums s (B,), summed in float32 over all classes (none is sampled)
    loss = r + log s - f  with the score f of the row's label
    gradient = D' (X / s), where D (B, K) equals E, with s subtracted in the column of the row's label

Rows X (B, d) and weights W (K, d) have d columns, the last of which may be biases. Dividing X by s is cheaper than
dividing E. r (B,) is the largest score of the first classes instead of all, which saves a pass over the scores. The
formula holds for any r: one exponential is 1, so that s is at least about 1 and cannot underflow, and if s exceeds
MAX_SUM (a score is above r by about 69), the pass is repeated with the true maximum of these rows.

    keep        E of all classes is stored, in 2 B K bytes: two products
    not keep    nothing of size (rows, classes) is stored, and scores are computed twice: three products

Weights are bfloat16, or float32. Products read a bfloat16 copy of float32 weights, one chunk of classes at a
time. Measurements: benchmarks/results/gpu_softmax.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kway.kernels.float32 import FLOAT32_SAFE
from kway.rows.gpu.class_scores import MANY_CLASSES
from kway.rows.gpu.device import Device
from kway.rows.gpu.tile_plans import softmax_stages

CHUNK = 4 * MANY_CLASSES  # classes at a time; a quarter of that is equally fast (benchmark gpu_softmax)
MAX_SUM = FLOAT32_SAFE[1] ** 2  # about 1e30; far above it, bfloat16, which has the range of float32, overflows
ALIGNED = 16 // torch.bfloat16.itemsize  # values in the 16 bytes to which rows of tiles are aligned


class Batch(NamedTuple):
    """Rows of a step: X (B, d) in bfloat16, codes (B,), weights (B,) or None."""

    X: Tensor
    codes: Tensor
    weight: Tensor | None = None


class ChunkGradient(NamedTuple):
    """The weights of a chunk of classes, and the factors of their gradient D' X.

    W          (c, d)  weights, changed in place; a view of all weights
    first      class of the first row of W
    D          (B, c)  bfloat16
    X          (B, d)  bfloat16, rows divided by s and B
    penalized  number of leading columns that have a penalty; the others are biases
    """

    W: Tensor
    first: int
    D: Tensor
    X: Tensor
    penalized: int


@dataclass(frozen=True)
class Descent:
    """Set w to (w - rate g) / (1 + rate ridge), by one product that is added to the weights."""

    def update(self, chunk: ChunkGradient, rate: float, ridge: float) -> None:
        """Take the step; biases are multiplied back, because they have no penalty."""
        shrink = 1 / (1 + rate * ridge)
        add_product(chunk.W, chunk.D, chunk.X, shrink, -rate * shrink)
        if ridge:
            chunk.W[:, chunk.penalized :].div_(shrink)


@dataclass(frozen=True)
class RowAdagrad:
    """Adagrad with one rate per class: rate / sqrt(squares), from sums (K,) float32 of the mean squared gradient."""

    squares: Tensor

    def update(self, chunk: ChunkGradient, rate: float, ridge: float) -> None:
        """Compute the gradient of the chunk in the precision of the weights, and subtract the step."""
        W, penalized = chunk.W, chunk.penalized
        G = bf16_product(chunk.D, chunk.X, W.dtype)
        squares = self.squares[chunk.first : chunk.first + len(W)]
        if W.is_cuda:
            from kway.rows.gpu.softmax_kernels import adagrad_rows

            adagrad_rows(W, G, squares, rate, ridge, penalized)
            return
        g = G.float()
        squares.add_(g.square().mean(1))
        step = (rate / (squares.sqrt() + 1e-30))[:, None]
        w = W.float() - step * g
        w[:, :penalized] /= 1 + step * ridge
        W.copy_(w)


# (X, W, out, reference, sums, codes, first, *, store, subtract) computes exp(X W' - reference) (B, c) of a chunk of
# classes, whose first has code `first`. Without `subtract`, the row sums of the exponentials are added to `sums` (B,).
# With it, `sums` are subtracted in the column of each row's label. The result is written to `out` if `store`.
Exponentials = Callable[..., None]


@dataclass
class SoftmaxStep:
    """Weights (K, d), d a multiple of 8, that steps change in place.

    keep     whether exponentials are stored (16 GB for 8,192 rows and a million classes)
    free     number of last columns that are biases or padding, and have no penalty
    redone   number of steps that were repeated with the true maximum
    """

    W: Tensor
    keep: bool = True
    rule: Descent | RowAdagrad = field(default_factory=Descent)
    free: int = 0
    redone: int = 0
    _buffers: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._exponentials = choose_exponentials(self.W.device)

    def __call__(self, batch: Batch, rate: float, ridge: float = 0.0) -> Tensor:
        """Take one step, and return the weighted sum of the losses before it, divided by the number of rows."""
        B, X = len(batch.X), batch.X
        weight = X.new_ones(B, dtype=torch.float32) if batch.weight is None else batch.weight.float()
        label_scores = (X.float() * self.W[batch.codes].to(X.dtype).float()).sum(1)
        reference, sums = self._exponential_sums(X, batch.codes)
        stored = self._stored_differences(batch.codes, label_scores, reference, sums) if self.keep else None
        scaled = (X.float() * (weight / (sums * B))[:, None]).to(X.dtype)
        for c in self._chunks():  # D of a chunk is computed before the weights of this chunk change
            W = self.W[c : c + CHUNK]
            if stored is None:
                D = self._exp_buffer(B)[:, : len(W)]
                self._exponentials(X, self._bf16_copy(W), D, reference, sums, batch.codes, c, store=True, subtract=True)
            else:
                D = stored[:, c : c + CHUNK]
            self.rule.update(ChunkGradient(W, c, D, scaled, W.shape[1] - self.free), rate, ridge)
        return ((reference + sums.log() - label_scores) * weight).sum() / B

    def _exponential_sums(self, X: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reference (B,) and the row sums (B,) of the exponentials, which are stored if `keep`."""
        reference = (X @ self.W[:MANY_CLASSES].to(X.dtype).T).amax(1).float()
        sums = self._sum_classes(X, codes, reference)
        if not bool((sums < MAX_SUM).all()):
            self.redone += 1
            large = torch.nonzero(~(sums < MAX_SUM)).squeeze(1)
            reference[large] = self._largest_scores(X[large])
            sums = self._sum_classes(X, codes, reference)
        return reference, sums

    def _sum_classes(self, X: Tensor, codes: Tensor, reference: Tensor) -> Tensor:
        sums = torch.zeros_like(reference)
        for c in self._chunks():
            W = self._bf16_copy(self.W[c : c + CHUNK])
            column = c if self.keep else 0
            out = self._exp_buffer(len(X))[:, column : column + len(W)]
            self._exponentials(X, W, out, reference, sums, codes, c, store=self.keep)
        return sums

    def _largest_scores(self, X: Tensor) -> Tensor:
        """Return the largest score (m,) of each row."""
        maxima = [(X @ self._bf16_copy(self.W[c : c + CHUNK]).T).amax(1) for c in self._chunks()]
        return torch.stack(maxima).amax(0).float()

    def _stored_differences(self, codes: Tensor, label_scores: Tensor, reference: Tensor, sums: Tensor) -> Tensor:
        """Return D (B, K), made from the stored exponentials.

        For a row that is classified with confidence, the label's exponential is nearly s, and the difference would
        cancel in bfloat16. So it is computed in float32 from the label's score.
        """
        D = self._exp_buffer(len(codes))
        rows = torch.arange(len(codes), device=D.device)
        D[rows, codes] = ((label_scores - reference).exp() - sums).to(D.dtype)
        return D[:, : len(self.W)]

    # ---- buffers

    def _chunks(self) -> range:
        return range(0, len(self.W), CHUNK)

    def _exp_buffer(self, B: int) -> Tensor:
        """Return a buffer for exponentials: of all classes if `keep`, else of a chunk."""
        classes = len(self.W) if self.keep else min(CHUNK, len(self.W))
        return self._buffer("exponentials", B, padded_columns(classes))

    def _bf16_copy(self, W: Tensor) -> Tensor:
        """Return a chunk of weights in bfloat16."""
        if W.dtype == torch.bfloat16:
            return W
        return self._buffer("weights", CHUNK, W.shape[1])[: len(W)].copy_(W)

    def _buffer(self, name: str, rows: int, columns: int) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < rows or buffer.shape[1] != columns:
            buffer = self._buffers[name] = torch.empty((rows, columns), dtype=torch.bfloat16, device=self.W.device)
        return buffer[:rows]


def padded_columns(columns: int) -> int:
    """Return the number of columns with padding: a multiple of the alignment of tiles."""
    return -(-columns // ALIGNED) * ALIGNED


def add_product(W: Tensor, D: Tensor, X: Tensor, beta: float, alpha: float) -> None:
    """Set W to beta W + alpha D' X in place, summed in float32 for any dtype of W."""
    if W.dtype == D.dtype:
        W.addmm_(D.T, X, beta=beta, alpha=alpha)
    elif W.is_cuda:
        torch.addmm(W, D.T, X, beta=beta, alpha=alpha, out_dtype=W.dtype, out=W)  # addmm_ does not take out_dtype
    else:
        W.addmm_(D.float().T, X.float(), beta=beta, alpha=alpha)


def bf16_product(D: Tensor, X: Tensor, dtype: torch.dtype) -> Tensor:
    """Return D' X, summed in float32."""
    if dtype == D.dtype:
        return D.T @ X
    return torch.mm(D.T, X, out_dtype=dtype) if D.is_cuda else D.float().T @ X.float()


def plain_exponentials(
    X: Tensor, W: Tensor, out: Tensor, reference: Tensor, sums: Tensor, codes: Tensor, first: int, *,
    store: bool, subtract: bool = False,
) -> None:  # fmt: skip
    """Compute `Exponentials` by operations of torch."""
    e = (X.float() @ W.float().T - reference[:, None]).exp_()
    if subtract:
        rows = torch.nonzero((codes >= first) & (codes < first + len(W))).squeeze(1)
        e[rows, codes[rows] - first] -= sums[rows]
    else:
        sums += e.sum(1)
    if store:
        out.copy_(e)


def choose_exponentials(device: torch.device) -> Exponentials:
    """Return the Triton kernel if the GPU is Hopper or newer and a tile fits into its shared memory, else torch's."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 9:
        return plain_exponentials
    stages = softmax_stages(Device(str(device)).shared_bytes)
    if not stages:
        return plain_exponentials
    from kway.rows.gpu.softmax_kernels import exp_tiles

    return partial(exp_tiles, stages=stages)
