"""Triton kernels of the exact search behind int8 products; int8_search.py derives the bounds.

A batch of queries passes through these kernels in this order. Large batches repeat the last four in rounds.

    rotate_queries       computes the operands of the queries (exact_search.py), and rotates them
    quantize_queries     computes the int8 digits of the rotated queries, and measures the errors of the digits
    scan_tiles           multiplies queries by tiles of 128 rows, and keeps one number per query and tile
    set_thresholds       finds a score that k rows reach, so that every neighbor reaches it
    list_candidates      lists the rows that may reach the threshold of their query
    measure_candidates   computes the float64 distances of the listed rows
    keep_nearest         moves the k nearest rows to the front of the list, and tightens the threshold

A query is q = t (q^ + q~ / 254) + e'. The first digit q^ and the second digit q~ are integers in -127..127, t is the
step of the query, e = q - t q^ is the error of the first digit, and e' that of both digits. Rows are
x = s x^ + e_x with one step s per tile, and a row's score is q.x - o. P = q^.x^ is the int8 product.

    digits, fine_digits   (p, w) int8       q^ and q~; p is the number of queries padded to a multiple of 128
    constants             (5, p) float32    threshold / t, 1 / t, |q| / t, |e| / t, |e'| / t; one row each (below)
    tiles                 (nt, 128, w) int8 x^; w is the padded number of columns
    upper                 (nt, 4) float32   1 / s, o / s, |e_x| / s and |s x^| / s: bound a tile's scores from above
    lower                 (nt, 4) float32   s, o, |e_x| and |s x^|: bound a tile's best score from below
    order                 (nt, 128) int32   number of the row at each place of a tile; -1 for padding
    lists, distances      (q, c)            candidate rows of each query and their float64 distances
    counts                (p,) int32        number of candidates of each query; above c, rows were lost
    flags                 (q,) uint8        0, OVERFLOWED or UNSAFE, or the sum of the two
"""

from __future__ import annotations

import triton
import triton.language as tl

THRESHOLD = tl.constexpr(0)  # rows of `constants`
INVERSE_STEP = tl.constexpr(1)
NORM = tl.constexpr(2)
ERROR = tl.constexpr(3)
FINE_ERROR = tl.constexpr(4)

OVERFLOWED = tl.constexpr(1)  # the list of the query lost rows
UNSAFE = tl.constexpr(2)  # the query has NaN, infinity, or values outside of the range of the filter

_INF = tl.constexpr(float("inf"))
_NO_ROW = tl.constexpr(2147483647)  # sorts behind every row


