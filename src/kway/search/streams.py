"""Codes of rows that come as a stream of blocks: no more than a block of them is ever in memory.

    blocks      an array (n, d), perhaps a memory map; a folder of .npy files, in the order of their names; or any
                iterable of blocks (m, d), such as a generator
    folder      where parts are kept while they are made, one file a block; begun again after a kill, work goes on
                behind the last part (a generator is run again from its start, its first blocks are passed over)

The centre is that of the first block. Parts hold the arrays of stores/bits.py and appear only when complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.data.atomic import replacing
from kway.data.gate import plain_rows
from kway.errors import InputError
from kway.progress import track
from kway.search.metrics import Metric
from kway.search.stores.bits import BitFrame, BitRows, Bits

BLOCK = 2**25  # values of a block that is cut from an array: 128 MB in float32
_BY_ROW = {"head": 1, "rest": 0, "factor": 0, "half": 0}  # arrays of the codes, and the axis of their rows


class Blocks(NamedTuple):
    """Blocks (m, d) one after another, and how many they are, 0 where nobody knows."""

    each: Iterator[NDArray]
    number: int


def blocks_of(source: Any) -> Blocks:
    """The blocks of an array, of a folder of .npy files, or of an iterable."""
    if isinstance(source, str | Path):
        files = sorted(Path(source).glob("*.npy"))
        if not files:
            raise InputError(
                f"no .npy files in {str(source)!r}; give a folder of them, an array or an iterable of blocks"
            )
        arrays = [np.load(file, mmap_mode="r") for file in files]
        return Blocks((block for rows in arrays for block in _cut(rows)), sum(len(_starts(rows)) for rows in arrays))
    if hasattr(source, "shape"):
        return Blocks(_cut(source), len(_starts(source)))
    if not isinstance(source, Iterable):
        raise InputError(f"blocks must be an array, a folder or an iterable of arrays, got {type(source).__name__}")
    return Blocks(iter(source), len(source) if isinstance(source, Sized) else 0)


def code_blocks(source: Any, store: Bits, metric: Metric, folder: str | Path | None = None) -> BitRows:
    """The codes of all blocks, in their order."""
    blocks, home = blocks_of(source), None if folder is None else Path(folder)
    frame, parts, n = None, list[_Held | _Filed](), 0
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        frame = _read_frame(home, store, metric)
    for i, block in enumerate(track(blocks.each, "coding rows", blocks.number)):
        file = None if home is None else home / f"part-{i:07d}.npz"
        n += len(block)
        if frame is not None and file is not None and file.is_file():
            made = _Filed(file)
            made.fits(block, frame)
            parts.append(made)
            continue
        rows = _checked(block, metric, frame)
        if frame is None:
            frame = store.frame(rows, metric.distance)
            if home is not None:
                _write(home / "frame.npz", _frame_arrays(frame, metric))
        codes = frame.encode(rows)
        if file is not None:
            _write(file, _arrays(codes))
        parts.append(_Held(codes) if file is None else _Filed(file))
    if frame is None:
        raise InputError("an index needs at least one block of rows, got none")
    return _joined(frame, parts, n)


def _cut(rows: Any) -> Iterator[NDArray]:
    size = max(1, BLOCK // max(1, rows.shape[-1]))
    return (rows[start : start + size] for start in _starts(rows))


def _starts(rows: Any) -> range:
    return range(0, len(rows), max(1, BLOCK // max(1, rows.shape[-1])))


def _checked(block: Any, metric: Metric, frame: BitFrame | None) -> NDArray:
    rows = plain_rows(block, "rows")
    metric.check(rows.shape[1])
    if frame is not None and rows.shape[1] != len(frame.centre):
        raise InputError(f"a block has {rows.shape[1]} columns, the first had {len(frame.centre)}; give all the same")
    return np.asarray(metric.prepare(rows))


class _Held:
    """A part in memory; an array that was taken is let go."""

    def __init__(self, codes: BitRows) -> None:
        self.arrays = _arrays(codes)

    def take(self, key: str) -> NDArray:
        """One of its arrays."""
        return self.arrays.pop(key)


class _Filed:
    """A part on disk, whose arrays are read when they are taken."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def take(self, key: str) -> NDArray:
        """One of its arrays."""
        with np.load(self.file) as arrays:
            return np.asarray(arrays[key])

    def fits(self, block: Any, frame: BitFrame) -> None:
        """Refuse a block that cannot be the one it was made of."""
        n = len(self.take("factor"))
        if tuple(block.shape) != (n, len(frame.centre)):
            raise InputError(
                f"{self.file.name} holds {n:,} rows of {len(frame.centre)} columns, the block has shape "
                f"{tuple(block.shape)}; give the blocks that the parts were made of, or another folder"
            )


def _arrays(codes: BitRows) -> dict[str, NDArray]:
    return {key: getattr(codes, key) for key in (*_BY_ROW, "widest")}


def _frame_arrays(frame: BitFrame, metric: Metric) -> dict[str, NDArray]:
    return {"bits": np.array(frame.bits), "metric": np.array(metric.name), "centre": frame.centre, "signs": frame.signs}


def _read_frame(folder: Path, store: Bits, metric: Metric) -> BitFrame | None:
    """What the parts in the folder were made by, None where it is empty."""
    file = folder / "frame.npz"
    if not file.is_file():
        return None
    with np.load(file) as held:
        if (int(held["bits"]), str(held["metric"])) != (store.bits, metric.name):
            raise InputError(
                f"{str(folder)!r} holds parts of {int(held['bits'])} bits under {str(held['metric'])!r}, not of "
                f"{store.bits} under {metric.name!r}; give another folder"
            )
        return BitFrame(store.bits, metric.distance, frozen(held["centre"]), frozen(held["signs"]))


def _write(file: Path, arrays: Mapping[str, NDArray]) -> None:
    with replacing(file) as draft, draft.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]  # numpy declares its own flag among the arrays


def _joined(frame: BitFrame, parts: list[_Held | _Filed], n: int) -> BitRows:
    """All parts of n rows as one, an array at a time, so that at most one kind of array is held twice."""
    widest = np.max([part.take("widest") for part in parts], axis=0)
    whole = {key: _filled(parts, key, axis, n) for key, axis in _BY_ROW.items()}
    return BitRows(frame, **whole, widest=frozen(widest))


def _filled(parts: list[_Held | _Filed], key: str, axis: int, n: int) -> NDArray:
    piece = parts[0].take(key)
    if not piece.shape[axis]:  # halves, where all lengths are 1
        return frozen(piece)
    out, at = np.empty((piece.shape[0], n) if axis else (n, *piece.shape[1:]), dtype=piece.dtype), 0
    for i, part in enumerate(parts):
        piece = part.take(key) if i else piece
        end = at + piece.shape[axis]
        out[(slice(None),) * axis + (slice(at, end),)] = piece
        at = end
    return frozen(out)
