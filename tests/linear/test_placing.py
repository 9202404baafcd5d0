"""What a cluster splits: what moves less, where it is worth it, or what was asked for."""

from __future__ import annotations

import pytest

from kway.compute.cluster.session import Cluster
from kway.linear import placing
from kway.planning.size import Size


@pytest.fixture
def nodes(monkeypatch):
    """Four nodes; which split they were entered with."""
    monkeypatch.setattr(placing, "n_nodes", lambda: 4)
    return lambda split: monkeypatch.setattr(placing, "current", lambda: Cluster(split=split))


@pytest.mark.parametrize(
    ("size", "sampling", "split"),
    [
        (Size(10_000, 512, 100_000), False, True),  # 205 MB of weights against 0.24 MB a step
        (Size(10_000, 512, 1_000), False, False),  # 2 MB of weights
        (Size(100_000_000, 300, 100_000), False, False),  # 2.4 GB a step by classes, 0.24 GB by rows
        (Size(10_000_000, 512, 10_000_000), False, True),
        (Size(10_000_000, 512, 10_000_000), True, False),  # days: sampled
    ],
)
def test_auto_splits_what_moves_less(nodes, size, sampling, split):
    nodes("auto")
    assert placing.splits_classes(size, sampling) == split
    nodes("classes")
    assert placing.splits_classes(size, sampling)
    nodes("rows")
    assert not placing.splits_classes(size, sampling)


def test_two_classes_are_one_row_of_weights(nodes):
    nodes("classes")
    assert not placing.splits_classes(Size(1000, 10, 2), False)


def test_without_a_cluster_nothing_is_split():
    assert not placing.splits_classes(Size(10_000, 512, 100_000), False)
