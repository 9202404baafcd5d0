"""Compressed files with a limit: a few kilobytes that unpack to more than memory holds are an error, not a crash.

Real tables pack 3 to 30 times, sparse ones up to some hundred; a bomb packs a thousand times. Both bounds must be
passed to be refused: RATIO, and LARGE, under which nothing is worth refusing.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from kway.errors import InputError

RATIO = 200
LARGE_ARCHIVE = 1 << 30  # bytes
_BLOCK = 1 << 20


def gunzipped(packed: bytes | Path, name: str) -> bytes:
    """The content of a gzip file."""
    size = len(packed) if isinstance(packed, bytes) else packed.stat().st_size
    blocks, total = [], 0
    try:
        with gzip.open(packed if isinstance(packed, Path) else io.BytesIO(packed)) as file:
            while block := file.read(_BLOCK):
                blocks.append(block)
                total += len(block)
                refuse_bomb(size, total, name)
    except (EOFError, OSError, zlib.error) as error:  # EOFError would read as Ctrl-D further out
        raise InputError(
            f"{name} cannot be read as gzip: {error or 'it ends too early'}; pack it again, or give it unpacked"
        ) from error
    return b"".join(blocks)


def refuse_bomb(packed: int, unpacked: int, name: str) -> None:
    """An error where a file unpacks to far more than a file of data would."""
    if unpacked > LARGE_ARCHIVE and unpacked > RATIO * max(packed, 1):
        raise InputError(
            f"{name} has {packed:,} bytes and unpacks to {unpacked:,} or more, over {RATIO} times as many, as no file "
            "of data does; unpack it yourself, if you trust it, and give that"
        )


def refuse_npz_bomb(path: Path) -> None:
    """The sizes an npz file declares, checked before anything is allocated for them."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        refuse_bomb(path.stat().st_size, sum(m.file_size for m in members), path.name)
        for member in members:
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    _refuse_false_shape(file, member, path.name)


def _refuse_false_shape(file: IO[bytes], member: zipfile.ZipInfo, name: str) -> None:
    """An array that says it is larger than the bytes that are there."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    count = 1
    for side in shape:
        count *= int(side)
    if not dtype.hasobject and count * dtype.itemsize > member.file_size:
        raise InputError(
            f"{name} says that {member.filename} is of shape {shape} and dtype {dtype}, {count * dtype.itemsize:,} "
            f"bytes, and has {member.file_size:,}; it is damaged: write it again"
        )
