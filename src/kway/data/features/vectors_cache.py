"""Vectors kept on disk by what they were computed from: (model, text) -> float32 vector, one SQLite file a model.

They lie in the folder of `kway.data.outputs.cache_folder`. Any process may read while another writes;
a file that is damaged is started anew, for everything in it can be computed again.
"""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from kway.data.outputs.cache_folder import cache_folder


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
