"""Which files kway wrote itself, told by what is in them: these alone are replaced without being told to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_HEAD = 4096  # bytes of a file looked at
_FIGURE_MARKS = (b"Software\0kway", b"<dc:title>kway</dc:title>")  # of a png and an svg; report.export puts them in
_ANSWER = re.compile(r"prediction(\nlabel_\d+\nscore_\d+)*((\np_[^\n]*){2,})?(\nset)?")  # as predict names its columns


def is_model(path: Path) -> bool:
    """Whether a file is a model of kway's, by its first bytes; the manifest lies in the header."""
    head = _bytes(path)
    return head[8:9] == b"{" and b'"__metadata__"' in head and b"kway" in head


def is_report(path: Path) -> bool:
    """Whether a file is a page that kway wrote; an empty one is nobody's."""
    tail = _bytes(path, end=True)
    return not tail or b"Written by kway" in tail


def is_figure(path: Path) -> bool:
    """Whether a file is a figure that kway drew, by what it says of its maker."""
    head = _bytes(path)
    return any(mark in head for mark in _FIGURE_MARKS)


def is_predictions(path: Path, kept: Sequence[str] = ()) -> bool:
    """Whether a file holds the columns of kway's answers, and before them none but those `kept`."""
    names = [name.removesuffix(" (input)") if name not in kept else name for name in _column_names(path)]
    if "prediction" not in names:
        return False
    first = len(names) - 1 - names[::-1].index("prediction")  # a kept one of that name stands before the answer
    return set(names[:first]) <= set(kept) and _ANSWER.fullmatch("\n".join(names[first:])) is not None


def is_nobodys(path: Path) -> bool:
    """An empty file."""
    return path.stat().st_size == 0


def _column_names(path: Path) -> list[str]:
    """The columns of a table as kway writes one; none where it is written in another way."""
    import json

    from kway.data.sources.csv_rows import csv_rows
    from kway.data.sources.table_files import table_source
    from kway.errors import InputError

    try:
        source = table_source(path)
        if source.suffix == ".parquet":
            import pyarrow.parquet

            return list(pyarrow.parquet.read_schema(path).names)
        first = _first_line(source.content)
        if first.startswith("{"):
            return list(json.loads(first))
        names = next((row.cells for row in csv_rows([first])), [])
    except (InputError, OSError, ValueError):
        return []
    quoted = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    return names if first == quoted else []


def _first_line(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return content.partition(b"\n")[0].decode()
    with content.open("rb") as file:
        return file.readline().rstrip(b"\n").decode()


def _bytes(path: Path, end: bool = False) -> bytes:
    with path.open("rb") as file:
        if end:
            file.seek(max(0, path.stat().st_size - _HEAD))
        return file.read(_HEAD)
