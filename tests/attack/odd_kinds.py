"""Fits on rows and labels of every kind that a caller may hand over: what means the same is answered the same.

Sixty rows of three classes come as arrays of every type and order, frames, sparse matrices with duplicates and stored
zeros, and as what is no rows at all; their labels as numbers, text, dates, bytes, with gaps and masks. An end is

    answered   predict = argmax of predict_proba = first of predict_topk, also of the saved model; `SAME` rows are
               answered as the plain array is, labels come back as they were given
    refused    a KwayError
    bad        everything else

    python odd_kinds.py
"""

from __future__ import annotations

import datetime
import decimal
import sys
import tempfile
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
from hostile_input import MODELS, check

import kway
from kway.errors import KwayError
from kway.search import Bits, Flat, Landmarks, Sharded

N, D, K = 60, 5, 3
Y = np.arange(N) % K
X = np.random.default_rng(0).normal(size=(N, D)) + 3 * np.random.default_rng(1).normal(size=(K, D))[Y]
NAMES = list("abcde")

ALL_MODELS: dict[str, Callable[[], Any]] = {
    **MODELS,
    "bits": lambda: kway.NeighborsClassifier(3, metric="cosine", index=Flat(store=Bits())),
    "cells of bits": lambda: kway.NeighborsClassifier(3, metric="cosine", index=Landmarks(store=Bits())),
    "shards": lambda: kway.NeighborsClassifier(3, index=Sharded(Flat(), 2)),
    "mapped": kway.MappedClassifier,
    "mixed columns": lambda: kway.MappedClassifier(map="mixtures"),
}


def _frozen() -> Any:
    rows = X.copy()
    rows.flags.writeable = False
    return rows


def _with_duplicates() -> Any:
    """CSR in which each number stands in two parts, columns in no order."""
    values = np.concatenate([X[:, ::-1] * 0.25, X * 0.75], axis=1)
    columns = np.tile(np.r_[np.arange(D)[::-1], np.arange(D)], N)
    return sp.csr_matrix((values.ravel(), columns, np.arange(0, N * 2 * D + 1, 2 * D)), shape=(N, D))


def _wide_indices() -> Any:
    csr = sp.csr_matrix(X)
    return sp.csr_matrix((csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)), shape=csr.shape)


def _stored_zeros() -> Any:
    csr = sp.csr_matrix(X)
    csr.data[::3] = 0
    return csr


