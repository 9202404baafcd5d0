"""Public names of a package that are imported on first use (PEP 562).

__getattr__, __dir__, __all__ = lazy_names(__name__, {"SoftmaxClassifier": "named"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class LazyNames(NamedTuple):
    """A package's `__getattr__`, `__dir__` and `__all__`."""

    find: Callable[[str], Any]
    listed: Callable[[], list[str]]
    public: list[str]


def lazy_names(package: str, home: Mapping[str, str]) -> LazyNames:
    """Return the lazy names of a package; `home` maps them to the modules that define them, and modules to ""."""

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{home[name] or name}")
        value = getattr(module, name) if home[name] else module
        setattr(sys.modules[package], name, value)  # looked up once
        return value

    return LazyNames(find, lambda: sorted({*vars(sys.modules[package]), *home}), sorted(home))
