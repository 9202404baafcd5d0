"""Confident learning against its definition in plain loops, and on drawn rows with labels that were changed."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import kway
from kway.auto.fit_options import FitOptions
from kway.auto.wrong_labels import close_pairs, inspect_by, inspect_rows, nearest_rows, rank_labels, shared_rows
from kway.errors import InputError
from kway.tables.read_options import ReadOptions
from kway.tables.reading import RowsInMemory


def blobs(n=400, changed=16, seed=0):
    """Three classes that are well apart, with labels of which some are changed; also which ones."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 4))
    X[np.arange(n), y] += 5
    wrong = rng.choice(n, changed, replace=False)
    y[wrong] = (y[wrong] + rng.integers(1, 3, changed)) % 3
    return X, np.array(["ant", "bee", "cat"])[y], set(wrong.tolist())


def slow_ranking(p, codes):
    """The definition in the module's docstring, row by row."""
    means = {k: np.mean([p[i, k] for i in range(len(p)) if codes[i] == k]) for k in set(codes.tolist())}
    wrong = []
    for i, row in enumerate(p):
        sure = [k for k in means if row[k] >= means[k]]
        if sure and max(sure, key=lambda k: row[k]) != codes[i]:
            wrong.append(i)
    return wrong


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_the_definition(seed):
    rng = np.random.default_rng(seed)
    n, K = int(rng.integers(4, 30)), int(rng.integers(2, 5))
    p, codes = rng.dirichlet(np.full(K, 0.4), n), rng.integers(0, K, n)
    found = rank_labels(p, codes)
    assert sorted(found.rows[found.wrong].tolist()) == slow_ranking(p, codes)
    assert sorted(found.rows.tolist()) == list(range(n))
    assert (np.diff(found.p_label) >= 0).all()
    assert (found.suggested != found.label).all()
    np.testing.assert_array_equal(found.p_suggested, p[found.rows, found.suggested])


@pytest.mark.parametrize("options", [{"models": ["softmax"], "alpha": 1e-2}, {"models": ["centroid", "neighbors"]}])
def test_changed_labels_are_found(options):
    X, y, wrong = blobs()
    found = inspect_rows(RowsInMemory(X, y), ReadOptions(), FitOptions(**options), max_rows=16)
    assert found.wrong.judged == 400
    assert len(wrong & set(found.rows.tolist())) >= 15
    sure = set(found.rows[found.wrong.suspects.wrong].tolist())
    assert len(sure) >= 10
    assert len(sure - wrong) <= 1
    first = found.records()[0]
    assert first["label"] == y[first["row"]]
    assert first["neighbor_labels"].count(first["suggested"]) >= 4
    assert "are suspicious" in str(found)


def test_a_model_judges_other_rows():
    X, y, _ = blobs(changed=0)
    other, labels, wrong = blobs(seed=1)
    model = kway.SoftmaxClassifier(alpha=1e-2).fit(X, y)
    found = inspect_by(model, other, labels)
    assert len(wrong & set(found.rows.tolist())) >= 14
    labels = labels.astype(object)
    labels[7] = "dog"
    found = inspect_by(model, other, labels, max_rows=30)
    assert len(found.rows) == 30
    assert 7 not in found.rows
    assert "not judged: 1 row whose label is not a class of the model" in found.notes[0]
    with pytest.raises(InputError, match="no label of the rows is a class"):
        inspect_by(model, other, np.repeat(["x", "y"], 200))
    with pytest.raises(InputError, match="gives no probabilities"):
        inspect_by(kway.PerceptronClassifier().fit(X, y), other, labels)


def test_a_class_of_one_row_is_not_judged():
    X, y, _ = blobs(changed=0)
    y = y.astype(object)
    y[5] = "single"
    found = inspect_rows(RowsInMemory(X, y), ReadOptions(), FitOptions(models=["softmax"], alpha=1e-2))
    assert found.wrong.judged == 399
    assert 5 not in found.rows
    assert any("1 of 400 rows were not judged" in note for note in found.notes)


