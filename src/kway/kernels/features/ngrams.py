"""Terms of texts: words and pairs of words, and pieces of 2 to 5 letters inside words, counted without Python objects.

    chars (m,) uint32     code points of all texts, one after another; text i is chars[ends[i - 1]:ends[i]]
    kinds (m,) uint8      SPACE, WORD (letter, digit, underscore) or OTHER
    word                  a run of WORD; a pair is two words that follow each other, written with one space
    piece                 2 to 5 code points of ' ' + token + ' ', a token being a run of what is not SPACE

A term is known by a 64-bit hash of its code points (FNV's step, then a mixer; its family, word or piece, is the seed),
so a vocabulary of a million terms has two of the same hash with probability 3e-8. Tables are open: keys (2^b,), 0 means
free. A first pass fills a table with the number of texts that have each term and where it first stood; a second one
looks the kept terms up and counts them.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel

SPACE, WORD, OTHER = 0, 1, 2
WORDS, PIECES = 0, 1  # families of terms
SHORTEST, LONGEST = 2, 5  # letters of a piece
INSIDE, BEFORE, AFTER = 0, 1, 2  # which spaces of the padded token a piece has; a sum for both

_SEEDS = np.array([0xCBF29CE484222325, 0x9E3779B97F4A7C15], np.uint64)
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_GAP = np.uint64(32)  # the space between the words of a pair, and around a token


@kernel
def _step(h, c):
    return (h ^ np.uint64(c)) * _PRIME


@kernel
def _key(h):
    """The hash of a finished term, never 0."""
    h ^= h >> np.uint64(33)
    h *= _MIX
    h ^= h >> np.uint64(29)
    return h | np.uint64(1) if h == np.uint64(0) else h


@kernel
def hash_terms(chars, ends, family, out):
    """out[i] = key of the term chars[ends[i - 1]:ends[i]]."""
    start = 0
    for i in range(len(ends)):
        h = _SEEDS[family]
        for j in range(start, ends[i]):
            h = _step(h, chars[j])
        out[i] = _key(h)
        start = ends[i]


@kernel
def _word_terms(chars, kinds, start, end, keys, first, last):
    """Terms of one text; keys, and the span [first, last) of the code points each was made of. How many there are."""
    n, before, before_start, j = 0, np.uint64(0), -1, start
    while j < end:
        if kinds[j] != WORD:
            j += 1
            continue
        begin, h, pair = j, _SEEDS[WORDS], _step(before, _GAP)
        while j < end and kinds[j] == WORD:
            h, pair = _step(h, chars[j]), _step(pair, chars[j])
            j += 1
        keys[n], first[n], last[n] = _key(h), begin, j
        n += 1
        if before_start >= 0:
            keys[n], first[n], last[n] = _key(pair), before_start, j
            n += 1
        before, before_start = h, begin
    return n


@kernel
def _piece_terms(chars, kinds, start, end, keys, first, last, pads):
    """As `_word_terms`, of pieces; `pads` says which of the spaces around its token a piece has."""
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
def room_for(chars_of_text, family):
    """Terms that a text of so many code points can have at most."""
    return 2 * chars_of_text + 2 if family == WORDS else (LONGEST - SHORTEST + 1) * (2 * chars_of_text + 2)


@kernel
def _slot(table, key):
    """Where key is in the table, or the free place that is its."""
    mask = np.uint64(len(table) - 1)
    at = (key >> np.uint64(7)) & mask
    while table[at] != np.uint64(0) and table[at] != key:
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@kernel
def count_texts(chars, kinds, starts, ends, family, table, counts, last_text, first, last, pads, used):
    """Texts that have each term, into an open table; returns the text it stopped before, as the table was half full.

    table (2^b,) keys, counts (2^b,), last_text (2^b,) the text that counted last (-1 at first), [first, last) one place
    where the term stands, pads the spaces that belong to it; used (1,) is how many places are taken.
    """
    room = 0
    for i in range(len(starts)):
        room = max(room, room_for(ends[i] - starts[i], family))
    keys, left, right = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    padded = np.zeros(room, np.uint8)
    for i in range(len(starts)):
        if used[0] + room_for(ends[i] - starts[i], family) > len(table) // 2:
            return i
        if family == WORDS:
            n = _word_terms(chars, kinds, starts[i], ends[i], keys, left, right)
        else:
            n = _piece_terms(chars, kinds, starts[i], ends[i], keys, left, right, padded)
        for t in range(n):
            at = _slot(table, keys[t])
            if table[at] == np.uint64(0):
                table[at], first[at], last[at], pads[at] = keys[t], left[t], right[t], padded[t]
                used[0] += 1
            if last_text[at] != i:
                counts[at] += 1
                last_text[at] = i
    return len(starts)


@kernel
def rehash(table, into):
    """Places in `into` of the keys of `table`, (2^b,); -1 for free ones."""
    places = np.full(len(table), -1, np.int64)
    for at in range(len(table)):
        if table[at] != np.uint64(0):
            to = _slot(into, table[at])
            into[to] = table[at]
            places[at] = to
    return places


@kernel
def columns_table(keys, table, columns):
    """Fill an open table with column numbers: columns[place of keys[j]] = j."""
    for j in range(len(keys)):
        at = _slot(table, keys[j])
        table[at], columns[at] = keys[j], j


@kernel
def count_terms(chars, kinds, starts, ends, family, table, columns, n_columns, indptr, indices, data):
    """CSR counts of the known terms of each text, columns ascending; `indices` and `data` have room for all."""
    room = 0
    for i in range(len(starts)):
        room = max(room, room_for(ends[i] - starts[i], family))
    keys, left, right = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    padded = np.zeros(room, np.uint8)
    counts = np.zeros(n_columns, np.int32)
    filled = 0
    for i in range(len(starts)):
        if family == WORDS:
            n = _word_terms(chars, kinds, starts[i], ends[i], keys, left, right)
        else:
            n = _piece_terms(chars, kinds, starts[i], ends[i], keys, left, right, padded)
        begin = filled
        for t in range(n):
            at = _slot(table, keys[t])
            if table[at] == np.uint64(0):
                continue
            column = columns[at]
            if counts[column] == 0:
                indices[filled] = column
                filled += 1
            counts[column] += 1
        indices[begin:filled].sort()
        for t in range(begin, filled):
            data[t] = counts[indices[t]]
            counts[indices[t]] = 0
        indptr[i + 1] = filled
    return filled
