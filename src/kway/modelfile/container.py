"""The file format: safetensors, with the manifest of kway in its metadata.

    8 bytes     length h of the header, little-endian
    h bytes     JSON {"__metadata__": {"header_sha256": digest, "format": "kway", "manifest": JSON},
                name: {dtype, shape, data_offsets}, ...}
                padded with spaces so that the payload starts at a multiple of 64
    the rest    the tensors, one after another, widest numbers first so that each is aligned

The header contains two SHA-256 digests. That of the header itself, in which its own digits count as zeros, is checked
on every read, so any altered byte is found. That of the payload, in the manifest, is checked by `verify`, which reads
every byte. The safetensors library can read these files. kway reads them itself because the library copies every
tensor and accepts an altered header.

Text is not a tensor type. It is stored as UTF-8 bytes (N,) uint8 and offsets (n + 1,) int64. `kinds` names the arrays
that are text ("text" for the fixed width of numpy, "object text") or an object array of numbers ("object").

Only regular files are opened, because reading a pipe could wait forever. Links are followed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError, ModelFileError
from kway.memory import MAX_EXPANSION, MIN_CHECKED, rows_per_block
from kway.modelfile.schema import FileLimit
from kway.modelfile.value_checks import LARGEST_INT
from kway.tables.outputs import describe_kind, replacing, resolve_output


class FileFormat(IntEnum):
    """Numbers of the file format."""

    VERSION = 1
    ALIGNMENT = 64  # bytes: the payload starts at a multiple of it


FORMAT, FORMAT_VERSION = "kway", FileFormat.VERSION
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_CODES = {np.dtype(v): k for k, v in _DTYPES.items()}
_UNKNOWN = "0" * 64  # placeholder of a digest, of the same length


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in the table of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def numpy_dtype(self) -> str:
        """The dtype as numpy names it: float32 for F32."""
        return np.dtype(_DTYPES[self.dtype]).name


@dataclass(frozen=True)
class OpenedFile:
    """A checked file: its manifest, its table and read-only views of the tensors."""

    manifest: dict[str, Any]
    table: tuple[TensorInfo, ...]
    tensors: dict[str, NDArray]
    n_bytes: int


def write(path: str | Path, manifest: Mapping[str, Any], tensors: Mapping[str, NDArray]) -> None:
    """Write tensors to a file, which appears when it is complete; arrays are copied block by block."""
    place = model_place(path)
    ordered = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    table = _table({name: tensors[name] for name in ordered})
    full = {**manifest, "format": FORMAT, "format_version": FORMAT_VERSION}
    with replacing(place) as draft, draft.open("wb") as out:
        out.write(_header(full, table, _UNKNOWN))  # a placeholder: the digest has a fixed length
        digest = _stream(out, [tensors[name] for name in ordered])
        out.seek(0)
        out.write(_header(full, table, digest))


def read(path: str | Path, *, mmap: bool = True, verify: bool = False) -> OpenedFile:
    """Check the header and the length of a file, then map the tensors without reading them.

    `mmap=False` reads them into memory instead. `verify` reads them and compares the digest.
    """
    path = model_path(path)
    with open_model(path) as file:
        n_bytes = os.fstat(file.fileno()).st_size
        header = _read_header(file, n_bytes, path)
        manifest, table = _parse(header, path)
        start = 8 + len(header)
        _check_layout(table, n_bytes - start, path)
        file.seek(0)
        raw = np.memmap(file, np.uint8, "r") if mmap else np.fromfile(file, np.uint8)
        raw.flags.writeable = False
        if verify:
            _check_payload(file, start, manifest, path)
    tensors = {t.name: _view(raw[start + t.start : start + t.end], t, path) for t in table}
    return OpenedFile(manifest, table, tensors, n_bytes)


def verify(path: str | Path) -> None:
    """Read every byte of a model file and compare it with the digest written by `save`.

    Parameters
    ----------
    path : str or Path
        The model file.

    Raises
    ------
    ModelFileError
        If the file is damaged or was changed.
    """
    read(path, verify=True)


def _check_payload(file: BufferedReader, start: int, manifest: Mapping[str, Any], path: Path) -> None:
    file.seek(start)
    if hashlib.file_digest(file, "sha256").hexdigest() != manifest.get("payload_sha256"):
        raise ModelFileError(
            f"{path} was altered after it was saved: its content does not match its digest; copy it again"
        )


def _table(tensors: Mapping[str, NDArray]) -> tuple[TensorInfo, ...]:
    rows, start = [], 0
    for name, array in tensors.items():
        code = _CODES.get(array.dtype.newbyteorder("<"))
        if code is None:
            raise ModelFileError(
                f"array {name!r} has dtype {array.dtype}, which model files do not support; convert it to float64"
            )
        rows.append(TensorInfo(name, code, array.shape, start, start + array.nbytes))
        start += array.nbytes
    return tuple(rows)


def _stream(out: BinaryIO, arrays: list[NDArray]) -> str:
    """Write the bytes of the arrays in order; return their digest."""
    digest = hashlib.sha256()
    for array in arrays:
        flat = array.reshape(-1)  # copied only if it is not contiguous
        step = rows_per_block(array.dtype.itemsize)
        for a in range(0, flat.size, step):
            block = flat[a : a + step].astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def _header(manifest: Mapping[str, Any], table: tuple[TensorInfo, ...], payload_digest: str) -> bytes:
    """Return the 8 bytes of length and the header with both digests."""
    full = json.dumps({**manifest, "payload_sha256": payload_digest}, separators=(",", ":"), allow_nan=False)
    metadata = {"header_sha256": _UNKNOWN, "format": FORMAT, "manifest": full}
    rows = {t.name: {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [t.start, t.end]} for t in table}
    text = json.dumps({"__metadata__": metadata, **rows}, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % FileFormat.ALIGNMENT)
    if len(text) > FileLimit.HEADER_BYTES:
        raise ModelFileError(
            f"the parameters take {len(text):,} bytes, and a header may have {FileLimit.HEADER_BYTES:,}; pass fewer or "
            "shorter parameters"
        )
    return len(text).to_bytes(8, "little") + text.replace(_UNKNOWN.encode(), _digest(text, _UNKNOWN).encode(), 1)


def _digest(header: bytes, given: str) -> str:
    """Return the digest of a header in which the `given` digest, which comes first, is replaced by zeros."""
    return hashlib.sha256(header.replace(given.encode(), _UNKNOWN.encode(), 1)).hexdigest()


def _read_header(file: BinaryIO, n_bytes: int, path: Path) -> bytes:
    length = int.from_bytes(file.read(8), "little")
    if n_bytes < 10 or not 2 <= length <= min(FileLimit.HEADER_BYTES, n_bytes - 8):
        raise ModelFileError(
            f"{path} is not a kway model file, or is incomplete: its first bytes are not the length of a header"
        )
    return file.read(length)


def _parse(header: bytes, path: Path) -> tuple[dict[str, Any], tuple[TensorInfo, ...]]:
    document = _json(header, path)
    metadata = document.pop("__metadata__", None)
    if (
        not isinstance(metadata, dict)
        or metadata.get("format") != FORMAT
        or not isinstance(metadata.get("manifest"), str)
    ):
        raise ModelFileError(f"{path} is not a kway model file: its header has no kway manifest")
    manifest = _json(metadata["manifest"], path)
    version = manifest.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{path} has no format version: it was altered, or not written by kway")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {version}, written by kway {manifest.get('kway_version')}; this kway reads formats up "
            f"to {FORMAT_VERSION:d}; upgrade kway"
        )
    table = tuple(sorted((_row(name, value, path) for name, value in document.items()), key=lambda t: (t.start, t.end)))
    digest = str(metadata.get("header_sha256"))
    if digest != _digest(header, digest):
        raise ModelFileError(f"the header of {path} was altered after it was saved; copy the file again")
    return manifest, table


def _json(text: bytes | str, path: Path) -> dict[str, Any]:
    try:
        ascii_text = text.decode("ascii") if isinstance(text, bytes) else text.encode("ascii").decode()
        value = json.loads(ascii_text, parse_constant=_finite_float, parse_float=_finite_float)
        _check_values(value)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a kway model file, or its header was altered: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} is not a kway model file: its header is not a JSON object")
    return value


def _check_values(value: Any) -> None:
    """Raise ValueError for JSON that is nested too deeply, and for text that is not Unicode."""
    depth, level = 0, [value]
    while level:
        depth += 1
        if depth > FileLimit.DEPTH:
            raise ValueError(f"values are nested deeper than {FileLimit.DEPTH} levels")
        below: list[Any] = []
        for entry in level:
            if isinstance(entry, dict):
                below += entry.keys()
                below += entry.values()
            elif isinstance(entry, list):
                below += entry
            elif isinstance(entry, str) and not entry.isascii():
                entry.encode()  # a lone surrogate is a ValueError
        level = below


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):  # NaN and Infinity are not JSON
        raise ValueError(f"{text:.40} is not a finite number")
    return value


def _row(name: str, value: Any, path: Path) -> TensorInfo:
    try:
        shape, (start, end), dtype = tuple(value["shape"]), value["data_offsets"], value["dtype"]
        whole = all(type(v) is int and 0 <= v <= LARGEST_INT for v in (*shape, start, end))
        fits = whole and dtype in _DTYPES and end - start == math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    except (TypeError, KeyError, ValueError):
        fits = False
    if not fits:
        raise ModelFileError(
            f"the header of {path} has an invalid description of tensor {name!r}: {value!r:.200}; copy the file again"
        )
    return TensorInfo(name, dtype, shape, start, end)


def _check_layout(table: tuple[TensorInfo, ...], payload: int, path: Path) -> None:
    """Raise ModelFileError unless the tensors follow each other without a gap and end with the file."""
    place = 0
    for t in table:
        if t.start != place:
            raise ModelFileError(
                f"the header of {path} places tensor {t.name!r} at {t.start}, expected {place}; copy the file again"
            )
        place = t.end
    if payload < place:
        raise ModelFileError(f"{path} is incomplete: it has {payload:,} of {place:,} bytes of content; copy it again")
    if payload > place:
        raise ModelFileError(f"{path} has {payload - place:,} bytes after its content; copy it again")


def _view(raw: NDArray[np.uint8], t: TensorInfo, path: Path) -> NDArray:
    try:
        return np.asarray(raw).view(_DTYPES[t.dtype]).reshape(t.shape)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"tensor {t.name!r} of {path} cannot be mapped: {error}; copy the file again") from error


_BYTES, _OFFSETS = ".bytes", ".offsets"
TEXT = ("classes_", "feature_names_in_")  # arrays that may be text; a nested classifier has them under a prefix


def pack_arrays(arrays: Mapping[str, NDArray]) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Return arrays as tensors, and the kinds of those that are not plain numbers."""
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
    """Reverse `pack_arrays`."""
    if not isinstance(kinds, dict):
        raise ModelFileError("the manifest of the model file has no kinds of its arrays; it was not written by kway")
    arrays = dict(tensors)
    for name, kind in kinds.items():
        if name.rpartition(".")[2] not in TEXT:
            raise ModelFileError(
                f"the model file has {name!r:.100} as text, but only labels and column names are text; do not trust it"
            )
        try:
            if kind == "object":
                arrays[name] = arrays[name].astype(object)
            else:
                arrays[name] = _from_text(arrays.pop(name + _BYTES), arrays.pop(name + _OFFSETS), kind)
        except KeyError as error:
            raise ModelFileError(f"array {name!r} is missing from the model file ({error}); copy it again") from error
        except UnicodeDecodeError as error:
            raise ModelFileError(
                f"the text of {name!r} in the model file is damaged: {error}; copy it again"
            ) from error
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
        raise ModelFileError(f"{name} contains {found}; labels in a model file must be all text or all numbers")
    raise ModelFileError(
        f"{name} has dtype {array.dtype} and shape {array.shape}; model files support numbers, true/false and "
        "one-dimensional text; convert the labels before fit"
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
        raise ModelFileError("text in the model file is damaged: its offsets are not in order; copy the file again")
    text = content.tobytes()
    labels = [text[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(offsets.tolist())]
    padded_bytes = 4 * len(lengths) * int(lengths.max(initial=0))  # numpy pads all texts to the width of the longest
    too_wide = padded_bytes > max(MIN_CHECKED, MAX_EXPANSION * (content.nbytes + offsets.nbytes))
    return np.array(labels, dtype=object if kind == "object text" or too_wide else np.str_)


@contextmanager
def open_model(path: Path) -> Iterator[BufferedReader]:
    """Open a file for reading; raise ModelFileError if it does not exist or is not a regular file."""
    try:
        # O_NONBLOCK: opening a pipe would wait for a writer
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ModelFileError(_why_not(path, error)) from error
    kind = describe_kind(os.fstat(handle).st_mode)
    if kind is not None:
        os.close(handle)
        raise ModelFileError(f"{path} is {kind}; give the path of a regular file")
    with open(handle, "rb") as file:
        try:
            yield file
        except OSError as error:
            raise ModelFileError(_why_not(path, error)) from error


def model_path(path: str | Path) -> Path:
    """Return the path; raise ModelFileError if it is not a str or a Path."""
    try:
        given = Path(os.fsdecode(path))
        if "\0" in str(given):
            raise ModelFileError(f"{str(given)!r:.100} cannot be read or written: its name contains a NUL; remove it")
        return given
    except TypeError as error:
        raise ModelFileError(f"the path of a model file must be a str or a Path; got {path!r}") from error


def model_place(path: str | Path) -> Path:
    """Return the path of a model to be written, with links followed."""
    try:
        return resolve_output(model_path(path))
    except InputError as error:
        raise ModelFileError(str(error)) from error


def _why_not(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f"{path} is a link to {os.readlink(path)}, which does not exist (No such file or directory)"
    kind = "" if not isinstance(error, OSError) or not path.is_socket() else "it is a socket: "
    return f"{path} cannot be read: {kind}{getattr(error, 'strerror', None) or error}"
