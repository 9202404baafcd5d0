"""Linear models of a folder that the nodes of a real cluster read: the optimum of one machine."""

from __future__ import annotations

import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kway
from kway.linear import from_files

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")
TOL = 1e-5


def write_folder(folder, kind, n=8000, d=8, K=4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(n), 4)):
        if kind == "parquet":
            table = pa.table({f"x{j}": X[rows, j] for j in range(d)} | {"kind": [f"class {c}" for c in y[rows]]})
            pq.write_table(table, folder / f"part-{i}.parquet")
        else:
            np.save(folder / f"rows-{i}.npy", X[rows])
    if kind == "npy":
        np.save(folder / "labels.npy", y)
    return X, y


@pytest.mark.parametrize(("kind", "penalty"), [("parquet", "l2"), ("npy", "l1")])
def test_the_optimum_of_one_machine_whoever_dies(cluster, tmp_path, monkeypatch, kind, penalty):
    X, y = write_folder(tmp_path / "big", kind)
    model = kway.SoftmaxClassifier(penalty=penalty, tol=TOL, class_weight="balanced")
    here = kway.SoftmaxClassifier(**model.get_params()).fit(X, y)
    asked, killed = [], []
    made = from_files.make_shards

    def watched(makers):
        shards = made(makers)
        ask = shards.ask

        def asking(method, *arguments):
            asked.append(method)
            if asked.count("sums") == 4 and not killed:
                killed.append(ray.get(shards.hosts[1][0].process.remote()))
                os.kill(killed[0], signal.SIGKILL)
            return ask(method, *arguments)

        shards.ask = asking
        return shards

    monkeypatch.setattr(from_files, "make_shards", watched)
    with cluster():
        model.fit_folder(tmp_path / "big", "kind" if kind == "parquet" else None)
    assert killed
    assert model.why_ == "8,000 rows on 3 nodes of a cluster"
    assert model.objective_ == pytest.approx(here.objective_, rel=2 * TOL)
    codes = np.searchsorted(model.classes_, model.predict(X))
    assert (codes == here.predict(X)).mean() > 0.995
