"""Families that cannot win are found out by little work, and only where nobody asked for them."""

import numpy as np
import pytest

import kway
from kway.auto.race import rounds
from kway.auto.race.clock import Clock
from kway.auto.race.families import FAMILIES
from kway.auto.race.scoring import FoldedRows


def blobs(n_classes: int, places: int, rows: int = 20, seed: int = 0):
    """Each class in so many places of the plane: with one place a line can tell classes, with more only neighbours."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * rng.permutation(n_classes * places).reshape(places, n_classes) / (n_classes * places)
    y = np.tile(np.arange(n_classes), rows)
    where = angle[rng.integers(0, places, len(y)), y]
    X = 2 * np.column_stack([np.cos(where), np.sin(where)]) + 0.004 * rng.standard_normal((len(y), 2))
    return X.astype(np.float32), y


def folded(X, y) -> FoldedRows:
    return FoldedRows(X, y, (np.arange(len(y)) // (y.max() + 1)) % 5, {})


FEW = {name: FAMILIES[name] for name in ("softmax", "neighbors")}


def test_a_preliminary_round_on_a_few_classes_leaves_out_what_is_far_behind(monkeypatch):
    monkeypatch.setattr(rounds, "SLOW_PASS", 0.0)
    monkeypatch.setattr(rounds, "HEAVY", 1e-6)
    found = rounds.lost_preliminary(folded(*blobs(100, 4)), FEW, Clock())
    assert list(found) == ["softmax"]
    assert found["softmax"].startswith("on 50 of the 100 classes it has 0.")
    assert "and neighbors" in found["softmax"]


def test_no_preliminary_round_if_passes_are_quick_or_no_other_family_runs(monkeypatch):
    data = folded(*blobs(100, 4))
    assert rounds.lost_preliminary(data, FEW, Clock()) == {}
    monkeypatch.setattr(rounds, "SLOW_PASS", 0.0)
    assert rounds.lost_preliminary(data, {"softmax": FEW["softmax"]}, Clock()) == {}
    assert rounds.lost_preliminary(folded(*blobs(50, 4)), FEW, Clock()) == {}  # all classes would be the race itself


def test_a_preliminary_round_keeps_what_is_as_good(monkeypatch):
    monkeypatch.setattr(rounds, "SLOW_PASS", 0.0)
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(60), 15)
    X = (3 * rng.standard_normal((60, 30))[y] + rng.standard_normal((len(y), 30))).astype(np.float32)
    assert rounds.lost_preliminary(folded(X, y), FEW, Clock()) == {}


def test_out_of_the_leaders_sight_a_path_ends_and_what_is_alike_is_not_run():
    X, y = blobs(8, 4, rows=40)
    found = kway.compare(X, y)
    line = next(line for line in found.standings if line.model == "softmax")
    assert line.stopped
    assert line.note.endswith("with 3 of 11 settings")
    assert {"logistic", "least-squares", "svm-one-vs-all", "perceptron"} <= set(found.idle)
    assert "softmax, which is alike, has 0." in found.idle["logistic"]


@pytest.mark.parametrize("names", [["neighbors", "softmax", "logistic"]])
def test_families_asked_for_by_name_are_run_whole(names):
    X, y = blobs(8, 4, rows=40)
    found = kway.compare(X, y, models=names)
    assert {line.model for line in found.standings} == set(names)
    assert np.isfinite(found.scans["softmax"].accuracy[0]).all()
