"""Kernels before numba is loaded: Python runs the first few numbers, and its answers are those of the compiled ones."""

import json
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import kway
from kway.compute.kernels import jit
from kway.compute.kernels.source_stamp import PACKAGE, _text, source_stamp
from kway.compute.kernels.topk import EMPTY, NOBODY, merge

FIRST = """
import json, sys
import numpy as np
import kway
model = kway.load(sys.argv[1])
queries = np.load(sys.argv[2])
found = [model.kneighbors(queries[i : i + 2]) for i in range(0, len(queries), 2)]
plain = "numba" not in sys.modules
labels, proba = model.predict(queries[:1]), model.predict_proba(queries[:1])
still = "numba" not in sys.modules
many = model.kneighbors(np.tile(queries, (400, 1)))  # more than a few numbers
print(json.dumps([plain, still, "numba" in sys.modules, labels.tolist(), proba.tolist(),
                  np.concatenate([f[1] for f in found]).tolist(), np.concatenate([f[0] for f in found]).tolist()]))
"""


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "nearest last"])
def test_first_answers_need_no_numba(metric, ordered, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.integers(-3, 4, (700, 6)).astype(float)  # few values: many ties, rows twice
    X[::7] *= 1e3
    queries = rng.integers(-3, 4, (6, 6)) + rng.choice([0.0, 0.25], (6, 6))
    if ordered:
        X = X[np.argsort(-np.linalg.norm(X - queries[0], axis=1))]
    model = kway.NeighborsClassifier(9, metric=metric, index="flat", weights="uniform").fit(X, np.arange(700) % 4)
    model.save(tmp_path / "m.kway")
    np.save(tmp_path / "q.npy", queries)
    command = [sys.executable, "-c", FIRST, str(tmp_path / "m.kway"), str(tmp_path / "q.npy")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert not done.stderr
    plain, still, loaded, labels, proba, ids, distances = json.loads(done.stdout)
    assert (plain, still, loaded) == (True, True, True)
    ours = model.kneighbors(queries)
    np.testing.assert_array_equal(ids, ours[1])
    np.testing.assert_allclose(distances, ours[0], rtol=1e-14, atol=1e-14)
    assert labels == model.predict(queries[:1]).tolist()
    np.testing.assert_allclose(proba, model.predict_proba(queries[:1]), rtol=1e-14)


def test_python_runs_a_few_numbers_in_all_and_numba_the_rest(monkeypatch):
    monkeypatch.setattr(jit._Spent, "numbers", 0)
    monkeypatch.delitem(sys.modules, "numba")
    for _ in range(4):
        with jit.plainly(jit.FEW // 4) as plain:
            assert plain
            with jit.plainly(10 * jit.FEW) as inside:  # what is part of it stays plain
                assert inside
    with jit.plainly(1) as plain:
        assert not plain


def test_numba_once_loaded_runs_everything(monkeypatch):
    monkeypatch.setattr(jit._Spent, "numbers", 0)
    import numba  # noqa: F401

    with jit.plainly(1) as plain:
        assert not plain


def test_a_kernel_is_compiled_once_whoever_calls_first():
    distances, ids = np.full((1, 2), EMPTY), np.full((1, 2), NOBODY)
    merge(distances, ids, np.array([[3.0, 1.0, 2.0]]), np.array([[0, 1, 2]]))
    assert sorted(ids[0]) == [1, 2]
    assert merge.compiled is merge.compiled
    assert merge.__doc__ == merge.compiled.py_func.__doc__


CALLED = "BASE = {base}\n\n\ndef base():\n    return BASE\n"
CALLS = "from kway.compute.kernels.{called} import base\n"


@pytest.fixture
def two_modules(tmp_path, monkeypatch):
    """A kernel module that draws on another: what writes the other one's text."""
    names = {"called": "drawn_on_by_a_test", "caller": "drawing_in_a_test"}
    for part, name in names.items():
        module = types.ModuleType(f"{PACKAGE}.{name}")
        module.__file__ = str(tmp_path / f"{part}.py")
        monkeypatch.setitem(sys.modules, module.__name__, module)
    (tmp_path / "caller.py").write_text(CALLS.format(called=names["called"]))

    def stamped(base):
        (tmp_path / "called.py").write_text(CALLED.format(base=base))
        _text.cache_clear()
        source_stamp.cache_clear()
        return source_stamp(f"{PACKAGE}.{names['caller']}")

    yield stamped
    _text.cache_clear()
    source_stamp.cache_clear()


def test_a_stamp_knows_what_a_module_draws_on(two_modules):
    first = two_modules(1)
    assert two_modules(2) != first
    assert two_modules(1) == first


def test_the_stamp_of_a_module_without_a_file():
    assert source_stamp("not loaded") == source_stamp("nor this")


STALE = """
import sys
from kway.compute.kernels import jit
jit.source_stamp = lambda module: sys.argv[1]
from kway.compute.kernels.topk import merge
import numpy as np
merge(np.ones((1, 2)), np.zeros((1, 2), np.int64), np.ones((1, 3)), np.ones((1, 3), np.int64))
stats = merge.compiled.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_a_kernel_kept_from_other_sources_is_not_used(tmp_path):
    """numba itself looks at the kernel's own file only, and would run what an upgrade has changed elsewhere."""
    said = [
        subprocess.run(
            [sys.executable, "-c", STALE, stamp],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        ).stdout.split()
        for stamp in ("before", "before", "after")
    ]
    assert said == [["0", "1"], ["1", "0"], ["0", "1"]]


LOADED = """
import sys
import numpy as np
from kway.data.features.vocabulary import characters, learn_vocabulary
from kway.compute.kernels.topk import merge
terms = learn_vocabulary(characters(["one two", "two three"]), "word").vocabulary.terms  # a kernel that allocates
print(terms, "numba.np.linalg" in sys.modules)
def merged(kind):
    values, ids = np.full((1, 4), -9, kind), np.full((1, 4), -1)
    merge(values, ids, np.zeros((1, 2), kind), np.array([[2, 1]]))
    return values.tolist(), ids.tolist()
print(merged(np.float32))
print(merged(np.float64) if len(sys.argv) > 1 else "not asked")
"""


def test_kernels_are_loaded_without_what_compiles_others(tmp_path):
    def said(*given):
        command, env = [sys.executable, "-c", LOADED, *given], {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    terms = "['one', 'one two', 'three', 'two', 'two three']"
    first = said()
    assert first[0] == f"{terms} True"  # compiled
    again = said("another kind of numbers")  # which is compiled beside those that were loaded
    assert again[:2] == [f"{terms} False", first[1]]
    assert again[2] == first[1]


def test_a_stamp_knows_kernels_that_load_late():
    from kway.compute.kernels import source_stamp

    assert "kway.compute.kernels.gap_sums" in source_stamp._DRAWS_ON.findall(
        source_stamp._text("kway.compute.kernels.distances")
    )
    assert "squares_in_lanes" in source_stamp._text("kway.compute.kernels.gap_sums")
