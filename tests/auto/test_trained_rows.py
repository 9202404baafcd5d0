"""Hashes of training rows: every training row is recognized, and no other."""

import json

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from kway.auto.trained_rows import MAX_HASHES, TrainedRows, count_known, rows_note


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    words = rng.choice(["red", "green", "blue"], n).tolist()
    words[0] = None
    return pa.table({
        "x": rng.normal(size=n), "n": rng.integers(0, 99, n), "word": words, "yes": rng.random(n) < 0.5,
        "day": pa.array(np.datetime64("2024-01-01") + rng.integers(0, 300, n)),
    })  # fmt: skip


def columns(X):
    return pa.table({f"c{j}": X[:, j] for j in range(X.shape[1])})


def vector_column(X):
    return pa.table({"v": X.tolist()})


def known(note, rows, y):
    trained = TrainedRows(json.loads(json.dumps(note)))  # as in a model file
    trained.add(rows, y)
    return trained.count(len(y))


def test_rows_of_a_table_are_recognized_in_any_order_and_type():
    rows, y = table(500), np.arange(500) % 3
    note = rows_note(rows, y)
    some = np.random.default_rng(1).permutation(500)[:100]
    assert known(note, rows.take(some), y[some]) == 100
    assert known(note, table(300, seed=5), y[:300]) == 0
    mixed = pa.concat_tables([rows.slice(0, 40), table(60, seed=9)])
    assert known(note, mixed, y[np.r_[:40, :60]]) == 40
    other = rows.set_column(1, "n", rows.column("n").cast("float64")).select(["day", "n", "word", "yes", "x"])
    assert known(note, other, y.astype(str)) == 500  # the label as a word, as a csv has it
    assert known(note, rows, (y + 1) % 3) == 0  # other labels
    assert known(note, rows.drop_columns("x"), y) == 0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_of_a_matrix(form):
    X = np.random.default_rng(0).poisson(0.3, size=(300, 40)).astype(np.float32)
    y = np.repeat(["a", "b"], 150)
    note = rows_note(form(X), y)
    assert known(note, form(X[::3].astype(np.float64)), y[::3]) == 100
    assert known(note, form(X[:, ::-1].copy()), y) < 3


def test_vectors_are_values_too():
    vectors = np.random.default_rng(0).normal(size=(300, 4))
    rows, y = pa.table({"v": vectors.tolist()}), np.arange(300) % 3
    note = rows_note(rows.slice(0, 200), y[:200])
    assert known(note, rows, y) == 200
    assert known(note, rows.slice(200), y[200:]) == 0
    assert rows_note(pa.table({"v": [{"a": 1}, {"a": 2}]}), y[:2]) is None


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, columns, vector_column])
def test_test_rows_among_the_training_rows_are_counted(form):
    X = np.random.default_rng(0).poisson(1.0, size=(300, 12)).astype(float)
    X[:, 0] = np.arange(300)
    assert count_known(form(X[150:250]), form(X[:200])) == 50
    assert count_known(form(X[:10, ::-1].copy()), form(X[:200])) == 0


def test_the_note_is_small_and_the_count_of_many_rows_an_estimate():
    n = 3 * MAX_HASHES
    X, y = np.random.default_rng(0).normal(size=(n, 3)), np.zeros(n, int)
    note = rows_note(X, y)
    assert len(json.dumps(note)) < 7 * MAX_HASHES
    assert len(json.dumps(rows_note(X[:1000], y[:1000]))) < 8 * 1000
    mixed = np.concatenate([X[: n // 2], X[n // 2 :] + 1])
    assert known(note, mixed, y) == pytest.approx(n / 2, rel=0.03)
    assert known(note, X + 1, y) == 0


def test_other_notes_are_ignored():
    for note in (None, {}, {"hashes": "?", "columns": None, "all": True}, {"hashes": 3}):
        assert known(note, np.zeros((3, 2)), np.zeros(3)) == 0
