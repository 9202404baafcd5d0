"""What an outside attack found: each test is the shortest form of one of its scripts, and must not work any more."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.pipeline import make_pipeline

import kway
from kway import (
    CentroidClassifier,
    ConformalClassifier,
    ExemplarClassifier,
    MappedClassifier,
    NaiveBayesClassifier,
    NeighborsClassifier,
    OpenSetClassifier,
    PerceptronClassifier,
    SoftmaxClassifier,
    SVMClassifier,
    TemperatureScaledClassifier,
)
from kway.errors import BudgetError, InputError, KindError, KwayError, ModelFileError
from kway.modelfile import container
from kway.pipelines import FeaturedClassifier
from kway.search import LSH, Bits, Flat, Sharded

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
X, Y = np.abs(RNG.normal(size=(90, 4))), np.arange(90) % 3


def edited(path, model, change):
    """Save a model, change its manifest and its tensors in place, and write the file again."""
    model.save(path)
    opened = container.read(path)
    manifest = copy.deepcopy({key: value for key, value in opened.manifest.items() if not key.endswith("sha256")})
    tensors = {name: np.array(tensor) for name, tensor in opened.tensors.items()}
    change(manifest, tensors)
    container.write(path, manifest, tensors)
    return path


def set_values(**wanted):
    """Set the values of these names, in lists [name, value] and in the fields of recipes, at any depth."""

    def change(value, _=None):
        if isinstance(value, dict):
            value.update({name: wanted[name] for name in value if name in wanted})
            value = list(value.values())
        if isinstance(value, list):
            if len(value) == 2 and isinstance(value[0], str) and value[0] in wanted:
                value[1] = wanted[value[0]]
            for entry in value:
                change(entry)

    return change


# ---- the kernel cache


CACHED = """
import numpy as np
import kway.private_names as names
from kway.kernels.topk import merge
merge(np.ones((1, 2)), np.zeros((1, 2), np.int64), np.ones((1, 3)), np.ones((1, 3), np.int64))
print(sum(merge.stats.cache_hits.values()), sum(merge.stats.cache_misses.values()))
"""


def compiled(folder, code=CACHED):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split(), done.stderr


@pytest.fixture(scope="module")
def kept_kernel(tmp_path_factory):
    """A folder with one compiled kernel."""
    folder = tmp_path_factory.mktemp("kernels")
    assert compiled(folder)[0] == ["0", "1"]
    return folder


@pytest.mark.parametrize(("kind", "damage"), [("nbi", "empty"), ("nbi", "cut"), ("nbc", "cut"), ("nbc", "flipped")])
def test_a_damaged_kernel_cache_is_made_again(kept_kernel, tmp_path, kind, damage):
    shutil.copytree(kept_kernel, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.rglob(f"*.{kind}"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 255
        file.write_bytes({"empty": b"", "cut": bytes(content[:-9]), "flipped": bytes(content)}[damage])
    assert compiled(tmp_path)[0] == ["0", "1"]
    assert compiled(tmp_path)[0] == ["1", "0"]


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path):
    failing = """
from numba.core.caching import IndexDataCacheFile
def full(*_):
    raise OSError(28, "No space left on device")
