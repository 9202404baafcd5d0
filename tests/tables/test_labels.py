"""Labels of every kind in, classes in order and codes out."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.errors import InputError
from kway.labels import encode, encode_as, encode_soft

kinds = [st.integers(-(2**62), 2**62), st.text(st.characters(exclude_characters="\0"), max_size=4), st.booleans()]


@settings(deadline=None, max_examples=60)
@given(st.one_of([st.lists(kind, min_size=1, max_size=12) for kind in kinds]))
def test_classes_and_codes_give_the_labels_back(y):
    labels = encode(y)
    assert labels.classes[labels.codes].tolist() == y
    assert labels.classes.tolist() == sorted(set(y))
    assert labels.codes.dtype == np.int64
    np.testing.assert_array_equal(encode_as(y, labels.classes), labels.codes)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (pd.Series(list("abba")), ["a", "b"]),
        (pd.Series(list("abba"), dtype="category"), ["a", "b"]),
        (pd.Series(list("abba"), dtype="string"), ["a", "b"]),
        (pl.Series(list("abba")), ["a", "b"]),
        (np.array(list("abba"), dtype=np.dtypes.StringDType()), ["a", "b"]),
        (np.array(list("abba"), dtype=object), ["a", "b"]),
        (np.array([3, 1, 1, 3], dtype=object), [1, 3]),
        (np.array([True, False, False, True], dtype=object), [False, True]),
        (np.array([2.0, 1.0, 1.0, 2.0], dtype="f2"), [1.0, 2.0]),
        ([7, 7, 7, 7], [7]),
        (pd.Series([2**60 + 1, 2**60], dtype="Int64"), [2**60, 2**60 + 1]),
        (pd.Series([True, False], dtype="boolean"), [False, True]),
    ],
)
def test_kinds_of_label(y, classes):
    labels = encode(y)
    assert labels.classes.tolist() == classes
    assert labels.n_classes == len(classes)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([None, 1], "NaN or None; drop"),
        ([np.nan, 1.0], "NaN or None; drop"),
        (np.array([np.nan, 1.0]), r"NaN or infinity \(1 rows\)"),
        (np.array([np.inf, 1.0]), r"NaN or infinity \(1 rows\)"),
        (pd.Series(["a", None]), "NaN or None"),
        (pl.Series(["a", None]), "NaN or None"),
        (pd.Series([1, None], dtype="Int64"), "NaN"),
        (pd.Series(["a", None], dtype="string"), "NaN or None"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), r"NaN or infinity \(1 rows\)"),
        (np.ma.masked_equal([1, 2], 2), "masked array with 1 values masked"),
        (sp.csr_matrix(np.eye(2)), "one label per row"),
        ([0.0, 1e300], "continuous.*pass whole numbers or text"),
        (["a", "a\0"], "ends with a NUL"),
        (["a", 1], "mixes int and str"),
        (np.array(["a", 1], dtype=object), "mixes int and str"),
        ([0.1, 0.2, 0.7], "continuous.*pass whole numbers or text"),
        (np.array([b"a", b"b"]), "bytes.*pass whole numbers or text"),
        ([1j, 2j], "(?i)complex"),
        (np.array([{1}, {2}], object), "objects such as set; pass whole numbers or text"),
        ([[1], [2, 3]], "one label per row"),
        (np.eye(3), "one label per row"),
        (5, "one label per row"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(InputError, match=message):
        encode(y)


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (["a", "z"], np.array(["a", "b"]), "2 known classes: 'z'; name every class"),
        ([1, 2], np.array(["a", "b"]), "known classes: 1, 2"),
        (["a"], np.array([1, 2]), "known classes: 'a'"),
        ([1.0, 2.5], np.array([1, 2]), "known classes: 2.5"),
        ([1], np.array([]), "0 known classes: 1"),
        ([None], np.array(["a"]), "NaN or None"),
    ],
)
def test_unseen_labels_are_named(y, classes, message):
    with pytest.raises(InputError, match=message):
        encode_as(y, classes)


def test_text_that_looks_like_a_number_is_not_that_number():
    with pytest.raises(InputError, match="known classes: '1'"):
        encode_as(["1"], np.array([1, 2]))
    with pytest.raises(InputError, match="known classes: 1"):
        encode_as([1], np.array(["1", "2"], dtype=object))


@pytest.mark.parametrize("y", [np.full((3, 2), 0.5), [[1, 0], [0, 1]], pd.DataFrame(np.eye(3)), np.eye(4, dtype="f2")])
def test_soft_targets(y):
    labels = encode_soft(y)
    n, n_classes = np.shape(y)
    assert labels.classes.tolist() == list(range(n_classes))
    assert labels.soft.shape == (n, n_classes)
    np.testing.assert_array_equal(labels.codes, np.argmax(y, axis=1))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full((2, 2), 0.6), "sum to 1 .worst sum is off by 0.2"),
        (np.array([[2.0, -1.0]]), "smallest entry -1"),
        (np.full((2, 2), np.nan), "finite numbers"),
        ([["a", "b"]], "finite numbers"),
    ],
)
def test_bad_soft_targets(y, message):
    with pytest.raises(InputError, match=message):
        encode_soft(y)


def test_a_class_a_row_is_no_regression(monkeypatch):
    """Prototypes are such; and no filter of warnings is set for their sake, as one holds for every thread."""
    monkeypatch.setattr(warnings, "filterwarnings", None)
    assert encode(np.arange(50)).n_classes == 50
