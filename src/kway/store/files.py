"""Paths of model files: what may be read, and where a save goes.

Only plain files are opened, so that a pipe cannot make a reader wait for ever; a link is followed, both ways.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from kway.data.outputs import atomic
from kway.errors import InputError, ModelFileError


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


def model_path(path: str | Path) -> Path:
    """The path, where it is one."""
    try:
        return Path(os.fsdecode(path))
    except TypeError as error:
        raise ModelFileError(f"a model file is named by its path, a str or a Path; got {path!r}") from error


def model_place(path: str | Path) -> Path:
    """Where a save to `path` goes."""
    try:
        return atomic.place_of(model_path(path))
    except InputError as error:
        raise ModelFileError(str(error)) from error


def _refuse_other_kinds(path: Path, mode: int) -> None:
    kind = atomic.other_kind(mode)
    if kind is not None:
        raise ModelFileError(f"{path} is {kind}; a model is one plain file: give the path of that")


def _why_not(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f"{path} is a link to {os.readlink(path)}, which is not there (No such file or directory)"
    kind = "" if not isinstance(error, OSError) or not path.is_socket() else "it is a socket: "
    return f"{path} cannot be read: {kind}{getattr(error, 'strerror', None) or error}"
