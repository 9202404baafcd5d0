"""Numbers and dates as people write them -> numbers and dates: 1.234,5 EUR -> 1234.5, 31/12/2024 -> a date.

    decimal mark     . or , told from the column: 1.234,5 and 1,5 say comma, 1,234.5 says point; what says neither
                     (1,234) is read by the mark of the file
    left out         thousands separators (. , ' space), one unit: a currency or %
    dates            day, month, year in either order; a first number above 12 is a day, a second one makes it a month

A column is converted where 9 of 10 words (gaps aside) are such numbers and some are not plain ones, or all are such
dates. Words that are no numbers stay as they are, for the features to say what becomes of them. `how` is the mark or
the format of the dates: kept with a model, so that later rows are read the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kway.data.sources.arrow_types import is_text, whole_column
from kway.data.sources.dates import DAY_FIRST, MONTH_FIRST, as_dates, dated
from kway.data.sources.word_gaps import is_present, present, trimmed

_MOSTLY = 0.9
_SPACE = r"[\s\x{00A0}\x{2009}\x{202F}]"
_UNIT = r"(?:US|R|A|C)?\p{Sc}|EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|CZK|BRL|Rs\.?|kr\.?|zł|Fr\."
_WORD = (
    rf"^(?P<sign>[-+\x{{2212}}]?){_SPACE}*(?P<before>{_UNIT})?{_SPACE}*"
    rf"(?P<number>[-+]?[0-9.,](?:[0-9.,'’]|{_SPACE}+[0-9])*(?:[eE][-+]?[0-9]+)?){_SPACE}*(?P<after>%|{_UNIT})?$"
)
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
        if name in left or not is_text(whole_column(table.column(name)).type) or asked in ("text", "category", "drop"):
            continue
        words = trimmed(table.column(name))
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


def numerals(words: Any, mark: str, mostly: float = _MOSTLY) -> Numerals | None:
    """Words (n,) without gaps as numerals, None where too few are, or all are plain, or units differ."""
    import pyarrow.compute as pc

    if len(words) == 0:
        return None
    parts = pc.extract_regex(words, _WORD)
    core, units = _glued(parts, "sign", "number"), _glued(parts, "before", "after")
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
    found = numerals(present(words), mark, 0.0 if asked == "number" else _MOSTLY)
    if found is None:
        return None
    return _rewritten(words, found), found.mark, _note(present(words), found)


def _as_known(words: Any, how: str) -> tuple[Any, str, str] | None:
    """Later rows as the first were read; words that do not fit stay, for the features to name them."""
    import pyarrow.compute as pc

    if "%" in how:
        return dated(words, [(how, "")])
    parts = pc.extract_regex(present(words), _WORD)
    core = _glued(parts, "sign", "number")
    fits = pc.match_substring_regex(core, _AS_NUMBER[how]).fill_null(False)
    return _rewritten(words, Numerals(_plain(core, how), fits, how, "", True)), how, ""


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
    import pyarrow.compute as pc

    text = words.filter(found.fits)
    has = {c: pc.any(pc.match_substring(text, c)).as_py() for c in (".", ",")}
    other = "," if found.mark == "." else "."
    said = ["decimal comma"] if found.mark == "," and has[","] else []
    if has[other]:
        said.append(f"{other} between thousands" + ("" if found.decided else f" (--decimal {other} says otherwise)"))
    elif found.mark == "," and not found.decided and has[","]:
        said[-1] += " (--decimal . says otherwise)"
    if pc.any(pc.match_substring_regex(text, rf"[0-9](?:['’]|{_SPACE})[0-9]")).as_py():
        said.append("spaces between thousands")
    return ", ".join(said + ([f"{found.unit} left out"] if found.unit else []))
