"""Codes of a few bits per coordinate: the rotation, encoding and decoding.

    z = R x                  R: rounds of (random signs, Hadamard blocks), orthonormal; D columns, a multiple of 64
    y_j = 2 u_j - (2^B - 1)  u_j in 0..2^B - 1: odd whole numbers, the top bit of u_j is the sign of z_j
    f = ||z||^2 / <z, y>     so that f <q, y> is an unbiased estimate of <q, z> for every q (RaBitQ)

Bit b of all u is a plane of W = D / 64 words. A row stores its sign plane first: the leading P words in `head` (P, n),
so that the words of eight rows are adjacent, the others in `rest` (n, W - P + (B - 1) W), then the lower planes.

`reorder_rows` permutes rows in place, because there may be too many to copy them.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel

GRID_STEPS = np.linspace(0.6, 1.5, 13).astype(np.float32)  # multiples of the usual step that are tried for each row
WIDEST_FILTER = 4  # words of a row that a filter reads first (C1)


@kernel
def _eights(x):
    """Transform each eight numbers of x (n,), unscaled; unrolled, because short loops would cost more."""
    for s in range(0, len(x), 8):
        a, b, c, d, e, f, g, h = x[s], x[s + 1], x[s + 2], x[s + 3], x[s + 4], x[s + 5], x[s + 6], x[s + 7]
        a, b, c, d, e, f, g, h = a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h
        a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
        x[s], x[s + 1], x[s + 2], x[s + 3] = a + e, b + f, c + g, d + h
        x[s + 4], x[s + 5], x[s + 6], x[s + 7] = a - e, b - f, c - g, d - h


@kernel
def _hadamard(x):
    """Compute the orthonormal Walsh-Hadamard transform of x (2^k,), k >= 3, in place; two widths in one pass."""
    n, width = len(x), 8
    _eights(x)
    while 2 * width < n:
        for s in range(0, n, 4 * width):
            p, q = x[s : s + width], x[s + width : s + 2 * width]
            u, v = x[s + 2 * width : s + 3 * width], x[s + 3 * width : s + 4 * width]
            for j in range(width):
                a, b, c, d = p[j] + q[j], p[j] - q[j], u[j] + v[j], u[j] - v[j]
                p[j] = a + c
                q[j] = b + d
                u[j] = a - c
                v[j] = b - d
        width *= 4
    if width < n:
        low, high = x[:width], x[width:]
        for j in range(width):
            a, b = low[j], high[j]
            low[j] = a + b
            high[j] = a - b
    scale = np.float32(1.0 / np.sqrt(n))
    for j in range(n):
        x[j] *= scale


@kernel
def _largest_power(wide):
    """Return the largest power of two up to `wide`."""
    power = 1
    while 2 * power <= wide:
        power *= 2
    return power


@kernel
def rotate(rows, signs):
    """Rotate rows (n, D) float32 in place by the rounds of signs (rounds, D) int8.

    If D is not a power of two, a round transforms the first and then the last 2^k columns, which overlap.
    """
    n, wide = rows.shape
    block = _largest_power(wide)
    for i in range(n):
        x = rows[i]
        for r in range(len(signs)):
            for j in range(wide):
                x[j] *= signs[r, j]
            _hadamard(x[:block])
            if block < wide:
                _hadamard(x[wide - block :])


@kernel
def rotate_back(rows, signs):
    """Invert `rotate` in place: every step is its own inverse, so the steps run backwards."""
    n, wide = rows.shape
    block = _largest_power(wide)
    for i in range(n):
        x = rows[i]
        for r in range(len(signs) - 1, -1, -1):
            if block < wide:
                _hadamard(x[wide - block :])
            _hadamard(x[:block])
            for j in range(wide):
                x[j] *= signs[r, j]


@kernel
def _levels(z, step, most, levels):
    """Compute levels (D,) u_j of one row on the grid of this step; return <z, y> and ||y||^2."""
    along, length = np.float32(0), np.float32(0)
    inverse = np.float32(1) / step
    half, top = np.float32(0.5 * (most + 1)), np.float32(most)
    for j in range(len(z)):
        u = min(max(np.floor(z[j] * inverse + half), np.float32(0)), top)
        levels[j] = np.uint8(u)
        y = np.float32(2) * u - top
        along += y * z[j]
        length += y * y
    return along, length


@kernel
def _best_levels(z, square, most, usual, levels):
    """Choose the grid whose row y has the smallest angle to z; return <z, y> and ||y||^2."""
    spread = np.sqrt(square / np.float32(len(z)))
    if most == 1 or spread == 0:
        return _levels(z, max(spread, np.float32(1e-30)), most, levels)
    best, chosen = np.float32(-1), usual * spread
    for s in range(len(GRID_STEPS)):
        along, length = _levels(z, GRID_STEPS[s] * usual * spread, most, levels)
        if along * along > best * length:
            best, chosen = along * along / length, GRID_STEPS[s] * usual * spread
    return _levels(z, chosen, most, levels)


@kernel
def encode_rows(z, bits, usual, first, head, rest, factor, half, widest):
    """Encode rotated rows z (m, D) as rows first, first + 1, ... of head, rest, factor (n,) and half (n,).

    usual: the best step for normal coordinates. widest (1,): the largest error of <q, z> / (f ||q||) so far.
    """
    wide, (planes, _) = z.shape[1], head.shape
    words, most = wide // 64, (1 << bits) - 1
    levels = np.empty(wide, np.uint8)
    eights = levels.view(np.uint64)
    for i in range(len(z)):
        square = np.float32(0)
        for j in range(wide):
            square += z[i, j] * z[i, j]
        along, length = _best_levels(z[i], square, most, usual, levels)
        half[first + i] = np.float32(0.5) * square
        f = square / along if along > 0 else np.float32(0)
        factor[first + i] = f
        if f > 0:
            lost = max(np.float32(0), length - square / (f * f))  # ||y||^2 (1 - a^2), a the cosine of z and y
            widest[0] = max(widest[0], np.sqrt(lost / max(1, wide - 1)))
        for b in range(bits):
            shift = np.uint64(bits - 1 - b)
            for w in range(words):
                word = np.uint64(0)
                for j in range(8):  # one bit of each of eight bytes, gathered in the top byte by a product
                    ones = (eights[8 * w + j] >> shift) & np.uint64(0x0101010101010101)
                    word |= ((ones * np.uint64(0x0102040810204080)) >> np.uint64(56)) << np.uint64(8 * j)
                if b == 0 and w < planes:
                    head[w, first + i] = word
                else:
                    rest[first + i, b * words + w - planes] = word


@kernel
def decode_rows(bits, head, rest, out):
    """Decode the odd whole numbers y into out (n, D) float32."""
    (planes, n), wide = head.shape, out.shape[1]
    words, most = wide // 64, (1 << bits) - 1
    for i in range(n):
        for j in range(wide):
            out[i, j] = -most
        for b in range(bits):
            weight = np.float32(2 << (bits - 1 - b))
            for w in range(words):
                word = head[w, i] if b == 0 and w < planes else rest[i, b * words + w - planes]
                for j in range(64):
                    out[i, 64 * w + j] += weight * np.float32((word >> np.uint64(j)) & np.uint64(1))


@kernel
def sign_words(z, words):
    """Pack the signs of rotated queries z (q, D) into words (q, W)."""
    for i in range(len(z)):
        for w in range(words.shape[1]):
            word = np.uint64(0)
            for j in range(64):
                word |= np.uint64(z[i, 64 * w + j] > 0) << np.uint64(j)
            words[i, w] = word


@kernel
def reorder_rows(rows, order, done):
    """Set rows[i] to the former rows[order[i]] in place, cycle by cycle; done (n,) is all False at first."""
    room = np.empty(rows.shape[1], rows.dtype)
    for start in range(len(order)):
        if done[start] or order[start] == start:
            continue
        room[:] = rows[start]
        at = start
        while order[at] != start:
            rows[at] = rows[order[at]]
            done[at] = True
            at = order[at]
        rows[at] = room
        done[at] = True
