"""Labels: values of one type -> sorted classes (K,) and codes (n,) int64 with y = classes[codes].

Soft targets: rows (n, K) that are distributions; classes are then 0..K-1 and codes the argmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d, compute_class_weight

from kway.errors import InputError
from kway.rows.gpu.device import on_host
from kway.suggest import listing

_GAPS = ("NoneType", "NAType", "NaTType")  # None, and the missing values of pandas, which need not be installed
_MAX_WHOLE = float(np.iinfo(np.int64).max)  # scikit-learn's metrics do not take larger floats as whole numbers
_SUM_ERROR = np.finfo(np.float16).eps  # rows of float16 distributions may differ from 1 by this much


class Labels(NamedTuple):
    """classes (K,), codes (n,) int64, and for soft targets the distributions (n, K)."""

    classes: NDArray
    codes: NDArray[np.int64]
    soft: NDArray | None = None

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def at(self, rows: NDArray) -> Labels:
        """Return the labels of some rows, with the classes that occur among them."""
        present, codes = np.unique(self.codes[rows], return_inverse=True)
        return Labels(self.classes[present], codes.astype(np.int64, copy=False))


def encode(y: Any) -> Labels:
    """Encode labels of one type (numbers, booleans, strings, ...).

    >>> encode(["b", "a", "b"]).codes
    array([1, 0, 1])
    """
    y = column(y, warn=True)
    _refuse_unordered(y)
    classes, codes = np.unique(y, return_inverse=True)
    return Labels(classes, codes.astype(np.int64, copy=False))


def encode_tensor(y: Any) -> Labels:
    """Encode the labels of a tensor (n,) on its device; only classes and codes are copied to the host."""
    classes, codes = y.detach().unique(return_inverse=True)
    return Labels(encode(on_host(classes)).classes, on_host(codes))


def encode_as(y: Any, classes: NDArray) -> NDArray[np.int64]:
    """Return the codes of y among known classes; raise InputError for an unseen label."""
    y = column(y)
    if _is_text(y) != _is_text(classes) or not len(classes):
        unseen = np.ones(len(y), bool)  # text and numbers have no common order
        place = np.zeros(len(y), np.int64)
    else:
        place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        unseen = classes[place] != y
    if unseen.any():
        names = listing(map(repr, np.unique(y[unseen])[:5].tolist()))
        raise InputError(
            f"y has labels that are not among the {len(classes)} known classes: {names}; "
            "name every class in the first call (classes=...)"
        )
    return place.astype(np.int64, copy=False)


def encode_soft(y: Any) -> Labels:
    """Encode distributions (n, K): classes 0..K-1, and codes that are their argmax."""
    soft = np.asarray(y)
    if soft.dtype.kind not in "fiub" or not np.isfinite(soft).all():
        raise InputError(f"soft targets must be finite numbers of shape (n, K), got dtype {soft.dtype}")
    soft = soft.astype(np.float64)
    worst = np.abs(soft.sum(axis=1) - 1).max(initial=0.0)
    if soft.min(initial=0.0) < 0 or worst > _SUM_ERROR:
        raise InputError(
            f"soft targets of shape {soft.shape} must be rows that are >= 0 and sum to 1 (worst sum is off by "
            f"{worst:.3g}, smallest entry {soft.min(initial=0.0):.3g}); normalize them, or pass one label per row"
        )
    return Labels(np.arange(soft.shape[1]), soft.argmax(axis=1).astype(np.int64), soft)


def column(y: Any, warn: bool = False) -> NDArray:
    """Return labels (n,) of one type, text or numbers, without missing values."""
    refuse_masked(y, "y")
    if isinstance(y, (list, tuple)):
        _refuse_mixed(y)  # before numpy turns ["a", 1] into text
    try:
        # numpy first, because scikit-learn would convert pandas' Int64 to floats, which are rounded above 2^53
        y = np.asarray(y.tolist(), dtype=str) if _is_string_dtype(y) else np.asarray(y)
        if y.ndim != 1 or y.dtype.kind not in "biufU":  # others need no check, and this one loads narwhals
            y = column_or_1d(y, warn=warn)
    except (ValueError, TypeError) as error:
        raise InputError(f"{str(error).rstrip('.')}; pass one label per row, as a list or a 1-D array") from error
    if y.dtype == object:
        _refuse_mixed(y)
        plain = np.asarray(y.tolist())
        return plain if plain.dtype.kind in "iufb" and plain.ndim == 1 else y
    if y.dtype.kind in "fmM" and not np.isfinite(y).all():  # of dates, NaT
        raise InputError(
            f"Input y contains NaN or infinity ({(~np.isfinite(y)).sum()} rows); drop these rows or label them"
        )
    return y


def joined(parts: Sequence[NDArray]) -> NDArray:
    """Concatenate labels; raise InputError for text and numbers, which numpy would convert to text."""
    some = [part for part in parts if len(part)] or parts[:1]
    if len({_is_text(part) for part in some}) > 1:
        raise InputError("y mixes text and numbers, which have no common order; convert the labels to one type")
    return np.concatenate(some)


def check_given(y: Any, who: str) -> None:
    """Raise InputError if y is None; `who` is the name of the estimator."""
    if y is None:
        raise InputError(f"{who} requires y to be passed, but the target y is None; pass one label per row")


def check_length(labels: Labels, n: int) -> None:
    """Raise InputError unless there are as many labels as rows."""
    if len(labels.codes) != n:
        raise InputError(
            f"Found input variables with inconsistent numbers of samples: X has {n} rows, y has {len(labels.codes)}; "
            "pass one label per row"
        )


def refuse_one_class(labels: Labels, who: str) -> None:
    """Raise InputError unless there are at least two classes."""
    if labels.n_classes < 2:
        only = labels.classes.tolist()[0] if labels.n_classes else None
        raise InputError(
            f"{who} needs samples of at least 2 classes, but the data contains one class: {only!r}; check the labels"
        )


def class_weighted(weight: NDArray | None, labels: Labels, class_weight: Any) -> NDArray | None:
    """Return sample weights times class weights; "balanced" counts a row by its sample weight."""
    if class_weight is None:
        return weight
    classes, codes = labels.classes, labels.codes
    if isinstance(class_weight, str) and weight is not None:
        totals = np.bincount(codes, weight, minlength=len(classes))
        each = weight.sum() / (len(classes) * np.maximum(totals, np.finfo(float).tiny))
    else:
        each = weight_per_class(class_weight, classes, classes[codes])
        if not (np.isfinite(each) & (each >= 0)).all():
            raise InputError(f"class_weight must map labels to finite weights >= 0, got {class_weight!r:.100}")
    found = each[codes] if weight is None else weight * each[codes]
    if not found.any():
        raise InputError(f"class_weight={class_weight!r:.100} leaves no row with a weight; give some class a weight")
    return found


def weight_per_class(class_weight: Any, classes: NDArray, y: NDArray) -> NDArray[np.float64]:
    """Return the weight of each class (K,); raise InputError if a dict has other labels and lacks a class."""
    try:
        each: NDArray[np.float64] = compute_class_weight(class_weight, classes=classes, y=y)
    except (ValueError, TypeError) as error:
        raise InputError(f"class_weight does not fit the labels: {error}") from error
    return each


def check_width(rows: Any, width: int | None) -> int:
    """Return the number of columns of a block of rows; raise an error if the first block had another `width`."""
    found = int(rows.shape[1])
    if width is not None and found != width:
        raise InputError(f"a block has {found} columns, the first had {width}; give all the same")
    return found


def refuse_masked(X: Any, name: str) -> None:
    """Raise InputError for masked values: numpy would silently use what is under the mask."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        hidden = int(np.ma.getmaskarray(X).sum())
        raise InputError(f"{name} is a masked array with {hidden} values masked; fill or drop them (X.filled(...))")


