"""Files whose digests are right and whose content is not: refused at load, by name, before anything is allocated."""

import dataclasses
import json
import resource
import time
from typing import Optional

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.errors import ModelFileError
from kway.modelfile import container, value_checks
from kway.modelfile.schema import Array, Schema, StoredObject, check_arrays
from kway.modelfile.schemas import SCHEMAS
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks, Sharded

X = np.random.default_rng(0).normal(size=(60, 6))
Y = np.arange(60) % 3
WEIGHTS = np.where(np.arange(60) % 5, 1.0, 0.0)


@pytest.fixture
def altered(tmp_path):
    """Save a model, alter its arrays and its manifest, sign it again; the path."""

    def alter(model, arrays=None, manifest=None):
        model.save(tmp_path / "whole.kway")
        opened = container.read(tmp_path / "whole.kway")
        kept = {key: value for key, value in opened.manifest.items() if not key.endswith("sha256")}
        tensors = {name: np.array(tensor) for name, tensor in opened.tensors.items()}
        for name, change in (arrays or {}).items():
            if change is None:
                del tensors[name]
            else:
                tensors[name] = change(tensors.get(name))
        container.write(tmp_path / "m.kway", manifest(kept) if manifest else kept, tensors)
        return tmp_path / "m.kway"

    return alter


def near(index="flat", **params):
    return kway.NeighborsClassifier(3, index=index, **params)


def put(value, at=0):
    def change(array):
        array.reshape(-1)[at] = value
        return array

    return change


def sparse():
    return sp.random(60, 6, 0.4, "csr", np.float32, random_state=0)


