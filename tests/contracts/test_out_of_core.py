"""Rows that need not be in memory: every kind of source through every consumer, against the answer from memory.

sources      a memory map, folders of .npy, of parquet and of csv, an iterator of blocks
consumers    indexes, class means, SGD, sampled softmax, `kway predict`, `kway evaluate`, `kway fit`
"""

import json
import subprocess
import sys
import time
import tracemalloc
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import kway
from kway.cli import run
from kway.errors import CombinationError, InputError
from kway.linear import equivalent, from_files
from kway.linear.solvers.sampled import Sampled
from kway.linear.solvers.sgd import SGD
from kway.rows import files
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks, Sharded
from kway.tables.labeled_rows import number_rows
from kway.tables.read_options import ReadOptions
from kway.tables.row_stream import row_stream

N, D, PARTS = 600, 5, 4
NAMES = [f"x{j}" for j in range(D)]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(N) % 3
    return (rng.normal(size=(N, D)) + 3 * np.eye(D)[y]).astype(np.float32), y


@pytest.fixture(scope="module")
def folders(rows, tmp_path_factory):
    """The rows, with labels, in parts: a path for each kind."""
    X, y = rows
    root = tmp_path_factory.mktemp("sources")
    found = {kind: root / kind for kind in ("npy", "parquet", "csv", "features")}
    for folder in found.values():
        folder.mkdir()
    np.save(root / "all.npy", X)
    for i, part in enumerate(np.array_split(np.arange(N), PARTS)):
        np.save(found["npy"] / f"x{i}.npy", X[part])
        np.save(found["npy"] / f"y{i}.npy", y[part])
        table = pa.table({name: X[part, j] for j, name in enumerate(NAMES)})
        pq.write_table(table, found["features"] / f"{i}.parquet")
        table = table.append_column("kind", pa.array(y[part]))
        pq.write_table(table, found["parquet"] / f"{i}.parquet")
        pyarrow.csv.write_csv(table, found["csv"] / f"{i}.csv")
    return found | {"memmap": root / "all.npy"}


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch):
    """Small files are read in pieces too."""
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 70 * 8 * D)


def blocks(kind, folders, rows):
    """(X, y) a block at a time, from a source of this kind."""
    X, y = rows
    if kind in ("memmap", "iterator"):
        source = np.load(folders["memmap"], mmap_mode="r") if kind == "memmap" else X
        yield from ((source[i : i + 70], y[i : i + 70]) for i in range(0, N, 70))
        return
    how = ReadOptions() if kind == "npy" else ReadOptions("kind")
    for piece in row_stream(folders[kind], how):
        yield number_rows(piece).rows, piece.y


KINDS = ("memmap", "npy", "parquet", "csv", "iterator")


def unlabelled(kind, folders, rows, tmp_path):
    """What an index is built of."""
    if kind == "memmap":
        return np.load(folders["memmap"], mmap_mode="r")
    if kind == "iterator":
        return iter(np.array_split(rows[0], PARTS))
    if kind == "parquet":
        return folders["features"]
    for i, part in enumerate(np.array_split(rows[0], PARTS)):
        np.save(tmp_path / f"{i}.npy", part)
    return tmp_path


def split_rows(kind, X):
    """The blocks that come from such a source: codes are centered at the mean of the first."""
    parts = [X] if kind == "memmap" else np.array_split(X, PARTS)
    return [part[i : i + 70] for part in parts for i in range(0, len(part), 70)] if kind == "parquet" else parts


@pytest.mark.parametrize("kind", ["memmap", "npy", "parquet", "iterator"])
@pytest.mark.parametrize(
    "recipe",
    [Flat(), Flat(store=Int8()), Landmarks(), KDTree(), LSH(), Sharded(Flat(), 2), Flat(store=Bits(2, rerank=False))],
    ids=str,
)
def test_an_index(kind, recipe, rows, folders, tmp_path):
    X, _ = rows
    found = recipe.build_blocks(unlabelled(kind, folders, rows, tmp_path), "euclidean").search(X[:40], 3)
    coded = getattr(recipe, "store", None) == Bits(2, rerank=False)
    whole = recipe.build_blocks(split_rows(kind, X)) if coded else recipe.build(X)
    np.testing.assert_array_equal(found.ids, whole.search(X[:40], 3).ids)


