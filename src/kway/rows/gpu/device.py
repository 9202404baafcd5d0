"""Device: where arrays live, which of "cpu" | "cuda" | "auto" that is, arrays there and back, and its memory.

resolve("cpu")                   None: numpy and numba, torch is never loaded
resolve("cuda")                  the Device, or an error that says what to install
resolve("auto", pays=True)       the Device where there is one and the work is large enough for it, else None
device.put(x)                    a numpy array or a torch tensor -> a tensor there; no copy where it is there already
device.fetch(t)                  a tensor -> a numpy array
with device.room("the rows", b)  out of memory inside becomes a BudgetError with the figures

`Device("cpu")` is torch on the processor: the same code without a GPU, which is how it is tested.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import BudgetError, InputError
from kway.parameters import DEVICE

Tensor = Any  # torch.Tensor; torch is not a dependency
_INSTALL = "pip install 'kway[gpu]'"
MOST_LISTED = 1024  # neighbors that a device lists per query; the CPU lists more (G1)


class ChosenDevice(NamedTuple):
    """The device, None for numpy on the processor, and in one sentence why."""

    device: Device | None
    why: str


@dataclass(frozen=True)
class Device:
    """A device that torch knows: "cuda", "cuda:1", or "cpu"."""

    name: str = "cuda"

    @property
    def torch(self) -> Any:
        """The torch module."""
        return load_torch()

    @property
    def is_gpu(self) -> bool:
        """Whether kernels of Triton and CUDA run there."""
        return self.name.startswith("cuda")

    def put(self, array: Any, dtype: Any = None) -> Tensor:
        """A tensor on the device, of a numpy array or a tensor anywhere."""
        torch = self.torch
        if isinstance(array, torch.Tensor):
            return array.to(self.name, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of read-only arrays, such as memory maps: they are only read
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.name, dtype)

    def fetch(self, tensor: Tensor) -> NDArray:
        """A numpy array of a tensor."""
        found: NDArray = tensor.detach().cpu().numpy()
        return found

    def empty(self, shape: Any, dtype: str = "float32") -> Tensor:
        """A tensor of anything."""
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.name)

    def zeros(self, shape: Any, dtype: str = "float32") -> Tensor:
        """A tensor of zeros."""
        return self.torch.zeros(shape, dtype=getattr(self.torch, dtype), device=self.name)

    def free_bytes(self) -> int:
        """Int8Queries that can still be taken, what torch keeps for itself included."""
        if not self.is_gpu:
            return sys.maxsize
        cuda = self.torch.cuda
        kept = cuda.memory_reserved(self.name) - cuda.memory_allocated(self.name)
        return int(cuda.mem_get_info(self.name)[0] + kept)

    def wait(self) -> None:
        """Until all work there is done."""
        if self.is_gpu:
            self.torch.cuda.synchronize(self.name)

    @contextmanager
    def room(self, what: str, needed: int = 0) -> Iterator[None]:
        """Refuse before the work what cannot fit, and name the figures where memory runs out all the same."""
        if needed > self.free_bytes():
            raise BudgetError(self._short(what, needed))
        try:
            yield
        except self.torch.OutOfMemoryError as error:
            self.torch.cuda.empty_cache()
            raise BudgetError(self._short(what, needed)) from error

    def _short(self, what: str, needed: int) -> str:
        size = f"needs {needed / 2**30:.1f} GiB" if needed else "ran out of memory"
        return (
            f"{what} {size} on {self.name}, which has {self.free_bytes() / 2**30:.1f} GiB free; "
            "use device='cpu', fewer rows, or a smaller batch"
        )

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """Products of float32 as float32: TensorFloat-32, which a caller may have allowed, would break the bounds."""
        _FULL.enter(self.torch)
        try:
            yield
        finally:
            _FULL.leave(self.torch)


class _FullPrecision:
    """torch's word for the precision of products is one for all threads: the first in changes it, the last out back."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = Lock(), 0, ""

    def enter(self, torch: Any) -> None:
        with self._lock:
            if not self._inside:
                self._before = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision("highest")
            self._inside += 1

    def leave(self, torch: Any) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.set_float32_matmul_precision(self._before)


_FULL = _FullPrecision()


def resolve(device: str, pays: bool = True) -> ChosenDevice:
    """Which device a word means; "auto" takes a GPU where there is one and it pays."""
    DEVICE.check("device", device)
    if device == "cpu":
        return ChosenDevice(None, "")
    if device == "cuda":
        _refuse_absent()
        return ChosenDevice(Device("cuda"), "device='cuda'")
    if not pays:
        return ChosenDevice(None, "on the CPU: too small to pay for the way to a GPU and back")
    if not has_gpu():
        return ChosenDevice(None, "on the CPU: there is no GPU")
    return ChosenDevice(Device("cuda"), "on the GPU: there is one, and the work is large enough for it")


def has_gpu() -> bool:
    """Whether torch is installed and sees a GPU."""
    return find_spec("torch") is not None and bool(load_torch().cuda.is_available())


def load_torch() -> Any:
    """The torch module, loaded now; an error that says what to install where it is not there."""
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"device='cuda' needs PyTorch, which is not installed ({error}); {_INSTALL}, or use device='cpu'"
        ) from error
    return torch


def is_tensor(array: Any) -> bool:
    """Whether this is a torch tensor; torch is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def on_host(array: Any) -> Any:
    """A numpy array of a tensor, wherever that is; anything else as it is."""
    return array.detach().cpu().numpy() if is_tensor(array) else array


def as_tensor(device: Device, values: NDArray) -> Any:
    """A tensor on the device, except of what torch does not know, such as text."""
    known = values.dtype.kind in "if" or values.dtype in (np.dtype(np.bool_), np.dtype(np.uint8))
    return device.put(values) if known else values


def as_given(X: Any, answer: Any) -> Any:
    """An answer about X: a tensor where X is if X is one and the answer is numbers, else an array."""
    if not is_tensor(X):
        return on_host(answer)
    return answer if is_tensor(answer) else as_tensor(Device(str(X.device)), answer)


def take_labels(classes: NDArray, codes: Any) -> Any:
    """Labels of codes, an array or a tensor; a tensor if codes are one and labels are numbers."""
    if not is_tensor(codes):
        return classes[codes]
    device = Device(str(codes.device))
    held = as_tensor(device, classes)
    return held[codes] if is_tensor(held) else classes[device.fetch(codes)]


def _refuse_absent() -> None:
    torch = load_torch()
    if not torch.cuda.is_available():
        built = "this PyTorch is built without CUDA" if torch.version.cuda is None else "the driver shows none"
        raise InputError(f"device='cuda' needs a GPU, and PyTorch sees none ({built}); use device='cpu' or 'auto'")
