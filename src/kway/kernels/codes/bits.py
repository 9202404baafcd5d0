"""Codes of B = 1, 2 or 4 bits per column, as in RaBitQ: the rotation and the encoding.

    z = R x                  the rotated row (D,); D is the number of columns, rounded up to a multiple of 64. R is
                             orthonormal: rounds of random signs and Hadamard transforms
    u_j in 0..2^B - 1        the code of z_j; its top bit is 1 if z_j >= 0
    y_j = 2 u_j - (2^B - 1)  the decoded value, an odd integer
    f = ||z||^2 / <z, y>     the factor of the row: f <q, y> is an unbiased estimate of <q, z> for every query q

Bit plane b of a row contains bit B - 1 - b of every u_j, in W = D / 64 words of 64 columns. The lowest bit of a word
belongs to its first column. Plane 0 contains the signs. Its first P = min(W, WIDEST_FILTER) words are in `head` (P, n),
so that the words of adjacent rows are adjacent. The other words of plane 0, and then the lower planes, are in `rest`
(n, B W - P). Model files and GPU searches (rows/gpu/bit_codes.py) have the same layout.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel

GRID_STEPS = np.linspace(0.6, 1.5, 13).astype(np.float32)  # grid steps tried per row, as multiples of the default step
WIDEST_FILTER = 4  # largest number of words in `head`; decided by the benchmark of code scans (C1)


@kernel
def _hadamard_of_eights(x):
    """Transform each eight numbers of x (n,), unscaled; unrolled, because loops of this length are slow."""
    for s in range(0, len(x), 8):
        a, b, c, d, e, f, g, h = x[s], x[s + 1], x[s + 2], x[s + 3], x[s + 4], x[s + 5], x[s + 6], x[s + 7]
        a, b, c, d, e, f, g, h = a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h
        a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
        x[s], x[s + 1], x[s + 2], x[s + 3] = a + e, b + f, c + g, d + h
        x[s + 4], x[s + 5], x[s + 6], x[s + 7] = a - e, b - f, c - g, d - h


@kernel
def _hadamard(x):
    """Compute the orthonormal Walsh-Hadamard transform of x (2^k,), k >= 3, in place."""
    n, width = len(x), 8
    _hadamard_of_eights(x)
    while width < n:
        for s in range(0, n, 2 * width):
            low, high = x[s : s + width], x[s + width : s + 2 * width]
            for j in range(width):
                a, b = low[j], high[j]
                low[j] = a + b
                high[j] = a - b
        width *= 2
    scale = np.float32(1.0 / np.sqrt(n))
    for j in range(n):
        x[j] *= scale


@kernel
def _largest_power_of_two(limit):
    """Return the largest power of two that is at most `limit`."""
    power = 1
    while 2 * power <= limit:
        power *= 2
    return power


@kernel
def rotate(rows, signs):
    """Rotate rows (n, D) float32 in place; signs (rounds, D) int8 are the random signs of each round.

    If D is not a power of two, a round transforms the first 2^k columns and then the last 2^k, which overlap.
    """
    n, dim = rows.shape
    block = _largest_power_of_two(dim)
    for i in range(n):
        x = rows[i]
        for r in range(len(signs)):
            for j in range(dim):
                x[j] *= signs[r, j]
            _hadamard(x[:block])
            if block < dim:
                _hadamard(x[dim - block :])


@kernel
def _quantize(z, step, max_code, codes):
    """Write the codes u (D,) of a row z on the grid of this step; return <z, y> and ||y||^2."""
    dot, y_square = np.float32(0), np.float32(0)
    inverse = np.float32(1) / step
    middle, top = np.float32(0.5 * (max_code + 1)), np.float32(max_code)
    for j in range(len(z)):
        u = min(max(np.floor(z[j] * inverse + middle), np.float32(0)), top)
        codes[j] = np.uint8(u)
        y = np.float32(2) * u - top
        dot += y * z[j]
        y_square += y * y
    return dot, y_square


@kernel
def _quantize_best(z, z_square, max_code, default_step, codes):
    """Write the codes of the grid step whose y has the smallest angle to z; return <z, y> and ||y||^2."""
    deviation = np.sqrt(z_square / np.float32(len(z)))
    if max_code == 1 or deviation == 0:  # codes of one bit are the signs, whatever the step
        return _quantize(z, max(deviation, np.float32(1e-30)), max_code, codes)
    best_ratio, best_step = np.float32(-1), default_step * deviation
    for s in range(len(GRID_STEPS)):
        step = GRID_STEPS[s] * default_step * deviation
        dot, y_square = _quantize(z, step, max_code, codes)
        if dot * dot > best_ratio * y_square:
            best_ratio, best_step = dot * dot / y_square, step
    return _quantize(z, best_step, max_code, codes)


@kernel
def encode_rows(z, bits, default_step, head, rest, factor, half, max_deviation):
    """Encode rotated rows z (n, D) into head (P, n), rest (n, B W - P), factor f (n,) and half = ||z||^2 / 2 (n,).

    default_step: the best grid step for standard normal coordinates. max_deviation (1,) is raised in place to the
    largest sqrt((||y||^2 - ||z||^2 / f^2) / (D - 1)) of a row: the standard deviation of the error of <q, y> for a unit
    query q, because the part of y orthogonal to z has a random direction after the rotation.
    """
    n, dim = z.shape
    codes = np.empty(dim, np.uint8)
    for i in range(n):
        z_square = np.float32(0)
        for j in range(dim):
            z_square += z[i, j] * z[i, j]
        dot, y_square = _quantize_best(z[i], z_square, (1 << bits) - 1, default_step, codes)
        half[i] = np.float32(0.5) * z_square
        factor[i] = z_square / dot if dot > 0 else np.float32(0)
        if factor[i] > 0:
            orthogonal = max(np.float32(0), y_square - z_square / (factor[i] * factor[i]))
            max_deviation[0] = max(max_deviation[0], np.sqrt(orthogonal / max(1, dim - 1)))
        _pack_codes(codes, bits, head[:, i], rest[i])


@kernel
def _pack_codes(codes, bits, head, rest):
    """Pack the codes u (D,) of one row into the words of its bit planes, head (P,) and rest (B W - P,)."""
    n_words, n_head = len(codes) // 64, len(head)
    eights = codes.view(np.uint64)  # eight codes per word; the first is the lowest byte (little-endian)
    for b in range(bits):
        shift = np.uint64(bits - 1 - b)
        for w in range(n_words):
            word = np.uint64(0)
            for j in range(8):  # the product gathers the lowest bits of eight bytes in the top byte
                lowest = (eights[8 * w + j] >> shift) & np.uint64(0x0101010101010101)
                word |= ((lowest * np.uint64(0x0102040810204080)) >> np.uint64(56)) << np.uint64(8 * j)
            if b == 0 and w < n_head:
                head[w] = word
            else:
                rest[b * n_words + w - n_head] = word


@kernel
def reorder_rows(rows, order, done):
    """Set rows[i] to the former rows[order[i]] for every i, in place, because rows may be too many to copy.

    done (n,) is memory, all False at first.
    """
    saved = np.empty(rows.shape[1], rows.dtype)
    for start in range(len(order)):
        if done[start] or order[start] == start:
            continue
        saved[:] = rows[start]
        i = start
        while order[i] != start:
            rows[i] = rows[order[i]]
            done[i] = True
            i = order[i]
        rows[i] = saved
        done[i] = True
