"""`kway neighbors`: who voted on each row."""

import numpy as np
import pytest

from kway.neighbors import NeighborsClassifier


def test_the_neighbours_of_each_row_are_listed(answer, cli):
    X = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0], [5.0, 0.0]])
    NeighborsClassifier(3).fit(X, ["a", "a", "b", "b"]).save("model.kway")
    np.savez("rows.npz", x=np.array([[0.4, 0.0], [4.6, 0.0]]), y=np.array([0, 1]))
    told = answer("neighbors", "model.kway", "rows.npz")
    first = told["rows"][0]
    assert first["prediction"] == "a"
    assert [v["row"] for v in first["neighbours"]] == [0, 1, 2]
    assert [v["label"] for v in first["neighbours"]] == ["a", "a", "b"]
    assert first["neighbours"][0]["distance"] == pytest.approx(0.4)
    assert first["gap"] == pytest.approx(1 / 3)
    fewer = answer("neighbors", "model.kway", "rows.npz", "--k", "1")
    assert [len(row["neighbours"]) for row in fewer["rows"]] == [1, 1]
    code, out, _ = cli("neighbors", "model.kway", "rows.npz", "--rows", "1")
    assert code == 0
    assert "0 a (0.4, 0.333)" in out
