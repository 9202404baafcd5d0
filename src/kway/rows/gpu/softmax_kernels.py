"""Triton kernels of a softmax step: exponentials of scores, computed from the float32 accumulators of their product.

    e = exp(X W' - r)   (B, C) in bfloat16, with row sums in float32; X (B, d) and W (C, d) in bfloat16

One persistent program per multiprocessor processes tiles of 128 rows x 256 classes. This takes about as long as the
product alone. A separate pass over the scores would add a third, and scores rounded to bfloat16 before the exponential
would lose accuracy (benchmark gpu_softmax).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kway.rows.gpu.tile_plans import MAX_STAGES, TILE, TILE_CLASSES, TILE_DEPTH

# warps of a program, and neighboring tiles whose classes stay in the cache (decided by the benchmark gpu_softmax)
WARPS = TILES_TOGETHER = 8
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _exp_tiles(
    x, w, out, reference, sums, codes, first, n_rows, n_classes, d,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr, GROUP: tl.constexpr,
    STORE: tl.constexpr, SUBTRACT: tl.constexpr,
):  # fmt: skip
    """Compute `Exponentials` (softmax_step.py) in tiles of BM rows x BN classes, from BK features at a time.

    x, w and out are tensor descriptors. GROUP columns of tiles are computed together, so that their classes stay in the
    cache. Rows and classes beyond the last ones are computed and not counted; stores of descriptors ignore them.
    """
    down = tl.cdiv(n_rows, BM)
    across = tl.cdiv(n_classes, BN)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        group = tile // (down * GROUP)
        group_width = tl.minimum(across - group * GROUP, GROUP)
        column = group * GROUP + tile % (down * GROUP) % group_width
        row = tile % (down * GROUP) // group_width
        scores = tl.zeros((BM, BN), tl.float32)
        for k in range(0, d, BK):
            scores = tl.dot(x.load([row * BM, k]), w.load([column * BN, k]).T, scores)
        i = row * BM + tl.arange(0, BM)
        c = column * BN + tl.arange(0, BN)
        shift = tl.load(reference + i, mask=i < n_rows, other=0.0) * LOG2E
        e = tl.exp2(scores * LOG2E - shift[:, None])
        if SUBTRACT:
            label = tl.load(codes + i, mask=i < n_rows, other=-1) - first
            row_sum = tl.load(sums + i, mask=i < n_rows, other=0.0)
            e = tl.where(c[None, :] == label[:, None], e - row_sum[:, None], e)
        else:
            tl.atomic_add(sums + i, tl.sum(tl.where(c[None, :] < n_classes, e, 0.0), 1), mask=i < n_rows)
        if STORE:  # in halves, so that shared memory remains for four stages
            left, right = tl.split(tl.permute(tl.reshape(e, (BM, 2, BN // 2)), (0, 2, 1)))
            out.store([row * BM, column * BN], left.to(out.dtype))
            out.store([row * BM, column * BN + BN // 2], right.to(out.dtype))


@triton.jit
def _adagrad_rows(W, G, squares, rate, ridge, d, penalized, BD: tl.constexpr):
    """Per row: squares += mean(g^2), w = (w - t g) / (1 + t ridge), t = rate / sqrt(squares)."""
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BD)
    g = tl.load(G + row * d + j, mask=j < d, other=0.0).to(tl.float32)
    total = tl.load(squares + row) + tl.sum(g * g, 0) / d
    tl.store(squares + row, total)
    step = rate / (tl.sqrt(total) + 1e-30)
    w = tl.load(W + row * d + j, mask=j < d, other=0.0).to(tl.float32) - step * g
    w = tl.where(j < penalized, w / (1 + step * ridge), w)
    tl.store(W + row * d + j, w.to(W.dtype.element_ty), mask=j < d)


def exp_tiles(
    X: Tensor, W: Tensor, out: Tensor, reference: Tensor, sums: Tensor, codes: Tensor, first: int, *,
    store: bool, subtract: bool = False, stages: int = MAX_STAGES,
) -> None:  # fmt: skip
    """Compute `Exponentials` of softmax_step.py by the kernel."""
    programs = _multiprocessors(X.device)
    x, w = (TensorDescriptor.from_tensor(t, [rows, TILE_DEPTH]) for t, rows in ((X, TILE), (W, TILE_CLASSES)))
    e = TensorDescriptor.from_tensor(out, [TILE, TILE_CLASSES // 2])
    with torch.cuda.device_of(X):
        _exp_tiles[(programs,)](
            x, w, e, reference, sums, codes, first, len(X), len(W), X.shape[1], TILE, TILE_CLASSES, TILE_DEPTH,
            programs, TILES_TOGETHER, store, subtract, num_warps=WARPS, num_stages=stages,
        )  # fmt: skip


def adagrad_rows(W: Tensor, G: Tensor, squares: Tensor, rate: float, ridge: float, penalized: int) -> None:
    """Take a row-wise Adagrad step by gradients G in place; only the first `penalized` columns shrink."""
    d = W.shape[1]
    with torch.cuda.device_of(W):
        _adagrad_rows[(len(W),)](W, G, squares, rate, ridge, d, penalized, triton.next_power_of_2(d), num_warps=4)


@cache
def _multiprocessors(device: Any) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
