"""Arrays of a model file that are no trees are refused before a kernel reads them."""

import copy

import numpy as np
import pytest

import kway
from kway.errors import ModelFileError
from kway.modelfile import pack, unpack


@pytest.fixture(scope="module")
def packed():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (200, 3)).astype(float)
    y = (X[:, 0] + X[:, 1] > 5).astype(int) + (X[:, 2] > 3)
    model = kway.TreesClassifier(n_trees=3, categorical_features=[1]).fit(X, y)
    manifest, arrays = pack(model)
    assert len(np.unique(arrays["column"])) == 4
    return manifest, arrays, X, model


def at(place, value):
    """A change of one entry."""

    def change(array):
        array[place] = value
        return array

    return change


CHANGES = [
    ("column", at(0, -1), "leaves"),  # nodes that no node leads to
    ("column", at(-1, 0), "leaves"),  # a branch without children
    ("column", at(0, 3), "expected -1 to 2"),
    ("column", at(0, -2), "expected -1 to 2"),
    ("column", lambda a: np.minimum(np.sort(a), 0), "not complete"),  # as many leaves, all of them first
    ("threshold", at(0, np.nan), "NaN"),
    ("share_left", at(0, 1.5), "not from 0 to 1"),
    ("share_left", at(0, np.nan), "not from 0 to 1"),
    ("starts", at(1, 0), "ascending"),
    ("starts", at(0, 1), "does not ascend from 0"),
    ("starts", at(-1, 10**6), "does not ascend from 0"),
    ("leaf_starts", at(1, 10**6), "does not ascend from 0"),
    ("leaf_starts", lambda a: a[:-1], "does not ascend"),
    ("scores", at(0, 3), "expected 0 to 2"),
    ("scores", at(0, -1), "expected 0 to 2"),
    ("values", at(0, np.nan), "NaN"),
    ("values", at(slice(None), 1e308), "above"),
    ("baseline", at(0, np.inf), "infinity"),
    ("category_row", at(0, 1), "expected -1 to 0"),
    ("category_row", lambda a: a[:-1], "d = 2"),
    ("known_categories", lambda a: a[:, :-1], "axis 1"),
    ("left_categories", lambda a: a[:0], "set that it does not contain"),
    ("gap_left", lambda a: a.astype(np.uint8), "dtype"),
]


@pytest.mark.parametrize(
    ("name", "change", "text"), CHANGES, ids=[f"{c[0]}-{c[2][:12]}-{i}" for i, c in enumerate(CHANGES)]
)
def test_altered_arrays_are_refused(packed, name, change, text):
    manifest, arrays, _, _ = packed
    altered = {key: array.copy() for key, array in arrays.items()}
    altered[name] = np.ascontiguousarray(change(altered[name]))
    with pytest.raises(ModelFileError, match=text):
        unpack(copy.deepcopy(manifest), altered)


def test_a_threshold_of_a_category_names_a_set(packed):
    manifest, arrays, _, _ = packed
    node = np.flatnonzero(arrays["column"] == 1)[0]
    for value in (0.5, -1.0, float(len(arrays["left_categories"])), np.inf):
        altered = {key: array.copy() for key, array in arrays.items()}
        altered["threshold"][node] = value
        with pytest.raises(ModelFileError, match="set that it does not contain"):
            unpack(copy.deepcopy(manifest), altered)


def test_the_number_of_columns_is_that_of_the_arrays(packed):
    manifest, arrays, X, model = packed
    loaded = unpack({**copy.deepcopy(manifest), "n_features": None}, arrays)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="2 features"):
        loaded.predict(X[:, :2])


def test_a_forest_of_two_classes_is_no_boosted_model(packed):
    _, _, X, _ = packed
    manifest, arrays = pack(kway.TreesClassifier("extra", n_trees=3).fit(X, X[:, 0] > 2))
    manifest["params"]["kind"] = "boosted"
    with pytest.raises(ModelFileError, match="R = 2"):
        unpack(manifest, arrays)