IndexDataCacheFile._save_data = full
"""
    counts, warned = compiled(tmp_path, failing + CACHED)
    assert counts == ["0", "1"]
    assert "could not store a compiled kernel" in warned


# ---- model files


def test_one_long_label_does_not_widen_the_others(tmp_path):
    labels = [b"%06d" % i for i in range(999)] + [b"L" * 260_000]

    def change(manifest, tensors):
        tensors["classes_.bytes"] = np.frombuffer(b"".join(labels), np.uint8)
        tensors["classes_.offsets"] = np.cumsum([0, *map(len, labels)])
        tensors |= {"coef": np.zeros((1000, 4)), "intercept": np.zeros(1000)}

    model = kway.load(edited(tmp_path / "m.kway", SoftmaxClassifier().fit(X, Y.astype(str)), change))
    assert model.classes_.dtype == object  # 1,000 pointers, not a gigabyte
    assert model.predict(X[:2]).tolist() == ["000000"] * 2
    model.save(tmp_path / "again.kway")
    assert kway.load(tmp_path / "again.kway").classes_.tolist() == model.classes_.tolist()


def test_usual_labels_keep_their_type(tmp_path):
    labels = np.array(["a", "b", "c" * 200])[Y]
    SoftmaxClassifier().fit(X, labels).save(tmp_path / "m.kway")
    assert kway.load(tmp_path / "m.kway").classes_.dtype == labels.dtype


@pytest.mark.parametrize("n_tables", [4096, 1_000_000])
def test_hash_tables_that_the_rows_do_not_need_are_refused(tmp_path, n_tables):
    model = NeighborsClassifier(3, index=Sharded(LSH(2, 4, 2), 1)).fit(X, Y)
    kway.load(edited(tmp_path / "m.kway", model, set_values(n_tables=8)))
    with pytest.raises(ModelFileError, match="hash tables for 90 rows"):
        kway.load(edited(tmp_path / "m.kway", model, set_values(n_tables=n_tables)))


def test_sparse_rows_of_billions_of_columns_are_refused(tmp_path):
    def change(manifest, _):
        set_values(n_features=2**31 - 1)(manifest, _)
        manifest["n_features"] = 2**31 - 1

    with pytest.raises(ModelFileError, match="sparse rows of 2,147,483,647 columns"):
        kway.load(edited(tmp_path / "m.kway", NeighborsClassifier(3).fit(sp.csr_matrix(X), Y), change))


def test_a_million_neighbors_are_refused(tmp_path):
    def change(manifest, _):
        manifest["params"]["n_neighbors"] = 2**20

    with pytest.raises(ModelFileError, match="n_neighbors"):
        kway.load(edited(tmp_path / "m.kway", NeighborsClassifier(3, max_distance=1e9).fit(X, Y), change))


@pytest.mark.parametrize(("index", "value"), [("kdtree", 1e300), ("flat", np.nan)])
def test_rows_that_were_altered_raise_errors_of_kway(tmp_path, index, value):
    rows = RNG.normal(size=(3000, 40))

    def change(_, tensors):
        tensors["index.rows"].flat[::2] = value

    path = edited(tmp_path / "m.kway", NeighborsClassifier(3, index=index).fit(rows, np.arange(3000) % 3), change)
    with pytest.raises(KwayError):
        kway.load(path).predict(rows)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_saving_again_keeps_permissions(tmp_path, mode):
    path = tmp_path / "m.kway"
    model = NeighborsClassifier(1).fit(X, Y)
    before = os.umask(0o022)
    try:
        model.save(path)
        assert path.stat().st_mode & 0o777 == 0o644
        path.chmod(mode)
        model.save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode


def test_long_names_and_nul(tmp_path):
    model = CentroidClassifier().fit(X, Y)
    model.save(tmp_path / ("a" * 240 + ".kway"))
    with pytest.raises(ModelFileError, match="NUL"):
        model.save(str(tmp_path / "a\0b"))


# ---- rows


def loose(kind, value):
    """A sparse matrix with an index out of bounds, which scipy's constructor lets pass."""
    made = sp.coo_matrix(X) if kind == "coo" else sp.bsr_matrix(X, blocksize=(2, 2)) if kind == "bsr" else None
    made = getattr(sp, f"{kind}_matrix")(X) if made is None else made
    (made.col if kind == "coo" else made.indices)[3] = value
    return made


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo"])
@pytest.mark.parametrize("value", [99, -5, 10**8])
def test_sparse_entries_out_of_bounds_are_refused(kind, value):
    models = (
        NeighborsClassifier(3),
        SoftmaxClassifier(),
        CentroidClassifier(),
        NaiveBayesClassifier(),
        SVMClassifier(),
    )
    bad = loose(kind, value)
    for model in (*models, FeaturedClassifier(CentroidClassifier())):
        with pytest.raises(InputError, match="outside its shape"):
            model.fit(bad, Y)
        with pytest.raises(InputError, match="outside its shape"):
            model.fit(sp.csr_matrix(X), Y).predict(bad)
    with pytest.raises(InputError, match="outside its shape"):
        Flat().build(bad)


def test_sparse_offsets_out_of_order_are_refused():
    bad = sp.csr_matrix(X)
    bad.indptr[4] = 10**6
    with pytest.raises(InputError, match="outside its shape"):
        CentroidClassifier().fit(bad, Y)


def test_few_rows_of_many_columns_need_no_square_matrix():
    rows, y = RNG.normal(size=(20, 40_000)).astype(np.float32), np.arange(20) % 2
    model = NeighborsClassifier(1, index="landmarks").fit(rows, y)
    assert (model.predict(rows) == y).all()
    assert ExemplarClassifier().fit(rows, y).score(rows, y) > 0.9
    with pytest.raises(BudgetError, match="map='scales'"):
        MappedClassifier(NeighborsClassifier(1), "mixtures").fit(rows, y)


