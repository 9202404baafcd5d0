"""Arrays of .npy files, memory-mapped: a file of rows (n, d), or a folder of parts in the order of their names.

In a folder, arrays of two or more axes are rows, arrays of one are labels, as many in all as there are rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError

FILE_BLOCK = 2**24  # values of a block: 64 MB in float32


class ArrayParts(NamedTuple):
    """Rows (n_i, d) part by part, all of one width, and labels (n,) or None."""

    parts: tuple[NDArray, ...]
    y: NDArray | None

    @property
    def n(self) -> int:
        """Rows of all parts."""
        return sum(map(len, self.parts))

    def required_labels(self, name: str) -> NDArray:
        """y, where nothing can be done without."""
        if self.y is None:
            raise InputError(f"{name} has no labels: no .npy array of one axis; add one, as long as all rows together")
        return self.y

    def rows(self) -> NDArray:
        """All rows as one array; of one part, where it lies."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def blocks(self) -> Iterator[tuple[NDArray, NDArray | None]]:
        """Some rows at a time, with their labels."""
        first = 0
        for part in self.parts:
            size = max(1, FILE_BLOCK // max(1, part.shape[1]))
            for start in range(0, len(part), size):
                rows = part[start : start + size]
                yield rows, None if self.y is None else np.asarray(self.y[first : first + len(rows)])
                first += len(rows)


def npy_files(path: Path) -> list[Path]:
    """The file itself, or the .npy files of a folder by name."""
    if path.is_dir():
        return sorted(p for p in path.glob("*.npy") if p.is_file() and not p.name.startswith((".", "_")))
    return [path] if path.name.lower().endswith(".npy") else []


def map_arrays(files: list[Path], name: str) -> ArrayParts:
    """The arrays of the files, mapped; what is no array, or does not fit the others, is an error."""
    arrays = [_mapped(file) for file in files]
    parts = tuple(a.reshape(len(a), -1) for a in arrays if a.ndim > 1 and len(a))  # a part without rows has no width
    labels = [a for a in arrays if a.ndim == 1]
    if not parts:
        raise InputError(f"{name} has no rows: no .npy array of two axes (rows, features) with any in it; give some")
    widths = sorted({part.shape[1] for part in parts})
    if len(widths) > 1:
        raise InputError(f"the parts of {name} have {widths[0]} and {widths[-1]} columns; give all the same")
    found = ArrayParts(parts, np.concatenate(labels) if labels else None)
    if found.y is not None and len(found.y) != found.n:
        raise InputError(f"{name} has {found.n:,} rows and {len(found.y):,} labels; they must be as many")
    return found


def _mapped(file: Path) -> NDArray:
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{file.name} cannot be read as npy: {error}; write it with numpy.save") from error
    if not isinstance(found, np.ndarray) or found.ndim == 0:
        raise InputError(f"{file.name} holds no array of rows; write it with numpy.save")
    return found
