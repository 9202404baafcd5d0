"""Tables that a new user may bring, through the command line: read, or refused with the line and what helps."""

import json
from pathlib import Path

import pytest

import kway
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.row_stream import row_stream

FIT = ("-t", "k", "--model", "centroid")


def write(name, header, row, n=60, before=""):
    Path(name).write_text(before + "".join(line + "\n" for line in [header, *(row(i) for i in range(n))]))


def letter(i):
    return "ab"[i % 2]


def kinds():
    return {record["column"]: record["kind"] for record in kway.load("model.kway").features_.explain()}


def test_thousands_with_dots_name_the_option(cli):
    write("t.csv", "people;size;k", lambda i: f"{i % 9 + 1}.{i * 7 % 1000:03d};{i}.5;{letter(i)}")
    err = cli("fit", "t.csv", *FIT)[2]
    assert "column 'people' has three digits after every dot" in err
    assert "(decimal=',' if the dots separate thousands)" in err
    assert "column 'size'" not in err
    assert "three digits" not in cli("fit", "t.csv", *FIT, "--decimal", ".", "--force")[2]
    assert read_rows("t.csv", ReadOptions("k")).rows.column("people")[1].as_py() == 2.007


def test_shares_of_three_digits_are_no_thousands(cli):
    write("t.csv", "share;k", lambda i: f"0.{i * 7 % 1000:03d};{letter(i)}")
    assert "three digits" not in cli("compare", "t.csv", *FIT)[2]


def test_negatives_of_accountants(cli):
    write("t.csv", "debit,credit,k", lambda i: f'"({i % 9 + 1},234.50)",{i}.25{"-" * (i % 2)},{letter(i)}')
    err = cli("fit", "t.csv", *FIT)[2]
    assert kinds() == {"debit": "number", "credit": "number"}
    assert ", between thousands, () read as minus" in err
    assert "- at the end read as minus" in err


def test_codes_keep_their_zeros(cli, answer):
    write("t.csv", "zip,n,k", lambda i: f"{(i % 2) * 5200 + 52:04d},{i:d},{letter(i)}")
    err = cli("fit", "t.csv", *FIT, "-v")[2]
    assert 'category  "0052"' in err
    assert "codes with leading zeros" in err
    assert answer("evaluate", "model.kway", "t.csv")["accuracy"] == 1
    err = cli("fit", "t.csv", *FIT, "--types", "zip=number", "--force")[2]
    assert kinds()["zip"] == "number"
    assert answer("evaluate", "model.kway", "t.csv")["accuracy"] == 1


def test_zeros_before_numbers_of_any_width_are_none():
    write("t.csv", "n,k", lambda i: f"{i:02d},{letter(i)}", n=120)
    assert str(read_rows("t.csv", ReadOptions("k")).rows.schema.field("n").type) == "int64"


def test_codes_are_codes_in_every_piece(monkeypatch):
    write("t.csv", "zip,k", lambda i: f"{i * 100 + 7:06d},{letter(i)}", n=4000)
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 1)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 9_000)
    found = [piece.rows.column("zip") for piece in row_stream("t.csv", ReadOptions("k"))]
    assert len(found) > 3
    assert [zip_.as_py() for part in found for zip_ in part][::1000] == ["000007", "100007", "200007", "300007"]


def test_lines_that_excel_writes(cli, answer):
    write("t.csv", "x;y;k", lambda i: f"{i},5;{i % 2};{letter(i)}", before="sep=;\n")
    answer("fit", "t.csv", *FIT)
    assert kinds() == {"x": "number", "y": "number"}
    assert answer("evaluate", "model.kway", "t.csv")["rows"] == 60


def test_lines_that_excel_writes_above_a_file_in_pieces(monkeypatch):
    write("t.csv", "x;k", lambda i: f"{i};{letter(i)}", n=4000, before="\ufeffsep=;\r\n")
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 1)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 9_000)
    found = [piece.rows for piece in row_stream("t.csv", ReadOptions("k"))]
    assert len(found) > 1
    assert sum(part.num_rows for part in found) == 4000
    assert found[0].column_names == ["x"]


