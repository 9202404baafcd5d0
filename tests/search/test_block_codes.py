"""Codes of blocks: the same as those of all rows at once, whatever the blocks come as, and after a kill."""

import subprocess
import sys

import numpy as np
import pytest
from tests.helpers.neighbors import assert_same_neighbors

from kway.errors import CombinationError, InputError
from kway.search import Bits, Flat, Int8, Landmarks, restore
from kway.search.codecs import block_codes
from kway.search.codecs.block_codes import GrowingArrays

CODES = Flat(store=Bits(1, rerank=False))


def data(n=1000, d=70):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)).astype(np.float32), rng.normal(size=(20, d)).astype(np.float32)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_blocks_of_every_kind_give_the_same_index(metric, tmp_path, monkeypatch):
    rows, queries = data()
    monkeypatch.setattr(block_codes, "BLOCK_BYTES", 4 * 300 * 70)
    np.save(tmp_path / "all.npy", rows)
    mapped = np.load(tmp_path / "all.npy", mmap_mode="r")
    files = tmp_path / "files"
    files.mkdir()
    for i in range(0, 1000, 300):
        np.save(files / f"{i:04d}.npy", rows[i : i + 300])
    index = CODES.build_blocks(mapped, metric)
    assert index.n_rows == 1000
    assert_same_neighbors(CODES.build_blocks(files, metric), index, queries)
    assert_same_neighbors(CODES.build_blocks((rows[i : i + 300] for i in range(0, 1000, 300)), metric), index, queries)
    assert len(index.parts()[1]["codes.factor"]) == 1000
    one = CODES.build_blocks([rows], metric)
    assert_same_neighbors(one, CODES.build(rows, metric), queries)


@pytest.mark.parametrize("metric", ["manhattan", "euclidean", "cosine"])
def test_bytes_of_blocks(metric):
    rows, queries = data()
    recipe = Flat(store=Int8(rerank=False))
    assert_same_neighbors(recipe.build_blocks([rows], metric), recipe.build(rows, metric), queries)
    index = recipe.build_blocks((rows[i : i + 300] for i in range(0, 1000, 300)), metric)
    assert index.n_rows == 1000
    assert index.nbytes < 1.2 * rows.size + 40 * 1000
    true = Flat().build(rows, metric).nearest(queries, 5)
    found = index.nearest(queries, 5)
    assert (found.ids == true.ids).mean() > 0.9
    np.testing.assert_allclose(found.distances, true.distances, rtol=0.02)
    with pytest.raises(InputError, match="columns"):
        recipe.build_blocks([rows, rows[:, :5]], metric)
    with pytest.raises(InputError, match="at least one block"):
        recipe.build_blocks([], metric)


def test_a_memory_map_can_be_measured_in_full(tmp_path):
    rows, queries = data()
    np.save(tmp_path / "all.npy", rows)
    index = Flat(store=Bits(2)).build_blocks(np.load(tmp_path / "all.npy", mmap_mode="r"))
    true = Flat().build(rows).nearest(queries, 3)
    found = index.nearest(queries, 3)
    assert (found.ids == true.ids).mean() > 0.98
    with pytest.raises(CombinationError, match="rerank=False"):
        Flat(store=Bits(2)).build_blocks(iter([rows]))
    with pytest.raises(CombinationError, match="omit folder"):
        Flat().build_blocks(rows, folder=tmp_path)


@pytest.mark.parametrize("store", [Bits(1, rerank=False), Int8(rerank=False)], ids=str)
def test_a_build_that_was_killed_goes_on(tmp_path, store):
    rows, queries = data()
    recipe, coded = Flat(store=store), []

    def some(until):
        for i in range(0, 1000, 100):
            if i == until:
                raise KeyboardInterrupt
            coded.append(i)
            yield rows[i : i + 100]

    with pytest.raises(KeyboardInterrupt):
        recipe.build_blocks(some(400), "dot", folder=tmp_path / "parts")
    made = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "parts").iterdir()}
    assert len(made) == 5  # the frame and four parts
    index = recipe.build_blocks(some(None), "dot", folder=tmp_path / "parts")
    assert all((tmp_path / "parts" / name).stat().st_mtime_ns == when for name, when in made.items())
    assert_same_neighbors(index, recipe.build_blocks(some(None), "dot"), queries)
    with pytest.raises(InputError, match="another folder"):
        recipe.build_blocks([rows], "dot", folder=tmp_path / "parts")
    with pytest.raises(InputError, match="another folder"):
        recipe.build_blocks([rows], "cosine", folder=tmp_path / "parts")


