"""`kway predict --cluster` over a real cluster of three nodes: the answers of one machine, gone on after an end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kway
from kway.cli import run as cli
from kway.cli.predict_parts import LOCK

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")

FILES, ROWS = 6, 3000


def command(*arguments, **options):
    line = [sys.executable, "-m", "kway", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(*arguments):
    process = command(*arguments)
    out, err = process.communicate(timeout=600)
    assert "Traceback" not in err
    return process.returncode, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and a folder of parquet: numbers, a category with gaps, a column of names."""
    place = tmp_path_factory.mktemp("batch")
    rng = np.random.default_rng(0)
    (place / "big").mkdir()
    for number in range(FILES):
        X = rng.normal(size=(ROWS, 6)).astype(np.float32)
        colour = np.array(["red", "green", None], object)[rng.integers(3, size=ROWS)]
        label = (X[:, 0] + (colour == "red") > 0.3).astype(int) + (X[:, 1] > 0)
        columns = {f"x{j}": X[:, j] for j in range(6)} | {"colour": colour.tolist(), "label": label.tolist()}
        columns["name"] = [f"{number}-{i}" for i in range(ROWS)]
        pq.write_table(pa.table(columns), place / "big" / f"{number}.parquet", row_group_size=1000)
    first = place / "big" / "0.parquet"
    outputs = ("-o", place / "m.kway", "--report", place / "r.html")
    assert cli(["fit", *map(str, (first, "-t", "label", "--id", "name", "--model", "softmax", *outputs))]) == 0
    return place


def test_the_answers_of_one_machine_and_an_end_in_between(nodes, cluster, folder, tmp_path, capfd):
    asked = ("predict", folder / "m.kway", folder / "big", "-t", "label", "--topk", 2)
    assert cli([*map(str, asked), "-o", str(tmp_path / "here.parquet")]) == 0
    here, out = pq.read_table(tmp_path / "here.parquet"), tmp_path / "there"
    with cluster():
        there = ("--cluster", "--address", nodes.address, "-o", out)
        ended = command(*asked, *there)
        while not list(out.glob("part-*.parquet")):
            time.sleep(0.01)
            assert ended.poll() is None, ended.stderr.read()
        ended.kill()
        ended.communicate()
        kept = {path: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}
        (out / "part-000003.parquet").unlink(missing_ok=True)
        begun = time.monotonic()
        code, said, err = run(*asked, *there, "--json")
        assert code == 0, err
        told = json.loads(said)
        took = time.monotonic() - begun
        capfd.readouterr()
        assert cli([*map(str, asked), *map(str, there), "--json"]) == 0
        again = json.loads(capfd.readouterr().out)
        with capfd.disabled():
            print(f"\ngone on with after a kill: {told['kept']} parts kept, {told['rows']:,} rows in {took:.1f} s")
    parts = sorted(out.glob("part-*.parquet"))
    assert len(parts) == told["parts"] == FILES
    assert told["rows"] == ROWS * (FILES - told["kept"])
    assert again["kept"] == FILES
    for path, changed in kept.items():  # what was done is not done again
        assert path.name == "part-000003.parquet" or path.stat().st_mtime_ns == changed
    assert pa.concat_tables([pq.read_table(path) for path in parts]).equals(here)
    assert pq.read_table(out)["name"].to_pylist()[:3] == ["0-0", "0-1", "0-2"]  # the notes are no obstacle to readers


def test_two_runs_at_once_into_one_folder(nodes, cluster, folder, tmp_path):
    asked, out = ("predict", folder / "m.kway", folder / "big", "-t", "label"), tmp_path / "out"
    there = ("--address", nodes.address, "-o", out)
    with cluster():
        first = command(*asked, *there)
        while not (out / LOCK).exists():
            time.sleep(0.01)
            assert first.poll() is None, first.stderr.read()
        first.send_signal(signal.SIGSTOP)  # its workers go on
        try:
            code, _, err = run(*asked, *there, "--topk", 2, "--force")
        finally:
            first.send_signal(signal.SIGCONT)
        _, told = first.communicate(timeout=600)
    assert (code, first.returncode) == (2, 0), told
    assert "another run is writing into --out" in err
    found = pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("part-*.parquet"))])
    assert found.column_names == ["name", "prediction"]
    assert found["name"].to_pylist() == [f"{n}-{i}" for n in range(FILES) for i in range(ROWS)]
    assert not (out / LOCK).exists()


def stations(nodes):
    """Processes of the cluster that predict: children of its nodes, by their title."""
    raylets = {info.process.pid for node in nodes.list_all_nodes() for info in node.all_processes.get("raylet", [])}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            title, parent = (
                (place / "cmdline").read_bytes(),
                int((place / "stat").read_text().rpartition(")")[2].split()[1]),
            )
        except OSError:
            continue
        if parent in raylets and b"ray::process_item" in title:
            yield int(place.name)


def test_workers_killed_meanwhile_lose_nothing(nodes, cluster, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(6000, 32)).astype(np.float32)
    model = kway.NeighborsClassifier(5, metric="manhattan", index="flat").fit(X, np.arange(6000) % 7)
    model.save(tmp_path / "m.kway")
    (tmp_path / "big").mkdir()
    for number in range(8):
        np.save(tmp_path / "big" / f"{number:02d}.npy", rng.normal(size=(4000, 32)).astype(np.float32))
    wanted = np.concatenate([model.predict(np.load(path)) for path in sorted((tmp_path / "big").glob("*.npy"))])
    out, killed = tmp_path / "out", set()
    with cluster():
        asked = command("predict", tmp_path / "m.kway", tmp_path / "big", "--address", nodes.address, "-o", out)
        while asked.poll() is None and len(killed) < 2:
            for victim in list(stations(nodes))[:1] if len(list(out.glob("part-*.parquet"))) > len(killed) else []:
                if victim not in killed:
                    os.kill(victim, signal.SIGKILL)
                    killed.add(victim)
            time.sleep(0.02)
        said, err = asked.communicate(timeout=600)
    print(f"\n{len(killed)} workers killed; {said.strip()}")
    assert asked.returncode == 0, err
    assert killed
    found = np.concatenate([pq.read_table(path)["prediction"].to_numpy() for path in sorted(out.glob("part-*"))])
    np.testing.assert_array_equal(found, wanted)
    assert not list(out.glob(".*draft"))


def test_what_is_wrong_is_a_sentence_before_anything_is_written(nodes, cluster, folder, tmp_path, capfd):
    def refused(code, data, *options):
        there = ("--address", nodes.address, *options)
        assert cli(list(map(str, ("predict", folder / "m.kway", data, *there)))) == code
        return capfd.readouterr().err

    with cluster():
        assert "give its name with --out" in refused(2, folder / "big")
        np.save(tmp_path / "few.npy", np.zeros((4, 3)))
        refused(1, tmp_path / "few.npy", "-o", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        (tmp_path / "some.jsonl").write_text('{"x0": 1}')
        assert "cannot be divided into parts" in refused(1, tmp_path / "some.jsonl", "-o", tmp_path / "out")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "mine.txt").write_text("mine")
        assert "has files that kway did not write" in refused(2, folder / "big", "-o", tmp_path / "full", "--force")
        assert "is DATA or a folder above it" in refused(2, folder / "big", "-o", folder / "big", "--force")
        (tmp_path / "full" / "_kway.json").write_text("{}")
        assert "another model and other data and other options" in refused(2, folder / "big", "-o", tmp_path / "full")
    assert [path.name for path in sorted((tmp_path / "full").iterdir())] == ["_kway.json", "mine.txt"]
