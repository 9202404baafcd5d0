"""Names of a package that are imported on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class LazyNames(NamedTuple):
    """A package's `__getattr__` and `__dir__`."""

    find: Callable[[str], Any]
    listed: Callable[[], list[str]]


def lazy_names(package: str, home: Mapping[str, str]) -> LazyNames:
    """Return `__getattr__` and `__dir__` of a package; `home` maps names to its modules."""

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)  # looked up once
        return value

    return LazyNames(find, lambda: sorted({*vars(sys.modules[package]), *home}))
