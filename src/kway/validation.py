"""All validation of X, y and sample weights. Validated X is 2-D, float32 or float64, and C-contiguous or canonical CSR.

It is finite, except that NaN is allowed on request (`gaps=True`).

    X   numpy, torch, lists, pandas or polars frames, scipy sparse, memory maps -> (n, d) C-contiguous array or CSR;
        a tensor for a `device` -> TensorRows, validated on the device
    y   (n,) labels of any one kind, or (n, K) soft targets              -> Labels(classes (K,), codes (n,))
    w   None or (n,)                                                     -> (n,) weights, or None

The float dtype of the input is kept; float16 and integers become float32 (float64 if an integer would be rounded).
Queries that are predicted block by block are also converted block by block (`blocks=True`, kway.rows.blocks).
Rows are validated once per call: rows that go on to an index, or from a classifier to its inner one, are `checked`.
scikit-learn's `validate_data` does the checking, so its messages are the ones that users and its checks know.
"""

from __future__ import annotations

import math
import re
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_array, validate_data

from kway.errors import InputError, KindError
from kway.labels import Labels, check_given, check_length, encode, encode_soft, encode_tensor, refuse_masked
from kway.memory import BLOCK_BYTES, CACHE_BYTES, rows_per_block
from kway.rows.blocks import FEW_VALUES, ConvertedRows, ValidatedRows, row_blocks
from kway.rows.gpu.device import Device, is_tensor, on_host
from kway.rows.gpu.tensor_rows import TensorRows
from kway.suggest import listing
from kway.threads import pmap, shares, spans_of

Rows = Any  # (n, d): NDArray[float32 | float64], scipy CSR of the same, or TensorRows

_FLOAT_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
_EXACT_IN_FLOAT32 = 2 ** (np.finfo(np.float32).nmant + 1)  # integers below this are exact in float32
_NOT_NUMBERS = ("could not convert", "arrays of bytes/strings", "not supported between")
_RAGGED = ("inhomogeneous", "setting an array element with a sequence")
# largest value per float type: the sum of a billion of their squares stays finite (float32: 1e9 * 2e29 < 3.4e38)
MAX_SQUARED = {kind: float(np.finfo(kind).max) ** 0.38 for kind in ("float32", "float64")}


def checked(rows: Rows) -> Any:
    """Mark rows as validated, so that an index or an inner classifier does not validate them again."""
    return ValidatedRows(rows)


def is_sparse(X: Any) -> bool:
    """Return whether rows, `checked` or not, are sparse."""
    return sp.issparse(X.rows if isinstance(X, ValidatedRows) else X)


def rows(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    sparse: bool = True,
    blocks: bool = False,
    finite: bool = False,
    gaps: bool = False,
    device: Device | None = None,
) -> Rows:
    """Return validated rows (n, d); `reset` in fit, which stores the number and names of features.

    With `blocks` the caller reads them by slices, and an array that needs a copy is returned as `ConvertedRows`. Rows
    known to be `finite` are not read to check it. `gaps` allows NaN, a missing value. With a `device` a tensor is moved
    there and returned as `TensorRows`. `checked` rows are returned as they are.
    """
    if isinstance(X, ValidatedRows):
        return X.rows
    ready = _ready(X) and not hasattr(estimator, "feature_names_in_") and (finite or _allowed(X, gaps))
    if ready and not reset and X.shape[1] == getattr(estimator, "n_features_in_", None):
        return X  # the usual case: validate_data takes longer than a product
    if device is not None and is_tensor(X) and _sound(X):
        return _far(estimator, X, device, reset)
    X = hosted(X)
    try:
        if ready:
            validate_data(estimator, X, reset=reset, skip_check_array=True)  # the number of features alone
            return X
        if blocks and _needs_copy(X):
            return _stored(estimator, X, reset, gaps)
        usual: dict[str, Any] = {"ensure_all_finite": "allow-nan" if gaps else True}
        kind = "csr" if sparse else False
        passed = validate_data(estimator, X, reset=reset, dtype="numeric", order="C", accept_sparse=kind, **usual)
        if passed.dtype == object:  # frames with columns of several kinds pass unconverted
            passed = check_array(passed.astype(np.float64), input_name="X", **usual)
    except (ValueError, TypeError) as error:  # numpy's DTypePromotionError is a TypeError
        raise explained(error, X) from error
    return _floats(_canonical(sp.csr_matrix(passed)) if sp.issparse(passed) else passed)


