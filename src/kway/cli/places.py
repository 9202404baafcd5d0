"""Where the outputs of a verb go, tested before the work begins.

An output never replaces an input or another output; a file that kway did not write is replaced only with --force;
the folder must be there and take a file. A mistake here would cost the data, or the result of an hour.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kway.cli.usage import UsageError

_HEAD = 4096  # bytes of a file looked at


class Output(NamedTuple):
    """A file to write: its option, its place, what such a file is called, and how one of kway's is told."""

    option: str
    path: Path
    what: str
    is_ours: Callable[[Path], bool]


def check_places(outputs: Sequence[Output], inputs: dict[str, str | Path | None], force: bool) -> None:
    """An error where an output cannot, or must not, be written."""
    for i, output in enumerate(outputs):
        for other in outputs[:i]:
            if _same(output.path, other.path):
                raise UsageError(f"{other.option} and {output.option} are both {output.path}; give each its own file")
        for name, given in inputs.items():
            if given is not None and _same(output.path, Path(given)):
                raise UsageError(
                    f"{output.option} {output.path} is {name} itself, which would be lost; write to another file"
                )
        check_folder(output.option, output.path)
        _refuse_foreign(output, force)


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


def is_model(path: Path) -> bool:
    """Whether a file is a model of kway's, by its first bytes; the manifest lies in the header."""
    head = _bytes(path)
    return head[8:9] == b"{" and b'"__metadata__"' in head and b"kway" in head


def is_report(path: Path) -> bool:
    """Whether a file is a page that kway wrote; an empty one is nobody's."""
    tail = _bytes(path, end=True)
    return not tail or b"Written by kway" in tail


def is_predictions(path: Path) -> bool:
    """Whether a file holds predictions, by the names of its columns."""
    from kway.data.sources.table_files import table_source
    from kway.data.sources.text_form import HEAD
    from kway.errors import InputError

    try:
        source = table_source(path)
    except InputError:
        return False
    if source.suffix == ".parquet":
        return b"prediction" in _bytes(path, end=True)
    content = source.content
    if isinstance(content, Path):
        with content.open("rb") as file:
            content = file.read(HEAD)
    return b'"prediction"' in content.partition(b"\n")[0]


def is_nobodys(path: Path) -> bool:
    """An empty file."""
    return path.stat().st_size == 0


def _refuse_foreign(output: Output, force: bool) -> None:
    if force or not output.path.exists() or output.is_ours(output.path) or is_nobodys(output.path):
        return
    raise UsageError(
        f"{output.option} {output.path} exists and is no {output.what} that kway wrote; "
        "name another file, or replace it with --force"
    )


def _same(a: Path, b: Path) -> bool:
    if a.exists() and b.exists():
        return a.samefile(b)
    return a.resolve() == b.resolve()


def _bytes(path: Path, end: bool = False) -> bytes:
    with path.open("rb") as file:
        if end:
            file.seek(max(0, path.stat().st_size - _HEAD))
        return file.read(_HEAD)
