"""Files that appear only when they are complete: written beside their place, then moved into it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path in the same folder; on leaving it is made durable and takes the place of `path`.

    An error, or a crash, leaves whatever was at `path` before.
    """
    path = Path(path)
    # not tempfile: its files are closed to other users, and the mode would stay with the finished file
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield draft
        _sync(draft)
        os.replace(draft, path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
