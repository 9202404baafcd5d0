"""n_jobs=1 is one thread: every estimator, index and store, fitted, built, grown and asked.

The pool takes no work, so that whoever asks it fails. BLAS is watched at every call of a function of kway's: it may
have more than one thread only in what passes a call on to where n_jobs is known (DOORS, PASS_ON).
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from tests.helpers.models import ESTIMATORS, small
from threadpoolctl import ThreadpoolController, threadpool_limits

import kway
from kway import threads
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks, Sharded

HOME = str(Path(kway.__file__).parent)
DOORS = ("threads.py", "versions.py", "base/classifier.py", "parameters.py", "rows/gpu/device.py")
PASS_ON = {"fit", "fit_blocks", "partial_fit", "predict", "predict_topk", "decision_function", "predict_proba"}
PASS_ON |= {"build", "nearest", "search", "add", "n_rows", "_threads", "_tensor", "_forget", "score"}
PASS_ON |= {"states_probabilities", "_check_probabilities", "inner_has", "_unfitted"}
PASS_ON |= {"learns_by_epochs", "_check_partial_fit"}

MODELS = [
    *(
        small(e, n_jobs=1)
        for e in ESTIMATORS
        if "n_jobs" in inspect.signature(e).parameters and e is not kway.TreesClassifier
    ),
    *(kway.TreesClassifier(kind, n_trees=5, n_jobs=1) for kind in ("boosted", "extra")),
    *(kway.NeighborsClassifier(metric=metric, n_jobs=1) for metric in ("manhattan", "cosine", "dot")),
    *(kway.NeighborsClassifier(index=index, n_jobs=1) for index in ("landmarks", "lsh", "kdtree")),
    kway.CentroidClassifier(index="landmarks", n_jobs=1),
    *(kway.LinearClassifier(solver=s, n_jobs=1, tol=0.1) for s in ("lbfgs", "proximal", "gradient", "sgd")),
    kway.LinearClassifier(penalty="l1", alpha=1e-3, n_jobs=1, tol=0.1),
    kway.LinearClassifier("hinge", multiclass="one-vs-all", n_jobs=1, tol=0.1),
    kway.LeastSquaresClassifier(targets="number", n_jobs=1),
    kway.LeastSquaresClassifier(alpha=0, n_jobs=1),  # blank pixels: through QR and SVD
    kway.MappedClassifier(kway.CentroidClassifier(), n_jobs=1),
    kway.TemperatureScaledClassifier(kway.CentroidClassifier(n_jobs=1), cv=0.3),
    kway.ConformalClassifier(kway.CentroidClassifier(n_jobs=1)),
    kway.OpenSetClassifier(kway.NeighborsClassifier(n_jobs=1), score_by="distance"),
]
RECIPES = [Flat(), Flat(Int8()), Flat(Int8(rerank=False)), Flat(Bits()), Flat(Bits(4, rerank=False)), KDTree(), LSH()]
RECIPES += [Landmarks(), Landmarks(store=Int8()), Landmarks(store=Bits()), Sharded(Flat(), 3)]


@pytest.fixture
def one_thread(monkeypatch):
    """A watch over what is run inside, on 4 cores with a pool that takes no work and a BLAS of 3 threads."""
    monkeypatch.setattr(threads, "cores", lambda: 4)  # so that 1 is fewer, on any machine
    monkeypatch.setattr(threads, "_pool", None)
    monkeypatch.setattr(threads, "_shared_pool", None)
    with threadpool_limits(3, user_api="blas"):
        yield watched
    with pytest.raises(TypeError, match="NoneType"):
        threads.pmap(abs, [1, 2])


@contextmanager
def watched():
    """Fails where a function of kway's is called while BLAS has more than one thread."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    assert any(library.num_threads > 1 for library in libraries)
    free = set()

    def look(frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(HOME) or PASS_ON & {*code.co_qualname.split(".")}:
            return
        if not code.co_filename.endswith(DOORS) and any(library.num_threads > 1 for library in libraries):
            free.add(f"{Path(code.co_filename).relative_to(HOME)}: {code.co_qualname}")

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert not free, "\n".join(sorted(free))


def small_digits(n):
    """Enough rows for bounds and shares, in 100 columns."""
    digits = kway.datasets.load("digits")
    X = digits.x_train[:n].reshape(n, 28, 28)[:, ::3, ::3].reshape(n, -1).astype(np.float32)
    return X, digits.y_train[:n]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model)[:70])
def test_estimators(model, one_thread):
    X, y = small_digits(3000 if isinstance(model, kway.NeighborsClassifier) else 900)
    model.fit(X[:200], y[:200]).predict(X[:9])  # what is imported on the way is not watched
    with one_thread():
        model.fit(X, y)
        model.predict(X[:600])
        model.predict_topk(X[:600], 2)
        if hasattr(model, "predict_proba"):
            model.predict_proba(X[:600])
        if hasattr(model, "partial_fit"):
            model.partial_fit(X[:300], y[:300])


def test_sparse_and_wide_least_squares(one_thread):
    X, y = sp.random(600, 4100, 0.002, "csr", random_state=0), np.arange(600) % 3
    model = kway.LeastSquaresClassifier(n_jobs=1).fit(X, y)
    with one_thread():
        model.fit(X, y)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_indexes(recipe, metric, one_thread):
    rows = small_digits(3000)[0]
    recipe.build(rows[:200], metric, n_jobs=1).nearest(rows[:9], 3, n_jobs=1)
    with one_thread():
        index = recipe.build(rows, metric, n_jobs=1)
        index.nearest(rows[:300], 3, n_jobs=1)
        index.search(rows[:1], 3, n_jobs=1)
        if not isinstance(recipe, KDTree):
            index.add(rows[:100])
