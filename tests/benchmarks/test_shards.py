"""The simulation of many shards: it meets what was measured, and behaves as arithmetic says it must."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import cluster_page, records, render, shards
from benchmarks.race import Row

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured():
    return shards.points(records.load("R1"))


def test_it_meets_every_measured_point(measured):
    found = shards.fitted(measured)
    assert min(vars(found).values()) >= 0
    for point in measured:
        assert shards.on_one_machine(point, found) == pytest.approx(point.seconds, rel=0.05)


def test_a_scan_is_at_once_on_the_cores_that_one_process_leaves_idle():
    def alone(count, busy):
        points = {"queries_per_second": 50.0, "shards": count, "alone_processor_seconds": busy}
        row = Row("R1", "one query", "", "one process", 0.02, 0.004, None, "", points=points)
        return shards.points({"rows": [row]})[0].alone

    assert [alone(count, 0.004) for count in (1, 2, 3)] == [0.004, 0.002, 0.002]  # one of two cores was busy
    assert [alone(count, 0.008) for count in (1, 2, 3)] == [0.004, 0.004, 0.004]  # both were


def test_costs_are_found_again_where_they_are_known():
    known = shards.Costs(1e-3, 2e-4, 3e-6, 5e-4, 8e-6)
    made = []
    for count in (1, 2, 3):
        for queries in (1, 1000):
            point = shards.Point(count, queries, 0.0, count * (known.call + queries * known.query), 0.02)
            made.append(point._replace(seconds=shards.on_one_machine(point, known)))
    np.testing.assert_allclose(list(vars(shards.fitted(made)).values()), list(vars(known).values()), rtol=1e-6)


def test_without_luck_it_is_the_sum_of_its_parts(monkeypatch):
    monkeypatch.setattr(shards, "JITTER", 0.0)
    costs = shards.Costs(1e-3, 2e-4, 3e-6, 5e-4, 8e-6)
    found = shards.simulate(costs, 1e9, 64, queries=10, late=10**12)
    scan = 1e9 / 64 / 2.5e9  # rows by the rate of two cores
    wanted = 1e-3 + 64 * (2e-4 + 10 * 3e-6) + 5e-4 + 10 * (scan + 8e-6) + 2e-4 + 10 * 64 * (2048 + 160) / 1.25e9
    assert found.median == pytest.approx(wanted, rel=1e-3)
    assert found.slow == pytest.approx(wanted, rel=1e-3)


def test_the_late_are_as_many_as_there_are_shards_and_a_replica_stands_in():
    costs = shards.Costs(0, 0, 0, 0, 0)
    for count in (8, 1024):
        alone = shards.simulate(costs, 1e9, count)
        late = 1 - (1 - 1 / shards.ONE_IN) ** count  # of calls that wait for somebody
        assert (alone.median > shards.LATE) == (late > 0.5)
        assert (alone.slow > shards.LATE) == (late > 0.01) or count == 8
        assert shards.simulate(costs, 1e9, count, replicas=2).slow < shards.LATE


def test_the_page_is_in_step_with_the_record():
    page = (ROOT / "docs" / "benchmarks" / "cluster.md").read_text()
    assert page == cluster_page.text(render.measured()["R1"]), "run python -m benchmarks.render"
    assert "1 shards" not in (ROOT / "docs" / "benchmarks" / "index.md").read_text()
