"""What memory this process may still take, and which machine this is.

available   the least of MemAvailable (/proc/meminfo) and what every cgroup above this process leaves;
            $KWAY_MEMORY (24GB, say) stands in for both: a person who knows better, or wants less
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kway.compute.threads import cores
from kway.planning.words import bytes_of

MEMINFO, GROUPS, MINE = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
NVIDIA = Path("/proc/driver/nvidia/gpus")


def available_bytes() -> int:
    """Bytes that may still be allocated without swapping or being killed."""
    given = os.environ.get("KWAY_MEMORY")
    if given:
        return bytes_of(given)
    return max(0, min([_free(), *_left_in_groups()]))


def _free() -> int:
    try:
        line = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # another system: what is installed
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_groups() -> list[int]:
    """What each limited cgroup leaves; files that it could drop at once do not count as used."""
    left = []
    for folder in _groups():
        try:
            most, used = (folder / "memory.max").read_text().strip(), int((folder / "memory.current").read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if most != "max":
            left.append(int(most) - used + int(stat.get("inactive_file", 0)))
    return left


@cache
def _groups() -> tuple[Path, ...]:
    """The cgroup (version 2) of this process and those above it."""
    try:
        line = next(line for line in MINE.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return ()
    here = GROUPS / line[3:].strip().lstrip("/")
    return tuple(folder for folder in (here, *here.parents) if folder.is_relative_to(GROUPS))


def key() -> str:
    """16 letters that stand for what rates depend on: processor, cores, libraries, GPUs."""
    facts = (platform.machine(), _processor(), cores(), version("numpy"), version("numba"), *_gpus())
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def _gpus() -> tuple[str, ...]:
    """The GPUs that the driver lists, and the torch that would use them; nothing is loaded for it."""
    try:
        listed = sorted(folder.name for folder in NVIDIA.iterdir())
        return (*listed, version("torch"))
    except (OSError, PackageNotFoundError):
        return ()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
