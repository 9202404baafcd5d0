"""Numbers and dates as people write them -> numbers and dates: 1.234,5 EUR -> 1234.5, 31/12/2024 -> a date.

    decimal mark     . or , told from the column: 1.234,5 and 1,5 say comma, 1,234.5 says point; what says neither
                     (1,234) is read by the mark of the file
    left out         thousands separators (. , ' space), one unit: a currency or % (15 % is 15)
    negative         a minus before or behind, or brackets as accountants write them: (1,234.50)
    no numbers       digits of one width, some with a leading zero (0052): codes, unless a person says otherwise
    dates            see dates.py

A column is converted where 9 of 10 words (gaps aside) are such numbers and some are not plain ones, or all are such
dates. Words that are no numbers stay as they are, for the features to say what becomes of them. `how` is the mark or
the format of the dates: kept with a model, so that later rows are read the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kway.data.sources.arrow_types import is_number, is_text, whole_column
from kway.data.sources.dates import DAY_FIRST, MONTH_FIRST, are_whole_numbers, as_dates, dated
from kway.data.sources.word_gaps import is_present, present, trimmed

_MOSTLY = 0.9
_SPACE = r"[\s\x{00A0}\x{2009}\x{202F}]"
_UNIT = r"(?:US|R|A|C)?\p{Sc}|EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|CZK|BRL|Rs\.?|kr\.?|zł|Fr\."
_WORD = (
    rf"^(?P<sign>[-+\x{{2212}}]?){_SPACE}*(?P<before>{_UNIT})?{_SPACE}*"
    rf"(?P<number>[-+]?[0-9.,](?:[0-9.,'’]|{_SPACE}+[0-9])*(?:[eE][-+]?[0-9]+)?){_SPACE}*(?P<after>%|{_UNIT})?$"
)
_BRACKETS = rf"^((?:{_UNIT})?{_SPACE}*)\(([^()]*[0-9][^()]*)\)$"
_MINUS_BEHIND = rf"^([^-]*[0-9][^-]*?){_SPACE}*[-\x{{2212}}]$"
_ZEROS = r"^([-+]?)0+([0-9])"
_THREE_DIGITS = r"^[^.0-9]*[1-9][0-9]{0,2}\.[0-9]{3}(?:[^0-9.].*)?$"
_PLAIN = r"^[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"
_GROUPED = (
    r"^[-+]?(?:(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:GROUP[0-9]{3})+)(?:MARK[0-9]*)?|MARK[0-9]+)(?:[eE][-+]?[0-9]+)?$"
)
_AS_NUMBER = {
    mark: _GROUPED.replace("GROUP", rf"(?:{other}|['’]|{_SPACE})").replace("MARK", rf"\{mark}")
    for mark, other in ((".", ","), (",", r"\."))
}


class Written(NamedTuple):
    """A column that was converted: how (decimal mark or format of dates), a word of it, what was done, in words."""

    column: str
    how: str
    example: str
    note: str


class Converted(NamedTuple):
    """The table with such columns as numbers and dates, and what was done to them."""

    table: Any
    written: tuple[Written, ...]


class Numerals(NamedTuple):
    """Words (n,) as plain numerals, which of them are numbers (n,), the mark, the unit, and whether only it fits."""

    plain: Any
    fits: Any
    mark: str
    unit: str
    decided: bool


def convert(
    table: Any, mark: str = ".", known: Mapping[str, str] | None = None, types: Mapping[str, str] | None = None,
    leave: tuple[str, ...] = (),
) -> Converted:  # fmt: skip
    """Text columns that are numbers or dates, as these; `known` says how for some, `leave` names those left alone."""
    known, types, left, found = dict(known or {}), dict(types or {}), set(leave), []
    for place, name in enumerate(table.column_names):
        asked = types.get(name)
        column = table.column(name)
        if is_number(column.type) and (asked == "date" or are_whole_numbers(known.get(name, ""))):
            column = _whole_words(column)
        if name in left or not is_text(whole_column(column).type) or asked in ("text", "category", "drop"):
            continue
        words = trimmed(column)
        done = _as_known(words, known[name]) if name in known else _as_found(words, mark, asked)
        if done is not None:
            column, how, note = done
            some = present(words)
            example = some[0].as_py() if len(some) else ""
            table = table.set_column(place, name, column)
            found.append(Written(name, how, example, note))
    return Converted(table, tuple(found))


def convert_frame(
    table: Any, known: Mapping[str, str] | None = None, types: Mapping[str, str] | None = None,
    leave: tuple[str, ...] = (), mark: str | None = None,
) -> Converted:  # fmt: skip
    """`convert` of a table that comes without a file: its own columns say the mark, where nobody does."""
    return convert(table, mark or ("," if says_comma(table, leave) else "."), known, types, leave)


def convert_known(table: Any, known: Mapping[str, str]) -> Any:
    """The table with the columns that `known` names read as it says; no other is looked at."""
    return convert(table, known=known, leave=tuple(c for c in table.column_names if c not in known)).table


def says_comma(table: Any, leave: tuple[str, ...] = ()) -> bool:
    """Whether a column has numbers that only a decimal comma explains."""
    for name in table.column_names:
        if name not in leave and is_text(whole_column(table.column(name)).type):
            found = numerals(present(trimmed(table.column(name))), ".")
            if found is not None and found.mark == "," and found.decided:
                return True
    return False


def numerals(words: Any, mark: str, mostly: float = _MOSTLY, zeros: bool = False) -> Numerals | None:
    """Words (n,) without gaps as numerals, None where too few are, or all are plain, or units differ.

    `zeros`: 0052 is 52.
    """
    import pyarrow.compute as pc

    if len(words) == 0:
        return None
    parts = pc.extract_regex(_signed(words), _WORD)
    core, units = _glued(parts, "sign", "number"), _glued(parts, "before", "after")
    core = _without_zeros(core) if zeros else core
    fits = {m: pc.match_substring_regex(core, pattern).fill_null(False) for m, pattern in _AS_NUMBER.items()}
    share = {m: pc.sum(f).as_py() / len(words) for m, f in fits.items()}
    best = mark if share["."] == share[","] else max(share, key=lambda m: share[m])
    if share[best] < mostly or not share[best]:
        return None
    seen = [u for u in pc.unique(units.filter(fits[best])).to_pylist() if u]
    plain = pc.match_substring_regex(words, _PLAIN)
    nothing_to_do = mark == best == "." and not pc.any(pc.and_(fits[best], pc.invert(plain))).as_py()
    if len(seen) > 1 or nothing_to_do:  # in a file of decimal commas, 2.5 and 1.000 are still text
        return None
    return Numerals(_plain(core, best), fits[best], best, seen[0] if seen else "", share["."] != share[","])


def _as_found(words: Any, mark: str, asked: str | None) -> tuple[Any, str, str] | None:
    """The column, how and a note, where the words are numbers or dates."""
    if asked in (None, "date", DAY_FIRST, MONTH_FIRST):
        dates = as_dates(words, asked)
        if dates is not None or asked is not None:
            return dates
    there, sure = present(words), asked == "number"
    if not sure and are_codes(there):
        return None
    found = numerals(there, mark, 0.0 if sure else _MOSTLY, zeros=sure)
    return None if found is None else (_rewritten(words, found), found.mark, _note(there, found))


def _as_known(words: Any, how: str) -> tuple[Any, str, str] | None:
    """Later rows as the first were read; words that do not fit stay, for the features to name them."""
    import pyarrow.compute as pc

    if "%" in how:
        return dated(words, [(how, "")])
    parts = pc.extract_regex(_signed(present(words)), _WORD)
    core = _without_zeros(_glued(parts, "sign", "number"))
    fits = pc.match_substring_regex(core, _AS_NUMBER[how]).fill_null(False)
    return _rewritten(words, Numerals(_plain(core, how), fits, how, "", True)), how, ""


def are_codes(words: Any) -> bool:
    """Whether words (n,) without gaps are digits of one width, some with a leading zero: 0052, 0815."""
    import pyarrow.compute as pc

    if not len(words) or not pc.any(pc.match_substring_regex(words, "^0[0-9]")).as_py():
        return False
    widths = pc.min_max(pc.binary_length(words)).as_py()
    return widths["min"] == widths["max"] and bool(pc.all(pc.match_substring_regex(words, "^[0-9]+$")).as_py())


def are_dotted_thousands(words: Any) -> bool:
    """Whether words (n,) without gaps may be whole numbers: 218, 1.234, three digits behind every dot that is there."""
    import pyarrow.compute as pc

    dotted = words.filter(pc.match_substring(words, "."))
    return len(dotted) > 0 and bool(pc.all(pc.match_substring_regex(dotted, _THREE_DIGITS)).as_py())


def _signed(words: Any) -> Any:
    """Words with the minus in front that accountants put behind, or say by brackets."""
    import pyarrow.compute as pc

    words = pc.replace_substring_regex(words, _BRACKETS, r"-\1\2")
    return pc.replace_substring_regex(words, _MINUS_BEHIND, r"-\1")


def _without_zeros(words: Any) -> Any:
    import pyarrow.compute as pc

    return pc.replace_substring_regex(words, _ZEROS, r"\1\2")


def _whole_words(column: Any) -> Any:
    """Numbers as words, without a fraction, which a column of whole numbers with gaps has in a frame."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = whole_column(column).cast("float64", safe=False)
    there = pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))
    return there.cast("int64", safe=False).cast("large_string")


