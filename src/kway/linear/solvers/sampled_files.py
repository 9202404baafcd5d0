"""Files of a run of sampled softmax: checkpoints, and weights that are larger than memory.

**Checkpoints.** After each epoch, the state of the run is written to a file that is either complete or absent. It
contains theta (K, d + 1), the sums of squared gradients and the last steps (K,), the hard classes (h,), the step, the
losses so far and the state of the random generator. A new run with the same rows and settings continues after the last
epoch. It draws the same random numbers, so the result is the same as without the interruption.

**Weights.** They are zeros (K, d + 1) at first, and a step changes few rows. If the user names a folder, they are
memory-mapped from the file weights.npy in it, which is kept after the fit. Otherwise they are in memory if they fit,
and else in a temporary file without a name, which is deleted with the array.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kway.errors import InputError
from kway.memory import has_room
from kway.tables.outputs import replacing

FILE = "sampled.npz"
WEIGHTS_FILE = "weights.npy"
# name in the file -> attribute of the run
_ARRAYS = {"theta": "theta", "sizes": "sq_grad_sums", "met": "last_step", "hard": "hard"}


def create_folder(name: str, folder: Any) -> Path:
    """Return the folder that the parameter `name` of Sampled specifies; create it if it does not exist."""
    try:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, TypeError, ValueError) as error:  # folder is a file or no valid path
        raise InputError(
            f"Sampled({name}=) must name a folder that can be written to, got {folder!r}: {error}"
        ) from error
    return path


def write_checkpoint(folder: str, run: Any, history: list[float], fingerprint: str) -> None:
    """Write the state of a run after an epoch."""
    file = create_folder("checkpoint", folder) / FILE
    facts = {"step": run.step, "history": history, "rng": run.control.rng.bit_generator.state, "mark": fingerprint}
    arrays = {name: getattr(run, attribute) for name, attribute in _ARRAYS.items()}
    with replacing(file) as draft, draft.open("wb") as out:
        np.savez(out, facts=np.array(json.dumps(facts)), **arrays)


def read_checkpoint(folder: str, run: Any, fingerprint: str) -> list[float]:
    """Restore a run from its file and return its losses so far, or an empty list if there is no file."""
    file = create_folder("checkpoint", folder) / FILE
    if not file.is_file():
        return []
    try:
        # np.load would leave a broken file open if it opened the file itself
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as stored:
            facts = json.loads(str(stored["facts"]))
            if facts["mark"] != fingerprint:
                raise InputError(
                    f"{str(file)!r} was written by a fit of other rows or settings; give another checkpoint folder, or "
                    "remove the file"
                )
            _fill(run, {attribute: stored[name] for name, attribute in _ARRAYS.items()})
            run.step, history = int(facts["step"]), [float(loss) for loss in facts["history"]]
            run.control.rng.bit_generator.state = facts["rng"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{str(file)!r} cannot be read ({error}); remove it to start again") from error
    return history


def _fill(run: Any, arrays: dict[str, NDArray]) -> None:
    """Copy the arrays of a file into the run, after checks, because kernels do not check the classes in `hard`."""
    for name in ("theta", "sq_grad_sums", "last_step"):
        if arrays[name].shape != getattr(run, name).shape or not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} does not fit this model")
    hard = arrays["hard"]
    if hard.ndim != 1 or hard.dtype.kind != "i" or not ((hard >= 0) & (hard < len(run.theta))).all():
        raise ValueError("hard contains codes that no class has")
    run.theta[:], run.sq_grad_sums[:], run.last_step[:] = arrays["theta"], arrays["sq_grad_sums"], arrays["last_step"]
    run.hard = hard


def mapped_zeros(shape: tuple[int, int], dtype: DTypeLike, folder: str | None) -> NDArray | None:
    """Return zeros in a memory-mapped file; None if no folder is given and they fit in memory."""
    kind = np.dtype(dtype)
    if folder is not None:
        file = create_folder("weights", folder) / WEIGHTS_FILE
        try:
            return np.asarray(np.lib.format.open_memmap(file, mode="w+", dtype=kind, shape=shape))
        except OSError as error:
            raise InputError(f"{str(file)!r} cannot be written ({error}); give another folder: weights=...") from error
    if has_room(shape[0] * shape[1] * kind.itemsize):
        return None
    handle, name = tempfile.mkstemp(prefix="kway-weights-")
    try:
        os.ftruncate(handle, shape[0] * shape[1] * kind.itemsize)  # zeros take no disk space until they are written
        return np.asarray(np.memmap(name, dtype=kind, mode="r+", shape=shape))
    finally:
        os.close(handle)
        os.unlink(name)