def _ready(X: Any) -> bool:
    """Return whether X is a C-contiguous array of floats, finite or not."""
    return type(X) is np.ndarray and X.ndim == 2 and X.size > 0 and X.dtype in _FLOAT_TYPES and X.flags.c_contiguous


def _sound(X: Any) -> bool:
    """Return whether a tensor is rows of finite numbers; others become arrays, whose errors are then raised."""
    if X.ndim != 2 or not X.numel() or X.is_complex() or X.layout != X.new_empty(0).layout:
        return False
    return not X.is_floating_point() or all(bool(end.isfinite()) for end in X.aminmax())  # NaN is both ends


def _far(estimator: Any, X: Any, device: Device, reset: bool) -> TensorRows:
    """Move a tensor to the device, as float32 or float64; nothing is copied to the host."""
    alike = np.broadcast_to(np.float32(0), tuple(X.shape))  # validated for its shape
    try:
        validate_data(estimator, alike, reset=reset, skip_check_array=True)
    except ValueError as error:
        raise explained(error, alike) from error
    torch, there = device.torch, device.put(X.detach())
    if there.dtype in (torch.float32, torch.float64):
        return TensorRows(there)
    narrow = there.is_floating_point() or there.element_size() <= 2
    narrow = narrow or all(abs(int(end)) < _EXACT_IN_FLOAT32 for end in there.aminmax())
    return TensorRows(there.to(torch.float32 if narrow else torch.float64))


