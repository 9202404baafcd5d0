"""Triton kernels of search: int8 products (int8_search.py), lists of codes (sign_codes.py), generated rows.

Q      (nqp, DP) int8   queries          qc (nqp, 5) float32   thr/t, 1/t, |q|/t, |e_q|/t, |e_q'|/t
fine   (nqp, DP) int8   their next digits, in units of t / 254; e_q' is the rounding error of both digits
tiles  (nt, 128, DP)    rows             tc (nt, 4) float32    1/s, o/s, |e_x|/s, |s x^|/s: upper bounds
                                         ts (nt, 4) float32    s, o, |e_x|, |s x^|: lower bounds
flags  (tiles, nqp)     bytes            ids (nqp, CAP), cnt (nqp,)   survivors of each query
"""

from __future__ import annotations

import triton
import triton.language as tl

_PADDING = tl.constexpr(1e300)  # distance of padding


@triton.jit
def limit(c0, c1, c2, c3, f):
    """Return the product up to which no row of the tile at f can be a neighbor of these queries."""
    return c0 * tl.load(f) - c1 * tl.load(f + 1) - c2 * tl.load(f + 2) - c3 * tl.load(f + 3)


@triton.jit
def whole_limit(c0, c1, c2, c3, f):
    """Return an integer at most that limit."""
    return tl.minimum(tl.floor(tl.maximum(limit(c0, c1, c2, c3, f), -2e9)) - 1, 2e9).to(tl.int32)


