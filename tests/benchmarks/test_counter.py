"""Rows from a counter: the same on the CPU and on a GPU, in all directions alike."""

import numpy as np

from benchmarks.counter import fill_counted
from kway.rows.gpu.generated_rows import counter_rows


def test_the_kernel_makes_the_rows_of_the_gpu():
    classes = np.array([0, 1, 2, 99_999_999, 2**31 + 5])
    out = np.empty((len(classes), 512), np.float32)
    fill_counted(classes, out)
    np.testing.assert_array_equal(out, counter_rows(classes))


def test_rows_lie_in_all_directions():
    out = np.empty((4000, 64), np.float32)
    fill_counted(np.arange(4000), out)
    spread = out.T @ out / len(out) / (256**2 / 12)
    assert np.abs(spread - np.eye(64)).max() < 0.08
