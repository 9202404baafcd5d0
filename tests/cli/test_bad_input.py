"""Bad input to `kway fit`: one clear line, exit code 1, and nothing half-written."""

import numpy as np
import pytest

import kway
from kway.cli import run
from kway.errors import InputError


@pytest.fixture(autouse=True)
def no_page():
    """Here the page is written: it tells what became of odd columns."""


def rows(n=60, **columns):
    """Lines of a csv file with a column x that tells the class y, and more columns (functions of the row number)."""
    head = ["x", *columns, "y"]
    lines = [[f"{i % 3 + i / 1000:.3f}", *(str(make(i)) for make in columns.values()), "abc"[i % 3]] for i in range(n)]
    return "\n".join(",".join(line) for line in [head, *lines]) + "\n"


FAILURES = {
    "target of ids": ("x,y\n" + "".join(f"{i},id{i}\n" for i in range(30)), ["--target", "y"], "label in each of"),
    "one class": ("x,y\n" + "1,a\n2,a\n" * 10, ["--target", "y"], "one class only"),
    "a measure": ("x,y\n" + "".join(f"{i},{i % 7}.5\n" for i in range(30)), ["--target", "y"], "fractions such as"),
    "group and order": (
        rows(g=lambda i: i % 5, t=lambda i: i), ["--target", "y", "--group", "g", "--order", "t"], "both given",
    ),
    "one group": (rows(g=lambda i: 1), ["--target", "y", "--group", "g"], "belong to one group"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_fit_fails_with_one_line(name, tmp_path, monkeypatch, capfd):
    text, options, message = FAILURES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(text)
    assert run(["fit", "t.csv", *options]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert [f.name for f in tmp_path.iterdir()] == ["t.csv"]


def test_a_label_never_seen(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(rows())
    (tmp_path / "test.csv").write_text("x,y\n1,zebra\n2,a\n")
    assert run(["fit", "t.csv", "--target", "y", "--test", "test.csv"]) == 1
    assert "labels that do not occur in training: 'zebra'" in capfd.readouterr().err
    assert not (tmp_path / "model.kway").exists()


VERBS = {
    "fit": ["fit", "images", "--model", "neighbors"],
    "compare": ["compare", "images", "--model", "centroid"],
    "predict": ["predict", "model.kway", "images"],
    "evaluate": ["evaluate", "model.kway", "images"],
    "neighbors": ["neighbors", "model.kway", "images"],
    "export": ["data", "export", "images", "--out", "images.npz"],
}


def test_an_unreadable_image_is_named_and_skipped_by_every_verb(tmp_path, monkeypatch, capfd):
    pillow = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for kind, level in (("dark", 40), ("light", 200)):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(level - 30, level + 30, (8, 8)).astype(np.uint8)
            pillow.fromarray(pixels).save(tmp_path / "images" / kind / f"{i}.png")
    (tmp_path / "images" / "dark" / "broken.png").write_bytes(b"not an image")
    for verb, words in VERBS.items():
        if verb == "fit":
            assert run([*words, "--skip-bad"]) == 0
            assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")
            assert "Test accuracy: 1.0000" in capfd.readouterr().out
        assert run(words) == 1, verb
        assert "broken.png cannot be read" in (said := capfd.readouterr().err)
        assert "--skip-bad" in said
        assert run([*words, "--skip-bad"]) == 0, verb
        capfd.readouterr()
    with np.load("images.npz") as file:
        assert file["x_train"].shape == (24, 64)


def test_odd_columns_are_dealt_with_and_told(tmp_path, monkeypatch, capfd):
    """An id, an empty column, mixed types and a class of one row do not stop the job."""
    monkeypatch.chdir(tmp_path)
    text = rows(id=lambda i: f"r{i:04d}", empty=lambda i: "", mixed=lambda i: i if i % 4 else "n/a")
    (tmp_path / "t.csv").write_text(text + "5,r9999,,7,lonely\n")
    assert run(["fit", "t.csv", "--target", "y", "--model", "softmax,centroid"]) == 0
    assert "1 classes have only one row (lonely)" in capfd.readouterr().err
    page = (tmp_path / "report.html").read_text()
    assert page.count("dropped: ") >= 2
    assert run(["predict", "model.kway", "t.csv"]) == 0
    assert run(["neighbors", "model.kway", "t.csv"]) == 1
    assert "has no neighbors" in capfd.readouterr().err


@pytest.mark.parametrize(("gap", "labels"), [("", "abc"), (" ", "abc"), ("NA", "123")])
def test_rows_without_a_label_are_left_out_where_that_is_asked(gap, labels, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "t.csv", "--target", "y", "--model", "centroid", "--json"]
    lines = [f"{i % 3}.{i},{labels[i % 3]}" for i in range(60)] + [f"7,{gap}"] * 5
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    assert run(fit) == 1
    assert "5 of 65 rows; label these rows, or leave them out: skip_bad=True (--skip-bad)" in capfd.readouterr().err
    assert run([*fit, "--skip-bad"]) == 0
    assert "5 rows without a label left out" in capfd.readouterr().out
    assert run(["evaluate", "model.kway", "t.csv", "--skip-bad"]) == 0
    told = capfd.readouterr()
    assert "on 60 rows" in told.out
    assert "note: t.csv: 5 rows without a label left out" in told.err
    (tmp_path / "t.csv").write_text("x,y\n" + f"1,{gap}\n" * 9)
    assert run([*fit, "--skip-bad"]) == 1


def test_rows_of_a_frame_without_a_label():
    frame = {"x": [*(i % 7 for i in range(40)), 7, 8], "y": [*"ab" * 20, None, float("nan")]}
    with pytest.raises(InputError, match=r"empty in 2 of 42 rows.*skip_bad=True"):
        kway.fit(frame, "y", models="centroid")
    assert "2 rows without a label" in " ".join(kway.fit(frame, "y", models="centroid", skip_bad=True).notes)


def test_labels_that_look_alike_are_said(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    names = [" ham", "ham", "ham ", "Ham", "NA", "eggs"]
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i % 6}.5,{names[i % 6]}\n" for i in range(120)))
    assert run(["fit", "t.csv", "--target", "y", "--model", "centroid"]) == 0
    out, err = (" ".join(text.split()) for text in capfd.readouterr())
    assert "4 classes" in out  # blanks around values of a csv do not count
    assert "differ only in blanks or capitals, 'Ham' and 'ham'" in err
    assert "'NA' in 20 rows, which counts as a class" in err
    assert run(["evaluate", "model.kway", "t.csv"]) == 0  # read the same way
    assert "do not occur" not in capfd.readouterr().err


def test_a_test_on_the_data_itself_is_refused_and_one_on_its_rows_is_said(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(rows())
    (tmp_path / "twin.csv").write_text(rows())
    (tmp_path / "link.csv").symlink_to("t.csv")
    fit = ["fit", "t.csv", "--target", "y", "--model", "centroid", "--json"]
    for same in ("t.csv", "./t.csv", "link.csv"):
        assert run([*fit, "--test", same]) == 2
        assert "the test rows are the training data" in capfd.readouterr().err
    assert run([*fit, "--test", "twin.csv"]) == 0
    assert "60 of the 60 test rows are also training rows" in capfd.readouterr().out
    (tmp_path / "other.csv").write_text("x,y\n" + "".join(f"{i % 3}.5{i},{'abc'[i % 3]}\n" for i in range(30)))
    assert run([*fit, "--test", "other.csv"]) == 0
    assert "also training rows" not in capfd.readouterr().out
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    with pytest.raises(InputError, match="the training data"):
        kway.fit(X, y, test=(X, y), models="centroid")
    assert "10 of the 10" in " ".join(kway.fit(X, y, test=(X[5:15], y[5:15]), models="centroid").notes)
