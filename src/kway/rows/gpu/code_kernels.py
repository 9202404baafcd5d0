"""CUDA C++ of the scan of 512-bit codes (codes.py): binary products on Hopper's matrix unit, compiled by NVRTC.

Codes (n, 64 bytes) stream from global memory through registers straight into wgmma as its A operand (the order of the
bits is free: the queries are permuted instead, `WORD_PLACES`); N queries sit in shared memory, swizzled. The unit gives
popc(c & q); popc(c) comes from the ordinary units, so that

    agreeing bits = 512 - popc(q) - popc(c) + 2 popc(c & q)

A code passes where they exceed the query's threshold; its number goes to the query's list, and the list's counter says
how many there were, also where the list was full.
"""

from __future__ import annotations

# queries of a pass -> tiles in flight per warpgroup, blocks per multiprocessor: measured (G1)
IN_FLIGHT = {8: (4, 6), 64: (2, 5), 128: (4, 3)}
CODE_QUERIES = tuple(IN_FLIGHT)
CODE_THREADS = 128
WORD_PLACES = [4 * t + 2 * c + h for c in range(2) for h in range(2) for t in range(4)]  # of word 4 t + j in the unit


def kernel_name(n: int) -> str:
    """The scan of n queries."""
    return f"scan<{n}, {IN_FLIGHT[n][0]}, {IN_FLIGHT[n][1]}>"


def shared_bytes(n: int) -> int:
    """Of n queries, and what it takes to align them."""
    return n * 128 + 1024


def _wgmma(n: int) -> str:
    """A device function: d (n / 2 registers) (+)= A (4 registers) x B (descriptor); scale 0 overwrites d."""
    k = n // 2
    held = ",".join(f"%{i}" for i in range(k))
    outs = ",".join(f'"+r"(d[{i}])' for i in range(k))
    return (
        f"__device__ __forceinline__ void mma(int (&d)[{k}], const uint32_t (&a)[4], uint64_t desc, int scale) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{k + 5}, 0;\\n'
        f"wgmma.mma_async.sync.aligned.m64n{n}k256.s32.b1.b1.and.popc {{{held}}}, "
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
