"""Embeddings: texts -> unit vectors (n, d) by a sentence-transformers model, computed once and kept on disk.

Images go through a model that reads them (clip-ViT-B-32); their vectors are not kept.

    open_embedder("all-MiniLM-L6-v2")   a name on the hub or in its cache, identified by its revision
    open_embedder("models/mine")        a folder, identified by the digest of its files
    open_embedder(function)             any Python function of texts (or images), identified by its name only

Vectors lie in the cache folder: (model, text) -> float32 vector, one SQLite file per model. Any process may read while
another writes; a damaged file is replaced, since everything in it can be computed again. The identity goes into the
model file; `check_same` refuses another model at predict. torch is loaded only if a text has no vector on disk yet.
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

_CHUNK = 256  # texts between two writes to the cache: an interrupted run loses no more; images told of at a time
_INSTALL = "pip install 'kway[embed]'"


@dataclass(frozen=True)
class Identity:
    """What made the vectors: kind is "hub", "folder" or "function"; revision a commit or a digest, "" of a function."""

    kind: str
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}{', ' + self.revision[:12] if self.revision else ''})"


class Embedder:
    """A sentence-transformers model in a folder; the vectors are of unit length."""

    def __init__(self, identity: Identity, folder: Path) -> None:
        self.identity = identity
        self.folder = folder

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d); each distinct text is computed once, ever."""
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
        """(n, d) of images (n, h, w) or (n, h, w, 3), values 0 to 255, or 0 to 1 where they are fractions."""
        from PIL import Image

        most = 1 if pictures.dtype.kind == "f" and pictures.max(initial=0) <= 1 else 255
        values = np.clip(pictures * (255 / most), 0, 255).astype(np.uint8)
        parts = range(0, len(values), _CHUNK)
        vectors = []
        for a in track(parts, f"embedding {len(values):,} images", len(parts), worth=2):
            try:
                vectors.append(self._encode([Image.fromarray(v).convert("RGB") for v in values[a : a + _CHUNK]]))
            except Exception as error:  # each model that reads texts alone has its own
                raise InputError(
                    f"the model {self.identity.name} cannot embed images ({' '.join(str(error).split())[:200]}); "
                    "give one that reads images, such as clip-ViT-B-32"
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
    """Any Python function of a list of texts, or of an array of images, that gives one vector each."""

    def __init__(self, function: EmbedFunction) -> None:
        module = getattr(function, "__module__", "")
        name = getattr(function, "__qualname__", type(function).__name__)
        self.identity = Identity("function", f"{module}.{name}", "")
        self.function = function

    def __call__(self, inputs: Any) -> NDArray[np.float32]:
        """(n, d), checked."""
        vectors = np.asarray(self.function(inputs))
        if vectors.ndim != 2 or len(vectors) != len(inputs) or vectors.dtype.kind not in "fiu":
            raise InputError(
                f"embed={self.identity.name} gave dtype {vectors.dtype} and shape {vectors.shape} for {len(inputs)} "
                "inputs; it must give one row of numbers an input"
            )
        return vectors.astype(np.float32, copy=False)


AnyEmbedder = Embedder | FunctionEmbedder


def open_embedder(spec: str | Path | EmbedFunction, expected: Identity | None = None) -> AnyEmbedder:
    """The embedder that a name, a folder or a function stands for.

    Where one of a known revision is `expected`, no other is fetched.
    """
    if callable(spec):
        return FunctionEmbedder(spec)
    if not isinstance(spec, str | Path) or not str(spec).strip():
        raise InputError(f"embed must be the name or folder of a model, or a function, got {spec!r}")
    if Path(spec).is_dir():
        folder = Path(spec).resolve()  # found again from any working folder
        return Embedder(Identity("folder", str(folder), folder_digest(folder)), folder)
    name = str(spec)
    if name.startswith((".", "/", "~")):
        raise InputError(f"no folder {name} with an embedding model; give a folder, or a name on the hub")
    folder = _hub_folder(name, expected)
    return Embedder(Identity("hub", name, folder.name), folder)


def reopen(identity: Identity) -> AnyEmbedder:
    """The embedder a saved model was trained with, or an error that says what is missing."""
    if identity.kind == "function":
        raise InputError(
            f"this model embeds its input with the Python function {identity.name}, which a model file cannot hold; "
            "give it again: model.features_.use_embed(function)"
        )
    if identity.kind == "folder" and not Path(identity.name).is_dir():
        raise InputError(
            f"this model embeds text with {identity}, and that folder is not here; name its new place with embed="
        )
    return check_same(open_embedder(identity.name, identity), identity)


def check_same(embedder: AnyEmbedder, identity: Identity) -> AnyEmbedder:
    """The embedder, or an error where it is not the one of the model file; folders may have moved."""
    ours = embedder.identity
    if ours.revision != identity.revision or (identity.kind == "function" and ours.kind != "function"):
        raise _another(identity, ours)
    return embedder


def _another(identity: Identity, ours: Identity) -> InputError:
    return InputError(
        f"this model embeds its input with {identity}, got {ours}; vectors of another model mean something else: "
        "use the same one, or fit again"
    )


def folder_digest(folder: Path) -> str:
    """SHA-256 of every file of a folder and its name, hidden ones left out."""
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
    """Runs of texts of about the same length, so that little is padded."""
    ordered = sorted(texts, key=len)
    return (ordered[a : a + _CHUNK] for a in range(0, len(ordered), _CHUNK))


def _library() -> Any:
    try:
        import sentence_transformers
    except ImportError as error:
        raise InputError(f"embeddings need sentence-transformers ({error}); install it: {_INSTALL}") from error
    return sentence_transformers


def _hush() -> None:
    """No bar of transformers' own while weights are read: it goes to stderr even where that is a file."""
    try:
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        return
    disable_progress_bar()


def _hub_folder(name: str, expected: Identity | None) -> Path:
    """The folder of a hub model in the local cache, whose name is the revision; downloaded where it is not there."""
    folder = _in_hub_cache(name)
    if folder is not None:
        return folder
    try:
        revision = None if expected is None else _newest(name)
        if expected is not None and revision != expected.revision:
            raise _another(expected, Identity("hub", name, str(revision)))  # before anything is fetched
        _library().SentenceTransformer(name, **({} if revision is None else {"revision": revision}))
    except InputError:
        raise
    except Exception as error:  # each version of the hub client has its own
        first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise InputError(
            f"embedding model {name!r} is not on this machine and could not be fetched: {first}"
        ) from error
    folder = _in_hub_cache(name, revision)
    if folder is None:
        raise InputError(f"embedding model {name!r} was loaded, but not from the hub's cache; give its folder instead")
    return folder


def _newest(name: str) -> str | None:
    """The revision that the hub has of a model: a question, nothing is fetched."""
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
    """Where a name may be on the hub."""
    return [name] if "/" in name else [f"sentence-transformers/{name}", name]


# ---- vectors kept on disk


def text_key(text: str) -> bytes:
    """16 bytes that stand for a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class VectorsCache:
    """Vectors of one model."""

    def __init__(self, model_key: str) -> None:
        self.path = cache_folder() / "embeddings" / f"{model_key}.sqlite"

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors that are there, by text."""
        if not self.path.is_file():
            return {}
        found = {}
        try:
            with closing(self._open()) as db:
                for text in texts:
                    row = db.execute("SELECT vector FROM vectors WHERE key = ?", (text_key(text),)).fetchone()
                    if row is not None:
                        found[text] = np.frombuffer(row[0], np.float32)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked or not readable: not damaged
                return found
            self.path.unlink(missing_ok=True)
            return {}
        return found

    def put(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep the vectors (n, d); where that is not possible, say so and go on."""
        rows = [(text_key(t), np.ascontiguousarray(v, np.float32).tobytes()) for t, v in zip(texts, vectors)]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as db, db:
                db.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")
                db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        except (OSError, sqlite3.Error) as error:
            warnings.warn(f"embeddings are not kept in {self.path}: {error}; set KWAY_CACHE to a folder", stacklevel=2)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)
