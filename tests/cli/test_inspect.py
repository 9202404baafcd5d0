"""`kway inspect`: wrong labels, conflicts and shared rows through the command line and in a file."""

import numpy as np
import pandas as pd
import pytest

QUICK = ("--model", "softmax", "--alpha", "0.01")


@pytest.fixture
def table(tmp_path):
    """A csv of 300 rows: labels 11, 40 and 77 are wrong, and row 200 is row 20 with another label."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    rows = pd.DataFrame(
        {"code": [f"r{i:03}" for i in range(300)], "a": rng.normal(size=300) + 6 * y, "b": rng.normal(size=300)}
    )
    y[200] = 1 - y[20]
    rows.loc[200, ["a", "b"]] = rows.loc[20, ["a", "b"]]
    y[[11, 40, 77]] = 1 - y[[11, 40, 77]]
    rows["kind"] = np.array(["ham", "spam"])[y]
    rows.to_csv("t.csv", index=False)
    return rows


def test_a_file_of_problems(table, cli, answer, read_csv):
    found = answer("inspect", "t.csv", "-t", "kind", "--id", "code", "-o", "out.csv", *QUICK)
    lines = read_csv("out.csv")
    wrong = [line for line in lines if line["problem"] == "wrong label"]
    assert {77, 200} <= {int(line["row"]) for line in wrong} <= {11, 40, 77, 200}
    assert (found["wrong"], found["conflicts"], found["judged"]) == (len(wrong), 1, 300)
    assert wrong[0]["id"] == f"r{int(wrong[0]['row']):03}"
    assert len(wrong[0]["neighbors"].split("|")) == len(wrong[0]["neighbor_labels"].split("|")) == 5
    pair = next(line for line in lines if line["problem"] == "conflict")
    assert (pair["row"], pair["neighbors"]) == ("20", "200")
    assert pair["label"] != pair["neighbor_labels"]
    code, out, _ = cli("inspect", "t.csv", "-t", "kind", "-o", "out.csv", *QUICK)  # its own file is overwritten
    assert code == 0
    assert f"{len(wrong)} of 300 labels are suspicious" in out
    assert "1 pair of nearly equal rows have different labels" in out


def test_so_many_rows(table, answer):
    found = answer("inspect", "t.csv", "-t", "kind", "--drop", "code", "--rows", "50", *QUICK)
    listed = [each["row"] for each in found["problems"] if each["problem"] == "wrong label"]
    assert len(listed) == 50
    assert set(listed[:4]) == {11, 40, 77, 200}


def test_rows_that_are_also_test_rows(table, answer):
    table.iloc[[5, 9]].to_csv("test.csv", index=False)
    found = answer("inspect", "t.csv", "-t", "kind", "--drop", "code", "--test", "test.csv", *QUICK)
    shared = [(each["neighbors"][0], each["row"]) for each in found["problems"] if each["problem"] == "shared"]
    assert shared == [(5, 0), (9, 1)]


def test_a_saved_model_judges(table, cli, answer):
    table.iloc[100:].to_csv("train.csv", index=False)
    answer("fit", "train.csv", "-t", "kind", "--drop", "code", *QUICK)
    table.iloc[:100].to_csv("new.csv", index=False)
    found = answer("inspect", "new.csv", "--by", "model.kway", "--rows", "3")
    assert {each["row"] for each in found["problems"]} == {11, 40, 77}
    assert found["model"] == "FeaturedClassifier"
    code, _, err = cli("inspect", "new.csv", "--by", "model.kway", "--test", "train.csv")
    assert code == 2
    assert "leave it out with --by" in err


def test_rows_have_their_numbers_and_ids_in_the_file(table, cli, answer, read_csv):
    """Neither a column `split` nor rows without a label change the numbers of the other rows."""
    table["split"] = np.where(np.isin(np.arange(300), [2, 7, 20, 200]) | (np.arange(300) % 9 == 1), "test", "train")
    table.loc[[4, 5, 30], ["a", "b"]] = table.loc[2, ["a", "b"]].tolist()  # train rows equal to test row 2
    table.loc[[0, 3], "kind"] = None
    table.to_csv("split.csv", index=False)
    numbers = {code: row for row, code in enumerate(table["code"])}
    kinds, is_test = table["kind"].tolist(), (table["split"] == "test").tolist()
    for name, options in {"divided.csv": (), "whole.csv": ("--drop", "split")}.items():
        common = ("-t", "kind", "--id", "code", "--skip-bad", *options, *QUICK)
        answer("inspect", "split.csv", *common, "--rows", "40", "-o", name)
        for line in read_csv(name):
            near = [int(row) for row in line["neighbors"].split("|")]
            assert int(line["row"]) == numbers[line["id"]]
            assert line["label"] == kinds[int(line["row"])]
            assert line["neighbor_labels"].split("|") == [kinds[row] for row in near]
            if not options:
                assert is_test[int(line["row"])] == (line["problem"] == "shared")
                assert not any(is_test[row] for row in near)
    assert {"4", "5", "30"} & {
        e["neighbors"] for e in read_csv("divided.csv") if (e["problem"], e["row"]) == ("shared", "2")
    }
    answer("fit", "split.csv", "-t", "kind", "--drop", "code", "--skip-bad", *QUICK)
    found = answer("inspect", "split.csv", "--by", "model.kway", "--id", "code", "--skip-bad", "--rows", "30")
    wrong = [each for each in found["problems"] if each["problem"] == "wrong label"]
    assert len(wrong) == 30
    assert all(numbers[each["id"]] == each["row"] for each in wrong)


def test_ids_of_arrays(cli, answer):
    """Training rows and test rows have ids of their own; if only test rows have them, an inspection refuses."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    arrays = {"x_train": rng.normal(size=(120, 2)) + 6 * y[:, None], "y_train": y, "y_test": y[:60]}
    arrays |= {"x_test": arrays["x_train"][:60] + 0.5, "id_test": np.arange(60) + 1000}
    np.savez("tests.npz", **arrays)
    np.savez("both.npz", **arrays, id_train=np.arange(120) + 100)
    code, _, err = cli("inspect", "tests.npz", "--id", "id", *QUICK)
    assert code != 0
    assert "for its test rows only" in err
    found = answer("inspect", "both.npz", "--id", "id", "--rows", "5", *QUICK)
    assert [each["id"] - each["row"] for each in found["problems"][:5]] == [100] * 5
    answer("fit", "both.npz", *QUICK)
    found = answer("inspect", "both.npz", "--by", "model.kway", "--id", "id", "--rows", "5")
    assert [each["id"] - each["row"] for each in found["problems"][:5]] == [1000] * 5


def test_foreign_files_stay(table, cli):
    with open("mine.csv", "w") as file:
        file.write("a,b\n1,2\n")
    code, _, err = cli("inspect", "t.csv", "-t", "kind", "-o", "mine.csv", *QUICK)
    assert code == 2
    assert "mine.csv" in err
    assert cli("inspect", "t.csv", "-t", "kind", "-o", "out.xml", *QUICK)[0] == 2
