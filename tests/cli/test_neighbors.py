"""`kway neighbors`: who voted on each row."""

import numpy as np
import pytest

from kway import MappedClassifier, TemperatureScaledClassifier
from kway.neighbors import NeighborsClassifier


def test_the_neighbors_of_each_row_are_listed(answer, cli):
    X = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0], [5.0, 0.0]])
    NeighborsClassifier(3).fit(X, ["a", "a", "b", "b"]).save("model.kway")
    np.savez("rows.npz", x=np.array([[0.4, 0.0], [4.6, 0.0]]), y=np.array([0, 1]))
    told = answer("neighbors", "model.kway", "rows.npz")
    first = told["rows"][0]
    assert first["prediction"] == "a"
    assert [v["row"] for v in first["neighbors"]] == [0, 1, 2]
    assert [v["label"] for v in first["neighbors"]] == ["a", "a", "b"]
    assert first["neighbors"][0]["distance"] == pytest.approx(0.4)
    assert first["gap"] == pytest.approx(1 / 3)
    fewer = answer("neighbors", "model.kway", "rows.npz", "--k", "1")
    assert [len(row["neighbors"]) for row in fewer["rows"]] == [1, 1]
    code, out, _ = cli("neighbors", "model.kway", "rows.npz", "--rows", "1")
    assert code == 0
    assert "0 a (0.4, 0.333)" in out


def test_a_learned_metric_is_the_one_that_voters_are_found_by(answer, cli):
    """Voters were once looked for among rows that the map of the columns had not met."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(60) % 3 + 0.1 * rng.normal(size=60), 5 * rng.normal(size=60)])
    model = TemperatureScaledClassifier(MappedClassifier(NeighborsClassifier(3, weights="distance"))).fit(
        X, np.arange(60) % 3
    )
    model.save("model.kway")
    np.savez("rows.npz", x=X)
    told = answer("neighbors", "model.kway", "rows.npz")["rows"]
    assert [row["prediction"] for row in told] == model.predict(X).tolist()
    assert [row["neighbors"][0]["row"] for row in told] == list(range(60))
    assert max(row["neighbors"][0]["distance"] for row in told) < 1e-9
    out = cli("neighbors", "model.kway", "rows.npz", "--rows", "2")[1]
    lines = [line for line in out.splitlines() if "(" in line and "Neighbors" not in line]
    assert any(line.split()[0] == "0" and " 0 0 (0," in line for line in lines)
