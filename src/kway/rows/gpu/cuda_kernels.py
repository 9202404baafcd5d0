"""CUDA C++ kernels: compiling and launching them, and the scan of 512-bit codes (sign_codes.py).

    module = compiled(source, ("scan<8>", "scan<64>"))      once per process and source; needs no nvcc and no headers
    module.launch("scan<8>", grid, block, shared, arguments)   on torch's current stream

NVRTC, which is part of torch's CUDA packages, compiles the source. Arguments are tensors (passed as addresses) and
32-bit integers.

The scan multiplies binary codes on Hopper's matrix unit. Codes (n, 64 bytes) go from global memory through registers
into wgmma as its A operand. The order of the bits is free, so the queries are permuted instead (WORD_PLACES). N queries
are in shared memory, swizzled. The unit computes popc(c & q), the ordinary units popc(c), and

    agreeing bits = 512 - popc(q) - popc(c) + 2 popc(c & q)

A code with more agreeing bits than the query's threshold is appended to the query's list. Its counter counts such codes
even if the list is full.
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


class SignFormat(IntEnum):
    """Fixed sizes of the scan of codes: bits of a code, codes of a tile, threads of a block."""

    BITS = 512
    TILE = 64
    THREADS = 128


class CudaError(KwayError, RuntimeError):
    """A kernel does not compile, or the CUDA driver returns an error."""


class Module:
    """Compiled kernels by name."""

    def __init__(self, handle: ctypes.c_void_p, names: dict[str, bytes]) -> None:
        self._driver, self._kernels = _driver(), {}
        for name, symbol in names.items():
            kernel = ctypes.c_void_p()
            _check(self._driver.cuModuleGetFunction(ctypes.byref(kernel), handle, symbol), "cuModuleGetFunction")
            self._kernels[name] = kernel

    def blocks_per_multiprocessor(self, name: str, threads: int, shared: int) -> int:
        """Return how many blocks of a kernel run on a multiprocessor at the same time."""
        count, kernel = ctypes.c_int(), self._kernels[name]
        self._allow_shared(kernel, shared)
        call = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        _check(call(ctypes.byref(count), kernel, threads, ctypes.c_size_t(shared)), "cuOccupancy")
        return max(1, count.value)

    def _allow_shared(self, kernel: ctypes.c_void_p, shared: int) -> None:
        attribute = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _check(self._driver.cuFuncSetAttribute(kernel, attribute, shared), "cuFuncSetAttribute")

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


def compiled(source: str, names: tuple[str, ...], arch: str = "sm_90a") -> Module:
    """Compile a source for torch's current GPU; return its kernels by their C++ names, with template arguments."""
    return _compiled(source, names, arch, load_torch().cuda.current_device())


@lru_cache(maxsize=8)
def _compiled(source: str, names: tuple[str, ...], arch: str, gpu: int) -> Module:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    load_torch().cuda.current_stream()  # creates the driver's context
    load_torch().zeros(1, device=f"cuda:{gpu}")
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kway.cu", 0, None, None), "nvrtc")
    for name in names:
        _check(nvrtc.nvrtcAddNameExpression(program, name.encode()), name)
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CudaError(f"a CUDA kernel does not compile for {arch}: {log.value.decode()[:2000]}")
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


def can_compile(gpu: str = "cuda") -> bool:
    """Return whether NVRTC is installed and the GPU has the architecture of the kernels (Hopper)."""
    torch = load_torch()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(gpu)[0] != 9:
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
    """Load NVRTC from torch's CUDA packages, else from the system."""
    major = str(load_torch().version.cuda or "").split(".")[0]
    folders = {Path(load_torch().__file__).parents[1] / "nvidia", Path(sysconfig.get_paths()["purelib"]) / "nvidia"}
    paths = [str(path) for folder in folders for path in sorted(folder.glob(f"*/lib/libnvrtc.so.{major}*"))]
    for name in (*paths, f"libnvrtc.so.{major}", "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError(
        "NVRTC, CUDA's run-time compiler, was not found; install PyTorch with CUDA from PyPI, which includes it"
    )


def _check(code: int, what: str) -> None:
    if code:
        raise CudaError(f"CUDA returned error {code} for {what}")


# queries per pass: (tiles in flight per warpgroup, blocks per multiprocessor), decided by the benchmark gpu_bits
IN_FLIGHT = {8: (4, 6), 64: (2, 5), 128: (4, 3)}
CODE_QUERIES = tuple(IN_FLIGHT)
# the matrix unit expects word 4 t + 2 c + h of a query at this position
WORD_PLACES = [4 * t + 2 * c + h for c in range(2) for h in range(2) for t in range(4)]


def kernel_name(n: int) -> str:
    """Return the C++ name of the scan of n queries."""
    return f"scan<{n}, {IN_FLIGHT[n][0]}, {IN_FLIGHT[n][1]}>"


def shared_bytes(n: int) -> int:
    """Return the shared memory of n queries and their alignment."""
    return n * 128 + 1024


def _wgmma(n: int) -> str:
    """Return a device function: d (n / 2 registers) (+)= A (4 registers) x B (descriptor); scale 0 overwrites d."""
    k = n // 2
    accumulators = ",".join(f"%{i}" for i in range(k))
    outs = ",".join(f'"+r"(d[{i}])' for i in range(k))
    return (
        f"__device__ __forceinline__ void mma(int (&d)[{k}], const uint32_t (&a)[4], uint64_t desc, int scale) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{k + 5}, 0;\\n'
        f"wgmma.mma_async.sync.aligned.m64n{n}k256.s32.b1.b1.and.popc {{{accumulators}}}, "
        f'{{%{k},%{k + 1},%{k + 2},%{k + 3}}}, %{k + 4}, p;\\n}}\\n"\n'
        f'    : {outs} : "r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"l"(desc),"r"(scale));\n}}\n'
    )


