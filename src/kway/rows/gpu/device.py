"""The `device=` argument, copies between a device and the host, and the memory of a device.

resolve("cpu").device              None: numpy and numba compute, and torch is not loaded
resolve("cuda").device             the Device, or an error that says what to install; "cuda:1" is the second GPU
resolve("auto", pays=True).device  the Device if there is a GPU and the work is large enough, else None
device.put(x)                      a tensor on the device; a copy, unless the values are already there
device.fetch(t)                    a numpy array; a copy, unless the tensor is on the CPU
with device.room("the rows", b)    running out of memory inside raises BudgetError with the figures

`Device("cpu")` runs the same code through torch on the CPU, for tests.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import BudgetError, InputError
from kway.memory import rows_per_block
from kway.parameters import DEVICE
from kway.threads import spans

Tensor = Any  # torch.Tensor; torch is not a dependency
_INSTALL = "pip install torch"
_warning_lock = Lock()
MAX_NEIGHBORS = 2048  # neighbors that a device lists per query; the CPU computes longer lists (benchmark gpu_search)
# bytes of a block of scores, keys or copied rows, so large that launches cost little (gpu_search, gpu_softmax)
GPU_BLOCK_BYTES = 2**29


class ChosenDevice(NamedTuple):
    """The device, or None if numpy computes on the CPU, and the reason for the choice.

    The reason is empty if the CPU was requested.
    """

    device: Device | None
    why: str


@dataclass(frozen=True)
class Device:
    """A device of torch: "cuda", "cuda:1" or "cpu"."""

    name: str = "cuda"

    def __post_init__(self) -> None:
        torch, kind = sys.modules.get("torch"), self.name.partition(":")[0]
        if kind not in ("cpu", "cuda"):
            raise InputError(f"kway computes on CPUs and NVIDIA GPUs, got a tensor on {self.name!r}; pass X.cpu()")
        if kind == "cuda" and torch is not None and torch.version.hip is not None:
            raise InputError(
                f"kway computes on CPUs and NVIDIA GPUs, and this PyTorch is built for ROCm {torch.version.hip}; use "
                "device='cpu', and tensors on the CPU"
            )

    @property
    def torch(self) -> Any:
        """The torch module."""
        return load_torch()

    @property
    def is_gpu(self) -> bool:
        """Whether Triton and CUDA kernels run on the device."""
        return self.name.startswith("cuda")

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that one program of a kernel may use."""
        return int(self.torch.cuda.get_device_properties(self.name).shared_memory_per_block_optin)

    @property
    def multiplies_int8(self) -> bool:
        """Whether Triton compiles int8 products for the GPU: compute capability 8.0 or newer."""
        return self.is_gpu and self.torch.cuda.get_device_capability(self.name) >= (8, 0)

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of the memory of a GPU."""
        return int(self.torch.cuda.get_device_properties(self.name).total_memory)

    def selected(self) -> AbstractContextManager[Any]:
        """Return a context in which kernels start on this device; "cuda" is torch's current GPU."""
        return self.torch.cuda.device(self.name) if self.name.startswith("cuda:") else nullcontext()

    def put(self, array: Any, dtype: Any = None) -> Tensor:
        """Return a tensor on the device with the values of a numpy array or of a tensor on any device.

        The result shares memory with values that are on the device and have the dtype; a Device("cpu") shares arrays.
        """
        torch = self.torch
        if isinstance(array, torch.Tensor):
            return array.to(self.name, dtype)
        with _warning_lock:
            _silence_read_only_warning()
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.name, dtype)

    def fetch(self, tensor: Tensor) -> NDArray:
        """Return a tensor as a numpy array, which shares memory with a tensor that is on the CPU."""
        values: NDArray = tensor.detach().cpu().numpy()
        return values

    def empty(self, shape: Any, dtype: str = "float32") -> Tensor:
        """Return a tensor without initial values."""
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.name)

    def zeros(self, shape: Any, dtype: str = "float32") -> Tensor:
        """Return a tensor of zeros."""
        return self.torch.zeros(shape, dtype=getattr(self.torch, dtype), device=self.name)

    def free_bytes(self) -> int:
        """Return the bytes that can be allocated, including those that torch keeps in its cache."""
        if not self.is_gpu:
            return sys.maxsize
        cuda = self.torch.cuda
        cached = cuda.memory_reserved(self.name) - cuda.memory_allocated(self.name)
        return int(cuda.mem_get_info(self.name)[0] + cached)

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        if self.is_gpu:
            self.torch.cuda.synchronize(self.name)

    @contextmanager
    def room(self, what: str, needed: int = 0) -> Iterator[None]:
        """Raise BudgetError if `needed` bytes are not free, or if memory runs out inside the block."""
        if needed and needed > self.free_bytes():  # free_bytes takes longer than a small search
            raise BudgetError(self._describe_shortage(what, needed))
        try:
            yield
        except self.torch.OutOfMemoryError as error:
            self.torch.cuda.empty_cache()
            raise BudgetError(self._describe_shortage(what, needed)) from error

    def _describe_shortage(self, what: str, needed: int) -> str:
        size = f"needs {needed / 2**30:.1f} GiB" if needed else "ran out of memory"
        return (
            f"{what} {size} on {self.name}, which has {self.free_bytes() / 2**30:.1f} GiB free; "
            "use device='cpu', fewer rows, or a smaller batch"
        )

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """Multiply float32 in full precision; TensorFloat-32, which the caller may have enabled, breaks the bounds."""
        _PRECISION.enter(self.torch)
        try:
            yield
        finally:
            _PRECISION.leave(self.torch)


