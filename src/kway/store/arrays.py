"""Arrays as tensors. Text is not a tensor type: it becomes UTF-8 bytes (N,) uint8 and offsets (n + 1,) int64.

kinds[name]   "text" (numpy's fixed-width U), "object text", "object" (numbers in an object array); plain: absent
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import ModelFileError

_BYTES, _OFFSETS = ".bytes", ".offsets"
TEXT = ("classes_", "feature_names_in_")  # the arrays that may be text; in a classifier inside another, under a prefix
_MOST_TEXT = 2**30  # bytes that fixed-width text may take, unless the file itself has a 64th of it


def pack_arrays(arrays: Mapping[str, NDArray]) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Arrays of any storable kind -> tensors and the kinds of those that are not plain numbers."""
    tensors: dict[str, NDArray] = {}
    kinds: dict[str, str] = {}
    for name, array in arrays.items():
        kind = _kind(name, array)
        if kind is None:
            tensors[name] = array
            continue
        kinds[name] = kind
        if kind == "object":
            tensors[name] = np.asarray(array.tolist())
        else:
            tensors[name + _BYTES], tensors[name + _OFFSETS] = _text(array)
    return tensors, kinds


def unpack_arrays(tensors: Mapping[str, NDArray], kinds: Any) -> dict[str, NDArray]:
    """Reverse of `pack_arrays`."""
    if not isinstance(kinds, dict):
        raise ModelFileError("the manifest of the model file does not say what kind its arrays are")
    arrays = dict(tensors)
    for name, kind in kinds.items():
        if name.rpartition(".")[2] not in TEXT:
            raise ModelFileError(f"the model file keeps {name!r:.100} as text; only labels and names of columns are")
        try:
            if kind == "object":
                arrays[name] = arrays[name].astype(object)
            else:
                arrays[name] = _from_text(arrays.pop(name + _BYTES), arrays.pop(name + _OFFSETS), kind)
        except KeyError as error:
            raise ModelFileError(f"array {name!r} is missing from the model file ({error})") from error
        except UnicodeDecodeError as error:
            raise ModelFileError(f"the text of {name!r} in the model file is damaged: {error}") from error
    return arrays


def _kind(name: str, array: NDArray) -> str | None:
    if array.dtype.kind in "fiub" and array.dtype.itemsize <= 8:
        return None
    if array.dtype.kind == "U" and array.ndim == 1:
        return "text"
    if array.dtype == object and array.ndim == 1:
        types = {type(v) for v in array}
        if all(issubclass(t, str) for t in types):
            return "object text"
        if len(types) == 1 and issubclass(next(iter(types)), (bool, int, float, np.number, np.bool_)):
            return "object"
        found = ", ".join(sorted(t.__name__ for t in types))
        raise ModelFileError(f"{name} holds {found}; model files hold labels that are all text or all numbers")
    raise ModelFileError(
        f"{name} has dtype {array.dtype} and shape {array.shape}; model files hold numbers, true/false and "
        "one-dimensional text: convert the labels before fit"
    )


def _text(array: NDArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    pieces = [str(v).encode("utf-8", "surrogatepass") for v in array.tolist()]
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(p) for p in pieces], out=offsets[1:])
    return np.frombuffer(b"".join(pieces), np.uint8), offsets


def _from_text(content: NDArray, offsets: NDArray, kind: Any) -> NDArray:
    well_formed = content.dtype == np.uint8 and content.ndim == 1 and offsets.dtype == np.int64 and offsets.ndim == 1
    ordered = well_formed and len(offsets) and offsets[0] == 0 and offsets[-1] == len(content)
    lengths = np.diff(offsets) if ordered else np.empty(0)
    if kind not in ("text", "object text") or not ordered or not (lengths >= 0).all():
        raise ModelFileError("text in the model file is damaged: its offsets are not in order; get the file again")
    size = 4 * len(lengths) * int(lengths.max(initial=0))  # one long text makes all of them wide
    if kind == "text" and size > max(_MOST_TEXT, 64 * (content.nbytes + offsets.nbytes)):
        raise ModelFileError(
            f"text in the model file would take {size / 2**30:,.0f} GiB: {len(lengths):,} texts as wide as the "
            f"longest, of {int(lengths.max()):,} bytes; shorten it and save the model again"
        )
    whole = content.tobytes()
    pieces = [whole[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(offsets.tolist())]
    return np.array(pieces, dtype=object if kind == "object text" else np.str_)
