"""Excel, ODS, ARFF, Feather and SQLite files -> pyarrow Table. Each library is imported when a file needs it.

A workbook or database may have several sheets or tables. Those with the same columns are joined; otherwise the option
`table` names one.
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
from kway.tables.sources.frames import as_table

_ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"[^"]*"|\S+)\s+(\{.*|\S+)""", re.IGNORECASE)


def read_whole_file(path: Path, suffix: str, asked: TextForm) -> Any:
    """Read a file with one of the suffixes of READERS; raise InputError if its content has another format."""
    try:
        return READERS[suffix](path, asked)
    except (InputError, OSError):
        raise
    except Exception as error:  # each library raises its own
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path.name} cannot be read as {suffix}: {why}; write it again, or save it as csv") from error


def _one_table(tables: dict[str, Any], path: Path, asked: TextForm, what: str) -> Any:
    """Return the table that was asked for, or all tables joined if they have the same columns."""
    if not tables:
        raise InputError(f"{path.name} has no {what} with rows; give a file that has one")
    if asked.table is not None:
        if asked.table not in tables:
            close = nearest(asked.table, tables)
            raise UsageError(f"{path.name} has no {what} {asked.table!r}{close}; it has {listing(map(repr, tables))}")
        return tables[asked.table]
    first, *others = tables.values()
    if any(other.column_names != first.column_names for other in others):
        raise UsageError(
            f"{path.name} has the {what}s {listing(map(repr, tables))} with different columns; name one: table="
        )
    return pa.concat_tables([first, *others], promote_options="permissive")


def _excel(path: Path, asked: TextForm) -> Any:
    try:
        import python_calamine
    except ImportError as error:
        raise InputError(
            f"{path.name} needs the package python-calamine ({error}); install it: pip install 'kway[excel]', or save "
            "the sheet as csv"
        ) from error
    with python_calamine.load_workbook(str(path)) as book:
        sheets = {name: book.get_sheet_by_name(name).to_python() for name in book.sheet_names}
    skip = asked.skip_rows or 0
    tables = {name: _sheet(rows[skip:], f"sheet {name!r} of {path.name}") for name, rows in sheets.items()}
    return _one_table({name: table for name, table in tables.items() if table is not None}, path, asked, "sheet")


def _sheet(rows: list[list[Any]], name: str) -> Any:
    """Return the rows of a sheet below its header; None without any."""
    rows = [row for row in rows if any(cell != "" for cell in row)]
    if len(rows) < 2:
        return None
    names = [str(cell) if cell != "" else f"c{j + 1}" for j, cell in enumerate(rows[0])]
    cells = ([None if cell == "" else cell for cell in column] for column in zip(*rows[1:]))
    return _by_names(names, [_whole(column) for column in cells], name)


def _by_names(names: list[str], columns: list[list[Any]], name: str) -> Any:
    if len(set(names)) < len(names):
        repeated = sorted({column for column in names if names.count(column) > 1})
        raise InputError(f"{name} has more than one column named {listing(repeated)}; give each column its own name")
    return as_table(dict(zip(names, columns)), name)


def _whole(values: list[Any]) -> list[Any]:
    """Return whole numbers as int: a workbook stores every number as a float."""
    if all(value is None or (isinstance(value, float) and value.is_integer()) for value in values):
        return [None if value is None else int(value) for value in values]
    return values


def _sqlite(path: Path, asked: TextForm) -> Any:
    import sqlite3

    tables = {}
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        for (name,) in base.execute(listed).fetchall():
            found = base.execute('SELECT * FROM "{}"'.format(name.replace('"', '""')))
            rows, names = found.fetchall(), [column[0] for column in found.description]
            if rows:
                tables[name] = _by_names(
                    names, [list(column) for column in zip(*rows)], f"table {name!r} of {path.name}"
                )
    return _one_table(tables, path, asked, "table")


def _arff(path: Path, asked: TextForm) -> Any:
    names, kinds, lines = [], [], iter(path.read_text(encoding=asked.encoding or "utf-8").splitlines())
    for line in lines:
        found = _ATTRIBUTE.match(line.strip())
        if found:
            names.append(re.sub(r"\\(.)", r"\1", found[1].strip("'\"")))
            kinds.append(found[2].lower())
        elif line.strip().lower().startswith("@data"):
            break
    data = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("%")]
    if not names or not data:
        raise InputError(f"{path.name} has no @attribute or no rows below @data; give a complete ARFF file")
    if data[0].startswith("{"):
        raise InputError(f"{path.name} has sparse rows ({data[0]:.40}), which are not read; write them as libsvm")
    quote = '"' if any('"' in line for line in data[:100]) and not any("'" in line for line in data[:100]) else "'"
    rows = list(csv.reader(data, quotechar=quote, escapechar="\\", skipinitialspace=True))
    odd = next((i for i, row in enumerate(rows, 1) if len(row) != len(names)), None)
    if odd is not None:
        raise InputError(
            f"row {odd} of {path.name} has {len(rows[odd - 1])} cells, but there are {len(names)} attributes"
        )
    columns = [[None if cell.strip() == "?" else cell.strip() for cell in column] for column in zip(*rows)]
    numeric = ("numeric", "real", "integer")
    values = [[None if c is None else float(c) for c in cells] if kind in numeric else cells
              for kind, cells in zip(kinds, columns)]  # fmt: skip
    return _by_names(names, [_whole(column) for column in values], path.name)


def _feather(path: Path, asked: TextForm) -> Any:
    import pyarrow.feather

    return pyarrow.feather.read_table(path)


READERS: dict[str, Callable[[Path, TextForm], Any]] = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), _excel),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), _sqlite),
    **dict.fromkeys((".feather", ".arrow"), _feather),
    ".arff": _arff,
}
