"""Imports without the parts that no prediction needs: half of the time until the first one.

sklearn_base()           scikit-learn and scipy load whole packages for one function, one version number or one
                         `from numpy import *`: most of the time that sklearn.base takes. A placeholder stands for
                         each meanwhile; whoever touches one gets the real module, and afterwards a later
                         `import pandas`, or scipy's own late loading, is as ever
sklearn_ensemble()       likewise its trees, which bring the metrics, the linear models and with them most of scipy; in
                         the command's own process alone: elsewhere scikit-learn is the caller's, too
matplotlib_figure()      matplotlib without three dimensions, TeX, formulas and their parser, which no figure here has;
                         and without the help of a hundred `set` methods, which it writes while it is imported: half of
                         the time (190 ms, 97 without); in the command's own process alone
typer_help()             typer's pages of help bring a reader of Markdown, which none of kway's is written in
typer_values()           typer reads every value by pydantic, 0.07 s of a command: those that have their type already,
                         as text and what nobody gave do, are taken as they are
uncollected()            no garbage is looked for meanwhile, in the command's own process alone: what is imported stays,
                         and looking through it, again and again, took 0.1 of the first 0.8 s of a fit
arrow_without_pandas()   pyarrow loads pandas when it makes its first array, to tell frames from lists; for a
                         process that meets no frames, such as the command line's

Functions that scikit-learn is known to import from a placeholder load their module when they are called; an import of
any other name loads it at once.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

_BESIDE_BASE: dict[str, tuple[str, ...]] = {  # module -> its late functions; a package before its modules
    "scipy.stats": (),  # for one function
    "scipy.special": (),  # for two, of arrays that are not numpy's
    "pandas": (),  # to ask its version
    "narwhals": (),  # to read frames that are neither pandas nor polars
    "narwhals.stable": (),
    "narwhals.stable.v2": (),
    "numpy.f2py": (),  # because `from numpy import *` takes everything
    "numpy.testing": (),
    "scipy.linalg": (),  # for what no prediction calls
    "scipy.sparse.linalg": ("cg", "LinearOperator"),
    "scipy.sparse.csgraph": ("laplacian",),
    "joblib": ("cpu_count",),
    "sklearn.utils.parallel": ("_get_threadpool_controller",),
}
_BESIDE_TREES: dict[str, tuple[str, ...]] = {
    "scipy.stats": ("rankdata", "gmean", "chi2", "spearmanr"),
    "scipy.optimize": ("minimize", "minimize_scalar", "linear_sum_assignment", "linprog"),
    "scipy.optimize._linesearch": ("line_search_wolfe1", "line_search_wolfe2", "scalar_search_wolfe1"),
    "scipy.interpolate": ("BSpline",),
    "scipy.integrate": ("trapezoid",),
    "scipy.spatial": (),
    "scipy.spatial.distance": ("pdist", "squareform"),
    "narwhals": (),
    "narwhals.stable": (),
    "narwhals.stable.v2": (),
}
_BESIDE_FIGURES: dict[str, tuple[str, ...]] = {
    "pyparsing": (),  # to ask its version
    "matplotlib._fontconfig_pattern": ("parse_fontconfig_pattern", "generate_fontconfig_pattern"),
    "matplotlib._mathtext": (
        "RasterParse", "VectorParse", "get_unicode_index", "BakomaFonts", "DejaVuSerifFonts", "DejaVuSansFonts",
        "StixFonts", "StixSansFonts", "UnicodeFonts",
    ),
    "matplotlib.dviread": (),
}  # fmt: skip
_BESIDE_HELP = {"rich.markdown": ("Markdown",)}
_COMING = ("sklearn.utils", "matplotlib")  # packages that are about to be imported, and cannot be before
_CHECKS = {"parse_fontconfig_pattern"}  # called while their module's placeholder stands, to see that they raise nothing


class Process:
    """Where kway runs: `own` where its command is all there is."""

    own = False


PROCESS = Process()


class _Late:
    """Stands for a function or a class of a module until it is called, built on, asked about or looked into."""

    def __init__(self, module: str, name: str) -> None:
        self._home = module, name

    def _found(self) -> Any:
        module, name = self._home
        return getattr(importlib.import_module(module), name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self._home[1] in _CHECKS and isinstance(sys.modules.get(self._home[0]), _Placeholder):
            return None
        return self._found()(*given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def __instancecheck__(self, thing: Any) -> bool:
        return isinstance(thing, self._found())

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self._found())

    def __or__(self, other: Any) -> Any:
        return self  # of an annotation

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self._found(),)


class _Placeholder(ModuleType):
    """Stands for a module, in sys.modules and in its package, until something of it is asked for."""

    def __init__(self, name: str, late: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        self._late = late

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            if name == "__path__":
                raise AttributeError(name)  # the import system asks, before it takes a name
            if name in self._late:
                return _Late(self.__name__, name)
            if name == "__version__":
                from importlib.metadata import version

                return version(self.__name__)
        top = _top(self.__name__)
        for module in [m for m in sys.modules.values() if isinstance(m, _Placeholder) and _top(m.__name__) == top]:
            module.leave()
        value = vars(self)[name] = getattr(importlib.import_module(self.__name__), name)  # asked for once
        return value

    def stand(self) -> None:
        """Be what an import finds."""
        sys.modules[self.__name__] = self
        package, _, name = self.__name__.rpartition(".")
        if package and package not in _COMING:
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
    if "sklearn" not in sys.modules:
        _import_without("sklearn.base", _BESIDE_BASE)


def sklearn_ensemble() -> None:
    """Import sklearn.ensemble; nothing happens where it is loaded already, or in a process that is not kway's own."""
    if PROCESS.own and "sklearn.ensemble" not in sys.modules:
        with _absent("rich.progress"):  # for bars that nobody sees
            _import_without("sklearn.ensemble", _BESIDE_TREES)


