"""`kway predict` joins its answers to what came in: columns kept, ids, names of images, stdin, other formats."""

import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kway


@pytest.fixture
def trees(answer):
    """A table with codes such as 007, and a model that tells its two kinds."""
    rows = [f"{i:03d},{'1.234,5' if i % 2 else '2,5'},{'red' if i % 3 else 'blue'},{'ab'[i % 2]}" for i in range(60)]
    text = "code;size;colour;kind\n" + "\n".join(";".join(_split(r)) for r in rows) + "\n"
    Path("trees.csv").write_text(text)
    answer("fit", "trees.csv", "-t", "kind", "--model", "centroid", "--id", "code")
    return text


def _split(row):
    code, rest = row.split(",", 1)
    size, colour, kind = rest.rsplit(",", 2)
    return code, size, colour, kind


def test_columns_are_kept_as_they_were_written(trees, cli, read_csv):
    assert cli("predict", "model.kway", "trees.csv", "--keep", "all", "-o", "o.csv")[0] == 0
    first = read_csv("o.csv")[7]
    assert first == {"code": "007", "size": "1.234,5", "colour": "red", "kind": "b", "prediction": "b"}
    assert cli("predict", "model.kway", "trees.csv", "--keep", "size,colour", "--topk", 1, "-o", "p.csv")[0] == 0
    assert list(read_csv("p.csv")[0]) == ["code", "size", "colour", "prediction", "label_1", "score_1"]
    code, _, err = cli("predict", "model.kway", "trees.csv", "--keep", "sizes")
    assert code == 2
    assert "did you mean 'size'" in err


def test_a_kept_column_makes_way_for_the_answer(trees, cli, read_csv):
    Path("t.csv").write_text(trees.replace("kind", "prediction"))
    assert cli("predict", "model.kway", "t.csv", "--keep", "prediction", "-o", "o.csv")[0] == 0
    assert list(read_csv("o.csv")[1].items()) == [("code", "001"), ("prediction (input)", "b"), ("prediction", "b")]


