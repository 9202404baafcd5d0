"""Dates as people write them -> moments: 31/12/2024, Dec 31, 2024, 01/15/2020 03:45 PM.

Day, month, year in either order; a first number above 12 is a day, a second one makes it a month. How a column was
written is a format of strptime, kept with a model, so that later rows are read the same way.
"""

from __future__ import annotations

from typing import Any

from kway.data.sources.word_gaps import is_present, present

_TIMES = (("", ""), (r" [0-9]{1,2}:[0-9]{2}", " %H:%M"), (r" [0-9]{1,2}:[0-9]{2}:[0-9]{2}", " %H:%M:%S"))
_MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_OTHER_DATES = (
    (r"[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}", "%Y/%m/%d"),
    (r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}", "%Y.%m.%d"),
    (rf"[0-9]{{1,2}} {_MONTH} [0-9]{{4}}", "%d %b %Y"),
    (rf"[0-9]{{1,2}}-{_MONTH}-[0-9]{{4}}", "%d-%b-%Y"),
    (rf"{_MONTH} [0-9]{{1,2}}, [0-9]{{4}}", "%b %d, %Y"),
)
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"


def as_dates(words: Any, asked: str | None) -> tuple[Any, str, str] | None:
    """Text that is all dates, but ISO ones, which need no help."""
    there = present(words)
    return dated(words, _date_shape(there, asked)) if len(there) else None


def dated(words: Any, formats: list[tuple[str, str]]) -> tuple[Any, str, str] | None:
    """The words by the first format that fits them all, gaps aside."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dates = pc.if_else(is_present(words), words, pa.scalar(None, pa.large_string()))
    for how, note in formats:
        moments = pc.strptime(dates, format=how, unit="us", error_is_null=True)
        if moments.null_count == dates.null_count:
            return moments, how, note
    return None


def _date_shape(words: Any, asked: str | None) -> list[tuple[str, str]]:
    """Formats to try, each with its note."""
    import pyarrow.compute as pc

    for clock, hours in _TIMES:
        for pattern, how in _OTHER_DATES:
            if pc.all(pc.match_substring_regex(words, f"^{pattern}{clock}$")).as_py():
                return [(how + hours, "")]
        for mark in "./-":
            numbers = rf"^(?P<a>[0-9]{{1,2}})\{mark}(?P<b>[0-9]{{1,2}})\{mark}(?P<y>[0-9]{{4}}|[0-9]{{2}}){clock}$"
            found = pc.extract_regex(words, numbers)
            if found.null_count == 0:
                return _orders(found, mark, hours, asked)
    return []


def _orders(found: Any, mark: str, hours: str, asked: str | None) -> list[tuple[str, str]]:
    import pyarrow.compute as pc

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
    return [(day[0], f"day first (--types COL={MONTH_FIRST} says otherwise)")]
