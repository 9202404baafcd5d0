"""Text as hashed tf-idf, as model files of 0.1 hold it: nothing learns it any more (see text.py).

count_j(row)   of hash j, HashingVectorizer's, of words and pairs of words, and of pieces of 2 to 4 letters
x_j = log(1 + count_j) * idf_j, each half of length 1, then the whole
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.data.features.columns import as_words
from kway.data.features.unit_rows import unit_rows

HASH_BITS = 18
HALVES: dict[str, dict[str, Any]] = {
    "word": {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    "piece": {"analyzer": "char_wb", "ngram_range": (2, 4)},
}


@dataclass(frozen=True, eq=False)
class HashedText:
    """For each half the hashes kept, ascending, and their idf."""

    name: str
    word_hashes: NDArray[np.int64]
    word_idf: NDArray[np.float32]
    piece_hashes: NDArray[np.int64]
    piece_idf: NDArray[np.float32]

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out: hashes, as no vocabulary is kept."""
        words = [f"{self.name} word #{h}" for h in self.word_hashes]
        return (*words, *(f"{self.name} piece #{h}" for h in self.piece_hashes))

    def apply(self, column: Any) -> sp.csr_matrix:
        """(n, hashes kept) CSR of float32, rows of length 1 (0 where nothing is known)."""
        return self._weigh(hash_text(column))

    def _weigh(self, counts: Counts) -> sp.csr_matrix:
        word = _tfidf(counts.word, self.word_hashes, self.word_idf)
        piece = _tfidf(counts.piece, self.piece_hashes, self.piece_idf)
        both = sp.csr_matrix(sp.hstack([word, piece], format="csr"))
        return unit_rows(both)


class Counts(NamedTuple):
    """Hashed counts of each half, (n, 2^HASH_BITS) CSR."""

    word: sp.csr_matrix
    piece: sp.csr_matrix


def hash_text(column: Any) -> Counts:
    """Counts of a column; a missing text is an empty one. Texts that repeat are hashed once."""
    import pyarrow.compute as pc

    coded = pc.dictionary_encode(as_words(column).fill_null(""))
    texts, places = coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
    none = sp.csr_matrix((0, 2**HASH_BITS), dtype=np.float32)
    halves = (_hasher(half).transform(texts) if texts else none for half in HALVES)
    if len(texts) == len(places):
        return Counts(*halves)
    return Counts(*(half[places] for half in halves))


@cache
def _hasher(half: str) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=2**HASH_BITS, alternate_sign=False, norm=None, dtype=np.float32, **HALVES[half])


def _tfidf(counts: sp.csr_matrix, kept: NDArray[np.int64], idf: NDArray[np.float32]) -> sp.csr_matrix:
    """(n, kept), rows of length 1: half words, half pieces, however many of each a text has."""
    place = np.full(counts.shape[1], -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    columns = place[counts.indices]
    known = columns >= 0
    before = np.concatenate([[0], np.cumsum(known)])  # known entries up to each place
    values = np.log1p(counts.data[known]) * idf[columns[known]]
    part = sp.csr_matrix((values, columns[known], before[counts.indptr]), shape=(counts.shape[0], len(kept)))
    part.sort_indices()
    return unit_rows(part.astype(np.float32))
