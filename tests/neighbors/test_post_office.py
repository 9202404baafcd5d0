"""The post-office example: every index gives the place that brute force gives."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.neighbors import brute_distances

import kway
from kway.neighbors import NeighborsClassifier
from kway.search import KDTree, Landmarks
from kway.search.metrics import Haversine

EXAMPLE = Path(__file__).parents[2] / "examples" / "post_office.py"


def load_example():
    spec = importlib.util.spec_from_file_location("post_office", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for itself
    spec.loader.exec_module(module)
    return module


example = load_example()


def brute(points, query):
    """Great-circle distances in km."""
    return brute_distances([query], points, Haversine(degrees=True))[0]


@pytest.fixture(scope="module")
def offices():
    return kway.datasets.load("post-offices")


def test_thirty_thousand_places(offices):
    assert offices.x_train.shape == (30_000, 2)
    assert len(offices.extras["names"]) == len(offices.extras["zips"]) == 30_000
    assert np.abs(offices.x_train).max() < 180
    at = offices.extras["names"].tolist().index("Hoboken, NJ")
    assert (offices.y_train[at], offices.extras["zips"][at]) == ("NJ", "07030")


def test_every_index_finds_hoboken(offices):
    answers = example.ask(offices.x_train, *example.HOBOKEN)
    km = brute(offices.x_train, example.HOBOKEN)
    assert example.agree(answers)
    assert {a.index for a in answers} == set(kway.search.INDEXES)
    for a in answers:
        assert a.row == km.argmin()
        assert a.km == pytest.approx(km.min(), abs=1e-6)
        assert offices.extras["names"][a.row] == "Hoboken, NJ"
        assert 0 < a.touched < 30_000


@pytest.mark.parametrize("recipe", [KDTree(), Landmarks(probes=8)], ids=lambda r: r.name)
def test_other_queries_agree_with_brute_force(offices, recipe):
    rng = np.random.default_rng(0)
    queries = np.column_stack([rng.uniform(26, 48, 60), rng.uniform(-122, -70, 60)])
    found = recipe.build(offices.x_train, metric=Haversine(degrees=True)).nearest(queries, 1)
    for query, km in zip(queries, found.distances[:, 0]):
        assert km == pytest.approx(brute(offices.x_train, query).min(), abs=1e-6)


def test_the_state_of_a_place_by_its_neighbors(offices):
    states = offices.y_train
    test = np.arange(len(states)) % 10 == 0
    model = NeighborsClassifier(1, metric=Haversine(degrees=True)).fit(offices.x_train[~test], states[~test])
    assert model.score(offices.x_train[test], states[test]) > 0.96
    assert "KD-tree" in model.index_.why_


def test_the_example_as_a_program():
    words = ["--lat", "37.77", "--lon", "-122.42"]
    said = subprocess.run([sys.executable, EXAMPLE, *words], capture_output=True, text=True, check=True).stdout
    assert said.count("San Francisco, CA") == len(kway.search.INDEXES)
    assert said.endswith("all agree\n")


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("KWAY_DATA"), reason="needs KWAY_DATA")
def test_all_places_agree_too():
    table = kway.datasets.load("us_zip_points")
    points = table.x_train[:, [table.feature_names.index(c) for c in ("lat", "lon")]]
    assert len(points) == 41_914
    assert example.agree(example.ask(points, *example.HOBOKEN))
