"""Arrays in: an npz or libsvm file -> Dataset with rows X (n, d) and labels y (n,).

.npz                 x_train, y_train, x_test, y_test | x, y, split | X, y | x_base, x_query; label_names, feature_names
.svm .libsvm (.gz)   "label index:value ...", sparse
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.datasets.dataset import Dataset
from kway.data.sources.split_column import split_masks
from kway.data.suggest import listing
from kway.errors import InputError


class _Parts(NamedTuple):
    x: Any
    y: Any
    x_test: Any
    y_test: Any


def read_npz(path: Path) -> Dataset:
    """An npz file with any of the key names above; arrays of Python objects are refused, never unpickled."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except Exception as error:  # zipfile, zlib, struct and numpy each have their own
        raise InputError(f"{path.name} cannot be read as npz: {error}") from error
    names = tuple(str(v) for v in arrays.pop("label_names", ()))
    columns = tuple(str(v) for v in arrays.pop("feature_names", ()))
    x, y, x_test, y_test = _npz_parts(arrays, path.name)
    _refuse_lengths(x, y, path.name)
    _refuse_lengths(x_test, y_test, path.name)
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
    train, test = split_masks(split, name)
    for key in [k for k in arrays if arrays[k].shape[:1] == split.shape]:
        arrays[f"{key}_train"], arrays[f"{key}_test"] = arrays[key][train], arrays[key][test]
        del arrays[key]
    labels = (None, None) if y is None else (y[train], y[test])
    return _Parts(x[train], labels[0], x[test], labels[1])


def read_libsvm(path: Path, n_features: int | None = None) -> Dataset:
    """Sparse rows; `n_features` is their width, which the file itself does not say."""
    from sklearn.datasets import load_svmlight_file

    try:
        x, y = load_svmlight_file(str(path), n_features=n_features)
    except ValueError as error:
        raise InputError(f"{path.name} cannot be read as libsvm: {error}") from error
    whole = y.astype(np.int64)
    return Dataset(path.name, x, whole if np.array_equal(whole, y) else y)


def _refuse_lengths(x: Any, y: Any, name: str) -> None:
    if x is not None and y is not None and len(x) != len(y):
        raise InputError(f"{name} has {len(x)} rows and {len(y)} labels; they must be as many")
