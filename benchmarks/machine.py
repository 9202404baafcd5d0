"""The machine and the versions, saved with every result."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path

import kway

from . import models

PACKAGES = ["kway", "numpy", "scipy", "scikit-learn", "numba", *models.PACKAGES.values()]


def facts() -> dict[str, object]:
    """Return CPU, cores, memory, system and versions."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    flags = next((line for line in info.splitlines() if line.startswith("flags")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "avx512_vnni": "avx512_vnni" in flags,
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def version(package: str) -> str | None:
    """Return the installed version, or None; for kway, the version of the code that runs."""
    if package == "kway":
        return kway.__version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
