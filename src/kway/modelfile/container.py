"""The file: safetensors, with kway's manifest in its metadata.

    8 bytes     length h of the header, little-endian
    h bytes     JSON {"__metadata__": {"format": "kway", "manifest": JSON}, name: {dtype, shape, data_offsets}, ...}
                padded with spaces so that the payload starts at a multiple of 64
    the rest    the tensors, one after another, widest numbers first so that each is aligned

The manifest carries two digests (SHA-256): one of the header, checked on every read, and one of the payload, checked by
`verify` since that reads every byte. The header has one spelling only (keys sorted, no spaces), so any altered byte is
found. The safetensors library reads these files too; kway reads them itself because the library copies every
tensor and accepts an altered header.

Text is not a tensor type: it becomes UTF-8 bytes (N,) uint8 and offsets (n + 1,) int64. `kinds` names the arrays that
are text ("text" for numpy's fixed width, "object text") or an object array of numbers ("object").

Only plain files are opened, so that a pipe cannot make a reader wait for ever. Links are followed.
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
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError, ModelFileError
from kway.tables.outputs import describe_kind, replacing, resolve_output

FORMAT, FORMAT_VERSION = "kway", 1

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_CODES = {np.dtype(v): k for k, v in _DTYPES.items()}
_MOST_HEADER = 100_000_000  # bytes; the limit of the safetensors library
_MOST_DEPTH = 400  # of JSON; 0.1.0 wrote a classifier inside three others 220 deep
_ALIGN = 64
_BLOCK = 1 << 24  # bytes written or hashed at a time
_UNKNOWN = "0" * 64  # stands for a digest until it is known, and has its length


@dataclass(frozen=True)
class TensorInfo:
    """One row of the header's table."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Opened:
    """A checked file: manifest, table and read-only views of the tensors."""

    manifest: dict[str, Any]
    table: tuple[TensorInfo, ...]
    tensors: dict[str, NDArray]
    n_bytes: int


def write(path: str | Path, manifest: Mapping[str, Any], tensors: Mapping[str, NDArray]) -> None:
    """Stream the tensors to a file that appears when complete; arrays are copied a block at a time only."""
    place = model_place(path)
    ordered = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    table = _table({name: tensors[name] for name in ordered})
    full = {**manifest, "format": FORMAT, "format_version": FORMAT_VERSION}
    with replacing(place) as draft, draft.open("wb") as out:
        start = _header(full, table, _UNKNOWN)  # keeps the place: the digest has a fixed length
        out.write(start)
        digest = _stream(out, [tensors[name] for name in ordered])
        header = _header(full, table, digest)
        if len(header) != len(start):
            raise AssertionError("the header changed its length with the digest")
        out.seek(0)
        out.write(header)


def read(path: str | Path, *, mmap: bool = True, verify: bool = False) -> Opened:
    """Check the header and the length of the file, then map the tensors; the payload is not read.

    `mmap=False` reads it into memory instead; `verify` reads it and compares its digest.
    """
    path = model_path(path)
    with open_model(path) as file:
        n_bytes = os.fstat(file.fileno()).st_size
        header = _read_header(file, n_bytes, path)
        manifest, table = _parse(header, path)
        start = 8 + len(header)
        _check_layout(table, n_bytes - start, path)
        raw = np.memmap(file, np.uint8, "r") if mmap else _in_memory(file, n_bytes, path)
        if verify:
            _check_payload(file, start, manifest, path)
    tensors = {t.name: _view(raw[start + t.start : start + t.end], t, path) for t in table}
    return Opened(manifest, table, tensors, n_bytes)


def verify(path: str | Path) -> None:
    """Read every byte; ModelFileError unless the payload is the one that was saved."""
    read(path, verify=True)


def _in_memory(file: BufferedReader, n_bytes: int, path: Path) -> NDArray[np.uint8]:
    """Every byte of the file, in memory of our own."""
    raw = np.empty(n_bytes, np.uint8)
    file.seek(0)
    if file.readinto(raw.data) != n_bytes:
        raise ModelFileError(f"{path} became shorter while it was read; get it again")
    raw.flags.writeable = False
    return raw


def _check_payload(file: BufferedReader, start: int, manifest: Mapping[str, Any], path: Path) -> None:
    file.seek(start)
    if hashlib.file_digest(file, "sha256").hexdigest() != manifest.get("payload_sha256"):
        raise ModelFileError(
            f"{path} was altered after it was saved: its content does not match its digest; get it again"
        )


def _table(tensors: Mapping[str, NDArray]) -> tuple[TensorInfo, ...]:
    rows, start = [], 0
    for name, array in tensors.items():
        code = _CODES.get(array.dtype.newbyteorder("<"))
        if code is None:
            raise ModelFileError(f"array {name!r} has dtype {array.dtype}, which model files do not hold")
        rows.append(TensorInfo(name, code, array.shape, start, start + array.nbytes))
        start += array.nbytes
    return tuple(rows)


