"""Nothing is destroyed, nothing is lost: outputs never replace inputs or each other, and places are tested first."""

import json
import os
from pathlib import Path

import pytest

import kway


def links():
    os.symlink("iris.csv", "link.csv")
    os.link("iris.csv", "twin.csv")


FIT = ["fit", "iris.csv", "--target", "species", "--model", "centroid"]
PREDICT = ["predict", "model.kway", "iris.csv"]
REFUSED = {
    "model over data": ([*FIT, "-o", "iris.csv"], "--out iris.csv is DATA itself"),
    "model over data by another name": ([*FIT, "-o", "./iris.csv"], "is DATA itself"),
    "model over a link to data": ([*FIT, "-o", "link.csv"], "is DATA itself"),
    "model over a twin of data": ([*FIT, "-o", "twin.csv", "--force"], "is DATA itself"),
    "report over data": ([*FIT, "--report", "iris.csv"], "--report iris.csv is DATA itself"),
    "report over the test file": ([*FIT, "--test", "test.csv", "--report", "test.csv"], "is --test itself"),
    "both in one place": ([*FIT, "-o", "x.kway", "--report", "./x.kway"], "--out and --report are both x.kway"),
    "model over another file": ([*FIT, "-o", "notes.txt"], "notes.txt exists and is no model that kway wrote"),
    "report over another file": ([*FIT, "--report", "notes.txt"], "is no report that kway wrote"),
    "report over a model": ([*FIT, "-o", "n.kway", "--report", "model.kway"], "is no report that kway wrote"),
    "model into a folder": ([*FIT, "-o", "folder"], "folder is a folder"),
    "report into a device": ([*FIT, "--report", "/dev/null"], "a device or a pipe"),
    "a folder that takes no files": ([*FIT, "-o", "/proc/m.kway"], "--out /proc/m.kway cannot be written"),
    "figures into a file": ([*FIT, "--figures", "notes.txt"], "--figures notes.txt is a file"),
    "predictions over data": ([*PREDICT, "-o", "iris.csv"], "is DATA itself"),
    "predictions over the model": ([*PREDICT, "-o", "model.kway", "--format", "csv"], "is MODEL itself"),
    "predictions over a table": ([*PREDICT, "-o", "other.csv"], "is no file of predictions that kway wrote"),
    "predictions into no folder": ([*PREDICT, "-o", "no/o.csv"], "no folder no"),
    "export over data": (["data", "export", "iris.csv", "-o", "iris.csv", "--force"], "is DATA itself"),
    "export over a file": (["data", "export", "iris", "-o", "other.csv"], "other.csv exists"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_before_the_work(iris, cli, arguments, message, monkeypatch):
    links()
    Path("folder").mkdir()
    Path("notes.txt").write_text("years of work")
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("test.csv").write_bytes(iris.read_bytes())
    before = {p: p.read_bytes() for p in Path().iterdir() if p.is_file()}
    monkeypatch.setattr("kway.data.reading.read_rows", None)  # nothing is read before the places are right
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert {p: p.read_bytes() for p in Path().iterdir() if p.is_file()} == before
    assert os.path.islink("link.csv")


def test_kways_own_files_are_replaced_and_others_with_force(iris, cli):
    Path("notes.txt").write_text("years of work")
    assert cli(*FIT, "--report", "r.html")[0] == 0  # over model.kway
    assert cli(*FIT, "-o", "notes.txt")[0] == 2
    assert cli(*FIT, "-o", "notes.txt", "--force")[0] == 0
    assert kway.load("notes.txt").classes_.tolist() == ["setosa", "versicolor", "virginica"]
    for name in ("o.csv", "o.csv.gz", "o.jsonl", "o.parquet"):
        for _ in range(2):  # predictions of the last run are kway's
            code, _, err = cli(*PREDICT, "-o", name)
            assert code == 0, err
    Path("r.html").write_text("<html>Written by hand</html>")
    assert cli(*FIT, "--report", "r.html")[0] == 2
    Path("r.html").write_text("<html><footer>Written by kway 0.1.0.</footer></html>")
    assert cli(*FIT, "--report", "r.html")[0] == 0


def fail(path):
    def write(*_, **__):
        raise OSError(28, "No space left on device", path)

    return write


@pytest.mark.parametrize("broken", ["model", "report", "both"])
def test_a_failing_write_names_the_file_and_still_shows_the_result(iris, cli, answer, monkeypatch, broken):
    if broken != "report":
        monkeypatch.setattr("kway.store.save", fail("lost.kway"))
    if broken != "model":
        monkeypatch.setattr("kway.report.page.write_page", fail("lost.html"))
    code, out, err = cli(*FIT, "-o", "lost.kway", "--report", "lost.html")
    assert code == 1
    assert "Models, by cross-validation" in out
    assert "Test accuracy" in out
    lost = {"model": ["lost.kway"], "report": ["lost.html"], "both": ["lost.kway", "lost.html"]}[broken]
    for name in lost:
        assert f"error: {name} cannot be written: No space left on device" in err
    assert ("Saved lost" in out) == (broken != "both")
    code, out, err = cli(*FIT, "-o", "lost.kway", "--report", "lost.html", "--json")
    assert code == 1
    result = json.loads(out)
    assert result["models"]
    assert (result["model"] is None) == (broken != "report")
    assert (result["report"] is None) == (broken != "model")


def test_results_come_before_the_files(iris, cli, monkeypatch, capfd):
    seen = []
    monkeypatch.setattr("kway.store.save", lambda *_, **__: seen.append(capfd.readouterr().out))
    assert cli(*FIT)[0] == 0
    assert "Test accuracy" in seen[0]
