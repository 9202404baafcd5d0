"""Triton kernels of codes: lists measured by bits and products (codes.py), blocks made numbers (bit_codes.py)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def measure_codes(codes, words, queries, ids, cnt, agree, products, rows, CAP: tl.constexpr, BL: tl.constexpr):
    """Agreeing bits (q, CAP) int32 and sums of q_j (+-1) (q, CAP) of the codes listed, but for padding."""
    b = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BL
    n = tl.minimum(tl.load(cnt + b), CAP)
    if first < n:
        k, j = first + tl.arange(0, BL), tl.arange(0, 32)
        i = tl.load(ids + b * CAP + k, mask=k < n, other=0)
        differ, total = tl.zeros((BL,), tl.int32), tl.zeros((BL,), tl.float32)
        for w in range(16):
            held = tl.load(codes + i.to(tl.int64) * 16 + w)
            other = held ^ tl.load(words + b * 16 + w)
            differ += tl.sum((other[:, None] >> j[None, :]) & 1, 1)
            signs = (((held[:, None] >> j[None, :]) & 1) * 2 - 1).to(tl.float32)
            total += tl.sum(signs * tl.load(queries + b * 512 + w * 32 + j)[None, :], 1)
        real = (k < n) & (i < rows)
        tl.store(agree + b * CAP + k, 512 - differ, mask=real)
        tl.store(products + b * CAP + k, total, mask=real)


@triton.jit
def unpack_planes(words, out, n, W: tl.constexpr, B: tl.constexpr, BL: tl.constexpr):
    """out (n, 32 W) = sum over planes b of 2^(B - 1 - b) (+-1) of words (n, B W) int32; BL rows of a word each."""
    w, j = tl.program_id(1), tl.arange(0, 32)
    r = tl.program_id(0).to(tl.int64) * BL + tl.arange(0, BL)
    total = tl.zeros((BL, 32), tl.int32)
    for b in tl.static_range(B):
        held = tl.load(words + r * (B * W) + b * W + w, mask=r < n, other=0)
        total = total * 2 + ((held[:, None] >> j[None, :]) & 1) * 2 - 1
    at = out + r[:, None] * (32 * W) + w * 32 + j[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=(r < n)[:, None])
