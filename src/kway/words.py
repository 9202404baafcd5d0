"""Counts, bytes and seconds as people write them, in at most nine letters, and back."""

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


def count(value: float) -> str:
    """A number of things.

    >>> count(10_010), count(1_001_000_000), count(640)
    ('10K', '1G', '640')
    """
    return _scaled(value, CountUnit, "") or f"{value:.0f}"


def size(value: float) -> str:
    """Bytes.

    >>> size(4 * 2**30), size(1536)
    ('4 GiB', '1.5 KiB')
    """
    return _scaled(value, ByteUnit, " ") or f"{value:.0f} B"


def time(seconds: float) -> str:
    """A span of time.

    >>> time(90), time(0.0021), time(2e-6), time(math.inf)
    ('1.5 min', '2.1 ms', '2 us', 'never')
    """
    if math.isinf(seconds):
        return "never"
    years = seconds / TimeUnit.years
    if years >= 1000:
        return count(years) + " years"
    return _scaled(seconds, TimeUnit, " ") or _digits(seconds / TimeUnit.us) + " us"


def rough_time(seconds: float) -> str:
    """Return a span of time as an order of magnitude, for estimates.

    >>> rough_time(87), rough_time(0.0021), rough_time(7000)
    ('2 min', '2 ms', '2 h')
    """
    if math.isinf(seconds) or seconds <= 0:
        return time(seconds) if seconds else "0 s"
    unit = next((unit for unit in TimeUnit if seconds >= 0.95 * unit), TimeUnit.us)
    value = seconds / unit
    step = 10 ** math.floor(math.log10(value))
    leading = min((1, 2, 5, 10), key=lambda digit: abs(math.log(value / step / digit)))
    return time(leading * step * unit)


def _scaled(value: float, units: Iterable[CountUnit | ByteUnit | TimeUnit], gap: str) -> str:
    """Return the value in the largest unit that it reaches; empty if it reaches none."""
    for unit in units:
        if value >= 0.9995 * unit:
            return _digits(value / unit) + gap + unit.name
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