ARRAYS = {  # what, how the model is made, array, change, what the error names
    "codes beyond the classes": (near, "codes", put(2**31), "'codes'.*expected 0 to 2"),
    "negative codes": (near, "codes", put(-1), "'codes'"),
    "codes for other rows": (near, "codes", lambda a: a[:-1], "59 codes for the 60 rows"),
    "codes as bytes": (near, "codes", lambda a: a.astype(np.int8), "dtype int8"),
    "rows of other columns": (near, "index.rows", lambda a: a[:, :5], "axis 1 of array 'index.rows'.*d = 5"),
    "one row of all": (lambda: near(Flat(store=Int8())), "index.rows", lambda a: a[:1], "m = 1, but elsewhere"),
    "bits of fewer columns": (lambda: near(Flat(store=Bits(2))), "index.codes.signs", lambda a: a[:, :5], "for 5 "),
    "bits without words": (lambda: near(Flat(store=Bits(2))), "index.codes.rest", lambda a: a[:, :0], "and 0 words"),
    "bits without lengths": (lambda: near(Flat(store=Bits(2))), "index.codes.half", lambda a: a[:0], "has codes of"),
    "half floats": (near, "index.rows", lambda a: a.astype(np.float16), "dtype float16"),
    "cells beyond the landmarks": (lambda: near(Landmarks(5, 2)), "index.cells", put(2**28), "'index.cells'.*0 to 4"),
    "a shorter sketch": (lambda: near(Landmarks(5, 2)), "index.landmarks", lambda a: a[:, :3], "expected 6 on axis 1"),
    "no landmarks": (lambda: near(Landmarks(5, 2)), "index.landmarks", lambda a: a[:0], "empty|expected 0 to"),
    "fewer directions": (lambda: near(LSH(2, 3, 1)), "index.directions", lambda a: a[:, :4], "B = "),
    "hyperplanes without a middle": (lambda: near(LSH(2, 3, 1)), "index.middle", lambda a: a[:4], "B = "),
    "a tree of no rows": (lambda: near(KDTree()), "index.rows", None, "'index.rows' missing"),
    "unknown arrays": (near, "more", lambda _: np.arange(3), "'more' unknown"),
    "exemplars without offsets": (kway.ExemplarClassifier, "offsets", lambda a: a[:1], "'offsets'.*n = 1"),
    "exemplars of no class": (kway.ExemplarClassifier, "codes", put(3), "'codes'"),
    "weights of another shape": (kway.SoftmaxClassifier, "coef", lambda a: a[:2], "R = 2, but elsewhere.* 3"),
    "mixed dtypes": (kway.SoftmaxClassifier, "intercept", lambda a: a.astype(np.float32), "mixes dtypes"),
    "margins without support": (kway.SVMClassifier, "support", None, "'support' missing"),
    "centroids that weigh nothing": (kway.CentroidClassifier, "weights", lambda a: a * 0, "'weights'"),
    "labels out of order": (kway.CentroidClassifier, "classes_", lambda a: a[::-1], "ascending order"),
    "labels twice": (kway.CentroidClassifier, "classes_", lambda a: a * 0, "ascending order"),
    "thresholds of other classes": (kway.ConformalClassifier, "thresholds", lambda a: a[:2], "K = 2"),
    "thresholds that are none": (kway.ConformalClassifier, "thresholds", put(np.nan), "NaN"),
    "other labels inside": (kway.ConformalClassifier, "inner.classes_", lambda a: a + 1, "other labels"),
    "weights inside": (kway.TemperatureScaledClassifier, "inner.coef", lambda a: a[:, :2], "'coef'.*d = 2"),
    "bins without edges": (kway.TemperatureScaledClassifier, "before.edges", lambda a: a[:-1], "14 bins|15 edges"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_do_not_fit(altered, case):
    make, name, change, said = ARRAYS[case]
    path = altered(make().fit(X, Y), {name: change})
    with pytest.raises(ModelFileError, match=said):
        kway.load(path)


CSR = {
    "one bit of the columns": ("indices", put(2**30, 5), "'index.rows.indices'.*expected 0 to 5"),
    "negative columns": ("indices", put(-1, 5), "'index.rows.indices'"),
    "columns out of order": ("indices", lambda a: a[::-1], "do not ascend within a row"),
    "offsets that fall": ("indptr", put(10**6, 5), "does not ascend from 0"),
    "offsets of fewer rows": ("indptr", lambda a: np.delete(a, 5), "60 offsets of CSR rows, expected 61"),
    "one value less": ("data", lambda a: a[:-1], "entries of m = "),
    "no columns": ("indices", None, "missing"),
}


@pytest.mark.parametrize("case", CSR)
def test_sparse_rows_that_do_not_fit(altered, case):
    """One flipped bit of these used to end the process."""
    part, change, said = CSR[case]
    path = altered(near().fit(sparse(), Y), {f"index.rows.{part}": change})
    with pytest.raises(ModelFileError, match=said):
        kway.load(path)


def test_sparse_rows_under_a_metric_that_takes_none(altered):
    path = altered(near().fit(sparse(), Y), manifest=lambda kept: in_params("metric", "manhattan")(kept))
    with pytest.raises(ModelFileError, match="has sparse rows"):
        kway.load(path)


@pytest.mark.parametrize(
    ("change", "said"), [(put(48), "twice"), (put(-3), "below 0|expected 0"), (put(60), "expected 0 to 59")]
)
def test_ids_that_do_not_fit(altered, change, said):
    path = altered(near().fit(X, Y, sample_weight=WEIGHTS), {"index.ids": change})
    with pytest.raises(ModelFileError, match=said):
        kway.load(path)


def in_facts(*keys, value):
    """A change of the manifest: one fact, by the names that lead to it."""

    def change(manifest):
        table = manifest["facts"]
        for key in keys[:-1]:
            table = dict(map(tuple, table["items"]))[key] if "items" in table else table[key]
        if "items" in table:
            next(pair for pair in table["items"] if pair[0] == keys[-1])[1] = value
        else:  # the name or the values of a recipe or a metric
            table[keys[-1]] = value
        return manifest

    return change


def in_store(value):
    return in_facts("index", "recipe", "values", "store", value=value)


def in_params(name, value):
    def change(manifest):
        manifest["params"][name] = value
        return manifest

    return change


def in_inner(name, value):
    """A change of the classifier that a classifier is given."""

    def change(manifest):
        manifest["params"]["estimator"]["params"][name] = value
        return manifest

    return change


def around(estimator):
    return kway.ConformalClassifier(estimator)


def two_deep():
    return around(kway.TemperatureScaledClassifier(kway.SoftmaxClassifier()))


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


MANIFEST = {
    "rows that are not there": (near, in_facts("index", "n_rows", value=2**40), "m = 60, but elsewhere"),
    "columns that are not there": (near, in_facts("index", "n_features", value=2**40), "has d ="),
    "a number as text": (near, in_facts("index", "n_rows", value="60"), "n_rows that is '60', expected a whole number"),
    "an unknown index": (near, in_facts("index", "recipe", "name", value="tree"), "unknown index 'tree'"),
    "an unknown metric": (near, in_facts("index", "metric", "name", value="Far"), "search.Far, which is not a part"),
    "a metric of two columns": (near, in_facts("index", "metric", "name", value="Haversine"), "2 columns"),
    "a recipe that is text": (near, in_facts("index", "recipe", value="flat"), "recipe that is 'flat', expected"),
    "a metric of another index": (
        lambda: near("kdtree"),
        in_facts("index", "metric", "name", value="Dot"),
        "KDTree cannot search the metric 'dot'",
    ),
    "a store that is a number": (near, in_store(3), "cannot read"),
    "many shards": (lambda: near(Sharded()), in_facts("index", "recipe", "values", "shards", value=2**40), "shards"),
    "no probes": (lambda: near(Landmarks(5, 2)), in_facts("index", "probes", value=0), "probes that is 0"),
    "long sketches": (lambda: near(Landmarks(5, 2)), in_facts("index", "length", value=2**40), "axis 1"),
    "other codes": (lambda: near(Flat(store=Int8())), in_store(None), "unknown"),
    "a dtype": (kway.CentroidClassifier, in_facts("dtype", value="O"), "one of 'float32', 'float64'"),
    "a unit of 0": (kway.ExemplarClassifier, in_facts("unit", value=0.0), "unit .* is 0.0, expected a"),
    "facts 700 deep": (kway.SoftmaxClassifier, in_facts("n_iter", value=nested(700)), "deeper than"),
    "facts 300 deep": (kway.SoftmaxClassifier, in_facts("n_iter", value=nested(300)), "n_iter .* is a list"),
    "a lone surrogate": (kway.SoftmaxClassifier, in_facts("solver", value="\ud800"), "surrogates"),
    "no neighbors": (near, in_params("n_neighbors", 0), "n_neighbors"),
    "too many neighbors": (near, in_params("n_neighbors", 2**40), "n_neighbors"),
    "threads": (near, in_params("n_jobs", "many"), "n_jobs .* is 'many'"),
    "a loss": (kway.LinearClassifier, in_params("loss", "none"), "loss must be"),
    "a temperature": (kway.SoftmaxClassifier, in_params("temperature", 0.0), "temperature"),
    "a vote": (near, in_params("weights", "all"), "weights"),
    "a score": (kway.OpenSetClassifier, in_params("score_by", "all"), "score_by"),
    "a number within a classifier": (two_deep, in_inner("estimator", 2.5), "estimator .* is 2.5, expected a class"),
    "a list within a classifier": (lambda: around(near()), in_inner("index", [1, 2]), "index .* is a list"),
}  # fmt: skip


@pytest.mark.parametrize("case", MANIFEST)
def test_facts_and_parameters_that_do_not_fit(altered, case):
    make, change, said = MANIFEST[case]
    path = altered(make().fit(X, Y), manifest=change)
    with pytest.raises(ModelFileError, match=said):
        kway.load(path)


def test_a_number_that_no_float_holds(altered, tmp_path):
    path = altered(kway.SoftmaxClassifier().fit(X, Y), manifest=in_params("alpha", 0.123456789))
    content = path.read_bytes()
    start = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + start].replace(b"0.123456789", b"1e999      "[:11])
    path.unlink()
    path.write_bytes(content[:8] + header + content[8 + start :])
    with pytest.raises(ModelFileError):
        kway.load(path)


@pytest.mark.parametrize("dtype", ["<U500000000", "<U99999999", "(9999999,)f8", "f8,f8", "O", "M8[ns]", 8, "f400"])
def test_the_dtype_of_a_parameter(altered, dtype):
    """<U500000000 asked for 6 GB out of a file of 2 kB."""
    value = {"$": "array", "dtype": dtype, "items": {"$": "list", "items": ["1", "2", "3"]}}
    path = altered(kway.SoftmaxClassifier().fit(X, Y), manifest=in_params("class_weight", value))
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ModelFileError):
        kway.load(path)
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


