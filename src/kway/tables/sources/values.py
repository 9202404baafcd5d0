"""Numbers and dates as people write them: 1.234,5 EUR -> 1234.5, 31/12/2024 -> a date.

    decimal mark     . or , as the column requires: 1.234,5 and 1,5 need a comma, 1,234.5 needs a point; if both are
                     possible (1,234), the mark of the file decides
    removed          thousands separators (. , ' space) and one unit: a currency or % (15 % is 15)
    negative         a minus sign in front or at the end, or parentheses as in accounting: (1,234.50)
    codes            digits of one width, some with a leading zero (0052), stay text unless `types` is number
    dates            day, month and year in any usual order, with or without a time; a first number above 12 is a day,
                     a second number above 12 makes the first a month

A text column becomes numbers or dates if 9 of 10 words (missing values aside) are numbers or dates. The other words are
stray: they count as missing, and a note names them and their rows. Plain digits with few different values stay text,
because they are levels. In later rows, a column of numbers or dates may also have 1 stray word in 10 (and always one);
more raise an error, unless `skip_bad` is set. `ColumnFormat.how`, the decimal mark or the strptime format, is stored
with a model, so that later rows are read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.read_options import DAY_FIRST, MONTH_FIRST
from kway.tables.sources.frames import holds_text, is_date, is_number, whole_column

GAPS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")  # words for a missing value
MOSTLY = 0.9  # share of the rows from which a rule holds for a column: numbers or dates, with other words taken as
# missing; levels of a category (messy files of the tests, T11)
FEW_ROWS = 20  # rows below which a column shows too little: no ids, terms of one text are kept; and different words of
# plain digits up to which text stays text, as levels (test_column_kinds)
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
    """How a column was written: decimal mark or strptime format, one of its words, and a note for the user."""

    column: str
    how: str
    example: str
    note: str


class ConvertedTable(NamedTuple):
    """A table with text converted to numbers and dates, formats that later rows need, and notes on stray words."""

    table: Any
    written: tuple[ColumnFormat, ...]
    strays: tuple[str, ...]


class EarlierRows(NamedTuple):
    """What is known about columns from earlier rows.

    written: the format of columns that were converted; kinds: columns that were numbers, dates or true/false; asked:
    columns whose kind the user gave, which may have any share of stray words; first: the number of rows before these.
    """

    written: Mapping[str, str] = MappingProxyType({})
    kinds: Mapping[str, str] = MappingProxyType({})
    asked: Collection[str] = ()
    first: int = 0


NO_EARLIER_ROWS = EarlierRows()


class _Conversion(NamedTuple):
    column: Any
    how: str  # "" if later rows are read without it
    note: str


def convert(
    table: Any, mark: str | None = None, before: EarlierRows = NO_EARLIER_ROWS, types: Mapping[str, str] | None = None,
    leave: Collection[str] = (), skip_bad: bool = False, what: str = "",
) -> ConvertedTable:  # fmt: skip
    """Convert text columns to numbers and dates.

    `mark` is the decimal mark of the file; without it the columns decide. `types` maps columns to the kinds that the
    user gave; columns in `leave` are not converted. `skip_bad`: any share of the words may be stray. Errors begin
    with `what`.
    """
    mark = mark or ("," if needs_comma(table, leave) else ".")
    types, found, strays = types or {}, [], []
    for place, name in enumerate(table.column_names):
        column, asked = table.column(name), types.get(name)
        known = before.written.get(name)
        if is_number(column.type) and (asked == "date" or known in _WHOLE_NUMBER_FORMATS):
            column = _whole_numbers_as_text(column)
        if name in leave or not holds_text(column) or asked in ("text", "category", "drop"):
            continue
        words, was = trimmed(column), before.kinds.get(name)
        done = (
            _convert_as_before(words, known)
            if known
            else _convert_by_words(words, mark, asked or was, 0.0 if was else MOSTLY)
        )
        if done is None:
            continue
        table = table.set_column(place, name, done.column)
        stray = pc.and_(is_present(words), pc.is_null(done.column))
        if pc.any(stray).as_py():
            kind = "date" if is_date(done.column.type) else "number" if was != "true/false" else was
            if (known or was) and not (skip_bad or asked or name in before.asked):
                _refuse_strays(f"{what}column {name!r}", words, stray, kind)
            strays.append(_stray_note(name, words, stray, kind, before.first))
        if done.how:
            some = present(words)
            found.append(ColumnFormat(name, done.how, some[0].as_py() if len(some) else "", done.note))
    return ConvertedTable(table, tuple(found), tuple(strays))


def _convert_by_words(words: Any, mark: str, asked: str | None, least: float) -> _Conversion | None:
    """Convert words if a share of `least` are dates or numbers, or if it was asked for; else return None."""
    if asked == "true/false":
        fits = pc.match_substring_regex(words, "^(?i:true|false)$")
        return _Conversion(pc.if_else(fits, words, _NOTHING).cast("bool"), "", "")
    if asked in (None, "date", DAY_FIRST, MONTH_FIRST):
        dates = _dates(words, asked, least)
        if dates is not None or asked is not None:
            return dates
    there, sure = present(words), asked == "number"
    if not sure and are_codes(there):
        return None
    found = _numerals(there, mark, 0.0 if sure else MOSTLY, zeros=sure)
    if found is None and sure:
        return _Conversion(pa.nulls(len(words), pa.float64()), "", "")
    if found is None or (found.is_plain and not sure and _are_levels(words)):
        return None
    return _Conversion(_as_numbers(words, found), "" if found.is_plain else found.mark, _number_note(there, found))


def _convert_as_before(words: Any, how: str) -> _Conversion:
    if "%" in how:
        return _Conversion(_parse_dates(words, how), how, "")
    core = _without_zeros(_parts(present(words))[0])
    fits = pc.match_substring_regex(core, _NUMBER_BY_MARK[how]).fill_null(False)
    either = pc.or_(fits, pc.match_substring_regex(core, NUMBER).fill_null(False))  # as programs write numbers
    plain = pc.if_else(fits, _plain_numerals(core, how), core)
    return _Conversion(_as_numbers(words, _Numerals(plain, either, how, "", True, False)), how, "")


# ---- stray words

_KINDS = {"number": "numbers", "date": "dates", "true/false": "true or false"}


def _refuse_strays(what: str, words: Any, stray: Any, kind: str) -> None:
    """Raise InputError if more than one word, and more than 1 in 10, are not of the kind of the column."""
    n, of = pc.sum(stray).as_py(), len(present(words))
    if n > max(1, (1 - MOSTLY) * of):
        wanted = f"dates, such as {DATE_EXAMPLES}" if kind == "date" else _KINDS[kind]
        raise InputError(
            f"{what} must contain {_KINDS[kind]}, as in training, but {n:,} of {of:,} cells are other words "
            f"such as {_samples(words, stray)}; write {wanted}, or read them as missing values: skip_bad=True"
        )


def _stray_note(name: str, words: Any, stray: Any, kind: str, first: int) -> str:
    """Return a note on words that count as missing, with the first of their rows, counted from 1."""
    rows = pc.indices_nonzero(stray).to_pylist()
    cells = "1 cell is" if len(rows) == 1 else f"{len(rows):,} cells are"
    where = f"row{'s' if len(rows) > 1 else ''} {listing((f'{first + row + 1:,}' for row in rows), 5)}"
    return (
        f"column {name!r}: {cells} not {_KINDS[kind]} and read as missing: {_samples(words, stray)} in {where} "
        f"({len(rows) / len(words):.1%} of the rows)"
    )


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
    return all(pc.all(pc.match_substring_regex(some, pattern)).as_py() for some in (first, words))


def _whole_numbers_as_text(column: Any) -> Any:
    """Return whole numbers as text; pandas stores whole numbers with missing values as floats."""
    numbers = whole_column(column).cast("float64", safe=False)
    there = pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))
    return there.cast("int64", safe=False).cast("large_string")


# ---- numbers


class _Numerals(NamedTuple):
    """Words (n,) as plain numerals, the mask (n,) of those that are numbers, the decimal mark and the unit.

    decided: whether only this mark fits the words; is_plain: whether all numbers are written as programs write them.
    """

    plain: Any
    fits: Any
    mark: str
    unit: str
    decided: bool
    is_plain: bool


def needs_comma(table: Any, leave: Collection[str] = ()) -> bool:
    """Return whether some column is numeric only with a decimal comma."""
    for name in table.column_names:
        if name not in leave and holds_text(table.column(name)):
            found = _numerals(present(trimmed(table.column(name))), ".")
            if found is not None and found.mark == "," and found.decided:
                return True
    return False


def _numerals(words: Any, mark: str, mostly: float = MOSTLY, zeros: bool = False) -> _Numerals | None:
    """Convert words (n,), none missing, to numerals; None if too few are numbers or units differ.

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
    odd = pc.and_(fits[best], pc.invert(pc.match_substring_regex(words, NUMBER)))
    is_plain = mark == best == "." and not pc.any(odd).as_py()  # with decimal commas, 2.5 and 1.000 are still text
    if len(seen) > 1:
        return None
    numerals = _plain_numerals(core, best)
    return _Numerals(numerals, fits[best], best, seen[0] if seen else "", share["."] != share[","], is_plain)