def test_a_header_cell_with_a_line_break_in_pieces(monkeypatch):
    write("t.csv", '"x\nin m",size 5",k', lambda i: f"{i},{i},{letter(i)}", n=4000)
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 1)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 9_000)
    found = [piece.rows for piece in row_stream("t.csv", ReadOptions("k"))]
    assert len(found) > 1
    assert sum(part.num_rows for part in found) == 4000
    assert all(part.column_names == found[0].column_names for part in found)
    assert "\n" in found[0].column_names[0] or found[0].column_names[0].startswith("x")


RAGGED = {
    "a cell too many": ("x,y,k\n1,2,a\n1,2,3,b\n", "line 3 has 4 cells, but the first row has 3: '1,2,3,b'", "quotes"),
    "behind a cell of two lines": ('x,k\n"a\nb",a\n1,2,b\n', "line 4 has 3 cells", "--sep"),
    "a cell too few": ("x,y,k\n1,2,a\n1,b\n", "line 3 has 2 cells, but the first row has 3: '1,b'", "complete the row"),
    "a comment": ("x,y,k\n1,2,a\n# so far\n1,2,b\n", "line 3 has 1 cell", "remove comment lines"),
    "below sep=": ("sep=;\nx;k\n1;a\n1;2;b\n", "line 4 has 3 cells", "quotes around cells that contain ';' (\"a; b\")"),
}


@pytest.mark.parametrize(("text", "said", "advice"), RAGGED.values(), ids=RAGGED.keys())
def test_ragged_rows_are_named_by_their_line(cli, text, said, advice):
    Path("t.csv").write_text(text)
    code, _, err = cli("fit", "t.csv", *FIT)
    assert code == 1
    assert f"t.csv cannot be read: {said}" in err
    assert advice in err
    assert "skip_bad=True leaves such lines out" in err


def test_a_comment_above_all_is_shown(cli):
    write("t.csv", "x,y,k", lambda i: f"{i},2,{letter(i)}", before="# made by hand\n")
    err = cli("fit", "t.csv", *FIT)[2]
    assert "line 2 has 3 cells, but the first row has 1: 'x,y,k'; remove lines" in err
    assert "such as the first: '# made by hand'" in err
    assert "--skip-bad" not in err


def test_ragged_rows_are_left_out_where_that_is_asked(cli, read_csv):
    write("t.csv", "name,x,k", lambda i: f"n{i},{i * 7 % 11}{',0' * (i == 7)},{letter(i)}")
    code, _, err = cli("fit", "t.csv", *FIT, "--skip-bad", "--id", "name")
    assert code == 0
    assert "1 line with more or fewer cells than the first row left out (skip_bad=True)" in err
    assert cli("predict", "model.kway", "t.csv", "--skip-bad", "-o", "o.csv")[0] == 0
    assert [row["name"] for row in read_csv("o.csv")][6:8] == ["n6", "n8"]


def test_a_tsv_that_is_none(answer):
    write("t.tsv", "x;y;k", lambda i: f"{i * 7 % 11};{i % 2};{letter(i)}")
    answer("fit", "t.tsv", *FIT)
    assert kinds() == {"x": "number", "y": "number"}


def test_a_tsv_of_one_column_with_commas():
    Path("t.tsv").write_text("text\nso, so\nwell\n")
    assert read_rows("t.tsv").rows.to_pydict() == {"text": ["so, so", "well"]}


def test_a_table_whatever_its_name(answer, cli):
    write("t.txt", "x|y|k", lambda i: f"{i * 7 % 11}.5|{i % 2}|{letter(i)}")
    answer("fit", "t.txt", *FIT)
    assert kinds() == {"x": "number", "y": "number"}
    assert answer("evaluate", "model.kway", "t.txt")["rows"] == 60
    Path("words.txt").write_text("to be\nor not to be\n")
    assert "the format of words.txt is not known" in cli("fit", "words.txt", *FIT)[2]


