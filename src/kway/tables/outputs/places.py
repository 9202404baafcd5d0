"""Where outputs go: those of a verb are tested before the work begins, those of Python before a file is written.

An output never replaces an input, a file of an input folder or another output; a file that kway did not write is
replaced only with --force, or force=True; the folder must be there and take a file. A mistake here would cost the data,
or the result of an hour.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from io import DEFAULT_BUFFER_SIZE
from pathlib import Path
from typing import NamedTuple

from kway.errors import UsageError

_FIGURE_MARKS = (b"Software\0kway", b"<dc:title>kway</dc:title>")  # of a png and an svg; report.export puts them in
_ANSWER = re.compile(r"prediction(\nlabel_\d+\nscore_\d+)*((\np_[^\n]*){2,})?(\nset)?")  # as predict names its columns


class Output(NamedTuple):
    """A file to write: its option, its place, what such a file is called, how one of kway's is told, what forces it."""

    option: str
    path: Path
    what: str
    is_ours: Callable[[Path], bool]
    remedy: str = "--force"


def asked_in_python(path: str | Path, what: str, is_ours: Callable[[Path], bool]) -> Output:
    """An output whose place is the argument `path` of a function that has `force`, too."""
    return Output("path", Path(path), what, is_ours, "force=True")


def check_places(outputs: Sequence[Output], inputs: Mapping[str, str | Path | None], force: bool) -> None:
    """An error where an output cannot, or must not, be written."""
    for i, output in enumerate(outputs):
        for other in outputs[:i]:
            if _same(output.path, other.path):
                raise UsageError(f"{other.option} and {output.option} are both {output.path}; give each its own file")
        refuse_inputs(output, inputs)
        check_folder(output.option, output.path)
        refuse_foreign(output, force)


def refuse_inputs(output: Output, inputs: Mapping[str, str | Path | None]) -> None:
    """An error where the output would replace what was read."""
    for name, given in inputs.items():
        if given is not None:
            _refuse_input(output, name, Path(given))


def refuse_foreign(output: Output, force: bool) -> None:
    """An error where the output would replace a file that kway did not write."""
    if force or not output.path.is_file() or output.is_ours(output.path) or is_nobodys(output.path):
        return
    raise UsageError(
        f"{output.option} {output.path} exists and is no {output.what} that kway wrote; "
        f"name another place, or replace it with {output.remedy}"
    )


def figure_outputs(option: str, folder: Path, names: Sequence[str]) -> list[Output]:
    """The files of figures of these names that a folder would take; none where it is still to be made."""
    if not folder.is_dir():
        return []
    files = (folder / f"{name}{ending}" for name in names for ending in (".svg", ".png"))
    return [Output(option, file, "figure", is_figure) for file in files]


def refuse_as_folder(option: str, folder: Path, outputs: Sequence[Output]) -> None:
    """An error where a file is to be written at the very place of a folder."""
    for output in outputs:
        if _same(output.path, folder):
            raise UsageError(
                f"{output.option} and {option} are both {folder}, a file and a folder; give each its own place"
            )


def check_folder(option: str, path: Path) -> None:
    """An error where no file can be made at `path`."""
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise UsageError(f"{option} {path} is a device or a pipe, not a file; name a file")
    folder = path.resolve().parent  # where a link leads
    if not folder.is_dir():
        raise UsageError(f"no folder {path.parent} to write {path.name} in; make it first")
    trial = folder / f".{path.name[:100]}.{secrets.token_hex(4)}.part"
    try:
        os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        trial.unlink()
    except OSError as error:
        raise UsageError(
            f"{option} {path} cannot be written ({error.strerror}); name a place where files can be made"
        ) from error


def check_output_folder(option: str, folder: Path) -> None:
    """An error where `folder` is no folder that takes files, nor can be made beside others."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{option} {folder} is a file; name a folder")
    check_folder(option, folder / "figure" if folder.is_dir() else folder)


def _refuse_input(output: Output, name: str, given: Path) -> None:
    """An error where the output is an input, or, unless kway wrote it, a file inside one."""
    if _same(output.path, given):
        raise UsageError(f"{output.option} {output.path} is {name} itself, which would be lost; write to another file")
    if not given.is_dir() or not output.path.is_file() or output.is_ours(output.path):
        return
    if given.resolve() in output.path.resolve().parents:
        raise UsageError(
            f"{output.option} {output.path} is a file of {name}, which would be lost; write to another file"
        )


def _same(a: Path, b: Path) -> bool:
    if a.exists() and b.exists():
        return a.samefile(b)
    return a.resolve() == b.resolve()


# ---- files that kway wrote, by what is in them


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

    from kway.errors import InputError
    from kway.tables.sources.table_files import table_source
    from kway.tables.sources.text_form import csv_rows

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
            file.seek(max(0, path.stat().st_size - DEFAULT_BUFFER_SIZE))
        return file.read(DEFAULT_BUFFER_SIZE)