SAME: dict[str, Callable[[], Any]] = {  # the plain array in other clothes
    "read-only": _frozen,
    "Fortran order": lambda: np.asfortranarray(X),
    "strided": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    "big-endian": lambda: X.astype(">f8"),
    "long double": lambda: X.astype(np.longdouble),
    "lists": X.tolist,
    "objects": lambda: X.astype(object),
    "frame": lambda: pd.DataFrame(X, columns=NAMES),
    "numbered frame": lambda: pd.DataFrame(X),
    "nullable frame": lambda: pd.DataFrame(X, columns=NAMES).convert_dtypes(),
    "two-level frame": lambda: pd.DataFrame(X, columns=pd.MultiIndex.from_product([["a"], NAMES])),
    "polars frame": lambda: pl.DataFrame(X, schema=NAMES),
}
SPARSE: dict[str, Callable[[], Any]] = {  # likewise, for models that take sparse rows
    "csr": lambda: sp.csr_matrix(X),
    "csr array": lambda: sp.csr_array(X),
    "csc": lambda: sp.csc_matrix(X),
    "coo": lambda: sp.coo_matrix(X),
    "lil": lambda: sp.lil_matrix(X),
    "wide indices": _wide_indices,
    "duplicates": _with_duplicates,
    "sparse frame": lambda: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X)),
}
ROWS: dict[str, Callable[[], Any]] = {
    **SAME,
    **SPARSE,
    "float16": lambda: X.astype(np.float16),
    "int8": lambda: X.astype(np.int8),
    "large unsigned": lambda: np.abs(X * 1e18).astype(np.uint64),
    "true and false": lambda: X > 0,
    "sparse truths": lambda: sp.csr_matrix(X > 0),
    "stored zeros": _stored_zeros,
    "decimals": lambda: np.array([[decimal.Decimal(str(v)) for v in row] for row in X]),
    "text": lambda: X.astype(str),
    "complex": lambda: X + 0j,
    "gaps": lambda: np.where(X > 3, np.nan, X),
    "sparse gaps": lambda: sp.csr_matrix(np.where(X > 3, np.nan, X)),
    "infinity": lambda: np.where(X > 3, np.inf, X),
    "masked": lambda: np.ma.masked_greater(X, 3),
    "nullable gaps": lambda: pd.DataFrame(X.astype(int), columns=NAMES).astype("Int64").mask(X > 3),
    "polars gaps": lambda: pl.DataFrame(X, schema=NAMES).with_columns(pl.when(pl.col("a") > 1).then(pl.col("a"))),
    "categories": lambda: pd.DataFrame(X.astype(int), columns=NAMES).astype("category"),
    "date column": lambda: pd.DataFrame({"a": pd.date_range("2020", periods=N), "b": X[:, 0]}),
    "text column": lambda: pl.DataFrame({"a": ["x", "y", "z"] * 20, "b": X[:, 0]}),
    "one name twice": lambda: pd.DataFrame(X, columns=list("aabbc")),
    "names of two kinds": lambda: pd.DataFrame(X, columns=["a", 1, "c", 2, "e"]),
    "lazy frame": lambda: pl.DataFrame(X, schema=NAMES).lazy(),
    "one dimension": lambda: X[:, 0],
    "three dimensions": lambda: X[:, :, None],
    "a number": lambda: np.array(3.0),
    "no columns": lambda: X[:, :0],
    "no rows": lambda: X[:0],
    "sparse, no columns": lambda: sp.csr_matrix((N, 0)),
    "nothing": lambda: None,
    "a word": lambda: "abc",
    "ragged": lambda: [[1, 2], [3]],
    "a table of columns": lambda: {"a": [1] * N},
    "dates": lambda: np.full((N, D), "2020-01-01", "M8[D]"),
    "times": lambda: np.full((N, D), 3, "m8[s]"),
    "records": lambda: np.zeros(N, [("a", "f8")]),
    "mappings": lambda: np.array([[{"a": 1}] * D] * N, dtype=object),
    "constant": lambda: np.ones((N, D)),
    "subnormal": lambda: X * 1e-310,
    "generator": lambda: (row for row in X),
}
TEXT = [f"c{i}" for i in Y]
KEPT: dict[str, Any] = {  # labels that come back as they are, from the file as well
    "numbers": Y,
    "negative": Y - 2,
    "large": Y * (2**62 - 1),
    "unsigned": Y.astype(np.uint64) + np.uint64(2**63),
    "floats": Y * 1.0,
    "half floats": Y.astype(np.float16),
    "int8": Y.astype(np.int8),
    "truths": Y > 0,
    "text": TEXT,
    "objects": np.array(TEXT, object),
    "variable text": np.array(TEXT, dtype=np.dtypes.StringDType()),
    "empty text": ["" if i == 0 else str(i) for i in Y],
    "lone surrogate": ["\ud800" if i == 0 else str(i) for i in Y],
    "NUL inside": ["a\0b" if i == 0 else "a" for i in Y],
    "two forms of é": ["é" if i == 0 else "e\u0301" for i in Y],
    "long text": ["x" * 100_000 if i == 0 else str(i) for i in Y],
    "Int64": pd.Series(Y.astype(np.int64) + 2**60, dtype="Int64"),
    "boolean": pd.Series(Y > 0).astype("boolean"),
    "categories": pd.Series(TEXT).astype("category"),
    "arrow text": pd.Series(TEXT, dtype="string[pyarrow]"),
    "shuffled index": pd.Series(Y, index=np.random.default_rng(2).permutation(N)),
    "polars": pl.Series(TEXT),
    "polars categories": pl.Series(TEXT, dtype=pl.Categorical),
    "arrow": pa.array(TEXT),
}
LABELS: dict[str, Any] = {
    **KEPT,
    "dates": np.datetime64("2020-01-01") + Y,
    "times": Y.astype("m8[s]"),
    "no date": np.where(Y == 0, np.datetime64("NaT"), np.datetime64("2020-01-01")),
    "days": [datetime.date(2020, 1, 1 + int(i)) for i in Y],
    "zoned": pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"] * 30).tz_localize("UTC")),
    "long doubles": Y.astype(np.longdouble),
    "floats beyond whole numbers": Y * 1e300,
    "fractions": Y + 0.5,
    "gaps": np.where(Y == 1, np.nan, Y),
    "text and None": [None if i == 0 else "a" for i in Y],
    "nullable gaps": pd.Series(["a", None, "b"] * 20, dtype="string"),
    "NUL behind": ["a\0" if i == 0 else "a" for i in Y],
    "beyond int64": [int(i) + 2**70 for i in Y],
    "bytes": [b"a" if i else b"b" for i in Y],
    "decimals": [decimal.Decimal(int(i)) for i in Y],
    "exact fractions": [Fraction(int(i)) for i in Y],
    "uuids": [uuid.UUID(int=int(i)) for i in Y],
    "complex": Y * 1j,
    "mixed": ["a" if i else 1 for i in Y],
    "masked": np.ma.masked_equal(Y, 1),
    "sparse": sp.csr_matrix(np.eye(K)[Y]),
    "a column": Y[:, None],
    "a row": Y[None],
    "too few": Y[:10],
    "none": [],
    "a number": 3,
    "a word": "abc",
    "nothing": None,
    "generator": (i for i in Y),
    "one class": np.zeros(N, int),
    "a class a row": np.arange(N),
    "distributions": np.eye(K)[Y],
    "no distributions": np.eye(K)[Y] * 2,
}


