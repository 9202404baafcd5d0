"""Sparse blocks are learned from in files, as they would be in memory, and memory does not grow with them."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.errors import CombinationError, InputError
from kway.rows import files, sparse
from kway.rows.files import FileCSR, write_sparse_blocks

CLASSES = np.array(["ant", "bee", "cat", "dog"])


def texts(n, d=300, seed=0):
    """Counts of words, of which each class uses some more than the others do, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), n)
    own = rng.integers(0, d // 4, (n, 6)) * 4 + y[:, None]
    columns = np.concatenate([own, rng.integers(0, d, (n, 14))], axis=1)
    X = sp.csr_matrix((np.ones(columns.size, np.float32), (np.repeat(np.arange(n), 20), columns.ravel())), (n, d))
    return X, CLASSES[y]


def blocks(X, y, size=700):
    return ((X[i : i + size], y[i : i + size]) for i in range(0, X.shape[0], size))


@pytest.mark.parametrize(
    "model",
    [
        kway.SoftmaxClassifier(alpha=1e-3, tol=1e-6),
        kway.SVMClassifier(alpha=1e-2, tol=1e-3),
        kway.LogisticClassifier(alpha=1e-2, tol=1e-6),
        kway.SoftmaxClassifier(alpha=1e-2, tol=1e-6, class_weight="balanced"),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("d", [300, 3000])  # with and without a factor of the Hessian
def test_blocks_give_what_all_rows_give(model, d, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 2**16)  # many runs a pass
    X, y = texts(3000, d)
    whole, by_block = (type(model)(**model.get_params()) for _ in range(2))
    whole.fit(X, y)
    by_block.fit_blocks(blocks(X, y))
    assert by_block.objective_ == pytest.approx(whole.objective_, rel=1e-4 + 2 * model.tol)
    fresh, truth = texts(1000, d, seed=1)
    assert (by_block.predict(fresh) == whole.predict(fresh)).mean() > 0.99
    assert by_block.score(fresh, truth) > 0.8
    assert "3,000 rows in files" in by_block.why_


def test_sampled_softmax_learns_from_sparse_blocks():
    X, y = texts(3000)
    model = kway.SoftmaxClassifier(solver="sampled", alpha=1e-3, random_state=0).fit_blocks(blocks(X, y))
    fresh, truth = texts(1000, seed=1)
    assert model.score(fresh, truth) > 0.8


def test_rows_in_files_are_the_rows_given():
    X, y = texts(500)
    messy = X.copy()
    messy.indices[:20] = messy.indices[:20][::-1]  # columns out of order
    messy.has_sorted_indices = messy.has_canonical_format = False
    found = write_sparse_blocks([(messy[:300], y[:300]), (X[300:].tocoo(), y[300:])])
    assert isinstance(found.X, FileCSR)
    assert found.X.indices.dtype == np.int32
    np.testing.assert_array_equal(found.X.toarray()[:300], messy[:300].toarray())
    np.testing.assert_array_equal(found.X[np.array([499, 2])].toarray(), X[[499, 2]].toarray())
    assert not isinstance(found.X[3:9], FileCSR)
    np.testing.assert_array_equal(found.y, y)


def test_blocks_that_cannot_be_joined_say_why(monkeypatch):
    X, y = texts(100)
    model = kway.SoftmaxClassifier()
    with pytest.raises(InputError, match=r"ndarray, the first was sparse"):
        model.fit_blocks([(X, y), (X.toarray(), y)])
    with pytest.raises(InputError, match="a block has 299 columns, the first had 300"):
        model.fit_blocks([(X, y), (X[:, 1:], y)])
    bad = X.copy()
    bad.data[5] = np.nan
    with pytest.raises(InputError, match="X of a block contains NaN"):
        model.fit_blocks([(X, y), (bad, y)])
    monkeypatch.setattr("kway.rows.files.MAX_ENTRIES", 3000)
    with pytest.raises(CombinationError, match="3,000 entries"):
        model.fit_blocks([(X, y), (X, y)])


def test_memory_does_not_grow_with_the_entries(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 2**17)
    monkeypatch.setattr("kway.rows.blocks.BLOCK_BYTES", 2**17)
    monkeypatch.setattr(sparse.SparseRows, "squared_rows", 1000)
    peaks = {}
    for n in (4000, 4000, 40_000):  # kernels and imports first
        tracemalloc.start()
        made = (texts(1000, 2000, seed) for seed in range(n // 1000))
        kway.SoftmaxClassifier(tol=1e-2, max_iter=20, n_jobs=2).fit_blocks(made)  # every thread holds a block
        peaks[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # 36,000 rows more, of 160 bytes of entries each; of each are kept its label, code, place and end
    assert peaks[40_000] - peaks[4000] < 0.6 * 36_000 * 160, peaks


def test_sparse_rows_are_not_sampled_unless_asked(monkeypatch):
    """Every batch of sampled softmax is dense: of texts with 200,000 words it takes minutes an epoch."""
    monkeypatch.setattr("kway.linear.from_files.prefers_sampling", lambda *_, **__: True)
    X, y = texts(1000)
    assert kway.SoftmaxClassifier(tol=1e-2).fit_blocks(blocks(X, y)).solver_ == "lbfgs"
    assert kway.SoftmaxClassifier(tol=1e-2).fit_blocks(blocks(X.toarray(), y)).solver_ == "sampled"
