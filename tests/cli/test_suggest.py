"""`kway suggest`: a file of rows to label next."""

from pathlib import Path


def test_rows_in_a_file(iris, cli, answer, read_csv):
    found = answer("suggest", "model.kway", "iris.csv", "-n", "7", "-o", "next.csv")
    lines = read_csv("next.csv")
    assert [int(line["row"]) for line in lines] == [each["row"] for each in found["rows"]]
    assert list(lines[0]) == ["row", "prediction", "margin"]
    assert len({line["row"] for line in lines}) == 7
    margins = [float(line["margin"]) for line in lines]
    assert margins == [each["margin"] for each in found["rows"]]
    assert 0 <= min(margins) <= max(margins) <= 1
    code, out, _ = cli("suggest", "model.kway", "iris.csv", "-n", "3", "-o", "next.csv", "--seed", "1")
    assert code == 0
    assert "Rows to label next" in out
    assert "Wrote 3 rows to next.csv" in out
    code, _, err = cli("suggest", "model.kway", "iris.csv", "-o", "iris.csv")
    assert code == 2
    assert "POOL" in err or "iris.csv" in err


def test_a_kept_column_with_the_name_of_an_output_column_is_renamed(iris, cli, answer, read_csv):
    lines = Path("iris.csv").read_text().splitlines()
    rows = [lines[0] + ",row", *(f"{line},id{i}" for i, line in enumerate(lines[1:]))]
    Path("pool.csv").write_text("\n".join(rows) + "\n")
    answer("suggest", "model.kway", "pool.csv", "-n", "4", "--id", "row", "-o", "next.csv")
    written = read_csv("next.csv")
    assert list(written[0]) == ["row", "row (input)", "prediction", "margin"]
    assert all(line["row (input)"] == f"id{line['row']}" for line in written)
