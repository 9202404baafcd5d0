"""Options that several verbs share. `@reads_data` gives a verb every reading option, so that all have the same."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from kway import light_imports

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
MovedOption = Annotated[str | None, typer.Option("--embed", help="The embedding model, where its folder has moved.")]
DataArgument = Annotated[
    str,
    typer.Argument(help="A file (csv, tsv, jsonl, parquet, npz, libsvm), a folder of images or parquet, a known set."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that kway did not write.")]
ModelArgument = Annotated[str, typer.Argument(help="A model file.")]
AskedArgument = Annotated[
    str, typer.Argument(help="As for fit, an image, or - for stdin; of a known set with test rows, these are taken.")
]

_COLUMNS, _TYPES = "COLS", "COL=KIND,..."
_READING: dict[str, tuple[Any, Any]] = {  # name -> its option and default
    "target": (
        Annotated[str | None, typer.Option("--target", "-t", help="Column with the labels.", metavar="COL")],
        None,
    ),
    "id": (
        Annotated[str | None, typer.Option("--id", help="Column that names the rows: no feature.", metavar="COL")],
        None,
    ),
    "drop": (Annotated[str | None, typer.Option("--drop", help="Columns to leave out.", metavar=_COLUMNS)], None),
    "types": (
        Annotated[
            str | None,
            typer.Option(
                "--types",
                help="What columns are: number, category, text, date, day-first, month-first, true/false, vector.",
                metavar=_TYPES,
            ),
        ],
        None,
    ),
    "sep": (Annotated[str | None, typer.Option("--sep", help="Between columns: , ; | tab; else told.")], None),
    "decimal": (Annotated[str | None, typer.Option("--decimal", help="Decimal mark: . or , ; else told.")], None),
    "encoding": (
        Annotated[str | None, typer.Option("--encoding", help="utf-8, latin-1, utf-16, ...; else told.")],
        None,
    ),
    "header": (
        Annotated[
            bool | None, typer.Option("--header/--no-header", help="Whether the first row names columns; else told.")
        ],
        None,
    ),
    "skip_bad": (
        Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be read, and rows without a label.")],
        False,
    ),
}


def read_options(given: dict[str, Any]) -> Any:
    """ReadOptions (kway.data.reading) of what was typed; what cannot be meant is bad usage."""
    from kway.cli.usage import as_usage, names_in
    from kway.data.asked_options import options_asked

    with as_usage():
        asked = {"drop": names_in(given["drop"]), "types": _pairs(names_in(given["types"]))}
        return options_asked(**given | asked)


def _pairs(typed: tuple[str, ...]) -> dict[str, str]:
    from kway.errors import InputError

    found = {}
    for pair in typed:
        column, equals, kind = pair.rpartition("=")
        if not equals or not column:
            raise InputError(f"--types has {pair!r}; write COLUMN=KIND, with commas between")
        found[column] = kind
    return found


def reads_data(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the reading options in place of its parameter `reading`, a ReadOptions (kway.data.reading)."""

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        reading = read_options({name: given.pop(name) for name in _READING})  # at once: nothing heavy is loaded yet
        light_imports.sklearn_base()
        if light_imports.PROCESS.own:
            light_imports.arrow_without_pandas()
        verb(**given, reading=reading)

    own = inspect.signature(verb).parameters
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, (option, default) in _READING.items()
    ]
    kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.values() if p.name != "reading"]
    place = list(own).index("reading")
    shown = [*kept[:place], *options, *kept[place:]]
    hints = typing.get_type_hints(verb, {**verb.__globals__, "ReadOptions": object}, include_extras=True)
    annotated = {p.name: _READING[p.name][0] if p.name in _READING else hints[p.name] for p in shown}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(annotation=annotated[p.name]) for p in shown], return_annotation=None
    )
    command.__annotations__ = {**annotated, "return": None}
    return command
