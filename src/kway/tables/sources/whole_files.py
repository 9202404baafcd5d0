"""Excel, ODS, ARFF, Feather and SQLite files -> pyarrow Table. These files are always read as a whole.

A workbook or database may contain several sheets or tables. If they have the same columns, their rows are concatenated.
Otherwise the option `table` names one. Each library is imported when a file needs it.

To add a format, write a function (path, form) -> pyarrow Table and add its suffixes to READERS.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from kway.errors import InputError, UsageError
from kway.suggest import listing, nearest
from kway.tables.read_options import TextForm
from kway.tables.sources.frames import as_table, refuse_repeated

_ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"[^"]*"|\S+)\s+(\{.*|\S+)""", re.IGNORECASE)


def read_whole_file(path: Path, suffix: str, form: TextForm) -> Any:
    """Read a file with one of the suffixes of READERS; raise InputError if its content has another format.

    `form` has the sheet or table to read, the lines to skip and the encoding, as the user gave them.
    """
    try:
        return READERS[suffix](path, form)
    except (InputError, OSError):
        raise
    except Exception as error:  # each library raises its own
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path.name} cannot be read as {suffix}: {why}; write it again, or save it as csv") from error


def _one_table(tables: dict[str, Any], path: Path, form: TextForm, what: str) -> Any:
    """Return the requested table, or the rows of all tables if they have the same columns."""
    if not tables:
        raise InputError(f"{path.name} has no {what} with rows; give a file that has one")
    if form.table is not None:
        if form.table not in tables:
            close = nearest(form.table, tables)
            raise UsageError(f"{path.name} has no {what} {form.table!r}{close}; it has {listing(map(repr, tables))}")
        return tables[form.table]
    first, *others = tables.values()
    if any(other.column_names != first.column_names for other in others):
        raise UsageError(
            f"{path.name} has the {what}s {listing(map(repr, tables))} with different columns; name one: table="
        )
    return pa.concat_tables([first, *others], promote_options="permissive")


def _excel(path: Path, form: TextForm) -> Any:
    try:
        import python_calamine
    except ImportError as error:
        raise InputError(
            f"{path.name} needs the package python-calamine ({error}); install it: pip install python-calamine, or "
            "save the sheet as csv"
        ) from error
    with python_calamine.load_workbook(str(path)) as book:
        sheets = {name: book.get_sheet_by_name(name).to_python() for name in book.sheet_names}
    tables = {}
    for name, rows in sheets.items():
        tables[name] = _sheet_table(rows[form.skip_rows or 0 :], f"sheet {name!r} of {path.name}")
    return _one_table({name: table for name, table in tables.items() if table is not None}, path, form, "sheet")


def _sheet_table(rows: list[list[Any]], name: str) -> Any:
    """Return the rows of a sheet below its header as a table; None if there are none."""
    rows = [row for row in rows if any(cell != "" for cell in row)]
    if len(rows) < 2:
        return None
    names = [str(cell) if cell != "" else f"c{j + 1}" for j, cell in enumerate(rows[0])]
    cells = ([None if cell == "" else cell for cell in column] for column in zip(*rows[1:]))
    return _named_columns(names, [_as_integers(column) for column in cells], name)


def _named_columns(names: list[str], columns: list[list[Any]], name: str) -> Any:
    refuse_repeated(names, name)
    return as_table(dict(zip(names, columns)), name)


def _as_integers(values: list[Any]) -> list[Any]:
    """Return whole floats as int, also between words: workbooks store every number as a float, but 12 means "12"."""
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]


def _sqlite(path: Path, form: TextForm) -> Any:
    import sqlite3

    tables = {}
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        for (name,) in base.execute(listed).fetchall():
            cursor = base.execute('SELECT * FROM "{}"'.format(name.replace('"', '""')))
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            if rows:
                tables[name] = _named_columns(
                    names, [list(column) for column in zip(*rows)], f"table {name!r} of {path.name}"
                )
    return _one_table(tables, path, form, "table")


def _arff(path: Path, form: TextForm) -> Any:
    names, kinds = list[str](), list[str]()
    lines = iter(path.read_text(encoding=form.encoding or "utf-8").splitlines())
    for line in lines:
        attribute = _ATTRIBUTE.match(line.strip())
        if attribute:
            names.append(re.sub(r"\\(.)", r"\1", attribute[1].strip("'\"")))
            kinds.append(attribute[2].lower())
        elif line.strip().lower().startswith("@data"):
            break
    data = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("%")]
    if not names or not data:
        raise InputError(f"{path.name} has no @attribute or no rows below @data; give a complete ARFF file")
    if data[0].startswith("{"):
        raise InputError(f"{path.name} has sparse rows ({data[0]:.40}), which are not read; write them as libsvm")
    quote = '"' if any('"' in line for line in data[:100]) and not any("'" in line for line in data[:100]) else "'"
    rows = list(csv.reader(data, quotechar=quote, escapechar="\\", skipinitialspace=True))
    ragged = next((i for i, row in enumerate(rows, 1) if len(row) != len(names)), None)
    if ragged is not None:
        raise InputError(
            f"row {ragged} of {path.name} has {len(rows[ragged - 1])} cells, but there are {len(names)} attributes; "
            "complete the row or remove it"
        )
    columns = [[None if cell.strip() == "?" else cell.strip() for cell in column] for column in zip(*rows)]
    numeric = ("numeric", "real", "integer")
    values = [[None if c is None else float(c) for c in cells] if kind in numeric else cells
              for kind, cells in zip(kinds, columns)]  # fmt: skip
    return _named_columns(names, [_as_integers(column) for column in values], path.name)


def _feather(path: Path, form: TextForm) -> Any:
    import pyarrow.feather

    return pyarrow.feather.read_table(path)


READERS: dict[str, Callable[[Path, TextForm], Any]] = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), _excel),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), _sqlite),
    **dict.fromkeys((".feather", ".arrow"), _feather),
    ".arff": _arff,
}