def test_blocks_that_do_not_fit_are_refused(tmp_path):
    rows, _ = data()
    with pytest.raises(InputError, match="columns"):
        CODES.build_blocks([rows, rows[:, :5]])
    with pytest.raises(InputError, match="none"):
        CODES.build_blocks([])
    with pytest.raises(InputError, match="npy"):
        CODES.build_blocks(tmp_path)
    with pytest.raises(InputError, match="NaN"):
        CODES.build_blocks([rows, np.full((2, 70), np.nan)])


CELLS = Landmarks(n_landmarks=40, probes=8, store=Bits(4, rerank=False))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
def test_cells_of_blocks_are_those_of_all_rows(metric, tmp_path, monkeypatch):
    rows, queries = data()
    monkeypatch.setattr(block_codes, "BLOCK_BYTES", 4 * 300 * 70)
    files = tmp_path / "files"
    files.mkdir()
    for i in range(0, 1000, 300):
        np.save(files / f"{i:04d}.npy", rows[i : i + 300])
    whole = CELLS.build(rows, metric)
    for source in (rows, files):
        index = CELLS.build_blocks(source, metric)
        assert (index.n_rows, index.n_features) == (1000, 70)
        found, true = index.nearest(queries, 5), whole.nearest(queries, 5)
        np.testing.assert_array_equal(found.ids, true.ids)
        np.testing.assert_allclose(found.distances, true.distances, rtol=1e-4, atol=1e-4)
        assert_same_neighbors(restore(*index.parts()), index, queries)


def test_cells_of_a_generator_and_after_a_kill(tmp_path):
    rows, queries = data()
    blocks = [rows[i : i + 250] for i in range(0, 1000, 250)]

    def some(until):
        yield from blocks[:until]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CELLS.build_blocks(some(2), folder=tmp_path / "parts")
    assert len(list((tmp_path / "parts").iterdir())) == 3
    index = CELLS.build_blocks(iter(blocks), folder=tmp_path / "parts")
    assert_same_neighbors(index, CELLS.build_blocks(iter(blocks)), queries)
    with pytest.raises(InputError, match="contains codes of cells of 4 bits"):
        CODES.build_blocks(iter(blocks), folder=tmp_path / "parts")
    with pytest.raises(InputError, match="n_landmarks"):
        Landmarks(store=Bits(rerank=False)).build_blocks(iter(blocks))
    with pytest.raises(CombinationError, match="rerank=False"):
        Landmarks(store=Bits()).build_blocks(rows)


def test_arrays_grow_where_they_lie_and_are_put_in_order():
    rng = np.random.default_rng(3)
    pieces = [
        {
            "codes.head": rng.integers(0, 2**60, (3, m)).astype(np.uint64),
            "codes.rest": rng.integers(0, 2**60, (m, 2)).astype(np.uint64),
            "codes.factor": rng.random(m, dtype=np.float32),
            "codes.half": np.empty(0, np.float32),
            "codes.widest": rng.random(1, dtype=np.float32),
        }
        for m in (5, 1, 400, 0, 37)
    ]
    order = rng.permutation(443)
    for places in (None, order):
        held = GrowingArrays()
        for piece in pieces:
            held.add(piece)
        for key, axis in (("codes.head", 1), ("codes.rest", 0), ("codes.factor", 0)):
            whole = np.concatenate([piece[key] for piece in pieces], axis=axis)
            expected = whole if places is None else np.take(whole, places, axis=axis)
            np.testing.assert_array_equal(held.take(key, places), expected)
        assert len(held.take("codes.half", places)) == 0
        assert held.take_all() == {"codes.widest": max(piece["codes.widest"] for piece in pieces)}


MEMORY = """
import subprocess
import sys

import numpy as np
from kway.search import Bits, Flat, Landmarks
from benchmarks.peak import peak

kind, n = {kind!r}, 2**22
rows = np.random.default_rng(0).normal(size=(65536, 256)).astype(np.float32)
store = Bits(1, rerank=False)
recipe = Flat(store=store) if kind == "flat" else Landmarks(64, 4, store=store)
recipe.build_blocks((rows for _ in range(2)), "cosine")  # compiles
before = peak()
index = recipe.build_blocks((rows for _ in range(n // 65536)), "cosine")
print((peak() - before) * 2**20 / n, index.nbytes / n)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("flat", 1.5), ("cells", 1.9)])
def test_a_build_holds_its_codes_about_once(kind, most):
    said = subprocess.run(
        [sys.executable, "-c", MEMORY.format(kind=kind)], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    peak, index = map(float, said.split())
    assert peak < most * index, (peak, index)
