"""A step of softmax over very many classes: loss, and weights updated in place; float32 sums, exact over all classes.

    e = exp(X W' - r), s = its row sums        loss = r + log s - f_y
    dW = E' (X / s),  E = e less s at the row's own class: the normalisation moves to the rows of X

So no second pass over the scores is needed, and no gradient is written: the product adds to the weights. r is the best
score of the first classes, not a running maximum: the formula holds for any r, s >= 1 about, and only where a score
passes r by 69 (s beyond 1e30) is the pass done again with the true maximum of every row.

    kept    e of all classes stays, 2 B K bytes; two products
    free    nothing of size (rows, classes) stays: scores are computed twice; three products

Weights (K, D) are bfloat16, or float32 whose products read a rounded copy of a chunk at a time. Measured on an H200,
B = 8192, K = 1M, D = 1024: benchmarks/results/gpu_softmax.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

FIRST = 8192  # classes whose best score is the reference
CHUNK_KEPT, CHUNK_FREE = 65536, 33792  # classes at a time; 16,896 to 65,536 are equally fast
HIGHEST = 1e30  # of a row sum: beyond it bfloat16 may overflow
ALIGNED = 8  # numbers of bfloat16 in the 16 bytes that a tile's rows are aligned to


class Batch(NamedTuple):
    """Rows of a step: X (B, D) in bfloat16, codes (B,), weights (B,) or None."""

    X: Tensor
    codes: Tensor
    weight: Tensor | None = None


class UpdateRule(Protocol):
    """How a gradient changes a chunk of weights."""

    def update(self, W: Tensor, first: int, E: Tensor, X: Tensor, rate: float, ridge: float, free: int) -> None:
        """W (c, D) of the classes from `first` on, less the step of E' X; the last `free` columns are not penalised."""
        ...


@dataclass(frozen=True)
class Descent:
    """w <- prox(w - rate g): one product that adds to the weights."""

    def update(self, W: Tensor, first: int, E: Tensor, X: Tensor, rate: float, ridge: float, free: int) -> None:
        """(W - rate E' X) / (1 + rate ridge), the bias without the division."""
        shrink = 1 / (1 + rate * ridge)
        add_product(W, E, X, shrink, -rate * shrink)
        if free and ridge:
            W[:, -free:].div_(shrink)


@dataclass(frozen=True)
class RowAdagrad:
    """Each class has a rate of its own, rate / sqrt(sum of its mean squared gradients): squares (K,) float32."""

    squares: Tensor

    def update(self, W: Tensor, first: int, E: Tensor, X: Tensor, rate: float, ridge: float, free: int) -> None:
        """The gradient of a chunk is written, in the precision of the weights, and read once."""
        G = bf16_product(E, X, W.dtype)
        squares, penalised = self.squares[first : first + len(W)], W.shape[1] - free
        if W.is_cuda:
            from kway.rows.gpu.softmax_kernels import adagrad_rows

            adagrad_rows(W, G, squares, rate, 1.0, ridge, penalised)
            return
        g = G.float()
        squares.add_(g.square().mean(1))
        step = (rate / (squares.sqrt() + 1e-30))[:, None]
        w = W.float() - step * g
        w[:, :penalised] /= 1 + step * ridge
        W.copy_(w)


Exponentials = Callable[..., None]


