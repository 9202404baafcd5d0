"""Peers, one small file each: their best sensible settings, two threads, never crippled.

A peer's library is imported when it is asked for; where it is not installed, NotInstalled says what to install, and
the table names the peer all the same.
"""

from __future__ import annotations

import importlib
from types import ModuleType

PACKAGES = {
    "faiss": "faiss-cpu",
    "hnswlib": "hnswlib",
    "sklearnex": "scikit-learn-intelex",
    "scann": "scann",
    "svs": "scalable-vs",
    "usearch": "usearch",
    "cyanure": "cyanure",
    "snapml": "snapml",
}


class NotInstalled(ImportError):
    """A peer that cannot be measured here."""

    def __init__(self, package: str):
        super().__init__(f"{package} is not installed; pip install {package}")
        self.package = package


def need(module: str) -> ModuleType:
    """The module, or NotInstalled."""
    package = PACKAGES[module.partition(".")[0]]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0]:
            raise
        raise NotInstalled(package) from None
