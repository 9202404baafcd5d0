"""Rows of csv text: lines, marks and cells beyond csv's limit are handled alike by all who read a head."""

import csv
import io

import pytest

from kway.errors import InputError
from kway.tables.read_options import TextForm
from kway.tables.sources.csv_files import ragged_error, read_csv
from kway.tables.sources.text_form import CsvRow, TableRequest, csv_rows, find_form, head_text


def test_rows_know_the_line_they_begin_in():
    text = '\ufeffsep=;\na;b\n\n1;"two\nlines"\n3;4\n'
    found = list(csv_rows(io.StringIO(text, newline=""), ";", skipped=1))
    assert found == [CsvRow(2, ["a", "b"]), CsvRow(4, ["1", "two\nlines"]), CsvRow(6, ["3", "4"])]


def test_a_mark_is_no_part_of_the_first_cell():
    assert list(csv_rows(["\ufeffa,b\n", "\ufeff1,2\n"])) == [CsvRow(1, ["a", "b"]), CsvRow(2, ["\ufeff1", "2"])]
    assert list(csv_rows([])) == []


def test_rows_end_before_a_cell_beyond_the_limit():
    huge = "x" * (csv.field_size_limit() + 1)
    assert [row.cells for row in csv_rows(["a,b\n", "1,2\n", f"3,{huge}\n", "5,6\n"])] == [["a", "b"], ["1", "2"]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_a_head_is_text_without_its_mark_and_without_half_a_letter(encoding):
    mark = "" if encoding == "utf-16" else "\ufeff"  # which writes its own
    assert head_text((mark + "aé").encode(encoding)[:-1], encoding) == "a"


def test_a_comment_behind_a_mark_is_seen_as_one():
    content = "\ufeff# made by hand\na,b\n".encode("utf-16-le")
    form = TextForm(",", "utf-16-le")
    found = find_form(content, "t.csv", TableRequest(form=form))
    assert "such as the first: '# made by hand'" in str(ragged_error(content, found.form, found, "t.csv"))


def test_the_row_that_a_head_was_cut_in_is_not_looked_at(monkeypatch):
    monkeypatch.setattr("kway.tables.sources.text_form.HEAD", 20)
    head = b"a;b\n1;2\n3;4\n5,55;6666"[:20]
    assert find_form(head, "cut.csv").form.sep == ";"


# ---- passes over a file


def read(content, **request):
    return read_csv(content, "t.csv", TableRequest(**request))


def test_a_given_encoding_is_not_replaced():
    late = b"a,b\n" + b"x,1\n" * 30_000 + b"caf\xe9,2\n"  # not UTF-8, after the first bytes that are examined
    assert read(late).form.encoding == "cp1252"
    assert read(late).table.column("a")[-1].as_py() == "café"
    with pytest.raises(InputError, match=r"t\.csv is not text in utf-8; give its encoding"):
        read(late, form=TextForm(encoding="utf-8"))
    undefined = late.replace(b"\xe9", b"\x81")  # a byte that cp1252 does not define
    assert read(undefined).form.encoding == "latin-1"


def rows_with(cell, position, n=6):
    lines = [f"{'w' if i % 2 else 'v'},{i}" for i in range(n)]
    lines[position] = f"{cell},{position}"
    return "\n".join(["text,number", *lines, ""]).encode()


def test_a_cell_longer_than_a_block_is_read():
    """Arrow refuses the first pass: a row straddles two blocks, or the header does not fit into one."""
    table = read(rows_with("word " * 600_000, 3)).table
    assert len(table.column("text")[3].as_py()) == 3_000_000
    assert len(read(rows_with("word " * 600_000, 0)).table) == 6
    wide = [",".join(f"column_number_{i}" for i in range(80_000)), *[",".join(["1"] * 80_000)] * 3]
    assert read("\n".join([*wide, ""]).encode()).table.num_columns == 80_000


def test_the_types_are_those_of_all_rows():
    """Arrow refuses the first pass, because it takes the types from the first block."""
    table = read(b"a,b\n" + b"1,2\n" * 400_000 + b"x,2.5\n").table
    assert [str(field.type) for field in table.schema] == ["string", "double"]


def test_a_header_without_rows_is_a_table():
    assert read(b"a,b\n").table.num_rows == 0