def _rewritten(words: Any, found: Numerals) -> Any:
    """Every numeral plain; float64 where nothing else is there, else text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = is_present(words)
    nothing = pa.scalar(None, pa.large_string())
    plain = pc.if_else(found.fits, found.plain, words.filter(there))
    if pc.all(found.fits).as_py() is not False:
        empty = pa.nulls(len(words), pa.large_string())
        return pc.replace_with_mask(empty, there, plain).cast("float64")
    kept = pc.if_else(pc.equal(words, ""), nothing, words)
    return pc.replace_with_mask(kept, there, plain)


def _glued(parts: Any, first: str, second: str) -> Any:
    """Two parts of every word as one; null where the word was no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar("", pa.large_string())
    both = pc.binary_join_element_wise(pc.struct_field(parts, first), pc.struct_field(parts, second), nothing)
    return pc.replace_substring(both, "\N{MINUS SIGN}", "-")


def _plain(core: Any, mark: str) -> Any:
    import pyarrow.compute as pc

    groups = rf"[{',' if mark == '.' else '.'}'’]|{_SPACE}"
    bare = pc.replace_substring_regex(core, groups, "")
    bare = pc.replace_substring_regex(bare, r"^\+", "")
    return bare if mark == "." else pc.replace_substring(bare, ",", ".")


