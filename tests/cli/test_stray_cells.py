"""One stray cell is a missing value wherever it stands, with a note, and never stops a batch."""

from pathlib import Path

import numpy as np
import pytest

import kway


def titanic(stray_rows=(), n=200):
    rng = np.random.default_rng(0)
    fares = [f"{v:.2f}" for v in rng.uniform(5, 90, n)]
    days = [f"2024-03-{d:02d}" for d in rng.integers(1, 29, n)]
    for row in stray_rows:
        fares[row], days[row] = "unknown", "2024-13-45"
    lived = (np.array([float(f) if f != "unknown" else 50.0 for f in fares]) > 40).astype(int)
    lines = [f"{f},{d},{y}" for f, d, y in zip(fares, days, lived)]
    return "\n".join(["Fare,Datum,Survived", *lines]) + "\n"


@pytest.mark.parametrize("row", [0, 5, 9, 20, 199])
@pytest.mark.parametrize("seed", [0, 3])
def test_it_does_not_matter_which_rows_are_test_rows(answer, row, seed):
    Path("t.csv").write_text(titanic([row]))
    found = answer("fit", "t.csv", "-t", "Survived", "--model", "centroid", "--seed", seed)
    notes = [note for note in found["notes"] if "read as missing" in note]
    where = f"in row {row + 1} (0.5% of the rows)"
    assert notes == [
        f"t.csv: column 'Fare': 1 cell is not numbers and read as missing: 'unknown' {where}",
        f"t.csv: column 'Datum': 1 cell is not dates and read as missing: '2024-13-45' {where}",
    ]
    kinds = {r["column"]: r["kind"] for r in kway.load("model.kway").features_.explain()}
    assert kinds == {"Fare": "number", "Datum": "date"}


def test_one_bad_cell_stops_no_batch_and_many_need_skip_bad(cli, answer):
    Path("t.csv").write_text(titanic())
    answer("fit", "t.csv", "-t", "Survived", "--model", "centroid")
    for n in (1, 2, 10, 200):
        Path("new.csv").write_text(titanic([0], n))
        code, out, err = cli("predict", "model.kway", "new.csv")
        assert (code, out.count("\n")) == (0, n + 1)
        assert f"column 'Fare': 1 cell is not numbers and read as missing: 'unknown' in row 1 ({1 / n:.1%}" in err
    Path("new.csv").write_text(titanic(range(50)))
    code, _, err = cli("predict", "model.kway", "new.csv")
    assert code == 1
    assert "new.csv: column 'Fare' must contain numbers, as in training, but 50 of 200 cells are other words" in err
    assert "(--skip-bad)" in err
    code, out, _ = cli("predict", "model.kway", "new.csv", "--skip-bad")
    assert (code, out.count("\n")) == (0, 201)
    assert cli("evaluate", "model.kway", "new.csv", "--skip-bad")[0] == 0


def test_a_test_file_is_read_in_the_same_way(answer):
    Path("t.csv").write_text(titanic())
    Path("held.csv").write_text(titanic([3, 4], 60))
    found = answer("fit", "t.csv", "-t", "Survived", "--model", "centroid", "--test", "held.csv")
    assert any("held.csv: column 'Fare': 2 cells are not numbers" in note for note in found["notes"])
    assert found["test"]["rows"] == 60


def test_labels_that_differ_in_case_or_blanks_are_joined_if_asked(answer, cli):
    labels = ["Yes", "yes", "Yes", " YES ", "no", "No", "no", "no"]
    rows = [f"{i % 8 // 4 + i % 3 / 10},{labels[i % 8]}" for i in range(160)]
    Path("t.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    err = cli("compare", "t.csv", "-t", "y", "--model", "centroid")[2]
    assert "to join them: join_labels=True" in err
    found = answer("fit", "t.csv", "-t", "y", "--model", "centroid", "--join-labels")
    assert found["data"]["classes"] == 2
    assert found["test"]["accuracy"] == 1
    assert kway.load("model.kway").classes_.tolist() == ["Yes", "no"]
    assert answer("evaluate", "model.kway", "t.csv", "--join-labels")["accuracy"] == 1
    found = kway.fit("t.csv", "y", models="centroid", also=(), join_labels=True)
    assert found.classes_.tolist() == ["Yes", "no"]
