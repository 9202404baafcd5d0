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

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.codes.bits import reorder_rows
from kway.labels import check_width
from kway.memory import BLOCK_BYTES, rows_per_block
from kway.progress import track
from kway.search.codecs.stores import Codes, Store
from kway.search.metrics import Metric
from kway.tables.labeled_rows import number_rows
from kway.tables.outputs import replacing
from kway.tables.row_stream import row_stream
from kway.tables.sources.table_files import parquet_files
from kway.validation import plain_rows

_HEAD = "codes.head"  # (P, n), of which each row is an array of its own
_FRAME = "frame.npz"  # the file with what was learned from the first block
_NOT_BY_ROW = ("codes.widest", "codes.center", "codes.signs")  # `widest` grows with the blocks, the others are the same


class GrowingArrays:
    """The arrays of all blocks so far."""

    def __init__(self) -> None:
        self._arrays: dict[str, list[_GrowingArray]] = {}
        self._not_by_row: dict[str, NDArray] = {}

    def add(self, arrays: Mapping[str, NDArray]) -> None:
        """Append the arrays of a block."""
        for key, array in arrays.items():
            if key in _NOT_BY_ROW:
                self._not_by_row[key] = np.maximum(self._not_by_row.get(key, array), array)
                continue
            pieces = list(array) if key == _HEAD else [array]
            if key not in self._arrays:
                self._arrays[key] = [_GrowingArray(piece) for piece in pieces]
                continue
            for array_so_far, piece in zip(self._arrays[key], pieces):
                array_so_far.add(piece)

    def take(self, key: str, order: NDArray[np.int64] | None = None) -> NDArray:
        """Return one array of all blocks, its rows in this order (n,), and forget it."""
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

    def take_all(self, order: NDArray[np.int64] | None = None) -> dict[str, NDArray]:
        """Return all arrays, their rows in this order (n,), and forget them."""
        return self._not_by_row | {key: self.take(key, order) for key in list(self._arrays)}


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


@dataclass
class BlockEncoder(ABC):
    """Encodes blocks of rows; what it learns from the first block, another run can restore."""

    store: Store
    metric: Metric
    n_features: int | None = field(default=None, init=False)  # number of columns, known after the first block

    kind: ClassVar[str]  # what the parts in a folder are

    @abstractmethod
    def learn(self, rows: NDArray) -> None:
        """Learn from the first block (m, d)."""

    @abstractmethod
    def facts(self) -> dict[str, NDArray]:
        """Return what was learned."""

    @abstractmethod
    def restore(self, facts: Mapping[str, NDArray]) -> None:
        """Restore what another run has learned."""

    @abstractmethod
    def encode(self, rows: NDArray) -> dict[str, NDArray]:
        """Return the arrays of a part, from checked rows (m, d)."""

    @property
    def job(self) -> str:
        """What all parts in a folder have in common."""
        return f"{self.kind} of {self.store.bits_per_value} bits under {self.metric.name!r}"


def encode_parts(source: Any, encoder: BlockEncoder, folder: str | Path | None = None) -> GrowingArrays:
    """Encode all blocks in their order; finished parts are read from the folder."""
    blocks, home, grown = iterate_blocks(source), None if folder is None else Path(folder), GrowingArrays()
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        _restore(encoder, home)
    for i, block in enumerate(track(blocks.each, "coding rows", blocks.number)):
        file = None if home is None else home / f"part-{i:07d}.npz"
        if file is not None and file.is_file() and encoder.n_features is not None:
            grown.add(_read_part(file, block, encoder.n_features))
            continue
        rows = _checked(block, encoder.metric, encoder.n_features)
        if encoder.n_features is None:
            encoder.learn(rows)
            encoder.n_features = rows.shape[1]
            if home is not None:
                common = {"job": np.array(encoder.job), "n_features": np.array(encoder.n_features)}
                _write(home / _FRAME, common | encoder.facts())
        arrays = encoder.encode(rows)
        if file is not None:
            _write(file, arrays | {"n_rows": np.array(len(rows))})
        grown.add(arrays)
    if encoder.n_features is None:
        raise InputError("an index needs at least one block of rows, got none")
    return grown


def encode_blocks(source: Any, store: Store, metric: Metric, folder: str | Path | None = None) -> Codes:
    """Return the codes of all blocks about the mean of the first one, in their order."""
    codes = store.restore(encode_parts(source, _RowEncoder(store, metric), folder).take_all(), metric.distance)
    assert codes is not None
    return codes


@dataclass
class _RowEncoder(BlockEncoder):
    codes: Codes | None = None  # of no rows; they encode more rows about the same center

    kind = "codes of rows"

    def learn(self, rows: NDArray) -> None:
        codes = self.store.encode(rows, self.metric.distance)
        self.codes = codes and codes.take(np.empty(0, np.int64))

    def facts(self) -> dict[str, NDArray]:
        assert self.codes is not None
        return self.codes.arrays()

    def restore(self, facts: Mapping[str, NDArray]) -> None:
        self.codes = self.store.restore(dict(facts), self.metric.distance)

    def encode(self, rows: NDArray) -> dict[str, NDArray]:
        assert self.codes is not None
        return self.codes.like(rows).arrays()


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
    n = int(arrays.pop("n_rows"))
    if tuple(block.shape) != (n, n_features):
        raise InputError(
            f"{file.name} contains {n:,} rows of {n_features} columns, but the block has shape {tuple(block.shape)}; "
            "pass the same blocks as before, or another folder"
        )
    return arrays


def _restore(encoder: BlockEncoder, folder: Path) -> None:
    """Restore the encoder of the parts in the folder, if there are any; InputError if they are of another job."""
    file = folder / _FRAME
    if not file.is_file():
        return
    with np.load(file) as stored:
        facts = dict(stored)
    job = str(facts.pop("job", "parts of another kind"))
    if job != encoder.job:
        raise InputError(f"{str(folder)!r} contains {job}, not {encoder.job}; pass another folder")
    encoder.n_features = int(facts.pop("n_features"))
    encoder.restore(facts)


def _write(file: Path, arrays: Mapping[str, NDArray]) -> None:
    with replacing(file) as draft, draft.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]  # numpy declares its own flag among the arrays