def matplotlib_figure() -> None:
    """Import matplotlib.figure; nothing happens where it is loaded already, or in a process that is not kway's own."""
    if PROCESS.own and "matplotlib" not in sys.modules:
        with warnings.catch_warnings(), _absent("mpl_toolkits.mplot3d"):
            warnings.simplefilter("ignore")  # it says that there will be no axes of three dimensions
            _import_without("matplotlib.artist", _BESIDE_FIGURES)
            with _no_help(sys.modules["matplotlib.artist"]):
                _import_without("matplotlib.figure", _BESIDE_FIGURES)


@contextmanager
def _no_help(artist: Any) -> Iterator[None]:
    """Inside, kinds of artists that are defined get no list of what can be set, in words or as a signature."""
    told, told_set = artist.kwdoc, vars(artist.Artist)["_update_set_signature_and_docstring"]
    artist.kwdoc = lambda kind: ""
    artist.Artist._update_set_signature_and_docstring = classmethod(lambda kind: None)
    try:
        yield
    finally:
        artist.kwdoc, artist.Artist._update_set_signature_and_docstring = told, told_set


@contextmanager
def _absent(module: str) -> Iterator[None]:
    """Inside, an import of it fails, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


def typer_help() -> None:
    """Import what prints typer's help."""
    _import_without("typer.rich_utils", _BESIDE_HELP)


class _Values:
    """Reads the values of a parameter for typer: by what it `builds` where there is something to read."""

    def __init__(self, described: Any, builds: Any) -> None:
        self._described, self._builds = described, builds

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind, several = self._described.annotation, param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        as_it_is = kind in (str, int, float, Path) and isinstance(value, kind) and not several
        if as_it_is and self._described.parameter_info.parser is None:
            return value
        return self._builds(self._described).coerce(value, param=param, ctx=ctx)


def typer_values() -> None:
    """Let typer build what reads a value when there is one to be read; nothing happens where it does not do so."""
    core: Any = importlib.import_module("typer.core")
    builds = getattr(core, "build_runtime_param", None)
    if builds is not None:
        core.build_runtime_param = lambda described: _Values(described, builds)


def _import_without(wanted: str, beside: Mapping[str, tuple[str, ...]]) -> None:
    """Import a module, with placeholders for those that are beside the point and not loaded yet."""
    there = {top: top in sys.modules or importlib.util.find_spec(top) is not None for top in map(_top, beside)}
    standing = [
        _Placeholder(name, late) for name, late in beside.items() if name not in sys.modules and there[_top(name)]
    ]
    with uncollected():
        for module in standing:
            module.stand()
        try:
            importlib.import_module(wanted)
        finally:
            for module in reversed(standing):
                module.leave()


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, nothing looks for garbage; what is there at the end is taken to stay, and not looked through again."""
    if not PROCESS.own or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


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