def _stream(out: BinaryIO, arrays: list[NDArray]) -> str:
    """Write the arrays' bytes in order; their digest."""
    digest = hashlib.sha256()
    for array in arrays:
        flat = array.reshape(-1)  # a copy only where the array is not contiguous
        step = max(1, _BLOCK // array.dtype.itemsize)
        for a in range(0, flat.size, step):
            block = flat[a : a + step].astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def _header(manifest: Mapping[str, Any], table: tuple[TensorInfo, ...], payload_digest: str) -> bytes:
    """The 8 bytes of length and the header, with both digests in place."""
    full = {**manifest, "payload_sha256": payload_digest}
    full["header_sha256"] = _digest(full, table)
    text = _canonical(_document(full, table))
    text += b" " * (-(8 + len(text)) % _ALIGN)
    if len(text) > _MOST_HEADER:
        raise ModelFileError(
            f"the parameters take {len(text):,} bytes, above the {_MOST_HEADER:,} that a header may have"
        )
    return len(text).to_bytes(8, "little") + text


def _document(manifest: Mapping[str, Any], table: tuple[TensorInfo, ...]) -> dict[str, Any]:
    rows = {t.name: {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [t.start, t.end]} for t in table}
    return {"__metadata__": {"format": FORMAT, "manifest": _canonical(manifest).decode()}, **rows}


def _digest(manifest: Mapping[str, Any], table: tuple[TensorInfo, ...]) -> str:
    """Of the manifest (without this digest) and the table."""
    content = {k: v for k, v in manifest.items() if k != "header_sha256"}
    return hashlib.sha256(_canonical(_document(content, table))).hexdigest()


def _canonical(value: Any) -> bytes:
    """The one spelling of a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _read_header(file: BinaryIO, n_bytes: int, path: Path) -> bytes:
    length = int.from_bytes(file.read(8), "little")
    if n_bytes < 10 or not 2 <= length <= min(_MOST_HEADER, n_bytes - 8):
        raise ModelFileError(
            f"{path} is not a kway model file, or was cut short: its first bytes give no header length"
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
        raise ModelFileError(f"{path} has no format version; it was altered or not written by kway")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {version}, written by kway {manifest.get('kway_version')}; this kway reads formats up "
            f"to {FORMAT_VERSION}: upgrade kway"
        )
    table = tuple(sorted((_row(name, value, path) for name, value in document.items()), key=lambda t: (t.start, t.end)))
    text = header.rstrip(b" ")
    same = text == _canonical(_document(manifest, table)) and len(header) - len(text) < _ALIGN
    if not same or manifest.get("header_sha256") != _digest(manifest, table):
        raise ModelFileError(f"the header of {path} was altered after it was saved; get the file again")
    return manifest, table


def _json(text: bytes | str, path: Path) -> dict[str, Any]:
    try:
        ascii_text = text.decode("ascii") if isinstance(text, bytes) else text.encode("ascii").decode()
        value = json.loads(ascii_text, parse_constant=_refuse_constant, parse_float=_finite_float)
        _check_values(value)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a kway model file, or its header was altered: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} is not a kway model file: its header is not a JSON object")
    return value


def _check_values(value: Any) -> None:
    """Refuse JSON that is nested deeper than any model's, and text that is no Unicode."""
    depth, level = 0, [value]
    while level:
        depth += 1
        if depth > _MOST_DEPTH:
            raise ValueError(f"values are nested deeper than {_MOST_DEPTH}")
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
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is not a number that a float holds")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _row(name: str, value: Any, path: Path) -> TensorInfo:
    try:
        shape, (start, end), dtype = tuple(value["shape"]), value["data_offsets"], value["dtype"]
        whole = all(type(v) is int and 0 <= v < 2**63 for v in (*shape, start, end))
        fits = whole and dtype in _DTYPES and end - start == math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    except (TypeError, KeyError, ValueError):
        fits = False
    if not fits:
        raise ModelFileError(
            f"the header of {path} describes tensor {name!r} in a way that makes no sense: {value!r:.200}"
        )
    return TensorInfo(name, dtype, shape, start, end)


def _check_layout(table: tuple[TensorInfo, ...], payload: int, path: Path) -> None:
    """Tensors follow each other without a gap and end with the file."""
    place = 0
    for t in table:
        if t.start != place:
            raise ModelFileError(f"the header of {path} places tensor {t.name!r} at {t.start}, expected {place}")
        place = t.end
    if payload < place:
        raise ModelFileError(f"{path} was cut short: {payload:,} of {place:,} bytes of content are there; get it again")
    if payload > place:
        raise ModelFileError(f"{path} has {payload - place:,} bytes after its content; get it again")


def _view(raw: NDArray[np.uint8], t: TensorInfo, path: Path) -> NDArray:
    try:
        return np.asarray(raw).view(_DTYPES[t.dtype]).reshape(t.shape)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"tensor {t.name!r} of {path} cannot be mapped: {error}") from error


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


@contextmanager
def open_model(path: Path) -> Iterator[BufferedReader]:
    """The file, open for reading; ModelFileError where there is none, or something else than a file."""
    try:
        # without waiting: opening a pipe otherwise blocks until somebody writes to it
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ModelFileError(_why_not(path, error)) from error
    try:
        _refuse_other_kinds(path, os.fstat(handle).st_mode)
    except ModelFileError:
        os.close(handle)
        raise
    with open(handle, "rb") as file:
        try:
            yield file
        except OSError as error:
            raise ModelFileError(_why_not(path, error)) from error


def model_path(path: str | Path) -> Path:
    """The path, where it is one."""
    try:
        return Path(os.fsdecode(path))
    except TypeError as error:
        raise ModelFileError(f"a model file is named by its path, a str or a Path; got {path!r}") from error


def model_place(path: str | Path) -> Path:
    """Where a save to `path` goes."""
    try:
        return resolve_output(model_path(path))
    except InputError as error:
        raise ModelFileError(str(error)) from error


def _refuse_other_kinds(path: Path, mode: int) -> None:
    kind = describe_kind(mode)
    if kind is not None:
        raise ModelFileError(f"{path} is {kind}; a model is one plain file: give the path of that")


def _why_not(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f"{path} is a link to {os.readlink(path)}, which is not there (No such file or directory)"
    kind = "" if not isinstance(error, OSError) or not path.is_socket() else "it is a socket: "
    return f"{path} cannot be read: {kind}{getattr(error, 'strerror', None) or error}"
