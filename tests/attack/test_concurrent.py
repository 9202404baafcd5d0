"""Threads that read a model or an index while another thread changes it see a state before or after a change, never
between (kway/versions.py)."""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import kway
from kway import CentroidClassifier, NeighborsClassifier, PerceptronClassifier, SoftmaxClassifier
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks, Sharded
from kway.versions import branch, current, writing

BATCHES, READERS = 12, 3
INDEXES = {
    "flat": Flat(),
    "bytes": Flat(store=Int8()),
    "kdtree": KDTree(),
    "lsh": LSH(4, 5, 3),
    "landmarks": Landmarks(20, 4),
    "bit cells": Landmarks(20, 4, store=Bits(1)),
    "sharded": Sharded(Flat(), 3),
}
MODELS = {f"neighbors {name}": NeighborsClassifier(5, index=recipe) for name, recipe in INDEXES.items()} | {
    "centroids": CentroidClassifier(),
    "cosine centroids": CentroidClassifier("cosine"),
    "centroids in an index": CentroidClassifier(index=Flat()),
    "softmax": SoftmaxClassifier(random_state=0),
    "perceptron": PerceptronClassifier(random_state=0),
}


class Batch(NamedTuple):
    X: NDArray[np.float32]
    y: NDArray[np.int64]


def draw(n: int, seed: int, n_classes: int = 5) -> Batch:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    X = rng.normal(size=(n, 12)).astype(np.float32)
    X[np.arange(n), y] += 2
    return Batch(X, y)


FIRST, QUERIES = draw(600, 0), draw(60, 1).X
MORE = [draw(40, 2 + i, n_classes=5 + (i >= 6)) for i in range(BATCHES)]  # a new class comes in the middle


def answer(model: Any) -> bytes:
    """The scores of all classes, and all that they are computed from."""
    scores = model.predict_proba(QUERIES) if hasattr(model, "predict_proba") else model.decision_function(QUERIES)
    return bytes(np.ascontiguousarray(scores).tobytes())


def fresh(name: str) -> Any:
    model = pickle.loads(pickle.dumps(MODELS[name]))
    return model.partial_fit(*FIRST, classes=np.arange(6) if name in ("softmax", "perceptron") else None)


def watch(read: Callable[[], Any], write: Callable[[int], Any]) -> list[list[Any]]:
    """Return what each thread reads while `write` is called with 0, 1, ..., and afterwards."""
    done, errors = threading.Event(), list[BaseException]()
    seen: list[list[Any]] = [[] for _ in range(READERS)]

    def look(found: list[Any]) -> None:
        try:
            while not done.is_set():
                found.append(read())
            found.append(read())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look, args=(found,)) for found in seen]
    for thread in threads:
        thread.start()
    try:
        for i in range(BATCHES):
            write(i)
            time.sleep(0.002)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not errors, errors[0]
    return seen


def check(seen: list[list[Any]], states: list[Any]) -> None:
    """Every answer is that of a state, states never go back, and the last answer is that of the last state."""
    for found in seen:
        places = [states.index(one) for one in found if one in states]
        assert len(places) == len(found), f"{len(found) - len(places)} of {len(found)} answers are those of no state"
        assert places == sorted(places)
        assert places[-1] == BATCHES


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_predictions_next_to_partial_fit(name: str) -> None:
    model, states = fresh(name), list[bytes]()
    for batch in [None, *MORE]:
        states.append(answer(model if batch is None else model.partial_fit(*batch)))
    model = fresh(name)
    check(watch(lambda: answer(model), lambda i: model.partial_fit(*MORE[i])), states)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["neighbors flat", "neighbors landmarks", "centroids in an index", "softmax"])
def test_files_saved_next_to_partial_fit_are_whole(name: str, tmp_path: Any) -> None:
    model, states = fresh(name), list[bytes]()
    for batch in [None, *MORE]:
        states.append(answer(model if batch is None else model.partial_fit(*batch)))
    model = fresh(name)

    def save_and_load() -> bytes:
        path = tmp_path / f"{threading.get_ident()}.kway"
        model.save(path)
        return answer(kway.load(path))

    check(watch(save_and_load, lambda i: model.partial_fit(*MORE[i])), states)


@pytest.mark.parametrize("name", INDEXES)
def test_searches_next_to_add_and_remove(name: str) -> None:
    def change(index: Any, i: int) -> None:
        if i % 3 == 2:
            index.remove(np.arange(50 * i, 50 * (i + 1)))  # many: the index is built again
        else:
            index.add(MORE[i].X, ids=10_000 * (i + 1) + np.arange(40))

    def search(index: Any) -> bytes:
        ids, distances = index.nearest(QUERIES, 7)
        return bytes(ids.tobytes() + distances.tobytes())

    index, states = INDEXES[name].build(FIRST.X), list[bytes]()
    states.append(search(index))
    for i in range(BATCHES):
        change(index, i)
        states.append(search(index))
    index = INDEXES[name].build(FIRST.X)
    check(watch(lambda: search(index), lambda i: change(index, i)), states)


def test_two_threads_that_write_lose_nothing() -> None:
    model = NeighborsClassifier(1, index="flat").fit(*FIRST)
    centroids = CentroidClassifier().fit(*FIRST)

    def learn() -> None:
        for batch in MORE:
            model.partial_fit(*batch)
            centroids.partial_fit(*batch)

    threads = [threading.Thread(target=learn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = len(FIRST.X) + 3 * sum(len(batch.X) for batch in MORE)
    assert model.index_.n_rows == total
    assert centroids.weights_.sum() == total


@pytest.mark.parametrize("name", ["neighbors flat", "centroids", "softmax"])
def test_a_partial_fit_that_raises_changes_nothing(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fresh(name)
    before = answer(model)
    with pytest.raises(kway.errors.KwayError):
        model.partial_fit(MORE[0].X[:, :5], MORE[0].y)
    assert answer(model) == before


class Counted:
    def __init__(self) -> None:
        self.value = 0


def test_versions() -> None:
    held = Counted()
    before = current(held)
    with writing(held) as changed:
        changed.value = 1
        assert held.value == 0
    assert held.value == 1
    assert before.value == 0

    def fail() -> None:
        with writing(held) as changed:
            changed.value = 2
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert held.value == 1
    copied = branch(held)
    copied.value = 3
    assert held.value == 1
    assert pickle.loads(pickle.dumps(held)).value == 1