@pytest.mark.parametrize("kind", KINDS)
def test_class_means(kind, rows, folders):
    X, y = rows
    model = kway.CentroidClassifier()
    for block, labels in blocks(kind, folders, rows):
        model.partial_fit(block, labels, classes=[0, 1, 2])
    np.testing.assert_allclose(model.centroids_, kway.CentroidClassifier().fit(X, y).centroids_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sgd(kind, rows, folders):
    X, y = rows
    model, same = (kway.SoftmaxClassifier(solver=SGD(), batch_size=16, random_state=0) for _ in range(2))
    for block, labels in blocks(kind, folders, rows):
        model.partial_fit(block, labels, classes=[0, 1, 2])
    cut = [len(labels) for _, labels in blocks(kind, folders, rows)]
    for start, size in zip(np.cumsum([0, *cut[:-1]]), cut):
        same.partial_fit(X[start : start + size], y[start : start + size], classes=[0, 1, 2])
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-4, atol=1e-5)
    assert model.score(X, y) > 0.9


def sampled_fit(learn, folder=None, epochs=4):
    """A fit by sampled softmax that `learn` makes of the model."""
    solver = Sampled(checkpoint=None if folder is None else str(folder))
    model = kway.SoftmaxClassifier(solver=solver, batch_size=32, max_iter=epochs, tol=1e-9, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learn(model)


@pytest.mark.parametrize("kind", ["npy", "parquet", "csv", "iterator"])
def test_sampled_softmax(kind, rows, folders, monkeypatch):
    X, y = rows
    monkeypatch.setattr(equivalent, "CACHE_BYTES", 0)  # rows in memory in the order of the files, too
    whole = sampled_fit(lambda model: model.fit(X, y))
    if kind == "iterator":
        ours = sampled_fit(lambda model: model.fit_blocks(blocks(kind, folders, rows)))
    else:
        monkeypatch.setattr(from_files, "read_folder", None)  # which would read all rows
        ours = sampled_fit(lambda model: model.fit_folder(folders[kind], None if kind == "npy" else "kind"))
    np.testing.assert_allclose(ours.coef_, whole.coef_, rtol=1e-5, atol=1e-6)
    assert ours.history_ == pytest.approx(whole.history_)
    assert ours.score(X, y) > 0.9
    assert "in files" in ours.why_


def test_sampled_softmax_of_runs_of_rows(rows, folders, monkeypatch):
    X, y = rows
    monkeypatch.setattr(files, "RUN_BYTES", 4 * D * 4)
    monkeypatch.setattr(files, "BLOCK_BYTES", 40 * D * 4)
    found = from_files.open_folder(folders["npy"], None).X
    order = found.shuffled(np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(order), np.arange(N))
    assert all(len(np.unique(part // 4)) == 10 for part in np.split(order, N // 40))  # ten runs of four at a time
    np.testing.assert_array_equal(found[order], X[order])
    np.testing.assert_array_equal(found[145:160], X[145:160])  # of two files
    assert sampled_fit(lambda model: model.fit_folder(folders["npy"])).score(X, y) > 0.9


def test_a_killed_fit_of_a_folder_goes_on(rows, folders, tmp_path):
    whole = sampled_fit(lambda model: model.fit_folder(folders["npy"]), epochs=60)
    program = f"""
import kway, warnings
from kway.linear.solvers.sampled import Sampled
warnings.simplefilter("ignore")
kway.SoftmaxClassifier(solver=Sampled(checkpoint={str(tmp_path / "state")!r}), batch_size=32, max_iter=60, tol=1e-9,
                       random_state=0).fit_folder({str(folders["npy"])!r})
"""
    child = subprocess.Popen([sys.executable, "-c", program])
    while child.poll() is None and not (tmp_path / "state" / "sampled.npz").exists():
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert (tmp_path / "state" / "sampled.npz").exists()
    again = sampled_fit(lambda model: model.fit_folder(folders["npy"]), tmp_path / "state", 60)
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    assert again.history_ == whole.history_
    (folders["npy"] / "x0.npy").touch()
    with pytest.raises(InputError, match="other rows or settings"):
        sampled_fit(lambda model: model.fit_folder(folders["npy"]), tmp_path / "state", 60)


@pytest.mark.parametrize("kind", ["npy", "iterator"])
def test_sampled_softmax_never_holds_all_rows(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("kway.rows.blocks.BLOCK_BYTES", 2**21)
    monkeypatch.setattr(files, "BLOCK_BYTES", 2**20)
    n, d = 60_000, 64
    part = np.random.default_rng(0).normal(size=(n // 4, d)).astype(np.float32)
    for i in range(4):
        np.save(tmp_path / f"x{i}.npy", part)
    np.save(tmp_path / "y.npy", np.arange(n) % 20)
    model = kway.SoftmaxClassifier(solver="sampled", batch_size=1024, max_iter=1, n_jobs=1)
    each = ((np.load(tmp_path / f"x{i}.npy"), np.arange(n // 4) % 20) for i in range(4))
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit_folder(tmp_path) if kind == "npy" else model.fit_blocks(each)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 4 * n * d


def test_what_blocks_cannot_be_learned_from(rows):
    X, y = rows
    learn = lambda given, **how: kway.SoftmaxClassifier(**{"solver": "sampled"} | how).fit_blocks(given)  # noqa: E731
    with pytest.raises(InputError, match="no block"):
        learn([])
    with pytest.raises(InputError, match="columns"):
        learn([(X, y), (X[:, :2], y)])
    with pytest.raises(InputError, match="NaN"):
        learn([(np.where(X > 2, np.nan, X), y)])
    with pytest.raises(CombinationError, match="partial_fit"):
        learn([(X, y)], solver="dual")
    with pytest.raises(CombinationError, match="perceptron"):
        kway.PerceptronClassifier().fit_blocks([(X, y)])


@pytest.mark.parametrize("name", ["SoftmaxClassifier", "LogisticClassifier", "LeastSquaresClassifier", "SVMClassifier"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_every_loss_with_an_optimum_is_learned_from_blocks(name, n_classes, rows):
    X, y = rows
    X, y = X[y < n_classes], y[y < n_classes]
    how = {"alpha": 1e-2, "tol": 1e-3} | ({"multiclass": "one-vs-all"} if name == "SVMClassifier" else {})
    whole = getattr(kway, name)(**how).fit(X, y)
    ours = getattr(kway, name)(**how).fit_blocks((X[i : i + 97], y[i : i + 97]) for i in range(0, len(X), 97))
    assert ours.solver_ == "lbfgs"
    assert ours.objective_ <= whole.objective_ * (1 + 2e-3)
    np.testing.assert_array_equal(ours.classes_, whole.classes_)
    assert (ours.predict(X) == whole.predict(X)).mean() > 0.99


@pytest.mark.parametrize(
    "index", ["auto", Flat(store=Bits(4, rerank=False)), Landmarks(20, 8, store=Bits(4, rerank=False))]
)
def test_neighbors_among_blocks(index, rows, tmp_path):
    X, y = rows
    names = np.array(["ant", "bee", "cat"])[y]
    blocks = [(X[i : i + 97], names[i : i + 97]) for i in range(0, N, 97)]
    model = kway.NeighborsClassifier(3, index=index, class_weight="balanced").fit_blocks(iter(blocks))
    whole = kway.NeighborsClassifier(3, class_weight="balanced").fit(X, names)
    assert (model.predict(X) == whole.predict(X)).mean() > 0.97
    model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    means = kway.CentroidClassifier().fit_blocks(iter(blocks))
    np.testing.assert_allclose(means.centroids_, kway.CentroidClassifier().fit(X, names).centroids_, rtol=1e-5)
    for given in (kway.NeighborsClassifier(), kway.CentroidClassifier()):
        with pytest.raises(InputError, match="block"):
            given.fit_blocks([])
    with pytest.raises(InputError, match="one label per row"):
        kway.NeighborsClassifier().fit_blocks([(X, names[:5])])
    with pytest.raises(CombinationError, match="stores only codes"):
        kway.NeighborsClassifier(index="kdtree").fit_blocks(blocks)


@pytest.mark.parametrize("name", ["SoftmaxClassifier", "NeighborsClassifier", "CentroidClassifier"])
def test_labels_of_all_blocks_are_of_one_kind(name, rows):
    X, y = rows
    for blocks in ([(X, y), (X, y.astype(str))], [(X, y.astype(str)), (X, y)], [(X[:2], ["a", 1])]):
        with pytest.raises(InputError, match="no common order"):
            getattr(kway, name)().fit_blocks(blocks)
    words = np.array(["a", "bee", "c"])[y]  # as wide as the widest, in whatever order they come
    sorted_blocks = [(X[words == word], words[words == word]) for word in ("a", "bee", "c")]
    assert list(getattr(kway, name)().fit_blocks(sorted_blocks).classes_) == ["a", "bee", "c"]
    parts = [slice(at, at + 50) for at in range(0, N, 50)]
    room, own = np.empty_like(X[:50]), np.empty_like(y[:50])
    filled = (np.copyto(room, X[part]) or np.copyto(own, y[part]) or (room, own) for part in parts)
    reused, fresh = (getattr(kway, name)().fit_blocks(given) for given in (filled, ((X[p], y[p]) for p in parts)))
    np.testing.assert_array_equal(reused.predict(X), fresh.predict(X))
    empty = [(X[:0], y[:0]), (X, y), (X[:0], [])]
    assert list(getattr(kway, name)().fit_blocks(empty).classes_) == [0, 1, 2]


@pytest.mark.parametrize("name", ["SoftmaxClassifier", "NeighborsClassifier"])
def test_blocks_that_are_none_are_refused(name, rows):
    X, y = rows
    refused = [((X[0], y), "shape"), ((X.astype(str), y), "dense")]
    if name == "NeighborsClassifier":  # codes are of dense rows; linear classifiers learn from sparse ones too
        refused.append(((sp.csr_matrix(X), y), "dense"))
    for block, said in refused:
        with pytest.raises(InputError, match=said):
            getattr(kway, name)().fit_blocks([block])
    with pytest.raises(InputError, match="columns"):
        getattr(kway, name)().fit_blocks([(X, y), (X[:, 1:], y)])


def test_passes_over_rows_in_files_hold_few_of_them(tmp_path):
    n, d = 400_000, 60
    rng, W = np.random.default_rng(0), np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)

    def blocks():
        for _ in range(20):
            X = rng.standard_normal((n // 20, d), dtype=np.float32)
            yield X, (X @ W + rng.normal(size=(len(X), 5))).argmax(axis=1)

    tracemalloc.start()
    model = kway.SoftmaxClassifier(tol=1e-2).fit_blocks(blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 4 * n * d, peak
    X, y = next(blocks())
    assert model.score(X, y) > 0.75


@pytest.mark.parametrize("solver", ["sampled", "sgd"])
def test_whole_fits_of_a_memory_map(solver, rows, folders):
    X, y = rows
    mapped = np.load(folders["memmap"], mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (
            kway.SoftmaxClassifier(solver=solver, batch_size=32, max_iter=5, random_state=0).fit(rows, y)
            for rows in (mapped, X)
        )
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)


@pytest.fixture(scope="module")
def model(rows, folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("model")
    code = run(["fit", str(folders["parquet"]), "--target", "kind", "--model", "softmax,centroid", "--folds", "2",
                "--out", str(out / "m.kway"), "--report", str(out / "r.html"), "--json"])  # fmt: skip
    assert code == 0
    return out / "m.kway"


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_evaluate_and_predict(kind, model, rows, folders, tmp_path, capsys):
    X, y = rows
    expected = kway.load(model).predict(pa.table({name: X[:, j] for j, name in enumerate(NAMES)}))
    assert run(["evaluate", str(model), str(folders[kind]), "--target", "kind", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["accuracy"] == pytest.approx((expected == y).mean())
    assert run(["predict", str(model), str(folders[kind]), "--out", str(tmp_path / "p.csv")]) == 0
    found = pyarrow.csv.read_csv(tmp_path / "p.csv")
    assert found.num_rows == N
    answers = found.column(next(c for c in found.column_names if "predict" in c or "label" in c or "class" in c))
    np.testing.assert_array_equal(answers.to_numpy(), expected)


@pytest.mark.parametrize("kind", ["npy", "parquet", "csv"])
def test_fit_of_a_folder(kind, folders, tmp_path, capsys):
    target = [] if kind == "npy" else ["--target", "kind"]
    out = ["--out", str(tmp_path / "m.kway"), "--report", str(tmp_path / "r.html")]
    assert run(["fit", str(folders[kind]), *target, "--model", "centroid", "--folds", "2", "--json", *out]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["data"]["train_rows"] + said["data"]["test_rows"] == N
    assert said["test"]["accuracy"] > 0.9
