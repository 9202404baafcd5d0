"""Leaks are found in drawn tables by their values, and in no clean table."""

import time

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification
from tests.helpers import leaky

from kway.auto.leaks import find_leaks
from kway.auto.train_test import read_train_test
from kway.tables.features.features import Features
from kway.tables.read_options import ReadOptions
from kway.tables.reading import RowsInMemory


def leaks(rows, y=None, target=None, budget=600.0, **reading):
    """The leaks of a table of columns by name, or of a matrix with labels y."""
    if isinstance(rows, dict):
        rows = pa.table({name: pa.array(np.asarray(values).tolist()) for name, values in rows.items()})
    data = read_train_test(RowsInMemory(rows, y), ReadOptions(target=target, **reading))
    features = Features(image=data.image, written={w.column: w.how for w in data.written})
    return find_leaks(data, features, features.fit_transform(data.rows), budget)


def warnings(*args, **more):
    return [(leak.kind, *leak.columns) for leak in leaks(*args, **more) if leak.warns]


LEAKY = {
    "time": (leaky.sensor, "state", [("time", "timestamp")]),
    "groups": (leaky.patients, "dx", [("groups", "who")]),
    "copies": (leaky.copies, "y", [("copies",)]),
    "column": (leaky.target_column, "churn", [("column", "code")]),
}


@pytest.mark.parametrize("name", LEAKY)
@pytest.mark.parametrize("seed", [1, 2])
def test_names_of_columns_do_not_matter(name, seed):
    make, target, want = LEAKY[name]
    columns = make(seed=seed)
    renamed = {column if column == target else f"c{j}": values for j, (column, values) in enumerate(columns.items())}
    place = {column: f"c{j}" for j, column in enumerate(columns)}
    assert warnings(renamed, target=target) == [(kind, *(place[c] for c in found)) for kind, *found in want]


def test_numbers_may_name_groups_and_times():
    columns = leaky.patients()
    columns["who"] = [int(name[1:]) for name in columns["who"]]
    assert warnings(columns, target="dx") == [("groups", "who")]
    columns = leaky.sensor()
    columns["timestamp"] = (1.7e9 + 600 * np.arange(len(columns["state"]))).astype(int)
    order = np.random.default_rng(0).permutation(len(columns["state"]))  # Unix times, in any order of the rows
    columns = {name: np.asarray(values)[order] for name, values in columns.items()}
    assert warnings(columns, target="state") == [("time", "timestamp")]


def test_matrices_and_sparse_rows():
    columns = leaky.copies()
    X = np.stack([columns[f"x{j}"] for j in range(6)], axis=1)
    assert warnings(X, columns["y"]) == [("copies",)]
    rng = np.random.default_rng(0)
    words = sp.random_array((200, 3000), density=0.01, rng=rng, format="csr")[np.repeat(np.arange(200), 3)]
    assert warnings(words, np.repeat(rng.integers(0, 2, 200), 3)) == [("copies",)]
    assert warnings(sp.random_array((400, 3000), density=0.01, rng=rng, format="csr"), rng.integers(0, 2, 400)) == []


def sorted_by_label(rng):
    """A row number next to rows in the order of their labels, as in many copies of iris."""
    X, y = load_iris(return_X_y=True)
    return {"row": np.arange(len(y)), **{f"x{j}": X[:, j] for j in range(4)}, "y": y}


def few_values(rng):
    """Few possible rows, which occur many times each."""
    X = rng.integers(0, 3, size=(600, 3))
    return {**{f"x{j}": X[:, j] for j in range(3)}, "y": (X.sum(axis=1) + rng.integers(0, 3, 600) > 4).astype(int)}


def whole_numbers(rng):
    """Ages and amounts in whole numbers, with labels that depend on them, and dates that mean nothing."""
    age, amount = rng.integers(18, 90, 800), rng.integers(0, 500, 800)
    day = np.datetime64("2024-01-01") + rng.integers(0, 300, 800)
    return {
        "age": age,
        "amount": amount,
        "day": day,
        "y": (age / 90 + amount / 500 + rng.normal(size=800) > 1).astype(int),
    }


def shops(rng):
    """A category of 40 values with effects of their own, each in two per cent of the rows."""
    shop = rng.integers(0, 40, 2000)
    x = rng.normal(size=2000)
    return {"shop": [f"shop {s}" for s in shop], "x": x, "y": (x + 0.2 * rng.normal(size=40)[shop] > 0).astype(int)}


@pytest.mark.parametrize("make", [sorted_by_label, few_values, whole_numbers, shops])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clean_tables_raise_no_warning(make, seed):
    assert warnings(make(np.random.default_rng(seed)), target="y") == []


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_sets_of_scikit_learn_raise_no_warning(load):
    assert warnings(*load(return_X_y=True)) == []


@pytest.mark.parametrize("seed", range(6))
def test_drawn_classes_raise_no_warning(seed):
    X, y = make_classification(700, 12, n_informative=5, n_classes=3, flip_y=0.1, random_state=seed)
    assert warnings(X, y) == []


def test_groups_and_order_of_the_user_end_the_search():
    assert warnings(leaky.patients(), target="dx", group="who") == []
    assert warnings(leaky.sensor(), target="state", order="timestamp") == []


def test_a_short_budget_leaves_the_probe_out():
    assert leaks(leaky.patients(), target="dx", budget=1e-6) == ()


def test_large_data_takes_no_longer_than_a_sample():
    columns = leaky.copies(40_000)
    began = time.process_time()
    assert warnings(columns, target="y") == [("copies",)]
    assert time.process_time() - began < 30
