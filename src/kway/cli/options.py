"""Options that several verbs share. `@reads_data` gives a verb every reading option, so that all have the same."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
MovedOption = Annotated[str | None, typer.Option("--embed", help="The embedding model, where its folder has moved.")]
DataArgument = Annotated[
    str, typer.Argument(help="A file (csv, csv.gz, parquet, npz, libsvm), a folder of images or parquet, a known set.")
]
ModelArgument = Annotated[str, typer.Argument(help="A model file.")]
AskedArgument = Annotated[str, typer.Argument(help="As for fit; of a known set with test rows, these are taken.")]

_READING: dict[str, tuple[Any, Any]] = {  # field of ReadOptions -> its option and default
    "target": (
        Annotated[str | None, typer.Option("--target", "-t", help="Column with the labels.", metavar="COL")],
        None,
    ),
    "skip_bad": (Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")], False),
}


def reads_data(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the reading options in place of its parameter `reading`, a ReadOptions (kway.data.reading)."""

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        from kway.data.reading import ReadOptions

        reading = ReadOptions(**{name: given.pop(name) for name in _READING})
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