def test_whitening_from_rows_and_from_columns_agree():
    from kway.neighbors.exemplar import whitening_axes

    rows = RNG.normal(size=(30, 31))
    rows -= rows.mean(axis=0)
    few, many = whitening_axes(rows, 0.1), whitening_axes(np.vstack([rows, rows]), 0.1)  # n < d, and n > d
    np.testing.assert_allclose(few.ridge, many.ridge, rtol=1e-8)
    np.testing.assert_allclose(few.matrix @ few.matrix.T, many.matrix @ many.matrix.T, atol=1e-8)


def test_the_nearest_of_rows_beyond_the_range_of_float32():
    model = NeighborsClassifier(1).fit(np.array([[9e75], [5e75], [1e75]]), ["far", "mid", "near"])
    assert model.predict(np.array([[1.0]], np.float32)).tolist() == ["near"]
    rows = np.tile(np.array([[3e36], [2e36], [2.5e36], [2e36]], np.float32), (1, 260))
    model = NeighborsClassifier(1, metric="manhattan").fit(rows, ["far", "near", "mid", "also near"])
    distances, ids = model.kneighbors(np.zeros((1, 260), np.float32), 4)
    assert ids.tolist() == [[1, 3, 2, 0]]  # equal distances in order of position
    assert (distances == np.finfo(np.float32).max).all()


@pytest.mark.parametrize("index", [Flat(), Flat(store=Bits(1)), Sharded(Flat(store=Bits(1)), 2)])
def test_sparse_queries_of_an_index_of_codes(index):
    model = NeighborsClassifier(3, index=index).fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(sp.csr_matrix(X)), model.predict_proba(X))


def test_features_of_odd_matrices():
    model = FeaturedClassifier().fit(X, Y)
    np.testing.assert_array_equal(model.predict(sp.csr_matrix(X)), model.predict(X))
    batch = pa.RecordBatch.from_pydict({c: X[:, i] for i, c in enumerate("abcd")})
    assert FeaturedClassifier().fit(batch, Y).score(batch, Y) > 0.3
    for odd in (sp.csr_matrix(X.astype(complex)), [[1.0, 2.0], [1.0]] * 45, sp.csr_matrix((0, 3))):
        with pytest.raises(InputError, match="X must be a table, or numbers"):
            FeaturedClassifier(CentroidClassifier()).fit(odd, Y)


def test_explain_of_a_pipeline_that_names_no_columns(tmp_path):
    kway.save(make_pipeline("passthrough", SoftmaxClassifier()).fit(X, Y), tmp_path / "m.kway")
    assert kway.explain(kway.load(tmp_path / "m.kway")).columns[0][0].startswith("x")


def test_a_perceptron_of_tiny_values_is_refused_in_fit():
    with pytest.raises(InputError, match="overflow"):
        PerceptronClassifier().fit(RNG.normal(size=(60, 2)) * 5e-320, np.arange(60) % 5)


def test_more_neighbors_than_rows():
    model = NeighborsClassifier(9).fit(np.eye(6), [0, 0, 0, 0, 1, 1])
    for ask in (model.predict, model.predict_proba, model.kneighbors, model.explain):
        with pytest.raises(InputError, match="n_neighbors = 9, n_samples_fit = 6"):
            ask(np.eye(6)[:2])


# ---- labels, weights and the predicted class


@pytest.mark.parametrize("y", [["a", None], np.array(["a", None], object), [1, None], ["a", 1], [None, None]])
def test_labels_that_mix_types_are_refused_everywhere(y):
    rows = [[0.0], [1.0]]
    for model in (NeighborsClassifier(1), CentroidClassifier(), SoftmaxClassifier()):
        with pytest.raises(InputError):
            model.fit(rows, y)
        with pytest.raises(InputError):
            type(model)().partial_fit(rows, ["a", "b"], classes=y)
        with pytest.raises(InputError):
            type(model)().partial_fit(rows, ["a", "b"]).partial_fit(rows, y)


