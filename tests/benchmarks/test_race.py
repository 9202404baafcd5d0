"""Races are interleaved, memory passes run one contestant alone, and what is missing is named."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import models, peak, race, records


@pytest.fixture(autouse=True)
def no_pause():
    race.begin(race.Pass(pause=0.0))
    yield
    race.begin(race.Pass())


def test_contestants_take_turns():
    order = []
    timings = race.race({"kway": lambda: order.append("a"), "peer": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 3
    assert [len(t.seconds) for t in timings.values()] == [3, 3]


def test_a_row_has_medians_and_the_spread_of_the_ratio():
    timings = {"kway": race.Timing([1.0, 2.0, 1.0]), "peer": race.Timing([4.0, 6.0, 5.0])}
    row = replace(race.row("T0", "job", "data", "peer", timings, "same"), least=4)
    assert (row.kway_seconds, row.peer_seconds, row.ratio, row.holds) == (1.0, 5.0, 5.0, True)
    assert records.ratios(row) == [4.0, 3.0, 5.0]
    assert records.ratio_text(row) == "5.0x (3.0-5.0)"


def test_no_claim_where_the_quality_differs():
    row = race.Row("T0", "job", "data", "peer", 1.0, 9.0, 2, "worse", equal=False)
    assert not row.holds
    assert records.verdict(row) == "quality differs"


def test_a_memory_pass_runs_one_and_takes_the_others_answers(tmp_path):
    def job(seen):
        steps = race.settled("steps", lambda: seen.append("searched") or 7)
        timings = race.race({"kway": lambda: seen.append("kway") or steps, "peer": lambda: seen.append("peer") or 8}, 2)
        return {name: t.answer for name, t in timings.items()}

    first, again = [], []
    now = race.begin(race.Pass(pause=0.0, folder=tmp_path))
    assert job(first) == {"kway": 7, "peer": 8}
    alone = race.begin(race.Pass("kway", folder=tmp_path, settled=json.loads(json.dumps(now.settled))))
    assert job(again) == {"kway": 7, "peer": 8}
    assert first == ["searched", "kway", "peer", "kway", "peer"]
    assert again == ["kway"]
    assert list(alone.megabytes) == [0]


@pytest.mark.skipif(not peak.CLEAR.exists(), reason="the mark cannot be set back here")
def test_working_memory_is_that_of_the_call_alone():
    before = np.ones(4_000_000)  # 32 MB that the call has no part in
    found = peak.working_megabytes(lambda: np.ones(8_000_000).sum())
    assert found.answer == 8e6
    assert before.nbytes / peak.MB < 55 < found.megabytes < 90  # 61 MB
    assert peak.working_megabytes(lambda: 1).megabytes < 5


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(models.PACKAGES, "no_such_library", "no-such-package")
    with pytest.raises(models.NotInstalled, match="pip install no-such-package") as caught:
        models.need("no_such_library.part")
    row = race.absent("T0", "job", "data", "peer", caught.value)
    assert not row.holds
    assert records.verdict(row) == "not installed"
    assert "no-such-package" in records.cells(row)[records.COLUMNS.index("quality")]


def test_records_survive_a_file(tmp_path):
    timings = {"kway": race.Timing([1.0]), "peer": race.Timing([2.0])}
    rows = [race.row("T0", "job", "data", "peer", timings, "same")]
    rows.append(race.absent("T0", "job", "data", "other", models.NotInstalled("faiss-cpu")))
    records.save({"target": "T0", "seconds": 1.0, "rows": [r.record() for r in rows]}, tmp_path)
    read = records.load("T0", tmp_path)["rows"]
    assert read[0] == rows[0]
    assert read[1].missing == "faiss-cpu"
    assert math.isnan(read[1].kway_seconds)
    assert records.load("T1", tmp_path) is None
