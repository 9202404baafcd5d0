"""`kway suggest`: choose the unlabeled rows that are worth labeling next."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kway.cli.options import (
    EmbedOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    RowsFileOption,
    check_rows_file,
    with_options,
)
from kway.cli.output import emit_json, safe, say, show_table
from kway.tables.read_options import ReadOptions
from kway.text_tables import count


@with_options
def suggest(
    model: ModelArgument,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Unlabeled rows; a file, a folder or - for stdin.")],
    reading: ReadOptions,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, metavar="N", help="Number of rows to choose.")] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random numbers.")] = 0,
    out: RowsFileOption = None,
    embed: EmbedOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Choose which rows of POOL to label next.

    These are rows that the model is uncertain about and that differ from each
    other. For each chosen row, writes its number (counted from 0), its
    predicted label, and the margin between the probabilities of the best and
    the second-best label. The columns of --id and --keep are written too.

    Example: kway suggest model.kway unlabeled.csv -o next.csv
    """
    from kway.auto.suggest import suggest_rows
    from kway.cli.model_rows import read_all
    from kway.cli.predict import joined, kept_names
    from kway.tables.sources.writing import write_columns

    if out is not None:
        check_rows_file(out, "file of suggested rows", ("row", "margin"), {"MODEL": model, "POOL": pool}, force)
    fitted, pool_rows = read_all(model, pool, reading, needs_labels=False, embed=embed)
    chosen = suggest_rows(fitted, pool_rows.X, rows, seed)
    suggestions = chosen.columns()
    names = kept_names(list(pool_rows.kept), suggestions)
    kept = {names[name]: values.take(chosen.rows) for name, values in pool_rows.kept.items()}
    columns: dict[str, Any] = {"row": chosen.rows, **kept, **suggestions}
    if out is not None:
        write_columns(columns, out)
    lists = joined([columns])
    records = [dict(zip(lists, line)) for line in zip(*lists.values())]
    if json:
        emit_json({"rows": records, "out": out})
        return
    lines = [tuple(f"{v:.3f}" if name == "margin" else str(v) for name, v in each.items()) for each in records]
    show_table("Rows to label next", list(lists), lines)
    if out is not None:
        say(f"Wrote {count(len(records), 'row')} to {safe(out)}.")