def _refuse_unordered(y: NDArray) -> None:
    """Raise InputError for labels that are not classes: fractions, bytes, objects.

    scikit-learn's own check also warns if every row has its own class, which is fine here, and a warning can only be
    silenced for all threads.
    """
    kind = ""
    if y.dtype.kind == "f" and ((y != np.floor(y)).any() or float(np.abs(y).max(initial=0)) >= _MAX_WHOLE):
        kind = "continuous, as in regression"
    elif y.dtype.kind in "ScV":
        kind = {"S": "bytes", "c": "complex numbers"}.get(y.dtype.kind, "records")
    elif y.dtype == object and not all(isinstance(v, str) for v in y):
        kind = f"objects such as {type(next(v for v in y if not isinstance(v, str))).__name__}"
    if kind:
        raise InputError(f"Unknown label type: {kind}; pass whole numbers or text as labels")


def _is_string_dtype(y: Any) -> bool:
    return isinstance(y, np.ndarray) and y.dtype.kind == "T"  # variable-width text of numpy, unknown to scikit-learn


def _is_text(y: NDArray) -> bool:
    return y.dtype.kind in "UO"


def _refuse_mixed(y: Any) -> None:
    kinds = {type(v) for v in y}
    if any(kind.__name__ in _GAPS for kind in kinds) or any(isinstance(v, float) and v != v for v in y):
        raise InputError("Input y contains NaN or None; drop these rows or give them a label")
    text = {kind for kind in kinds if issubclass(kind, str)}
    if text and any(isinstance(v, str) and v.endswith("\0") for v in y):
        raise InputError("y has text that ends with a NUL, which numpy drops; strip it")
    if text and text != kinds:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(f"y mixes {names}, which have no common order; convert the labels to one type")
