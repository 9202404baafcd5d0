"""CUDA C++ at run time: NVRTC, which torch brings, compiles a source; the driver loads and launches its kernels.

    module = compiled(source, ("scan<8>", "scan<64>"))      once a process and source; needs no nvcc and no headers
    module.launch("scan<8>", grid, block, shared, arguments)   on torch's current stream

Arguments are tensors (their addresses) and ints (32 bits).
"""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from kway.errors import KwayError
from kway.rows.gpu.device import load_torch


class FunctionAttribute(IntEnum):
    """Attributes of a kernel that the driver sets; names are CUDA's."""

    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class CudaError(KwayError, RuntimeError):
    """A source that does not compile, or a driver that refuses."""


class Module:
    """Loaded kernels by name."""

    def __init__(self, handle: ctypes.c_void_p, names: dict[str, bytes]) -> None:
        self._driver, self._kernels = _driver(), {}
        for name, lowered in names.items():
            kernel = ctypes.c_void_p()
            _check(self._driver.cuModuleGetFunction(ctypes.byref(kernel), handle, lowered), "cuModuleGetFunction")
            self._kernels[name] = kernel

    def blocks_a_multiprocessor(self, name: str, threads: int, shared: int) -> int:
        """How many blocks of that kernel run at once on a multiprocessor."""
        found, kernel = ctypes.c_int(), self._kernels[name]
        self._allow_shared(kernel, shared)
        call = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        _check(call(ctypes.byref(found), kernel, threads, ctypes.c_size_t(shared)), "cuOccupancy")
        return max(1, found.value)

    def _allow_shared(self, kernel: ctypes.c_void_p, shared: int) -> None:
        attribute = FunctionAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        _check(self._driver.cuFuncSetAttribute(kernel, int(attribute), shared), "cuFuncSetAttribute")

    def launch(self, name: str, grid: int, threads: int, shared: int, arguments: Sequence[Any]) -> None:
        """Start a kernel on torch's current stream."""
        kernel, stream = self._kernels[name], load_torch().cuda.current_stream().cuda_stream
        values = [ctypes.c_int(a) if isinstance(a, int) else ctypes.c_void_p(a.data_ptr()) for a in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
        self._allow_shared(kernel, shared)
        started = self._driver.cuLaunchKernel(
            kernel, grid, 1, 1, threads, 1, 1, shared, ctypes.c_void_p(stream), pointers, None
        )
        _check(started, f"cuLaunchKernel {name}")


@lru_cache(maxsize=8)
def compiled(source: str, names: tuple[str, ...], arch: str = "sm_90a") -> Module:
    """The kernels of a source by their C++ names, template arguments and all."""
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    load_torch().cuda.current_stream()  # a context for the driver
    load_torch().zeros(1, device="cuda")
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kway.cu", 0, None, None), "nvrtc")
    for name in names:
        _check(nvrtc.nvrtcAddNameExpression(program, name.encode()), name)
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        said = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, said)
        raise CudaError(f"a CUDA kernel does not compile for {arch}: {said.value.decode()[:2000]}")
    size, lowered = ctypes.c_size_t(), {}
    _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
    code = ctypes.create_string_buffer(size.value)
    _check(nvrtc.nvrtcGetCUBIN(program, code), "nvrtcGetCUBIN")
    for name in names:
        mangled = ctypes.c_char_p()
        _check(nvrtc.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(mangled)), name)
        lowered[name] = bytes(mangled.value or b"")
    handle = ctypes.c_void_p()
    _check(_driver().cuModuleLoadData(ctypes.byref(handle), code), "cuModuleLoadData")
    return Module(handle, lowered)


def can_compile() -> bool:
    """Whether NVRTC is there, and a GPU of the architecture that the kernels are written for (Hopper)."""
    torch = load_torch()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        return False
    try:
        _nvrtc()
    except CudaError:
        return False
    return True


@lru_cache(maxsize=1)
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """NVRTC of torch's own CUDA packages, else of the system."""
    major = str(load_torch().version.cuda or "").split(".")[0]
    folders = {Path(load_torch().__file__).parents[1] / "nvidia", Path(sysconfig.get_paths()["purelib"]) / "nvidia"}
    found = [str(path) for folder in folders for path in sorted(folder.glob(f"*/lib/libnvrtc.so.{major}*"))]
    for name in (*found, f"libnvrtc.so.{major}", "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError(
        "NVRTC, CUDA's run-time compiler, is not there; install a torch with CUDA from PyPI, which brings it"
    )


def _check(code: int, what: str) -> None:
    if code:
        raise CudaError(f"CUDA refused {what}: error {code}")
