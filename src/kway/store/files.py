"""Paths of model files: what may be read, and where a save goes.

Only plain files are opened, so that a pipe cannot make a reader wait for ever; a link is followed, both ways.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from kway.errors import ModelFileError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe (fifo)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def open_model(path: Path) -> Iterator[BufferedReader]:
    """The file, open for reading; ModelFileError where there is none, or something else than a file."""
    try:
        # without waiting: opening a pipe otherwise blocks until somebody writes to it
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ModelFileError(_why_not(path, error)) from error
    try:
        _refuse_other_kinds(path, os.fstat(handle).st_mode)
    except ModelFileError:
        os.close(handle)
        raise
    with open(handle, "rb") as file:
        try:
            yield file
        except OSError as error:
            raise ModelFileError(_why_not(path, error)) from error


def place_of(path: str | Path) -> Path:
    """Where a save to `path` goes: the path itself, or what a link points to; refused where no file can be there."""
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise ModelFileError(f"no folder {place.parent} to write {place.name} in; make it first")
    with suppress(FileNotFoundError):
        _refuse_other_kinds(place, place.lstat().st_mode)
    return place


def _refuse_other_kinds(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no plain file")
        raise ModelFileError(f"{path} is {kind}; a model is one plain file: give the path of that")


def _why_not(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f"{path} is a link to {os.readlink(path)}, which is not there (No such file or directory)"
    kind = "" if not isinstance(error, OSError) or not path.is_socket() else "it is a socket: "
    return f"{path} cannot be read: {kind}{getattr(error, 'strerror', None) or error}"
