"""Parts of predictions are written by one run at a time: others are refused, what a killed one left writes nothing.

Without a cluster the parts are predicted here, by the same code; tests/cluster/test_predict.py does it over nodes.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kway
from kway.cli import predict_parts as under_test
from kway.cli.predict_parts import LOCK, NOTES, PartPredictor, PartsTask, predict_parts
from kway.errors import InputError, UsageError
from kway.tables.outputs import lock_path
from kway.tables.read_options import ReadOptions
from kway.tables.row_stream import row_parts


@pytest.fixture
def job(tmp_path):
    """A model, and three files of rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    kway.CentroidClassifier().fit(X, X[:, 0] > 0).save(tmp_path / "m.kway")
    (tmp_path / "big").mkdir()
    for number in range(3):
        rows = {f"x{j}": rng.normal(size=50) for j in range(4)}
        pq.write_table(pa.table(rows), tmp_path / "big" / f"{number}.parquet")
    return PartsTask(str(tmp_path / "m.kway"), ReadOptions())


def files(out):
    return sorted(path.name for path in out.iterdir())


def test_a_run_that_meets_another_is_refused_and_harms_nothing(job, tmp_path, monkeypatch):
    out, met = tmp_path / "out", []
    done = PartPredictor.__call__

    def meeting(self, item):
        for force in (False, True):
            with pytest.raises(UsageError, match="another run is writing into --out"):
                predict_parts(PartsTask(job.model, job.reading, topk=2), tmp_path / "big", out, force)
            met.append(files(out))
        return done(self, item)

    monkeypatch.setattr(PartPredictor, "__call__", meeting)
    assert predict_parts(job, tmp_path / "big", out, False) == (150, 3, 0)
    assert len(met) == 6
    assert met[0] == [NOTES, LOCK]
    assert files(out) == [NOTES, *(f"part-00000{number}.parquet" for number in range(3))]  # the lock is gone
    assert pq.read_table(out).column_names == ["prediction"]


def test_a_worker_that_outlives_its_run_writes_nothing_among_other_answers(job, tmp_path):
    out, big = tmp_path / "out", tmp_path / "big"
    predict_parts(job, big, out, False)
    left = PartPredictor(job, under_test._state(str(out / NOTES)))  # of a run that was killed
    item = (row_parts(big, job.reading)[0], str(out / "part-000000.parquet"))
    assert left(item) == {"rows": 50}
    other = PartsTask(job.model, job.reading, topk=2)
    predict_parts(other, big, out, True)
    with pytest.raises(InputError, match="another run now writes into"):
        left(item)
    assert "label_1" in pq.read_table(out / "part-000000.parquet").column_names
    assert not list(out.glob(".*draft"))


def test_a_run_killed_while_it_clears_leaves_nothing_that_counts(job, tmp_path, monkeypatch):
    out, big = tmp_path / "out", tmp_path / "big"
    predict_parts(job, big, out, False)
    other = PartsTask(job.model, job.reading, topk=2)
    monkeypatch.setattr(under_test, "_write_notes", lambda file, notes: file.write_text("{}") and 1 / bool(not notes))
    with pytest.raises(ZeroDivisionError):
        predict_parts(other, big, out, True)
    monkeypatch.undo()
    assert json.loads((out / NOTES).read_text()) == {}
    with pytest.raises(UsageError, match="overwrite them with --force"):
        predict_parts(other, big, out, False)
    assert predict_parts(other, big, out, True) == (150, 3, 0)


def test_a_lock_keeps_all_others_out_and_leaves_no_file(tmp_path):
    place = tmp_path / "lock"
    with lock_path(place) as first, lock_path(place) as second:
        assert (first, second) == (True, False)
    with pytest.raises(ZeroDivisionError), lock_path(place) as again:
        1 / (not again)
    assert not place.exists()
