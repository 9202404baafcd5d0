"""Options and arguments that several commands share, and the spelling of options in messages.

`@with_options` gives a command the options of its parameters of type ReadOptions and FitOptions, so that every command
has the same ones. These dataclasses name options as Python does (`skip_bad`); `in_command_words` adds the spelling of
the command (`--skip-bad`) to a message.
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

from kway.auto.options import FitOptions
from kway.errors import InputError, UsageError
from kway.options import flag_of, options_of
from kway.tables.options import ReadOptions

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that kway did not write.")]
EmbedOption = Annotated[str | None, typer.Option("--embed", help="The embedding model, if its folder has moved.")]
DataArgument = Annotated[
    str,
    typer.Argument(help="A file (csv, tsv, jsonl, parquet, npz, libsvm), a folder of images or parquet, a known set."),
]
ModelArgument = Annotated[str, typer.Argument(help="A model file.")]
RowsArgument = Annotated[
    str, typer.Argument(help="Data as for fit, an image, or - for stdin; of a known set its test rows, if it has any.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="Run on a Ray cluster: the one running here.")]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="Another cluster: host:port, ray://...; local: one for this job, on this machine."),
]
_DECLARED = (ReadOptions, FitOptions)


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that its parameters of type ReadOptions and FitOptions declare."""
    hints = typing.get_type_hints(verb, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hint in _DECLARED}
    parameters: dict[str, inspect.Parameter] = {}
    for name, own in inspect.signature(verb).parameters.items():
        if name in groups:
            parameters |= _parameters(groups[name], verb.__name__)
        else:
            parameters[name] = own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])

    @functools.wraps(verb)
    def command(**typed: Any) -> None:
        for name, cls in groups.items():
            typed[name] = _made(cls, verb.__name__, typed)
        verb(**typed)

    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return command


def _parameters(cls: type, command: str) -> dict[str, inspect.Parameter]:
    """The options of a command that a dataclass declares, as parameters for typer."""
    defaults = {f.name: f.default for f in fields(cls)}
    found = {}
    for name, declared in options_of(cls, command).items():
        flags = declared.flags or (flag_of(name, declared),)
        typed: Any = declared.typed
        annotation = Annotated[typed, typer.Option(*flags, help=declared.help, metavar=declared.metavar)]
        default = None if declared.parse is not None else defaults[name]
        found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    return found


def _made(cls: type, command: str, typed: dict[str, Any]) -> Any:
    """The dataclass of what was typed, whose options are taken out of `typed`."""
    values = {}
    for name, declared in options_of(cls, command).items():
        value = typed.pop(name)
        values[name] = value if declared.parse is None else declared.parse(value)
    return cls(**values)


def in_command_words(text: str, first: bool = False) -> str:
    """A message with the flags of the options that it writes as `name=`; `first`: its first word may be one, too.

    >>> in_command_words("leave it out with skip_bad=True")
    'leave it out with skip_bad=True (--skip-bad)'
    >>> in_command_words("folds must be a whole number", first=True)
    '--folds must be a whole number'
    """
    flags = {name: flag_of(name, declared) for cls in _DECLARED for name, declared in options_of(cls).items()}
    found = [flag for name, flag in flags.items() if any(f"{before}{name}=" in text for before in " (")]
    word, space, rest = text.partition(" ")
    word = flags.get(word, word) if first else word
    return word + space + rest + (f" ({', '.join(found)})" if found else "")


@contextmanager
def as_usage() -> Iterator[None]:
    """Inside, an InputError is bad usage: exit code 2."""
    try:
        yield
    except UsageError:
        raise
    except InputError as error:
        raise UsageError(str(error)) from error


@contextmanager
def on_cluster(cluster: bool, address: str | None) -> Iterator[None]:
    """Inside, work that can be spread runs on the cluster, if one was asked for."""
    if not cluster and address is None:
        yield
        return
    from kway.rows.cluster.session import cluster as entered

    with redirect_stdout(sys.stderr), entered(address or "auto"):  # Ray prints lost workers on stdout
        yield
