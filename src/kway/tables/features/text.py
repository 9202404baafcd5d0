"""Text as tf-idf of word n-grams (words and pairs) and character n-grams (pieces of 2 to 5 characters inside words).

    x_j = (1 + log count_j) * (log((1 + n) / (1 + texts with j)) + 1), each family of length 1, then the whole row

scikit-learn counts the terms. Rare words help to separate classes, so every term that occurs in two training texts is
kept. Columns are sparse and may be millions. On 10,000 questions with 77 intents a linear SVM gets 89.4% with words
alone and 91.2% with both families. Long texts have many pieces, which add little to their words. If all training texts
together have more than MAX_PIECES pieces, only words are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from kway.memory import BLOCK_BYTES
from kway.tables.features.columns import ColumnPart, as_words
from kway.tables.sources.values import FEW_ROWS

MAX_PIECES = BLOCK_BYTES  # pieces of all training texts, estimated as four per character
MAX_TERMS = BLOCK_BYTES // 32  # terms of a family; of more, the most frequent are kept. A term takes about 32 bytes


@dataclass(frozen=True, eq=False)
class Terms(ColumnPart):
    """The terms of both families as UTF-8, one per line, and their inverse document frequencies (idf)."""

    words: NDArray[np.uint8]
    word_idf: NDArray[np.float32]
    pieces: NDArray[np.uint8]
    piece_idf: NDArray[np.float32]

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        words, pieces = decode_terms(self.words), decode_terms(self.pieces)
        return (*(f"{self.column}: {term}" for term in words), *(f"{self.column}: '{term}'" for term in pieces))

    def encode(self, column: Any) -> sp.csr_matrix:
        """Return (n, terms) CSR of float32 with rows of length 1, or 0 without a known term."""
        encoded = pc.dictionary_encode(as_words(column).fill_null(""))  # repeated texts are counted once
        texts = encoded.dictionary.to_pylist()
        if not texts or not self._vectorizers:
            return sp.csr_matrix((len(column), len(self.word_idf) + len(self.piece_idf)), dtype=np.float32)
        rows = _joined([vectorizer.transform(texts) for vectorizer in self._vectorizers])
        positions = encoded.indices.to_numpy(zero_copy_only=False)
        return rows if len(texts) == len(positions) else rows[positions]

    @cached_property
    def _vectorizers(self) -> list[TfidfVectorizer]:
        """The vectorizers of the families that have terms."""
        vectorizers = []
        for family, lines, idf in (("word", self.words, self.word_idf), ("piece", self.pieces, self.piece_idf)):
            if len(idf):
                vectorizer = _vectorizer(family, vocabulary=decode_terms(lines))
                vectorizer.idf_ = idf
                vectorizers.append(vectorizer)
        return vectorizers


def learn_text(column: Any, name: str) -> tuple[Terms, sp.csr_matrix]:
    """Learn the terms of a text column from training rows; return the encoder and its result for these rows."""
    texts = as_words(column).fill_null("").to_pylist()
    words, pieces = (_learn_family(texts, family) for family in ("word", "piece"))
    return Terms(name, words.terms, words.idf, pieces.terms, pieces.idf), _joined([words.weights, pieces.weights])


class _LearnedFamily(NamedTuple):
    """The terms of a family as `encode_terms` stores them, their idf, and their weights in the texts (n, terms)."""

    terms: NDArray[np.uint8]
    idf: NDArray[np.float32]
    weights: sp.csr_matrix


def _learn_family(texts: list[str], family: str) -> _LearnedFamily:
    vectorizer = _vectorizer(family, min_df=2 if len(texts) >= FEW_ROWS else 1, max_features=MAX_TERMS)
    no_terms = encode_terms([]), np.empty(0, np.float32), sp.csr_matrix((len(texts), 0), dtype=np.float32)
    if family == "piece" and 4 * sum(map(len, texts)) > MAX_PIECES:
        return _LearnedFamily(*no_terms)
    try:
        weights = vectorizer.fit_transform(texts)
    except ValueError:  # no term occurs in enough texts
        return _LearnedFamily(*no_terms)
    return _LearnedFamily(encode_terms(vectorizer.get_feature_names_out()), vectorizer.idf_, weights)


def _vectorizer(family: str, **options: Any) -> TfidfVectorizer:
    options |= {"sublinear_tf": True, "dtype": np.float32}
    if family == "word":
        return TfidfVectorizer(token_pattern=r"\w+", ngram_range=(1, 2), **options)
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **options)


def _joined(blocks: list[sp.csr_matrix]) -> sp.csr_matrix:
    """Return the columns of both families, with rows of length 1."""
    rows = sp.csr_matrix(sp.hstack(blocks, format="csr"))
    return normalize(rows, copy=False) if rows.shape[1] else rows


def encode_terms(terms: Sequence[str]) -> NDArray[np.uint8]:
    """Return terms as UTF-8, one per line; no term contains a line break."""
    return np.frombuffer("\n".join(terms).encode("utf-8", "surrogatepass"), np.uint8)


def decode_terms(lines: NDArray[np.uint8]) -> list[str]:
    """Reverse `encode_terms`."""
    return lines.tobytes().decode("utf-8", "surrogatepass").split("\n") if len(lines) else []
