"""Peers, one small file each, with their best sensible settings and two threads.

The library of a peer is imported when it is needed. If it is not installed, NotInstalled says what to install, and the
table still names the peer.
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
    """A peer is not installed."""

    def __init__(self, package: str):
        super().__init__(f"{package} is not installed; pip install {package}")
        self.package = package


def need(module: str) -> ModuleType:
    """Import a module, or raise NotInstalled."""
    package = PACKAGES[module.partition(".")[0]]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0]:
            raise
        raise NotInstalled(package) from None