def _are_levels(words: Any) -> bool:
    """Return whether plain numbers stay text: few different ones and no other word, or more digits than a float64."""
    words = words.filter(pc.not_equal(words, ""))
    if _any_match(words, _LONG):
        return True
    return share_of_numbers(words) == 1 and pc.count_distinct(words).as_py() <= FEW_ROWS


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
    """Return float64, null for missing and stray words."""
    plain = pc.if_else(found.fits, found.plain, _NOTHING)
    return pc.replace_with_mask(pa.nulls(len(words), pa.large_string()), is_present(words), plain).cast("float64")


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
    there = present(words)
    shapes = [_ISO_DAY, *(pattern for pattern, _ in _UNAMBIGUOUS_DATES), r"[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}"]
    fits = max((pc.match_substring_regex(there, f"^{pattern}") for pattern in shapes), key=lambda f: pc.sum(f).as_py())
    odd = there.filter(pc.invert(fits))
    return str((odd if len(odd) else words.drop_null())[0].as_py())


def _dates(words: Any, asked: str | None, least: float) -> _Conversion | None:
    """Parse words by the format that most of them have; None if it is not that of a share of `least`."""
    found = (_Conversion(_parse_dates(words, how), how, note) for how, note in _date_formats(words, asked, least))
    ordered = sorted(found, key=lambda each: each.column.null_count)  # the first of equals stays first
    if not ordered:
        return None if least else _Conversion(pa.nulls(len(words), pa.timestamp("us")), "", "")
    best = ordered[0]
    if len(words) - best.column.null_count < least * len(present(words)):
        return None
    doubtful = len(ordered) > 1 and ordered[1].column.null_count == best.column.null_count
    note = best.note if doubtful else best.note.partition(" (")[0]
    return best._replace(how="" if best.how == _ISO else best.how, note=note)


