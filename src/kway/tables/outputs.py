"""Output files: checks of their paths, and writing them so that each is either complete or absent.

A file is written as a draft in the same folder and then moved to its place (`replacing`). A draft is locked while it is
written, and the lock ends with its process. A draft without a lock was left by a killed process; the next write into
that folder deletes it. Symbolic links are followed, and only regular files are replaced.

An output never replaces an input, a file of an input folder or another output. A file that kway did not write is
replaced only with `force`. Commands check this before the work begins (`check_places`).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import DEFAULT_BUFFER_SIZE
from pathlib import Path
from typing import NamedTuple

from kway.errors import InputError, UsageError

_DRAFT = re.compile(r"\..+\.[0-9a-f]{8}\.kway-draft")
_KINDS = {"d": "a directory", "p": "a pipe (fifo)", "s": "a socket", "c": "a device", "b": "a device",
          "l": "a symbolic link that leads to itself"}  # fmt: skip
_FIGURE_MARKS = (b"Software\0kway", b"<dc:title>kway</dc:title>")  # report.style writes them into png and svg files
_PREDICTIONS = re.compile(r"prediction(\nlabel_\d+\nscore_\d+)*((\np_[^\n]*){2,})?(\nset)?")  # columns of `predict`


# ---- files that are complete or absent


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the path of a draft, which becomes `path` when the block ends without an error.

    After an error or a crash, `path` is as it was before. The permissions of a file that is replaced stay.
    """
    place = resolve_output(path)
    _delete_old_drafts(place.parent)
    draft, handle = _new_draft(place)
    try:
        yield draft
        _sync(draft)
        os.replace(draft, place)
        _sync(place.parent)
    finally:
        draft.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def lock_path(path: Path) -> Iterator[bool]:
    """Create a lock file for the time of the block, and yield whether this process has the lock.

    The lock ends with the process. On a file system without locks every process gets it.
    """
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    locked = _lock(handle) is not False and _is_at(handle, path)
    try:
        yield locked
    finally:
        if locked:
            path.unlink(missing_ok=True)
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file still has this path: the previous owner of the lock may have deleted it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def resolve_output(path: str | Path) -> Path:
    """Return the path with symbolic links followed; raise InputError if no regular file can be written to it."""
    place = Path(os.path.realpath(path))
    refuse_missing_folder(place)
    with suppress(FileNotFoundError):
        kind = describe_kind(place.lstat().st_mode)
        if kind is not None:
            raise InputError(f"{place} is {kind}; give the path of a regular file")
    return place


def refuse_missing_folder(path: Path) -> None:
    """Raise InputError if the folder of a file does not exist."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} to; create it first")


def describe_kind(mode: int) -> str | None:
    """Return what a path of this mode is, in words; None for a regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.filemode(mode)[0], "not a regular file")


def _new_draft(path: Path) -> tuple[Path, int]:
    """Create and lock a file next to `path`; return its path and its handle, which holds the lock.

    It has the permissions of the file that it will replace; those of a new file are the default ones (umask).
    """
    mode = stat.S_IMODE(path.stat().st_mode) & 0o777 if path.exists() else None
    while True:
        # tempfile is not used: it creates files that other users cannot read
        draft = path.with_name(f".{path.name[:50]}.{secrets.token_hex(4)}.kway-draft")
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
        if mode is not None:
            os.fchmod(handle, mode)
        if _lock(handle) is not False and draft.exists():  # another process may have deleted it before the lock
            return draft, handle
        os.close(handle)


