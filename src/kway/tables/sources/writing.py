"""Writing tables: columns -> csv, JSON lines, parquet or npz. Each file is complete or absent.

A text cell of a csv that a spreadsheet would run as a formula (=, +, -, @ or a tab at its beginning) gets an
apostrophe in front, unless it is a number. JSON and parquet keep it as it is. The format follows from the ending of
the file name: .csv, .csv.gz, .jsonl, .jsonl.gz or .parquet.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pyarrow.types as kinds
from numpy.typing import NDArray

from kway.errors import InputError, UsageError
from kway.suggest import listing
from kway.tables.outputs import refuse_missing_folder, replacing
from kway.tables.sources.frames import holds_text, plain_floats, whole_column
from kway.tables.sources.values import NUMBER
from kway.text_tables import plain

FORMATS = ("csv", "jsonl", "parquet")
_BY_ENDING = {".csv": "csv", ".csv.gz": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".jsonl.gz": "jsonl",
              ".parquet": "parquet"}  # fmt: skip
WRITTEN = tuple(_BY_ENDING)

Columns = Mapping[str, Any]  # name -> array (n,) of numpy or Arrow


def format_of(path: Path, asked: str | None = None) -> str:
    """Return the format that was asked for, or the one of the ending of the file name."""
    if asked is not None:
        if asked not in FORMATS:
            raise UsageError(f"format is {asked!r}; it must be {listing(FORMATS)}")
        return asked
    known = [ending for ending in WRITTEN if path.name.lower().endswith(ending)]
    if not known:
        raise UsageError(f"cannot write {path.name}: its name must end in {listing(WRITTEN)}")
    return _BY_ENDING[max(known, key=len)]


def write_columns(columns: Columns, path: str | Path, asked: str | None = None) -> None:
    """Write columns of equal length to a file."""
    write_blocks(iter([columns]), Path(path), asked)


def write_blocks(blocks: Iterable[Columns], path: Path, asked: str | None = None) -> int:
    """Write blocks of rows with the same columns, one after another; return the number of rows."""
    form = format_of(path, asked)
    refuse_missing_folder(path)
    with _writable(path), replacing(path) as draft, _opened(draft, path.name.lower().endswith(".gz")) as out:
        return write_stream(blocks, out, form)


def write_stream(blocks: Iterable[Columns], out: BinaryIO, form: str) -> int:
    """Write blocks to an open stream and flush it after each; return the number of rows."""
    return _WRITERS[form](_alike(map(_arrow, blocks)), out)


def write_npz(path: str | Path, **arrays: NDArray) -> None:
    """Write arrays with np.savez_compressed."""
    path = Path(path)
    refuse_missing_folder(path)
    with _writable(path), replacing(path) as draft, draft.open("wb") as out:
        np.savez_compressed(out, allow_pickle=False, **arrays)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Turn errors of writing, such as a full disk, into an InputError with the name of the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def _opened(path: Path, packed: bool) -> Iterator[Any]:
    with path.open("wb") as file:
        if not packed:
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as out:
            yield out


def _arrow(columns: Columns) -> Any:
    return pa.table({str(name): _arrow_column(values) for name, values in columns.items()})


def _alike(tables: Iterable[Any]) -> Iterator[Any]:
    """Yield the tables with the columns of the first, in its order; raise InputError if the columns differ."""
    names: list[str] = []
    for table in tables:
        names = names or table.column_names
        if other := sorted(set(names) ^ set(table.column_names)):
            raise InputError(
                f"only some files have the columns {listing(other)}, so they cannot be kept; "
                "keep columns that all files have: keep="
            )
        yield table.select(names)


def _arrow_column(values: Any) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    return pa.array(values.tolist()) if values.dtype == object else pa.array(values)


def _write_csv(tables: Iterable[Any], out: Any) -> int:
    n = 0
    for table in tables:
        header = pyarrow.csv.WriteOptions(include_header=n == 0)
        pyarrow.csv.write_csv(_without_formulas(_flat(table)), out, header)
        out.flush()
        n += table.num_rows
    return n


def _flat(table: Any) -> Any:
    """Write lists and other nested values as JSON, because a csv cannot contain them."""
    for place, field in enumerate(table.schema):
        if kinds.is_nested(field.type):
            words = [None if v is None else json.dumps(plain(v)) for v in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.array(words, pa.string()))
    return table


_FORMULA = r"^[=+\-@\t\r]"  # the beginning of a cell that a spreadsheet runs


def _without_formulas(table: Any) -> Any:
    """Put an apostrophe in front of text and names of columns that begin as a formula does, unless it is a number."""
    for place, field in enumerate(table.schema):
        if holds_text(field):
            words = whole_column(table.column(place))
            risky = pc.and_(
                pc.match_substring_regex(words, _FORMULA), pc.invert(pc.match_substring_regex(words, NUMBER))
            )
            guarded = pc.binary_join_element_wise(pa.scalar("'", words.type), words, pa.scalar("", words.type))
            table = table.set_column(place, field.name, pc.if_else(risky, guarded, words))
    return table.rename_columns([f"'{name}" if re.match(_FORMULA, name) else name for name in table.column_names])


def _write_lines(tables: Iterable[Any], out: Any) -> int:
    n = 0
    for table in tables:
        table = type(table).from_arrays([plain_floats(column) for column in table.columns], names=table.column_names)
        lines = (json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in table.to_pylist())
        out.write("".join(lines).encode())
        out.flush()
        n += table.num_rows
    return n


def _write_parquet(tables: Iterable[Any], out: Any) -> int:
    n, writer = 0, None
    try:
        for table in tables:
            writer = writer or pyarrow.parquet.ParquetWriter(out, table.schema)
            writer.write_table(table.cast(writer.schema))
            n += table.num_rows
    except pa.ArrowException as error:
        raise InputError(
            f"the files have different types in a column: {error}; write csv, or leave the column out: keep="
        ) from error
    finally:
        if writer is not None:  # also after an error: else it would write to a closed file when it is collected
            writer.close()
    return n


_WRITERS = {"csv": _write_csv, "jsonl": _write_lines, "parquet": _write_parquet}
