"""Suggestions for a name that is not known: "did you mean ...?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a clause that suggests the nearest known name; empty if none is near.

    >>> nearest("speices", ["species", "width"])
    " (did you mean 'species'?)"
    """
    known = list(known)
    folded = {k.casefold(): k for k in known}
    found = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return f" (did you mean {folded[found[0]]!r}?)" if found else ""


def listing(names: Iterable[object], most: int = 12) -> str:
    """Join names by commas; if there are more than `most`, count the rest.

    >>> listing("abcd", most=2)
    'a, b and 2 more'
    """
    words = [str(n) for n in names]
    rest = len(words) - most
    return ", ".join(words) if rest <= 0 else f"{', '.join(words[:most])} and {rest} more"
