"""Counts, bytes and seconds as people write them, in at most nine letters, and back."""

from __future__ import annotations

import math
import re

from kway.errors import InputError

_COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))
_BYTES = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SECONDS = ((31_557_600.0, "years"), (86_400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_UNITS = {"": 1, "B": 1} | {
    prefix + end: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for end, base in (("", 1000), ("B", 1000), ("IB", 1024))
}


def count(value: float) -> str:
    """A number of things.

    >>> count(10_010), count(1_001_000_000), count(640)
    ('10K', '1G', '640')
    """
    return _scaled(value, _COUNTS, "") or f"{value:.0f}"


def size(value: float) -> str:
    """Bytes.

    >>> size(4 * 2**30), size(1536)
    ('4 GiB', '1.5 KiB')
    """
    return _scaled(value, _BYTES, " ") or f"{value:.0f} B"


def time(seconds: float) -> str:
    """A span of time.

    >>> time(90), time(0.0021), time(2e-6), time(math.inf)
    ('1.5 min', '2.1 ms', '2 us', 'never')
    """
    if math.isinf(seconds):
        return "never"
    years = seconds / _SECONDS[0][0]
    if years >= 1000:
        return count(years) + " years"
    return _scaled(seconds, _SECONDS, " ") or _digits(1e6 * seconds) + " us"


def _scaled(value: float, units: tuple[tuple[float, str], ...], gap: str) -> str:
    """The value in the largest unit that it reaches; empty where it reaches none."""
    for unit, name in units:
        if value >= 0.9995 * unit:
            return _digits(value / unit) + gap + name
    return ""


def _digits(value: float) -> str:
    """Two digits, more only where the whole part has more."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")


def bytes_of(text: str | float) -> int:
    """Bytes that a person meant.

    >>> bytes_of("24GB"), bytes_of("1.5 GiB"), bytes_of(1e9)
    (24000000000, 1610612736, 1000000000)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?\d+)?)\s*([A-Za-z]*)\s*", str(text))
    unit = _UNITS.get(found[2].upper()) if found else None
    try:
        value = float(found[1]) * unit if found and unit else -1.0
    except ValueError:
        value = -1.0
    if not 0 < value < math.inf:
        raise InputError(f"memory must be a size such as 24GB or 512MiB, got {text!r}")
    return int(value)
