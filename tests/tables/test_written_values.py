"""Numbers and dates as people write them: every notation of a drawn number is that number."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from kway.errors import InputError
from kway.tables.read_options import TextForm
from kway.tables.sources.text_form import TableRequest, find_form
from kway.tables.sources.values import EarlierRows, convert, needs_comma

RNG = np.random.default_rng(0)
NUMBERS = np.concatenate([RNG.normal(size=200), 10 ** RNG.uniform(0, 9, 200) * RNG.choice([-1, 1], 200), [0.0, 1e6]])


def grouped(value, thousands, mark):
    text = f"{value:,.3f}"
    return text.translate(str.maketrans({",": thousands, ".": mark}))


NOTATIONS = {
    "english": lambda v: grouped(v, ",", "."),
    "german": lambda v: grouped(v, ".", ","),
    "french": lambda v: grouped(v, "\N{NARROW NO-BREAK SPACE}", ","),
    "swiss": lambda v: grouped(v, "'", "."),
    "spaces": lambda v: grouped(v, " ", "."),
    "comma only": lambda v: f"{v:.3f}".replace(".", ","),
    "percent": lambda v: f"{v:.3f} %",
    "dollars": lambda v: f"{'-' if v < 0 else ''}${abs(v):,.3f}",
    "euros behind": lambda v: grouped(v, ".", ",") + " €",
    "a code before": lambda v: f"USD {grouped(v, ',', '.')}",
    "a real minus": lambda v: grouped(v, ",", ".").replace("-", "\N{MINUS SIGN}"),
    "plus": lambda v: f"{v:+,.3f}",
    "brackets": lambda v: f"({-v:,.3f})" if v < 0 else f"{v:,.3f}",
    "brackets around dollars": lambda v: f"(${-v:,.3f})" if v < 0 else f"${v:,.3f}",
    "dollars before brackets": lambda v: f"$ ({-v:,.3f})" if v < 0 else f"$ {v:,.3f}",
    "a minus behind": lambda v: f"{-v:.3f}-" if v < 0 else f"{v:.3f}",
    "german with a minus behind": lambda v: grouped(abs(v), ".", ",") + ("-" if v < 0 else ""),
}


@pytest.mark.parametrize("write", NOTATIONS.values(), ids=NOTATIONS.keys())
def test_a_number_is_that_number(write):
    words = [write(v) for v in NUMBERS]
    column = convert(pa.table({"x": [None, "n/a", *words]})).table.column("x")
    assert column.type == pa.float64()
    np.testing.assert_allclose(column.to_numpy()[2:], np.round(NUMBERS, 3), rtol=1e-12, atol=1e-9)
    assert column.null_count == 2


WORDS = {
    "codes": ["007", "011", "013"] * 10,
    "codes among other digits": ["0052", *map(str, range(1000, 1060))],
    "sizes": ["S", "M", "L"] * 10,
    "addresses": ["192.168.0.1", "10.0.0.7"] * 10,
    "versions": ["1.2.3", "1.10.2"] * 10,
    "two currencies": ["5 €", "7 $"] * 10,
    "ranges": ["10-20", "20-30"] * 10,
    "lists": ["1,2,3", "4,5"] * 10,
    "sentences": ["i paid 5,50 €", "no"] * 10,
    "half numbers": ["1,5", "no"] * 10,
    "plain numbers that a file says are text": ["1", "2.5"] * 10,
    "no dates": ["31/31/2024", "1/1/2024"] * 10,
    "either way": ["31/12/2024", "12/31/2024"] * 10,
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS.keys())
def test_other_words_stay_words(words):
    found = convert(pa.table({"x": words}))
    assert found.written == ()
    assert found.table.column("x").to_pylist() == words


SAID = {
    "brackets": (["(1,234.50)", "12.00"], ", between thousands, () read as minus"),
    "a minus behind": (["218.03-", "5.5"], "- at the end read as minus"),
    "an apostrophe": (["1'234.50", "5"], "' between thousands"),
    "spaces": (["1 234.50", "5"], "spaces between thousands"),
    "percent everywhere": (["15%", "3%"], "% removed"),
    "percent and fractions": (
        ["15%", "3%", "0.15"],
        "% removed, and 1 of 3 have none: read on the same scale, 0.15 as 0.15 %",
    ),
    "thousands or decimals": (["1.234 €", "218 €"], "decimal point (decimal=',' to change it), € removed"),
    "decimals": (["1.25 €", "218 €"], "€ removed"),
}


@pytest.mark.parametrize(("words", "said"), SAID.values(), ids=SAID.keys())
def test_what_was_done_is_said(words, said):
    assert convert(pa.table({"x": words})).written[0].note == said


def test_codes_are_numbers_where_that_is_said():
    codes = pa.table({"x": ["0052", "1234", "9.5"]})
    assert convert(codes, types={"x": "number"}).table.column("x").to_pylist() == [52, 1234, 9.5]
    assert convert(codes, earlier=EarlierRows({"x": "."})).table.column("x").to_pylist() == [52, 1234, 9.5]


def test_stray_words_among_numbers_are_missing_and_named():
    words = [f"{v:.2f}".replace(".", ",") for v in RNG.random(50)] + ["broken"]
    found = convert(pa.table({"x": words}))
    assert found.table.column("x").to_pylist() == [*(float(w.replace(",", ".")) for w in words[:-1]), None]
    assert "'broken' in row 51 (2.0% of the rows)" in found.strays[0]


def test_stray_dates_are_missing_and_named():
    for days in ([f"2024-03-{d:02d}" for d in range(1, 29)], [f"{d}.3.2024" for d in range(1, 29)]):
        for odd in ("soon", "2024-13-45", "2024-02-30"):
            found = convert(pa.table({"when": [odd, *days]}))
            want = [None, *(dt.datetime(2024, 3, d) for d in range(1, 29))]
            assert found.table.column("when").to_pylist() == want
            assert f"1 cell is not dates and read as missing: '{odd}' in row 1" in found.strays[0]


def test_later_rows_may_have_one_stray_word_or_a_tenth():
    before = EarlierRows(kinds={"x": "number", "when": "date", "yes": "true/false"})
    odd = {"x": ["soon", "1.5"], "when": ["later", "2024-01-31"], "yes": ["maybe", "TRUE"]}
    found = convert(pa.table(odd), earlier=before)
    assert found.table.to_pydict() == {
        "x": [None, 1.5], "when": [None, dt.datetime(2024, 1, 31)], "yes": [None, True],
    }  # fmt: skip
    assert len(found.strays) == 3
    many = pa.table({"x": ["a", "b", *map(str, range(10))]})
    with pytest.raises(InputError, match="column 'x' must contain numbers, as in training, but 2 of 12 cells are"):
        convert(many, earlier=before)
    assert convert(many, earlier=before, skip_bad=True).table.column("x").null_count == 2


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d %b %Y", "%d.%m.%y"])
@pytest.mark.parametrize("clock", ["", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p"])
def test_a_date_is_that_date(form, clock):
    days = [dt.datetime(1990, 1, 1) + dt.timedelta(days=int(d), minutes=int(d)) for d in RNG.integers(0, 12_000, 200)]
    words = [d.strftime(form + clock) for d in days]
    found = convert(pa.table({"when": [*words, ""]}))
    assert found.written[0].how == form + clock
    want = [dt.datetime.strptime(w, form + clock) for w in words]
    assert found.table.column("when").to_pylist() == [*want, None]


def test_later_rows_are_read_as_the_first():
    later = pa.table({"x": ["1.234"], "when": ["02/03/2024"]})
    found = convert(later, earlier=EarlierRows({"x": ",", "when": "%m/%d/%Y"})).table.to_pydict()
    assert found == {"x": [1234.0], "when": [dt.datetime(2024, 2, 3)]}


def test_what_only_a_comma_explains():
    assert needs_comma(pa.table({"x": ["1,5", "2,25"]}))
    assert needs_comma(pa.table({"x": ["1.234,5"]}))
    assert not needs_comma(pa.table({"x": ["1,234", "5"]}))
    assert not needs_comma(pa.table({"x": ["1,234.5"]}))
    assert not needs_comma(pa.table({"x": ["a, b"]}))


SEPARATORS = {
    "comma": ("a,b\n1,2\n", ","),
    "semicolon with commas inside": ("a, of b;c\n1,5;2,5\n2,5;3\n", ";"),
    "tab": ("a\tb\n1\t2\n", "\t"),
    "pipe": ("a|b\n1|2\n", "|"),
    "quoted commas": ('a;b\n"x, y";1\n"z";2\n', ";"),
    "one column": ("a\n1\n", ","),
    "lines in a cell": ('text,k\n"one; two\nthree; four",x\ny,z\n', ","),
}


@pytest.mark.parametrize(("text", "sep"), SEPARATORS.values(), ids=SEPARATORS.keys())
def test_separators(text, sep):
    assert find_form(text.encode(), "t.csv").form.sep == sep


HEADERS = {
    "iris without": ("5.1,3.5,setosa\n4.9,3.0,setosa\n6,3,virginica\n", False),
    "iris with": ("length,width,kind\n5.1,3.5,setosa\n", True),
    "numbers only": ("1,14.23\n2,13.2\n", False),
    "letters first": ("T,2,8\nI,5,12\nT,4,11\n", False),
    "years as names": ("name,2019,2020\na,1,2\nb,3,4\n", True),
    "pixels as names": ("label,0,1,2\n5,0,0,0\n3,0,1,1\n", True),
    "shares as names": ("id,0.1,0.5\na,1,2\nb,3,4\n", True),
    "one row": ("5.1,3.5,setosa\n", True),
    "words": ("a,b\nc,d\n", True),
}


@pytest.mark.parametrize(("text", "header"), HEADERS.values(), ids=HEADERS.keys())
def test_headers(text, header):
    assert find_form(text.encode(), "t.csv").form.header is header
    assert find_form(text.encode(), "t.csv", TableRequest(form=TextForm(header=not header))).form.header is not header


SECONDS = 1_706_745_599
COUNTED = {
    "seconds": ([SECONDS, None], "%s"),
    "seconds with gaps, as pandas has them": ([float(SECONDS), float("nan")], "%s"),
    "seconds in words": ([str(SECONDS), "?"], "%s"),
    "milliseconds": ([SECONDS * 1000, None], "%Q"),
}


@pytest.mark.parametrize(("values", "how"), COUNTED.values(), ids=COUNTED.keys())
def test_numbers_are_dates_where_that_is_said(values, how):
    table = pa.table({"when": values})
    found = convert(table, types={"when": "date"})
    assert found.table.column("when").to_pylist() == [dt.datetime(2024, 1, 31, 23, 59, 59), None]
    assert "seconds since 1970" in found.written[0].note
    assert found.written[0].how == how
    assert convert(table, earlier=EarlierRows({"when": how})).table.equals(found.table)
    assert convert(table).written == ()


def test_digits_of_a_day_are_a_date_where_that_is_said():
    for values in (["20240131"], [20240131]):
        found = convert(pa.table({"when": values}), types={"when": "date"})
        assert found.table.column("when").to_pylist() == [dt.datetime(2024, 1, 31)]
        assert convert(pa.table({"when": values}), earlier=EarlierRows({"when": "%Y%m%d"})).table.equals(found.table)