@triton.jit
def rotate_queries(
    queries, center, rotation, operands, n_queries, D, CENTERED: tl.constexpr, BY_ANGLE: tl.constexpr,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Write the operands of queries (q, D) times the rotation (D, WIDTH) to `operands` (q, WIDTH), all float64.

    A program computes QUERIES rows and 2 QUERIES columns, and sums over 2 QUERIES products at a time.
    """
    COLUMNS: tl.constexpr = 2 * QUERIES
    BLOCK: tl.constexpr = 2 * QUERIES
    q = (tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)).to(tl.int64)
    exists = (q < n_queries)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    lengths = tl.full((QUERIES, 1), 1.0, tl.float64)
    if BY_ANGLE:
        squares = tl.zeros((QUERIES,), tl.float64)
        for c in range(0, D, BLOCK):
            j = c + tl.arange(0, BLOCK)
            x = tl.load(queries + q[:, None] * D + j[None, :], mask=exists & (j < D)[None, :], other=0.0)
            squares += tl.sum(x.to(tl.float64) * x.to(tl.float64), 1)
        lengths = tl.sqrt(tl.where(squares > 0, squares, 1.0))[:, None]
    total = tl.zeros((QUERIES, COLUMNS), tl.float64)
    for c in range(0, D, BLOCK):
        j = c + tl.arange(0, BLOCK)
        x = tl.load(queries + q[:, None] * D + j[None, :], mask=exists & (j < D)[None, :], other=0.0).to(tl.float64)
        if CENTERED:
            x -= tl.load(center + j, mask=j < D, other=0.0)[None, :]
        if BY_ANGLE:
            x /= lengths
        turn = tl.load(rotation + j[:, None] * WIDTH + column[None, :], mask=(j < D)[:, None], other=0.0)
        total = tl.dot(x, turn, total, out_dtype=tl.float64)
    tl.store(operands + q[:, None] * WIDTH + column[None, :], total, mask=exists)


@triton.jit
def quantize_queries(
    queries, operands, digits, fine_digits, constants, norms, steps, counts, flags,
    n_queries, n_padded, D, finest, smallest, largest,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Quantize the rotated operands (q, WIDTH) float64 of queries (q, D), one query per program.

    A query is unsafe unless it is zero or its largest absolute value is between `smallest` and `largest`. Unsafe and
    padding queries get an infinite threshold, so that no row becomes their candidate.
    """
    q = tl.program_id(0).to(tl.int64)
    exists = q < n_queries
    column = tl.arange(0, BLOCK)
    n_columns = tl.where(exists, D, 0)
    total = tl.zeros((BLOCK,), tl.float64)
    peaks = tl.zeros((BLOCK,), tl.float64)
    for c in range(0, D, BLOCK):
        value = tl.abs(tl.load(queries + q * D + c + column, mask=c + column < n_columns, other=0.0).to(tl.float64))
        total += value
        peaks = tl.maximum(peaks, value)
    peak = tl.max(peaks, 0)
    finite = tl.sum(total, 0) < _INF  # false for NaN, which tl.max ignores
    safe = exists & finite & ((peak == 0) | ((peak > smallest) & (peak < largest)))

    real = column < tl.where(safe, WIDTH, 0)
    peaks = tl.zeros((BLOCK,), tl.float64)
    squares = tl.zeros((BLOCK,), tl.float64)
    for c in range(0, WIDTH, BLOCK):
        x = tl.load(operands + q * WIDTH + c + column, mask=real, other=0.0)
        peaks = tl.maximum(peaks, tl.abs(x))
        squares += x * x
    step = tl.maximum(tl.max(peaks, 0) / 127.0, finest)
    norm = tl.sqrt(tl.sum(squares, 0))

    squares = tl.zeros((BLOCK,), tl.float64)
    fine_squares = tl.zeros((BLOCK,), tl.float64)
    for c in range(0, WIDTH, BLOCK):
        x = tl.load(operands + q * WIDTH + c + column, mask=real, other=0.0)
        digit = round_to_digit(x / step)
        x -= digit * step
        squares += x * x
        fine_digit = round_to_digit(x / (step / 254.0))
        x -= fine_digit * (step / 254.0)
        fine_squares += x * x
        tl.store(digits + q * WIDTH + c + column, digit.to(tl.int8))
        tl.store(fine_digits + q * WIDTH + c + column, fine_digit.to(tl.int8))
    error = tl.sqrt(tl.sum(squares, 0)) + EPS * norm
    fine_error = tl.sqrt(tl.sum(fine_squares, 0)) + EPS * norm

    at = constants + q
    tl.store(at + THRESHOLD * n_padded, tl.where(safe, -_INF, _INF))
    tl.store(at + INVERSE_STEP * n_padded, tl.where(safe, 1.0 / step, 1.0).to(tl.float32))
    tl.store(at + NORM * n_padded, tl.where(safe, (1 + EPS) * norm / step, 0.0).to(tl.float32))
    tl.store(at + ERROR * n_padded, tl.where(safe, error / step, 0.0).to(tl.float32))
    tl.store(at + FINE_ERROR * n_padded, tl.where(safe, fine_error / step, 0.0).to(tl.float32))
    tl.store(counts + q, 0)
    tl.store(norms + q, norm, mask=exists)
    tl.store(steps + q, step, mask=exists)
    tl.store(flags + q, tl.where(safe, 0, UNSAFE).to(tl.uint8), mask=exists)


@triton.jit
def round_to_digit(x):
    """Return the nearest integers in -127..127."""
    return tl.minimum(tl.maximum(tl.floor(x + 0.5), -127.0), 127.0)


@triton.jit
def largest_excluded_product(threshold, inverse_step, norm, error, upper):
    """Return the largest product P at which no row of a tile reaches the thresholds of queries.

    `upper` points to the four bounds of the tile. `error` is that of the digits in P.
    """
    return (
        threshold * tl.load(upper)
        - inverse_step * tl.load(upper + 1)
        - norm * tl.load(upper + 2)
        - error * tl.load(upper + 3)
    )


@triton.jit
def may_reach(products, threshold, inverse_step, norm, error, upper):
    """Return whether a row of a tile with these best int32 products may reach the thresholds of queries.

    The limit is rounded down to an integer, and lowered by one more for the rounding of a large limit in float32.
    |P| <= 127 * 127 * w is below 2e9 for every w, so that limits beyond it can be clipped to int32.
    """
    limit = largest_excluded_product(threshold, inverse_step, norm, error, upper)
    return products > tl.minimum(tl.floor(tl.maximum(limit, -2e9)) - 1, 2e9).to(tl.int32)


@triton.jit
def scan_tiles(
    digits, constants, tiles, upper, out, n_blocks, n_padded, first_tile, last_tile, tiles_each,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, FLAGS: tl.constexpr,
    STAGES: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Multiply BLOCK queries by `tiles_each` tiles of 128 rows, per program; `tiles` is a tensor descriptor.

    Write one number per tile and query: whether the tile may contain a neighbor (uint8) if FLAGS, or the largest
    product (int32). A branch in the loop would double the time. UNROLL: all chunks of CHUNK columns are in flight at
    the same time, which needs shared memory in proportion to WIDTH (tile_plans.py), or else one chunk per pipeline
    stage.
    """
    pid = tl.program_id(0)
    query, column = pid % n_blocks * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CHUNK)
    first = first_tile + pid // n_blocks * tiles_each
    q = tl.load(digits + query[:, None] * WIDTH + column[None, :])
    threshold = tl.load(constants + THRESHOLD * n_padded + query)
    inverse_step = tl.load(constants + INVERSE_STEP * n_padded + query)
    norm = tl.load(constants + NORM * n_padded + query)
    error = tl.load(constants + ERROR * n_padded + query)
    for t in tl.range(first, tl.minimum(first + tiles_each, last_tile), num_stages=STAGES, flatten=not UNROLL):
        if UNROLL:
            products = tl.dot(q, tiles.load([t * 128, 0]).T, out_dtype=tl.int32)
            for c in tl.static_range(CHUNK, WIDTH, CHUNK):
                more = tl.load(digits + query[:, None] * WIDTH + c + column[None, :])
                products = tl.dot(more, tiles.load([t * 128, c]).T, products, out_dtype=tl.int32)
        else:
            products = tl.zeros((BLOCK, 128), tl.int32)
            for c in tl.range(0, WIDTH, CHUNK, num_stages=STAGES):
                more = tl.load(digits + query[:, None] * WIDTH + c + column[None, :])
                products = tl.dot(more, tiles.load([t * 128, c]).T, products, out_dtype=tl.int32)
        best = tl.max(products, 1)
        at = out + (t - first_tile).to(tl.int64) * n_padded + query
        if FLAGS:
            tl.store(at, may_reach(best, threshold, inverse_step, norm, error, upper + t * 4).to(tl.uint8))
        else:
            tl.store(at, best)


@triton.jit
def set_thresholds(
    products, constants, lower, n_padded, n_tiles, K: tl.constexpr, SIZE: tl.constexpr, EPS: tl.constexpr
):
    """Set the threshold to the K-th largest lower bound of the tiles' best scores, one query per program.

    The best rows of K tiles are K different rows. With fewer than K tiles, the threshold is -inf.

    The margin covers two roundings. A row whose distance equals the K-th one in float32 may be farther by 1.2e-7 of
    the distance, and its score lower by at most 2.5e-7 (|q|^2 + |score|) under every metric. The threshold itself is
    rounded to float32. EPS is 16 times the first of the two. The bounds of the tiles cover all roundings before.
    """
    q = tl.program_id(0)
    t = tl.arange(0, SIZE)
    real = t < n_tiles
    best = tl.load(products + t.to(tl.int64) * n_padded + q, mask=real, other=0).to(tl.float32)
    inverse_step = tl.load(constants + INVERSE_STEP * n_padded + q)
    norm = tl.load(constants + NORM * n_padded + q)
    error = tl.load(constants + ERROR * n_padded + q)
    f = lower + t * 4
    score = best * tl.load(f, mask=real, other=0.0) - inverse_step * tl.load(f + 1, mask=real, other=0.0)
    score -= norm * tl.load(f + 2, mask=real, other=0.0) + error * tl.load(f + 3, mask=real, other=0.0)
    score = tl.where(real, score, -_INF)
    kth = tl.max(score, 0)
    for _ in range(K):
        kth, at = tl.max(score, 0, return_indices=True)
        score = tl.where(t == at, -_INF, score)
    if tl.load(constants + THRESHOLD * n_padded + q) < _INF:
        margin = EPS * (tl.abs(kth) + norm * norm / inverse_step)
        tl.store(constants + THRESHOLD * n_padded + q, kth - margin)


@triton.jit
def list_candidates(
    scanned, digits, fine_digits, constants, tiles, order, upper, counts, lists, buffer, n_padded, first_tile,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, CAPACITY: tl.constexpr, FLAGS: tl.constexpr,
    QUERIES: tl.constexpr, GATHERED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Multiply the rows of a tile by the flagged ones of QUERIES queries again, and append candidates to their lists.

    `scanned` is what scan_tiles wrote. Queries enter with both digits, so that their rounding hardly counts. A tile
    of small norm may be flagged by thousands of queries, so queries are split among programs to balance them.
    `buffer` (tiles, p) int32 takes the numbers of the flagged queries. It may be `scanned` itself: every program reads
    all of its part before it writes, because the first branch depends on a sum of what was read.
    """
    p = tl.program_id(0).to(tl.int64)
    t = first_tile + tl.program_id(0)
    query = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES)
    exists = query < n_padded
    number = tl.load(scanned + p * n_padded + query, mask=exists, other=0).to(tl.int32)
    if not FLAGS:
        threshold = tl.load(constants + THRESHOLD * n_padded + query, mask=exists, other=_INF)
        inverse_step = tl.load(constants + INVERSE_STEP * n_padded + query, mask=exists, other=1.0)
        norm = tl.load(constants + NORM * n_padded + query, mask=exists, other=0.0)
        error = tl.load(constants + ERROR * n_padded + query, mask=exists, other=0.0)
        number = may_reach(number, threshold, inverse_step, norm, error, upper + t * 4).to(tl.int32)
    n = tl.sum(number, 0)
    if n > 0:
        flagged = buffer + p * n_padded + tl.program_id(1) * QUERIES
        tl.store(flagged + tl.cumsum(number, 0) - 1, query, mask=number > 0)
        tl.debug_barrier()  # the loop below reads what other threads of the program have stored
        place, column = tl.arange(0, 128), tl.arange(0, CHUNK)
        row = tl.load(order + t * 128 + place)
        x = tiles + t.to(tl.int64) * 128 * WIDTH + place[None, :] * WIDTH + column[:, None]
        for start in range(0, n, GATHERED):
            i = start + tl.arange(0, GATHERED)
            q = tl.load(flagged + i, mask=i < n, other=0)
            at = q[:, None] * WIDTH + column[None, :]
            high, low = tl.zeros((GATHERED, 128), tl.int32), tl.zeros((GATHERED, 128), tl.int32)
            for c in tl.range(0, WIDTH, CHUNK, num_stages=STAGES):
                tile = tl.load(x + c)
                high = tl.dot(tl.load(digits + at + c), tile, high, out_dtype=tl.int32)
                low = tl.dot(tl.load(fine_digits + at + c), tile, low, out_dtype=tl.int32)
            products = high.to(tl.float32) + low.to(tl.float32) * (1.0 / 254)
            limit = largest_excluded_product(
                tl.load(constants + THRESHOLD * n_padded + q), tl.load(constants + INVERSE_STEP * n_padded + q),
                tl.load(constants + NORM * n_padded + q), tl.load(constants + FINE_ERROR * n_padded + q), upper + t * 4,
            )  # fmt: skip
            # 1.0: as in may_reach, for the rounding of large products in float32
            hit = (products > limit[:, None] - 1.0) & (i < n)[:, None] & (row >= 0)[None, :]
            count = counts + q[:, None] + tl.zeros((GATHERED, 128), tl.int32)
            entry = tl.atomic_add(count, 1, mask=hit, sem="relaxed")  # acquire or release would wait for all stores
            to = lists + q[:, None].to(tl.int64) * CAPACITY + entry
            tl.store(to, row[None, :] + tl.zeros((GATHERED, 128), tl.int32), mask=hit & (entry < CAPACITY))


@triton.jit
def measure_candidates(
    rows, queries, counts, lists, distances, D, KIND: tl.constexpr, CAPACITY: tl.constexpr
):  # fmt: skip
    """Compute float64 distances of listed rows; KIND 0: euclidean, 1: cosine, 2: dot.

    Programs (q, i) share the list of query q. Each measures ROWS rows at a time, with BLOCK partial sums per row that
    are added at the end, because sums across threads are slow. Launched without fused multiply-add, so that copies of
    a row have equal distances at any place of the list.
    """
    ROWS: tl.constexpr = 16  # decided with BLOCK by the benchmark gpu_flashlib
    BLOCK: tl.constexpr = 32
    q = tl.program_id(0).to(tl.int64)
    n = tl.minimum(tl.load(counts + q), CAPACITY)
    for start in range(tl.program_id(1) * ROWS, n, tl.num_programs(1) * ROWS):
        entry = start + tl.arange(0, ROWS)
        number = tl.load(lists + q * CAPACITY + entry, mask=entry < n, other=0)
        row = rows + number.to(tl.int64)[:, None] * D
        sums = tl.zeros((ROWS, BLOCK), tl.float64)
        row_squares = tl.zeros((ROWS, BLOCK), tl.float64)
        query_squares = tl.zeros((ROWS, BLOCK), tl.float64)
        for c in range(0, D, BLOCK):
            j = c + tl.arange(0, BLOCK)
            a = tl.load(queries + q * D + j, mask=j < D, other=0.0).to(tl.float64)[None, :]
            x = tl.load(row + j[None, :], mask=(j < D)[None, :], other=0.0).to(tl.float64)
            if KIND == 0:
                sums += (x - a) * (x - a)
            else:
                sums += x * a
            if KIND == 1:
                row_squares += x * x
                query_squares += a * a
        total = tl.sum(sums, 1)
        if KIND == 0:
            distance = tl.sqrt(total)
        elif KIND == 1:
            norms = tl.sum(row_squares, 1) * tl.sum(query_squares, 1)
            cosine = total / tl.sqrt(tl.where(norms > 0, norms, 1.0))
            distance = tl.where(norms > 0, tl.minimum(tl.maximum(1.0 - cosine, 0.0), 2.0), 1.0)
        else:
            distance = -total
        tl.store(distances + q * CAPACITY + entry, distance, mask=entry < n)


@triton.jit
def keep_nearest(
    counts, lists, distances, best_ids, best_distances, flags, constants, norms, steps, n_padded,
    EPS: tl.constexpr, KIND: tl.constexpr, ROUND: tl.constexpr, K: tl.constexpr, CAPACITY: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Move the K nearest (distance, then row) of a list to its front and into the answer, one query per program.

    With ROUND, distances are rounded to float32 before they are compared. SIZE entries are read at a time: the K
    nearest so far, and SIZE - K others.

    The score of a row at the K-th distance becomes the threshold of the query. The distance is increased first, by
    more than the largest difference of two distances that are equal in float32: 2^-23 of them, or 2^-149 near zero.
    The score is lowered by its rounding errors: 1e-12 covers those of the float64 distance and of this formula, which
    are below 1e-15 times the number of columns, and EPS those of float32 arithmetic.
    """
    q = tl.program_id(0).to(tl.int64)
    listed = tl.load(counts + q)
    n = tl.minimum(listed, CAPACITY)
    entry = tl.arange(0, SIZE)
    worst = tl.full((), _INF, tl.float64)
    for start in range(0, tl.maximum(n - K, 1), SIZE - K):
        at = entry + tl.where(entry < K, 0, start)
        distance = tl.load(distances + q * CAPACITY + at, mask=at < n, other=_INF)
        row = tl.load(lists + q * CAPACITY + at, mask=at < n, other=_NO_ROW)
        if ROUND:
            distance = distance.to(tl.float32).to(tl.float64)
        for k in range(K):
            worst = tl.min(distance, 0)
            nearest = tl.min(tl.where(distance == worst, row, _NO_ROW), 0)
            tl.store(best_distances + q * K + k, worst)
            tl.store(best_ids + q * K + k, nearest.to(tl.int64))
            tl.store(distances + q * CAPACITY + k, worst)
            tl.store(lists + q * CAPACITY + k, nearest)
            distance = tl.where(row == nearest, _INF, distance)
            row = tl.where(row == nearest, _NO_ROW, row)
        tl.debug_barrier()  # the next pass reads the front of the list, which other threads have stored
    tl.store(counts + q, tl.minimum(n, K))
    tl.store(flags + q, (tl.load(flags + q) | tl.where(listed > CAPACITY, OVERFLOWED, 0)).to(tl.uint8))
    if worst < _INF:
        norm = tl.load(norms + q)
        farthest = worst + 2.4e-7 * tl.abs(worst) + 2.9e-45  # 2^-22 and 2^-148, twice what is needed
        if KIND == 0:
            score = 0.5 * (norm - farthest) * (norm + farthest)
        elif KIND == 1:
            score = 1.0 - farthest
        else:
            score = -farthest
        score -= 1e-12 * (norm * norm + farthest * farthest)
        lowered = ((score - EPS * tl.abs(score)) / tl.load(steps + q)).to(tl.float32)
        at_threshold = constants + THRESHOLD * n_padded + q
        tl.store(at_threshold, tl.maximum(tl.load(at_threshold), lowered))
