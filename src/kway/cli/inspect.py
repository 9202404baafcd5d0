"""`kway inspect`: find wrong labels, near-duplicates with different labels, and rows that are also test rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kway.auto.fit_options import FitOptions
from kway.cli.options import DataArgument, ForceOption, JsonOption, RowsFileOption, check_rows_file, with_options
from kway.cli.output import emit_json, live_view, safe, say, say_note, show_table
from kway.tables.read_options import ReadOptions
from kway.text_tables import count

if TYPE_CHECKING:
    from kway.auto.wrong_labels import Inspection


@with_options
def inspect(
    data: DataArgument,
    reading: ReadOptions,
    options: FitOptions,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="MODEL",
            help="Use this model to judge the labels. It must not have been trained on DATA; if DATA is a dataset with "
            "test rows, the test rows are inspected. By default, models are cross-validated on DATA, and each row is "
            "judged by models that were not trained on it.",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            "--test", metavar="FILE", help="File with test rows. Test rows that also occur in DATA are listed."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            min=1,
            metavar="N",
            help="Number of rows to list, most suspicious first. By default, all rows whose label is probably wrong.",
        ),
    ] = None,
    out: RowsFileOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Use confident learning to find the rows of DATA whose label is probably wrong.

    Also lists near-duplicate rows with different labels, and rows that also
    occur among the test rows. Rows are counted from 0.

    Example: kway inspect offers.csv --target kind -o wrong.csv
    """
    from kway.auto.wrong_labels import COLUMNS, inspect_rows
    from kway.errors import UsageError
    from kway.tables.sources.writing import write_columns

    if by is not None and test is not None:
        raise UsageError("--test compares DATA with test rows while models learn from it; leave it out with --by")
    if out is not None:
        check_rows_file(out, "file of inspected rows", COLUMNS, {"DATA": data, "--by": by, "--test": test}, force)
    with live_view():
        found = (
            inspect_rows(data, reading, options, test, rows) if by is None else _by(by, data, reading, options, rows)
        )
    if out is not None:
        write_columns(found.columns(), out)
    if json:
        emit_json({**found.summary(), "problems": found.records(), "out": out})
        return
    show_inspection(found)
    if out is not None:
        say(f"Wrote {count(len(found.records()), 'row')} to {safe(out)}.")


def _by(model: str, data: str, reading: ReadOptions, options: FitOptions, rows: int | None) -> Inspection:
    """Inspect DATA by a saved model."""
    from kway.auto.wrong_labels import inspect_by
    from kway.cli.model_rows import read_all

    fitted, found = read_all(model, data, reading, needs_labels=True, embed=options.embed)
    assert found.y is not None
    name = "stdin" if data == "-" else data
    return inspect_by(fitted, found.X, found.y, name, rows, found.kept, found.positions)


def show_inspection(inspection: Inspection, max_lines: int = 20) -> None:
    """Print how many rows have which problem, and the most suspicious labels."""
    from kway.auto.wrong_labels import SUSPECT_COLUMNS, suspect_line

    facts = inspection.summary()
    for note in facts["notes"]:
        say_note(note)
    say(
        f"[bold]{safe(inspection.name)}[/]: [bold]{facts['wrong']:,}[/] of {count(facts['judged'], 'label')} are "
        f"suspicious, judged by {safe(inspection.model)}."
    )
    if facts["conflicts"] is not None:
        say(f"{count(facts['conflicts'], 'pair')} of nearly equal rows have different labels.")
    if inspection.test_y is not None:
        say(f"{count(facts['shared'], 'pair')} of a row and a test row are nearly equal.")
    records = inspection.records()
    wrong = [record for record in records if record["problem"] == "wrong label"]
    names = SUSPECT_COLUMNS if inspection.ids is None else (inspection.ids[0], *SUSPECT_COLUMNS[1:])
    if wrong:
        show_table("Least probable labels first", names, [suspect_line(record) for record in wrong[:max_lines]])
    if len(records) > min(len(wrong), max_lines):
        say(f"{len(records) - min(len(wrong), max_lines):,} more; --out FILE.csv writes all.")
