"""Codes of rows that come as a stream of blocks: no more than a block of them is ever in memory.

    blocks      an array (n, d), perhaps a memory map; a folder of .npy files, or of parquet whose columns are numbers,
                in the order of their names; or any iterable of blocks (m, d), such as a generator
    folder      where parts are kept while they are made, one file per block; after a kill, work resumes after the last
                part (a generator is run again from its start, its first blocks are skipped)

The center is that of the first block. Parts hold the arrays of Bits and appear only when complete. In memory the codes
grow in place (`Grown`), so that no more of them than one plane of words is ever held twice: head (P, m) grows plane by
plane, rest and factor along their rows, widest (1,) is the largest so far. A longer array is requested from `realloc`,
which moves pages instead of numbers; with a list of pieces a hundred million codes of 66 bytes took 15 GiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.codes.bits import reorder_rows
from kway.kernels.jit import frozen
from kway.labels import check_width
from kway.progress import track
from kway.search.codecs.bits import BitFrame, BitRows, Bits
from kway.search.codecs.int8 import ByteRows, Int8
from kway.search.metrics import Metric
from kway.tables.labeled_rows import number_rows
from kway.tables.outputs import replacing
from kway.tables.row_stream import row_stream
from kway.tables.sources.table_files import parquet_files
from kway.validation import plain_rows

_SPARE = 32  # a growing array takes 1 / SPARE more than it needs, so that many small blocks cost no more than few
_PLANES, _MOST = "head", "widest"


class Grown:
    """The arrays of the blocks so far; `take` gives each away once."""

    def __init__(self) -> None:
        self._long: dict[str, list[_Long]] = {}
        self._most: NDArray | None = None

    def add(self, arrays: Mapping[str, NDArray]) -> None:
        """A block's arrays."""
        for key, array in arrays.items():
            if key == _MOST:
                self._most = array if self._most is None else np.maximum(self._most, array)
                continue
            pieces = list(array) if key == _PLANES else [array]
            if key not in self._long:
                self._long[key] = [_Long(piece) for piece in pieces]
                continue
            for long, piece in zip(self._long[key], pieces):
                long.add(piece)

    def take(self, key: str, order: NDArray[np.int64] | None = None) -> NDArray:
        """One array of all blocks, its rows in this order (n,)."""
        if key == _MOST:
            assert self._most is not None
            return self._most
        long = self._long.pop(key)
        if key == _PLANES:
            return _stacked(long, order)
        whole = long.pop().whole()
        if order is None or not len(whole):  # halves, where all lengths are 1
            return whole
        if whole.ndim == 1:
            return np.asarray(whole[order])
        reorder_rows(whole, order, np.zeros(len(whole), dtype=bool))
        return whole


