"""Working memory of a call in MB: the peak of resident memory while it runs minus the resident memory before.

On Linux the peak of the process is reset before the call (/proc/self/clear_refs), and memory that malloc keeps for
reuse is released first, because it would hide what the call needs. Elsewhere the peak of getrusage is used. It cannot
be reset, so a call that needs less than an earlier one reads as 0.
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
    """The result of a call and the MB that it needed."""

    answer: Any
    megabytes: float


def working_megabytes(run: Callable[[], Any]) -> Measured:
    """Run a call once and return its working memory, which includes the result."""
    tidy()
    before = resident() if CLEAR.exists() else peak()
    if CLEAR.exists():
        CLEAR.write_text("5")
    answer = run()
    return Measured(answer, max(0.0, peak() - before))


def tidy() -> None:
    """Release unused memory."""
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
        if trim is not None:
            trim(0)


def resident() -> float:
    """Return the resident MB now."""
    return _status("VmRSS")


def peak() -> float:
    """Return the peak of the resident MB since the last reset."""
    if STATUS.exists():
        return _status("VmHWM")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / MB if sys.platform == "darwin" else most / 1024


def _status(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024
