from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from kway.errors import CombinationError, InputError
from kway.search import LSH, Flat, Int8, KDTree, Landmarks
from kway.search import flat as on_device
from kway.search.metrics import METRICS, Euclidean, Gaussian, Haversine, Laplacian, pick_metric

EVERY = [*METRICS.values(), Haversine(degrees=True), Gaussian(0.5), Laplacian(2.0)]


@pytest.mark.parametrize("metric", EVERY, ids=str)
def test_scores_fall_as_distances_grow(metric):
    scores = metric.score(np.array([0.0, 0.1, 0.5, 1.0]))
    assert (np.diff(scores) < 0).all()
    assert not np.signbit(scores[0])


@dataclass(frozen=True)
class Halved(Euclidean):
    """A metric with units of its own that keeps the name of its distance."""

    def prepare(self, rows):
        return 0.5 * rows


@pytest.mark.parametrize("metric", [*EVERY, Halved()], ids=str)
def test_a_metric_is_bare_where_it_changes_neither_rows_nor_distances_nor_scores(metric):
    rows, distances = np.array([[0.5, 1.0]]), np.array([0.0, 0.2, 0.7])
    same = np.array_equal(metric.prepare(rows), rows) and np.array_equal(metric.finish(distances), distances)
    shifts = np.ptp(metric.score(distances) + distances) < 1e-12
    assert metric.is_plain_distance == (
        same and shifts and not isinstance(metric, Haversine)
    )  # which makes float64 of float32


def test_a_device_keeps_no_rows_that_a_metric_has_to_prepare(monkeypatch):
    monkeypatch.setattr(on_device, "gpu_of_tensor", lambda device, rows: "a device")
    monkeypatch.setattr(on_device, "plain_far", lambda rows, device: pytest.fail("taken as they are"))
    assert Flat(device="cuda")._rows_on_gpu(np.ones((3, 2)), Halved()) is None


@pytest.mark.parametrize("name", ["euclidean", "manhattan", "hamming", "haversine"])
def test_plain_distances_have_no_similarity(name):
    with pytest.raises(CombinationError, match=r"Gaussian\(sigma\)"):
        METRICS[name].log_similarity(np.array([1.0]))


def test_log_similarities():
    d = np.array([0.0, 1.0, 100.0])
    np.testing.assert_allclose(Gaussian(0.5).log_similarity(d), [0, -4, -40000])  # exp(-40000) is 0: votes need the log
    np.testing.assert_allclose(Laplacian(0.5).log_similarity(d), [0, -2, -200])
    np.testing.assert_allclose(
        METRICS["cosine"].log_similarity(np.array([0.5, 1.0, 1.5])), [np.log(0.5), -np.inf, -np.inf]
    )
    np.testing.assert_allclose(METRICS["dot"].log_similarity(np.array([-3.0, 2.0])), [np.log(3.0), -np.inf])


def test_kernel_scores_are_their_similarity():
    np.testing.assert_allclose(Gaussian(2.0).score(np.array([3.0])), np.exp(-9 / 4))
    np.testing.assert_allclose(Laplacian(2.0).score(np.array([3.0])), np.exp(-3 / 2))


def test_unknown_names_get_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'manhattan'"):
        pick_metric("manhatan")
    with pytest.raises(InputError, match="use one of 'manhattan'"):
        pick_metric(3)


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan, np.inf])
def test_width_must_be_positive(sigma):
    with pytest.raises(InputError, match="must be a number > 0"):
        Gaussian(sigma)


@pytest.mark.parametrize(
    ("recipe", "metric"),
    [
        *product([Flat(), Flat(store=Int8()), KDTree(), LSH()], ["euclidean", "manhattan"]),
        (Landmarks(2, 2), "euclidean"),
    ],
    ids=lambda part: getattr(part, "name", part),
)
@pytest.mark.parametrize("scale", [1e-220, 1e-20, 1e-3, 1.0, 1e20, 1e150])
def test_distances_to_the_origin_are_lengths_in_any_unit(recipe, metric, scale):
    """A zero query among small rows was taken for one that lies far out: its distances were 1e79 times too long."""
    rows, near = np.array([[3.0, -4.0], [6.0, 8.0]]) * scale, np.array([[0.0, 0.0], [1.0, 0.0]]) * scale
    found = recipe.build(rows, metric).nearest(near, 2).distances / scale
    lengths = {"euclidean": [[5, 10], [20**0.5, 89**0.5]], "manhattan": [[7, 14], [6, 13]]}[metric]
    np.testing.assert_allclose(found, lengths, rtol=1e-6)
