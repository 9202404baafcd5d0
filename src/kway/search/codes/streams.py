"""Codes of rows that come as a stream of blocks: no more than a block of them is ever in memory.

    blocks      an array (n, d), perhaps a memory map; a folder of .npy files, or of parquet whose columns are numbers,
                in the order of their names; or any iterable of blocks (m, d), such as a generator
    folder      where parts are kept while they are made, one file a block; begun again after a kill, work goes on
                behind the last part (a generator is run again from its start, its first blocks are passed over)

The centre is that of the first block. Parts hold the arrays of stores/bits.py and appear only when complete. In memory
the codes grow where they lie (growing_codes.py), so that no more of them than one plane of words is ever held twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.data.blocks.row_stream import row_stream
from kway.data.gate import plain_rows
from kway.data.number_rows import number_rows
from kway.data.outputs.atomic import replacing
from kway.data.sources.table_files import parquet_files
from kway.errors import InputError
from kway.progress import track
from kway.search.codes.growing_codes import Grown
from kway.search.spaces.metrics import Metric
from kway.search.stores.bits import BitFrame, BitRows, Bits
from kway.search.stores.int8 import ByteRows, Int8

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
    if n_features is not None and rows.shape[1] != n_features:
        raise InputError(f"a block has {rows.shape[1]} columns, the first had {n_features}; give all the same")
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
