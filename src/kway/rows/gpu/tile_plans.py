"""Pipeline stages of the Triton kernels, chosen to fit the shared memory that a GPU gives one program.

A kernel keeps a tile per operand and pipeline stage in shared memory. More stages hide the latency of global memory,
and too many end in "out of resource: shared memory". The functions take the limit in bytes, so that they can be tested
for GPUs that are not present: 64 KiB (T4), 99 KiB (RTX 30, 40 and 50), 163 KiB (A100), 227 KiB (H100, H200).
"""

from __future__ import annotations

from typing import NamedTuple

TILE = 128  # rows, queries and bytes of a row that one step of the int8 kernels reads (G1)
TILE_CLASSES, TILE_DEPTH = 256, 64  # columns and depth of a tile of a bfloat16 product (G2)
MAX_STAGES = 4  # pipeline stages from which on more do not help (G2)
SPARE_BYTES = 1024  # barriers and reductions, in addition to tiles; tests/gpu/test_tile_plans.py compiles the kernels


class Int8Plan(NamedTuple):
    """Launch parameters of the int8 kernels: columns per chunk, all chunks at once or in a loop, pipeline stages."""

    chunk: int
    unroll: bool
    scan_stages: int
    expand_stages: int


def plan_int8(width: int, limit: int) -> Int8Plan | None:
    """Return the launch parameters for rows padded to `width` bytes, or None if no tile fits into `limit` bytes.

    All chunks of a row are in flight at once if they fit. Otherwise, the kernel loops over the chunks, and its memory
    does not depend on the width.
    """
    chunk = min(TILE, width)
    chunks, tile, room = width // chunk, TILE * chunk, limit - SPARE_BYTES
    most = MAX_STAGES - 1  # a fourth stage leaves no room for a second program per multiprocessor
    unroll = most * (2 * chunks - 1) * tile + tile <= room
    stages = most if unroll else min(most, room // (2 * tile))
    return Int8Plan(chunk, unroll, stages, min(most, room // (2 * tile))) if stages else None


def softmax_stages(limit: int) -> int:
    """Return the pipeline stages of the softmax kernel, or 0 if not even one fits into `limit` bytes.

    A stage holds a tile of rows and one of classes; half a tile of results needs room, too. All are bfloat16.
    """
    stage, result = 2 * TILE_DEPTH * (TILE + TILE_CLASSES), TILE * TILE_CLASSES
    return max(0, min(MAX_STAGES, (limit - SPARE_BYTES - result) // stage))
