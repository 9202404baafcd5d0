"""Nothing is destroyed, nothing is lost: outputs never replace inputs or each other, and places are tested first."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kway


def links():
    os.symlink("iris.csv", "link.csv")
    os.link("iris.csv", "twin.csv")


def theirs():
    """Tables of a person's own, with a column that is called as kway's answer is."""
    Path("theirs.csv").write_text('"who","prediction"\n"a","1"\n')
    Path("theirs.jsonl").write_text('{"prediction": "a", "truth": "b"}\n')
    pq.write_table(pa.table({"truth": ["a"], "prediction": ["b"]}), "theirs.parquet")
    Path("test.jsonl").write_text('{"prediction": "a", "p_value": 0.1}\n')


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
    "model into a folder": ([*FIT, "-o", "folder"], "folder is a directory"),
    "report into a device": ([*FIT, "--report", "/dev/null"], "/dev/null is a device"),
    "a folder that takes no files": ([*FIT, "-o", "/proc/m.kway"], "--out /proc/m.kway cannot be written"),
    "figures into a file": ([*FIT, "--figures", "notes.txt"], "--figures notes.txt is a file"),
    "predictions over data": ([*PREDICT, "-o", "iris.csv"], "is DATA itself"),
    "predictions over the model": ([*PREDICT, "-o", "model.kway", "--format", "csv"], "is MODEL itself"),
    "predictions over a table": ([*PREDICT, "-o", "other.csv"], "is no file of these predictions that kway wrote"),
    "predictions into no folder": ([*PREDICT, "-o", "no/o.csv"], "no folder "),
    "figures and the model in one place": ([*FIT, "-o", "y", "--figures", "y"], "--out and --figures are both y"),
    "figures and the report in one place": (
        [*FIT, "--report", "y", "--figures", "./y"],
        "--report and --figures are both",
    ),
    "the report under a figure's name": (
        [*FIT, "--report", "folder/alpha.svg", "--figures", "folder"],
        "--report and --figures are both folder/alpha.svg",
    ),
    "a figure over another file": ([*FIT, "--figures", "drawn"], "drawn/history.png exists and is no figure that kway"),
    "a figure over data": (["fit", "drawn/history.png", "--figures", "drawn", "--force"], "is DATA itself"),
    "model over an image of data": (["fit", "drawn", "-o", "drawn/history.png", "--force"], "is a file of DATA"),
    "predictions over others' in csv": ([*PREDICT, "-o", "theirs.csv"], "is no file of these predictions that kway"),
    "predictions over others' in jsonl": ([*PREDICT, "-o", "theirs.jsonl"], "is no file of these predictions"),
    "predictions over others' in parquet": ([*PREDICT, "-o", "theirs.parquet"], "is no file of these predictions"),
    "predictions over a p value": ([*PREDICT, "-o", "test.jsonl"], "is no file of these predictions"),
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
    Path("drawn").mkdir()
    Path("drawn/history.png").write_text("a picture of mine")
    theirs()
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    monkeypatch.setattr("kway.tables.reading.read_rows", None)  # nothing is read before the places are right
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()} == before
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
    for more in (["--keep", "species"], ["--topk", 2, "--proba", "--id", "species"]):
        assert cli(*PREDICT, "-o", "o.csv", "--force", *more)[0] == 0
        assert cli(*PREDICT, "-o", "o.csv", *more)[0] == 0
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
        monkeypatch.setattr("kway.modelfile.save", fail("lost.kway"))
    if broken != "model":
        monkeypatch.setattr("kway.report.page.write_page", fail("lost.html"))
    code, out, err = cli(*FIT, "-o", "lost.kway", "--report", "lost.html")
    assert code == 1
    assert "Cross-validation on the training rows" in out
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
    monkeypatch.setattr("kway.modelfile.save", lambda *_, **__: seen.append(capfd.readouterr().out))
    assert cli(*FIT)[0] == 0
    assert "Test accuracy" in seen[-1]  # those before are the best models so far


EACH = """
import json, sys
from kway.cli import run
for arguments in json.loads(sys.argv[1]):
    print("code", run(arguments), file=sys.stderr, flush=True)
"""


def test_predictions_that_cannot_be_written_name_their_file(iris):
    names = ["o.csv", "o.jsonl.gz", "o.parquet"]
    command = shlex.join([sys.executable, "-c", EACH, json.dumps([[*PREDICT, "-o", name] for name in names])])
    done = subprocess.run(["bash", "-c", f"ulimit -f 0; {command}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    said = [line for line in done.stderr.splitlines() if line.startswith(("error", "code"))]  # joblib warns before
    assert said == [line for name in names for line in (f"error: {name} cannot be written: File too large", "code 1")]
    assert not any(Path(name).exists() for name in names)


def test_figures_of_an_earlier_run_are_replaced(iris, cli):
    from kway import report

    folder = Path("figures")
    folder.mkdir()
    report.save(report.history({"": [2.0, 1.0]}), folder / "history.svg")
    report.save(report.history({"": [2.0, 1.0]}), folder / "history.png")
    assert cli(*FIT, "--report", "r.html", "--figures", "figures")[0] == 0
    (folder / "alpha.svg").write_text("mine")
    assert cli(*FIT, "--report", "r.html", "--figures", "figures")[0] == 2
    assert cli(*FIT, "--report", "r.html", "--figures", "figures", "--force")[0] == 0
