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
    "skip_bad": (Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")], False),
}


def read_options(given: dict[str, Any]) -> Any:
    """ReadOptions (kway.data.reading) of what was typed; what cannot be meant is bad usage."""
    from kway.cli.usage import as_usage, names_in
    from kway.data.reading import ReadOptions
    from kway.data.sources.text_form import TextForm

    with as_usage():
        form = TextForm.asked(given["sep"], given["encoding"], given["decimal"], given["header"])
        types = _types(given["types"])
    drop = names_in(given["drop"])
    return ReadOptions(given["target"], drop=drop, skip_bad=given["skip_bad"], form=form, types=types, id=given["id"])


def _types(text: str | None) -> dict[str, str]:
    from kway.cli.usage import names_in
    from kway.data.features.column_kinds import USED
    from kway.data.sources.written import DAY_FIRST, MONTH_FIRST
    from kway.data.suggest import listing, nearest
    from kway.errors import UsageError

    known = (*USED, DAY_FIRST, MONTH_FIRST, "drop")
    found = {}
    for pair in names_in(text):
        column, equals, kind = pair.rpartition("=")
        if not equals or not column:
            raise UsageError(f"--types has {pair!r}; write COLUMN=KIND, with commas between")
        if kind not in known:
            raise UsageError(f"--types says {kind!r} of {column!r}{nearest(kind, known)}; it may say {listing(known)}")
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
