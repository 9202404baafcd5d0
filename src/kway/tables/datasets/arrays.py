"""Dataset: rows with labels, and optionally a test part. Readers of array files: npz, libsvm and npy.

.npz                 x_train, y_train, x_test, y_test | x, y, split | X, y | x_base, x_query; label_names,
                     feature_names
.svm .libsvm (.gz)   "label index:value ...", sparse
.npy                 rows (n, d), or a folder of files in the order of their names: arrays of two or more axes are
                     rows, arrays of one axis are labels, together one label per row
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.memory import expands_too_much, rows_per_block
from kway.suggest import listing
from kway.tables.sources import csv_files
from kway.tables.sources.labels import split_masks
from kway.tables.sources.table_files import gunzipped, refuse_bomb


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with labels, and optionally a test part.

    Parameters
    ----------
    name : str
        Name of the set, used in messages.
    x_train : ndarray or csr_matrix of shape (n, d)
        Training rows; images may have shape (n, height, width) or (n, height, width, 3).
    y_train : ndarray of shape (n,) or None
        Labels of the training rows.
    x_test, y_test : arrays, optional
        Test rows and their labels.
    label_names : tuple of str, default=()
        `label_names[code]` is the name of an integer label.
    feature_names : tuple of str, default=()
        Names of the columns.
    description : str, default=""
        One line about the data and its source.
    extras : mapping of str to ndarray, optional
        Other arrays of the source, such as texts or exact neighbors.

    Examples
    --------
    >>> import kway
    >>> iris = kway.datasets.load("iris")
    >>> iris.x_train.shape, iris.x_test.shape
    ((120, 4), (30, 4))
    """

    name: str
    x_train: Any
    y_train: NDArray | None
    x_test: Any = None
    y_test: NDArray | None = None
    label_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    description: str = ""
    extras: Mapping[str, NDArray] = field(default_factory=dict)

    def named(self) -> Dataset:
        """Return the dataset with integer labels replaced by their names, if it has names.

        Returns
        -------
        Dataset
        """
        if not self.label_names:
            return self
        table = np.asarray(self.label_names)
        return replace(
            self,
            y_train=None if self.y_train is None else table[self.y_train],
            y_test=None if self.y_test is None else table[self.y_test],
            label_names=(),
        )

    def split(self, seed: int = 0) -> Dataset:
        """Return the dataset with a stratified test part of 20% of the rows, unless it already has a test part.

        The only row of a class stays in the training part.

        Parameters
        ----------
        seed : int, default=0
            Seed of the random choice.

        Returns
        -------
        Dataset
        """
        if self.x_test is not None or self.y_train is None:
            return self
        codes = np.unique(self.y_train, return_inverse=True)[1]
        return divided(self, *stratified(codes, share=0.2, seed=seed))


def divided(data: Dataset, train: NDArray, test: NDArray) -> Dataset:
    """Return a dataset with the test part `test` of its rows, positions or a mask (n,); extras stay as they are."""
    x, y = data.x_train, data.y_train
    labels = (None, None) if y is None else (y[train], y[test])
    return replace(data, x_train=x[train], y_train=labels[0], x_test=x[test], y_test=labels[1])


