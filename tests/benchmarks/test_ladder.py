"""Every rung of the ladder gives the same answer, and the page says what the record says."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import records
from benchmarks.ladder import distances, gradients, neighbors, page, products, roofline, rungs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tiny():
    made = products.ladder(24), distances.ladder(4, 40), gradients.logistic(40), gradients.softmax(30)
    return {ladder.key: ladder for ladder in (*made, neighbors.ladder(4, 60))}


@pytest.mark.parametrize("key", ["products", "distances", "logistic", "softmax", "neighbors"])
def test_all_rungs_agree_with_float64(tiny, key):
    ladder = tiny[key]
    problem = ladder.problem.some(3)
    truth = np.asarray(ladder.reference(problem))
    assert len(ladder.rungs) >= 4
    for rung in ladder.rungs:
        assert rungs.difference(rung.run(problem), truth) < ladder.tolerance, rung.name


def test_the_reference_of_the_gradients_is_the_derivative(tiny):
    problem = tiny["softmax"].problem
    theta = problem.theta.astype(np.float64)
    gradient = tiny["softmax"].reference(problem)
    k, j, step = 3, 400, 1e-5

    def loss(theta):
        F = problem.X.astype(np.float64) @ theta[:, :-1].T + theta[:, -1]
        return np.mean(np.log(np.exp(F).sum(axis=1)) - F[np.arange(len(F)), problem.codes])

    up, down = theta.copy(), theta.copy()
    up[k, j] += step
    down[k, j] -= step
    assert gradient[k, j] == pytest.approx((loss(up) - loss(down)) / (2 * step), rel=1e-4, abs=1e-9)


def test_a_wrong_rung_is_an_error(tiny):
    ladder = tiny["products"]
    wrong = rungs.Rung("wrong", lambda p: 1.01 * products.matrix_matrix(p), 1.0)
    with pytest.raises(AssertionError, match="wrong: the answer differs"):
        rungs._climb(ladder, wrong)


def test_part_of_the_work_is_scaled(tiny, monkeypatch):
    monkeypatch.setattr(rungs, "timed", lambda run: 2.0)
    part = rungs.Rung("part", products.matrix_matrix, 1.0, part=6)
    found = rungs._climb(tiny["products"], part)
    assert (found["rows"], found["of"], found["seconds"]) == (6, 24, 8.0)
    assert found["gflops"] == pytest.approx(2 * 24**3 / 8 / 1e9)


def test_the_roofline_is_positive(monkeypatch):
    monkeypatch.setattr(roofline, "MEMORY_BYTES", 1 << 16)
    assert roofline.peak("float32", 32) > 0
    assert roofline.bandwidth(1 << 12) > 0


def test_the_page_is_in_step_with_the_record():
    record = records.load("ladder")
    assert (ROOT / "docs" / "ladder.md").read_text() == page.text(record), "run python -m benchmarks.render"
