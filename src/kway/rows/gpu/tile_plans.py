"""Pipeline stages of the Triton kernels, chosen to fit the shared memory that a GPU gives one program.

A kernel keeps a tile per operand and pipeline stage in shared memory. More stages hide the latency of global memory,
and too many end in "out of resource: shared memory". The functions take the limit in bytes, so that they can be tested
for GPUs that are not present: 64 KiB (T4), 99 KiB (RTX 30, 40 and 50), 163 KiB (A100), 227 KiB (H100, H200).
"""

from __future__ import annotations

from typing import NamedTuple

TILE = 128  # rows, queries and bytes of a row that one step of the int8 kernels reads (benchmark gpu_search)
TILE_CLASSES, TILE_DEPTH = 256, 64  # columns and depth of a tile of a bfloat16 product (benchmark gpu_softmax)
ROTATED = 16  # queries of a tile of the float64 product that rotates them; it has twice as many columns (gpu_flashlib)
MAX_STAGES = 4  # pipeline stages; more do not help (benchmark gpu_softmax)
SPARE_BYTES = 1024  # barriers and reductions, in addition to tiles; tests/gpu/test_tile_plans.py compiles the kernels


class Int8Plan(NamedTuple):
    """Launch parameters of the int8 kernels: columns per chunk, all chunks at once or in a loop, pipeline stages."""

    chunk: int
    unroll: bool
    scan_stages: int
    expand_stages: int


def plan_int8(width: int, limit: int) -> Int8Plan | None:
    """Return the launch parameters for rows padded to `width` bytes, or None if no tile fits into `limit` bytes.

    A tile is TILE rows or queries by one chunk of their bytes. All chunks of a row are in flight at once if they fit:
    Triton then keeps a tile of rows and a tile of queries per chunk in every stage, but one of the query tiles only
    once. Otherwise, the kernel loops over the chunks, a stage holds one tile of each, and the width does not matter.
    """
    chunk = min(TILE, width)
    chunks, tile, free_bytes = width // chunk, TILE * chunk, limit - SPARE_BYTES
    max_stages = MAX_STAGES - 1  # a fourth stage leaves no memory for a second program per multiprocessor
    expand_stages = min(max_stages, free_bytes // (2 * tile))  # a stage holds a tile of rows and one of queries
    if not expand_stages:
        return None
    unroll = max_stages * (2 * chunks - 1) * tile + tile <= free_bytes
    return Int8Plan(chunk, unroll, max_stages if unroll else expand_stages, expand_stages)


def softmax_stages(limit: int) -> int:
    """Return the pipeline stages of the softmax kernel, or 0 if not even one fits into `limit` bytes.

    A stage holds a tile of rows and one of classes, and half a tile of results is held in addition. All are bfloat16.
    """
    stage, result = 2 * TILE_DEPTH * (TILE + TILE_CLASSES), TILE * TILE_CLASSES
    return max(0, min(MAX_STAGES, (limit - SPARE_BYTES - result) // stage))
