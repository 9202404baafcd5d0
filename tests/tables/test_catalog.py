"""Data by name: embedded, scikit-learn's, and files of KWAY_DATA."""

import gzip
import hashlib
import os
import runpy
from pathlib import Path

import numpy as np
import pytest

import kway
from kway import datasets
from kway.errors import InputError
from kway.tables.datasets import catalog

FOLDER = os.environ.get("KWAY_DATA", "")
EMBEDDED = Path(catalog.__file__).parent / "embedded"


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("KWAY_DATA", raising=False)


def test_digits_are_balanced_images():
    data = datasets.digits()
    assert data.x_train.shape == (5000, 784)
    assert data.x_test.shape == (1000, 784)
    assert data.x_train.dtype == np.uint8
    assert np.bincount(data.y_train).tolist() == [500] * 10
    assert np.bincount(data.y_test).tolist() == [100] * 10
    assert data.x_train.max() == 255
    assert "CC BY-SA 3.0" in data.description


def test_no_test_digit_is_a_training_digit():
    data = datasets.digits()
    prints = [{hashlib.sha1(row.tobytes()).digest() for row in x} for x in (data.x_train, data.x_test)]
    assert not prints[0] & prints[1]


def test_digits_look_like_digits():
    """The nearest of the ten mean images names most test images: labels and images belong together."""
    data = datasets.digits()
    means = np.stack([data.x_train[data.y_train == c].mean(axis=0) for c in range(10)])
    scores = data.x_test @ means.T - (means**2).sum(axis=1) / 2
    assert (scores.argmax(axis=1) == data.y_test).mean() > 0.75


def test_the_file_is_small_and_has_its_licence_beside_it():
    assert (EMBEDDED / "digits.npz").stat().st_size < 1_500_000
    notice = (EMBEDDED / "digits.LICENCE.txt").read_text()
    assert "Yann LeCun and Corinna Cortes" in notice
    assert "CC BY-SA 3.0" in notice


@pytest.mark.parametrize(
    ("name", "rows", "features", "classes"),
    [("iris", 150, 4, 3), ("wine", 178, 13, 3), ("breast_cancer", 569, 30, 2), ("digits8x8", 1797, 64, 10)],
)
def test_sets_of_scikit_learn(name, rows, features, classes):
    data = datasets.load(name)
    assert len(data.x_train) + len(data.x_test) == rows
    assert abs(len(data.x_test) - rows / 5) <= 1
    assert data.x_train.shape[1] == features == len(data.feature_names)
    assert len(np.unique(data.y_train)) == len(np.unique(data.y_test)) == classes
    np.testing.assert_array_equal(datasets.load(name).x_test, data.x_test)


def test_label_names():
    data = datasets.load("iris")
    assert data.label_names == ("setosa", "versicolor", "virginica")
    assert set(data.named().y_test) == set(data.label_names)
    assert datasets.digits().named().y_test.dtype == np.uint8


def test_every_name_loads():
    for name in datasets.names():
        assert datasets.load(name).name == name