@triton.jit
def scan(
    Q, qc, rows, tc, ts, out, nqt, nqp, t0, t1,
    DP: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, TILES: tl.constexpr, SAMPLE: tl.constexpr,
    STAGES: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Multiply BM queries with TILES tiles of 128 rows, per program.

    Write one byte per tile and query: 1 if the tile may contain a neighbor. A branch in the loop would double the time.
    SAMPLE: write a lower bound of the tile's best score instead. UNROLL: all chunks of BK columns are in flight at the
    same time, which needs shared memory in proportion to DP (tile_plans.py); else one chunk per pipeline stage.
    """
    pid = tl.program_id(0)
    om, ok = pid % nqt * BM + tl.arange(0, BM), tl.arange(0, BK)
    first = t0 + pid // nqt * TILES
    q = tl.load(Q + om[:, None] * DP + ok[None, :])
    c0, c1 = tl.load(qc + om * 5), tl.load(qc + om * 5 + 1)
    c2, c3 = tl.load(qc + om * 5 + 2), tl.load(qc + om * 5 + 3)
    for t in tl.range(first, tl.minimum(first + TILES, t1), num_stages=STAGES, flatten=not UNROLL):
        if UNROLL:
            products = tl.dot(q, rows.load([t * 128, 0]).T, out_dtype=tl.int32)
            for c in tl.static_range(BK, DP, BK):
                more = tl.load(Q + om[:, None] * DP + c + ok[None, :])
                products = tl.dot(more, rows.load([t * 128, c]).T, products, out_dtype=tl.int32)
        else:
            products = tl.zeros((BM, 128), tl.int32)
            for c in tl.range(0, DP, BK, num_stages=STAGES):
                more = tl.load(Q + om[:, None] * DP + c + ok[None, :])
                products = tl.dot(more, rows.load([t * 128, c]).T, products, out_dtype=tl.int32)
        best = tl.max(products, 1)
        at = out + (t - t0).to(tl.int64) * nqp + om
        if SAMPLE:
            f = ts + t * 4
            low = best.to(tl.float32) * tl.load(f) - c1 * tl.load(f + 1)
            tl.store(at, (low - c2 * tl.load(f + 2) - c3 * tl.load(f + 3)) / c1)
        else:
            tl.store(at, (best > whole_limit(c0, c1, c2, c3, tc + t * 4)).to(tl.uint8))


@triton.jit
def expand(
    flags, Q, fine, qc, X, tc, cnt, ids, room, nqp, t0,
    DP: tl.constexpr, BK: tl.constexpr, CAP: tl.constexpr, BQ: tl.constexpr, BH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gather the marked queries, multiply them again, and append survivors to their lists, per tile and BQ queries.

    Queries are multiplied with both their digits (Q + fine / 254), so that their own rounding hardly counts. Tiles of
    small norm are flagged by thousands of queries, so queries are split as well to balance the programs.
    """
    p = tl.program_id(0).to(tl.int64)
    t = t0 + tl.program_id(0)
    od, ok = tl.arange(0, 128), tl.arange(0, BK)
    i = tl.program_id(1) * BQ + tl.arange(0, BQ)
    mine = room + p * nqp + tl.program_id(1) * BQ
    f = tl.load(flags + p * nqp + i, mask=i < nqp, other=0).to(tl.int32)
    n = tl.sum(f, 0)
    if n > 0:
        tl.store(mine + tl.cumsum(f, 0) - 1, i, mask=f > 0)
        tl.debug_barrier()
        x = X + t.to(tl.int64) * 128 * DP + od[None, :] * DP + ok[:, None]
        for h in range(0, n, BH):
            k = h + tl.arange(0, BH)
            om = tl.load(mine + k, mask=k < n, other=0)
            at = om[:, None] * DP + ok[None, :]
            high, low = tl.zeros((BH, 128), tl.int32), tl.zeros((BH, 128), tl.int32)
            for c in tl.range(0, DP, BK, num_stages=STAGES):
                tile = tl.load(x + c)
                high = tl.dot(tl.load(Q + at + c), tile, high, out_dtype=tl.int32)
                low = tl.dot(tl.load(fine + at + c), tile, low, out_dtype=tl.int32)
            c0, c1 = tl.load(qc + om * 5), tl.load(qc + om * 5 + 1)
            c2, c4 = tl.load(qc + om * 5 + 2), tl.load(qc + om * 5 + 4)
            products = high.to(tl.float32) + low.to(tl.float32) * (1.0 / 254)
            hit = (products > limit(c0, c1, c2, c4, tc + t * 4)[:, None] - 1.0) & (k < n)[:, None]
            own = cnt + om[:, None] + tl.zeros((BH, 128), tl.int32)
            place = tl.atomic_add(own, 1, mask=hit, sem="relaxed")  # any other order would wait for all stores
            to = ids + om[:, None].to(tl.int64) * CAP + place
            tl.store(to, t * 128 + od[None, :] + tl.zeros((BH, 128), tl.int32), mask=hit & (place < CAP))


@triton.jit
def measure_near(
    X, Q, perm, cnt, ids, dist, D, KIND: tl.constexpr, CAP: tl.constexpr, BL: tl.constexpr, BD: tl.constexpr
):
    """Measure the survivors in float64, one query per program; KIND 0: euclidean, 1: cosine, 2: dot.

    Launched without fused multiply-add, so that copies of a row have equal distances at any place of the list.
    """
    q = tl.program_id(0).to(tl.int64)
    n = tl.minimum(tl.load(cnt + q), CAP)
    for b in range(0, n, BL):
        k = b + tl.arange(0, BL)
        r = tl.load(perm + tl.load(ids + q * CAP + k, mask=k < n, other=0))
        row = X + tl.maximum(r, 0).to(tl.int64)[:, None] * D
        one, two, three = tl.zeros((BL,), tl.float64), tl.zeros((BL,), tl.float64), tl.zeros((BL,), tl.float64)
        for c in range(0, D, BD):
            j = c + tl.arange(0, BD)
            a = tl.load(Q + q * D + j, mask=j < D, other=0.0).to(tl.float64)[None, :]
            x = tl.load(row + j[None, :], mask=(j < D)[None, :], other=0.0).to(tl.float64)
            if KIND == 0:
                one += tl.sum((x - a) * (x - a), 1)
            else:
                one += tl.sum(x * a, 1)
            if KIND == 1:
                two += tl.sum(x * x, 1)
                three += tl.sum(a * a + tl.zeros((BL, BD), tl.float64), 1)
        if KIND == 0:
            away = tl.sqrt(one)
        elif KIND == 1:
            both = two * three
            apart = 1.0 - one / tl.sqrt(tl.where(both > 0, both, 1.0))
            away = tl.where(both > 0, tl.minimum(tl.maximum(apart, 0.0), 2.0), 1.0)
        else:
            away = -one
        tl.store(dist + q * CAP + k, tl.where(r < 0, _PADDING, away), mask=k < n)


@triton.jit
def select(
    perm, cnt, ids, dist, bd, bi, over, qc, norms, steps, EPS: tl.constexpr, KIND: tl.constexpr, K: tl.constexpr,
    CAP: tl.constexpr, LOW: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Move the K nearest (distance, then position) of a list to its front, for lists of LOW to SIZE entries.

    The score of a row at the K-th distance, less its rounding error, becomes the threshold of the query.
    """
    q = tl.program_id(0).to(tl.int64)
    n = tl.load(cnt + q)
    if (n > LOW) & ((n <= SIZE) | (SIZE == CAP)):
        j = tl.arange(0, SIZE)
        ok = j < n
        tl.store(over + q, 1, mask=n > CAP)
        p = tl.load(ids + q * CAP + j, mask=ok, other=0)
        d = tl.load(dist + q * CAP + j, mask=ok, other=_PADDING)
        r = tl.where(ok, tl.load(perm + p), 2147483647)
        worst = tl.min(d, 0)
        for k in range(K):
            worst = tl.min(d, 0)
            i = tl.min(tl.where(d == worst, r, 2147483647), 0)
            hit = (d == worst) & (r == i)
            tl.store(bd + q * K + k, worst)
            tl.store(bi + q * K + k, i)
            tl.store(ids + q * CAP + k, tl.max(tl.where(hit, p, -1), 0))
            d = tl.where(hit, 2 * _PADDING, d)
        tl.store(cnt + q, tl.minimum(n, K))
        if worst < _PADDING:
            norm = tl.load(norms + q)
            if KIND == 0:
                score = 0.5 * (norm - worst) * (norm + worst)
            elif KIND == 1:
                score = 1.0 - worst
            else:
                score = -worst
            score -= 1e-12 * (norm * norm + worst * worst)
            lowered = ((score - EPS * tl.abs(score)) / tl.load(steps + q)).to(tl.float32)
            tl.store(qc + q * 5, tl.maximum(tl.load(qc + q * 5), lowered))


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
