"""Files that appear only when they are complete: written beside their place, then moved into it.

A draft is locked while it is written, and the lock ends with its process, so a draft without one was left by a writer
that was killed: the next file written into that folder takes it away. A link is followed, so that it still is one
afterwards, and only plain files are replaced. `alone_at` keeps a second writer out of a whole folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kway.errors import InputError

_DRAFT = re.compile(r"\..+\.[0-9a-f]{8}\.kway-draft")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe (fifo)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "one of a ring of symbolic links",
}


class _Draft(NamedTuple):
    path: Path
    handle: int  # holds the lock


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path in the same folder; on leaving it is made durable and takes the place of `path`.

    An error, or a crash, leaves whatever was at `path` before.
    """
    place = place_of(path)
    _clean(place.parent)
    draft = _new_draft(place)
    try:
        yield draft.path
        _sync(draft.path)
        os.replace(draft.path, place)
        _sync(place.parent)
    finally:
        draft.path.unlink(missing_ok=True)
        os.close(draft.handle)


@contextmanager
def alone_at(path: Path) -> Iterator[bool]:
    """Whether nobody else is inside with this path, a lock file that goes afterwards; its lock ends with the process.

    Where the file system has no locks everybody is let in.
    """
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    alone = _lock(handle) is not False and _is_at(handle, path)
    try:
        yield alone
    finally:
        if alone:
            path.unlink(missing_ok=True)
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file still has this path: whoever was inside may have just taken it away."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def place_of(path: str | Path) -> Path:
    """Where a file written to `path` goes: there, or where a link points to; refused where no file can be there."""
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise InputError(f"no folder {place.parent} to write {place.name} in; make it first")
    with suppress(FileNotFoundError):
        kind = other_kind(place.lstat().st_mode)
        if kind is not None:
            raise InputError(f"{place} is {kind}; give the path of a plain file")
    return place


def other_kind(mode: int) -> str | None:
    """What a path of this mode is, in words, where that is no plain file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no plain file")


def _new_draft(path: Path) -> _Draft:
    """A new file beside `path`, locked by this process."""
    while True:
        # not tempfile: its files are closed to other users, and the mode would stay with the finished file
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.kway-draft")
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        locked = _lock(handle)
        if locked is not False and draft.exists():  # another's `_clean` may have come between the two lines
            return _Draft(draft, handle)
        os.close(handle)


def _clean(folder: Path) -> None:
    """Take away the drafts that no living process writes."""
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
    """Whether the file is ours now; None where the file system has no locks (drafts are then left alone)."""
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
    """Where kway keeps what it can compute again: $KWAY_CACHE, else $XDG_CACHE_HOME/kway, else ~/.cache/kway.

    The folder of temporary files is used if there is no home. The folder need not exist yet.
    """
    own = os.environ.get("KWAY_CACHE")
    if own:
        return Path(own)
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given) / "kway"
    try:
        return Path.home() / ".cache" / "kway"
    except RuntimeError:  # neither $HOME nor an account
        return Path(tempfile.gettempdir()) / f"kway-{os.getuid()}"