def test_the_option_that_settles_it_is_named(cli):
    write("t.csv", "x;y;k", lambda i: f"{i};2;{letter(i)}")
    assert (
        "its only column is 'x;y;k'; if ';' separates columns, give sep=';'"
        in cli("fit", "t.csv", *FIT, "--sep", ",")[2]
    )
    write("t.csv", "n0,size,a", lambda i: f"n{i},{i % 3},{letter(i)}")
    code, _, err = cli("fit", "t.csv", "-t", "c3", "--model", "centroid")
    assert code == 2
    assert "taken from its first row; if that row is not a header, give header=False (--header/--no-header)" in err
    write("t.csv", "red,small,a", lambda i: f"{('red', 'blue')[i % 2]},{('small', 'large')[i % 3 == 0]},{letter(i)}")
    code, _, err = cli("fit", "t.csv", "-t", "c3", "--model", "centroid")
    assert code == 0
    assert "no header: its columns are called c1 to c3 (header=True to change it)" in err


def test_a_json_file_is_lines_or_a_list(answer, cli):
    rows = [{"x": float(i % 3), "k": "abc"[i % 3]} for i in range(60)]
    Path("lines.json").write_text("\n".join(map(json.dumps, rows)))
    Path("list.json").write_text(json.dumps(rows, indent=1))
    for name in ("lines.json", "list.json"):
        assert answer("fit", name, "-t", "k", "--model", "centroid")["data"]["classes"] == 3
        assert answer("evaluate", "model.kway", name)["rows"] == 60
    for text, said in (('[{"x": 1}, 2]', "contains 2; write a list of objects"), ('[{"x": 1},', "is not JSON")):
        Path("bad.json").write_text(text)
        code, _, err = cli("fit", "bad.json", "-t", "k")
        assert code == 1
        assert said in err


def test_lines_left_out_of_rows_to_predict_are_said(cli):
    Path("t.csv").write_text("n,k\n" + "".join(f"{i % 7}.5,{'ab'[i % 7 > 3]}\n" for i in range(60)))
    assert cli("fit", "t.csv", "-t", "k", "--model", "centroid")[0] == 0
    Path("new.csv").write_text("n\n1.5\n2.5,5\n3.5\n")
    code, out, err = cli("predict", "model.kway", "new.csv", "--skip-bad")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert "note: new.csv: 1 line with more or fewer cells than the first row left out" in err


def test_a_file_of_blanks_is_empty(cli):
    Path("t.csv").write_text("  \n\n")
    code, _, err = cli("fit", "t.csv", "-t", "k")
    assert (code, err) == (1, "error: t.csv cannot be read: it is empty; give a file with a header and rows\n")


def test_one_column_that_counts_names_the_option(cli):
    Path("t.csv").write_text("n,k\n" + "".join(f"{i},{'ab'[i // 30]}\n" for i in range(60)))
    code, _, err = cli("fit", "t.csv", "-t", "k", "--model", "centroid")
    assert code == 1
    assert "or use an id as a number: types={'n': 'number'}" in err
    assert cli("fit", "t.csv", "-t", "k", "--model", "centroid", "--types", "n=number")[0] == 0


def test_figures_are_seen_beside_long_names(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = "a class of many words " * 20
    Path("t.csv").write_text("n,k\n" + "".join(f"{i % 7}.5,{long}{i % 7 > 3}\n" for i in range(60)))
    assert cli("fit", "t.csv", "-t", "k", "--model", "centroid")[0] == 0
    code, out, _ = cli("evaluate", "model.kway", "t.csv")
    assert code == 0
    assert out.count("1.0000") >= 2  # the recall of each class
    assert max(map(len, out.splitlines()[1:])) <= 80


def test_a_class_called_0_is_named_where_others_are_taken_for_it(cli):
    Path("t.csv").write_text("n,k\n" + "".join(f"{i % 5 // 4 * 9},{int(i % 5 > 2)}\n" for i in range(60)))
    assert cli("fit", "t.csv", "-t", "k", "--model", "centroid")[0] == 0
    out = cli("evaluate", "model.kway", "t.csv")[1]
    assert ["1", "24", "0.5000", "0"] in [line.split() for line in out.splitlines()]
