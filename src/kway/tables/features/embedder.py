"""Embeddings: texts -> unit vectors (n, d) by a sentence-transformers model. Each text is computed once and stored.

Images need a model that reads images (clip-ViT-B-32). Their vectors are not stored.

    open_embedder("all-MiniLM-L6-v2")   a name on the Hugging Face hub or in its cache, identified by its revision
    open_embedder("models/mine")        a folder, identified by the digest of its files
    open_embedder(function)             a Python function of texts or images, identified only by its name

Vectors are stored in the cache folder, one SQLite file per model: (model, text) -> float32 vector. Processes may read
while another one writes. A damaged file is replaced, because its content can be computed again. The identity of the
embedder is part of the model file, and `check_same` raises an error for another embedder at predict. torch is imported
only if a text has no stored vector.
"""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.progress import track
from kway.tables.outputs import cache_folder

EmbedFunction = Callable[[Any], Any]

_CHUNK = (
    256  # texts or images per call of the model, then stored: an interrupted run loses at most these (test_embedder)
)
_INSTALL = "pip install sentence-transformers"


@dataclass(frozen=True)
class Identity:
    """An embedder: kind is "hub", "folder" or "function"; revision is a commit or a digest, "" for a function."""

    kind: str
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}{', ' + self.revision[:12] if self.revision else ''})"


