"""Arrays in: an npz or libsvm file -> Dataset with rows X (n, d) and labels y (n,).

.npz                 x_train, y_train, x_test, y_test | x, y, split | X, y | x_base, x_query; label_names, feature_names
.svm .libsvm (.gz)   "label index:value ...", sparse
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.datasets.dataset import Dataset
from kway.data.sources.split_column import split_masks
from kway.data.sources.unpacking import gunzipped, refuse_npz_bomb
from kway.data.suggest import listing
from kway.errors import InputError

_MOST_FEATURES = 100_000_000  # columns; arrays of one value a column then take a gigabyte


class _Parts(NamedTuple):
    x: Any
    y: Any
    x_test: Any
    y_test: Any


def read_npz(path: Path) -> Dataset:
    """An npz file with any of the key names above; arrays of Python objects are refused, never unpickled."""
    try:
        refuse_npz_bomb(path)
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib, struct and numpy each have their own
        raise InputError(f"{path.name} cannot be read as npz: {error}; write it with numpy.savez") from error
    names, columns = _take_names(arrays, "label_names", path.name), _take_names(arrays, "feature_names", path.name)
    x, y, x_test, y_test = _npz_parts(arrays, path.name)
    for rows, labels, part in ((x, y, "x"), (x_test, y_test, "x_test")):
        _refuse_shapes(rows, labels, part, path.name)
    _refuse_codes((y, y_test), names, path.name)
    return Dataset(path.name, x, y, x_test, y_test, names, columns, f"from {path.name}", arrays)


def _npz_parts(arrays: dict[str, NDArray], name: str) -> _Parts:
    """Take x, y, x_test, y_test out of `arrays`; what stays is extra."""
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
    """Sparse rows; `n_features` is their width, which the file itself does not say."""
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
    if x.shape[1] > _MOST_FEATURES:
        raise InputError(
            f"{path.name} names feature {x.shape[1]:,}, and {_MOST_FEATURES:,} is the most; number features from 1 on"
        )
    if not np.isfinite(y).all():
        raise InputError(f"{path.name} has labels that are not finite numbers; give every row its class")
    whole = y.astype(np.int64)
    return Dataset(path.name, x, whole if np.array_equal(whole, y) else y)


# ---- what must be so


def _take_names(arrays: dict[str, NDArray], key: str, name: str) -> tuple[str, ...]:
    """Names out of `arrays`, none where they are not there."""
    names = arrays.pop(key, None)
    if names is None:
        return ()
    if names.ndim != 1:
        raise InputError(f"{key} of {name} is of shape {names.shape}; it must be a list of names, (n,)")
    return tuple(str(v) for v in names)


def _refuse_shapes(x: Any, y: Any, part: str, name: str) -> None:
    """Rows are (n, d) or images, labels (n,)."""
    if x is None:
        return
    if x.ndim < 2 and x.dtype.kind not in "UST":
        raise InputError(f"{part} of {name} is of shape {x.shape}; rows must be (rows, features)")
    if x.ndim == 0 or x.shape[0] == 0:
        raise InputError(f"{part} of {name} is of shape {x.shape}, so there are no rows; give some")
    labels = None if y is None else len(y) if y.ndim else 0
    if labels is not None and len(x) != labels:
        raise InputError(f"{name} has {len(x)} rows and {labels} labels; they must be as many")


def _refuse_split(x: NDArray, y: Any, split: NDArray, name: str) -> None:
    n = x.shape[0] if x.ndim else 0
    if split.shape != (n,) or (y is not None and y.shape[:1] != (n,)):
        labels = "" if y is None else f" and labels of shape {y.shape}"
        raise InputError(f"{name} has {n} rows, split of shape {split.shape}{labels}; give one value a row")


def _refuse_codes(labels: tuple[Any, ...], names: tuple[str, ...], name: str) -> None:
    """Labels that are to be looked up among names must be numbers of these."""
    for y in labels:
        if not names or y is None:
            continue
        if y.dtype.kind not in "iu" or (y.size and not 0 <= int(y.min()) <= int(y.max()) < len(names)):
            raise InputError(
                f"{name} has {len(names)} label_names, so y must be whole numbers from 0 to {len(names) - 1}, got "
                f"dtype {y.dtype}" + (f" from {y.min()} to {y.max()}" if y.dtype.kind in "iu" else "")
            )
