"""The one memory budget: how many bytes this process may still use.

available   the least of MemAvailable (/proc/meminfo) and what every cgroup above this process leaves;
            $KWAY_MEMORY (24GB, say) replaces both

Work on many rows goes block by block, and two sizes serve all of it: BLOCK_BYTES if a block only has to bound memory,
CACHE_BYTES if its values are read again and should still be in the cache.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from kway.errors import BudgetError
from kway.units import format_bytes, parse_bytes

MEMINFO, CGROUPS, OWN_CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

BLOCK_BYTES = 2**26  # bytes of a block that is held at a time: a few of them fit the 256 MB of a prediction (T9)
MIN_CHECKED = 4 * BLOCK_BYTES  # bytes up to which nothing is checked: reading the budget costs more (T12)
CACHE_BYTES = 2**21  # bytes of a block that one thread reads more than once: about the L2 cache of a core (T1, T4)
MAX_EXPANSION = 200  # how many times its bytes on disk a large file may take: tables take 3 to 30 (test_bad_files)


def rows_per_block(row_bytes: float, block_bytes: int = BLOCK_BYTES) -> int:
    """Return how many rows of so many bytes each a block holds; at least one."""
    return max(1, int(block_bytes // max(1, row_bytes)))


def expands_too_much(packed: int, unpacked: int) -> bool:
    """Return whether a file of `packed` bytes would take far more memory than data files do: an attack, or damage."""
    return unpacked > max(16 * BLOCK_BYTES, MAX_EXPANSION * packed)


def available_bytes() -> int:
    """Return the bytes that may still be allocated without swapping or being killed."""
    given = os.environ.get("KWAY_MEMORY")
    if given:
        return parse_bytes(given)
    return max(0, min([_read_free(), *_read_cgroups()]))


def has_room(need: float) -> bool:
    """Return whether so many bytes fit into the budget."""
    small = need <= MIN_CHECKED and "KWAY_MEMORY" not in os.environ
    return small or need <= available_bytes()


def check_answer(n: int, n_classes: int, itemsize: int, what: str) -> None:
    """Raise BudgetError before an (n, K) array is allocated that does not fit."""
    need = n * n_classes * itemsize
    if not has_room(need):
        raise BudgetError(
            f"{what} of {n:,} rows x {n_classes:,} classes needs {format_bytes(need)}, "
            f"there is {format_bytes(available_bytes())}; "
            "use predict_topk(X, k), which never builds that array, or pass fewer rows"
        )


def _read_free() -> int:
    try:
        line = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux: the installed memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_cgroups() -> list[int]:
    """Return what each limited cgroup leaves; file pages that it could drop at once do not count as used."""
    left = []
    for folder in _list_cgroups():
        try:
            most, used = (folder / "memory.max").read_text().strip(), int((folder / "memory.current").read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if most != "max":
            left.append(int(most) - used + int(stat.get("inactive_file", 0)))
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
