"""`kway fit` on DATA larger than memory: compared on a part of the rows, the best fitted on all, in constant memory."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import kway
from kway import threads
from kway.auto import larger_than_memory

NAMES = np.array(["ant", "bee", "cat", "dog"])
D = 12


@pytest.fixture(autouse=True)
def scarce(monkeypatch):
    """Memory for a fit, but for a job on some thousand rows only; these are read some hundred at a time."""
    monkeypatch.setenv("KWAY_MEMORY", "200MB")
    monkeypatch.setattr(larger_than_memory, "JOB_BYTES", 1250.0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 500 * 8 * D)
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)


def drawn(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    return (rng.normal(size=(n, D)) + 3 * np.eye(4, D)[y]).astype(np.float32), NAMES[y]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """12,000 rows in .npy files, of a class `emu` too, whose few rows may not be among those that are read."""
    home = tmp_path_factory.mktemp("big")
    X, y = drawn(12_000)
    y = y.astype("U3")
    y[-20:], X[-20:] = "emu", X[-20:] - 8
    for i in range(0, 12_000, 3000):
        np.save(home / f"x{i:05d}.npy", X[i : i + 3000])
    np.save(home / "y.npy", y)
    return home


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("svm-one-vs-all", "neighbors-manhattan")]


@pytest.mark.parametrize("name", ["softmax", "centroid", "neighbors", "neighbors-nca", *SLOW])
def test_the_best_is_fitted_on_all_rows(name, folder, answer, tmp_path):
    found = answer("fit", folder, "--model", name)
    about = found["data"]
    assert about["train_rows"] + about["test_rows"] < 6000
    assert 12_000 - about["test_rows"] - 0.2 * about["train_rows"] <= about["fitted_rows"] < 12_000
    assert any("were compared on" in note for note in found["notes"])
    assert any(f"fitted on {about['fitted_rows']:,} of 12,000 rows" in note for note in found["notes"])
    model = kway.load(tmp_path / "model.kway")
    assert "emu" in model.classes_
    X, y = drawn(2000, seed=1)
    assert np.mean(model.predict(X) == y) > 0.85
    assert (model.predict(X[:20] - 8) == "emu").mean() > 0.5
    np.testing.assert_allclose(model.predict_proba(X[:50]).sum(axis=1), 1, rtol=1e-5)


def test_what_cannot_learn_by_the_piece_says_so(folder, cli):
    code, out, err = cli("fit", folder, "--model", "perceptron")
    assert code == 0, err
    assert "perceptron was fitted on the" in out.replace("\n", " ")
    code, out, err = cli("fit", folder, "--model", "centroid", "--sets", 0.9, "--force")
    assert code == 0, err
    assert "guarantees need rows in memory" in out.replace("\n", " ")


def test_weights_are_kept_for_the_rows_in_memory(cli, answer, tmp_path):
    X, y = drawn(8000)
    table = {f"a{j}": X[:, j] for j in range(D)} | {"kind": y, "w": np.arange(8000) % 3}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    found = answer("fit", tmp_path / "t.parquet", "--target", "kind", "--model", "centroid", "--weight", "w")
    assert found["data"]["train_rows"] == found["data"]["fitted_rows"]
    notes = " ".join(found["notes"])
    assert "weights need rows in memory" in notes
    assert "rows of weight 0 were left out" in notes


@pytest.mark.parametrize("kind", ["group", "order"])
def test_rows_that_go_with_the_test_are_not_learned_from(kind, answer, tmp_path, monkeypatch):
    n = 8000
    X, y = drawn(n)
    beside = np.arange(n) % 40 if kind == "group" else np.random.default_rng(2).permutation(n)
    table = {f"a{j}": X[:, j] for j in range(D)} | {"kind": y, "beside": beside}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    learned = []
    fit = kway.CentroidClassifier.fit_blocks
    monkeypatch.setattr(
        kway.CentroidClassifier, "fit_blocks", lambda self, each: fit(self, (learned.append(b) or b for b in each))
    )
    found = answer("fit", tmp_path / "t.parquet", "--target", "kind", "--model", "centroid", f"--{kind}", "beside")
    rows = sum(len(y) for _, y in learned)
    assert rows == found["data"]["fitted_rows"]
    # a fifth of the groups, or of the time, tests, and of what is left another fifth sets the temperature
    assert abs(rows - 0.64 * n) < 0.1 * n


def test_memory_does_not_grow_with_the_rows(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 1)  # what two hold at the same time is up to chance
    peaks = {}
    for n in (10_000, 40_000):
        home = tmp_path / str(n)
        home.mkdir()
        X, y = drawn(n)
        np.save(home / "x.npy", X)
        np.save(home / "y.npy", np.unique(y, return_inverse=True)[1].astype(np.uint8))
        del X, y
        if not peaks:
            cli("fit", home, "--model", "softmax")  # kernels and imports
        tracemalloc.start()
        code, _, err = cli("fit", home, "--model", "softmax", "--force")
        peaks[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert code == 0, err
    # 30,000 rows more; of each some numbers of 8 bytes are kept: its place, its code, its place in the test
    assert peaks[40_000] - peaks[10_000] < 0.6 * 30_000 * D * 4, peaks


WORDS = {
    "ant": ["hill", "march", "worker", "tunnel", "queen"],
    "bee": ["honey", "hive", "flower", "sting", "wing"],
    "cat": ["purr", "whisker", "mouse", "sofa", "claw"],
}


def written(n, seed=0):
    """Sentences, each with one word that its label uses and others that all use."""
    rng = np.random.default_rng(seed)
    y = rng.choice(list(WORDS), n)
    common = np.array(["the", "of", "today", "where", "small", "under", "again", "many"])
    said = [" ".join([*rng.choice(common, 5), rng.choice(WORDS[label]), *rng.choice(common, 4)]) for label in y]
    return pa.table({"said": said, "kind": y})


def sentences(home, kind):
    """A folder of 9,000 sentences in three files."""
    home.mkdir()
    table = written(9000)
    for i in range(3):
        part = table.slice(3000 * i, 3000)
        if kind == "parquet":
            pq.write_table(part, home / f"part{i}.parquet")
        else:
            pa_csv.write_csv(part, home / f"part{i}.csv")
    return home


SLOW = [pytest.param(name, "csv", marks=pytest.mark.slow) for name in ("svm-one-vs-all", "centroid")]


@pytest.mark.parametrize(("name", "kind"), [("softmax", "csv"), ("naive-bayes", "parquet"), *SLOW])
def test_texts_are_learned_from_by_the_piece(name, kind, answer, tmp_path, monkeypatch):
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 40_000)
    monkeypatch.setattr(larger_than_memory, "JOB_BYTES", 50.0)
    found = answer("fit", sentences(tmp_path / "big", kind), "--target", "kind", "--model", name)
    about = found["data"]
    assert about["train_rows"] + about["test_rows"] < 5000
    assert any(f"fitted on {about['fitted_rows']:,} of 9,000 rows" in note for note in found["notes"]), found["notes"]
    assert about["fitted_rows"] > 6500
    model = kway.load(tmp_path / "model.kway")
    fresh = written(300, seed=1)
    assert np.mean(model.predict(fresh.select(["said"])) == fresh["kind"].to_numpy()) > 0.98
