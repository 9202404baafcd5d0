"""Search through bytes: bounds hold for every pair, answers are brute force's; Triton's interpreter without a GPU.

Run by itself where there is no GPU: TRITON_INTERPRET=1 must be set before Triton is loaded.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.utils.fixes import parse_version

from .conftest import HOSTILE, hostile

METRICS = ["euclidean", "cosine", "dot"]


def rows_on(device, rows, metric):
    from kway.rows.gpu.exact_search import METRICS, ExactRows

    return ExactRows.build(device, device.put(rows), METRICS[metric])


def check_bounds(device, kind, metric):
    """Every score lies between the two bounds that the kernels compute from its int8 product."""
    from kway.rows.gpu.int8_search import Int8Tiles

    d = 40
    data = hostile(kind, 1000, d)
    rows = rows_on(device, data, metric)
    tiles = Int8Tiles.build(rows)
    queries = device.put(np.concatenate([data[:50], data[:50] * np.float32(1.3) + np.float32(0.01)]))
    int8 = tiles.quantize(queries, float("inf"))
    fetch = lambda t: device.fetch(t).astype(np.float64)  # noqa: E731
    assert not fetch(int8.flags).any()
    digits = fetch(int8.digits)[:, :100]
    order = device.fetch(tiles.order).reshape(-1, 128)
    sides = [fetch(rows.metric.operand(x, rows.center)) for x in (queries, rows.rows)]
    scores = sides[0] @ sides[1].T - fetch(rows.metric.offsets(device.put(np.square(sides[1]).sum(1))))
    c, up, low = fetch(int8.constants)[:, :100, None], fetch(tiles.upper), fetch(tiles.lower)
    t = fetch(int8.steps)[:, None]
    for error, values in ((c[3], digits[0]), (c[4], digits[0] + digits[1] / 254)):
        products = np.einsum("qd,trd->tqr", values, fetch(tiles.values))  # (nt, q, 128)
        for i in range(len(order)):
            real = order[i] >= 0
            true = scores[:, order[i][real]]
            above = (products[i] + c[1] * up[i, 1] + c[2] * up[i, 2] + error * up[i, 3])[:, real] / up[i, 0] * t
            below = (products[i] * low[i, 0] - c[1] * low[i, 1] - c[2] * low[i, 2] - error * low[i, 3])[:, real] * t
            assert (above >= true).all()
            assert (below <= true).all()


def check_answers(device, n, d, k, kind, metric, cap=None, shared=232448, small_pairs=2**24):
    """Compare ids and distances of the search behind the filter with those of every row in float64."""
    from kway.rows.gpu import int8_search
    from kway.rows.gpu.tile_plans import plan_int8

    rng = np.random.default_rng(5)
    data = hostile(kind, n, d)
    near = data[rng.integers(0, n, 30)]
    queries = device.put(np.concatenate([near, near + 0.1 * rng.standard_normal((30, d)).astype(np.float32)]))
    rows = rows_on(device, data, metric)
    if cap is not None:
        int8_search.LIST_SIZE, int8_search.READ_AT_ONCE = cap, cap // 2
    int8_search.SMALL_PAIRS = small_pairs
    plan = plan_int8(int8_search.padded_width(d), device.shared_bytes if device.is_gpu else shared)
    search = int8_search.ExactSearch.filtered(rows, plan)
    found = search.nearest(queries, k)
    expected = rows.brute(queries.double(), k)
    np.testing.assert_allclose(device.fetch(found.distances), device.fetch(expected.distances), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(device.fetch(found.ids), device.fetch(expected.ids))


def rows_of_length_one(n, d):
    """Rows whose distances to zero differ in float64, and hardly in float32."""
    data = hostile("gaussian", n, d)
    return data / np.linalg.norm(data, axis=1, keepdims=True)


def check_float32_answers(device, kind, metric, small_pairs=2**24):
    """Compare the answers by (distance in float32, position) with a sort of all float64 distances."""
    from kway.rows.gpu import int8_search
    from kway.rows.gpu.tile_plans import plan_int8

    data = rows_of_length_one(900, 10) if kind == "length one" else hostile(kind, 900, 10)
    queries = device.put(data[:12] * 0 if kind == "length one" else data[:12] + np.float32(0.25))
    int8_search.SMALL_PAIRS = small_pairs
    rows = rows_on(device, data, metric)
    plan = plan_int8(int8_search.padded_width(10), device.shared_bytes if device.is_gpu else 232448)
    search = int8_search.ExactSearch.filtered(rows, plan)
    found = search.nearest_in_float32(queries, 5, 2.0**40)
    every = rows.brute(queries.double(), 900, rounded=True)
    np.testing.assert_array_equal(device.fetch(found.ids), device.fetch(every.ids)[:, :5])
    np.testing.assert_array_equal(device.fetch(found.distances), device.fetch(every.distances)[:, :5])
    for wild in (np.nan, np.inf, 1e30, 1e-30):
        broken = queries[:4].clone()
        broken[3] = 0
        broken[3, 7] = wild
        assert search.nearest_in_float32(broken, 5, 2.0**40) is None
    broken[3] = 0
    expected = rows.brute(broken.double(), 5, rounded=True)
    np.testing.assert_array_equal(
        device.fetch(search.nearest_in_float32(broken, 5, 2.0**40).ids), device.fetch(expected.ids)
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", sorted(set(HOSTILE) - {"one row"}))
def test_answers_on_a_gpu(device, kind, metric):
    if not device.is_gpu:
        pytest.skip("the kernels need a GPU")
    check_bounds(device, kind, metric)
    check_float32_answers(device, kind, metric)
    for n, d, k in ((200_123, 128, 11), (140_000, 30, 3), (150_000, 200, 33), (140_000, 700, 5), (1500, 64, 10)):
        check_answers(device, n, d, k, kind, metric)


def test_recorded_batches_answer_like_brute_force(device):
    """The second search of a shape records a CUDA graph, which later ones replay with other queries."""
    if not device.is_gpu:
        pytest.skip("CUDA graphs need a GPU")
    import copy

    from kway.rows.gpu.int8_search import build_exact_search

    torch, data = device.torch, device.put(hostile("gaussian", 3000, 24))
    search = build_exact_search(device, data, "euclidean")
    for i, q in enumerate((40, 40, 40, 7, 7, 40, 40)):
        with torch.inference_mode(i % 2 == 0):
            queries = (data[i * q : (i + 1) * q] + 0.5).requires_grad_(i % 2 == 1)
            found = search.nearest_in_float32(queries, 5, 2.0**40)
        expected = search.rows.brute(queries.detach().double(), 5, rounded=True)
        assert (found.ids == expected.ids).all()
        assert (found.distances == expected.distances).all()
    assert search.recorded._graph is not None
    assert copy.deepcopy(search.recorded)._graph is None


def run_by_the_interpreter(code):
    """Run code with the kernels of a GPU by Triton's interpreter, which needs a process of its own."""
    triton = pytest.importorskip("triton")
    old, new = parse_version(triton.__version__), parse_version(np.__version__)
    if old < parse_version("3.7") and new >= parse_version("2.4"):
        pytest.skip("this Triton's interpreter reads scalars in a way that NumPy 2.4 has ended")
    code = "from tests.gpu.test_int8_search import *\nfrom kway.rows.gpu.device import Device\n" + code
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_answers_by_the_interpreter():
    """Short lists overflow and are searched again; with small_pairs=1, the search runs in rounds."""
    run_by_the_interpreter(
        "check_answers(Device('cpu'), 3200, 20, 3, 'gaussian', 'euclidean')\n"
        "check_answers(Device('cpu'), 700, 20, 9, 'gaussian', 'euclidean')\n"
        "check_answers(Device('cpu'), 3200, 33, 3, 'zeros among them', 'dot')\n"
        "check_answers(Device('cpu'), 1300, 300, 3, 'gaussian', 'euclidean', small_pairs=1)\n"
        "check_answers(Device('cpu'), 1300, 150, 2, 'gaussian', 'dot', shared=65536)\n"
        "check_answers(Device('cpu'), 3200, 150, 2, 'copies', 'cosine', cap=64, small_pairs=1)\n"
        "check_answers(Device('cpu'), 3200, 150, 2, 'copies', 'cosine', cap=64)\n"
    )


def test_bounds_hold_by_the_interpreter():
    run_by_the_interpreter("for i, kind in enumerate(HOSTILE): check_bounds(Device('cpu'), kind, METRICS[i % 3])\n")


def test_answers_by_distances_in_float32_by_the_interpreter():
    run_by_the_interpreter(
        "check_float32_answers(Device('cpu'), 'gaussian', 'euclidean')\n"
        "check_float32_answers(Device('cpu'), 'copies', 'cosine')\n"
        "check_float32_answers(Device('cpu'), 'integers', 'dot')\n"
        "check_float32_answers(Device('cpu'), 'length one', 'euclidean')\n"
        "check_float32_answers(Device('cpu'), 'length one', 'euclidean', small_pairs=1)\n"
    )