_PRELUDE = r"""
typedef unsigned char uint8_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define DI __device__ __forceinline__
DI uint32_t in_shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
// a 128-byte-swizzled operand: 16-byte unit c of row r lies at c ^ (r % 8)
DI uint64_t swizzled(uint32_t a) {
  return ((uint64_t)(a & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
DI void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DI void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DI void wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
template <int K> DI void pin(int (&d)[K]) {
#pragma unroll
  for (int i = 0; i < K; i++) asm volatile("" : "+r"(d[i]) :: "memory");
}
"""

_SCAN = r"""
DI void emit(int q, int id, int* cnt, int* ids, int cap) {
  int p = atomicAdd(cnt + q, 1);
  if (p < cap) ids[(size_t)q * cap + p] = id;
}
DI int ones(uint4 v) {
  int n = __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
  n += __shfl_xor_sync(~0u, n, 1);
  return n + __shfl_xor_sync(~0u, n, 2);
}
// scores of 64 codes x N queries in d: a lane holds rows g, g + 8 and columns 8 j + 2 t, + 1. A code passes where
// 2 d - T[column] > low[row]. Several independent chains of max: one chain of predicates would wait on itself
template <int N> DI void test(const int (&d)[N / 2], const int (&T)[N / 4], int low0, int low1, int row, int t,
                              int* cnt, int* ids, int cap) {
  constexpr int CH = N == 8 ? 2 : 4;
  int m[CH], w[CH];
#pragma unroll
  for (int i = 0; i < N / 4; i++) {
    int x = 2 * d[(i >> 1) * 4 + (i & 1)] - T[i], y = 2 * d[(i >> 1) * 4 + 2 + (i & 1)] - T[i];
    m[i % CH] = i < CH ? x : max(m[i % CH], x);
    w[i % CH] = i < CH ? y : max(w[i % CH], y);
  }
#pragma unroll
  for (int i = 1; i < CH; i++) { m[0] = max(m[0], m[i]); w[0] = max(w[0], w[i]); }
  if (__any_sync(~0u, (m[0] > low0) | (w[0] > low1))) {
    uint32_t a = 0, b = 0;  // a bit a column: rows g, g + 8
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
      a |= (uint32_t)(2 * d[(i >> 1) * 4 + (i & 1)] - T[i] > low0) << i;
      b |= (uint32_t)(2 * d[(i >> 1) * 4 + 2 + (i & 1)] - T[i] > low1) << i;
    }
    while (a | b) {
      int hi = a == 0, i = __ffs(hi ? b : a) - 1;
      if (hi) b &= b - 1; else a &= a - 1;
      emit((i >> 1) * 8 + 2 * t + (i & 1), row + 8 * hi, cnt, ids, cap);
    }
  }
}
template <int N, int P, int OCC> __global__ void __launch_bounds__(128, OCC)
scan(const uint4* codes, int tile0, int tile1, const uint4* img, const int* thr, int* cnt, int* ids, int cap) {
  extern __shared__ __align__(1024) uint8_t raw[];
  uint8_t* sm = (uint8_t*)(((uint64_t)raw + 1023) & ~(uint64_t)1023);
  for (int i = threadIdx.x; i < N * 8; i += 128) ((uint4*)sm)[i] = img[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, T[N / 4], d[N / 2];
#pragma unroll
  for (int j = 0; j < N / 8; j++) { T[2 * j] = thr[8 * j + 2 * t]; T[2 * j + 1] = thr[8 * j + 2 * t + 1]; }
#pragma unroll
  for (int i = 0; i < N / 2; i++) d[i] = 0;
  uint64_t de = swizzled(in_shared(sm));
  const uint4* base = codes + (warp * 16 + g) * 4 + t;
  uint4 v[P][2];
#pragma unroll
  for (int p = 0; p < P; p++) {
    int tile = tile0 + blockIdx.x + p * gridDim.x;
    if (tile < tile1) {
      v[p][0] = __ldcs(base + (size_t)tile * 256);
      v[p][1] = __ldcs(base + (size_t)tile * 256 + 32);
    }
  }
  for (int tb = tile0 + blockIdx.x; tb < tile1; tb += P * gridDim.x) {
#pragma unroll
    for (int p = 0; p < P; p++) {
      int tile = tb + p * gridDim.x;
      if (tile >= tile1) break;
      uint4 x = v[p][0], y = v[p][1];
      int next = tile + P * gridDim.x;
      if (next < tile1) {
        v[p][0] = __ldcs(base + (size_t)next * 256);
        v[p][1] = __ldcs(base + (size_t)next * 256 + 32);
      }
      uint32_t a[2][4] = {{x.x, y.x, x.y, y.y}, {x.z, y.z, x.w, y.w}};
      fence();
      mma(d, a[0], de, 0);
      mma(d, a[1], de + 2, 1);
      commit();
      int low0 = ones(x) - 256, low1 = ones(y) - 256;
      wait();
      pin(d);
      test<N>(d, T, low0, low1, tile * 64 + warp * 16 + g, t, cnt, ids, cap);
    }
  }
}
"""

SOURCE = _PRELUDE + "".join(map(_wgmma, CODE_QUERIES)) + _SCAN
