"""Rows of a folder, held by shards: sums, moments and products of all rows, and the fit they lead to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kway
from kway.errors import CombinationError, InputError
from kway.linear import from_files
from kway.linear.from_files import ClassTable, FilePart, folder_rows
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.registry import SOLVERS


def write_folder(folder, kind, seed=0, sizes=(3000, 500, 2500), d=6, K=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), d)).astype(np.float32)
    y = (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(len(X), K))).argmax(axis=1)
    folder.mkdir()
    names = np.array(["ant", "bee", "cat", "dog", "eel"])[:K]
    for i, rows in enumerate(np.split(np.arange(len(X)), np.cumsum(sizes)[:-1])):
        if kind == "parquet":
            columns = {f"x{j}": X[rows, j] for j in range(d)}
            pq.write_table(pa.table({"kind": names[y[rows]]} | columns), folder / f"part-{i}.parquet")
        else:
            np.save(folder / f"rows-{i}.npy", X[rows])
    if kind == "npy":
        np.save(folder / "labels.npy", names[y])
    return X, names[y]


def shards_of(folder, X, y, loss="softmax", ridge=1e-3, lasso=0.0):
    columns = tuple(f"x{j}" for j in range(X.shape[1]))
    files = sorted(map(str, folder.glob("*.parquet")))
    parts = [FilePart((file,), pq.read_metadata(file).num_rows, columns, "kind") for file in files]
    classes, codes = np.unique(y, return_inverse=True)
    weight = np.linspace(0.5, 2, len(classes))
    weight /= weight[codes].mean()
    form, penalty = LOSSES[loss].joint, Penalty(ridge, lasso)
    codes, own = codes.astype(np.int64), weight[codes].astype(X.dtype)
    whole = Objective(X, Targets(codes), len(classes), form, penalty, True, own)
    rows, targets, drawn = folder_rows(parts, ClassTable(classes, weight), X.shape[1], X.dtype)
    return Objective(rows, targets, len(classes), form, penalty, True, drawn), whole


def test_sums_over_shards_are_those_of_all_rows(tmp_path):
    X, y = write_folder(tmp_path / "big", "parquet")
    apart, whole = shards_of(tmp_path / "big", X, y)
    rng = np.random.default_rng(1)
    theta, V = rng.normal(size=(2, 4, 7)).astype(np.float32)
    assert apart.n == whole.n
    assert len(apart.X) < whole.n / 3
    assert apart.value(theta) == pytest.approx(whole.value(theta), rel=1e-5)
    np.testing.assert_allclose(apart.value_gradient(theta)[1], whole.value_gradient(theta)[1], atol=1e-5)
    np.testing.assert_allclose(np.triu(apart.gram(np.dtype(float))), np.triu(whole.gram(np.dtype(float))), rtol=1e-5)
    np.testing.assert_allclose(apart.mean_squares(), whole.mean_squares(), rtol=1e-4)
    ours, theirs = apart.hessian_at(theta), whole.hessian_at(theta)
    np.testing.assert_allclose(ours.product(V), theirs.product(V), atol=1e-5)


@pytest.mark.parametrize(("solver", "lasso"), [("lbfgs", 0.0), ("proximal", 2e-3)])
def test_the_optimum_of_all_rows(tmp_path, solver, lasso):
    X, y = write_folder(tmp_path / "big", "parquet", seed=2)
    apart, whole = shards_of(tmp_path / "big", X, y, lasso=lasso)
    ours = SOLVERS[solver].solve(apart, apart.zeros(), Control(tol=1e-5))
    theirs = SOLVERS[solver].solve(whole, whole.zeros(), Control(tol=1e-5))
    assert ours.converged
    assert whole.value(ours.theta) == pytest.approx(whole.value(theirs.theta), rel=2e-5)


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_without_a_cluster_the_folder_is_read_here(tmp_path, kind):
    X, y = write_folder(tmp_path / "big", kind, sizes=(300, 200))
    target = "kind" if kind == "parquet" else None
    model = kway.SoftmaxClassifier().fit_folder(tmp_path / "big", target)
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    np.testing.assert_array_equal(model.predict(X), kway.SoftmaxClassifier().fit(X, y).predict(X))


def test_files_are_cut_into_runs_of_about_as_many_rows():
    assert from_files.runs_of_files([10], 3) == [[0]]
    assert from_files.runs_of_files([1] * 7, 3) == [[0, 1], [2, 3, 4], [5, 6]]
    assert from_files.runs_of_files([100, 1, 1, 1, 100], 2) == [[0, 1], [2, 3, 4]]


def test_what_a_folder_cannot_do_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(from_files, "current", lambda: object())
    with pytest.raises(CombinationError, match="smooth loss"):
        kway.SVMClassifier().fit_folder(tmp_path, "y")
    with pytest.raises(CombinationError, match="early_stopping"):
        kway.SoftmaxClassifier(early_stopping=True).fit_folder(tmp_path, "y")
    with pytest.raises(InputError, match="neither parquet nor"):
        kway.SoftmaxClassifier().fit_folder(tmp_path, "y")
    write_folder(tmp_path / "big", "parquet", sizes=(5,))
    with pytest.raises(InputError, match="did you mean 'kind'"):
        kway.SoftmaxClassifier().fit_folder(tmp_path / "big", "kin")
