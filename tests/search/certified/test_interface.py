"""What callers rely on: when an index is made, shapes, threads, memory, and kernels that a second process reuses."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from tests.helpers.neighbors import bounded

import kway
from kway.rows import blocks
from kway.search import Flat
from kway.search.certified import BoundedScan
from kway.search.certified.build import MIN_ROWS
from kway.search.distances import EUCLIDEAN, MANHATTAN
from kway.threads import at_most

DISTANCES = [EUCLIDEAN, MANHATTAN]


def smooth(n, d, seed=0, dtype=np.float32):
    """Rows with structure, so that pruning pays."""
    return np.cumsum(np.random.default_rng(seed).standard_normal((n, d)), axis=1).astype(dtype)


@pytest.fixture(scope="module", params=DISTANCES)
def built(request):
    rows = smooth(6000, 160)
    index = bounded(rows, request.param)
    assert isinstance(index, BoundedScan)
    return index, rows, request.param


def test_one_query(built, check):
    index, rows, distance = built
    check(index, rows, smooth(1, 160, 9), distance, ks=(1, 7))


@pytest.mark.parametrize("q", [2, 6, 7, 241, 500])
def test_any_number_of_queries(built, q):
    index, _, _ = built
    queries = smooth(500, 160, 4)
    whole, part = index.nearest(queries, 5), index.nearest(queries[:q], 5)
    np.testing.assert_array_equal(part.ids, whole.ids[:q])
    np.testing.assert_array_equal(part.distances, whole.distances[:q])


@pytest.mark.parametrize(("kept", "asked"), [(np.float32, np.float64), (np.float64, np.float32)])
@pytest.mark.parametrize("distance", DISTANCES)
def test_queries_of_another_float_type_than_the_rows(distance, kept, asked, check):
    """float32 rows were read beside float64 queries as if both were float32: other neighbors, and nobody was told."""
    rows = smooth(6000, 163, dtype=kept)  # 16 columns at a time, and three more
    index = bounded(rows, distance)
    check(index, rows, smooth(9, 163, 5, asked), distance, ks=(1, 6))


def test_no_queries(built):
    index, rows, _ = built
    got = index.nearest(rows[:0], 3)
    assert got.ids.shape == got.distances.shape == (0, 3)


def test_groups_of_queries(built, monkeypatch):
    index, _, _ = built
    queries = smooth(300, 160, 4)
    want = index.nearest(queries, 5)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 70 * 160 * 8)
    np.testing.assert_array_equal(index.nearest(queries, 5).ids, want.ids)


@pytest.mark.parametrize("n_jobs", [1, 2, -1])
def test_threads_do_not_change_the_answer(built, n_jobs):
    index, _, _ = built
    queries = smooth(300, 160, 4)
    with at_most(n_jobs):
        found = index.nearest(queries, 5)
    np.testing.assert_array_equal(found.ids, index.nearest(queries, 5).ids)


def test_what_it_says_of_itself(built):
    index, rows, _ = built
    index.nearest(smooth(200, 160, 4), 5)
    assert 5 <= index.touched < len(rows) / 10
    assert 0 < index.nbytes <= 2 * rows.nbytes
    assert "survive" in index.why()
    assert index.pays(10)
    assert not index.pays(len(rows))


@pytest.mark.parametrize("distance", DISTANCES)
def test_all_rows_asked_for(distance, check):
    rows = smooth(MIN_ROWS, 20)
    index = bounded(rows, distance, always=True)
    check(index, rows, smooth(5, 20, 3), distance, ks=(MIN_ROWS - 1, MIN_ROWS))


@pytest.mark.parametrize("distance", DISTANCES)
def test_fewest_rows_and_columns(distance, check):
    for d in (1, 8):
        rows = smooth(MIN_ROWS, d)
        check(bounded(rows, distance, always=True), rows, smooth(10, d, 3), distance, ks=(4,))


@pytest.mark.parametrize("distance", DISTANCES)
def test_seed_does_not_change_the_answer(distance):
    rows, queries = smooth(3000, 100), smooth(50, 100, 5)
    first, again, other = (bounded(rows, distance, seed, always=True).nearest(queries, 5) for seed in (0, 0, 7))
    np.testing.assert_array_equal(first.ids, again.ids)
    np.testing.assert_array_equal(first.ids, other.ids)
    np.testing.assert_array_equal(first.distances, other.distances)


@pytest.mark.parametrize("distance", DISTANCES)
def test_memory_mapped_rows(distance, tmp_path, check):
    rows = smooth(3000, 100)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    check(bounded(mapped, distance, 0, always=True), rows, smooth(20, 100, 5), distance, ks=(5,))


@pytest.mark.parametrize("distance", DISTANCES)
def test_none_where_it_cannot_pay(distance):
    rng = np.random.default_rng(0)
    assert bounded(smooth(MIN_ROWS - 1, 100), distance) is None
    assert bounded(np.ones((3000, 20), np.float32), distance) is None  # no spread
    noise = rng.standard_normal((3000, 1400)).astype(np.float32)  # every row is equally far from every other
    assert bounded(noise, distance) is None


def test_distances_beyond_range():
    rows = smooth(2000, 16, dtype=np.float64)
    index, queries = Flat().build(rows), smooth(3, 16, 2, np.float64)
    queries[1] *= 1e160  # its squares overflow float64
    got = index.nearest(queries, 4)
    np.testing.assert_array_equal(got.ids[1], range(4))  # rounded to float64, all rows are equally far
    scaled = np.linalg.norm(queries[1] / 1e160) * 1e160
    np.testing.assert_allclose(got.distances[1], scaled)
    assert np.isfinite(got.distances).all()


def test_memory_while_searching():
    rows = smooth(4000, 400)
    index = bounded(rows, EUCLIDEAN)
    queries = np.repeat(rows, 9, axis=0)  # 36,000: three groups
    index.nearest(queries[:100], 3)
    tracemalloc.start()
    got = index.nearest(queries, 3)
    extra = tracemalloc.get_traced_memory()[1] - got.ids.nbytes - got.distances.nbytes
    tracemalloc.stop()
    assert extra < 256e6
    np.testing.assert_array_equal(got.distances[:, 0], 0)


PROGRAM = """
import numpy as np
from numba.core import event
from kway.search.block_scan import BlockScan
from kway.search.certified.build import certify
from kway.search.codecs.stores import StoredRows
from kway.search.distances import EUCLIDEAN, MANHATTAN
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
rows = np.cumsum(np.random.default_rng(0).standard_normal((1500, 40)), axis=1).astype(np.float32)
for distance in (EUCLIDEAN, MANHATTAN):
    print(certify(BlockScan(StoredRows(rows), distance), 0, always=True).nearest(rows[:20], 3).ids.sum())
