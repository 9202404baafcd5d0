"""Triton kernels of rows that come from a counter (counter.py): a block of them, and codes that never were rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def mix(h):
    """A hash of 32 bits in which every bit of the input counts."""
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    h ^= h >> 16
    return h


@triton.jit
def entry(c, j):
    """Entry (class c, feature j): 256 values from -127.5 to 127.5, which bfloat16 holds exactly."""
    seed = mix(c.to(tl.uint32) + 12345)
    return (mix(seed ^ (j.to(tl.uint32) * 0x9E3779B1)) >> 24).to(tl.float32) - 127.5


@triton.jit
def fill_rows(out, classes):
    """out (m, 512) float32 = rows of classes (m,)."""
    j = tl.arange(0, 512)
    c = tl.load(classes + tl.program_id(0))
    tl.store(out + tl.program_id(0) * 512 + j, entry(c, j))


@triton.jit
def fill_codes(codes, turn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """codes (n, 16) int32 = signs of rows @ turn (512, 512) bfloat16, 32 to a word; n a multiple of BM."""
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
