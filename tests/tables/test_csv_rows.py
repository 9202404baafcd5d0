"""Rows of csv text: lines, marks and cells beyond csv's limit are handled alike by all who read a head."""

import csv
import io

import pytest

from kway.tables.read_options import UNKNOWN_FORM, TextForm
from kway.tables.sources.csv_files import ragged_error
from kway.tables.sources.text_form import CsvRow, csv_rows, find_form, head_text


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
    found = find_form(content, "t.csv", form)
    assert "such as the first: '# made by hand'" in str(ragged_error(content, found.form, found, "t.csv"))


def test_the_row_that_a_head_was_cut_in_is_not_looked_at(monkeypatch):
    monkeypatch.setattr("kway.tables.sources.text_form.HEAD", 20)
    head = b"a;b\n1;2\n3;4\n5,55;6666"[:20]
    assert find_form(head, "cut.csv", UNKNOWN_FORM).form.sep == ";"
