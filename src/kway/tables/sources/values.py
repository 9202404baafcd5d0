"""Numbers and dates as people write them: 1.234,5 EUR -> 1234.5, 31/12/2024 -> a date.

    decimal mark     . or , as the column requires: 1.234,5 and 1,5 need a comma, 1,234.5 needs a point; if both are
                     possible (1,234), the mark of the file decides
    removed          thousands separators (. , ' space) and one unit: a currency or % (15 % is 15)
    negative         a minus sign in front or at the end, or parentheses as in accounting: (1,234.50)
    codes            digits of one width, some with a leading zero (0052), stay text unless `types` is number
    dates            day, month and year in any usual order, with or without a time; a first number above 12 is a day,
                     a second number above 12 makes the first a month

A text column becomes numbers if 9 of 10 words (missing values aside) are such numbers and some need conversion. It
becomes dates if all words are dates. Other words in a column of numbers stay, so that Features can report them.
`ColumnFormat.how`, the decimal mark or the strptime format, is stored with a model, so that later rows are read in the
same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kway.tables.options import DAY_FIRST, MONTH_FIRST
from kway.tables.sources.frames import is_number, is_text, whole_column

GAPS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")  # words for a missing value
MOSTLY = 0.9  # share of the rows from which a rule holds for a column: numbers, with other words taken as missing;
# levels of a category (messy files of the tests, T11)
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
_PLAIN = r"^[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"
_GROUPED = (
    r"^[-+]?(?:(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:GROUP[0-9]{3})+)(?:MARK[0-9]*)?|MARK[0-9]+)(?:[eE][-+]?[0-9]+)?$"
)
_NUMBER_BY_MARK = {
    mark: _GROUPED.replace("GROUP", rf"(?:{other}|['’]|{_SPACE})").replace("MARK", rf"\{mark}")
    for mark, other in ((".", ","), (",", r"\."))
}


class ColumnFormat(NamedTuple):
    """How a column was written: decimal mark or strptime format, one of its words, and a note for the user."""

    column: str
    how: str
    example: str
    note: str


class ConvertedTable(NamedTuple):
    """A table with text columns converted to numbers and dates, and the formats of these columns."""

    table: Any
    written: tuple[ColumnFormat, ...]


_Conversion = tuple[Any, str, str]  # a converted column, its format, a note


def convert(
    table: Any, mark: str | None = None, known: Mapping[str, str] | None = None, types: Mapping[str, str] | None = None,
    leave: tuple[str, ...] = (),
) -> ConvertedTable:  # fmt: skip
    """Convert text columns to numbers and dates.

    `mark` is the decimal mark of the file; without it the columns decide. `known` maps columns to the formats of
    earlier rows, `types` maps columns to the kinds that the user gave; columns in `leave` are not converted.
    """
    mark = mark or ("," if needs_comma(table, leave) else ".")
    known, types, found = dict(known or {}), dict(types or {}), []
    for place, name in enumerate(table.column_names):
        column, asked = table.column(name), types.get(name)
        if is_number(column.type) and (asked == "date" or known.get(name, "") in _WHOLE_NUMBER_FORMATS):
            column = _whole_numbers_as_text(column)
        if name in leave or not is_text(whole_column(column).type) or asked in ("text", "category", "drop"):
            continue
        words = trimmed(column)
        done = _convert_as_before(words, known[name]) if name in known else _convert_by_words(words, mark, asked)
        if done is not None:
            table = table.set_column(place, name, done[0])
            some = present(words)
            found.append(ColumnFormat(name, done[1], some[0].as_py() if len(some) else "", done[2]))
    return ConvertedTable(table, tuple(found))


def convert_known(table: Any, known: Mapping[str, str]) -> Any:
    """Convert the columns of `known` from these formats; other columns stay."""
    return convert(table, ".", known, leave=tuple(c for c in table.column_names if c not in known)).table


def _convert_by_words(words: Any, mark: str, asked: str | None) -> _Conversion | None:
    if asked in (None, "date", DAY_FIRST, MONTH_FIRST):
        dates = _dates(words, asked)
        if dates is not None or asked is not None:
            return dates
    there, sure = present(words), asked == "number"
    if not sure and are_codes(there):
        return None
    found = _numerals(there, mark, 0.0 if sure else MOSTLY, zeros=sure)
    return None if found is None else (_as_numbers(words, found), found.mark, _number_note(there, found))


def _convert_as_before(words: Any, how: str) -> _Conversion | None:
    if "%" in how:
        return _parsed_dates(words, [(how, "")])
    core = _without_zeros(_parts(present(words))[0])
    fits = pc.match_substring_regex(core, _NUMBER_BY_MARK[how]).fill_null(False)
    return _as_numbers(words, _Numerals(_plain_numerals(core, how), fits, how, "", True)), how, ""


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


def _any_match(words: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(words, pattern)).as_py())


def _all_match(words: Any, pattern: str) -> bool:
    first = words.slice(0, 1)  # usually enough to find that not all match
    return all(pc.all(pc.match_substring_regex(some, pattern)).as_py() for some in (first, words))


def _whole_numbers_as_text(column: Any) -> Any:
    """Return whole numbers as text; pandas stores whole numbers with missing values as floats."""
    numbers = whole_column(column).cast("float64", safe=False)
    there = pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))
    return there.cast("int64", safe=False).cast("large_string")


# ---- numbers


class _Numerals(NamedTuple):
    """Words (n,) as plain numerals, the mask (n,) of those that are numbers, the decimal mark and the unit.

    decided: whether only this mark fits the words.
    """

    plain: Any
    fits: Any
    mark: str
    unit: str
    decided: bool


def needs_comma(table: Any, leave: tuple[str, ...] = ()) -> bool:
    """Return whether some column is numeric only with a decimal comma."""
    for name in table.column_names:
        if name not in leave and is_text(whole_column(table.column(name)).type):
            found = _numerals(present(trimmed(table.column(name))), ".")
            if found is not None and found.mark == "," and found.decided:
                return True
    return False


def _numerals(words: Any, mark: str, mostly: float = MOSTLY, zeros: bool = False) -> _Numerals | None:
    """Convert words (n,), none missing, to numerals; None if too few are numbers, all are plain, or units differ.

    `zeros`: read 0052 as 52.
    """
    with_digits = pc.sum(pc.match_substring_regex(words, "[0-9]")).as_py() or 0
    if with_digits == 0 or with_digits < mostly * len(words):
        return None
    core, units = _parts(words)
    core = _without_zeros(core) if zeros else core
    fits = {m: pc.match_substring_regex(core, pattern).fill_null(False) for m, pattern in _NUMBER_BY_MARK.items()}
    share = {m: pc.sum(f).as_py() / len(words) for m, f in fits.items()}
    best = mark if share["."] == share[","] else max(share, key=lambda m: share[m])
    if share[best] < mostly or not share[best]:
        return None
    seen = [u for u in pc.unique(units.filter(fits[best])).to_pylist() if u]
    odd = pc.and_(fits[best], pc.invert(pc.match_substring_regex(words, _PLAIN)))
    nothing_to_do = mark == best == "." and not pc.any(odd).as_py()
    if len(seen) > 1 or nothing_to_do:  # in a file with decimal commas, 2.5 and 1.000 are still text
        return None
    plain = _plain_numerals(core, best)
    return _Numerals(plain, fits[best], best, seen[0] if seen else "", share["."] != share[","])


def _parts(words: Any) -> tuple[Any, Any]:
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
    bare = pc.replace_substring_regex(core, rf"[{',' if mark == '.' else '.'}'’]|{_SPACE}", "")
    bare = pc.replace_substring_regex(bare, r"^\+", "")
    return bare if mark == "." else pc.replace_substring(bare, ",", ".")


def _as_numbers(words: Any, found: _Numerals) -> Any:
    """Return float64 if every word that is present is a number, else text with plain numerals."""
    there = is_present(words)
    plain = pc.if_else(found.fits, found.plain, words.filter(there))
    if pc.all(found.fits).as_py() is not False:
        return pc.replace_with_mask(pa.nulls(len(words), pa.large_string()), there, plain).cast("float64")
    return pc.replace_with_mask(pc.if_else(pc.equal(words, ""), _NOTHING, words), there, plain)


def _number_note(words: Any, found: _Numerals) -> str:
    text = words.filter(found.fits)

    def some(pattern: str) -> bool:
        return _any_match(text, pattern)

    signs = [
        note
        for pattern, note in ((_BRACKETS, "() read as minus"), (_MINUS_BEHIND, "- at the end read as minus"))
        if some(pattern)
    ]
    return ", ".join([*_mark_notes(text, found, some), *signs, *_unit_notes(text, found.unit)])


def _mark_notes(text: Any, found: _Numerals, some: Callable[[str], bool]) -> list[str]:
    """Return notes on how decimals and thousands were read, and the option that changes it if both marks fit."""
    other = "," if found.mark == "." else "."
    notes = ["decimal comma"] if found.mark == "," and some(",") else []
    otherwise = "" if found.decided else f" (decimal={other!r} to change it)"
    if some(rf"\{other}"):
        notes.append(f"{other} between thousands{otherwise}")
    elif notes:
        notes = [notes[0] + otherwise]
    elif found.mark == "." and otherwise and are_dotted_thousands(text):
        notes.append(f"decimal point{otherwise}")
    spaces = {"' between thousands": "['’]", "spaces between thousands": _SPACE}
    return notes + [note for note, mark in spaces.items() if some(f"[0-9]{mark}[0-9]")]


def _unit_notes(text: Any, unit: str) -> list[str]:
    """Return a note on the removed unit; numbers without % next to percentages are counted."""
    bare = len(text) - pc.sum(pc.match_substring(text, unit)).as_py() if unit == "%" else 0
    same = f", and {bare:,} of {len(text):,} have none: read on the same scale, 0.15 as 0.15 %" if bare else ""
    return [f"{unit} removed{same}"] if unit else []


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
_ISO = (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "%Y-%m-%d")  # only with AM or PM; Arrow parses the others
_WHOLE_NUMBER_DATES = (  # only if `types` is date
    (r"^(?:19|20)[0-9]{6}$", "%Y%m%d", "year, month, day"),
    (r"^-?[0-9]{9,10}$", "%s", "seconds since 1970"),
    (r"^-?[0-9]{12,13}$", "%Q", "milliseconds since 1970"),
)
_WHOLE_NUMBER_FORMATS = tuple(how for _, how, _ in _WHOLE_NUMBER_DATES)
_SINCE_1970 = {"%s": "s", "%Q": "ms"}


def odd_date(words: Any) -> str:
    """Return the first of words (n,) that does not have the most common form of a date."""
    there = present(words)
    there = there if len(there) else words
    shapes = [pattern for pattern, _ in (_ISO, *_UNAMBIGUOUS_DATES)] + [r"[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}"]
    fits = [pc.match_substring_regex(there, f"^{pattern}") for pattern in shapes]
    odd = there.filter(pc.invert(max(fits, key=lambda f: pc.sum(f).as_py())))
    return str((odd if len(odd) else there)[0].as_py())


def _dates(words: Any, asked: str | None) -> _Conversion | None:
    there = present(words)
    return _parsed_dates(words, _date_formats(there, asked)) if len(there) else None


def _parsed_dates(words: Any, formats: list[tuple[str, str]]) -> _Conversion | None:
    """Parse the words by the first format that fits all of them, missing values aside."""
    dates = pc.if_else(is_present(words), words, _NOTHING)
    for how, note in formats:
        if how in _SINCE_1970:
            whole = pc.if_else(pc.match_substring_regex(dates, "^-?[0-9]{1,15}$"), dates, _NOTHING)
            times = whole.cast("int64").cast(pa.timestamp(_SINCE_1970[how])).cast(pa.timestamp("us"))
        else:
            times = pc.strptime(dates, format=how, unit="us", error_is_null=True)
        if times.null_count == dates.null_count:
            return times, how, note
    return None


def _date_formats(words: Any, asked: str | None) -> list[tuple[str, str]]:
    """Return the formats to try, each with its note."""
    for clock, hours in _TIMES:
        for pattern, how in (*_UNAMBIGUOUS_DATES, *([_ISO] if "%p" in hours else [])):
            if _all_match(words, f"^{pattern}{clock}$"):
                return [(how + hours, "")]
        for mark in "./-":
            numbers = rf"^(?P<a>[0-9]{{1,2}})\{mark}(?P<b>[0-9]{{1,2}})\{mark}(?P<y>[0-9]{{4}}|[0-9]{{2}}){clock}$"
            if _all_match(words, numbers):
                return _day_or_month_first(pc.extract_regex(words, numbers), mark, hours, asked)
    if asked is None:
        return []
    return [(how, note) for pattern, how, note in _WHOLE_NUMBER_DATES if _all_match(words, pattern)]


def _day_or_month_first(found: Any, mark: str, hours: str, asked: str | None) -> list[tuple[str, str]]:
    most = [pc.max(pc.struct_field(found, part).cast("int64")).as_py() for part in "ab"]
    years = pc.unique(pc.utf8_length(pc.struct_field(found, "y"))).to_pylist()
    if len(years) > 1:
        return []
    year = "%Y" if years == [4] else "%y"
    day = (f"%d{mark}%m{mark}{year}{hours}", "day first")
    month = (f"%m{mark}%d{mark}{year}{hours}", "month first")
    if asked in (DAY_FIRST, MONTH_FIRST):
        return [day if asked == DAY_FIRST else month]
    if max(most) > 12 or mark == ".":
        return [day] if most[1] <= 12 else [month]
    return [(day[0], f"day first (types={{'COL': {MONTH_FIRST!r}}} to change it)")]