def test_json_gives_plain_numbers_back_as_numbers(iris, cli, answer):
    names = [*(f"{part} {side} (cm)" for part in ("sepal", "petal") for side in ("length", "width")), "code", "big"]
    names += ["gap", "mark"]
    rows = ["5.10,3.5,1,2e-1,007,12345678901234567890,,-3", "4.9,3,1,0.2,008,1,2,4"]
    Path("few.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    assert cli("predict", "model.kway", "few.csv", "--keep", "all", "-o", "o.jsonl")[0] == 0
    first = json.loads(Path("o.jsonl").read_text().splitlines()[0])
    assert [first[name] for name in names] == [5.1, 3.5, 1, 0.2, "007", "12345678901234567890", None, -3]
    assert answer("predict", "model.kway", "few.csv", "--keep", "mark")["predictions"]["mark"] == [-3, 4]
    assert cli("predict", "model.kway", "few.csv", "--keep", "all", "-o", "o.csv")[0] == 0
    assert Path("o.csv").read_text().splitlines()[1].startswith('"5.10","3.5","1","2e-1","007"')
    Path("few.jsonl").write_text(json.dumps({**dict.fromkeys(names[:4], 1.5), "code": "12"}) + "\n")
    assert answer("predict", "model.kway", "few.jsonl", "--keep", "code")["predictions"]["code"] == ["12"]


def test_json_loses_no_digits(iris, cli):
    """Fractions of more digits than a float holds stay text; floats of 32 bits are written as they are."""
    table = {f"{part} {side} (cm)": [5.1, 4.9] for part in ("sepal", "petal") for side in ("length", "width")}
    table |= {"fine": ["0.12345678901234567890", "1.5"]}
    names, rows = ",".join(table), [",".join(map(str, row)) for row in zip(*table.values())]
    Path("few.csv").write_text("\n".join([names, *rows]) + "\n")
    assert cli("predict", "model.kway", "few.csv", "--keep", "fine", "-o", "o.jsonl")[0] == 0
    assert '"fine": "0.12345678901234567890"' in Path("o.jsonl").read_text()
    narrow = {c: pa.array(v, pa.float32()) for c, v in table.items() if c != "fine"}
    pq.write_table(pa.table(narrow), "few.parquet")
    assert cli("predict", "model.kway", "few.parquet", "--keep", "all", "-o", "p.jsonl")[0] == 0
    assert json.loads(Path("p.jsonl").read_text().splitlines()[0])["sepal length (cm)"] == 5.1


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.jsonl", "o.jsonl.gz", "o.parquet", "o.txt"])
def test_formats(trees, cli, name):
    options = ["--format", "jsonl"] if name == "o.txt" else []
    code, out, err = cli("predict", "model.kway", "trees.csv", "--id", "code", "-o", name, *options)
    assert code == 0, err
    assert "Wrote 60 predictions" in out
    raw = Path(name).read_bytes()
    raw = gzip.decompress(raw) if name.endswith(".gz") else raw
    if name == "o.parquet":
        rows = pq.read_table(name).to_pylist()
    elif "csv" in name:
        rows = [
            dict(zip(("code", "prediction"), line.replace('"', "").split(","))) for line in raw.decode().split()[1:]
        ]
    else:
        rows = [json.loads(line) for line in raw.splitlines()]
    assert rows[:2] == [{"code": "000", "prediction": "a"}, {"code": "001", "prediction": "b"}]
    assert len(rows) == 60


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_stdin(trees, cli, monkeypatch, kind):
    lines = [line.split(";") for line in trees.splitlines()]
    rows = [dict(zip(lines[0], line)) for line in lines[1:4]]
    text = trees if kind == "csv" else "\n".join(map(json.dumps, rows)) + "\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, out, err = cli("predict", "model.kway", "-", "--keep", "size", "--format", "jsonl")
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[1]) == {"code": "001", "size": "1.234,5", "prediction": "b"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    code, out, err = cli("predict", "model.kway", "-")
    assert (code, out) == (1, "")
    assert "stdin cannot be read: it is empty" in err


def test_every_verb_reads_as_training_did(trees, answer, cli):
    assert answer("evaluate", "model.kway", "trees.csv")["accuracy"] == 1
    Path("plain.csv").write_text("code,size,colour\n7,1234.5,red\n8,2.5,red\n")
    assert answer("predict", "model.kway", "plain.csv")["predictions"]["prediction"] == ["b", "a"]
    answer("fit", "trees.csv", "-t", "kind", "--model", "neighbors", "--drop", "code", "-o", "near.kway")
    told = answer("neighbors", "near.kway", "trees.csv", "--sep", ";", "--decimal", ",")
    assert [row["prediction"] for row in told["rows"][:2]] == ["a", "b"]


def test_blocks_are_one_answer(cli, answer, monkeypatch, iris):
    whole = answer("predict", "model.kway", "iris.csv", "--proba", "--keep", "species")
    monkeypatch.setattr("kway.memory.rows_per_block", lambda row_bytes: 7)
    assert answer("predict", "model.kway", "iris.csv", "--proba", "--keep", "species") == whole
    for name in ("o.csv", "o.jsonl", "o.parquet"):
        assert cli("predict", "model.kway", "iris.csv", "-o", name)[0] == 0
    assert pq.read_table("o.parquet")["prediction"].to_pylist() == whole["predictions"]["prediction"]
    assert Path("o.csv").read_text().count("prediction") == 1
    assert len(Path("o.jsonl").read_text().splitlines()) == 150


def test_names_of_images_and_a_single_one(cli, answer, read_csv):
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for kind, level in (("dark", 40), ("light", 200)):
        Path("images", kind).mkdir(parents=True)
        for i in range(12):
            pillow.fromarray(rng.integers(level - 30, level + 30, (8, 8)).astype(np.uint8)).save(
                Path("images", kind, f"{i}.png")
            )
    answer("fit", "images", "--model", "centroid")
    assert cli("predict", "model.kway", "images", "-o", "o.csv")[0] == 0
    lines = read_csv("o.csv")
    assert len(lines) == 24
    assert all(Path(line["file"]).parent.name == line["prediction"] for line in lines)
    one = answer("predict", "model.kway", "images/light/3.png")["predictions"]
    assert one == {"file": ["images/light/3.png"], "prediction": ["light"]}
    code, _, err = cli("predict", "model.kway", "images/light/33.png")
    assert code == 1
    assert "no file images/light/33.png" in err


def test_ids_of_an_npz_file(cli, answer):
    data = kway.datasets.load("iris")
    answer("fit", "iris", "--model", "centroid")
    np.savez("rows.npz", x=data.x_test, who=np.array([f"n{i}" for i in range(30)]))
    assert answer("predict", "model.kway", "rows.npz", "--id", "who")["predictions"]["who"][:2] == ["n0", "n1"]
    code, _, err = cli("predict", "model.kway", "rows.npz", "--id", "whom")
    assert code == 2
    assert "has no array 'whom' with one value per row for id; it has who" in err
