"""Suggestions for a name that is not known: "did you mean ...?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a clause that suggests the nearest known name; empty if none is near.

    >>> nearest("speices", ["species", "width"])
    " (did you mean 'species'?)"
    """
    folded = {k.casefold(): k for k in known}
    matches = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return f" (did you mean {folded[matches[0]]!r}?)" if matches else ""


def listing(names: Iterable[object], max_names: int = 12) -> str:
    """Join names by commas; if there are more than `max_names`, count the rest.

    >>> listing("abcd", max_names=2)
    'a, b and 2 more'
    """
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:max_names])
    return shown if len(texts) <= max_names else f"{shown} and {len(texts) - max_names} more"
