"""Working memory of a call: the peak of resident memory while it runs, less what was resident before, in MB.

On Linux the kernel's high-water mark is set back before the call (/proc/self/clear_refs), and memory that malloc keeps
for reuse is given back first, or it would hide what the call needs. Elsewhere getrusage's mark is used: it cannot
be set back, so that a call which needs less than anything before it reads as 0.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MB = 2**20


class Measured(NamedTuple):
    """What a call answered and the MB it needed."""

    answer: Any
    megabytes: float


def working_megabytes(run: Callable[[], Any]) -> Measured:
    """Run once and say how much memory that took; the answer is part of it."""
    tidy()
    before = resident() if CLEAR.exists() else peak()
    if CLEAR.exists():
        CLEAR.write_text("5")
    answer = run()
    return Measured(answer, max(0.0, peak() - before))


def tidy() -> None:
    """Give back what nobody uses."""
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
        if trim is not None:
            trim(0)


def resident() -> float:
    """MB resident now."""
    return _status("VmRSS")


def peak() -> float:
    """The most MB that were resident at once since the mark was last set back."""
    if STATUS.exists():
        return _status("VmHWM")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / MB if sys.platform == "darwin" else most / 1024


def _status(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024
