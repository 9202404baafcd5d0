"""A job that is killed leaves a model that predicts, and the same job continues; finished models are never replaced."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import kway
from kway import modelfile
from kway.auto.checkpoint import UNFINISHED, Checkpoint, PredictionFiles, job_digest
from kway.auto.fit_options import FitOptions
from kway.auto.job import run_job
from kway.auto.race import rounds
from kway.auto.race.scoring import Predictions
from kway.auto.train_test import read_train_test
from kway.errors import UsageError
from kway.tables.read_options import ReadOptions

COMMAND = ["t.csv", "-t", "label", "-m", "centroid,softmax,neighbors,boosted,extra-trees", "--budget", "10m", "--json"]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 8, 1500)
    X = 1.2 * rng.normal(size=(8, 12))[y] + rng.normal(size=(1500, 12))
    lines = [f"{','.join(f'{v:.4f}' for v in row)},{'abcdefgh'[label]}" for row, label in zip(X, y)]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*(f"x{j}" for j in range(12)), "label"]), *lines]))
    return tmp_path


def start(folder, *more):
    command = [sys.executable, "-m", "kway", "fit", *COMMAND, *more]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_when(process, ready):
    """Kill a job as soon as `ready()` is true, without a chance to clean up."""
    ends = time.monotonic() + 300
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def finish(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.mark.slow
def test_a_killed_job_leaves_a_model_and_the_next_one_continues(table):
    model, predictions = table / "model.kway", table / "model.kway.resume"
    kill_when(start(table), lambda: model.exists() and len(list(predictions.glob("*_1.npz"))) > 1)
    assert modelfile.info(model).notes[UNFINISHED]
    done = subprocess.run(
        [sys.executable, "-m", "kway", "predict", "model.kway", "t.csv"], cwd=table, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    truth = [line.rsplit(",", 1)[1] for line in (table / "t.csv").read_text().split("\n")[1:]]
    predicted = [line.strip('"') for line in done.stdout.strip().split("\n")[1:]]
    assert np.mean(np.array(truth) == predicted) > 0.7
    kept = {path: path.stat().st_mtime_ns for path in predictions.glob("*.npz")}
    process = start(table)
    time.sleep(0.5)
    found = finish(process)
    assert not predictions.exists()
    assert UNFINISHED not in modelfile.info(model).notes
    assert len(kept) > 5
    (table / "again").mkdir()
    os.link(table / "t.csv", table / "again" / "t.csv")
    fresh = finish(start(table / "again"))
    line = lambda found: [(m["model"], m["setting"], m["fold_accuracy"]) for m in found["models"]]  # noqa: E731
    assert line(fresh) == line(found)
    assert fresh["test"] == found["test"]
    finished = model.read_bytes()
    kill_when(start(table, "--seed", "1"), lambda: (table / "model.unfinished.kway").exists())
    assert model.read_bytes() == finished
    assert kway.load(table / "model.unfinished.kway").predict(np.zeros((1, 12))).shape == (1,)
    finish(start(table, "--seed", "1"))
    assert model.read_bytes() != finished
    assert sorted(os.listdir(table)) == ["again", "model.kway", "report.html", "t.csv"]


@pytest.fixture
def job(table):
    data = read_train_test(str(table / "t.csv"), ReadOptions("label"))
    options = FitOptions(["centroid", "neighbors"])
    return data, options, Checkpoint(table / "m.kway", data, options, {})


def test_stored_answers_are_not_learned_again(job, monkeypatch):
    data, options, checkpoint = job
    first = run_job(data, options, checkpoint=checkpoint)
    learned = []
    answer = rounds.SplitExecutor.fit_predict
    monkeypatch.setattr(rounds.SplitExecutor, "fit_predict", lambda *a: learned.append(a[2:]) or answer(*a))
    again = run_job(data, options, checkpoint=Checkpoint(checkpoint.path, data, options, {}))
    assert learned == []
    assert [line.fold_accuracy for line in again.comparison.rows] == [
        line.fold_accuracy for line in first.comparison.rows
    ]
    other = FitOptions(["centroid", "neighbors"], seed=1)
    run_job(data, other, checkpoint=Checkpoint(checkpoint.path, data, other, {}))
    assert learned


def test_the_best_model_of_each_round_is_on_disk(job):
    data, options, checkpoint = job
    saved = []
    write = checkpoint.save
    checkpoint.save = lambda model, name: (write(model, name), saved.append(name))
    run_job(data, options, checkpoint=checkpoint)
    assert saved
    assert modelfile.info(checkpoint.path).notes[UNFINISHED]
    assert kway.load(checkpoint.path).score(data.test_rows, data.test_y) > 0.7
    checkpoint.finish()
    assert not checkpoint.store.folder.exists()


def test_the_key_follows_the_rows_and_the_options_but_not_the_budget(job):
    data, options, _ = job
    assert job_digest(data, options) == job_digest(data, FitOptions(["centroid", "neighbors"], budget=5))
    assert job_digest(data, options) != job_digest(data, FitOptions(["centroid"]))
    other = read_train_test("iris")
    assert job_digest(data, options) != job_digest(other, options)


def test_damaged_or_foreign_files_are_not_used(tmp_path):
    files = PredictionFiles(tmp_path / "a.resume", "key")
    predictions = Predictions(
        np.zeros((3, 1), np.int32), np.zeros((3, 1), np.float32), 1.0, np.eye(3, dtype=np.float32)
    )
    files.put("softmax 100 0", predictions)
    found = files.get("softmax 100 0")
    for name, value in predictions._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), value)
    path = files._path("softmax 100 0")
    path.write_bytes(path.read_bytes()[:40])
    assert files.get("softmax 100 0") is None
    assert files.get("softmax 100 1") is None
    files.put("a/../b", predictions)  # a name is no path
    assert files.get("a/../b") is not None
    assert {path.parent for path in tmp_path.rglob("*.npz")} == {tmp_path / "a.resume"}
    (tmp_path / "b.resume").mkdir()
    (tmp_path / "b.resume" / "thesis.npz").write_bytes(b"mine")
    with pytest.raises(UsageError, match="did not write"):
        PredictionFiles(tmp_path / "b.resume", "key")
    assert (tmp_path / "b.resume" / "thesis.npz").read_bytes() == b"mine"