def _note(words: Any, found: Numerals) -> str:
    """What was done to the words (n,), in words."""
    import pyarrow.compute as pc

    text = words.filter(found.fits)

    def some(pattern: str) -> bool:
        return bool(pc.any(pc.match_substring_regex(text, pattern)).as_py())

    signs = [
        told for pattern, told in ((_BRACKETS, "() as minus"), (_MINUS_BEHIND, "- behind as minus")) if some(pattern)
    ]
    return ", ".join([*_marks_said(text, found, some), *signs, *_unit_said(text, found.unit)])


def _marks_said(text: Any, found: Numerals, some: Callable[[str], bool]) -> list[str]:
    """How decimals and thousands were read, and what says otherwise where both would do."""
    other = "," if found.mark == "." else "."
    said = ["decimal comma"] if found.mark == "," and some(",") else []
    otherwise = "" if found.decided else f" (--decimal {other} says otherwise)"
    if some(rf"\{other}"):
        said.append(f"{other} between thousands{otherwise}")
    elif said:
        said = [said[0] + otherwise]
    elif found.mark == "." and otherwise and are_dotted_thousands(text):
        said.append(f"decimal point{otherwise}")
    spaces = {"' between thousands": "['’]", "spaces between thousands": _SPACE}
    return said + [told for told, mark in spaces.items() if some(f"[0-9]{mark}[0-9]")]


def _unit_said(text: Any, unit: str) -> list[str]:
    """The unit that was left out; a percentage is not divided, so bare numbers beside it are said."""
    import pyarrow.compute as pc

    bare = len(text) - pc.sum(pc.match_substring(text, unit)).as_py() if unit == "%" else 0
    same = f", and {bare:,} of {len(text):,} have none: taken in the same scale, 0.15 as 0.15 %" if bare else ""
    return [f"{unit} left out{same}"] if unit else []
