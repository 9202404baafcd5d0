"""Triton kernels of bit codes: lists of sign codes (sign_codes.py), planes of bits (bit_codes.py), generated rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def measure_codes(codes, words, queries, ids, cnt, agree, products, rows, CAP: tl.constexpr, BL: tl.constexpr):
    """Compute the agreeing bits (q, CAP) int32 and sums of q_j (+-1) (q, CAP) of listed codes, except for padding."""
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
    """Set out (n, 32 W) to the sum over planes b of 2^(B - 1 - b) (+-1) of words (n, B W) int32, BL rows each."""
    w, j = tl.program_id(1), tl.arange(0, 32)
    r = tl.program_id(0).to(tl.int64) * BL + tl.arange(0, BL)
    total = tl.zeros((BL, 32), tl.int32)
    for b in tl.static_range(B):
        held = tl.load(words + r * (B * W) + b * W + w, mask=r < n, other=0)
        total = total * 2 + ((held[:, None] >> j[None, :]) & 1) * 2 - 1
    at = out + r[:, None] * (32 * W) + w * 32 + j[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=(r < n)[:, None])


@triton.jit
def mix(h):
    """Return a 32-bit hash in which every input bit counts."""
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    h ^= h >> 16
    return h


@triton.jit
def entry(c, j):
    """Return entry (class c, feature j): one of 256 values from -127.5 to 127.5, exact in bfloat16."""
    seed = mix(c.to(tl.uint32) + 12345)
    return (mix(seed ^ (j.to(tl.uint32) * 0x9E3779B1)) >> 24).to(tl.float32) - 127.5


@triton.jit
def fill_rows(out, classes):
    """Set out (m, 512) float32 to the rows of classes (m,)."""
    j = tl.arange(0, 512)
    c = tl.load(classes + tl.program_id(0))
    tl.store(out + tl.program_id(0) * 512 + j, entry(c, j))


@triton.jit
def fill_codes(codes, turn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Set codes (n, 16) int32 to the signs of rows @ turn (512, 512) bfloat16; n is a multiple of BM."""
    pm, pn = tl.program_id(0) // (512 // BN), tl.program_id(0) % (512 // BN)
    c, on = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, 512, BK):
        ok = k + tl.arange(0, BK)
        block = tl.load(turn + ok[:, None] * 512 + on[None, :])
        acc = tl.dot(entry(c[:, None], ok[None, :]).to(tl.bfloat16), block, acc)
    bits = tl.reshape((acc > 0).to(tl.int32), (BM, BN // 32, 32)) << tl.arange(0, 32)[None, None, :]
    at = codes + c.to(tl.int64)[:, None] * 16 + pn * (BN // 32) + tl.arange(0, BN // 32)[None, :]
    tl.store(at, tl.sum(bits, 2))