def test_labels_as_wide_as_one_of_them(altered):
    """Fixed-width text of 100,000 labels, one of them of a megabyte, would take 400 GB; they become objects."""
    n, wide = 100_000, 10**6
    offsets = np.concatenate([[0], np.full(n, wide)]).astype(np.int64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = kway.CentroidClassifier().fit(X, np.array(["a", "b", "c"])[Y])
    content = {"classes_.bytes": lambda _: np.full(wide, 97, np.uint8), "classes_.offsets": lambda _: offsets}
    with pytest.raises(ModelFileError, match="not in ascending order"):  # most are empty
        kway.load(altered(model, content))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


def test_only_labels_and_names_are_text(altered):
    def change(manifest):
        manifest["kinds"]["codes"] = "object"
        return manifest

    with pytest.raises(ModelFileError, match="only labels and column names"):
        kway.load(altered(near().fit(X, Y), manifest=change))


def test_every_class_is_declared():
    names = {name for name in kway.__all__ if name.endswith("Classifier")} - {"TinyClassifier"}
    assert set(SCHEMAS) >= names | {"FeaturedClassifier"}


def test_sizes_take_the_value_of_the_first_and_hold_it():
    schema = Schema({}, lambda _: {"a": Array(("int64",), ("n",)), "b": Array(("int64",), ("n", "z*"))})
    stored = StoredObject("X", {}, {}, {"a": np.arange(3), "b": np.zeros((3, 0), np.int64)}, np.arange(2), {})
    check_arrays(schema, stored)
    assert stored.sizes == {"n": 3, "z*": 0}
    with pytest.raises(ModelFileError, match=r"axis 0 of array 'b'.*n = 2, but elsewhere in the file it is 3"):
        check_arrays(
            schema, StoredObject("X", {}, {}, {"a": np.arange(3), "b": np.zeros((2, 1), np.int64)}, np.arange(2), {})
        )


def test_checking_does_not_read_the_rows(tmp_path, monkeypatch):
    """A pass over index arrays: reading rows would show in the values that the check asks for."""
    near().fit(X, Y).save(tmp_path / "m.kway")
    opened = container.read(tmp_path / "m.kway")
    manifest = json.loads(json.dumps(opened.manifest))
    assert manifest["class"] == "NeighborsClassifier"
    tensors = {**opened.tensors, "index.rows": np.full_like(opened.tensors["index.rows"], np.nan)}
    container.write(tmp_path / "n.kway", {k: v for k, v in manifest.items() if not k.endswith("sha256")}, tensors)
    kway.load(tmp_path / "n.kway")  # NaN among the rows is for `verify` to find


def test_images_of_more_values_than_a_picture_has_are_refused():
    from kway.modelfile.schemas.features import _check_image_form

    assert _check_image_form([4096, 4096, 1]) is None
    assert "2^24" in _check_image_form([60_000, 60_000, 1])


def test_problems_name_the_value_and_what_is_expected():
    size = value_checks.whole_number(1)
    assert size(True) == "is True, expected a whole number of at least 1"
    assert (size | value_checks.text(3))("long") == (
        "is 'long', expected a whole number of at least 1 or text of at most 3 characters"
    )
    row = value_checks.json_object({"size": size, "names": value_checks.list_of(value_checks.text())}, ["names"])
    assert row({"size": 2}) is None
    assert row({}) == "has other fields than expected ('size' missing)"
    assert row({"size": 0}) == "has a field size that is 0, expected a whole number of at least 1"
    assert row({"size": 1, "names": [1]}).startswith("has a field names that has an entry that is 1, expected text")


def test_a_field_without_a_check_is_an_error():
    """A type that is not known must not mean that every value is allowed."""

    @dataclasses.dataclass
    class Loose:
        size: int | None
        ratio: Optional[float]  # noqa: UP045
        names: tuple[str, ...]
        options: dict[str, int]

    with pytest.raises(TypeError, match=r"dict\[str, int\] has no check"):
        value_checks.dataclass_object(Loose)
    check = value_checks.dataclass_object(Loose, options=value_checks.plain_dict)
    assert check({"size": None, "ratio": 0.5, "names": ["a"], "options": {}}) is None
    assert "ratio that is 'x'" in check({"size": None, "ratio": "x", "names": [], "options": {}})