class _Long:
    """An array that grows along its first axis."""

    def __init__(self, first: NDArray) -> None:
        self.array, self.n = np.array(first, order="C"), len(first)  # a copy: only an array of its own can grow

    def add(self, piece: NDArray) -> None:
        """More rows."""
        end = self.n + len(piece)
        if end > len(self.array):
            self._resize(max(end, self.n + self.n // _SPARE))
        self.array[self.n : end] = piece
        self.n = end

    def whole(self) -> NDArray:
        """All rows."""
        self._resize(self.n)
        return self.array

    def _resize(self, n: int) -> None:
        self.array.resize((n, *self.array.shape[1:]), refcheck=False)  # nobody else has seen it


def _stacked(planes: list[_Long], order: NDArray[np.int64] | None) -> NDArray:
    """Planes (n,) as one matrix (P, n), each let go of when it is copied."""
    out: NDArray | None = None
    for w in range(len(planes)):
        plane = planes.pop(0).whole()
        if out is None:
            out = np.empty((len(planes) + 1, len(plane)), dtype=plane.dtype)
        if order is None:
            out[w] = plane
        else:
            np.take(plane, order, out=out[w], mode="clip")  # "clip" writes straight into out
    assert out is not None
    return out


STREAM_BLOCK = 2**25  # values of a block that is cut from an array: 128 MB in float32
CODE_ARRAYS = ("head", "rest", "factor", "half", "widest")


class Blocks(NamedTuple):
    """Blocks (m, d) one after another, and how many they are, 0 where nobody knows."""

    each: Iterator[NDArray]
    number: int


def blocks_of(source: Any) -> Blocks:
    """The blocks of an array, of a folder of .npy files or of tables of numbers, or of an iterable."""
    if isinstance(source, str | Path):
        files = sorted(Path(source).glob("*.npy"))
        if not files and parquet_files(Path(source)):
            return Blocks((number_rows(piece).rows for piece in row_stream(source)), 0)
        if not files:
            raise InputError(
                f"no .npy files in {str(source)!r}, and no parquet; give a folder of either, an array or an iterable "
                "of blocks"
            )
        arrays = [np.load(file, mmap_mode="r") for file in files]
        return Blocks((block for rows in arrays for block in _cut(rows)), sum(len(_starts(rows)) for rows in arrays))
    if hasattr(source, "shape"):
        return Blocks(_cut(source), len(_starts(source)))
    if not isinstance(source, Iterable):
        raise InputError(f"blocks must be an array, a folder or an iterable of arrays, got {type(source).__name__}")
    return Blocks(iter(source), len(source) if isinstance(source, Sized) else 0)


class Coder(Protocol):
    """What blocks are coded by, once it is known."""

    @property
    def n_features(self) -> int:
        """Columns of a row."""

    def facts(self) -> dict[str, NDArray]:
        """Its arrays, in the file that parts lie beside."""

    def code(self, rows: NDArray) -> dict[str, NDArray]:
        """The arrays of a part, of checked rows (m, d)."""


class Learner(Protocol):
    """Makes a coder, from the first block or from the file of an earlier run."""

    def first(self, rows: NDArray) -> Coder:
        """By the first block."""

    def again(self, held: Mapping[str, NDArray], folder: str) -> Coder:
        """As `facts` were kept; refuses those of another job."""


class Coded(NamedTuple):
    """What the blocks were coded by, and the arrays of all parts, one after another."""

    by: Coder
    arrays: Grown


def code_parts(source: Any, learner: Learner, metric: Metric, folder: str | Path | None = None) -> Coded:
    """All blocks coded, in their order; those that a folder holds are read from there."""
    blocks, home = blocks_of(source), None if folder is None else Path(folder)
    coder, held = None, Grown()
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        coder = _read_coder(home, learner)
    for i, block in enumerate(track(blocks.each, "coding rows", blocks.number)):
        file = None if home is None else home / f"part-{i:07d}.npz"
        if coder is not None and file is not None and file.is_file():
            held.add(_read_part(file, block, coder.n_features))
            continue
        rows = _checked(block, metric, None if coder is None else coder.n_features)
        if coder is None:
            coder = learner.first(rows)
            if home is not None:
                _write(home / "frame.npz", coder.facts())
        arrays = coder.code(rows)
        if file is not None:
            _write(file, arrays)
        held.add(arrays)
    if coder is None:
        raise InputError("an index needs at least one block of rows, got none")
    return Coded(coder, held)


def code_blocks(source: Any, store: Bits, metric: Metric, folder: str | Path | None = None) -> BitRows:
    """The codes of all blocks about the mean of the first, in their order."""
    coder, held = code_parts(source, _AboutMean(store, metric), metric, folder)
    assert isinstance(coder, _FrameCoder)
    return BitRows(coder.frame, **{key: frozen(held.take(key)) for key in CODE_ARRAYS})


def byte_blocks(source: Any, store: Int8, metric: Metric) -> ByteRows:
    """The bytes of all blocks about the mean of the first, in their order."""
    first, held = None, Grown()
    blocks = blocks_of(source)
    for block in track(blocks.each, "coding rows", blocks.number):
        rows = _checked(block, metric, None if first is None else first.shape[1])
        codes = store.encode(rows, metric.distance) if first is None else first.like(rows)
        first = codes if first is None else first
        held.add({"codes": codes.codes, "scale": codes.scale})
    if first is None:
        raise InputError("an index needs at least one block of rows, got none")
    return ByteRows(frozen(held.take("codes")), frozen(held.take("scale")), first.centre)


class _FrameCoder(NamedTuple):
    frame: BitFrame
    metric: Metric

    @property
    def n_features(self) -> int:
        return len(self.frame.centre)

    def facts(self) -> dict[str, NDArray]:
        frame = self.frame
        return job_facts(frame.bits, self.metric) | {"centre": frame.centre, "signs": frame.signs}

    def code(self, rows: NDArray) -> dict[str, NDArray]:
        return part_arrays(self.frame.encode(rows))


class _AboutMean(NamedTuple):
    store: Bits
    metric: Metric

    def first(self, rows: NDArray) -> Coder:
        return _FrameCoder(self.store.frame(rows, self.metric.distance), self.metric)

    def again(self, held: Mapping[str, NDArray], folder: str) -> Coder:
        refuse_other_job(held, self.store, self.metric, folder, "centre")
        frame = BitFrame(self.store.bits, self.metric.distance, frozen(held["centre"]), frozen(held["signs"]))
        return _FrameCoder(frame, self.metric)


def _cut(rows: Any) -> Iterator[NDArray]:
    size = max(1, STREAM_BLOCK // max(1, rows.shape[-1]))
    return (rows[start : start + size] for start in _starts(rows))


def _starts(rows: Any) -> range:
    return range(0, len(rows), max(1, STREAM_BLOCK // max(1, rows.shape[-1])))


def _checked(block: Any, metric: Metric, n_features: int | None) -> NDArray:
    rows = plain_rows(block, "rows")
    metric.check(rows.shape[1])
    check_width(rows, n_features)
    return np.asarray(metric.prepare(rows))


def _read_part(file: Path, block: Any, n_features: int) -> dict[str, NDArray]:
    """The arrays of a part; refuses a block that cannot be the one it was made of."""
    with np.load(file) as held:
        arrays = dict(held)
    n = len(arrays["factor"])
    if tuple(block.shape) != (n, n_features):
        raise InputError(
            f"{file.name} holds {n:,} rows of {n_features} columns, the block has shape "
            f"{tuple(block.shape)}; give the blocks that the parts were made of, or another folder"
        )
    return arrays


def part_arrays(codes: BitRows) -> dict[str, NDArray]:
    """The codes of a part."""
    return {key: getattr(codes, key) for key in CODE_ARRAYS}


def job_facts(bits: int, metric: Metric) -> dict[str, NDArray]:
    """What tells parts of one job from those of another."""
    return {"bits": np.array(bits), "metric": np.array(metric.name)}


def refuse_other_job(held: Mapping[str, NDArray], store: Bits, metric: Metric, folder: str, key: str) -> None:
    """A folder whose parts are of other codes, or of another kind of index, which has no `key`."""
    if key not in held:
        raise InputError(f"{folder!r} holds parts of another kind of index; give another folder")
    if (int(held["bits"]), str(held["metric"])) != (store.bits, metric.name):
        raise InputError(
            f"{folder!r} holds parts of {int(held['bits'])} bits under {str(held['metric'])!r}, not of "
            f"{store.bits} under {metric.name!r}; give another folder"
        )


def _read_coder(folder: Path, learner: Learner) -> Coder | None:
    """What the parts in the folder were made by, None where it is empty."""
    file = folder / "frame.npz"
    if not file.is_file():
        return None
    with np.load(file) as held:
        return learner.again(dict(held), str(folder))


def _write(file: Path, arrays: Mapping[str, NDArray]) -> None:
    with replacing(file) as draft, draft.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]  # numpy declares its own flag among the arrays
