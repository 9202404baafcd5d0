"""Numbers and dates in everyday notation: 1.234,5 EUR -> 1234.5, 31/12/2024 -> a date.

    decimal mark     . or , as the column requires: 1.234,5 and 1,5 need a comma, 1,234.5 needs a point; if both are
                     possible (1,234), the mark of the file decides
    removed          thousands separators (. , ' space) and one unit: a currency or % (15 % is 15)
    negative         a minus sign in front or at the end, or parentheses as in accounting: (1,234.50)
    codes            digits of one width, some with a leading zero (0052), stay text unless `types` is number
    dates            day, month and year in any usual order, with or without a time; a first number above 12 is a day,
                     a second number above 12 makes the first a month

A cell of a text column, without surrounding blanks, is called a word. A text column becomes numbers or dates if at
least 9 of 10 words that are not missing are numbers or dates. The other words are stray: they count as missing, and a
note names them and their rows. Plain digits with few different values stay text, because they are levels.

In later rows, a column of numbers or dates may also have 1 stray word in 10 (and always one); more raise an error,
unless `skip_bad` is set. The format of a column (`ColumnFormat.how`: its decimal mark or strptime format) is stored
with a model, so that later rows are read in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.read_options import DAY_FIRST, MONTH_FIRST
from kway.tables.sources.frames import holds_text, is_date, is_number, whole_column

GAPS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")  # words for a missing value
# Share of the words of a column that have to be numbers or dates, so that the others count as missing; also the share
# of the rows that the levels of a category cover. Decided by the messy files of the tests and the table benchmarks.
MOSTLY = 0.9
# Columns of fewer rows show too little: they are not taken for ids, and terms of a single text are kept. Also the
# number of different plain integers up to which text stays text, as levels (tests/tables/test_column_kinds.py).
FEW_ROWS = 20
_NOTHING = pa.scalar(None, pa.large_string())

_SPACE = r"[\s\x{00A0}\x{2009}\x{202F}]"
_UNIT = r"(?:US|R|A|C)?\p{Sc}|EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|CZK|BRL|Rs\.?|kr\.?|zł|Fr\."
_WORD = (
    rf"^(?P<sign>[-+\x{{2212}}]?){_SPACE}*(?P<before>{_UNIT})?{_SPACE}*"
    rf"(?P<number>[-+]?[0-9.,](?:[0-9.,'’]|{_SPACE}+[0-9])*(?:[eE][-+]?[0-9]+)?){_SPACE}*(?P<after>%|{_UNIT})?$"
)
_BRACKETS = rf"^((?:{_UNIT})?{_SPACE}*)\(([^()]*[0-9][^()]*)\)$"
_MINUS_BEHIND = rf"^([^-]*[0-9][^-]*?){_SPACE}*[-\x{{2212}}]$"
_DOTTED_THOUSANDS = r"^[^.0-9]*[1-9][0-9]{0,2}\.[0-9]{3}(?:[^0-9.].*)?$"
NUMBER = r"^[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"
_GROUPED = (
    r"^[-+]?(?:(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:GROUP[0-9]{3})+)(?:MARK[0-9]*)?|MARK[0-9]+)(?:[eE][-+]?[0-9]+)?$"
)
_LONG = "^[-+]?[0-9]{16,}$"  # whole numbers of more digits than a float64 keeps
_NUMBER_BY_MARK = {
    mark: _GROUPED.replace("GROUP", rf"(?:{other}|['’]|{_SPACE})").replace("MARK", rf"\{mark}")
    for mark, other in ((".", ","), (",", r"\."))
}


class ColumnFormat(NamedTuple):
    """The format of a converted column.

    Parameters
    ----------
    column : str
        Its name.
    how : str
        Its decimal mark or strptime format.
    example : str
        One of its words.
    note : str
        What was removed or decided, for the user.
    """

    column: str
    how: str
    example: str
    note: str


class ConvertedTable(NamedTuple):
    """A table with text converted to numbers and dates, the formats for later rows, and notes on stray words."""

    table: Any
    written: tuple[ColumnFormat, ...]
    strays: tuple[str, ...]


class EarlierRows(NamedTuple):
    """What is known about columns from earlier rows.

    Parameters
    ----------
    formats : mapping of str to str
        Decimal mark or strptime format of converted columns.
    kinds : mapping of str to str
        Columns that were numbers, dates or true/false.
    with_kind : collection of str
        Columns whose kind the user gave. They may have any share of stray words.
    n_rows : int
        Number of rows before these, added to the row numbers in notes.
    """

    formats: Mapping[str, str] = MappingProxyType({})
    kinds: Mapping[str, str] = MappingProxyType({})
    with_kind: Collection[str] = ()
    n_rows: int = 0


NO_EARLIER_ROWS = EarlierRows()


class _Conversion(NamedTuple):
    """A converted column, its format, and a note for the user."""

    column: Any
    how: str  # "" if later rows are read without it
    note: str


def convert(
    table: Any,
    decimal: str | None = None,
    earlier: EarlierRows = NO_EARLIER_ROWS,
    types: Mapping[str, str] | None = None,
    keep_as_text: Collection[str] = (),
    skip_bad: bool = False,
    source: str = "",
) -> ConvertedTable:
    """Convert text columns to numbers and dates.

    Parameters
    ----------
    table : pyarrow.Table
        The columns.
    decimal : {".", ","} or None
        The decimal mark of the file. If it is None, the columns decide.
    earlier : EarlierRows
        Formats and kinds of the columns in earlier rows.
    types : mapping of str to str, optional
        Kinds of columns that the user gave.
    keep_as_text : collection of str
        Columns that are not converted.
    skip_bad : bool
        Whether any share of the words of a column may be stray.
    source : str
        Beginning of error messages.
    """
    keep_as_text = set(keep_as_text)  # may be a list of all columns
    decimal = decimal or ("," if needs_comma(table, keep_as_text) else ".")
    formats, notes = list[ColumnFormat](), list[str]()
    names, columns = table.column_names, table.columns  # Arrow's lookup of a column by name is linear in their number
    for j, (name, column) in enumerate(zip(names, table.columns)):
        given_kind = (types or {}).get(name)
        known_format, known_kind = earlier.formats.get(name), earlier.kinds.get(name)
        if is_number(column.type) and (given_kind == "date" or known_format in _WHOLE_NUMBER_FORMATS):
            column = _whole_numbers_as_text(column)
        if name in keep_as_text or not holds_text(column) or given_kind in ("text", "category", "drop"):
            continue
        words = trimmed(column)
        if known_format:
            conversion: _Conversion | None = _convert_as_before(words, known_format)
        else:
            conversion = _detect(words, decimal, given_kind or known_kind, 0.0 if known_kind else MOSTLY)
        if conversion is None:
            continue
        columns[j] = conversion.column
        stray = pc.and_(is_present(words), pc.is_null(conversion.column))
        if pc.any(stray).as_py():
            kind = _kind_of(conversion.column, known_kind)
            is_known = known_format or known_kind
            if is_known and not (skip_bad or given_kind or name in earlier.with_kind):
                _refuse_strays(f"{source}column {name!r}", words, stray, kind)
            notes.append(_stray_note(name, words, stray, kind, earlier.n_rows))
        if conversion.how:
            formats.append(ColumnFormat(name, conversion.how, _first(present(words)), conversion.note))
    return ConvertedTable(pa.Table.from_arrays(columns, names), tuple(formats), tuple(notes))


def _kind_of(column: Any, known_kind: str | None) -> str:
    if is_date(column.type):
        return "date"
    return "true/false" if known_kind == "true/false" else "number"


def _first(words: Any) -> str:
    return words[0].as_py() if len(words) else ""


def _detect(words: Any, decimal: str, kind: str | None, min_share: float) -> _Conversion | None:
    """Convert words to their kind; if it is None, to dates or numbers if at least `min_share` of the words are.

    None is returned if the column stays text.
    """
    if kind == "true/false":
        fits = pc.match_substring_regex(words, "^(?i:true|false)$")
        return _Conversion(pc.if_else(fits, words, _NOTHING).cast("bool"), "", "")
    if kind in (None, "date", DAY_FIRST, MONTH_FIRST):
        dates = _dates(words, kind, min_share)
        if dates is not None or kind is not None:
            return dates
    values, is_number_column = present(words), kind == "number"
    if not is_number_column and are_codes(values):
        return None
    numerals = _numerals(values, decimal, 0.0 if is_number_column else MOSTLY, zeros=is_number_column)
    if numerals is None and is_number_column:
        return _Conversion(pa.nulls(len(words), pa.float64()), "", "")
    if numerals is None or (numerals.is_plain and not is_number_column and _are_levels(words)):
        return None
    how = "" if numerals.is_plain else numerals.mark
    return _Conversion(_as_numbers(words, numerals), how, _number_note(values, numerals))


def _convert_as_before(words: Any, how: str) -> _Conversion:
    """Convert words by the decimal mark or date format of earlier rows."""
    if "%" in how:
        return _Conversion(_parse_dates(words, how), how, "")
    core = _without_zeros(_signed_numbers_and_units(present(words))[0])
    fits = pc.match_substring_regex(core, _NUMBER_BY_MARK[how]).fill_null(False)
    is_plain = pc.match_substring_regex(core, NUMBER).fill_null(False)  # as programs write numbers
    plain = pc.if_else(fits, _plain_numerals(core, how), core)
    numerals = _Numerals(plain, pc.or_(fits, is_plain), how, "", decided=True, is_plain=False)
    return _Conversion(_as_numbers(words, numerals), how, "")


# ---- stray words

_KINDS = {"number": "numbers", "date": "dates", "true/false": "true or false"}


def _refuse_strays(what: str, words: Any, stray: Any, kind: str) -> None:
    """Raise InputError if more than one word, and more than 1 in 10, are not of the kind of the column."""
    n_stray, n = pc.sum(stray).as_py(), len(present(words))
    if n_stray > max(1, (1 - MOSTLY) * n):
        wanted = f"dates, such as {DATE_EXAMPLES}" if kind == "date" else _KINDS[kind]
        raise InputError(
            f"{what} must contain {_KINDS[kind]}, as in training, but {n_stray:,} of {n:,} cells are other words "
            f"such as {_samples(words, stray)}; write {wanted}, or read them as missing values: skip_bad=True"
        )


def _stray_note(name: str, words: Any, stray: Any, kind: str, n_rows_before: int) -> str:
    """Return a note on words that count as missing, with the numbers of the first such rows, counted from 1."""
    n_stray = pc.sum(stray).as_py()
    cells = "1 cell is" if n_stray == 1 else f"{n_stray:,} cells are"
    return (
        f"column {name!r}: {cells} not {_KINDS[kind]} and read as missing: "
        f"{words_in_rows(words, stray, n_rows_before)} ({n_stray / len(words):.1%} of the rows)"
    )


def words_in_rows(words: Any, stray: Any, n_rows_before: int) -> str:
    """Return the first of the words in the mask `stray` (n,), and the numbers of their rows: 'n/a' in rows 3, 7."""
    rows = pc.indices_nonzero(stray).to_pylist()
    where = f"row{'s' if len(rows) > 1 else ''} {listing((f'{n_rows_before + row + 1:,}' for row in rows), 5)}"
    return f"{_samples(words, stray)} in {where}"


def _samples(words: Any, stray: Any) -> str:
    return listing((f"{word!r:.40}" for word in pc.unique(words.filter(stray)).to_pylist()), 3)


# ---- gaps and codes


def trimmed(column: Any) -> Any:
    """Return text (n,) without surrounding blanks."""
    return pc.utf8_trim_whitespace(whole_column(column)).cast(pa.large_string())


def is_present(words: Any) -> Any:
    """Return the mask (n,) of the words that are not missing values."""
    return pc.invert(pc.or_(pc.is_null(words), pc.is_in(words, pa.array(GAPS, pa.large_string()))))


def present(words: Any) -> Any:
    """Return the words that are not missing values."""
    return words.filter(is_present(words))


def are_codes(words: Any) -> bool:
    """Return whether words (n,), none missing, are digits of one width, some with a leading zero: 0052, 0815."""
    if not len(words) or not _any_match(words, "^0[0-9]"):
        return False
    widths = pc.min_max(pc.binary_length(words)).as_py()
    return widths["min"] == widths["max"] and _all_match(words, "^[0-9]+$")


def are_dotted_thousands(words: Any) -> bool:
    """Return whether words (n,), none missing, may be whole numbers with dots between thousands: 218, 1.234."""
    dotted = words.filter(pc.match_substring(words, "."))
    return len(dotted) > 0 and _all_match(dotted, _DOTTED_THOUSANDS)


def share_of_numbers(words: Any) -> float:
    """Return the share of the words (n,), none missing, that are plain numbers."""
    return (pc.sum(pc.match_substring_regex(words, NUMBER)).as_py() or 0) / max(1, len(words))


def _any_match(words: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(words, pattern)).as_py())


def _all_match(words: Any, pattern: str) -> bool:
    first = words.slice(0, 1)  # usually enough to find that not all match
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (first, words))


def _whole_numbers_as_text(column: Any) -> Any:
    """Return whole numbers as text; pandas stores whole numbers with missing values as floats."""
    numbers = whole_column(column).cast("float64", safe=False)
    finite = pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))
    return finite.cast("int64", safe=False).cast("large_string")


# ---- numbers


class _Numerals(NamedTuple):
    """Words (n,) that are read as numbers.

    Parameters
    ----------
    plain : pyarrow array of shape (n,)
        The words as Python writes numbers, without units and thousands separators.
    fits : pyarrow array of shape (n,)
        The mask of words that are numbers.
    mark, unit : str
        The decimal mark, and the unit that was removed.
    decided : bool
        Whether only this decimal mark fits the words.
    is_plain : bool
        Whether all words that are numbers are written as programs write them.
    """

    plain: Any
    fits: Any
    mark: str
    unit: str
    decided: bool
    is_plain: bool


def needs_comma(table: Any, keep_as_text: Collection[str] = ()) -> bool:
    """Return whether some column is numeric only with a decimal comma."""
    for name in table.column_names:
        if name not in keep_as_text and holds_text(table.column(name)):
            numerals = _numerals(present(trimmed(table.column(name))), ".")
            if numerals is not None and numerals.mark == "," and numerals.decided:
                return True
    return False


def _numerals(words: Any, mark: str, min_share: float = MOSTLY, zeros: bool = False) -> _Numerals | None:
    """Read words (n,), none missing, as numbers; None if fewer than `min_share` are numbers, or units differ.

    `mark` is the decimal mark if both marks fit equally well. With `zeros`, 0052 is read as 52.
    """
    with_digits = pc.sum(pc.match_substring_regex(words, "[0-9]")).as_py() or 0
    if with_digits == 0 or with_digits < min_share * len(words):
        return None
    core, units = _signed_numbers_and_units(words)
    core = _without_zeros(core) if zeros else core
    fits = {m: pc.match_substring_regex(core, pattern).fill_null(False) for m, pattern in _NUMBER_BY_MARK.items()}
    share = {m: pc.sum(f).as_py() / len(words) for m, f in fits.items()}
    best = mark if share["."] == share[","] else max(share, key=lambda m: share[m])
    if share[best] < min_share or not share[best]:
        return None
    distinct_units = [u for u in pc.unique(units.filter(fits[best])).to_pylist() if u]
    if len(distinct_units) > 1:
        return None
    not_plain = pc.and_(fits[best], pc.invert(pc.match_substring_regex(words, NUMBER)))
    return _Numerals(
        _plain_numerals(core, best),
        fits[best],
        best,
        distinct_units[0] if distinct_units else "",
        decided=share["."] != share[","],
        is_plain=mark == best == "." and not pc.any(not_plain).as_py(),  # with decimal commas, 2.5 needs its mark
    )


def _are_levels(words: Any) -> bool:
    """Return whether plain numbers stay text: few different ones and no other word, or more digits than a float64."""
    words = words.filter(pc.not_equal(words, ""))
    if _any_match(words, _LONG):
        return True
    return share_of_numbers(words) == 1 and pc.count_distinct(words).as_py() <= FEW_ROWS


def _signed_numbers_and_units(words: Any) -> tuple[Any, Any]:
    """Return the signed number and the unit of every word; null if it is not a number."""
    signed = pc.replace_substring_regex(words, _BRACKETS, r"-\1\2")
    parts = pc.extract_regex(pc.replace_substring_regex(signed, _MINUS_BEHIND, r"-\1"), _WORD)

    def joined(first: str, second: str) -> Any:
        both = pc.binary_join_element_wise(
            pc.struct_field(parts, first), pc.struct_field(parts, second), pa.scalar("", pa.large_string())
        )
        return pc.replace_substring(both, "\N{MINUS SIGN}", "-")

    return joined("sign", "number"), joined("before", "after")


def _without_zeros(words: Any) -> Any:
    return pc.replace_substring_regex(words, r"^([-+]?)0+([0-9])", r"\1\2")


def _plain_numerals(core: Any, mark: str) -> Any:
    digits = pc.replace_substring_regex(core, rf"[{',' if mark == '.' else '.'}'’]|{_SPACE}", "")
    digits = pc.replace_substring_regex(digits, r"^\+", "")
    return digits if mark == "." else pc.replace_substring(digits, ",", ".")


def _as_numbers(words: Any, numerals: _Numerals) -> Any:
    """Return words as float64, null for missing and stray words; `numerals` are the words that are present."""
    plain = pc.if_else(numerals.fits, numerals.plain, _NOTHING)
    return pc.replace_with_mask(pa.nulls(len(words), pa.large_string()), is_present(words), plain).cast("float64")


def _number_note(words: Any, numerals: _Numerals) -> str:
    """Return what was removed from words and how their signs and marks were read."""
    numbers = words.filter(numerals.fits)
    notes = _mark_notes(numbers, numerals)
    if _any_match(numbers, _BRACKETS):
        notes.append("() read as minus")
    if _any_match(numbers, _MINUS_BEHIND):
        notes.append("- at the end read as minus")
    return ", ".join([*notes, *_unit_notes(numbers, numerals.unit)])


def _mark_notes(numbers: Any, numerals: _Numerals) -> list[str]:
    """Return notes on how decimals and thousands were read, and the option that changes it if both marks fit."""
    other = "," if numerals.mark == "." else "."
    notes = ["decimal comma"] if numerals.mark == "," and _any_match(numbers, ",") else []
    option = "" if numerals.decided else f" (decimal={other!r} to change it)"
    if _any_match(numbers, rf"\{other}"):
        notes.append(f"{other} between thousands{option}")
    elif notes:
        notes = [notes[0] + option]
    elif numerals.mark == "." and option and are_dotted_thousands(numbers):
        notes.append(f"decimal point{option}")
    spaces = {"' between thousands": "['’]", "spaces between thousands": _SPACE}
    return notes + [note for note, mark in spaces.items() if _any_match(numbers, f"[0-9]{mark}[0-9]")]


def _unit_notes(numbers: Any, unit: str) -> list[str]:
    """Return a note on the removed unit; numbers without % next to percentages are counted."""
    without = len(numbers) - pc.sum(pc.match_substring(numbers, unit)).as_py() if unit == "%" else 0
    scale = (
        f", and {without:,} of {len(numbers):,} have none: read on the same scale, 0.15 as 0.15 %" if without else ""
    )
    return [f"{unit} removed{scale}"] if unit else []


# ---- dates

DATE_EXAMPLES = (
    "2024-01-31, 2024-01-31 23:59:59, 31.12.2024, 12/31/2024 03:45 PM, 31 Dec 2024, Dec 31, 2024 or, as seconds since "
    "1970, 1706745599"
)
_TIMES = (  # pattern and strptime format
    ("", ""),
    (r" [0-9]{1,2}:[0-9]{2}", " %H:%M"),
    (r" [0-9]{1,2}:[0-9]{2}:[0-9]{2}", " %H:%M:%S"),
    (r" [0-9]{1,2}:[0-9]{2} ?[AaPp][Mm]", " %I:%M %p"),
    (r" [0-9]{1,2}:[0-9]{2}:[0-9]{2} ?[AaPp][Mm]", " %I:%M:%S %p"),
)
_MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_UNAMBIGUOUS_DATES = (
    (r"[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}", "%Y/%m/%d"),
    (r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}", "%Y.%m.%d"),
    (rf"[0-9]{{1,2}} {_MONTH} [0-9]{{4}}", "%d %b %Y"),
    (rf"[0-9]{{1,2}}-{_MONTH}-[0-9]{{4}}", "%d-%b-%Y"),
    (rf"{_MONTH} [0-9]{{1,2}}, [0-9]{{4}}", "%b %d, %Y"),
)
_ISO_DAY = "[0-9]{4}-(?:0[1-9]|1[0-2])-[0-3][0-9]"
_ISO_PATTERN = rf"{_ISO_DAY}(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{{1,6}})?)?)?"
_ISO = "ISO 8601"  # the format that Arrow parses; later rows are recognized without it
_WHOLE_NUMBER_DATES = (  # only if `types` is date
    (r"^(?:19|20)[0-9]{6}$", "%Y%m%d", "year, month, day"),
    (r"^-?[0-9]{9,10}$", "%s", "seconds since 1970"),
    (r"^-?[0-9]{12,13}$", "%Q", "milliseconds since 1970"),
)
_WHOLE_NUMBER_FORMATS = tuple(how for _, how, _ in _WHOLE_NUMBER_DATES)
_SINCE_1970 = {"%s": "s", "%Q": "ms"}


def odd_date(words: Any) -> str:
    """Return the first of words (n,) that does not have the most common form of a date."""
    values = present(words)
    shapes = [_ISO_DAY, *(pattern for pattern, _ in _UNAMBIGUOUS_DATES), r"[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}"]
    fits = max((pc.match_substring_regex(values, f"^{pattern}") for pattern in shapes), key=lambda f: pc.sum(f).as_py())
    other = values.filter(pc.invert(fits))
    return str((other if len(other) else words.drop_null())[0].as_py())


def _dates(words: Any, kind: str | None, min_share: float) -> _Conversion | None:
    """Parse words by the format that fits the most of them; None if it fits fewer than `min_share`."""
    formats = _date_formats(words, kind, min_share)
    parsed = (_Conversion(_parse_dates(words, how), how, note) for how, note in formats)
    ordered = sorted(parsed, key=lambda each: each.column.null_count)  # stable: the first of equals stays first
    if not ordered:
        return None if min_share else _Conversion(pa.nulls(len(words), pa.timestamp("us")), "", "")
    best = ordered[0]
    if len(words) - best.column.null_count < min_share * len(present(words)):
        return None
    is_ambiguous = len(ordered) > 1 and ordered[1].column.null_count == best.column.null_count
    note = best.note if is_ambiguous else best.note.partition(" (")[0]
    return best._replace(how="" if best.how == _ISO else best.how, note=note)


def _parse_dates(words: Any, how: str) -> Any:
    """Return timestamps, null for words that do not have this format."""
    dates = pc.if_else(is_present(words), words, _NOTHING)
    if how in _SINCE_1970:
        integers = pc.if_else(pc.match_substring_regex(dates, "^-?[0-9]{1,15}$"), dates, _NOTHING)
        return integers.cast("int64").cast(pa.timestamp(_SINCE_1970[how])).cast(pa.timestamp("us"))
    if how != _ISO:
        times = pc.strptime(dates, format=how, unit="us", error_is_null=True)
        return pc.if_else(pc.greater_equal(pc.year(times), 1000), times, pa.scalar(None, times.type))  # 24 for 2024
    days = pc.utf8_slice_codeunits(dates, 0, 10)
    exist = pc.equal(pc.strftime(pc.strptime(days, "%Y-%m-%d", "us", error_is_null=True), "%Y-%m-%d"), days)
    fits = pc.and_(pc.match_substring_regex(dates, f"^{_ISO_PATTERN}$"), exist)
    return pc.if_else(fits, dates, _NOTHING).cast(pa.timestamp("us"))


def _date_formats(words: Any, kind: str | None, min_share: float) -> Iterator[tuple[str, str]]:
    """Yield the formats that at least `min_share` of the words may have, each with its note."""
    values = present(words)
    for clock, hours in _TIMES:
        for pattern, how in (*_UNAMBIGUOUS_DATES, (_ISO_DAY, "%Y-%m-%d")):
            if ("%p" in hours or how != "%Y-%m-%d") and _share_matches(values, f"^{pattern}{clock}$", min_share):
                yield how + hours, ""
        for mark in "./-":
            for digits, year in ((4, "%Y"), (2, "%y")):
                numbers = rf"^[0-9]{{1,2}}\{mark}[0-9]{{1,2}}\{mark}[0-9]{{{digits}}}{clock}$"
                if _share_matches(values, numbers, min_share):
                    yield from _day_or_month_first(mark, year + hours, kind)
    if _share_matches(values, f"^{_ISO_PATTERN}$", min_share):
        yield _ISO, ""
    if kind is not None:
        for pattern, how, note in _WHOLE_NUMBER_DATES:
            if _share_matches(values, pattern, min_share):
                yield how, note


def _day_or_month_first(mark: str, year: str, kind: str | None) -> list[tuple[str, str]]:
    """Return the formats of both orders, or of the one that `kind` names."""
    change = "" if mark == "." else f" (types={{'COL': {MONTH_FIRST!r}}} to change it)"
    day = (f"%d{mark}%m{mark}{year}", "day first" + change)
    month = (f"%m{mark}%d{mark}{year}", "month first")
    return {DAY_FIRST: [day], MONTH_FIRST: [month]}.get(str(kind), [day, month])


def _share_matches(words: Any, pattern: str, min_share: float) -> bool:
    """Return whether at least `min_share` of the words, and at least one, match."""
    if not _any_match(words.slice(0, 100) if min_share else words, pattern):  # usually enough to find that few do
        return False
    return bool(pc.sum(pc.match_substring_regex(words, pattern)).as_py() >= min_share * len(words))
