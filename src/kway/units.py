"""Format counts, bytes and seconds in at most nine characters, and parse sizes such as "24GB"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import Enum

from kway.errors import InputError


class CountUnit(float, Enum):
    """Thousands, millions and so on, largest first."""

    T = 1e12
    G = 1e9
    M = 1e6
    K = 1e3


class ByteUnit(int, Enum):
    """Powers of 1,024, largest first."""

    PiB = 2**50
    TiB = 2**40
    GiB = 2**30
    MiB = 2**20
    KiB = 2**10


class TimeUnit(float, Enum):
    """Seconds per unit, largest first."""

    years = 31_557_600.0
    days = 86_400.0
    h = 3600.0
    min = 60.0
    s = 1.0
    ms = 1e-3
    us = 1e-6


_UNITS = {"": 1, "B": 1} | {
    prefix + end: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for end, base in (("", 1000), ("B", 1000), ("IB", 1024))
}


def format_count(value: float) -> str:
    """Return a count with a unit.

    >>> format_count(10_010), format_count(1_001_000_000), format_count(640)
    ('10K', '1G', '640')
    """
    return _scaled(value, CountUnit, "") or f"{value:.0f}"


def format_bytes(value: float) -> str:
    """Return a number of bytes with a unit.

    >>> format_bytes(4 * 2**30), format_bytes(1536)
    ('4 GiB', '1.5 KiB')
    """
    return _scaled(value, ByteUnit, " ") or f"{value:.0f} B"


def format_time(seconds: float) -> str:
    """Return a duration with a unit.

    >>> format_time(90), format_time(0.0021), format_time(2e-6), format_time(math.inf)
    ('1.5 min', '2.1 ms', '2 us', 'never')
    """
    if math.isinf(seconds):
        return "never"
    years = seconds / TimeUnit.years
    if years >= 1000:
        return format_count(years) + " years"
    return _scaled(seconds, TimeUnit, " ") or _digits(seconds / TimeUnit.us) + " us"


def format_rough_time(seconds: float) -> str:
    """Return a duration as an order of magnitude, for estimates.

    >>> format_rough_time(87), format_rough_time(0.0021), format_rough_time(7000)
    ('2 min', '2 ms', '2 h')
    """
    if math.isinf(seconds) or seconds <= 0:
        return format_time(seconds) if seconds else "0 s"
    unit = next((unit for unit in TimeUnit if seconds >= 0.95 * unit), TimeUnit.us)
    value = seconds / unit
    step = 10 ** math.floor(math.log10(value))
    leading = min((1, 2, 5, 10), key=lambda digit: abs(math.log(value / step / digit)))
    return format_time(leading * step * unit)


def _scaled(value: float, units: Iterable[CountUnit | ByteUnit | TimeUnit], gap: str) -> str:
    """Return the value in the largest unit that it reaches; empty if it reaches none."""
    for unit in units:
        if value >= 0.9995 * unit:
            return _digits(value / unit) + gap + unit.name
    return ""


def _digits(value: float) -> str:
    """Return two digits, more only if the integer part has more."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")


def parse_bytes(text: str | float) -> int:
    """Return the bytes of a size such as "24GB" or "1.5 GiB".

    >>> parse_bytes("24GB"), parse_bytes("1.5 GiB"), parse_bytes(1e9)
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
