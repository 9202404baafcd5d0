"""Shards in this process: the answers of one index, to the last bit where that is exact."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.errors import CombinationError, InputError
from kway.rows.cluster.shards import Carried, FilePlace, row_source
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks, Sharded
from kway.search.metrics import METRICS, pick_metric
from kway.search.sharded import open_shard


def problem(seed, n=700, d=9, q=60, dtype=np.float32):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)).astype(dtype) * 10.0 ** rng.integers(-8, 8)
    rows[n // 2 : n // 2 + 30] = rows[:30]  # ties across shards
    queries = np.concatenate([rows[: q // 2], rows[: q // 2] + rows.std() * rng.normal(size=(q // 2, d))])
    return rows, queries.astype(dtype)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "inner", [Flat(), Flat(store=Int8()), KDTree()], ids=lambda r: f"{r.name}-{getattr(r, 'store', None)}"
)
def test_exact_shards_answer_as_one_index(inner, seed):
    rng = np.random.default_rng(seed)
    metric = rng.choice(["euclidean", "manhattan", "cosine"])
    rows, queries = problem(seed, dtype=rng.choice([np.float32, np.float64]))
    shards, k = int(rng.integers(1, 9)), int(rng.integers(1, 12))
    one, many = inner.build(rows, metric), Sharded(inner, shards).build(rows, metric)
    np.testing.assert_array_equal(many.nearest(queries, k).ids, one.nearest(queries, k).ids)
    np.testing.assert_array_equal(many.nearest(queries, k).distances, one.nearest(queries, k).distances)


def test_more_shards_than_rows_and_more_neighbors_than_rows():
    rows, _ = problem(0, n=80)
    index = Sharded(Flat(), 200).build(rows[:3])
    found = index.nearest(rows[:2], 5)
    assert sorted(found.ids[0]) == [-1, -1, 0, 1, 2]


@pytest.mark.parametrize("inner", [Landmarks(), Landmarks(store=Int8()), LSH(), Flat(store=Bits(1))], ids=str)
def test_approximate_shards_find_most(inner):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 64)).astype(np.float32)
    queries = rows[:50] + 0.1 * rng.normal(size=(50, 64)).astype(np.float32)
    ids = Sharded(inner, 3).build(rows).nearest(queries, 1).ids[:, 0]
    assert (ids == np.arange(50)).mean() >= 0.95


def test_sparse_rows_ids_adding_and_removing():
    rng = np.random.default_rng(1)
    rows = sp.random(200, 30, 0.2, "csr", np.float32, rng=rng)
    names = np.arange(200) * 3 + 7
    one, many = Flat().build(rows, ids=names), Sharded(Flat(), 4).build(rows, ids=names)
    for index in (one, many):
        index.add(rows[:5])
        index.remove(names[:40])
    found, wanted = many.nearest(rows, 4), one.nearest(rows, 4)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    assert many.n_rows == 165
    assert many.coverage_ == 1.0


def test_a_classifier_of_shards_is_saved_and_loaded(tmp_path):
    rows, queries = problem(2)
    y = np.arange(len(rows)) % 7
    model = kway.NeighborsClassifier(3, index=Sharded(Landmarks(probes=8), 3)).fit(rows, y)
    model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    np.testing.assert_array_equal(again.predict_proba(queries), model.predict_proba(queries))
    assert again.index_.recipe == model.index_.recipe


def test_rows_of_a_memory_map_are_named_and_not_carried(tmp_path):
    rows, _ = problem(3)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    source = row_source(np.asarray(mapped)[100:600], slice(50, 250))
    assert isinstance(source, FilePlace)
    np.testing.assert_array_equal(source.rows(), rows[150:350])
    assert isinstance(row_source(mapped[:, ::2], slice(0, 9)), Carried)
    assert isinstance(row_source(rows, slice(0, 9)), Carried)


def test_a_shard_in_a_folder_is_built_once(tmp_path):
    rows, queries = problem(4)
    made = [open_shard(Landmarks(), pick_metric("euclidean"), Carried(rows), tmp_path) for _ in range(2)]
    assert len(list(tmp_path.iterdir())) == 1
    first, again = (shard.nearest(queries, 5, None, None).neighbors for shard in made)
    np.testing.assert_array_equal(first.ids, again.ids)
    open_shard(Landmarks(), pick_metric("euclidean"), Carried(2 * rows), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # other rows are another shard


@pytest.mark.parametrize("kind", ["dense", "csr", "file"])
def test_a_shard_whose_rows_changed_anywhere_is_another(tmp_path, kind):
    rows, _ = problem(5)
    file = tmp_path / "rows.npy"

    def source():
        if kind == "file":
            np.save(file, rows)
            return row_source(np.load(file, mmap_mode="r"), slice(0, len(rows)))
        return Carried(sp.csr_matrix(rows) if kind == "csr" else rows)

    metric, home = pick_metric("euclidean"), tmp_path / "shards"
    home.mkdir()
    open_shard(Flat(), metric, source(), home)
    for at in (1, 401, len(rows) - 2):  # none of which was among the rows looked at
        rows[at] *= -3
        found = open_shard(Flat(), metric, source(), home).nearest(rows[[at]], 1, None, None).neighbors
        assert found.ids[0, 0] == at


@pytest.mark.parametrize("left", [0.0, 0.5, 0.99])
def test_a_shard_file_that_was_cut_short_is_made_again(tmp_path, left):
    rows, queries = problem(6)
    shard = partial(open_shard, Landmarks(), pick_metric("euclidean"), Carried(rows), tmp_path)
    wanted = shard().nearest(queries, 5, None, None).neighbors.ids
    (file,) = tmp_path.iterdir()
    os.truncate(file, int(left * file.stat().st_size))
    np.testing.assert_array_equal(shard().nearest(queries, 5, None, None).neighbors.ids, wanted)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("metric", METRICS)
def test_a_shard_of_any_index_and_metric_opens_from_its_file(tmp_path, metric):
    rng = np.random.default_rng(9)
    stores = (None, Int8(), Int8(rerank=False), Bits(1), Bits(2, rerank=False))
    for recipe in (*(kind(store=store) for kind in (Flat, Landmarks) for store in stores), KDTree(), LSH()):
        rows = rng.normal(size=(200, 2 if metric == "haversine" else 66)).astype(rng.choice(["f4", "f8"]))
        rows = (rows > 0).astype(rows.dtype) if metric == "hamming" else rows
        try:
            recipe.build(rows, metric)
        except CombinationError:
            continue
        found = [
            open_shard(recipe, pick_metric(metric), Carried(rows), tmp_path)
            .nearest(rows[:9], 3, None, None)
            .neighbors.ids
            for _ in range(2)
        ]
        np.testing.assert_array_equal(*found)


def test_a_shard_file_of_other_rows_is_made_again(tmp_path):
    rows = np.random.default_rng(8).normal(size=(30, 4))
    metric = pick_metric("euclidean")
    for n in (30, 10):
        (tmp_path / str(n)).mkdir()
        open_shard(Flat(), metric, Carried(rows[:n]), tmp_path / str(n))
    (whole,), (some,) = (list((tmp_path / str(n)).iterdir()) for n in (30, 10))
    whole.write_bytes(some.read_bytes())
    again = open_shard(Flat(), metric, Carried(rows), tmp_path / "30")
    np.testing.assert_array_equal(again.nearest(rows, 1, None, None).neighbors.ids[:, 0], np.arange(30))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((Flat(), 0), "shards must be"), ((Flat(), 2, 1.5), "replicas must be"), ((Sharded(), 2), "recipe must be")],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Sharded(*arguments)


def test_what_the_inner_index_cannot_search_is_refused():
    with pytest.raises(CombinationError, match="KDTree"):
        Sharded(KDTree(), 2).build(np.eye(4), "dot")
