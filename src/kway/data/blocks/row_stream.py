"""DATA of any size a block at a time: what read_rows gives, in pieces, where the source is large and can be cut.

    row_stream(source)      LabelledRows of some rows each; one with all rows where the source is small or of another
                            kind (a known set, images, JSON lines, stdin), or has a column `split`

What a model asks for (`like`) fixes the columns and what they are, so that every piece is read alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kway import progress
from kway.data.labelled_rows import LabelledRows, ReadOptions
from kway.data.reading import ANY_ROWS, AS_IT_IS, read_rows, table_rows
from kway.data.sources.arrow_types import text_columns
from kway.data.sources.file_columns import FileTable, refuse_lacking, refuse_other_kinds
from kway.data.sources.label_column import NoLabelError, unlabelled_note
from kway.data.sources.npy_files import map_arrays, npy_files
from kway.data.sources.pieces import Pieces, pieces_of
from kway.data.sources.requirements import RowRequirements
from kway.data.sources.word_gaps import present, trimmed
from kway.data.sources.written_values import are_codes


def row_stream(source: Any, how: ReadOptions = AS_IT_IS, like: RowRequirements = ANY_ROWS) -> Iterator[LabelledRows]:
    """Rows in pieces, in their order."""
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None or not path.exists():
        yield read_rows(source, how, like)
        return
    files = npy_files(path)
    if files:
        for rows, y in map_arrays(files, path.name).blocks():
            yield LabelledRows(path.name, rows, y)
        return
    pieces = _pieces(path, how, like)
    if pieces is None:
        yield read_rows(source, how, like)
        return
    first: FileTable | None = None
    lacking: NoLabelError | None = None
    for piece in pieces.each:
        file = f"{path.name}/{piece.name}" if path.is_dir() else path.name
        try:
            found = replace(table_rows(piece, file, how, like), name=path.name)
        except NoLabelError as error:  # of this piece
            lacking = error
            progress.note(f"note: {file}: {unlabelled_note(error.rows)}")
            continue
        if first is None:  # what follows is written as the first piece was
            codes = {c: "text" for c in text_columns(found.rows) if are_codes(present(trimmed(found.rows.column(c))))}
            how = replace(how, form=found.form, types={**codes, **how.types})
        here = FileTable(file, found.rows)
        first = first or here
        if like.columns is None:  # else the model says what it makes of them
            _refuse_other_columns(first, here)
        yield found
    if first is None and lacking is not None:
        raise lacking


def _refuse_other_columns(first: FileTable, here: FileTable) -> None:
    """Columns that only one of two pieces has, or that hold other kinds of values in them."""
    names = [part.table.column_names for part in (first, here)]
    if names[0] == names[1] and first.table.schema.equals(here.table.schema):
        return
    for mine, theirs, file in ((names[0], names[1], here.file), (names[1], names[0], first.file)):
        refuse_lacking(mine, {column: file for column in mine if column not in theirs})
    refuse_other_kinds(first, here, names[0])


def _pieces(path: Path, how: ReadOptions, like: RowRequirements) -> Pieces | None:
    """The pieces of a table; None where one of them could not tell what belongs together."""
    pieces = pieces_of(path, how.form, like.form, like.columns or ())
    if pieces is None:
        return None
    taken = pieces.columns if like.columns is None else like.columns
    return None if "split" in taken and how.target is not None else pieces
