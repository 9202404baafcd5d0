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


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_the_bounds_hold_for_every_pair(device, kind, metric):
    from kway.rows.gpu.int8_search import Int8Tiles

    d = 40
    data = hostile(kind, 1000, d)
    rows = rows_on(device, data, metric)
    tiles = Int8Tiles.build(rows)
    queries = device.put(np.concatenate([data[:50], data[:50] * np.float32(1.3) + np.float32(0.01)]))
    asked = tiles.quantize(queries, 128)
    fetch = lambda t: device.fetch(t).astype(np.float64)  # noqa: E731
    products = np.einsum("qd,trd->tqr", fetch(asked.values)[:100], fetch(tiles.values))  # (nt, q, 128)
    order = device.fetch(tiles.order).reshape(-1, 128)
    sides = [fetch(rows.metric.operand(x.double(), rows.center)) for x in (queries, rows.rows)]
    scores = sides[0] @ sides[1].T - fetch(rows.metric.offsets(device.put(np.square(sides[1]).sum(1))))
    c, up, low = fetch(asked.constants)[:100], fetch(tiles.upper), fetch(tiles.lower)
    t = fetch(asked.steps)[:, None]
    for i in range(len(order)):
        held = order[i] >= 0
        true = scores[:, order[i][held]]
        bound = (
            (products[i] + c[:, 1:2] * up[i, 1] + c[:, 2:3] * up[i, 2] + c[:, 3:4] * up[i, 3])[:, held] / up[i, 0] * t
        )
        below = (products[i] * low[i, 0] - c[:, 1:2] * low[i, 1] - c[:, 2:3] * low[i, 2] - c[:, 3:4] * low[i, 3]) * t
        assert (bound >= true).all()
        assert (below[:, held] <= true).all()


def check_answers(device, n, d, k, kind, metric, cap=None, shared=232448):
    """Ids and distances of the search through bytes against every row in float64."""
    from kway.rows.gpu import int8_search
    from kway.rows.gpu.tile_plans import plan_int8

    rng = np.random.default_rng(5)
    data = hostile(kind, n, d)
    near = data[rng.integers(0, n, 30)]
    queries = device.put(np.concatenate([near, near + 0.1 * rng.standard_normal((30, d)).astype(np.float32)]))
    rows = rows_on(device, data, metric)
    if cap is not None:
        int8_search.LIST_SIZE, int8_search.SHORT_LIST = cap, cap // 2
    plan = plan_int8(int8_search.padded_width(d), device.shared_bytes if device.is_gpu else shared)
    search = int8_search.ExactSearch.filtered(rows, plan)
    found = search.nearest(queries, k)
    expected = rows.brute(queries.double(), k)
    np.testing.assert_allclose(device.fetch(found.distances), device.fetch(expected.distances), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(device.fetch(found.ids), device.fetch(expected.ids))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", sorted(set(HOSTILE) - {"one row"}))
def test_answers_on_a_gpu(device, kind, metric):
    if not device.is_gpu:
        pytest.skip("the kernels need a GPU")
    for n, d, k in ((200_123, 128, 11), (140_000, 30, 3), (150_000, 200, 33), (140_000, 700, 5)):
        check_answers(device, n, d, k, kind, metric)


def test_answers_by_the_interpreter():
    """The same kernels without a GPU, a process of their own; short lists overflow and are searched again."""
    triton = pytest.importorskip("triton")
    old, new = parse_version(triton.__version__), parse_version(np.__version__)
    if old < parse_version("3.7") and new >= parse_version("2.4"):
        pytest.skip("this Triton's interpreter reads scalars in a way that NumPy 2.4 has ended")
    code = (
        "from tests.gpu.test_int8_search import check_answers\n"
        "from kway.rows.gpu.device import Device\n"
        "check_answers(Device('cpu'), 3200, 20, 3, 'gaussian', 'euclidean')\n"
        "check_answers(Device('cpu'), 3200, 150, 2, 'copies', 'cosine', cap=64)\n"
        "check_answers(Device('cpu'), 3200, 33, 3, 'zeros among them', 'dot')\n"
        "check_answers(Device('cpu'), 1300, 300, 3, 'gaussian', 'euclidean')\n"
        "check_answers(Device('cpu'), 1300, 150, 2, 'gaussian', 'dot', shared=65536)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