WRAPPERS = [
    TemperatureScaledClassifier(cv=0.5, random_state=0),
    ConformalClassifier(cv=0.5, random_state=0),
    OpenSetClassifier(cv=0.5, random_state=0),
    MappedClassifier(SoftmaxClassifier()),
]


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda w: type(w).__name__)
def test_wrappers_pass_weights_on(wrapper):
    weight = RNG.uniform(0.1, 5, 90)
    plain, weighted, same = (sklearn.clone(wrapper).fit(X, Y, sample_weight=w) for w in (None, weight, np.ones(90)))
    assert abs(plain.estimator_.coef_ - weighted.estimator_.coef_).max() > 1e-3
    np.testing.assert_allclose(plain.estimator_.coef_, same.estimator_.coef_, atol=1e-6)
    for bad, error in (
        (weight[1:], "shape"),
        (np.full(90, "x"), "could not convert"),
        (-weight, "Negative|above zero for fewer"),
    ):
        with pytest.raises(InputError, match=error):
            sklearn.clone(wrapper).fit(X, Y, sample_weight=bad)
    with pytest.raises(TypeError, match="unknown"):
        sklearn.clone(wrapper).fit(X, Y, unknown=1)


def test_weights_of_the_training_part_reach_the_estimator():
    weight = RNG.uniform(0.1, 5, 90)
    pairs = [(np.arange(60), np.arange(60, 90))]
    model = ConformalClassifier(SoftmaxClassifier(), cv=pairs).fit(X, Y, sample_weight=weight)
    alone = SoftmaxClassifier().fit(X[:60], Y[:60], sample_weight=weight[:60])
    np.testing.assert_array_equal(model.estimator_.coef_, alone.coef_)


def test_weights_without_a_use_are_refused():
    weight = np.ones(90)
    inner = ExemplarClassifier()
    for model in (inner, TemperatureScaledClassifier(inner), MappedClassifier(inner)):
        with pytest.raises(KindError, match="sample_weight"):
            model.fit(X, Y, sample_weight=weight)
        model.fit(X, Y, sample_weight=None)
    with pytest.raises(InputError, match="prefit"):
        ConformalClassifier(SoftmaxClassifier().fit(X, Y), cv="prefit").fit(X, Y, sample_weight=weight)


def test_metadata_routing():
    weight = RNG.uniform(0.1, 5, 90)
    wanted = TemperatureScaledClassifier(cv=0.5).fit(X, Y, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = SoftmaxClassifier().set_fit_request(sample_weight=True)
        routed = TemperatureScaledClassifier(asked, cv=0.5).fit(X, Y, sample_weight=weight)
        np.testing.assert_array_equal(routed.predict_proba(X), wanted.predict_proba(X))
        with pytest.raises(ValueError, match="sample_weight"):
            TemperatureScaledClassifier(SoftmaxClassifier(), cv=0.5).fit(X, Y, sample_weight=weight)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("index", [None, Flat()])
def test_the_predicted_class_has_the_largest_probability(metric, index):
    rng, y = np.random.default_rng(0), np.arange(300) % 60
    rows = (3.0 * y[:, None] * rng.normal(size=(1, 2)) + rng.normal(size=(300, 2))).astype(np.float32)
    model = CentroidClassifier(metric, index=index).fit(rows, y)
    np.testing.assert_array_equal(model.predict(rows), model.classes_[model.predict_proba(rows).argmax(axis=1)])


@pytest.mark.parametrize(("n", "n_classes", "dtype"), [(150_000, 60, np.float32), (500, 5000, np.float32)])
def test_classes_that_nearly_tie_in_many_blocks(n, n_classes, dtype):
    rng, model = np.random.default_rng(0), SoftmaxClassifier()
    rows, weights = rng.normal(size=(n, 33)).astype(dtype), rng.normal(size=(n_classes, 33)).astype(dtype)
    weights[1::2] = weights[::2] * dtype(1 + 1e-7)  # every class twice, but for rounding
    model.classes_, model.coef_, model.intercept_ = np.arange(n_classes), weights, np.zeros(n_classes, dtype)
    model.n_features_in_ = 33
    np.testing.assert_array_equal(model.predict(rows), model.predict_proba(rows).argmax(axis=1))


# ---- threads


def test_no_thread_of_arrow_keeps_a_handler(tmp_path, monkeypatch):
    """A thread that releases a Python object while Python ends aborts the process."""
    import weakref

    from kway.tables.sources import csv_files, text_form

    handlers, options = [], csv_files.pa.csv.ParseOptions

    def noted(**given):
        handlers.append(weakref.ref(given["invalid_row_handler"]))
        return options(**given)

    monkeypatch.setattr(csv_files.pa.csv, "ParseOptions", noted)
    path = Path(tmp_path / "header.csv")
    path.write_text("a,b,y\n")
    for _ in range(1500):  # without the wait, a handler was alive after 1 of 60 calls
        csv_files.read_csv(path, "header.csv", text_form.EVERYTHING)
        assert handlers.pop()() is None
