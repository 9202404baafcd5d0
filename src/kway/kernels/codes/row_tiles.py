"""Transpose codes into nibbles, so that one AVX2 shuffle looks up a table of 16 entries for 32 rows.

A tile has TILE_ROWS rows, and is transposed once for all queries of a batch. Byte r of nibbles[g] (TILE_ROWS,) contains
the bits 4 g .. 4 g + 3 of row r. This is the fast scan of Andre, Kermarrec and Le Scouarnec, "Cache locality is not
enough" (VLDB 2015).

    W   words of 64 bits per bit plane, D / 64 for D rotated columns
    B   bit planes: bits per column
    P   words of a row in `head`, where a filter reads them for adjacent rows; `rest` contains the other B W - P words
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import I8, I32, Assembler, nothing
from kway.kernels.jit import kernel
from kway.kernels.lanes import cpu_has

TABLE_FEATURES = ("avx2",)  # CPU features of the vectorized look-ups
TILE_ROWS = 256  # rows of a tile, whose nibbles stay in the L1 cache; decided by the benchmark of code scans (C1)

BYTES_32, BYTES_16 = ir.VectorType(I8, 32), ir.VectorType(I8, 16)


def pick_lanes(builder, x, y, positions):
    """Return the elements of the vectors x and y at `positions`; positions from len(x) on are elements of y."""
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(positions)), positions))


def look_up(a, table, nibbles):
    """Emit a table look-up with the Assembler `a`; return the entries (32 bytes) for the nibbles of 32 rows.

    `table` and `nibbles` are the addresses of 16 and 32 bytes.
    """
    entries = a.load(table, BYTES_16, 1)
    both_lanes = pick_lanes(a.builder, entries, entries, [*range(16)] * 2)  # a shuffle stays within 16 bytes
    return a.call("llvm.x86.avx2.pshuf.b", BYTES_32, [both_lanes, a.load(nibbles, BYTES_32, 1)])


def _interleave(builder, x, y, size, high):
    """Interleave units of `size` bytes of x and y, taken from the lower (or `high`) 8 bytes of each 16-byte lane."""
    positions = []
    for lane in (0, 16):
        for start in range(lane + 8 * high, lane + 8 * high + 8, size):
            positions += [*range(start, start + size), *range(32 + start, 32 + start + size)]
    return pick_lanes(builder, x, y, positions)


def _transpose(builder, vectors):
    """Transpose eight vectors of 4 rows x 8 bytes to eight vectors of one byte of 32 rows."""
    pairs = [lane + 8 * row + byte for lane in (0, 16) for byte in range(8) for row in range(2)]
    vectors = [pick_lanes(builder, x, x, pairs) for x in vectors]
    for size, step in ((2, 1), (4, 2), (8, 4)):
        vectors = [_interleave(builder, vectors[i & ~step], vectors[i | step], size, bool(i & step)) for i in range(8)]
    return [vectors[int(f"{i:03b}"[::-1], 2)] for i in range(8)]


@intrinsic
def transpose_word(typing_context, rows, out):
    """Write one word of 32 adjacent rows as 16 x 32 nibbles, TILE_ROWS bytes apart; both arguments are addresses."""

    def emit(context, builder, signature, arguments):
        a, (rows, out) = Assembler(builder), arguments
        vectors = []
        for i in range(8):  # rows 2 i, 2 i + 1, 16 + 2 i, 17 + 2 i: in this order, the transpose returns sorted rows
            low, high = (a.load(a.at(rows, start + 16 * i), BYTES_16, 8) for start in (0, 128))
            vectors.append(pick_lanes(builder, low, high, list(range(32))))
        four, mask = a.same(BYTES_32, 4), a.same(BYTES_32, 15)
        for k, byte in enumerate(_transpose(builder, vectors)):
            a.store(builder.and_(byte, mask), a.at(out, 2 * k * TILE_ROWS), 1)
            a.store(builder.lshr(byte, four), a.at(out, (2 * k + 1) * TILE_ROWS), 1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), emit if cpu_has(*TABLE_FEATURES) else nothing


@kernel
def transpose_rows(head, rest, start, stop, words, nibbles, fast):
    """Write the nibbles of rows start..stop (exclusive), at most TILE_ROWS, to nibbles (16 B W, TILE_ROWS).

    head (P, n) and rest (n, B W - P) contain the B W words of each row, as in BitRows. All arrays must
    be C-contiguous. `words` (TILE_ROWS,) uint64 is a scratch buffer. If `fast`, the CPU must have TABLE_FEATURES, and
    the nibbles of rows after `stop`, up to the next multiple of 32, contain garbage.
    """
    n_head, n = len(head), stop - start
    for w in range(n_head):
        if fast and n == TILE_ROWS:  # without a copy, which would take as long as the transpose
            _transpose_tile(np.uint64(head[w].ctypes.data + 8 * start), n, nibbles, w)
            continue
        for r in range(n):
            words[r] = head[w, start + r]
        _transpose_words(words, n, nibbles, w, fast)
    for w in range(rest.shape[1]):
        for r in range(n):
            words[r] = rest[start + r, w]
        _transpose_words(words, n, nibbles, n_head + w, fast)


@kernel
def _transpose_words(words, n, nibbles, w, fast):
    """Write the nibbles of words[:n], which are word w of n rows."""
    if fast:
        _transpose_tile(np.uint64(words.ctypes.data), n, nibbles, w)
        return
    for g in range(16):
        for r in range(n):
            nibbles[16 * w + g, r] = (words[r] >> np.uint64(4 * g)) & np.uint64(15)


@kernel
def _transpose_tile(address, n, nibbles, w):
    """Write the nibbles of n adjacent words at an address, which are word w of n rows."""
    for r in range(0, n, 32):
        transpose_word(address + np.uint64(8 * r), np.uint64(nibbles.ctypes.data + 16 * TILE_ROWS * w + r))