def stratified(codes: NDArray[np.int64], share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of training and test rows, split by class; the only row of a class goes to training."""
    from sklearn.model_selection import train_test_split

    single = np.bincount(codes)[codes] < 2
    others = np.flatnonzero(~single)
    if len(others) == 0:
        raise InputError("every class has a single row, so no row can be held out; at least one class needs two rows")
    n_classes = len(np.unique(codes[others]))  # both sets need a row of each
    n_test = min(max(round(share * len(codes)), n_classes), len(others) - n_classes)
    train, test = train_test_split(others, test_size=n_test, stratify=codes[others], random_state=seed)
    return np.sort(np.concatenate([train, np.flatnonzero(single)])), np.sort(test)


# ---- npz and libsvm


class _Parts(NamedTuple):
    x: Any
    y: Any
    x_test: Any
    y_test: Any


def read_npz(path: Path) -> Dataset:
    """Read an npz file with any of the keys above; arrays of Python objects raise InputError."""
    try:
        _refuse_npz_bomb(path)
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib, struct and numpy each raise their own
        raise InputError(f"{path.name} cannot be read as npz: {error}; write it with numpy.savez") from error
    names, columns = _take_names(arrays, "label_names", path.name), _take_names(arrays, "feature_names", path.name)
    x, y, x_test, y_test = _npz_parts(arrays, path.name)
    for rows, labels, part in ((x, y, "x"), (x_test, y_test, "x_test")):
        _refuse_shapes(rows, labels, part, path.name)
    _refuse_codes((y, y_test), names, path.name)
    return Dataset(path.name, x, y, x_test, y_test, names, columns, f"from {path.name}", arrays)


def _npz_parts(arrays: dict[str, NDArray], name: str) -> _Parts:
    """Remove x, y, x_test and y_test from `arrays` and return them."""
    lower = {key.lower(): key for key in arrays}

    def take(key: str) -> Any:
        return arrays.pop(lower[key]) if key in lower else None

    if "x_train" in lower:
        return _Parts(take("x_train"), take("y_train"), take("x_test"), take("y_test"))
    if "x_base" in lower:
        return _Parts(take("x_base"), None, take("x_query"), None)
    if "x" not in lower:
        raise InputError(
            f"{name} has keys {listing(arrays)}; name the rows x_train (with y_train, x_test, y_test) or x"
        )
    x, y, split = take("x"), take("y"), take("split")
    if split is None:
        return _Parts(x, y, None, None)
    _refuse_split(x, y, split, name)
    train, test = split_masks(split, name)
    for key in [k for k in arrays if arrays[k].shape[:1] == split.shape]:
        arrays[f"{key}_train"], arrays[f"{key}_test"] = arrays[key][train], arrays[key][test]
        del arrays[key]
    labels = (None, None) if y is None else (y[train], y[test])
    return _Parts(x[train], labels[0], x[test], labels[1])


def read_libsvm(path: Path, n_features: int | None = None) -> Dataset:
    """Read a libsvm file as sparse rows with `n_features` columns, by default up to the largest index."""
    from sklearn.datasets import load_svmlight_file

    packed = path.name.lower().endswith(".gz")
    content = gunzipped(path, path.name) if packed else path.read_bytes()
    if not content.strip():
        raise InputError(f"{path.name} cannot be read as libsvm: it is empty; give rows such as '1 3:0.5 7:2'")
    try:
        x, y = load_svmlight_file(io.BytesIO(content), n_features=n_features)
    except (ValueError, OverflowError, IndexError, MemoryError) as error:
        raise InputError(
            f"{path.name} cannot be read as libsvm: {error}; a row is a label and pairs: '1 3:0.5 7:2'"
        ) from error
    if x.nnz == 0:
        raise InputError(f"{path.name} has {x.shape[0]} rows and no value in any; a row is '1 3:0.5 7:2'")
    if expands_too_much(len(content), 8 * x.shape[1]):
        raise InputError(
            f"{path.name} has a feature with the number {x.shape[1]:,}, too large for a file of {len(content):,} "
            "bytes; number the features from 1 on"
        )
    if not np.isfinite(y).all():
        raise InputError(f"{path.name} has labels that are not finite numbers; give every row its class")
    whole = y.astype(np.int64)
    return Dataset(path.name, x, whole if np.array_equal(whole, y) else y)


# ---- checks


def _take_names(arrays: dict[str, NDArray], key: str, name: str) -> tuple[str, ...]:
    """Remove the names under a key from `arrays` and return them; () if there are none."""
    names = arrays.pop(key, None)
    if names is None:
        return ()
    if names.ndim != 1:
        raise InputError(f"{key} of {name} has shape {names.shape}; it must be a list of names, (n,)")
    return tuple(str(v) for v in names)


def _refuse_shapes(x: Any, y: Any, part: str, name: str) -> None:
    """Raise InputError unless rows are (n, d) or images, and labels (n,)."""
    if x is None:
        return
    if x.ndim < 2 and x.dtype.kind not in "UST":
        raise InputError(f"{part} of {name} has shape {x.shape}; rows must be (rows, features)")
    if x.ndim == 0 or x.shape[0] == 0:
        raise InputError(f"{part} of {name} has shape {x.shape}, so it has no rows; give at least one")
    labels = None if y is None else len(y) if y.ndim else 0
    if labels is not None and len(x) != labels:
        raise InputError(f"{name} has {len(x)} rows and {labels} labels; give one label per row")


def _refuse_split(x: NDArray, y: Any, split: NDArray, name: str) -> None:
    n = x.shape[0] if x.ndim else 0
    if split.shape != (n,) or (y is not None and y.shape[:1] != (n,)):
        labels = "" if y is None else f" and labels of shape {y.shape}"
        raise InputError(f"{name} has {n} rows, split of shape {split.shape}{labels}; give one value per row")


def _refuse_codes(labels: tuple[Any, ...], names: tuple[str, ...], name: str) -> None:
    """Raise InputError if labels are not indices of the label names."""
    for y in labels:
        if not names or y is None:
            continue
        if y.dtype.kind not in "iu" or (y.size and not 0 <= int(y.min()) <= int(y.max()) < len(names)):
            raise InputError(
                f"{name} has {len(names)} label_names, so y must be whole numbers from 0 to {len(names) - 1}, got "
                f"dtype {y.dtype}" + (f" from {y.min()} to {y.max()}" if y.dtype.kind in "iu" else "")
            )


def _refuse_npz_bomb(path: Path) -> None:
    """Check the sizes that an npz file declares before memory is allocated for them."""
    with zipfile.ZipFile(path) as archive:
        refuse_bomb(path.stat().st_size, sum(member.file_size for member in archive.infolist()), path.name)


# ---- npy


class ArrayParts(NamedTuple):
    """Arrays of rows (n_i, d) of the same width, and labels (n,) or None."""

    parts: tuple[NDArray, ...]
    y: NDArray | None

    @property
    def n(self) -> int:
        """Number of rows of all parts."""
        return sum(map(len, self.parts))

    def required_labels(self, name: str) -> NDArray:
        """Return the labels; raise InputError if there are none."""
        if self.y is None:
            raise InputError(f"{name} has no labels; add an .npy file with a 1-D array of one label per row")
        return self.y

    def rows(self) -> NDArray:
        """Return all rows as one array; a single part is not copied."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def blocks(self) -> Iterator[tuple[NDArray, NDArray | None]]:
        """Yield blocks of rows with their labels."""
        first = 0
        for part in self.parts:
            for rows in row_blocks(part):
                yield rows, None if self.y is None else np.asarray(self.y[first : first + len(rows)])
                first += len(rows)


def row_blocks(rows: NDArray) -> Iterator[NDArray]:
    """Yield blocks of about PIECE_BYTES of mapped rows (n, d)."""
    size = rows_per_block(rows[:1].nbytes, csv_files.PIECE_BYTES)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def npy_files(path: Path) -> list[Path]:
    """Return the npy file itself, or the npy files of a folder by name."""
    if path.is_dir():
        return sorted(p for p in path.glob("*.npy") if p.is_file() and not p.name.startswith((".", "_")))
    return [path] if path.name.lower().endswith(".npy") else []


def map_arrays(files: list[Path], name: str) -> ArrayParts:
    """Map the arrays of npy files into memory; raise InputError for files that are no arrays or do not fit together."""
    arrays = [_mapped(file) for file in files]
    parts = tuple(a.reshape(len(a), -1) for a in arrays if a.ndim > 1 and len(a))  # a part without rows has no width
    labels = [a for a in arrays if a.ndim == 1]
    if not parts:
        raise InputError(f"{name} has no rows; give an .npy file with an array of shape (rows, features)")
    widths = sorted({part.shape[1] for part in parts})
    if len(widths) > 1:
        raise InputError(f"the files of {name} have {widths[0]} and {widths[-1]} columns; give all the same number")
    found = ArrayParts(parts, np.concatenate(labels) if labels else None)
    if found.y is not None and len(found.y) != found.n:
        raise InputError(f"{name} has {found.n:,} rows and {len(found.y):,} labels; give one label per row")
    return found


def _mapped(file: Path) -> NDArray:
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, OverflowError) as error:
        raise InputError(f"{file.name} cannot be read as npy: {error}; write it with numpy.save") from error
    if not isinstance(found, np.ndarray) or found.ndim == 0:
        raise InputError(f"{file.name} is not an array of rows; write it with numpy.save")
    return found