@pytest.mark.parametrize(
    ("name", "hint"), [("digit", "did you mean 'digits'"), ("zebra", "built-in datasets are digits, iris")]
)
def test_unknown_name(name, hint):
    with pytest.raises(InputError, match=hint) as caught:
        datasets.load(name)
    assert "KWAY_DATA" in str(caught.value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    x, y = np.arange(12, dtype=np.float16).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    split = np.array(["train", "train", "val", "val", "test", "test"])
    np.savez(tmp_path / "four.npz", x_train=x[:4], y_train=y[:4], x_test=x[4:], y_test=y[4:], label_names=["a", "b"])
    np.savez(tmp_path / "marked.npz", x=x, y=y, split=split, words=np.array(list("uvwxyz")), other=np.arange(3))
    np.savez(tmp_path / "search.npz", x_base=x[:4], x_query=x[4:], nn_l2=np.zeros((2, 1), int))
    with gzip.open(tmp_path / "texts.csv.gz", "wt") as out:
        out.write("text,label,split\nhello there,hi,train\ngood bye,bye,val\nsee you,bye,test\n")
    with gzip.open(tmp_path / "points.csv.gz", "wt") as out:
        out.write("name,lat,lon\nA,1.5,2\nB,3.5,4\n")
    monkeypatch.setenv("KWAY_DATA", str(tmp_path))
    return tmp_path


def test_npz_with_four_keys(folder):
    data = kway.datasets.load("four")
    assert data.x_train.shape == (4, 2)
    assert data.y_test.tolist() == [0, 1]
    assert data.label_names == ("a", "b")
    assert data.named().y_test.tolist() == ["a", "b"]


def test_npz_with_a_split_column(folder):
    data = datasets.load("marked")
    assert data.x_train.shape == (4, 2)  # train and val
    assert data.x_test.shape == (2, 2)
    assert data.extras["words_test"].tolist() == ["y", "z"]
    assert data.extras["other"].tolist() == [0, 1, 2]


def test_npz_for_search(folder):
    data = datasets.load("search")
    assert (data.x_train.shape, data.x_test.shape, data.y_train) == ((4, 2), (2, 2), None)
    assert data.extras["nn_l2"].shape == (2, 1)


def test_csv_of_texts(folder):
    data = datasets.load("texts")
    assert data.x_train.tolist() == ["hello there", "good bye"]
    assert data.y_test.tolist() == ["bye"]


def test_csv_of_points(folder):
    data = datasets.load("points")
    assert data.x_train.tolist() == [[1.5, 2.0], [3.5, 4.0]]
    assert data.feature_names == ("lat", "lon")
    assert data.extras["name"].tolist() == ["A", "B"]
    assert data.y_train is None


def test_names_of_the_folder_are_listed(folder):
    assert datasets.names()[-5:] == ["four", "marked", "points", "search", "texts"]


def test_a_damaged_file_and_a_wrong_folder(folder, monkeypatch):
    (folder / "broken.npz").write_bytes((folder / "four.npz").read_bytes()[:-50])
    with pytest.raises(InputError, match=r"broken\.npz cannot be read as npz"):
        datasets.load("broken")
    np.savez(folder / "strange.npz", a=np.zeros(2))
    with pytest.raises(InputError, match="has keys a; name the rows x_train"):
        datasets.load("strange")
    np.savez(folder / "odd.npz", x=np.zeros((2, 1)), y=[0, 1], split=["train", "later"])
    with pytest.raises(InputError, match="contains later; its values must be train, val or test"):
        datasets.load("odd")
    monkeypatch.setenv("KWAY_DATA", str(folder / "nowhere"))
    with pytest.raises(InputError, match="not a folder"):
        datasets.names()


def test_pickled_arrays_are_never_opened(folder):
    np.savez(folder / "trap.npz", x_train=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="cannot be read as npz"):
        datasets.load("trap")


@pytest.mark.slow
@pytest.mark.skipif("KWAY_DATA" not in os.environ, reason="KWAY_DATA is not set")
def test_every_file_of_the_folder_loads(monkeypatch):
    monkeypatch.setenv("KWAY_DATA", FOLDER)
    for name in datasets.names():
        data = datasets.load(name)
        assert data.y_train is None or len(data.x_train) == len(data.y_train)
        assert data.y_test is None or len(data.x_test) == len(data.y_test)


@pytest.mark.slow
@pytest.mark.skipif("KWAY_DATA" not in os.environ, reason="KWAY_DATA is not set")
def test_the_digits_are_those_that_the_tool_draws():
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "make_digits.py"))
    digits = datasets.digits()
    with np.load(Path(FOLDER) / "mnist.npz") as mnist:
        for part, per_class, seed in (("train", 500, 0), ("test", 100, 1)):
            rows = tool["balanced"](mnist[f"y_{part}"], per_class, seed)
            np.testing.assert_array_equal(getattr(digits, f"x_{part}"), mnist[f"x_{part}"][rows])
