"""Imports without the parts that no prediction needs: half of the time until the first one.

sklearn_base()           scikit-learn and scipy load whole packages for one function, one version number or one
                         `from numpy import *`: two thirds of the time that sklearn.base takes. A placeholder stands for
                         each meanwhile; whoever touches one gets the real module, and afterwards a later
                         `import pandas`, or scipy's own late loading, is as ever
arrow_without_pandas()   pyarrow loads pandas when it makes its first array, to tell frames from lists; for a
                         process that meets no frames, such as the command line's
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_LATE = (  # a package before its modules
    "scipy.stats",  # for one function
    "scipy.special",  # for two, of arrays that are not numpy's
    "pandas",  # to ask its version
    "narwhals",  # to read frames that are neither pandas nor polars
    "narwhals.stable",
    "narwhals.stable.v2",
    "numpy.f2py",  # because `from numpy import *` takes everything
    "numpy.testing",
)


class _Placeholder(ModuleType):
    """Stands for a module, in sys.modules and in its package, until something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        top = _top(self.__name__)
        for module in [m for m in sys.modules.values() if isinstance(m, _Placeholder) and _top(m.__name__) == top]:
            module.leave()
        value = vars(self)[name] = getattr(importlib.import_module(self.__name__), name)  # asked for once
        return value

    def stand(self) -> None:
        """Be what an import finds."""
        sys.modules[self.__name__] = self
        package, _, name = self.__name__.rpartition(".")
        if package:
            setattr(importlib.import_module(package), name, self)

    def leave(self) -> None:
        """Make way for the module."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        package, _, name = self.__name__.rpartition(".")
        if vars(sys.modules.get(package, self)).get(name) is self:
            delattr(sys.modules[package], name)


class _NoPandas:
    """A finder (sys.meta_path) that finds that there is no pandas."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=fullname)


def sklearn_base() -> None:
    """Import sklearn.base; nothing happens where scikit-learn is loaded already."""
    if "sklearn" in sys.modules:
        return
    there = {top: top in sys.modules or importlib.util.find_spec(top) is not None for top in map(_top, _LATE)}
    standing = [_Placeholder(name) for name in _LATE if name not in sys.modules and there[_top(name)]]
    for module in standing:
        module.stand()
    try:
        importlib.import_module("sklearn.base")
    finally:
        for module in reversed(standing):
            module.leave()


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


def _top(name: str) -> str:
    return name.partition(".")[0]
