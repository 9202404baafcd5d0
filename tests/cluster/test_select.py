"""Families and folds over a real cluster of three nodes: the leaderboard and the winner of one machine."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.auto.race import rounds
from kway.cli import run as cli
from kway.errors import InputError
from kway.report import page

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")


def problem(n=300, d=12, K=4, sparse=False, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(K, d))
    y = rng.integers(K, size=n)
    X = (centres[y] + 1.3 * rng.normal(size=(n, d))) * (rng.random((n, d)) < 0.4 if sparse else 1)
    return (sp.csr_matrix(X) if sparse else X), np.array(["a", "b", "c", "d"])[y]


def same(here, there):
    """Line by line, but for seconds."""
    assert [line.model for line in there.rows] == [line.model for line in here.rows]
    for one, other in zip(here.rows, there.rows):
        assert (other.setting, other.note, other.n_folds) == (one.setting, one.note, one.n_folds)
        np.testing.assert_array_equal(other.fold_accuracy, one.fold_accuracy)
        np.testing.assert_allclose(other.fold_scores, one.fold_scores, rtol=1e-6)
        np.testing.assert_allclose(np.float64(other.log_loss or 0), np.float64(one.log_loss or 0), rtol=1e-6)
    assert (there.skipped, there.problems) == (here.skipped, here.problems)
    np.testing.assert_array_equal(there.folds, here.folds)


@pytest.fixture
def calls(monkeypatch):
    """The calls that went to the cluster: family and first held-out row."""
    made = []
    begun = rounds.begin
    monkeypatch.setattr(rounds, "begin", lambda f, *a: made.append((a[0].name, int(a[2].held_out[0]))) or begun(f, *a))
    return made


def test_the_leaderboard_of_one_machine(cluster, calls):
    X, y = problem()
    here = kway.compare(X, y)
    assert calls == []
    with cluster():
        there = kway.compare(X, y)
    same(here, there)
    assert {name for name, _ in calls} >= {"softmax", "neighbors", "centroid", "neighbors-nca"}
    first = {int(np.flatnonzero(there.folds == fold)[0]) for fold in range(5)}
    assert {row for name, row in calls if name == there.best.model} == first  # folds apart
    assert there.best.setting == here.best.setting


def test_other_rows_measures_and_wishes(cluster, monkeypatch):
    X, y = problem(n=240, sparse=True, seed=1)
    wishes = {"repeats": 2, "metric": "log-loss", "class_weight": "balanced", "seed": 3, "folds": 3}
    names = ["softmax", "neighbors-cosine", "centroid", "svm"]
    here = kway.compare(X, y, names, **wishes)
    with cluster():
        same(here, kway.compare(X, y, names, **wishes))
        with pytest.raises(InputError, match="learns weights of dense columns"):
            kway.compare(X, y, ["neighbors-nca"])
        line = np.random.default_rng(2).normal(size=(400, 40))
        side = (line[:, 0] > 0).astype(int)  # which no neighbor sees
        there = kway.compare(line, side, ["softmax", "neighbors", "neighbors-cosine"])
    assert "gives no probabilities" in here.problems["svm"]
    here = kway.compare(line, side, ["softmax", "neighbors", "neighbors-cosine"])
    assert [line.model for line in there.rows] == [line.model for line in here.rows]
    assert there.best.setting == here.best.setting


def test_the_command_line(nodes, cluster, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "write_page", lambda path, *_: open(path, "w").close())  # it has tests of its own
    X, y = problem(n=300, d=5)
    lines = [f"{','.join(f'{v:.4f}' for v in row)},{label}" for row, label in zip(X, y)]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,c,d,e,label", *lines]))

    def answer(*arguments):
        capfd.readouterr()
        assert cli([*arguments, "d.csv", "-t", "label", "--also", "none", "--json"]) == 0
        return json.loads(capfd.readouterr().out)

    def kept(found):
        return found["best"], [(m["model"], m["setting"], m["fold_accuracy"]) for m in found["models"]]

    with cluster():
        there = ("--cluster", "--address", nodes.address)
        few = ("-m", "softmax,centroid")
        assert kept(answer("compare", *few, *there)) == kept(answer("compare", *few))
        here, there = answer("fit", *few), answer("fit", *few, *there)
    assert kept(there) == kept(here)
    assert there["test"] == here["test"]
    assert there["temperature"] == pytest.approx(here["temperature"])
