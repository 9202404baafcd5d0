"""Transfer: every rule against its definition, with the row that the payload came from."""

import numpy as np
import pandas as pd
import pytest

import kway
from kway.errors import CombinationError, InputError
from kway.neighbors import NeighborsClassifier, transfer

X = [[0.0], [1.0], [2.0], [10.0]]


@pytest.fixture
def model():
    return NeighborsClassifier(3, weights="distance").fit(X, ["a", "a", "b", "b"])


def test_the_name_is_the_function_whatever_was_imported_before():
    from kway.neighbors import Transferred, transfer

    assert callable(transfer)
    assert Transferred.__module__ == transfer.__module__


def test_texts_come_from_the_nearest_row(model):
    given = transfer(model, [[1.9], [8.0]], ["zero", "one", "two", "ten"])
    assert given.payloads == ["two", "ten"]
    assert given.sources.tolist() == [2, 3]
    np.testing.assert_allclose(given.weights.sum(axis=1), 1)


def test_the_mean_of_arrays_is_weighted(model):
    masks = np.random.default_rng(0).random((4, 5, 6))
    given = transfer(model, [[1.75]], masks, rule="mean")
    w = np.array([1 / 0.25, 1 / 0.75, 1 / 1.75])
    want = np.tensordot(w / w.sum(), masks[[2, 1, 0]], 1)
    np.testing.assert_allclose(given.payloads[0], want)
    assert given.sources.tolist() == [-1]
    assert float(transfer(model, [[1.75]], [1.0, 1.0, 1.0, 5.0], rule="mean").payloads[0]) == pytest.approx(1.0)


def test_the_majority_is_by_weight_and_its_source_is_the_nearest_that_has_it(model):
    given = transfer(model, [[1.3]], ["sea", "land", "sea", "sky"], rule="majority")
    assert given.payloads == ["land"]  # 1 / 0.3 against 1 / 0.7 + 1 / 1.3
    even = NeighborsClassifier(3).fit(X, [0, 0, 1, 1])
    given = transfer(even, [[1.3]], ["sea", "land", "sea", "sky"], rule="majority")
    assert given.payloads == ["sea"]
    assert given.sources.tolist() == [2]


def test_the_medoid_is_closest_to_the_others():
    index = kway.search.Flat().build(np.array(X))
    payloads = [np.array([0.0, 0.0]), np.array([9.0, 9.0]), np.array([1.0, 0.0]), np.array([7.0, 7.0])]
    given = transfer(index, [[1.1]], payloads, rule="medoid", k=3)  # rows 1, 2, 0
    assert given.sources.tolist() == [2]
    texts = ["abc", "xyz", "abd", ""]
    differ = transfer(
        index, [[1.1]], texts, rule="medoid", k=3, distance=lambda p, q: sum(a != b for a, b in zip(p, q))
    )
    assert differ.payloads == ["abd"]


def test_records_keep_their_identity():
    index = kway.search.Flat().build(np.array(X))
    records = [{"id": i} for i in range(4)]
    assert transfer(index, [[0.1]], records).payloads[0] is records[0]


def test_payloads_of_pandas_are_read_by_position():
    index = kway.search.Flat().build(np.array(X))
    payloads = pd.Series(["cat", "dog", "ship", "car"], index=[3, 0, 2, 1])
    assert transfer(index, [[0.1], [9.0]], payloads).payloads == ["cat", "car"]
    assert transfer(index, [[9.0]], payloads.to_frame(0)).payloads[0].tolist() == ["car"]


def test_nobody_near_enough_gives_nothing():
    model = NeighborsClassifier(2, max_distance=1.0, outlier_label="?").fit(X, ["a", "a", "b", "b"])
    for rule in ("nearest", "medoid", "mean", "majority"):
        given = transfer(model, [[50.0]], [1.0, 2.0, 3.0, 4.0], rule=rule)
        assert given.payloads == [None]
        assert given.sources.tolist() == [-1]


@pytest.mark.parametrize(
    ("rule", "payloads", "error", "message"),
    [
        ("best", ["a"] * 4, InputError, "unknown rule"),
        ("mean", ["a"] * 4, CombinationError, "numeric"),
        ("mean", [[1.0], [1.0], [1.0, 2.0], [1.0]], CombinationError, "one shape"),
        ("medoid", ["a"] * 4, CombinationError, "distance="),
        ("majority", [{}] * 4, CombinationError, "compared"),
        ("nearest", ["a"], InputError, "payloads"),
    ],
)
def test_what_cannot_work_is_refused(model, rule, payloads, error, message):
    with pytest.raises(error, match=message):
        transfer(model, [[1.5]], payloads, rule=rule)
