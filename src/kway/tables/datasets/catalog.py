"""Data by name.

digits                                   5,000 + 1,000 MNIST images, part of the package (with license)
post-offices                             30,000 US ZIP codes as points on earth with their states, part of the package
iris, wine, breast_cancer, digits8x8     sets of scikit-learn, with a stratified split of seed 0
NAME                                     $KWAY_DATA/NAME.npz or $KWAY_DATA/NAME.csv.gz
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kway.errors import InputError
from kway.suggest import listing, nearest
from kway.tables.datasets.arrays import Dataset, divided, read_npz
from kway.tables.sources.labels import split_masks
from kway.tables.sources.table_files import read_table

_EMBEDDED = Path(__file__).parent / "embedded"
_FOLDER = "KWAY_DATA"
TARGET = "label"  # column with the labels in the csv files of that folder


def load(name: str) -> Dataset:
    """Load a dataset by name.

    Parameters
    ----------
    name : str
        A name of `names()`: a set of the package or of scikit-learn, or a file NAME.npz or NAME.csv.gz of the folder
        $KWAY_DATA.

    Returns
    -------
    Dataset

    Raises
    ------
    InputError
        If there is no such dataset.

    Examples
    --------
    >>> load("iris").x_train.shape
    (120, 4)
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    file = _files_by_name().get(name)
    if file is None:
        hint = "" if folder() else f"; for more, set {_FOLDER} to a folder of NAME.npz or NAME.csv.gz files"
        raise InputError(
            f"there is no dataset {name!r}{nearest(name, names())}; built-in datasets are {listing(names(), 40)}{hint}"
        )
    return replace(read_npz(file), name=name) if file.suffix == ".npz" else _from_csv(name, file)


def names() -> list[str]:
    """Return the names that `load` knows: the built-in sets, then the files of $KWAY_DATA.

    Returns
    -------
    list of str

    Examples
    --------
    >>> "iris" in names()
    True
    """
    return [*_BUILT_IN, *sorted(n for n in _files_by_name() if n not in _BUILT_IN)]


def folder() -> Path | None:
    """Return the folder $KWAY_DATA, None if it is not set; raise InputError if it does not exist."""
    value = os.environ.get(_FOLDER)
    if not value:
        return None
    if not Path(value).is_dir():
        raise InputError(f"{_FOLDER} is {value!r}, which is not a folder; set it to the folder with the data files")
    return Path(value)


def table_file(name: str) -> Path | None:
    """Return the csv file of a name in $KWAY_DATA; None if there is none."""
    file = None if name in _BUILT_IN else _files_by_name().get(name)
    return file if file is not None and file.suffix != ".npz" else None


def digits() -> Dataset:
    """Load handwritten digits: 5,000 training and 1,000 test images of MNIST, balanced over the ten classes.

    Rows have 784 gray levels 0 to 255 (uint8). MNIST is by Yann LeCun and Corinna Cortes, CC BY-SA 3.0. The package
    contains the license.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> digits().x_train.shape
    (5000, 784)
    """
    return replace(
        read_npz(_EMBEDDED / "digits.npz"),
        name="digits",
        description="handwritten digits, 28 x 28 gray levels (MNIST, Yann LeCun and Corinna Cortes, CC BY-SA 3.0)",
    )


def _post_offices() -> Dataset:
    """Load post offices: rows are latitude and longitude in degrees, labels are states.

    The extras are names ("Hoboken, NJ") and zips ("07030"). The data comes from the package `zipcodes` (MIT license).
    """
    with np.load(_EMBEDDED / "post_offices.npz") as kept:
        names = np.array(kept["names"].tobytes().decode().split("\n"))
        points, zips = kept["degrees_e4"] / 1e4, np.array([f"{z:05d}" for z in kept["zips"]])
    return Dataset(
        name="post-offices",
        x_train=points,
        y_train=np.array([name.rsplit(", ", 1)[1] for name in names]),
        feature_names=("latitude", "longitude"),
        description="US post offices as points on earth, with their states (zipcodes, MIT)",
        extras={"names": names, "zips": zips},
    )


def _scikit(name: str, description: str) -> Callable[[], Dataset]:
    def build() -> Dataset:
        import sklearn.datasets

        bunch: Any = getattr(sklearn.datasets, f"load_{name}")()
        whole = Dataset(
            name="digits8x8" if name == "digits" else name,
            x_train=bunch.data,
            y_train=bunch.target,
            label_names=() if name == "digits" else tuple(map(str, bunch.target_names)),
            feature_names=tuple(map(str, bunch.feature_names)),
            description=description,
        )
        return whole.split(seed=0)

    return build


_BUILT_IN: dict[str, Callable[[], Dataset]] = {
    "digits": digits,
    "iris": _scikit("iris", "three kinds of iris by four lengths in cm (Fisher)"),
    "wine": _scikit("wine", "three cultivars by thirteen chemical measures (UCI)"),
    "breast_cancer": _scikit("breast_cancer", "malignant or benign by thirty measures of cell nuclei (UCI)"),
    "digits8x8": _scikit("digits", "handwritten digits, 8 x 8 gray levels 0..16 (UCI)"),
    "post-offices": _post_offices,
}


def _files_by_name() -> dict[str, Path]:
    """Return the files of the folder by name; an npz file is preferred to a csv file of the same name."""
    place = folder()
    if place is None:
        return {}
    tables = {p.name.removesuffix(".csv.gz"): p for p in sorted(place.glob("*.csv.gz"))}
    return {**tables, **{p.stem: p for p in sorted(place.glob("*.npz"))}}


def _from_csv(name: str, file: Path) -> Dataset:
    """Read a table with a column `label` and optionally `split`; rows are its numeric columns, or its first column.

    `extras` has every column, divided like the rows (NAME_train, NAME_test) if there is a split.
    """
    table = read_table(file)
    columns = {c: _plain_array(table.column(c)) for c in table.column_names}
    features = [c for c in columns if c not in ("label", "split")]
    numeric = [c for c in features if columns[c].dtype.kind in "iufb"]
    x = np.column_stack([columns[c] for c in numeric]) if numeric else columns[features[0]]
    y = columns.get("label")
    about = Dataset(
        name, x, y, feature_names=tuple(numeric or features[:1]), description=f"from {file.name}", extras=columns
    )
    if "split" not in columns:
        return about
    train, test = split_masks(columns["split"], file.name)
    cut = {f"{c}_{part}": v[rows] for c, v in columns.items() for part, rows in (("train", train), ("test", test))}
    return replace(divided(about, train, test), extras=cut)


def _plain_array(column: Any) -> np.ndarray:
    values = column.to_numpy()
    return np.asarray(values.tolist(), dtype=str) if values.dtype == object else np.asarray(values)
