"""Options and arguments that several commands share, and the spelling of options in messages.

`@with_options` gives a command the options of its parameters of type ReadOptions and FitOptions, so that every command
has the same ones. These dataclasses name options as Python does (`skip_bad`); `with_flags` adds the spelling of the
command line (`--skip-bad`) to a message.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields
from typing import Annotated, Any

import typer

from kway.auto.fit_options import FitOptions
from kway.declared_options import flag_of, options_of
from kway.errors import InputError, UsageError
from kway.tables.read_options import ReadOptions


def flag(name: str, help: str, **more: Any) -> Any:
    """Declare an option that takes no value, so that --help shows no type for it."""
    return typer.Option(name, help=help, metavar="", **more)


JsonOption = Annotated[bool, flag("--json", "Print the result as one JSON object instead of text.")]
ForceOption = Annotated[bool, flag("--force", "Also overwrite existing files that kway did not write.")]
EmbedOption = Annotated[
    str | None,
    typer.Option(
        "--embed",
        metavar="NAME",
        help="Embedding model (name or folder) that MODEL may load. Required if MODEL was fitted with --embed.",
    ),
]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (csv, tsv, jsonl, parquet, xlsx, sqlite, arff, feather, npz, libsvm), a folder of images with one "
        "sub-folder per class, a folder of parquet files, or the name of a dataset (see `kway data list`).",
    ),
]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A model file that `kway fit` has written.")]
RowsArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Rows in a form that `kway fit` accepts, an image, or - for stdin. If a dataset has test rows, only these "
        "are used.",
    ),
]
_CLUSTER = "Cluster"
ClusterOption = Annotated[
    bool,
    flag("--cluster", "Run on the Ray cluster that this machine belongs to.", rich_help_panel=_CLUSTER),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        rich_help_panel=_CLUSTER,
        help="Run on the Ray cluster at this address, host:port or ray://host:port; local: start one on this machine "
        "for this job.",
    ),
]
_PANELS = {ReadOptions: "How DATA is read", FitOptions: "How models are chosen and fitted"}  # headings of --help
_VERBS = ("must", "is", "has", "names", "contains")  # the second word of a message about the option it begins with


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that its parameters of type ReadOptions and FitOptions declare."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hint in _PANELS}
    parameters: dict[str, inspect.Parameter] = {}
    for name, own in inspect.signature(command).parameters.items():
        if name in groups:
            parameters |= _parameters(groups[name], command.__name__)
        else:
            parameters[name] = own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, cls in groups.items():
            values[name] = _from_command_line(cls, command.__name__, values)
        command(**values)

    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return run


def _parameters(cls: type, command: str) -> dict[str, inspect.Parameter]:
    """Return the options that a dataclass declares for a command, as parameters for typer."""
    defaults = {f.name: f.default for f in fields(cls)}
    parameters = {}
    for name, declared in options_of(cls, command).items():
        flags = declared.flags or (flag_of(name, declared),)
        kind: Any = declared.typed
        metavar = "" if kind in (bool, bool | None) else declared.metavar
        option = typer.Option(*flags, help=declared.help, metavar=metavar, rich_help_panel=_PANELS[cls])
        parameters[name] = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if declared.parse is not None else defaults[name],
            annotation=Annotated[kind, option],
        )
    return parameters


def _from_command_line(cls: type, command: str, values: dict[str, Any]) -> Any:
    """Make the dataclass from what was typed, and remove its options from `values`."""
    own = {}
    for name, declared in options_of(cls, command).items():
        value = values.pop(name)
        own[name] = value if declared.parse is None else declared.parse(value)
    return cls(**own)


def with_flags(text: str, first: bool = False) -> str:
    """Add to a message the flags of the options that it names as `name=`.

    With `first`, also replace an option at the beginning, if a verb such as "must" or "is" follows it.

    >>> with_flags("leave it out with skip_bad=True")
    'leave it out with skip_bad=True (--skip-bad)'
    >>> with_flags("folds must be a whole number", first=True)
    '--folds must be a whole number'
    >>> with_flags("unknown encoding in the file", first=True)
    'unknown encoding in the file'
    """
    flags = {name: flag_of(name, declared) for cls in _PANELS for name, declared in options_of(cls).items()}
    found = [flag for name, flag in flags.items() if any(f"{before}{name}=" in text for before in " (")]
    name, *rest = text.split(" ", 2)
    if first and rest and rest[0] in _VERBS:
        text = " ".join([flags.get(name, name), *rest])
    return text + (f" ({', '.join(found)})" if found else "")


@contextmanager
def as_usage() -> Iterator[None]:
    """Raise an InputError of the code inside as bad usage, whose exit code is 2."""
    try:
        yield
    except UsageError:
        raise
    except InputError as error:
        raise UsageError(str(error)) from error


@contextmanager
def on_cluster(cluster: bool, address: str | None) -> Iterator[None]:
    """Run the code inside on the cluster if one was asked for."""
    if not cluster and address is None:
        yield
        return
    from kway.rows.cluster.session import cluster as connect

    with redirect_stdout(sys.stderr), connect(address or "auto"):  # Ray prints lost workers on stdout
        yield
