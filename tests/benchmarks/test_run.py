"""The runner: every target has a job, one failure does not stop the others, results are saved one by one."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import against, datasets, models, race, records, run
from benchmarks.__main__ import app
from benchmarks.jobs import curves, memory


@pytest.fixture
def jobs(monkeypatch):
    def good(rounds, quick):
        said = f"{rounds} rounds, {len(datasets.letter().X)} rows"
        return [race.Row("T1", "job", "mnist", "faiss Flat", 1.0, 3.0, None, said)]

    def bad(rounds, quick):
        raise RuntimeError("out of luck")

    found = {"T0": good, "T1": bad, "T2": good}
    monkeypatch.setattr(run, "JOBS", dict.fromkeys(found, ""))
    monkeypatch.setattr(run, "job", found.get)
    monkeypatch.delenv("KWAY_DATA", raising=False)


@pytest.mark.parametrize("target", list(run.JOBS))
def test_every_target_has_a_job(target):
    assert callable(run.job(target))


def test_one_failure_does_not_stop_the_others(jobs, tmp_path):
    told = []
    measured = run.run(run.JOBS, run.Plan(quick=True), tmp_path, told.append)
    assert [r["target"] for r in measured] == ["T0", "T1", "T2"]
    assert "out of luck" in measured[1]["error"]
    assert "T1: failed" in told[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["T0.json", "T2.json"]


def test_a_quick_run_is_small_and_aims_at_nothing(jobs):
    row = run.measure("T0", run.Plan(quick=True))["rows"][0]
    assert row["quality"] == f"2 rounds, {run.QUICK.rows} rows"
    assert row["least"] is None
    assert not datasets.limited()


def test_a_full_run_on_real_data_aims(jobs, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets, "folder", lambda: tmp_path)
    monkeypatch.setattr(datasets, "letter", lambda: datasets.stand_in("letter"))
    facts = run.machine.facts()
    for vnni, least in ((True, 20), (False, 8)):
        monkeypatch.setattr(run.machine, "facts", lambda vnni=vnni: {**facts, "avx512_vnni": vnni})
        assert run.measure("T0", run.Plan(memory=False))["rows"][0]["least"] == least


def test_what_is_not_installed_is_told_and_the_rest_goes_on(monkeypatch):
    def job(rounds, quick):
        return [race.absent("T0", "job", "data", "ScaNN", models.NotInstalled("scann")), *good_rows()]

    def good_rows():
        return [race.Row("T0", "job", "data", "peer", 1.0, 3.0, None, "same")]

    monkeypatch.setattr(run, "job", lambda target: job)
    told = []
    measured = run.run(["T0"], run.Plan(quick=True), None, told.append)
    assert "T0: not installed: ScaNN (pip install scann)" in told
    assert [bool(r["missing"]) for r in measured[0]["rows"]] == [True, False]


def bench(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command(jobs, tmp_path):
    done = bench("--quick", "--only", "T0", "T2", "--json", "--out", tmp_path)
    assert done.exit_code == 0
    assert [r["target"] for r in json.loads(done.stdout)["results"]] == ["T2", "T0"]
    assert (tmp_path / "T0.json").exists()
    assert bench("--quick", "T1").exit_code == 1
    done = bench("T99")
    assert done.exit_code == 2
    assert "T99" in done.output
    (tmp_path / "file").write_text("")
    assert bench("T0", "--out", tmp_path / "file").exit_code == 2


def test_another_checkout_is_timed_in_turns():
    root = Path(run.__file__).parents[1]
    told = []
    (pair,) = against.compare("T12", root, rounds=2, quick=True, tell=told.append)
    assert len(pair.ours) == len(pair.theirs) == 2
    assert pair.our_quality == pair.their_quality
    assert pair.line() == told[0]
    assert 0.2 < pair.ratio < 5


def test_a_checkout_without_kway_is_refused(tmp_path):
    done = bench("T1", "--against", tmp_path)
    assert done.exit_code == 2
    message = " ".join(done.output.replace("│", " ").split())  # typer breaks lines inside its frame
    assert "no checkout" in message


def test_old_records_still_read():
    for path in records.FOLDER.glob("T*.json"):
        record = records.load(path.stem)
        assert record["rows"]
        assert all(len(records.cells(r)) == len(records.COLUMNS) for r in record["rows"])


def test_a_cliff_is_seen():
    sizes = (1000, 2000, 4000, 8000)
    straight = curves.shape(sizes, [0.1, 0.2, 0.4, 0.8], 1.0)
    assert straight == curves.Shape(1.0, 1.0)
    cliff = curves.shape(sizes, [0.1, 0.2, 0.8, 1.6], 1.0)
    assert cliff.worst_step == pytest.approx(2.0)
    assert curves.shape(sizes, [0.1, 0.4, 1.6, 6.4], 1.0).slope == pytest.approx(2.0)


def test_the_many_class_model_answers_like_its_weights():
    rng = np.random.default_rng(0)
    model = memory.linear(50, 8, rng)
    Q = rng.standard_normal((20, 8)).astype(np.float32)
    labels = model.predict_topk(Q, 5).ids
    np.testing.assert_array_equal(labels, np.argsort(-(Q @ model.coef_.T), axis=1)[:, :5])


def test_one_word_names_all_that_a_gpu_does(monkeypatch):
    asked = []
    monkeypatch.setattr(run, "run", lambda targets, *_, **__: asked.extend(targets) or [])
    assert bench("gpu").exit_code == 0
    assert asked == [name for name in run.JOBS if name.startswith("gpu_")]
    assert "gpu_search" in asked


def test_without_a_gpu_its_job_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert run.measure("gpu_search", run.Plan(quick=True))["rows"][0]["missing"] == "torch"
