"""Triton kernels of binary codes: lists of sign codes (sign_codes.py), bit planes (bit_codes.py), generated rows.

A code of D bits is D / 32 words of int32; bit j of word w is feature 32 w + j. A bit of 1 means +1, and of 0 means -1.
"""

from __future__ import annotations

import triton
import triton.language as tl

WORD = tl.constexpr(32)  # bits of a word
CODE_BITS = tl.constexpr(512)  # bits of a sign code, and features of a generated row
CODE_WORDS = tl.constexpr(16)


@triton.jit
def measure_codes(
    codes, query_words, queries, lists, counts, agreeing_bits, products, n_rows,
    CAPACITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compare queries (q, 512) with the codes on their lists (q, CAPACITY), BLOCK codes per program.

    Write the number of agreeing bits (int32) and the product of the query and the code's signs (float32). Entries for
    codes beyond `n_rows`, which are padding, are not written.
    """
    q = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    n = tl.minimum(tl.load(counts + q), CAPACITY)
    if first < n:
        entry, bit = first + tl.arange(0, BLOCK), tl.arange(0, WORD)
        code = tl.load(lists + q * CAPACITY + entry, mask=entry < n, other=0)
        agreement = tl.zeros((BLOCK,), tl.int32)
        product = tl.zeros((BLOCK,), tl.float32)
        for w in range(CODE_WORDS):
            word = tl.load(codes + code.to(tl.int64) * CODE_WORDS + w)
            equal_bits = ~(word ^ tl.load(query_words + q * CODE_WORDS + w))
            agreement += tl.sum((equal_bits[:, None] >> bit[None, :]) & 1, 1)
            signs = (((word[:, None] >> bit[None, :]) & 1) * 2 - 1).to(tl.float32)
            product += tl.sum(signs * tl.load(queries + q * CODE_BITS + w * WORD + bit)[None, :], 1)
        is_row = (entry < n) & (code < n_rows)
        tl.store(agreeing_bits + q * CAPACITY + entry, agreement, mask=is_row)
        tl.store(products + q * CAPACITY + entry, product, mask=is_row)


@triton.jit
def unpack_planes(words, out, n_rows, WORDS: tl.constexpr, PLANES: tl.constexpr, BLOCK: tl.constexpr):
    """Decode words (n, PLANES * WORDS), stored plane by plane, to odd integers out (n, 32 WORDS), BLOCK rows each.

    The value of a column is the sum over its planes b of 2^(PLANES - 1 - b) times +1 or -1.
    """
    w, bit = tl.program_id(1), tl.arange(0, WORD)
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.zeros((BLOCK, WORD), tl.int32)
    for b in tl.static_range(PLANES):
        word = tl.load(words + row * (PLANES * WORDS) + b * WORDS + w, mask=row < n_rows, other=0)
        value = value * 2 + ((word[:, None] >> bit[None, :]) & 1) * 2 - 1
    target = out + row[:, None] * (WORD * WORDS) + w * WORD + bit[None, :]
    tl.store(target, value.to(out.dtype.element_ty), mask=(row < n_rows)[:, None])


# ---- generated rows. The hash is that of generated_rows.py; tests/gpu/test_codes.py compares the two


@triton.jit
def mix_bits(h):
    """Return a 32-bit hash in which every output bit depends on every input bit."""
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    h ^= h >> 16
    return h


@triton.jit
def generate_values(row, column):
    """Return the values of generated rows: one of 256 numbers from -127.5 to 127.5, which bfloat16 holds exactly."""
    seed = mix_bits(row.to(tl.uint32) + 12345)
    return (mix_bits(seed ^ (column.to(tl.uint32) * 0x9E3779B1)) >> 24).to(tl.float32) - 127.5


@triton.jit
def generate_codes(codes, rotation, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """Write the signs of generated rows @ rotation (512, 512) bfloat16 to codes (n, 16) int32.

    A program computes a tile of ROWS x COLUMNS bits, from DEPTH features at a time; n is a multiple of ROWS.
    """
    tiles_across = CODE_BITS // COLUMNS
    tile_row, tile_column = tl.program_id(0) // tiles_across, tl.program_id(0) % tiles_across
    row, column = tile_row * ROWS + tl.arange(0, ROWS), tile_column * COLUMNS + tl.arange(0, COLUMNS)
    rotated = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, CODE_BITS, DEPTH):
        feature = first + tl.arange(0, DEPTH)
        block = tl.load(rotation + feature[:, None] * CODE_BITS + column[None, :])
        rotated = tl.dot(generate_values(row[:, None], feature[None, :]).to(tl.bfloat16), block, rotated)
    bits = tl.reshape((rotated > 0).to(tl.int32), (ROWS, COLUMNS // WORD, WORD)) << tl.arange(0, WORD)[None, None, :]
    word = tile_column * (COLUMNS // WORD) + tl.arange(0, COLUMNS // WORD)
    tl.store(codes + row.to(tl.int64)[:, None] * CODE_WORDS + word[None, :], tl.sum(bits, 2))