def _delete_old_drafts(folder: Path) -> None:
    """Delete the drafts that no running process has locked."""
    with suppress(OSError), os.scandir(folder) as entries:
        for found in [entry.path for entry in entries if _DRAFT.fullmatch(entry.name)]:
            with suppress(OSError):
                handle = os.open(found, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    if _lock(handle):
                        os.unlink(found)
                finally:
                    os.close(handle)


def _lock(handle: int) -> bool | None:
    """Try to lock a file: True if it worked, False if another process has the lock, None without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Return the folder for results that can be computed again; it need not exist yet.

    It is $KWAY_CACHE, else $XDG_CACHE_HOME/kway, else ~/.cache/kway, else a folder among the temporary files.
    """
    own, shared = os.environ.get("KWAY_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own or shared:
        return Path(own) if own else Path(str(shared)) / "kway"
    try:
        return Path.home() / ".cache" / "kway"
    except RuntimeError:  # neither $HOME nor an account
        return Path(tempfile.gettempdir()) / f"kway-{os.getuid()}"


# ---- where outputs may go


class Output(NamedTuple):
    """A file to be written.

    `option` names it in messages, `what` is its kind ("model"), `is_ours` recognizes such a file written by kway, and
    `remedy` is the option that allows to replace another file.
    """

    option: str
    path: Path
    what: str
    is_ours: Callable[[Path], bool]
    remedy: str = "--force"


def python_output(path: str | Path, what: str, is_ours: Callable[[Path], bool]) -> Output:
    """Return the output of a function with the parameters `path` and `force`."""
    return Output("path", Path(path), what, is_ours, "force=True")


def check_places(outputs: Sequence[Output], inputs: Mapping[str, str | Path | None], force: bool) -> None:
    """Raise UsageError if an output cannot be written, or would replace a file that must stay."""
    for i, output in enumerate(outputs):
        for other in outputs[:i]:
            if _same(output.path, other.path):
                raise UsageError(f"{other.option} and {output.option} are both {output.path}; give each its own file")
        refuse_inputs(output, inputs)
        check_folder(output.option, output.path)
        refuse_foreign(output, force)


def refuse_inputs(output: Output, inputs: Mapping[str, str | Path | None]) -> None:
    """Raise UsageError if the output is an input, or a file inside an input folder that kway did not write."""
    for name, source in inputs.items():
        if source is None:
            continue
        given = Path(source)
        if _same(output.path, given):
            raise UsageError(f"{output.option} {output.path} is {name} itself, which would be lost; name another file")
        inside = given.is_dir() and output.path.is_file() and given.resolve() in output.path.resolve().parents
        if inside and not output.is_ours(output.path):
            raise UsageError(
                f"{output.option} {output.path} is a file of {name}, which would be lost; name another file"
            )


def refuse_foreign(output: Output, force: bool) -> None:
    """Raise UsageError if the output would replace a file that kway did not write."""
    if force or not output.path.is_file() or output.is_ours(output.path) or is_empty(output.path):
        return
    raise UsageError(
        f"{output.option} {output.path} exists and is no {output.what} that kway wrote; "
        f"name another file, or replace it with {output.remedy}"
    )


def figure_outputs(option: str, folder: Path, names: Sequence[str]) -> list[Output]:
    """Return the files of these figures in a folder; none if the folder does not exist yet."""
    if not folder.is_dir():
        return []
    files = (folder / f"{name}{ending}" for name in names for ending in (".svg", ".png"))
    return [Output(option, file, "figure", is_figure) for file in files]


def refuse_as_folder(option: str, folder: Path, outputs: Sequence[Output]) -> None:
    """Raise UsageError if a file and the folder of another option have the same path."""
    for output in outputs:
        if _same(output.path, folder):
            raise UsageError(
                f"{output.option} and {option} are both {folder}, a file and a folder; give each its own path"
            )


def check_folder(option: str, path: Path) -> None:
    """Raise UsageError if no file can be created at `path`."""
    try:
        folder = resolve_output(path).parent
    except InputError as error:
        raise UsageError(f"{option} cannot be written: {error}") from error
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"{option} {path} cannot be written ({error.strerror}); name a file in a folder that you can write to"
        ) from error


def check_output_folder(option: str, folder: Path) -> None:
    """Raise UsageError if `folder` is not a writable folder and cannot be created."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{option} {folder} is a file; name a folder")
    check_folder(option, folder / "figure" if folder.is_dir() else folder)


def _same(a: Path, b: Path) -> bool:
    if a.exists() and b.exists():
        return a.samefile(b)
    return a.resolve() == b.resolve()


# ---- files that kway wrote, recognized by their content


def is_model(path: Path) -> bool:
    """Return whether a file begins as a model file of kway does."""
    head = _read_bytes(path)
    return head[8:9] == b"{" and b'"__metadata__"' in head and b"kway" in head


def is_report(path: Path) -> bool:
    """Return whether a file ends as a report of kway does, or is empty."""
    tail = _read_bytes(path, end=True)
    return not tail or b"Written by kway" in tail


def is_figure(path: Path) -> bool:
    """Return whether the metadata of an image file names kway."""
    head = _read_bytes(path)
    return any(mark in head for mark in _FIGURE_MARKS)


def is_drift_figure(path: Path) -> bool:
    """Return whether a figure or a page with a figure was written by kway."""
    return is_figure(path) or b"kway drift" in _read_bytes(path)


def is_predictions(path: Path, kept: Sequence[str] = ()) -> bool:
    """Return whether a table has the columns of `kway predict`, preceded only by columns of `kept`."""
    names = [name.removesuffix(" (input)") if name not in kept else name for name in _column_names(path)]
    if "prediction" not in names:
        return False
    first = len(names) - 1 - names[::-1].index("prediction")  # a kept column may have that name, too
    return set(names[:first]) <= set(kept) and _PREDICTIONS.fullmatch("\n".join(names[first:])) is not None


def has_columns(path: Path, names: Sequence[str]) -> bool:
    """Return whether a file is a table that kway wrote with these columns, among others."""
    return set(names) <= set(_column_names(path))


def is_empty(path: Path) -> bool:
    """Return whether a file has no content."""
    return path.stat().st_size == 0


def _column_names(path: Path) -> list[str]:
    """Return the columns of a table that is written as kway writes tables; [] for any other file."""
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
        cells = next((row.cells for row in csv_rows([first])), [])
    except (InputError, OSError, ValueError):
        return []
    quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    return [re.sub("^'(?=[=+@\t\r-])", "", cell) for cell in cells] if first == quoted else []


def _first_line(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return content.partition(b"\n")[0].decode()
    with content.open("rb") as file:
        return file.readline().rstrip(b"\n").decode()


def _read_bytes(path: Path, end: bool = False) -> bytes:
    with path.open("rb") as file:
        if end:
            file.seek(max(0, path.stat().st_size - DEFAULT_BUFFER_SIZE))
        return file.read(DEFAULT_BUFFER_SIZE)