def _parse_dates(words: Any, how: str) -> Any:
    """Return timestamps, null for words that do not have this format."""
    dates = pc.if_else(is_present(words), words, _NOTHING)
    if how in _SINCE_1970:
        whole = pc.if_else(pc.match_substring_regex(dates, "^-?[0-9]{1,15}$"), dates, _NOTHING)
        return whole.cast("int64").cast(pa.timestamp(_SINCE_1970[how])).cast(pa.timestamp("us"))
    if how != _ISO:
        times = pc.strptime(dates, format=how, unit="us", error_is_null=True)
        return pc.if_else(pc.greater_equal(pc.year(times), 1000), times, pa.scalar(None, times.type))  # 24 for 2024
    days = pc.utf8_slice_codeunits(dates, 0, 10)
    exist = pc.equal(pc.strftime(pc.strptime(days, "%Y-%m-%d", "us", error_is_null=True), "%Y-%m-%d"), days)
    fits = pc.and_(pc.match_substring_regex(dates, f"^{_ISO_PATTERN}$"), exist)
    return pc.if_else(fits, dates, _NOTHING).cast(pa.timestamp("us"))


def _date_formats(words: Any, asked: str | None, least: float) -> Iterator[tuple[str, str]]:
    """Yield the formats that a share of `least` of the words may have, each with its note."""
    there = present(words)
    for clock, hours in _TIMES:
        for pattern, how in (*_UNAMBIGUOUS_DATES, (_ISO_DAY, "%Y-%m-%d")):
            if ("%p" in hours or how != "%Y-%m-%d") and _share_matches(there, f"^{pattern}{clock}$", least):
                yield how + hours, ""
        for mark in "./-":
            for digits, year in ((4, "%Y"), (2, "%y")):
                numbers = rf"^[0-9]{{1,2}}\{mark}[0-9]{{1,2}}\{mark}[0-9]{{{digits}}}{clock}$"
                if _share_matches(there, numbers, least):
                    yield from _day_or_month_first(mark, year + hours, asked)
    if _share_matches(there, f"^{_ISO_PATTERN}$", least):
        yield _ISO, ""
    if asked is not None:
        yield from ((how, note) for pattern, how, note in _WHOLE_NUMBER_DATES if _share_matches(there, pattern, least))


def _day_or_month_first(mark: str, year: str, asked: str | None) -> list[tuple[str, str]]:
    """Return the two orders, or the one that was asked for."""
    change = "" if mark == "." else f" (types={{'COL': {MONTH_FIRST!r}}} to change it)"
    day = (f"%d{mark}%m{mark}{year}", "day first" + change)
    month = (f"%m{mark}%d{mark}{year}", "month first")
    return {DAY_FIRST: [day], MONTH_FIRST: [month]}.get(str(asked), [day, month])


def _share_matches(words: Any, pattern: str, least: float) -> bool:
    """Return whether a share of `least` of the words, and at least one, match."""
    if not _any_match(words.slice(0, 100) if least else words, pattern):  # usually enough to find that few do
        return False
    return bool(pc.sum(pc.match_substring_regex(words, pattern)).as_py() >= least * len(words))
