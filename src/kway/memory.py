"""The one memory budget: how many bytes this process may still use.

The budget is the minimum of MemAvailable (/proc/meminfo) and of the memory that each cgroup above this process has
left. $KWAY_MEMORY, such as 24GB, replaces both.

Work on many rows is done block by block, with two sizes: BLOCK_BYTES if a block only has to bound memory, CACHE_BYTES
if its values are read again and should still be in the cache.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from kway.errors import BudgetError
from kway.units import format_bytes, parse_bytes

MEMINFO, CGROUPS, OWN_CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

BLOCK_BYTES = 2**26  # bytes of a block; a few fit into the 256 MB of a prediction in the memory benchmark (T9)
MIN_CHECKED = 4 * BLOCK_BYTES  # bytes up to which the budget is not read, because that is slow for single rows (T12)
CACHE_BYTES = 2**21  # bytes of a block that a thread reads again: about the L2 cache of a core (T1, T4)
MAX_EXPANSION = 200  # largest memory of a large file, in multiples of its bytes on disk; tables take 3 to 30


def rows_per_block(row_bytes: float, block_bytes: int = BLOCK_BYTES) -> int:
    """Return the number of rows of `row_bytes` that fit into a block, at least one."""
    return max(1, int(block_bytes // max(1, row_bytes)))


def expands_too_much(packed: int, unpacked: int) -> bool:
    """Return whether `unpacked` bytes are far more than data files of `packed` bytes contain: an attack, or damage."""
    return unpacked > max(16 * BLOCK_BYTES, MAX_EXPANSION * packed)


def available_bytes() -> int:
    """Return the bytes that may still be allocated without swapping or being killed."""
    given = os.environ.get("KWAY_MEMORY")
    if given:
        return parse_bytes(given)
    return max(0, min([_read_free(), *_read_cgroups()]))


def has_room(need: float) -> bool:
    """Return whether `need` bytes fit into the budget."""
    unchecked = need <= MIN_CHECKED and "KWAY_MEMORY" not in os.environ
    return unchecked or need <= available_bytes()


def check_room(need: float, what: str, advice: str) -> None:
    """Raise BudgetError before `need` bytes are allocated for `what` that do not fit into the budget."""
    if not has_room(need):
        raise BudgetError(f"{what} needs {format_bytes(need)}, there is {format_bytes(available_bytes())}; {advice}")


def check_answer(n: int, n_classes: int, itemsize: int, what: str) -> None:
    """Raise BudgetError before an (n, K) array is allocated that does not fit."""
    advice = "use predict_topk(X, k), which never builds that array, or pass fewer rows"
    check_room(n * n_classes * itemsize, f"{what} of {n:,} rows x {n_classes:,} classes", advice)


def _read_free() -> int:
    try:
        line = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux: the installed memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_cgroups() -> list[int]:
    """Return the memory left in each limited cgroup; file pages that it can drop at once do not count as used."""
    left = []
    for folder in _list_cgroups():
        try:
            limit = (folder / "memory.max").read_text().strip()
            used = int((folder / "memory.current").read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if limit != "max":
            left.append(int(limit) - used + int(stat.get("inactive_file", 0)))
    return left


@cache
def _list_cgroups() -> tuple[Path, ...]:
    """Return the cgroup (version 2) of this process and those above it."""
    try:
        line = next(line for line in OWN_CGROUP.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return ()
    own = CGROUPS / line[3:].strip().lstrip("/")
    return tuple(folder for folder in (own, *own.parents) if folder.is_relative_to(CGROUPS))
