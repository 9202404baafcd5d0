"""What is saved comes back; what cannot be saved says why."""

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import kway
from kway import modelfile
from kway.errors import ModelFileError
from kway.modelfile import container


def test_round_trip(fitted, model):
    rows = np.random.default_rng(1).standard_normal((50, 4))
    loaded = kway.load(model)
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.n_features_in_ == 4
    assert loaded.n_iter_ == 3
    np.testing.assert_array_equal(loaded.predict(rows), fitted.predict(rows))


def test_arrays_are_read_only_views_of_the_file(model):
    means = kway.load(model).means_
    assert not means.flags.writeable
    assert not means.flags.owndata
    assert means.ctypes.data % means.itemsize == 0


def test_the_safetensors_library_reads_it(fitted, model):
    np.testing.assert_array_equal(load_file(model)["means"], fitted.means_)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 7, 7, 3]),
        np.array([3, 7, 7, 3], np.uint8),
        np.array([0.5, -1.0, 0.5, 0.5]),
        np.array([True, False, True, True]),
        np.array(["é", "", "日本", "日本"]),
        np.array(["a", "bb", "a", "a"], dtype=object),
        np.array([5, 2, 5, 5], dtype=object),
    ],
    ids=["int", "uint8", "float", "bool", "text", "object text", "object numbers"],
)
def test_labels_keep_their_kind(tiny, tmp_path, labels):
    model = tiny().fit(np.eye(4), labels)
    model.save(tmp_path / "m.kway")
    back = kway.load(tmp_path / "m.kway").classes_
    assert back.dtype == model.classes_.dtype
    assert back.tolist() == model.classes_.tolist()
    assert modelfile.info(tmp_path / "m.kway").n_classes == len(model.classes_)


def test_feature_names_come_back(fitted, tmp_path):
    fitted.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)
    fitted.save(tmp_path / "m.kway")
    assert kway.load(tmp_path / "m.kway").feature_names_in_.tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "array",
    [np.arange(12.0).reshape(3, 4).T, np.arange(5, dtype=">i4"), np.zeros((0, 3)), np.float32(2.0).reshape(())],
    ids=["strided", "big-endian", "empty", "no axes"],
)
@pytest.mark.parametrize("mmap", [True, False])
def test_any_layout_of_array(tmp_path, array, mmap):
    container.write(tmp_path / "m.kway", {}, {"means": array})
    back = container.read(tmp_path / "m.kway", mmap=mmap).tensors["means"]
    assert not back.flags.writeable
    assert back.shape == array.shape
    np.testing.assert_array_equal(back, array)


def test_saving_again_over_a_mapped_file_leaves_the_loaded_model_whole(fitted, model):
    loaded = kway.load(model)
    before = loaded.means_.copy()
    loaded.save(model)  # writes the very arrays that are mapped from the old file
    fitted.means_ = fitted.means_ * 0
    fitted.save(model)
    np.testing.assert_array_equal(loaded.means_, before)


def test_a_failed_save_leaves_the_old_file_and_no_rubbish(fitted, model, monkeypatch):
    old = model.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        fitted.save(model)
    assert model.read_bytes() == old
    assert [p.name for p in model.parent.iterdir()] == ["model.kway"]


def test_info_tells_what_is_inside(fitted, tmp_path):
    modelfile.save(fitted, tmp_path / "m.kway", notes={"target": "species"})
    info = modelfile.info(tmp_path / "m.kway")
    assert (info.class_name, info.n_classes, info.n_features) == ("TinyClassifier", 3, 4)
    assert info.params == {"shrink": 0.5, "weights": None, "seed": None}
    assert info.notes == {"target": "species"}
    assert info.kway_version == kway.__version__
    assert info.n_bytes == (tmp_path / "m.kway").stat().st_size
    assert {t.name: (t.dtype, t.shape) for t in info.tensors}["means"] == ("F64", (3, 4))


def test_verify_accepts_an_unaltered_file(fitted, model):
    modelfile.verify(model)
    np.testing.assert_array_equal(kway.load(model, verify=True).means_, fitted.means_)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.random.RandomState(0), "whole number as the seed"),
        (np.random.default_rng(0), "whole number as the seed"),
        (lambda d: 1 / d, "name of a built-in function"),
        (object(), "a part of kway"),
        (np.array([object()]), "dtype object"),
    ],
    ids=["RandomState", "Generator", "function", "object", "object array"],
)
def test_a_parameter_that_cannot_be_stored_says_so(tiny, tmp_path, value, message):
    model = tiny(weights=value).fit(np.eye(2), [0, 1])
    with pytest.raises(ModelFileError, match=message) as caught:
        model.save(tmp_path / "m.kway")
    assert "TinyClassifier(weights=...)" in str(caught.value)
    assert not (tmp_path / "m.kway").exists()


@pytest.mark.parametrize(
    "labels", [np.array([None, "a"], dtype=object), np.array(["2020-01-01", "2021-01-01"], "M8[D]")]
)
def test_labels_that_cannot_be_stored(fitted, tmp_path, labels):
    fitted.classes_ = labels
    with pytest.raises(ModelFileError, match="classes_"):
        fitted.save(tmp_path / "m.kway")


def test_not_fitted_foreign_and_missing_folder(tiny, fitted, tmp_path):
    with pytest.raises(ModelFileError, match="not fitted"):
        tiny().save(tmp_path / "m.kway")
    with pytest.raises(ModelFileError, match="not a classifier of kway"):
        modelfile.save(object(), tmp_path / "m.kway")
    with pytest.raises(ModelFileError, match="no folder"):
        fitted.save(tmp_path / "nowhere" / "m.kway")


def test_one_estimator_packed_into_another(fitted):
    manifest, arrays = modelfile.pack(fitted)
    inner = modelfile.unpack(manifest, arrays)
    np.testing.assert_array_equal(inner.predict(np.eye(4)), fitted.predict(np.eye(4)))


def test_a_subclass_is_not_taken_for_the_class_itself(tiny, tmp_path):
    class TinyClassifier(tiny):
        pass

    with pytest.raises(ModelFileError, match="not a classifier of kway"):
        TinyClassifier().fit(np.eye(2), [0, 1]).save(tmp_path / "m.kway")


def test_the_file_has_the_usual_permissions(model):
    other = model.with_name("other")
    other.write_bytes(b"")
    assert model.stat().st_mode == other.stat().st_mode


def test_reading_a_file_loads_no_pickle_machinery_of_ours():
    code = "import sys, kway.modelfile; sys.exit('joblib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
