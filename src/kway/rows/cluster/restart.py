"""The last weights of a fit on a cluster, in a file of the cluster's folder: the same fit, called again, begins there.

The rows save theta with each pass for a gradient; solvers know nothing of it. Any theta is a valid start, so the name
of the file only has to tell fits apart: by the settings, the shape of the rows and a sample of their values.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.rows.cluster.session import shared_folder

_SAMPLED = 1000  # values of a long array that its fingerprint reads


@dataclass(frozen=True)
class SavedTheta:
    """One file, complete or absent."""

    file: Path

    def load(self) -> NDArray | None:
        """The last theta; None if no earlier run left one that can be read."""
        try:
            with self.file.open("rb") as held:
                return np.asarray(np.load(held, allow_pickle=False))
        except (OSError, ValueError, EOFError):
            return None

    def save(self, theta: NDArray) -> None:
        """Replace the file."""
        draft = self.file.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as out:
            np.save(out, theta)
        draft.replace(self.file)

    def forget(self) -> None:
        """Remove the file: the fit is done."""
        self.file.unlink(missing_ok=True)


def saved_theta(*about: Any) -> SavedTheta | None:
    """The file of the fit that these values describe; None if the cluster has no folder."""
    home = shared_folder()
    return None if home is None else SavedTheta(home / f"fit-{fingerprint(*about)[:16]}.npy")


def fingerprint(*about: Any) -> str:
    """A digest of settings and arrays; of a long array it reads a sample."""
    digest = hashlib.sha256()
    for value in about:
        found = value.data if sp.issparse(value) else value
        if isinstance(found, np.ndarray):
            digest.update(repr(found.shape).encode())
            digest.update(np.ascontiguousarray(found[:: max(1, len(found) // _SAMPLED)]).tobytes())
        else:
            digest.update(repr(found).encode())
    return digest.hexdigest()
