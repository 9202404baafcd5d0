"""The post-office example: every index gives the place that brute force gives."""

import json
import os

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from kway.cli import neighbors as cli
from kway.data.datasets.post_offices import embedded, post_offices
from kway.neighbors import NeighborsClassifier
from kway.neighbors.post_office import HOBOKEN, ask
from kway.search import KDTree, Landmarks
from kway.search.metrics import Haversine


def brute(points, query):
    """Great-circle distances in km by the haversine formula."""
    (lat, lon), (a, b) = np.radians(points).T, np.radians(query)
    h = np.sin((lat - a) / 2) ** 2 + np.cos(lat) * np.cos(a) * np.sin((lon - b) / 2) ** 2
    return 2 * 6371.0088 * np.arcsin(np.sqrt(h))


@pytest.fixture(scope="module")
def offices():
    return embedded()


def test_thirty_thousand_places(offices):
    assert offices.points.shape == (30_000, 2)
    assert len(offices.names) == len(offices.zips) == 30_000
    assert np.abs(offices.points).max() < 180
    assert "Hoboken, NJ" in offices.names


def test_every_index_finds_hoboken(offices):
    answers, agree = ask(offices, *HOBOKEN)
    km = brute(offices.points, HOBOKEN)
    assert agree
    assert {a.index for a in answers} == {"flat", "landmarks", "kdtree", "lsh"}
    for a in answers:
        assert a.row == km.argmin()
        assert a.km == pytest.approx(km.min(), abs=1e-6)
        assert a.name == "Hoboken, NJ"
        assert 0 < a.touched < 30_000


@pytest.mark.parametrize("recipe", [KDTree(), Landmarks(probes=8)], ids=lambda r: r.name)
def test_other_queries_agree_with_brute_force(offices, recipe):
    rng = np.random.default_rng(0)
    queries = np.column_stack([rng.uniform(26, 48, 60), rng.uniform(-122, -70, 60)])
    found = recipe.build(offices.points, metric=Haversine(degrees=True)).nearest(queries, 1)
    for query, km in zip(queries, found.distances[:, 0]):
        assert km == pytest.approx(brute(offices.points, query).min(), abs=1e-6)


def test_the_state_of_a_place_by_its_neighbours(offices):
    states = np.array([name.rsplit(", ", 1)[1] for name in offices.names])
    test = np.arange(len(states)) % 10 == 0
    model = NeighborsClassifier(1, metric=Haversine(degrees=True)).fit(offices.points[~test], states[~test])
    assert model.score(offices.points[test], states[test]) > 0.96
    assert "KD-tree" in model.index_.why_


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(cli.neighbors)
    app.command("post-office")(cli.post_office)
    return lambda *words: CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_the_command_says_it_in_a_table_and_in_json(run):
    shown = run("post-office")
    assert shown.exit_code == 0
    assert "All agree: Hoboken, NJ, 0.750 km" in shown.output
    told = json.loads(run("post-office", "--lat", "37.77", "--lon", "-122.42", "--json").output)
    assert told["agree"]
    assert {a["name"] for a in told["answers"]} == {"San Francisco, CA"}


def test_the_neighbours_of_each_row_are_listed(run, tmp_path):
    X = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0], [5.0, 0.0]])
    NeighborsClassifier(3).fit(X, ["a", "a", "b", "b"]).save(tmp_path / "model.kway")
    np.savez(tmp_path / "rows.npz", x=np.array([[0.4, 0.0], [4.6, 0.0]]), y=np.array([0, 1]))
    told = json.loads(run("neighbors", str(tmp_path / "model.kway"), str(tmp_path / "rows.npz"), "--json").output)
    first = told["rows"][0]
    assert first["prediction"] == "a"
    assert [v["row"] for v in first["neighbours"]] == [0, 1, 2]
    assert [v["label"] for v in first["neighbours"]] == ["a", "a", "b"]
    assert first["neighbours"][0]["distance"] == pytest.approx(0.4)
    assert first["gap"] == pytest.approx(1 / 3)
    fewer = json.loads(
        run("neighbors", str(tmp_path / "model.kway"), str(tmp_path / "rows.npz"), "--k", "1", "--json").output
    )
    assert [len(row["neighbours"]) for row in fewer["rows"]] == [1, 1]
    shown = run("neighbors", str(tmp_path / "model.kway"), str(tmp_path / "rows.npz"), "--rows", "1")
    assert shown.exit_code == 0
    assert "a" in shown.output


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("KWAY_DATA"), reason="needs KWAY_DATA")
def test_all_places_agree_too():
    offices = post_offices()
    assert len(offices.names) == 41_914
    assert ask(offices, *HOBOKEN).agree