def saved(model: Any) -> Any:
    """The model out of its file."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "m.kway")
        return kway.load(Path(folder) / "m.kway", mmap=False)


def of_rows(name: str, kind: str, plain: np.ndarray) -> None:
    """Fit on rows of a kind; `plain` are the labels (N,) that the plain array is given."""
    rows = ROWS[kind]()
    model = ALL_MODELS[name]().fit(rows, Y)
    found = check(model, rows)
    if kind in SAME or kind in SPARSE:
        assert np.mean(found == plain) > 0.97, f"{np.mean(found == plain):.2f} answered as the plain array"
    if kind not in ("generator", "lazy frame"):
        np.testing.assert_array_equal(saved(model).predict(rows), found)


def of_labels(name: str, kind: str) -> None:
    """Fit on labels of a kind."""
    given = LABELS[kind]
    model = ALL_MODELS[name]().fit(X, given)
    found = check(model, X)
    assert 0 <= model.score(X, given) <= 1
    if kind in KEPT:
        known = set(np.asarray(given).tolist())
        assert set(model.classes_.tolist()) == known, f"{model.classes_} are not the labels given"
    again = saved(model)
    np.testing.assert_array_equal(again.predict(X), found)
    assert again.classes_.dtype == model.classes_.dtype


def end(attack: Callable[..., None], name: str, kind: str, *more: Any) -> str:
    """ "answered", "refused", or what is wrong."""
    try:
        attack(name, kind, *more)
    except KwayError as error:
        return f"refused, but usable: {error}" if kind in (SAME if more else KEPT) else "refused"
    except Exception as error:  # the point of the exercise
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "answered"


def ends(names: Any) -> Iterator[tuple[str, str]]:
    """(what was tried, how it ended), of every kind for every model."""
    for name in names:
        plain = ALL_MODELS[name]().fit(X, Y).predict(X)
        for kind in ROWS:
            yield f"{name}, rows: {kind}", end(of_rows, name, kind, plain)
        for kind in LABELS:
            yield f"{name}, labels: {kind}", end(of_labels, name, kind)


def run(names: Any) -> tuple[Counter[str], list[str]]:
    """Counts of ends, and the bad ones."""
    counts: Counter[str] = Counter()
    bad = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for what, found in ends(names):
            counts[found if found in ("answered", "refused") else "bad"] += 1
            if found not in ("answered", "refused"):
                bad.append(f"{what}: {found}")
    return counts, bad


if __name__ == "__main__":
    counted, wrong = run(sys.argv[1:] or ALL_MODELS)
    print(dict(counted), *wrong, sep="\n")
    sys.exit(bool(wrong))