class Embedder:
    """A sentence-transformers model in a folder. Its vectors have unit length."""

    def __init__(self, identity: Identity, folder: Path) -> None:
        self.identity = identity
        self.folder = folder

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors (n, d) of texts; vectors in the cache are not computed again."""
        distinct = list(dict.fromkeys(texts))
        cache = VectorsCache(_cache_key(self.identity))
        known = cache.get(distinct)
        wanted = [text for text in distinct if text not in known]
        chunks = list(_chunks(wanted))
        for chunk in track(chunks, f"embedding {len(wanted):,} texts", len(chunks), worth=2):
            vectors = self._encode(chunk)
            cache.put(chunk, vectors)
            known |= dict(zip(chunk, vectors))
        return np.stack([known[text] for text in texts]) if texts else np.zeros((0, self._width), np.float32)

    def embed_images(self, pictures: NDArray) -> NDArray[np.float32]:
        """Return vectors (n, d) of images (n, h, w) or (n, h, w, 3) with values 0 to 255, or fractions 0 to 1."""
        from PIL import Image

        most = 1 if pictures.dtype.kind == "f" and pictures.max(initial=0) <= 1 else 255
        values = np.clip(pictures * (255 / most), 0, 255).astype(np.uint8)
        parts = range(0, len(values), _CHUNK)
        vectors = []
        for a in track(parts, f"embedding {len(values):,} images", len(parts), worth=2):
            try:
                vectors.append(self._encode([Image.fromarray(v).convert("RGB") for v in values[a : a + _CHUNK]]))
            except Exception as error:  # each model raises its own
                raise InputError(
                    f"the model {self.identity.name} cannot embed images ({' '.join(str(error).split())[:200]}); "
                    "use a model for images, such as clip-ViT-B-32"
                ) from error
        return np.concatenate(vectors)

    def _encode(self, texts: Sequence[Any]) -> NDArray[np.float32]:
        vectors = self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    @cached_property
    def _model(self) -> Any:
        library = _library()
        _hush()
        return library.SentenceTransformer(str(self.folder))

    @property
    def _width(self) -> int:
        return self._encode(["."]).shape[1]


class FunctionEmbedder:
    """A Python function of a list of texts or an array of images that returns one vector for each."""

    def __init__(self, function: EmbedFunction) -> None:
        module = getattr(function, "__module__", "")
        name = getattr(function, "__qualname__", type(function).__name__)
        self.identity = Identity("function", f"{module}.{name}", "")
        self.function = function

    def __call__(self, inputs: Any) -> NDArray[np.float32]:
        """Return vectors (n, d); raise InputError if the function does not return one per input."""
        vectors = np.asarray(self.function(inputs))
        if vectors.ndim != 2 or len(vectors) != len(inputs) or vectors.dtype.kind not in "fiu":
            raise InputError(
                f"embed={self.identity.name} returned dtype {vectors.dtype}, shape {vectors.shape} for {len(inputs)} "
                "inputs; it must return one row of numbers per input"
            )
        return vectors.astype(np.float32, copy=False)


AnyEmbedder = Embedder | FunctionEmbedder


def open_embedder(spec: str | Path | EmbedFunction, expected: Identity | None = None) -> AnyEmbedder:
    """Return the embedder for a name, a folder or a function.

    If `expected` is given, a model of another revision is not downloaded.
    """
    if callable(spec):
        return FunctionEmbedder(spec)
    if not isinstance(spec, str | Path) or not str(spec).strip():
        raise InputError(f"embed must be the name or folder of a model, or a function; got {spec!r}")
    if Path(spec).is_dir():
        folder = Path(spec).resolve()  # also valid from another working folder
        return Embedder(Identity("folder", str(folder), folder_digest(folder)), folder)
    name = str(spec)
    if name.startswith((".", "/", "~")):
        raise InputError(
            f"there is no folder {name} with an embedding model; give a folder, or a name on the Hugging Face hub"
        )
    folder = _hub_folder(name, expected)
    return Embedder(Identity("hub", name, folder.name), folder)


def reopen(identity: Identity) -> AnyEmbedder:
    """Return the embedder of a saved model; raise InputError if it is not available."""
    if identity.kind == "function":
        raise InputError(
            f"this model embeds its input with the Python function {identity.name}, which is not part of a model file; "
            "pass it again: model.features_.use_embed(function)"
        )
    if identity.kind == "folder" and not Path(identity.name).is_dir():
        raise InputError(
            f"this model embeds text with {identity}, and that folder does not exist; give its new path with embed="
        )
    return check_same(open_embedder(identity.name, identity), identity)


def check_same(embedder: AnyEmbedder, identity: Identity) -> AnyEmbedder:
    """Return the embedder; raise InputError if it is not the one of the model file. A folder may have moved."""
    ours = embedder.identity
    if ours.revision != identity.revision or (identity.kind == "function" and ours.kind != "function"):
        raise _another(identity, ours)
    return embedder


def _another(identity: Identity, ours: Identity) -> InputError:
    return InputError(
        f"this model embeds its input with {identity}; got {ours}, whose vectors differ; "
        "use the same embedding model, or fit again"
    )


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of the files in a folder, without hidden ones."""
    digest = hashlib.sha256()
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    if not files:
        raise InputError(f"folder {folder} is empty; give the folder of an embedding model")
    for path in files:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _cache_key(identity: Identity) -> str:
    return hashlib.sha256(f"{identity.kind} {identity.revision} unit".encode()).hexdigest()[:24]


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield chunks of texts of similar length, so that the model pads little."""
    ordered = sorted(texts, key=len)
    return (ordered[a : a + _CHUNK] for a in range(0, len(ordered), _CHUNK))


def _library() -> Any:
    try:
        import sentence_transformers
    except ImportError as error:
        raise InputError(f"embeddings need sentence-transformers ({error}); install it: {_INSTALL}") from error
    return sentence_transformers


def _hush() -> None:
    """Disable the progress bar of transformers, which would also be written to log files."""
    try:
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        return
    disable_progress_bar()


def _hub_folder(name: str, expected: Identity | None) -> Path:
    """Return the folder of a hub model in the local cache, named by its revision; download the model if needed."""
    folder = _in_hub_cache(name)
    if folder is not None:
        return folder
    try:
        revision = None if expected is None else _newest(name)
        if expected is not None and revision != expected.revision:
            raise _another(expected, Identity("hub", name, str(revision)))  # before the download
        _library().SentenceTransformer(name, **({} if revision is None else {"revision": revision}))
    except InputError:
        raise
    except Exception as error:  # each version of the hub client raises its own
        first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise InputError(
            f"embedding model {name!r} is not on this machine and could not be downloaded: {first}; give its folder"
        ) from error
    folder = _in_hub_cache(name, revision)
    if folder is None:
        raise InputError(f"embedding model {name!r} was loaded, but not from the hub's cache; give its folder instead")
    return folder


def _newest(name: str) -> str | None:
    """Ask the hub for the newest revision of a model, without a download."""
    _library()
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    *first, last = _repositories(name)
    for repository in first:
        try:
            return str(HfApi().model_info(repository).sha)
        except RepositoryNotFoundError:
            continue
    return str(HfApi().model_info(last).sha)


def _in_hub_cache(name: str, revision: str | None = None) -> Path | None:
    _library()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    for repository in _repositories(name):
        try:
            return Path(snapshot_download(repository, revision=revision, local_files_only=True))
        except (LocalEntryNotFoundError, HFValidationError):
            continue
    return None


def _repositories(name: str) -> list[str]:
    """Return the repositories of the hub that a name may mean."""
    return [name] if "/" in name else [f"sentence-transformers/{name}", name]


# ---- stored vectors


def text_key(text: str) -> bytes:
    """Return a hash of a text in 16 bytes."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class VectorsCache:
    """The stored vectors of one model."""

    def __init__(self, model_key: str) -> None:
        self.path = cache_folder() / "embeddings" / f"{model_key}.sqlite"

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return the stored vectors of texts."""
        if not self.path.is_file():
            return {}
        found = {}
        try:
            with closing(self._open()) as db:
                for text in texts:
                    row = db.execute("SELECT vector FROM vectors WHERE key = ?", (text_key(text),)).fetchone()
                    if row is not None:
                        found[text] = np.frombuffer(row[0], np.float32)
        except sqlite3.OperationalError:  # locked or not readable, but not damaged
            return found
        except sqlite3.DatabaseError:
            self.path.unlink(missing_ok=True)
            return {}
        return found

    def put(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Store the vectors (n, d); warn if that is not possible."""
        rows = [(text_key(t), np.ascontiguousarray(v, np.float32).tobytes()) for t, v in zip(texts, vectors)]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as db, db:
                db.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")
                db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        except (OSError, sqlite3.Error) as error:
            warnings.warn(
                f"embeddings cannot be stored in {self.path}: {error}; set KWAY_CACHE to a writable folder",
                stacklevel=2,
            )

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)
