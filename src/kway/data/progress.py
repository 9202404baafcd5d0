"""A bar for work that takes a while: shown on a terminal's stderr, gone when done, silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_WORTH_A_BAR = 50  # steps; fewer are over before anybody has read the bar


def track(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """The items, one by one, with a bar that counts them."""
    if total < _WORTH_A_BAR or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as bar

    yield from bar(items, description=what, total=total, console=Console(stderr=True), transient=True)
