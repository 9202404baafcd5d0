"""Codes of tensors: made where the rows are, searched there, and never more than a little on the host.

The oracle is the model file, which holds the same codes, read and searched by the CPU.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import kway  # noqa: E402
from kway.errors import BudgetError, InputError  # noqa: E402
from kway.neighbors import NeighborsClassifier  # noqa: E402
from kway.rows.gpu.device import Device  # noqa: E402
from kway.rows.gpu.tensor_rows import TensorRows  # noqa: E402
from kway.search import Bits, Flat, Int8  # noqa: E402
from kway.search.codecs.stores import FULL  # noqa: E402
from kway.search.distances import COSINE, DOT, EUCLIDEAN  # noqa: E402

from .conftest import hostile  # noqa: E402

METRICS = ["euclidean", "cosine", "dot"]
STORES = [Int8(), Int8(rerank=False), Bits(1, miss=1e-9), Bits(1, rerank=False), Bits(2, rerank=False)]
RECIPES = [Flat(store) for store in STORES]
SHARE = 0.01  # of the rows' bytes that may be copied at once


def clustered(n, d, q=50, seed=0):
    rng = np.random.default_rng(seed)
    middles = 3 * rng.standard_normal((20, d))
    names = rng.integers(0, 20, n)
    rows = middles[names] + rng.standard_normal((n, d))
    return rows.astype(np.float32), names % 7, (rows[:q] + 0.3 * rng.standard_normal((q, d))).astype(np.float32)


def estimated(recipe):
    return isinstance(recipe.store, Bits) and not recipe.store.rerank


def little(copied, rows, queries):
    """Nothing that was copied holds more than a hundredth of the rows, or the queries."""
    assert max(size for _, size in copied) <= SHARE * rows.nbytes
    assert queries.shape not in [shape for shape, _ in copied]


@pytest.mark.parametrize(("recipe", "metric"), [(recipe, METRICS[i % 3]) for i, recipe in enumerate(RECIPES)], ids=str)
def test_a_fit_and_its_answers_leave_rows_and_queries_where_they_are(
    by_device, device, copied, recipe, metric, tmp_path
):
    rows, labels, queries = clustered(45_000, 32)
    there, asked = device.put(rows), device.put(queries)
    copied.clear()
    model = NeighborsClassifier(5, metric=metric, index=recipe, device="cuda").fit(there, labels)
    answers = model.predict(asked), model.predict_proba(asked), *model.predict_topk(asked, 2), *model.kneighbors(asked)
    little(copied, rows, queries)
    assert all(isinstance(answer, torch.Tensor) and answer.device == asked.device for answer in answers)
    assert "device under test" in model.index_.why_
    labels_found, shares, _, _, distances, ids = map(device.fetch, answers)
    model.save(tmp_path / "model.kway")
    again = kway.load(tmp_path / "model.kway")
    away, names = again.kneighbors(queries)
    if estimated(recipe):  # float32 estimates tie to a digit or two, and the CPU may lose a row
        assert (ids == names).mean() > 0.95
        assert (distances <= away + 1e-3 * np.abs(away) + 0.02).all()
        return
    np.testing.assert_array_equal(ids, names)
    np.testing.assert_allclose(distances, away, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(labels_found, again.predict(queries))
    np.testing.assert_allclose(shares, again.predict_proba(queries), rtol=1e-6)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_an_index_of_tensors_answers_arrays_grows_and_goes_to_the_cpu(by_device, device, recipe):
    rows, _, queries = clustered(900, 24, seed=1)
    index = by_device(recipe).build(device.put(rows))
    found, here = index.nearest(device.put(queries), 4), index.nearest(queries, 4)
    np.testing.assert_allclose(device.fetch(found.distances), here.distances, rtol=1e-4, atol=0.02)
    assert (device.fetch(found.ids) == here.ids).mean() > (0.95 if estimated(recipe) else 0.999)
    oracle = type(recipe).restore(*index.parts())
    for live in (index, oracle):
        live.remove([0, 5, 77])
        live.add(rows[:40] + 1)
    np.testing.assert_array_equal(index.nearest(queries, 4).ids, oracle.nearest(queries, 4).ids)
    index.to("cpu")
    np.testing.assert_array_equal(index.nearest(queries, 4).ids, oracle.nearest(queries, 4).ids)


@pytest.mark.parametrize("distance", [EUCLIDEAN, COSINE, DOT], ids=str)
@pytest.mark.parametrize("store", [Bits(1), Bits(2), Bits(4), Int8(rerank=False)], ids=str)
def test_codes_made_there_are_the_cpus_up_to_rounding(device, store, distance):
    rows = hostile("zeros among them", 500, 70) + np.float32(0 if distance == COSINE else 0.5)
    found = (store or FULL).store_on_gpu(TensorRows(device.put(rows)), distance).codes
    expected = store.encode(rows, distance)
    assert found.shape == expected.shape
    for name, array in expected.arrays().items():
        own = found.arrays()[name]
        assert own.dtype == array.dtype
        if own.dtype == np.uint64:
            assert np.unpackbits((own ^ array).view(np.uint8)).sum() < 2e-3 * 64 * own.size + 1
        else:
            # of several grids as good as each other another may be chosen
            np.testing.assert_allclose(own, array, rtol=2e-2, atol=1 if own.dtype == np.int8 else 1e-3)


def test_weights_of_zero_and_float64(by_device, device, copied):
    rows, labels, queries = clustered(6000, 16, seed=2)
    weight = np.ones(6000)
    weight[::3] = 0
    for kind in (np.float32, np.float64):
        there, asked = device.put(rows.astype(kind)), device.put(queries.astype(kind))
        model = NeighborsClassifier(3, device="cuda")
        copied.clear()
        distances, ids = model.fit(there, labels, sample_weight=weight).kneighbors(asked)
        assert not [shape for shape, _ in copied if shape == there.shape]
        assert distances.dtype == asked.dtype
        oracle = NeighborsClassifier(3).fit(rows.astype(kind), labels, sample_weight=weight)
        np.testing.assert_array_equal(device.fetch(ids), oracle.kneighbors(queries.astype(kind))[1])


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_too_little_memory_is_an_error_with_figures_and_nothing_half_fitted(by_device, device, recipe, monkeypatch):
    rows, labels, _ = clustered(500, 24)
    there = device.put(rows)
    model = NeighborsClassifier(index=recipe, device="cuda").fit(there, labels)
    monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
    with pytest.raises(BudgetError, match=r"500 rows x 24 columns needs .* GiB free; use device='cpu'"):
        model.fit(there, labels)
    assert not hasattr(model, "index_")


def test_memory_that_runs_out_on_the_way_is_the_same_error(by_device, device, monkeypatch):
    from kway.rows.gpu import bit_codes as codes_of_tensors

    def none_left(*args):
        raise torch.OutOfMemoryError("none left")

    rows, labels, _ = clustered(500, 24)
    model = NeighborsClassifier(index=Flat(Bits(1)), device="cuda")
    there = device.put(rows)
    monkeypatch.setattr(codes_of_tensors, "_words", none_left)
    with pytest.raises(BudgetError, match="500 rows x 24 columns needs"):
        model.fit(there, labels)
    assert not hasattr(model, "index_")


def test_odd_tensors_are_refused_as_arrays_are(by_device, device):
    rows, labels, _ = clustered(300, 6)
    bad = rows.copy()
    bad[3, 2] = np.nan
    for recipe in (Flat(), Flat(Bits(1, rerank=False)), Flat(Int8())):
        for given, words in ((bad, "NaN"), (rows[:, 0], "2D"), (rows[:0], "0 sample"), (rows[:7], "inconsistent")):
            model = NeighborsClassifier(index=recipe, device="cuda")
            with pytest.raises(InputError, match=words):
                model.fit(device.put(given), labels)
            assert not hasattr(model, "index_")
        whole = NeighborsClassifier(1, index=recipe, device="cuda").fit(
            device.put((10 * rows).astype(np.int32)), labels
        )
        assert len(whole.predict(device.put(rows[:5]))) == 5


def test_auto_says_why(device):
    rows, labels, _ = clustered(300, 6)
    for recipe in (Flat(), Flat(Bits(1)), Flat(Int8())):
        model = NeighborsClassifier(index=recipe, device="auto").fit(device.put(rows), labels)
        assert "on the CPU: too small" in model.index_.why_
