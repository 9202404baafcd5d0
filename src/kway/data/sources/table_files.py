"""Files as pyarrow tables: csv (gzipped or not; comma, semicolon or tab), parquet, a folder of parquet files."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kway.data.suggest import listing
from kway.errors import InputError

FILE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz", ".svm", ".libsvm", ".svm.gz", ".libsvm.gz")

_WHOLE_FILE = 2**31 - 1  # bytes a block: types are then told from all rows, not from the first megabyte


def suffix_of(path: Path) -> str:
    """The ending that says how to read the file; an unknown one is an error that lists those known."""
    known = [s for s in FILE_SUFFIXES if path.name.lower().endswith(s)]
    if not known:
        raise InputError(f"cannot tell the format of {path.name}; its name must end in {listing(FILE_SUFFIXES)}")
    return max(known, key=len)


def read_table(path: Path, words: Sequence[str] = ()) -> Any:
    """The file, or folder of parquet files, as a pyarrow table.

    The csv columns `words` are kept as they are written, so that the label 007 does not become 7.
    """
    import pyarrow as pa
    import pyarrow.parquet

    try:
        if path.is_dir():
            return _read_folder(path)
        if path.stat().st_size == 0:
            raise InputError(f"{path.name} cannot be read: it is empty; give a file with a header and rows")
        if suffix_of(path) == ".parquet":
            return pyarrow.parquet.read_table(path)
        return _read_csv(path, words)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from error


def parquet_files(folder: Path) -> list[Path]:
    """Parquet files of a folder and its sub-folders, by name; hidden and _temporary ones left out."""
    inside = [p for p in sorted(folder.rglob("*.parquet")) if p.is_file()]
    return [p for p in inside if not any(part.startswith((".", "_")) for part in p.relative_to(folder).parts)]


def _read_folder(folder: Path) -> Any:
    """One table of all files, in the order of their names; sub-folders such as year=2024 become columns."""
    import pyarrow as pa
    import pyarrow.parquet

    tables = [pyarrow.parquet.read_table(file) for file in parquet_files(folder)]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the parquet files of {folder} do not have the same columns: {error}") from error


def _read_csv(path: Path, words: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as csv

    as_written = csv.ConvertOptions(column_types={c: pa.string() for c in words})
    how = csv.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True)
    try:
        table = csv.read_csv(path, parse_options=how, convert_options=as_written)  # decompresses by the file's name
    except pa.ArrowInvalid as error:
        if "conversion error" not in str(error):
            raise
        whole = csv.ReadOptions(block_size=_WHOLE_FILE)  # a later row showed what the first ones did not
        table = csv.read_csv(path, read_options=whole, parse_options=how, convert_options=as_written)
    binary = [field.name for field in table.schema if pa.types.is_binary(field.type)]
    if binary:
        raise InputError(f"{path.name} is not UTF-8 text in column {listing(binary)}; save it as UTF-8")
    return table


def _delimiter(path: Path) -> str:
    """Semicolon or tab where the header has them and no comma."""
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        header = file.readline(1 << 20)
    if b"," in header:
        return ","
    return ";" if b";" in header else "\t" if b"\t" in header else ","
