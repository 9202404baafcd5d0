"""Queries stay as they are stored: bytes, halves, memory maps, any order: the answers of floats, in bounded memory."""

import tracemalloc

import numpy as np
import pytest

from kway.errors import InputError
from kway.linear import LinearClassifier, SVMClassifier
from kway.neighbors import CentroidClassifier, NeighborsClassifier
from kway.neighbors.exemplar import ExemplarClassifier
from kway.rows.blocks import ConvertedRows, concatenate_rows, row_blocks

RNG = np.random.default_rng(0)
CENTRES = RNG.integers(40, 200, (3, 12))
CODES = np.arange(90) % 3
X = np.clip(CENTRES[CODES] + RNG.normal(scale=40, size=(90, 12)), 0, 255).astype(np.uint8)
Q = RNG.integers(0, 256, (50, 12), dtype=np.uint8)

MODELS = {
    "softmax": LinearClassifier(tol=1e-2),
    "svm": SVMClassifier(multiclass="one-vs-all", alpha=1.0, max_iter=10_000),
    "neighbors": NeighborsClassifier(),
    "neighbors, cosine": NeighborsClassifier(metric="cosine", weights="distance"),
    "centroid": CentroidClassifier(),
    "centroid, cosine": CentroidClassifier(metric="cosine"),
    "exemplar": ExemplarClassifier(n_exemplars=5),
}
OTHER_PAIRS = [
    ("softmax", np.uint8), ("softmax", np.float32), ("svm", np.float16), ("svm", np.float32),
    ("neighbors", np.float16), ("neighbors", np.float32), ("centroid", np.uint8), ("centroid", np.float16),
]  # fmt: skip
ANSWERS = {
    "predict": (), "decision_function": (), "predict_proba": (), "predict_topk": (2,), "kneighbors": (),
    "explain": (), "voters": (),
}  # fmt: skip


def parts(answer):
    """The arrays of an answer; contributions to a score are tested on their own."""
    return [part for part in (answer if isinstance(answer, tuple) else (answer,)) if hasattr(part, "dtype")]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param].fit(X.astype(np.float32), CODES)


def stored_ways(tmp_path):
    np.save(tmp_path / "queries.npy", Q)
    return {
        "bytes": Q,
        "memory map": np.load(tmp_path / "queries.npy", mmap_mode="r"),
        "halves": Q.astype(np.float16),
        "columns first": np.asfortranarray(Q.astype(np.float32)),
        "every other": np.repeat(Q, 2, axis=0)[::2],
        "long integers": Q.astype(np.int64),
        "other byte order": Q.astype(">f4"),
    }


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_are_those_of_floats(model, answer, tmp_path, monkeypatch):
    if not hasattr(model, answer):
        pytest.skip(f"no {answer}")
    monkeypatch.setattr("kway.rows.blocks.BLOCK_BYTES", 8 * 12 * 7)  # blocks of 7 rows
    expected = parts(getattr(model, answer)(Q.astype(np.float32), *ANSWERS[answer]))
    for way, queries in stored_ways(tmp_path).items():
        found = parts(getattr(model, answer)(queries, *ANSWERS[answer]))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype, way
            np.testing.assert_array_equal(one, other, err_msg=way)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_in_any_block_is_named(model, bad, monkeypatch):
    monkeypatch.setattr("kway.rows.blocks.BLOCK_BYTES", 8 * 12 * 7)
    queries = Q.astype(np.float16)
    queries[31, 4] = bad
    for given in (queries, np.asfortranarray(queries.astype(np.float64)), queries.astype(np.float32)):
        with pytest.raises(InputError, match=r"first in row 31, column 4 \(1 values\)"):
            model.predict(given)


def test_the_number_of_columns_is_checked(model):
    with pytest.raises(InputError, match=r"X has 5 features, but .* is expecting 12"):
        model.predict(Q[:, :5])


def test_rows_come_as_floats_in_order():
    given = ConvertedRows(Q[:, ::2], np.dtype(np.float32))
    assert given.shape == (50, 6)
    assert given[3:5].flags.c_contiguous
    np.testing.assert_array_equal(given[[4, 1]], Q[[4, 1], ::2].astype(np.float32))
    blocks = row_blocks(given, 8)
    np.testing.assert_array_equal(concatenate_rows(50, (given[block] for block in blocks)), Q[:, ::2])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("softmax", np.float16), ("svm", np.uint8), ("neighbors", np.uint8), ("centroid", np.float32),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHER_PAIRS),
    ],
)  # fmt: skip
def test_many_queries_take_little_memory(name, kind):
    """100,000 images would be 314 MB as float32, and 627 MB where a step in between is in float64."""
    rows = RNG.integers(0, 256, (60, 784), dtype=np.uint8)
    model = MODELS[name].__class__(**MODELS[name].get_params()).fit(rows, np.arange(60) % 3)
    queries = np.broadcast_to(rows[:1].astype(kind), (100_000, 784))
    model.predict(queries[:10])
    tracemalloc.start()
    for answer in ("predict", "predict_proba", "kneighbors"):
        if hasattr(model, answer):
            getattr(model, answer)(queries)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