class _FullPrecision:
    """Counts the threads that need full precision, because torch has one setting per process.

    The first thread changes the setting, and the last one restores it.
    """

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


_PRECISION = _FullPrecision()


def resolve(device: str, pays: bool = True) -> ChosenDevice:
    """Return the device for a `device=` argument, and the reason for the choice.

    "auto" selects a GPU if there is one and the work is large enough for it to be faster, which the caller states by
    `pays`.
    """
    DEVICE.check("device", device)
    if device == "cpu":
        return ChosenDevice(None, "")
    if names_gpu(device):
        _check_gpu_exists(device)
        return ChosenDevice(Device(device), f"device={device!r}")
    if not pays:
        return ChosenDevice(None, "on the CPU: too small for a GPU to be faster")
    if not has_gpu():
        return ChosenDevice(None, "on the CPU: there is no GPU")
    return ChosenDevice(Device("cuda"), "on the GPU: the work is large enough")


def names_gpu(device: str) -> bool:
    """Return whether a `device=` argument requires a GPU: "cuda" or "cuda:N"."""
    return device.startswith("cuda")


def has_gpu(name: str = "cuda") -> bool:
    """Return whether torch is installed and finds the NVIDIA GPU of this name."""
    if find_spec("torch") is None or load_torch().version.hip is not None or not load_torch().cuda.is_available():
        return False
    return _number(name) < int(load_torch().cuda.device_count())


def _number(name: str) -> int:
    return int(name.partition(":")[2] or 0)


def load_torch() -> Any:
    """Import and return torch; raise InputError with the install command if it is missing."""
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"computing on a GPU needs PyTorch, which is not installed ({error}); {_INSTALL}, or use device='cpu'"
        ) from error
    return torch


@cache
def _silence_read_only_warning() -> None:
    """Ignore torch's warning about read-only arrays; kway never writes to an array that it shares with torch.

    torch warns once per process, so one warning is caused and ignored before the first copy. The warning is not ignored
    at each copy, because `warnings.catch_warnings` changes the filters of all threads: if copies overlap in two
    threads, the filter of one of them would stay.
    """
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        load_torch().from_numpy(array)


def is_tensor(array: Any) -> bool:
    """Return whether this is a torch tensor, without loading torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def on_host(array: Any) -> Any:
    """Return a tensor as a numpy array on the host, and anything else unchanged.

    Floats that numpy has no type for, such as bfloat16, become float32, which holds them exactly.
    """
    if not is_tensor(array):
        return array
    tensor = array.detach().cpu()
    has_numpy_type = hasattr(np, str(tensor.dtype).removeprefix("torch."))
    return (tensor if has_numpy_type else tensor.float()).numpy()


def as_tensor(device: Device, values: NDArray) -> Any:
    """Return an array as a tensor on the device, or unchanged if torch has no such dtype (text, for example)."""
    is_numeric = values.dtype.kind in "if" or values.dtype in (np.dtype(np.bool_), np.dtype(np.uint8))
    return device.put(values) if is_numeric else values


def as_given(X: Any, answer: Any) -> Any:
    """Return an answer in the form of X: a numeric answer to a tensor is a tensor on its device, else an array."""
    if not is_tensor(X):
        return on_host(answer)
    return answer if is_tensor(answer) else as_tensor(Device(str(X.device)), answer)


def take_labels(classes: NDArray, codes: Any) -> Any:
    """Return the labels of codes; a tensor if the codes are a tensor and the labels are numbers."""
    if not is_tensor(codes):
        return classes[codes]
    device = Device(str(codes.device))
    labels = as_tensor(device, classes)
    return labels[codes] if is_tensor(labels) else classes[device.fetch(codes)]


def _check_gpu_exists(device: str) -> None:
    torch = load_torch()
    Device(device)  # refuses other kinds of GPU
    if not torch.cuda.is_available():
        built = "this PyTorch is built without CUDA" if torch.version.cuda is None else "the driver reports none"
        raise InputError(f"device={device!r} needs a GPU, and PyTorch finds none ({built}); use device='cpu' or 'auto'")
    count = torch.cuda.device_count()
    if _number(device) >= count:
        last = f" to 'cuda:{count - 1}'" if count > 1 else ""
        raise InputError(f"device={device!r} does not exist, PyTorch finds {count}: use 'cuda:0'{last}")


def rows_that_fit(row_bytes: float) -> int:
    """Return how many rows of `row_bytes` bytes fit into a block; at least one."""
    return rows_per_block(row_bytes, GPU_BLOCK_BYTES)


def row_blocks(n: int, row_bytes: float) -> list[slice]:
    """Return slices that split n rows of `row_bytes` bytes each into blocks."""
    return spans(n, rows_that_fit(row_bytes))