def test_rows_that_no_fold_held_out_have_their_own_reason():
    X, y, _ = blobs(changed=0)
    options = FitOptions(models=["softmax"], alpha=1e-2)
    data = RowsInMemory(pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "day": np.arange(400), "kind": y}))
    found = inspect_rows(data, ReadOptions(target="kind", order="day"), options)
    assert 0 < found.wrong.judged < 400
    note = f"{400 - found.wrong.judged} of 400 rows were not judged, because the comparison held them out in no fold"
    assert note in found.notes
    assert not any("no other rows" in note for note in found.notes)


def with_empty_cells(n=300):
    """A table in which trees win, with 8% empty cells, and its labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = np.array(["a", "b"])[(X[:, 0] * X[:, 1] > 0).astype(int)]
    X[rng.random(X.shape) < 0.08] = np.nan
    return pa.table({f"x{j}": pa.array(X[:, j], from_pandas=True) for j in range(4)}), X, y


def test_empty_cells_when_trees_win():
    table, X, y = with_empty_cells()
    models = ["naive-bayes", "extra-trees"]
    found = kway.inspect(table, y, models=models)
    assert found.model == "extra-trees"
    assert np.isfinite(found.wrong.distances).all()
    fitted = kway.fit(table, y, models=models, budget=60)
    assert fitted.leaderboard.best.model == "extra-trees"
    assert fitted.result.wrong_labels is not None
    for model, rows in (fitted, table), (kway.TreesClassifier(n_trees=5).fit(X, y), X):
        assert kway.inspect(rows, np.roll(y, 1), by=model, rows=5).wrong.near.shape == (5, 5)


def test_ids_of_a_table_in_memory():
    X, y, _ = blobs()
    table = {"name": [f"r{i}" for i in range(len(y))], "a": X[:, 0], "b": X[:, 1], "y": y}
    found = kway.inspect(table, "y", id="name", models=["softmax"], alpha=1e-2, rows=5)
    assert [each["id"] for each in found.records()[:5]] == [f"r{row}" for row in found.rows]


def test_nearest_rows_are_those_of_brute_force():
    X = np.random.default_rng(0).normal(size=(60, 3))
    away = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.fill_diagonal(away, np.inf)
    some = np.array([3, 40, 59])
    distances, near = nearest_rows(X, some, 4)
    np.testing.assert_array_equal(near, np.argsort(away, axis=1)[some, :4])
    np.testing.assert_allclose(distances, np.sort(away, axis=1)[some, :4])


def test_nearly_equal_rows():
    """Rows 1 and 2 equal row 0 up to rounding; nine equal rows give pairs, too."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    X[1], X[2] = X[0], X[0] + 1e-9
    distances, near = nearest_rows(X, np.arange(100))
    assert close_pairs(X, near, distances).tolist() == [[0, 1], [0, 2], [1, 2]]
    assert shared_rows(X, np.stack([X[50] + 1e-9, X[3] + 3.0])).tolist() == [[50, 0]]
    X[10:19] = X[9]
    distances, near = nearest_rows(X, np.arange(100))
    paired = close_pairs(X, near, distances)
    assert set(range(9, 19)) <= set(paired.ravel().tolist())


@pytest.mark.parametrize("unit", [1.0, 1e-8, 1e8])
def test_nearly_equal_rows_in_any_unit_and_beside_a_huge_value(unit):
    X = np.random.default_rng(0).normal(size=(300, 3))
    X[1] = X[0] + 1e-9
    X[7, 2] = 1e9
    distances, near = nearest_rows(X * unit, np.arange(300))
    assert close_pairs(X * unit, near, distances).tolist() == [[0, 1]]
    assert shared_rows(X * unit, np.stack([X[50], X[3] + 3.0]) * unit).tolist() == [[50, 0]]
    sparse = sp.csr_matrix(X * unit)
    assert close_pairs(sparse, *nearest_rows(sparse, np.arange(300))[::-1]).tolist() == [[0, 1]]


def test_the_job_judges_its_training_rows():
    X, y, _ = blobs()
    for options in ({"models": ["softmax"], "alpha": 1e-2}, {"models": ["centroid", "naive-bayes", "softmax"]}):
        result = kway.fit(X, y, **options).result
        assert result.wrong_labels.judged == result.data.n == 320
        suspects = result.wrong_labels.suspects
        assert 8 <= len(suspects.rows) <= 20
        given = result.data.labels.codes[suspects.rows]
        np.testing.assert_array_equal(suspects.label, given)
