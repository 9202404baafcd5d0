"""Imports without the parts that no prediction needs: half of the time until the first one.

sklearn_base()           scikit-learn loads scipy.stats (for one function) and pandas (to ask its version):
                         0.7 of 1.2 seconds. A placeholder stands for each meanwhile; whoever touches one gets the
                         real module, and afterwards a later `import pandas`, or scipy's own late loading, is as ever
arrow_without_pandas()   pyarrow loads pandas when it makes its first array, to tell frames from lists; for a
                         process that meets no frames, such as the command line's
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_LATE = ("scipy.stats", "pandas")


class _Placeholder(ModuleType):
    """Stands for a module until something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        _free(self)
        return getattr(importlib.import_module(self.__name__), name)


class _NoPandas(MetaPathFinder):
    """Finds that there is no pandas."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=fullname)


def sklearn_base() -> None:
    """Import sklearn.base; nothing happens where scikit-learn is loaded already."""
    if "sklearn" in sys.modules:
        return
    absent = [name for name in _LATE if name not in sys.modules and importlib.util.find_spec(name) is not None]
    standing = [_Placeholder(name) for name in absent]
    sys.modules.update({module.__name__: module for module in standing})
    try:
        importlib.import_module("sklearn.base")
    finally:
        for module in standing:
            _free(module)


def arrow_without_pandas() -> None:
    """Let pyarrow find no pandas, for as long as this process lives; where pandas is loaded nothing happens."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _NoPandas()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])  # it looks once
    finally:
        sys.meta_path.remove(hidden)


def _free(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
