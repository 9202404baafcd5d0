"""The passes of a shard of classes by torch: the numbers of the host's."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from kway.compute.cluster.rounds import Talk
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.class_shard import ClassShard
from kway.linear.objective.class_shard_on_device import DeviceClassShard
from kway.linear.penalties import Penalty

pytest.importorskip("torch")


class Alone(Talk):
    """Nobody else is there."""

    def total(self, part):
        return part

    def most(self, part):
        return part

    def report(self, what):
        return False


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_and_gradient(dtype, weighted):
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(300, 7)).astype(dtype), rng.normal(size=(20, 8)).astype(dtype)
    weight = rng.random(300).astype(dtype) if weighted else None
    codes = rng.integers(-15, 35, size=300)  # some rows' classes are elsewhere
    shard = ClassShard(
        X, Targets(codes), 20, LOSSES["softmax"].joint, Penalty(1e-2), weight=weight, talk=Alone(), n_classes=60
    )
    there = DeviceClassShard(**{f.name: getattr(shard, f.name) for f in fields(ClassShard)}, device="cpu")
    value, gradient = shard.value_gradient(theta)
    other, slopes = there.value_gradient(theta)
    assert other == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(slopes, gradient, atol=1e-5)