def _needs_copy(X: Any) -> bool:
    """Return whether X is an array of numbers that must be copied to become floats in C order."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub":
        return False
    return not (X.dtype in _FLOAT_TYPES and X.flags.c_contiguous)


def _stored(estimator: Any, X: NDArray, reset: bool, gaps: bool) -> ConvertedRows:
    """Validate an array block by block, because a test for NaN allocates as much as its input."""
    validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite=False)
    if X.dtype.kind == "f":
        for part in row_blocks(X):
            assert_all_finite(X[part], allow_nan=gaps, estimator_name=type(estimator).__name__, input_name="X")
    return ConvertedRows(np.asarray(X), _float_type(X))


def rows_and_labels(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sparse: bool = True,
    soft: bool = False,
    reset: bool = True,
    squared: bool = False,
    gaps: bool = False,
    device: Device | None = None,
) -> tuple[Rows, Labels]:
    """Return validated rows and labels; `soft` allows targets (n, K), `squared` refuses values whose squares overflow.

    `gaps` allows NaN in X. If `device` is given, a tensor X is moved to it.
    """
    check_given(y, type(estimator).__name__)
    within = squared and _ready(X) and _within_squares(X)
    X = rows(estimator, X, reset=reset, sparse=sparse, finite=within, gaps=gaps, device=device)
    if squared and not within:
        _refuse_overflow(X)
    return X, labels_of(y, X.shape[0], soft)


def labels_of(y: Any, n: int, soft: bool = False) -> Labels:
    """Return the labels of n rows."""
    if is_tensor(y) and y.ndim == 1:
        labels = encode_tensor(y)
    else:
        y = on_host(y)
        labels = encode_soft(y) if soft and _is_soft(y) else encode(y)
    check_length(labels, n)
    return labels


def check_blocks(X: Any) -> None:
    """Raise InputError if rows in files (kway.rows.files) are not finite, or their squares overflow; block by block."""
    for block in row_blocks(X):
        _refuse_overflow(plain_rows(X[block], sparse=True))


def _refuse_overflow(X: Rows) -> None:
    """Raise InputError if sums of squares would overflow the float type of a solver."""
    most = MAX_SQUARED[X.dtype.name]
    if isinstance(X, TensorRows):
        fine, largest = X.peak() <= most, f"{X.peak():.3g}"
    else:
        fine = _within_squares(X.data if sp.issparse(X) else X)
        largest = "" if fine else largest_value(X)
    if not fine:
        raise InputError(
            f"X holds {largest}, more than {most:.0e}, whose squares overflow {X.dtype}; scale the column "
            "(StandardScaler), or drop the row"
        )


def _within_squares(values: NDArray) -> bool:
    """Return whether all values are finite and sums of their squares stay in their float type."""
    low, high = _ends(values) if values.size else (0.0, 0.0)
    most = MAX_SQUARED[values.dtype.name]
    return -most <= low and high <= most  # NaN is neither


def plain_rows(X: Any, name: str = "X", *, sparse: bool = False) -> Rows:
    """Return validated rows for functions that are not estimators; one row may be 1-D; CSR is kept if `sparse`.

    `checked` rows are returned as they are.
    """
    if isinstance(X, ValidatedRows):
        if isinstance(X.rows, TensorRows):
            return np.asarray(X.rows)
        if isinstance(X.rows, ConvertedRows):
            return X.rows[:]
        return X.rows.toarray() if sp.issparse(X.rows) and not sparse else X.rows
    if _ready(X) and _finite(X):  # as a rule
        return X
    X = hosted(X, name)
    if sparse and sp.issparse(X):
        return _plain_csr(X, name)
    try:
        array = X.toarray() if sp.issparse(X) else np.asarray(X)
    except (ValueError, TypeError) as error:
        raise explained(error, X) from error
    if array.ndim == 1 and array.size and array.dtype != object:
        array = array[None, :]
    if array.dtype == object or array.dtype.kind not in "fiub" or array.ndim != 2:
        raise InputError(
            f"{name} must be numbers of shape (rows, features), got dtype {array.dtype} and shape {array.shape}"
            f"{odd_columns(X, '; encode or drop the ', ', or let kway.fit read the table')}"
        )
    if array.dtype.kind == "f" and not _finite(array):
        raise InputError(f"{name} contains NaN or infinity{first_bad(array)}; impute or drop such rows")
    return _floats(np.ascontiguousarray(array))


def plain_far(X: Any, device: Device) -> TensorRows | None:
    """Return rows of floats on the device if X is a tensor or `checked` TensorRows, else None."""
    if isinstance(X, ValidatedRows):
        return X.rows if isinstance(X.rows, TensorRows) else None
    if not is_tensor(X) or not X.is_floating_point() or X.element_size() < 4 or not _sound(X):
        return None
    return TensorRows(device.put(X.detach()))


def hosted(X: Any, name: str = "X") -> Any:
    """Return X on the host; raise InputError for masked values, and for sparse entries outside the shape."""
    X = on_host(X)
    refuse_masked(X, name)
    if sp.issparse(X):
        _refuse_loose_entries(X, name)
    return X


def _refuse_loose_entries(X: Any, name: str) -> None:
    """Raise InputError for entries of a sparse matrix outside its shape: scipy would read and write other memory."""
    try:
        if X.format == "coo":
            type(X)((X.data, (X.row, X.col)), shape=X.shape)  # its constructor checks the rows and columns
        elif X.format in ("csr", "csc", "bsr"):  # the arrays are shared, because a full check may shorten those of X
            type(X)((X.data, X.indices, X.indptr), shape=X.shape).check_format()
    except ValueError as error:
        raise InputError(
            f"{name} is a sparse matrix with entries outside its shape {X.shape} ({error}); build it again, and check "
            "the arrays of its indices"
        ) from error


def _plain_csr(X: Any, name: str) -> Rows:
    csr = sp.csr_matrix(X)
    if not np.isfinite(csr.data).all():
        raise InputError(f"{name} contains NaN or infinity; impute or drop such rows")
    return _floats(_canonical(csr))


def _canonical(csr: Any) -> Any:
    """Return CSR with sorted columns and no duplicates, as kernels expect it."""
    if not csr.has_canonical_format:
        csr = csr.copy()  # the caller's matrix stays as it is
        csr.sum_duplicates()
    return csr


def weights(sample_weight: ArrayLike | None, X: Rows) -> NDArray | None:
    """Return validated sample weights (n,), or None if there are none."""
    if sample_weight is None:
        return None
    try:
        given = on_host(sample_weight)
        if isinstance(given, Number):  # one weight for every row
            given = np.full(X.shape[0], given)
        found = check_array(given, ensure_2d=False, dtype=X.dtype, order="C", input_name="sample_weight")
    except (ValueError, TypeError) as error:
        raise InputError(f"{str(error).rstrip('.!')}; give every row one finite weight >= 0") from error
    if found.shape != (X.shape[0],):
        raise InputError(f"sample_weight has shape {found.shape}, expected ({X.shape[0]},); give every row one weight")
    if (found < 0).any():
        raise InputError("Negative values in sample_weight; give every row one finite weight >= 0")
    if not found.any():
        raise InputError(
            "sample_weight is zero for every row, so there is nothing to learn from; give some row a weight"
        )
    return found


def _floats(X: Rows) -> Rows:
    if X.dtype.kind not in "fiub":
        raise InputError(f"X must be numbers, got dtype {X.dtype}; encode it as numbers, or drop it")
    return X if X.dtype in _FLOAT_TYPES else X.astype(_float_type(X))


def _float_type(X: Rows) -> np.dtype:
    """Return the float dtype to which X is converted."""
    narrow = X.dtype.itemsize <= 4 if X.dtype.kind == "f" else _fits_float32(X)
    return np.dtype(np.float32 if narrow else np.float64)


def _finite(array: NDArray) -> bool:
    """Return whether all values are finite: by a sum of squares if they are few, else by minimum and maximum."""
    if array.size <= FEW_VALUES and math.isfinite(np.vdot(array, array)):
        return True
    low, high = _ends(array)  # NaN would be either end
    return math.isfinite(low) and math.isfinite(high)


def _allowed(array: NDArray, gaps: bool) -> bool:
    """Return whether all values are finite or, with `gaps`, missing."""
    return not any(np.isinf(array[part]).any() for part in row_blocks(array)) if gaps else _finite(array)


def _ends(values: NDArray) -> tuple[float, float]:
    """Return the minimum and maximum, NaN if a value is NaN; memory is read once for both."""
    if values.nbytes <= CACHE_BYTES:
        return float(values.min()), float(values.max())
    step = rows_per_block(values[0].nbytes, CACHE_BYTES // 4)  # still in the cache when it is read again

    def part(share: slice) -> NDArray[np.float64]:
        ends = [(values[few].min(), values[few].max()) for few in spans_of(share, step)]
        low, high = np.array(ends, np.float64).T
        return np.array([low.min(), high.max()])

    low, high = np.array(pmap(part, shares(len(values), least=rows_per_block(values[0].nbytes, BLOCK_BYTES // 8)))).T
    return float(low.min()), float(high.max())


def _fits_float32(X: Rows) -> bool:
    values = X.data if sp.issparse(X) else X
    if values.dtype.itemsize <= 2 or values.size == 0:
        return True
    low, high = _ends(values)
    return low > -_EXACT_IN_FLOAT32 and high < _EXACT_IN_FLOAT32


def _is_soft(y: Any) -> bool:
    shape = getattr(y, "shape", None) or np.shape(np.asarray(y, dtype=object))
    return len(shape) == 2 and shape[1] > 1


# ---- error messages: those of scikit-learn and numpy, with the place of the value and what to do


def explained(error: Exception, X: Any) -> InputError:
    """Return the error as an InputError that says what is wrong, what was received and what to do."""
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
    """Return the place of the first value that is not finite, if X can be searched."""
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
    """Return the largest absolute value of rows (n, d), dense or CSR, and its place."""
    values = rows.data if sp.issparse(rows) else rows
    at = int(np.argmax(np.abs(values)))
    if sp.issparse(rows):
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
    else:
        row, column = divmod(at, rows.shape[1])
    return f"{values.ravel()[at]:.3g} in column {column} (row {row})"


def odd_columns(X: Any, before: str = " (", after: str = ")") -> str:
    """Return the names of the columns of a frame that are not numbers or booleans, between two texts; else nothing."""
    kinds = {str(c): str(X[c].dtype) for c in getattr(X, "columns", [])}
    odd = [c for c, kind in kinds.items() if not re.match("u?int|float|bool|decimal", kind, re.IGNORECASE)]
    return f"{before}columns {listing(odd, 5)}{after}" if odd else ""


def _lengths(X: Any) -> str:
    try:
        found = sorted({len(row) for row in X})
    except TypeError:
        return ""
    return f" ({listing(found, 5)})"
