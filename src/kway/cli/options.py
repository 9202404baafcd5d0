"""Options and arguments that several commands share, and the spelling of options in messages.

`@with_options` gives a command the options of its parameters of type ReadOptions and FitOptions, so that every command
has the same ones. These dataclasses name options as Python does (`skip_bad`); `with_flags` adds the spelling of the
command line (`--skip-bad`) to a message.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from kway.auto.fit_options import FitOptions
from kway.declared_options import flag_of, options_of
from kway.tables.read_options import ReadOptions


def flag(name: str, help: str, **more: Any) -> Any:
    """Declare an option that takes no value; --help then shows no type for it."""
    return typer.Option(name, help=help, metavar="", **more)


JsonOption = Annotated[bool, flag("--json", "Print the result as one JSON object instead of text.")]
ForceOption = Annotated[bool, flag("--force", "Also overwrite existing files that kway did not write.")]
EmbedOption = Annotated[
    str | None,
    typer.Option(
        "--embed",
        metavar="NAME",
        help="Name or folder of the embedding model that MODEL is allowed to load. Required if MODEL was fitted with "
        "--embed.",
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
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A model file written by `kway fit`.")]
RowsArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Rows in any format that `kway fit` accepts, a single image, or - for stdin. If DATA is the name of a "
        "dataset with test rows, only the test rows are used.",
    ),
]
RowsFileOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="File to write the rows to: csv, jsonl (or .gz) or parquet."),
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
        help="Run on the Ray cluster at this address: host:port, ray://host:port, or 'local' to start a cluster on "
        "this machine for this job.",
    ),
]
_PANELS = {ReadOptions: "How DATA is read", FitOptions: "How models are chosen and fitted"}  # headings of --help
_IGNORED_LABELS = "Label column of DATA, if it has one. The column is then not used as a feature."
_LABELS_OF_MODEL = "Column that contains the labels. By default, the column with which MODEL was fitted."
_GROUPS = "Column that groups the rows, such as a patient ID. Rows of the same group are never split between folds."
_COMMAND_HELP: dict[str, dict[str, str]] = {  # help of options whose meaning differs between commands
    "compare": {"group": _GROUPS},
    "evaluate": {"target": _LABELS_OF_MODEL},
    "explain": {"target": _LABELS_OF_MODEL},
    "export": {
        "target": "Column that contains the labels; it is written as `target`. Required for tables.",
        "id": "Column that identifies each row. It is written first; an npz file does not contain it.",
    },
    "inspect": {
        "group": _GROUPS,
        "id": "Column that identifies each row. It is listed with the row and not used as a feature.",
        "metric": "Metric that decides which models judge the labels: accuracy, balanced (mean recall per class), "
        "macro-f1 or log-loss.",
        "budget": "Time limit for the comparison of models, such as 60s, 2m or 1h. By default, it grows with the table "
        "and applies to estimated rather than measured time.",
        "also": "Also score a classifier of another library on the same folds, such as sklearn.svm.SVC. It does not "
        "judge the labels.",
    },
    "neighbors": {"target": _IGNORED_LABELS},
    "plan": {"target": "Column that contains the labels. Required for tables."},
    "predict": {
        "target": _IGNORED_LABELS,
        "id": "Column that identifies each row. It is written next to the predictions.",
    },
    "suggest": {
        "target": _IGNORED_LABELS,
        "id": "Column that identifies each row. It is written next to the row number.",
    },
}
# If a message starts with an option, its second word is one of these.
_VERBS = ("must", "is", "has", "names", "contains")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that its parameters of type ReadOptions and FitOptions declare."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hint in _PANELS}
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters |= _parameters(groups[name], command.__name__)
        else:
            parameters[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])

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
        help = _COMMAND_HELP.get(command, {}).get(name, declared.help)
        option = typer.Option(*flags, help=help, metavar=metavar, rich_help_panel=_PANELS[cls])
        parameters[name] = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if declared.parse is not None else defaults[name],
            annotation=Annotated[kind, option],
        )
    return parameters


def _from_command_line(cls: type, command: str, values: dict[str, Any]) -> Any:
    """Make the dataclass from what was typed, and remove its options from `values`."""
    options = {}
    for name, declared in options_of(cls, command).items():
        value = values.pop(name)
        options[name] = value if declared.parse is None else declared.parse(value)
    return cls(**options)


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
    named = [flag for name, flag in flags.items() if re.search(rf"(?:^|[ (]){name}=", text)]
    name, *rest = text.split(" ", 2)
    if first and rest and rest[0] in _VERBS:
        text = " ".join([flags.get(name, name), *rest])
    return text + (f" ({', '.join(named)})" if named else "")


def check_rows_file(
    out: Path, what: str, columns: Sequence[str], inputs: Mapping[str, str | Path | None], force: bool
) -> None:
    """Raise if --out has no known ending, or would replace an input or a file without these columns."""
    from kway.tables.outputs import Output, check_places, has_columns
    from kway.tables.sources.writing import format_of

    format_of(out)
    check_places([Output("--out", out, what, lambda path: has_columns(path, columns))], inputs, force)


@contextmanager
def on_cluster(cluster: bool, address: str | None) -> Iterator[None]:
    """Run the code inside on the cluster if one was asked for."""
    if not cluster and address is None:
        yield
        return
    from kway.rows.cluster.session import cluster as connect

    with redirect_stdout(sys.stderr), connect(address or "auto"):  # Ray prints lost workers on stdout
        yield
