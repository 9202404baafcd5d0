"""A Triton kernel for lists of codes (codes.py): in how many bits each agrees with its query, and their product."""

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
