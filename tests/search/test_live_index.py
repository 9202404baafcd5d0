"""What every live index offers besides a search: files, ids of added rows, a repr, and what it guarantees."""

from dataclasses import dataclass

import numpy as np
import pytest

import kway
from kway.errors import InputError, ModelFileError
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks, Sharded
from kway.search.metrics import METRICS, Euclidean, Gaussian, Laplacian

RECIPES = [
    Flat(),
    Flat(store=Int8()),
    Flat(store=Bits()),
    KDTree(),
    LSH(),
    Landmarks(),
    Landmarks(n_landmarks=9, probes=3, store=Bits(1)),
    Sharded(Flat(), 2),
]
ROWS = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
QUERIES = np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_save_load_add_and_repr(tmp_path, recipe):
    index = recipe.build(ROWS[:200], ids=np.arange(200) + 1000)
    assert index.add(ROWS[200:250]).tolist() == list(range(1200, 1250))
    assert index.add(ROWS[250:], ids=np.arange(50)).tolist() == list(range(50))
    assert index.add(ROWS[:0]).tolist() == []
    index.save(tmp_path / "index.kway")
    loaded = kway.load(tmp_path / "index.kway")
    for k in (1, 7):
        for expected, result in zip(index.nearest(QUERIES, k), loaded.nearest(QUERIES, k)):
            np.testing.assert_array_equal(result, expected)
    for shown in (repr(index), repr(loaded)):
        assert type(index).__name__ in shown
        assert str(recipe) in shown
        assert "300 rows x 2 columns" in shown
        assert "200 rows" not in shown  # `why_` does not repeat the number of rows at the build
        assert "'euclidean'" in shown
        assert index.why_ in shown


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_an_index_without_rows_is_refused_at_save(tmp_path, recipe):
    index = recipe.build(ROWS)
    index.save(tmp_path / "index.kway")
    index.remove(index.ids)
    with pytest.raises(InputError, match="without rows"):
        index.save(tmp_path / "index.kway")
    assert kway.load(tmp_path / "index.kway").n_rows == 300  # the file was not replaced


@pytest.mark.parametrize("metric", [*METRICS.values(), Gaussian(0.5), Laplacian(0.5)], ids=str)
def test_every_metric_survives_the_file(tmp_path, metric):
    index = Flat().build(ROWS, metric)
    index.save(tmp_path / "index.kway")
    loaded = kway.load(tmp_path / "index.kway")
    assert loaded.metric == metric
    np.testing.assert_array_equal(loaded.nearest(QUERIES, 3).ids, index.nearest(QUERIES, 3).ids)


@dataclass(frozen=True)
class Half(Euclidean):
    """A metric that the table of metrics may contain, but model files do not know."""

    name = "half"


@pytest.mark.parametrize("listed", [False, True])
def test_a_metric_that_no_file_can_contain_is_refused_at_save(tmp_path, monkeypatch, listed):
    """A file with such a metric was written, and then refused as damaged."""
    if listed:
        monkeypatch.setitem(METRICS, "half", Half())
    model = kway.NeighborsClassifier(metric="half" if listed else Half()).fit(ROWS, np.arange(300) % 3)
    assert model.predict(QUERIES).shape == (20,)
    with pytest.raises(ModelFileError, match=r"\['metric'\] is a .*Half" if listed else "Half"):
        model.save(tmp_path / "model.kway")
    with pytest.raises(ModelFileError, match=r"\['metric'\] is a .*Half"):
        model.index_.save(tmp_path / "index.kway")


@pytest.mark.parametrize("approximate", [Landmarks, LSH, lambda **p: Landmarks(store=Bits(1), **p)])
def test_an_untuned_index_states_that_it_guarantees_nothing(approximate):
    assert "no recall is guaranteed" in approximate().build(ROWS).why_
    assert "no recall is guaranteed" not in approximate(probes=5).build(ROWS).why_
    assert "no recall is guaranteed" not in Flat().build(ROWS).why_
    tuned = kway.NeighborsClassifier(index=approximate(), agreement=0.9).fit(ROWS, np.arange(300) % 3).index_
    assert "no recall is guaranteed" not in tuned.why_
