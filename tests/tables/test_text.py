"""Texts as tf-idf of named terms: scikit-learn's vectorizers count the same terms, in far more time."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from kway.tables.features import text as text_features
from kway.tables.features.text import characters, learn_text, learn_vocabulary

SAME = {
    "word": {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    "piece": {"analyzer": "char_wb", "ngram_range": (2, 5)},
}
TEXTS = [
    "A red apple, a RED one",
    "",
    "   ",
    "naïve café — ½ price!",
    "你好 世界 你好",
    "x",
    "don't_stop  now\tor\nnever",
]


def counted(family, texts, enough=1):
    """Terms and dense counts by kway and by scikit-learn."""
    found = learn_vocabulary(characters(texts), family).vocabulary
    theirs = CountVectorizer(min_df=enough, **SAME[family])
    counts = theirs.fit_transform(texts).toarray()
    return found, found.counts(characters(texts)).toarray(), theirs.get_feature_names_out(), counts


@pytest.mark.parametrize("family", ["word", "piece"])
def test_terms_and_counts_are_scikit_learns(family):
    found, counts, names, expected = counted(family, TEXTS)
    assert found.terms == names.tolist()
    np.testing.assert_array_equal(counts, expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=8))
def test_any_texts(texts):
    texts = [*texts, "at least one word"]
    for family in ("word", "piece"):
        found, counts, names, expected = counted(family, texts)
        assert found.terms == names.tolist()
        np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("family", ["word", "piece"])
def test_many_texts_in_many_shares_and_a_table_that_grows(family, monkeypatch):
    monkeypatch.setattr(text_features, "_BLOCK", 1 << 10)
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz  "))
    texts = ["".join(rng.choice(letters, rng.integers(0, 60))) for _ in range(1000)]
    found, counts, names, expected = counted(family, texts, enough=2)  # many texts: terms of one alone are left out
    assert found.terms == names.tolist()
    np.testing.assert_array_equal(counts, expected)


def test_only_the_terms_of_most_texts_where_there_are_too_many():
    texts = characters(["a b c", "a b", "a"])
    found = learn_vocabulary(texts, "word", max_terms=2)
    assert found.vocabulary.terms == ["a", "b"]
    np.testing.assert_array_equal(found.texts_with, [3, 2])


def test_weights_are_tfidf_of_both_halves():
    texts = ["a red apple", "a green apple", "", "red red wine"] * 30
    encoder, block = learn_text(pa.array([*texts, None]), "t")
    halves = [
        TfidfVectorizer(min_df=2, sublinear_tf=True, **kind).fit_transform([*texts, ""]) for kind in SAME.values()
    ]
    expected = sp.hstack(halves).toarray()
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(block.toarray(), expected / np.maximum(lengths, 1e-9), atol=1e-6)
    np.testing.assert_allclose(encoder.encode(pa.array([*texts, None])).toarray(), block.toarray(), atol=1e-7)
    assert "t: red apple" in encoder.output_names
    assert "t: ' ap'" in encoder.output_names
    assert block.shape[1] == len(encoder.output_names)


def test_unknown_terms_are_nothing():
    encoder, _ = learn_text(pa.array(["one two", "two three"]), "t")
    assert encoder.encode(pa.array(["zzz", None])).nnz == 0
    assert encoder.encode(pa.array([], pa.string())).shape == (0, len(encoder.output_names))
