"""Codes of rows that come in blocks: no more than one block of rows is in memory at a time.

    blocks      an array (n, d), which may be a memory map; a folder of .npy files, or of parquet files with numeric
                columns, in the order of their names; or any iterable of blocks (m, d), such as a generator
    folder      contains one file with the codes of each finished block. After an interruption, the work resumes after
                the last file; a generator is run from its start, and its first blocks are skipped

The center is the mean of the first block. Files are written atomically. In memory the codes grow in place
(`GrowingArrays`), so that at most one word of every row exists twice: each row of head (P, n) is an array of its own,
and widest (1,) is the maximum over the blocks. `realloc` extends an array by moving pages, without copying. With a list
of pieces, a hundred million codes of 66 bytes took 15 GiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.codes.bits import reorder_rows
from kway.kernels.jit import frozen
from kway.labels import check_width
from kway.memory import BLOCK_BYTES, rows_per_block
from kway.progress import track
from kway.search.codecs.bits import CODE_ARRAYS, BitFrame, BitRows, Bits
from kway.search.codecs.int8 import ByteRows, Int8
from kway.search.metrics import Metric
from kway.tables.labeled_rows import number_rows
from kway.tables.outputs import replacing
from kway.tables.row_stream import row_stream
from kway.tables.sources.table_files import parquet_files
from kway.validation import plain_rows

_HEAD, _MAXIMUM = "head", "widest"  # arrays that do not grow along their rows


class GrowingArrays:
    """The arrays of all blocks so far; `take` returns each array once and forgets it."""

    def __init__(self) -> None:
        self._arrays: dict[str, list[_GrowingArray]] = {}
        self._maximum: NDArray | None = None

    def add(self, arrays: Mapping[str, NDArray]) -> None:
        """Append the arrays of a block."""
        for key, array in arrays.items():
            if key == _MAXIMUM:
                self._maximum = array if self._maximum is None else np.maximum(self._maximum, array)
                continue
            pieces = list(array) if key == _HEAD else [array]
            if key not in self._arrays:
                self._arrays[key] = [_GrowingArray(piece) for piece in pieces]
                continue
            for array_so_far, piece in zip(self._arrays[key], pieces):
                array_so_far.add(piece)

    def take(self, key: str, order: NDArray[np.int64] | None = None) -> NDArray:
        """Return one array of all blocks, its rows in this order (n,)."""
        if key == _MAXIMUM:
            assert self._maximum is not None
            return self._maximum
        pieces = self._arrays.pop(key)
        if key == _HEAD:
            return _stack(pieces, order)
        array = pieces.pop().array
        if order is None or not len(array):  # `half` is empty if all lengths are 1
            return array
        if array.ndim == 1:
            return np.asarray(array[order])
        reorder_rows(array, order, np.zeros(len(array), dtype=bool))
        return array


class _GrowingArray:
    """An array that grows along its first axis."""

    def __init__(self, first: NDArray) -> None:
        self.array = np.array(first, order="C")  # a copy, because only an array that owns its memory can grow

    def add(self, piece: NDArray) -> None:
        """Append rows."""
        n, shape = len(self.array), self.array.shape[1:]
        self.array.resize((n + len(piece), *shape), refcheck=False)  # in place; nothing else refers to its memory
        self.array[n:] = piece


def _stack(planes: list[_GrowingArray], order: NDArray[np.int64] | None) -> NDArray:
    """Return planes (n,) as one matrix (P, n); each plane is freed after it is copied."""
    out: NDArray | None = None
    for w in range(len(planes)):
        plane = planes.pop(0).array
        if out is None:
            out = np.empty((len(planes) + 1, len(plane)), dtype=plane.dtype)
        if order is None:
            out[w] = plane
        else:
            np.take(plane, order, out=out[w], mode="clip")  # "clip" writes into out without a buffer
    assert out is not None
    return out


class Blocks(NamedTuple):
    """Blocks of rows."""

    each: Iterator[NDArray]  # blocks (m, d)
    number: int  # 0 if unknown


def iterate_blocks(source: Any) -> Blocks:
    """Return the blocks of an array, of a folder of .npy or parquet files, or of an iterable."""
    if isinstance(source, str | Path):
        files = sorted(Path(source).glob("*.npy"))
        if not files and parquet_files(Path(source)):
            return Blocks((number_rows(piece).rows for piece in row_stream(source)), 0)
        if not files:
            raise InputError(
                f"there are no .npy or parquet files in {str(source)!r}; pass a folder of either, an array, "
                "or an iterable of blocks"
            )
        arrays = [np.load(file, mmap_mode="r") for file in files]
        return Blocks((block for rows in arrays for block in _cut(rows)), sum(len(_starts(rows)) for rows in arrays))
    if hasattr(source, "shape"):
        return Blocks(_cut(source), len(_starts(source)))
    if not isinstance(source, Iterable):
        raise InputError(f"blocks must be an array, a folder or an iterable of arrays, got {type(source).__name__}")
    return Blocks(iter(source), len(source) if isinstance(source, Sized) else 0)


class BlockEncoder(Protocol):
    """Encodes blocks of rows; its settings are learned from the first block."""

    @property
    def n_features(self) -> int:
        """Number of columns of a row."""

    def facts(self) -> dict[str, NDArray]:
        """Return the arrays from which another run restores the encoder."""

    def encode(self, rows: NDArray) -> dict[str, NDArray]:
        """Return the arrays of a part, from checked rows (m, d)."""


Learn = Callable[[NDArray], BlockEncoder]  # learn(first block)
Restore = Callable[[Mapping[str, NDArray], str], BlockEncoder]  # restore(facts of an earlier run, folder)


class EncodedParts(NamedTuple):
    """The encoder, and the joined arrays of all parts."""

    encoder: BlockEncoder
    arrays: GrowingArrays


def encode_parts(
    source: Any, learn: Learn, restore: Restore, metric: Metric, folder: str | Path | None = None
) -> EncodedParts:
    """Encode all blocks in their order; finished parts are read from the folder."""
    blocks, home = iterate_blocks(source), None if folder is None else Path(folder)
    encoder, grown = None, GrowingArrays()
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        encoder = _read_encoder(home, restore)
    for i, block in enumerate(track(blocks.each, "coding rows", blocks.number)):
        file = None if home is None else home / f"part-{i:07d}.npz"
        if encoder is not None and file is not None and file.is_file():
            grown.add(_read_part(file, block, encoder.n_features))
            continue
        rows = _checked(block, metric, None if encoder is None else encoder.n_features)
        if encoder is None:
            encoder = learn(rows)
            if home is not None:
                _write(home / "frame.npz", encoder.facts())
        arrays = encoder.encode(rows)
        if file is not None:
            _write(file, arrays)
        grown.add(arrays)
    if encoder is None:
        raise InputError("an index needs at least one block of rows, got none")
    return EncodedParts(encoder, grown)


def encode_blocks(source: Any, store: Bits, metric: Metric, folder: str | Path | None = None) -> BitRows:
    """Return the codes of all blocks about the mean of the first one, in their order."""

    def learn(rows: NDArray) -> _FrameEncoder:
        return _FrameEncoder(store.frame(rows, metric.distance), metric)

    def restore(facts: Mapping[str, NDArray], where: str) -> _FrameEncoder:
        check_same_job(facts, store, metric, where, "center")
        frame = BitFrame(store.bits, metric.distance, frozen(facts["center"]), frozen(facts["signs"]))
        return _FrameEncoder(frame, metric)

    encoder, grown = encode_parts(source, learn, restore, metric, folder)
    assert isinstance(encoder, _FrameEncoder)
    return BitRows(encoder.frame, **{key: frozen(grown.take(key)) for key in CODE_ARRAYS})


def encode_byte_blocks(source: Any, store: Int8, metric: Metric) -> ByteRows:
    """Return the bytes of all blocks about the mean of the first one, in their order."""
    first, grown = None, GrowingArrays()
    blocks = iterate_blocks(source)
    for block in track(blocks.each, "coding rows", blocks.number):
        rows = _checked(block, metric, None if first is None else first.shape[1])
        codes = store.encode(rows, metric.distance) if first is None else first.like(rows)
        first = codes if first is None else first
        grown.add({"codes": codes.codes, "scale": codes.scale})
    if first is None:
        raise InputError("an index needs at least one block of rows, got none")
    return ByteRows(frozen(grown.take("codes")), frozen(grown.take("scale")), first.center)


class _FrameEncoder(NamedTuple):
    frame: BitFrame
    metric: Metric

    @property
    def n_features(self) -> int:
        return len(self.frame.center)

    def facts(self) -> dict[str, NDArray]:
        frame = self.frame
        return job_settings(frame.bits, self.metric) | {"center": frame.center, "signs": frame.signs}

    def encode(self, rows: NDArray) -> dict[str, NDArray]:
        return code_arrays(self.frame.encode(rows))


def _cut(rows: Any) -> Iterator[NDArray]:
    starts = _starts(rows)
    return (rows[start : start + starts.step] for start in starts)


def _starts(rows: Any) -> range:
    return range(0, len(rows), rows_per_block(4 * rows.shape[-1], BLOCK_BYTES))


def _checked(block: Any, metric: Metric, n_features: int | None) -> NDArray:
    rows = plain_rows(block, "rows")
    metric.check(rows.shape[1])
    check_width(rows, n_features)
    return np.asarray(metric.prepare(rows))


def _read_part(file: Path, block: Any, n_features: int) -> dict[str, NDArray]:
    """Return the arrays of a part; raise InputError if the block has another shape."""
    with np.load(file) as stored:
        arrays = dict(stored)
    n = len(arrays["factor"])
    if tuple(block.shape) != (n, n_features):
        raise InputError(
            f"{file.name} contains {n:,} rows of {n_features} columns, but the block has shape {tuple(block.shape)}; "
            "pass the same blocks as before, or another folder"
        )
    return arrays


def code_arrays(codes: BitRows) -> dict[str, NDArray]:
    """Return the arrays of a part."""
    return {key: getattr(codes, key) for key in CODE_ARRAYS}


def job_settings(bits: int, metric: Metric) -> dict[str, NDArray]:
    """Return the settings that all parts in a folder have in common."""
    return {"bits": np.array(bits), "metric": np.array(metric.name)}


def check_same_job(facts: Mapping[str, NDArray], store: Bits, metric: Metric, folder: str, key: str) -> None:
    """Raise InputError if the parts of a folder have other settings, or belong to an index whose facts lack `key`."""
    if key not in facts:
        raise InputError(f"{folder!r} contains parts of another kind of index; pass another folder")
    if (int(facts["bits"]), str(facts["metric"])) != (store.bits, metric.name):
        raise InputError(
            f"{folder!r} contains parts of {int(facts['bits'])} bits under {str(facts['metric'])!r}, not of "
            f"{store.bits} under {metric.name!r}; pass another folder"
        )


def _read_encoder(folder: Path, restore: Restore) -> BlockEncoder | None:
    """Return the encoder of the parts in the folder, or None if it is empty."""
    file = folder / "frame.npz"
    if not file.is_file():
        return None
    with np.load(file) as facts:
        return restore(dict(facts), str(folder))


def _write(file: Path, arrays: Mapping[str, NDArray]) -> None:
    with replacing(file) as draft, draft.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]  # numpy declares its own flag among the arrays