@dataclass
class SoftmaxStep:
    """Weights (K, D) that steps change; the last `free` of D columns are biases (their X is 1) and not penalised.

    D is a multiple of 8, K is any number; `keep`: whether exponentials stay (16 GB for 8192 rows of a million classes).
    """

    W: Tensor
    keep: bool = True
    rule: UpdateRule = field(default_factory=Descent)
    free: int = 0
    exponentials: Exponentials | None = None  # by default Triton's on a GPU, torch's elsewhere
    redone: int = 0  # steps whose reference was passed
    _room: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.exponentials is None:
            self.exponentials = _exponentials(self.W.device)

    def __call__(self, batch: Batch, rate: float, ridge: float = 0.0) -> Tensor:
        """One step; the weighted mean loss before it."""
        B, X = len(batch.X), batch.X
        weight = X.new_ones(B, dtype=torch.float32) if batch.weight is None else batch.weight.float()
        own = (X.float() * self.W[batch.codes].to(X.dtype).float()).sum(1)  # f_y
        reference, sums = self._sums(X, batch.codes)
        E = self._kept(batch.codes, own, reference, sums) if self.keep else None
        scaled = (X.float() * (weight / (sums * B))[:, None]).to(X.dtype)  # rows of X over s and B
        for c in self._chunks():
            W = self.W[c : c + self._chunk]
            here = self._again(X, W, batch.codes, c, reference, sums) if E is None else E[:, c : c + self._chunk]
            self.rule.update(W, c, here, scaled, rate, ridge, self.free)
        return ((reference + sums.log() - own) * weight).sum() / B

    # ---------------------------------------------------------------- the first pass: sums over all classes

    def _sums(self, X: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The reference (B,) and the row sums (B,) of the exponentials; these are kept on the way."""
        reference = (X @ self.W[:FIRST].to(X.dtype).T).amax(1).float()
        sums = self._pass(X, codes, reference)
        if not bool((sums < HIGHEST).all()):
            self.redone += 1
            far = torch.nonzero(~(sums < HIGHEST)).squeeze(1)
            reference[far] = self._maxima(X[far])
            sums = self._pass(X, codes, reference)
        return reference, sums

    def _pass(self, X: Tensor, codes: Tensor, reference: Tensor) -> Tensor:
        sums = torch.zeros_like(reference)
        for c in self._chunks():
            W = self._operand(self.W[c : c + self._chunk])
            into = self._exps(len(X))[:, c : c + len(W)] if self.keep else self._exps(len(X))[:, : len(W)]
            self._call(X, W, into, reference, sums, codes, c, store=self.keep)
        return sums

    def _maxima(self, X: Tensor) -> Tensor:
        """The largest score of each row, (m,)."""
        found = [(X @ self._operand(self.W[c : c + self._chunk]).T).amax(1) for c in self._chunks()]
        return torch.stack(found).amax(0).float()

    # ---------------------------------------------------------------- the second: E of a chunk

    def _kept(self, codes: Tensor, own: Tensor, reference: Tensor, sums: Tensor) -> Tensor:
        """All exponentials, less s at the own class: from float32, as e of a row that is nearly certain is nearly s."""
        E = self._exps(len(codes))
        rows = torch.arange(len(codes), device=E.device)
        E[rows, codes] = ((own - reference).exp() - sums).to(E.dtype)
        return E[:, : len(self.W)]

    def _again(self, X: Tensor, W: Tensor, codes: Tensor, first: int, reference: Tensor, sums: Tensor) -> Tensor:
        into = self._exps(len(X))[:, : len(W)]
        self._call(X, self._operand(W), into, reference, sums, codes, first, add=False, less=True)
        return into

    # ---------------------------------------------------------------- rooms

    def _call(self, *args: Any, **how: bool) -> None:
        assert self.exponentials is not None
        self.exponentials(*args, **how)

    @property
    def _chunk(self) -> int:
        return CHUNK_KEPT if self.keep else CHUNK_FREE

    def _chunks(self) -> range:
        return range(0, len(self.W), self._chunk)

    def _exps(self, B: int) -> Tensor:
        """Room for exponentials: of all classes where they are kept, else of a chunk."""
        classes = len(self.W) if self.keep else min(self._chunk, len(self.W))
        return self._rented("exps", B, -(-classes // ALIGNED) * ALIGNED)

    def _operand(self, W: Tensor) -> Tensor:
        """A chunk of weights as the product reads it."""
        if W.dtype == torch.bfloat16:
            return W
        return self._rented("operand", self._chunk, W.shape[1])[: len(W)].copy_(W)

    def _rented(self, name: str, rows: int, columns: int) -> Tensor:
        room = self._room.get(name)
        if room is None or len(room) < rows:
            room = self._room[name] = torch.empty((rows, columns), dtype=torch.bfloat16, device=self.W.device)
        return room[:rows]


def padded_classes(columns: int) -> int:
    """Columns that weights are kept in: a multiple of what tiles are aligned to."""
    return -(-columns // ALIGNED) * ALIGNED


def add_product(W: Tensor, E: Tensor, X: Tensor, beta: float, alpha: float) -> None:
    """W = beta W + alpha E' X in place, summed in float32 whatever W is."""
    if W.dtype == E.dtype:
        W.addmm_(E.T, X, beta=beta, alpha=alpha)
    elif W.is_cuda:
        torch.addmm(W, E.T, X, beta=beta, alpha=alpha, out_dtype=W.dtype, out=W)
    else:
        W.addmm_(E.float().T, X.float(), beta=beta, alpha=alpha)


def bf16_product(E: Tensor, X: Tensor, dtype: torch.dtype) -> Tensor:
    """E' X, summed in float32."""
    if dtype == E.dtype:
        return E.T @ X
    return torch.mm(E.T, X, out_dtype=dtype) if E.is_cuda else E.float().T @ X.float()


def plain_exponentials(
    X: Tensor, W: Tensor, into: Tensor, reference: Tensor, sums: Tensor, codes: Tensor, first: int = 0, *,
    store: bool = True, add: bool = True, less: bool = False,
) -> None:  # fmt: skip
    """What the Triton kernel does, by torch's own operations."""
    e = (X.float() @ W.float().T - reference[:, None]).exp_()
    if add:
        sums += e.sum(1)
    if less:
        here = torch.nonzero((codes >= first) & (codes < first + len(W))).squeeze(1)
        e[here, codes[here] - first] -= sums[here]
    if store:
        into.copy_(e)


def _exponentials(device: torch.device) -> Exponentials:
    """Triton's kernel where it was tried: its four stages of tiles take the shared memory of a Hopper GPU."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 9:
        return plain_exponentials
    from kway.rows.gpu.softmax_kernels import exp_tiles

    return exp_tiles
