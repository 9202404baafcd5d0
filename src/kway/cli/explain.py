"""`kway explain MODEL [DATA]`: the features and words that speak for each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kway.cli.options import EmbedOption, JsonOption, ModelArgument, with_options
from kway.cli.output import emit_json, safe, say, show_table
from kway.tables.options import ReadOptions

if TYPE_CHECKING:
    from kway.auto.reasons import Reasons

_SECONDS = 20.0  # that measuring may take: somebody waits for it
_MOST_CLASSES = 30  # lines of the table for people


@with_options
def explain(
    model: ModelArgument,
    reading: ReadOptions,
    data: Annotated[str | None, typer.Argument(help="Labelled rows to measure a model without weights on.")] = None,
    columns: Annotated[int, typer.Option("--columns", "-n", min=1, help="Columns to list a class.")] = 8,
    embed: EmbedOption = None,
    json: JsonOption = False,
) -> None:
    """Say which columns and words speak for each class, or matter most."""
    from kway.auto.reasons import explain as reasons_of
    from kway.cli.model_rows import load_model, read_all

    if data is None:
        found = reasons_of(load_model(model, embed), n_columns=columns)
    else:
        fitted, rows = read_all(model, data, reading, needs_labels=True, embed=embed)
        found = reasons_of(fitted, rows.X, rows.y, columns, _SECONDS)
    if json:
        emit_json({"how": found.how, "reasons": found.records()})
    else:
        show_reasons(found)


def show_reasons(found: Reasons) -> None:
    """The same for people."""
    if len(found.classes) == 1:
        rows = [(column, f"{pull:+.4f}") for column, pull in zip(found.columns[0], found.pulls[0])]
        say(f"[bold]What matters: {safe(found.how)}[/]")  # as a title it would be as narrow as the table
        show_table("", ("what", "fall"), rows)
        return
    lines = found.lines()
    say(f"[bold]What tells each class: {safe(found.how)}[/]")
    show_table("", ("class", "columns, strongest first"), lines[:_MOST_CLASSES])
    if len(lines) > _MOST_CLASSES:
        say(f"… {len(lines) - _MOST_CLASSES:,} more classes; --json lists all.")
