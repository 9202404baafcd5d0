import numpy as np
import pytest
from tests.helpers.rows import blobs

from kway.errors import InputError
from kway.search import LSH, Flat


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "dot"])
def test_recall_grows_with_probes_and_rows_are_spared(metric):
    rows, queries = np.split(blobs(8100, 20, 100, spread=0.5)[0], [8000])
    index, exact = LSH().build(rows, metric), Flat().build(rows, metric).nearest(queries, 5)
    recalls, touched = [], []
    for probes in (1, 32, 256):
        found = index.nearest(queries, 5, probes=probes)
        recalls.append(np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found.ids, exact.ids)]))
        touched.append(index.touched_)
    assert recalls == sorted(recalls)
    assert recalls[1] > (0.5 if metric == "dot" else 0.8)  # the added coordinate hides the others under dot
    assert touched[0] < touched[1] < touched[2] < 8000
    assert touched[1] < 2000


def test_near_rows_share_more_buckets_than_far_ones():
    rows = blobs(2000, 20, 100, spread=0.5)[0]
    index = LSH(n_tables=30, n_bits=6, probes=1).build(rows, "cosine")
    near, far = rows[:50] + 0.01, -rows[:50]
    hashed = index._above(rows[:50]) > 0
    share = [((index._above(x) > 0) == hashed).mean() for x in (near, far)]
    assert share[0] > 0.99
    assert share[1] < 0.05


def test_parameters_are_checked():
    with pytest.raises(InputError, match="n_bits"):
        LSH(n_bits=63)
    with pytest.raises(InputError, match="probes"):
        LSH(probes=0)


def test_one_bucket_for_all_is_still_right():
    rows = np.ones((300, 4))
    rows[7] = 2.0
    assert LSH().build(rows).nearest([[2.0] * 4], 2).ids.tolist() == [[7, 0]]
