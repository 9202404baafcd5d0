"""Dates as people write them -> moments: 31/12/2024, Dec 31, 2024, 01/15/2020 03:45 PM.

Day, month, year in either order; a first number above 12 is a day, a second one makes it a month. How a column was
written is a format of strptime, kept with a model, so that later rows are read the same way.
"""

from __future__ import annotations

from typing import Any

from kway.data.sources.word_gaps import is_present, present

_TIMES = (
    ("", ""),
    (r" [0-9]{1,2}:[0-9]{2}", " %H:%M"),
    (r" [0-9]{1,2}:[0-9]{2}:[0-9]{2}", " %H:%M:%S"),
    (r" [0-9]{1,2}:[0-9]{2} ?[AaPp][Mm]", " %I:%M %p"),
    (r" [0-9]{1,2}:[0-9]{2}:[0-9]{2} ?[AaPp][Mm]", " %I:%M:%S %p"),
)
_MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_OTHER_DATES = (
    (r"[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}", "%Y/%m/%d"),
    (r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}", "%Y.%m.%d"),
    (rf"[0-9]{{1,2}} {_MONTH} [0-9]{{4}}", "%d %b %Y"),
    (rf"[0-9]{{1,2}}-{_MONTH}-[0-9]{{4}}", "%d-%b-%Y"),
    (rf"{_MONTH} [0-9]{{1,2}}, [0-9]{{4}}", "%b %d, %Y"),
)
_ISO = (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "%Y-%m-%d")  # with AM and PM: any other needs no help
_NUMBERS = (  # dates where a person says so
    (r"^(?:19|20)[0-9]{6}$", "%Y%m%d", "year, month, day"),
    (r"^-?[0-9]{9,10}$", "%s", "seconds since 1970"),
    (r"^-?[0-9]{12,13}$", "%Q", "milliseconds since 1970"),
)
_SINCE_1970 = {"%s": "s", "%Q": "ms"}
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
FORMS = (
    "2024-01-31, 2024-01-31 23:59:59, 31.12.2024, 12/31/2024 03:45 PM, 31 Dec 2024, Dec 31, 2024 or, as seconds since "
    "1970, 1706745599"
)


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
        if how in _SINCE_1970:
            moments = _since_1970(dates, how)
        else:
            moments = pc.strptime(dates, format=how, unit="us", error_is_null=True)
        if moments.null_count == dates.null_count:
            return moments, how, note
    return None


def are_whole_numbers(how: str) -> bool:
    """Whether dates written so are whole numbers, which a typed table may hold as such."""
    return how in {form for _, form, _ in _NUMBERS}


def odd_date(words: Any) -> str:
    """Of words (n,) that are not all dates the first that is unlike the others, where most are alike."""
    import pyarrow.compute as pc

    there = present(words)
    there = there if len(there) else words
    shapes = [pattern for pattern, _ in (_ISO, *_OTHER_DATES)] + [r"[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}"]
    fits = [pc.match_substring_regex(there, f"^{pattern}") for pattern in shapes]
    most = max(fits, key=lambda f: pc.sum(f).as_py())
    odd = there.filter(pc.invert(most))
    return str((odd if len(odd) else there)[0].as_py())


def _since_1970(words: Any, how: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pc.if_else(pc.match_substring_regex(words, "^-?[0-9]{1,15}$"), words, pa.scalar(None, pa.large_string()))
    return whole.cast("int64").cast(pa.timestamp(_SINCE_1970[how])).cast(pa.timestamp("us"))


def _date_shape(words: Any, asked: str | None) -> list[tuple[str, str]]:
    """Formats to try, each with its note."""
    import pyarrow.compute as pc

    for clock, hours in _TIMES:
        for pattern, how in (*_OTHER_DATES, *([_ISO] if "%p" in hours else [])):
            if pc.all(pc.match_substring_regex(words, f"^{pattern}{clock}$")).as_py():
                return [(how + hours, "")]
        for mark in "./-":
            numbers = rf"^(?P<a>[0-9]{{1,2}})\{mark}(?P<b>[0-9]{{1,2}})\{mark}(?P<y>[0-9]{{4}}|[0-9]{{2}}){clock}$"
            found = pc.extract_regex(words, numbers)
            if found.null_count == 0:
                return _orders(found, mark, hours, asked)
    numbers_asked = _NUMBERS if asked is not None else ()
    return [
        (how, note) for pattern, how, note in numbers_asked if pc.all(pc.match_substring_regex(words, pattern)).as_py()
    ]


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