print(len(compiled))
"""


@pytest.mark.slow
def test_second_process_starts_from_the_cache(tmp_path):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True, timeout=300
        )
        for _ in range(2)
    ]
    cold, warm = (run.stdout.split() for run in runs)
    assert cold[:2] == warm[:2]
    assert int(cold[2]) > 10
    assert int(warm[2]) == 0


@pytest.mark.slow
def test_narrow_cpu_gives_the_same_answer(tmp_path):
    """numba told to compile for a plain x86-64: no instruction may be used that it lacks."""
    if "x86_64" not in os.uname().machine:
        pytest.skip("the features named here are x86's")
    program = PROGRAM.replace("print(len(compiled))", "")
    plain = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"}
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=300
        )
        for env in (plain, dict(os.environ))
    ]
    assert runs[0].stdout == runs[1].stdout


PORTABLE = """
import numpy as np
from kway import NeighborsClassifier
from kway.kernels import lanes, product_tiles
assert not lanes.chosen() and not product_tiles.in_registers()
rng = np.random.default_rng(0)
X, Q = (np.cumsum(rng.standard_normal((n, 80)), axis=1).astype(np.float32) for n in (1500, 50))
y = (X[:, 5] > 0).astype(int) + (X[:, 60] > 0)
for metric in ("euclidean", "manhattan"):
    print(NeighborsClassifier(3, metric=metric).fit(X, y).kneighbors(Q)[1].tolist())
"""


def test_portable_program_gives_the_same_answer():
    """KWAY_PORTABLE=1 for a whole program: no tile of the CPU's own is taken, whatever the CPU."""
    texts = [PORTABLE, "\n".join(line for line in PORTABLE.splitlines() if not line.startswith("assert"))]
    answers = [
        subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, "KWAY_PORTABLE": portable},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for text, portable in zip(texts, "10")
    ]
    assert answers[0].count("\n") == 2
    assert answers[0] == answers[1]


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("types", [(np.float32, np.float64), (np.float64, np.float32), (np.float32, np.float32)])
@pytest.mark.parametrize("seed", range(3))
def test_drawn_queries_of_another_float_type(metric, types, seed):
    """Bounds over float32 rows read queries of float64 as if they were float32: any rows at all were called nearest."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(6, 96))
    rows, queries = (
        (rng.normal(size=(n, 6)) @ mix + 0.1 * rng.normal(size=(n, 96))).astype(dtype)
        for n, dtype in zip((4000, 50), types)
    )
    index = kway.search.Flat().build(rows, metric=metric)
    assert "certified" in index.why_
    truth = np.argsort(kway.pairwise(queries.astype(float), rows.astype(float), metric), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(index.search(queries, 5).ids, truth)
    np.testing.assert_array_equal(index.search(queries[:1], 5).ids, truth[:1])
    model = kway.NeighborsClassifier(5, metric=metric).fit(rows, np.arange(4000) % 7)
    np.testing.assert_array_equal(model.kneighbors(queries)[1], truth)
