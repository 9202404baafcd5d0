"""Terms of texts: word n-grams (words and pairs of words) and character n-grams (pieces of words).

    chars (m,) uint32     code points of all texts, one after another; text i is chars[starts[i]:ends[i]]
    kinds (m,) uint8      SPACE, WORD (letter, digit, underscore) or OTHER for each code point
    word                  consecutive code points of kind WORD; a pair is two consecutive words, joined by one space
    piece                 2 to 5 code points of ' ' + token + ' ', where a token contains no SPACE

A term is represented by a 64-bit hash of its code points (an FNV step per code point, then a mixer). Words and pieces
have different seeds. Two of a million terms have the same hash with probability 1e12 / 2^65, about 3e-8.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel

SPACE, WORD, OTHER = 0, 1, 2
WORDS, PIECES = 0, 1  # families of terms
SHORTEST, LONGEST = (
    2,
    5,
)  # code points of a piece, as char_wb of scikit-learn; decided on banking77 and clinc150
INSIDE, BEFORE, AFTER = 0, 1, 2  # which spaces around the token a piece contains; BEFORE + AFTER for both

_SEEDS = np.array([0xCBF29CE484222325, 0x9E3779B97F4A7C15], np.uint64)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_GAP = np.uint64(32)  # the space between the words of a pair, and around a token


@kernel
def _step(h, c):
    return (h ^ np.uint64(c)) * _PRIME


@kernel
def _key(h):
    """Return the hash of a finished term."""
    h ^= h >> np.uint64(33)
    h *= _MIX
    return h ^ (h >> np.uint64(29))


@kernel
def hash_terms(chars, ends, family, out):
    """Write the hashes of the terms chars[ends[i - 1]:ends[i]] to out."""
    start = 0
    for i in range(len(ends)):
        h = _SEEDS[family]
        for j in range(start, ends[i]):
            h = _step(h, chars[j])
        out[i] = _key(h)
        start = ends[i]


@kernel
def _word_terms(chars, kinds, start, end, keys, first, last):
    """Write the words and pairs of one text, each with its code points [first, last), and return their number."""
    n, j = 0, start
    previous, previous_start = np.uint64(0), -1  # hash and first code point of the word before
    while j < end:
        if kinds[j] != WORD:
            j += 1
            continue
        begin = j
        h = _SEEDS[WORDS]
        pair = _step(previous, _GAP)
        while j < end and kinds[j] == WORD:
            h = _step(h, chars[j])
            pair = _step(pair, chars[j])
            j += 1
        keys[n], first[n], last[n] = _key(h), begin, j
        n += 1
        if previous_start >= 0:
            keys[n], first[n], last[n] = _key(pair), previous_start, j
            n += 1
        previous, previous_start = h, begin
    return n


@kernel
def _piece_terms(chars, kinds, start, end, keys, first, last, pads):
    """Write the pieces of one text as `_word_terms` does, and to `pads` which spaces around the token they contain."""
    n, j = 0, start
    while j < end:
        if kinds[j] == SPACE:
            j += 1
            continue
        begin = j
        while j < end and kinds[j] != SPACE:
            j += 1
        for left in range(begin - 1, j):
            h = _SEEDS[PIECES]
            for right in range(left, min(left + LONGEST, j + 1)):
                h = _step(h, _GAP if right < begin or right == j else np.uint64(chars[right]))
                if right - left + 1 >= SHORTEST:
                    keys[n], first[n], last[n] = _key(h), max(left, begin), min(right + 1, j)
                    pads[n] = (BEFORE if left < begin else INSIDE) + (AFTER if right == j else INSIDE)
                    n += 1
    return n


@kernel
def max_terms(n_chars, family):
    """Return an upper bound of the number of terms in a text of `n_chars` code points."""
    return 2 * n_chars + 2 if family == WORDS else (LONGEST - SHORTEST + 1) * (2 * n_chars + 2)


@kernel
def list_terms(chars, kinds, starts, ends, family, indptr, keys, first, last, pads):
    """Write the terms of all texts, one text after another; those of text i are indptr[i]:indptr[i + 1].

    `keys` gets the hash of a term, `first` and `last` its code points [first, last), and `pads` which spaces around its
    token belong to it.
    """
    n = 0
    for i in range(len(starts)):
        if family == WORDS:
            n += _word_terms(chars, kinds, starts[i], ends[i], keys[n:], first[n:], last[n:])
        else:
            n += _piece_terms(chars, kinds, starts[i], ends[i], keys[n:], first[n:], last[n:], pads[n:])
        indptr[i + 1] = n
