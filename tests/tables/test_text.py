"""Texts as tf-idf of words and pieces of words."""

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from kway.tables.features import text as text_features
from kway.tables.features.text import learn_text

SAME = [
    {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    {"analyzer": "char_wb", "ngram_range": (2, 5)},
]
TEXTS = [
    "A red apple, a RED one",
    "",
    "   ",
    "naïve café — ½ price!",
    "你好 世界 你好",
    "x",
    "don't_stop  now\tor\nnever",
]


def test_weights_are_tfidf_of_both_halves():
    texts = ["a red apple", "a green apple", "", "red red wine", *TEXTS] * 30
    encoder, block = learn_text(pa.array([*texts, None]), "t")
    halves = [TfidfVectorizer(min_df=2, sublinear_tf=True, **kind).fit_transform([*texts, ""]) for kind in SAME]
    expected = sp.hstack(halves).toarray()
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(block.toarray(), expected / np.maximum(lengths, 1e-9), atol=1e-6)
    np.testing.assert_allclose(encoder.encode(pa.array([*texts, None])).toarray(), block.toarray(), atol=1e-7)
    assert block.dtype == np.float32
    assert "t: red apple" in encoder.output_names
    assert "t: ' ap'" in encoder.output_names
    assert block.shape[1] == len(encoder.output_names)


def test_terms_of_a_single_text_are_left_out_of_many_texts():
    encoder, _ = learn_text(pa.array(["red wine"] * 30 + ["blue sky"]), "t")
    assert not any("blue" in name for name in encoder.output_names)
    encoder, _ = learn_text(pa.array(["red wine"] * 3 + ["blue sky"]), "t")
    assert "t: blue sky" in encoder.output_names


def test_long_texts_have_words_alone(monkeypatch):
    monkeypatch.setattr(text_features, "MAX_PIECES", 10)
    encoder, block = learn_text(pa.array(["one two", "two three"]), "t")
    assert len(encoder.piece_idf) == 0
    np.testing.assert_allclose(encoder.encode(pa.array(["one two", "two three"])).toarray(), block.toarray())


def test_texts_without_terms():
    encoder, block = learn_text(pa.array(["", None]), "t")
    assert block.shape == (2, 0)
    assert encoder.encode(pa.array(["a"])).shape == (1, 0)


def test_unknown_terms_are_nothing():
    encoder, _ = learn_text(pa.array(["one two", "two three"]), "t")
    assert encoder.encode(pa.array(["zzz", None])).nnz == 0
    assert encoder.encode(pa.array([], pa.string())).shape == (0, len(encoder.output_names))
