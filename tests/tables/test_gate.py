"""The gate: what it lets in, as what, and what it says to the rest (what, got, do)."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from kway import validation
from kway.errors import InputError, KindError

A = np.arange(12.0).reshape(4, 3)


class Model(BaseEstimator):
    pass


def rows(X, **options):
    return validation.rows(Model(), X, reset=True, **options)


def with_value(value):
    array = A.copy()
    array[2, 1] = value
    return array


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("f2", "f4"), ("f4", "f4"), ("f8", "f8"), (">f4", "f4"), (">f8", "f8"), ("g", "f8"), ("u1", "f4"),
        ("i2", "f4"), (">i2", "f4"), ("i8", "f4"), ("?", "f4"),
    ],
)  # fmt: skip
def test_dtypes(given, kept):
    checked = rows(A.astype(given))
    assert checked.dtype == np.dtype(kept)
    assert checked.flags.c_contiguous
    np.testing.assert_array_equal(checked, A.astype(given).astype(float))


@pytest.mark.parametrize("value", [2**24 + 1, -(2**24) - 1])
def test_integers_that_float32_would_round_become_float64(value):
    checked = rows(np.array([[value], [3]]))
    assert checked.dtype == np.float64
    assert checked[0, 0] == value


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=5))
def test_no_integer_is_ever_rounded(values):
    assert rows(np.array([values]))[0].tolist() == values


@pytest.mark.parametrize(
    "X",
    [
        A.tolist(), tuple(map(tuple, A)), pd.DataFrame(A), pd.DataFrame(A, columns=list("abc")),
        pl.DataFrame(A, schema=list("abc"), orient="row"), np.asfortranarray(A), A.astype(object), sp.csr_matrix(A),
        sp.csr_array(A), sp.csc_matrix(A), sp.coo_array(A),
        pd.DataFrame({"a": A[:, 0].astype(int), "b": A[:, 1], "c": A[:, 2]}),
        np.repeat(A, 2, axis=1)[:, ::2], np.ma.masked_array(A),
    ],
    ids=lambda X: type(X).__name__,
)  # fmt: skip
def test_containers(X):
    checked = rows(X)
    assert sp.issparse(checked) == sp.issparse(X)
    dense = checked.toarray() if sp.issparse(checked) else checked
    assert not sp.issparse(checked) or checked.format == "csr"
    np.testing.assert_array_equal(dense, A)


def test_a_memory_map_is_not_copied(tmp_path):
    np.save(tmp_path / "a.npy", A)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert np.shares_memory(rows(mapped), mapped)


BAD_ROWS = {
    "NaN": (with_value(np.nan), "NaN, first in row 2, column 1 .1 values.; impute or drop"),
    "infinity": (with_value(-np.inf), "infinity.* first in row 2, column 1"),
    "NaN in a frame": (pd.DataFrame(with_value(np.nan), columns=list("abc")), "first in row 2, column b"),
    "null in a polars frame": (pl.DataFrame({"a": [1, None], "b": [0.5, 1.0]}), "NaN.*column a"),
    "missing in a nullable column": (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "NaN"),
    "None": ([[None, 1], [2, 3]], "NaN.* row 0, column 0"),
    "NaN in sparse rows": (sp.csr_matrix(with_value(np.nan)), "NaN"),
    "one axis": ([1.0, 2.0], "Expected 2D array, got 1D array"),
    "no axis": (3.0, "got scalar array"),
    "three axes": (np.zeros((2, 2, 2)), "dim 3"),
    "no rows": (np.zeros((0, 3)), r"0 sample\(s\)"),
    "no columns": (np.zeros((3, 0)), r"0 feature\(s\)"),
    "empty list": ([], "Expected 2D array"),
    "nothing": (None, "Expected 2D array"),
    "ragged": ([[1, 2], [3]], r"different lengths \(1, 2\); give every row the same"),
    "ragged objects": (np.array([[1, 2], [3]], dtype=object), "different lengths"),
    "text": ([["a", "b"]], "text where numbers are expected; encode or drop"),
    "text among objects": (np.array([[1, "a"]], dtype=object), "text where numbers are expected"),
    "text column": (pd.DataFrame({"a": ["x", "y"], "b": [0.5, 1]}), r"\(columns a\); encode or drop"),
    "text column, polars": (pl.DataFrame({"a": ["x", "y"], "b": [0.5, 1]}), r"\(columns a\); encode or drop"),
    "categories": (pd.DataFrame({"a": pd.Categorical(["x", "y"]), "b": [0.5, 1]}), r"\(columns a\); encode or drop"),
    "dates": (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"]), "b": [0.5]}), r"\(columns a\); encode or drop"),
    "date array": (np.array([["2020-01-01"]], "M8[D]"), "must be numbers, got dtype datetime64"),
    "complex": (A + 1j, "Complex data not supported; pass real"),
    "masked": (np.ma.masked_array(A, mask=A > 9), "2 values masked; fill or drop"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows(case):
    X, message = BAD_ROWS[case]
    with pytest.raises(InputError, match=message) as caught:
        rows(X)
    assert isinstance(caught.value, ValueError)


def test_sparse_rows_where_only_dense_will_do():
    with pytest.raises(KindError, match="toarray"):
        rows(sp.csr_matrix(A), sparse=False)
    assert issubclass(KindError, TypeError)
    assert issubclass(KindError, InputError)


def test_the_number_of_features_is_that_of_fit():
    model = Model()
    validation.rows(model, A, reset=True)
    with pytest.raises(
        InputError, match=r"X has 2 features, but Model is expecting 3 .*; pass the columns used in fit"
    ):
        validation.rows(model, A[:, :2], reset=False)


def test_the_names_of_features_are_those_of_fit():
    model = Model()
    validation.rows(model, pd.DataFrame(A, columns=list("abc")), reset=True)
    with pytest.raises(InputError, match="feature names should match"):
        validation.rows(model, pd.DataFrame(A, columns=list("acb")), reset=False)


def test_rows_and_labels_go_together():
    X, labels = validation.rows_and_labels(Model(), A, list("abba"))
    assert X.shape == (4, 3)
    assert labels.classes.tolist() == ["a", "b"]
    with pytest.raises(InputError, match="X has 4 rows, y has 2; pass one label per row"):
        validation.rows_and_labels(Model(), A, [1, 2])
    with pytest.raises(InputError, match="requires y"):
        validation.rows_and_labels(Model(), A, None)


def test_soft_targets_only_where_they_are_allowed():
    soft = np.full((4, 2), 0.5)
    assert validation.rows_and_labels(Model(), A, soft, soft=True)[1].soft.shape == (4, 2)
    with pytest.raises(InputError, match="1d array"):
        validation.rows_and_labels(Model(), A, soft)
    with pytest.raises(InputError, match="X has 4 rows, y has 3"):
        validation.rows_and_labels(Model(), A, soft[:3], soft=True)


@pytest.mark.parametrize(
    ("X", "shape", "dtype"),
    [
        ([[1, 2]], (1, 2), "f4"),
        ([1.0, 2.0], (1, 2), "f8"),
        (np.ones((2, 2), "f2"), (2, 2), "f4"),
        (np.zeros((0, 2)), (0, 2), "f8"),
        (sp.csr_matrix(A), (4, 3), "f8"),
        (pd.DataFrame(A), (4, 3), "f8"),
        (pl.DataFrame(A), (4, 3), "f8"),
        (np.full((2, 2), 3e38, "f4"), (2, 2), "f4"),
        (np.full((2, 2), 1.5e308), (2, 2), "f8"),
    ],
)
def test_plain_rows(X, shape, dtype):
    checked = validation.plain_rows(X)
    assert checked.shape == shape
    assert checked.dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1], [1, 2]], "different lengths"),
        ([["a"]], "must be numbers"),
        ([], "must be numbers of shape"),
        (3.0, "must be numbers of shape"),
        (np.zeros((1, 1, 1)), "must be numbers of shape"),
        ([[1.0, 2.0], [np.inf, -np.inf]], "first in row 1"),
        (A + 1j, "complex"),
        (np.array([[1, 2]], dtype=object), "dtype object"),
        (np.ma.masked_array(A, mask=A > 9), "masked"),
    ],
)
def test_bad_plain_rows(X, message):
    with pytest.raises(InputError, match=message):
        validation.plain_rows(X, "queries")


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), ([1, 2, 3, 4], [1, 2, 3, 4]), (2.0, [2, 2, 2, 2]), ([0, 0, 0, 1], [0, 0, 0, 1])],
)
def test_weights(given, expected):
    checked = validation.weights(given, A)
    assert (checked if checked is None else checked.tolist()) == expected


@pytest.mark.parametrize(
    "given",
    [[-1, 1, 1, 1], [0, 0, 0, 0], [1, 2], [np.nan, 1, 1, 1], [np.inf, 1, 1, 1], list("abcd"), np.ones((4, 1))],
    ids=["negative", "all zero", "too few", "NaN", "infinity", "text", "two axes"],
)
def test_bad_weights(given):
    with pytest.raises(InputError, match="weight"):
        validation.weights(given, A)


def test_rows_that_passed_are_taken_as_they_are():
    X = np.array([[1.0, np.nan]])  # nobody looks again, so nobody sees it
    assert validation.plain_rows(validation.checked(X)) is X
    csr = sp.csr_matrix([[0.0, 2.0]])
    assert validation.plain_rows(validation.checked(csr), sparse=True) is csr
    np.testing.assert_array_equal(validation.plain_rows(validation.checked(csr)), [[0.0, 2.0]])
