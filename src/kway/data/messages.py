"""What is wrong with an input, in words: scikit-learn's and numpy's messages, with where and what to do added."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import scipy.sparse as sp

from kway.data.blocks.row_blocks import row_blocks
from kway.data.suggest import listing
from kway.errors import InputError, KindError

_NOT_NUMBERS = ("could not convert", "arrays of bytes/strings", "not supported between")
_RAGGED = ("inhomogeneous", "setting an array element with a sequence")


def explained(error: Exception, X: Any) -> InputError:
    """The same error as one that says what, got, do."""
    text = str(error)
    first = text.splitlines()[0] if text else repr(error)
    if isinstance(error, np.exceptions.DTypePromotionError) or "ufunc" in text:
        return InputError(f"X has dates or other values that are not numbers{odd_columns(X)}; encode or drop them")
    if any(clue in text for clue in _RAGGED):
        return InputError(
            f"X has rows of different lengths{_lengths(X)}; give every row the same number of features ({first})"
        )
    if any(clue in text for clue in _NOT_NUMBERS):
        return InputError(f"X has text where numbers are expected{odd_columns(X)}; encode or drop it ({first})")
    if "contains NaN" in text or "contains infinity" in text:
        return InputError(f"{first.rstrip('.')}{first_bad(X)}; impute or drop such rows")
    if "features, but" in text:
        return InputError(f"{text.rstrip('.')}; pass the columns used in fit")
    if "Complex data" in text:
        return InputError(f"{first}; pass real numbers, such as the real and imaginary parts as two columns")
    if isinstance(error, TypeError):  # scikit-learn's checks ask for one
        return KindError(first)
    return InputError(text)


def first_bad(X: Any) -> str:
    """Where the first value that is not finite stands, where that can be told."""
    try:
        values = X if isinstance(X, np.ndarray) and X.dtype.kind == "f" else np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return ""
    if values.ndim != 2 or not values.size:
        return ""
    row, column, count = 0, 0, 0
    for part in row_blocks(values):
        bad = ~np.isfinite(values[part])
        if not count and bad.any():
            row, column = divmod(int(bad.argmax()), bad.shape[1])
            row += part.start
        count += int(bad.sum())
    names = list(getattr(X, "columns", []))
    return f", first in row {row}, column {names[column] if names else column} ({count} values)" if count else ""


def largest_value(rows: Any) -> str:
    """The value farthest from 0 of rows (n, d), dense or CSR, and where it stands."""
    values = rows.data if sp.issparse(rows) else rows
    at = int(np.argmax(np.abs(values)))
    if sp.issparse(rows):
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
    else:
        row, column = divmod(at, rows.shape[1])
    return f"{values.ravel()[at]:.3g} in column {column} (row {row})"


def refuse_masked(X: Any, name: str) -> None:
    """numpy would drop the mask without a word and use what lies under it."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        hidden = int(np.ma.getmaskarray(X).sum())
        raise InputError(f"{name} is a masked array with {hidden} values masked; fill or drop them (X.filled(...))")


def odd_columns(X: Any, before: str = " (", after: str = ")") -> str:
    """Names of a frame's columns that are neither numbers nor true/false, with words about them; else nothing."""
    kinds = {str(c): str(X[c].dtype) for c in getattr(X, "columns", [])}
    odd = [c for c, kind in kinds.items() if not re.match("u?int|float|bool|decimal", kind, re.IGNORECASE)]
    return f"{before}columns {listing(odd, 5)}{after}" if odd else ""


def _lengths(X: Any) -> str:
    try:
        found = sorted({len(row) for row in X})
    except TypeError:
        return ""
    return f" ({listing(found, 5)})"
