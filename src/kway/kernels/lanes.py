"""Machine instructions that numba has no name for, and what this CPU can do.

    ctz(word)              position of the lowest bit that is set (word > 0)
    popcount(word)         how many bits are set
    touch(address)         ask for a cache line before it is needed
    touch_row(A, j, a, b)  the same for bytes a..b of row j
    cpu_has(features)      whether kernels are compiled for a CPU with these features
    chosen(features)       the same, unless KWAY_PORTABLE=1 keeps to the code that every CPU can run

Nothing here holds an address, so compiled kernels can be kept on disk and used by another process.
"""

from __future__ import annotations

import os
from functools import cache

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import Assembler
from kway.kernels.jit import kernel


@cache
def cpu_features() -> frozenset[str]:
    """Features numba compiles for: those of NUMBA_CPU_FEATURES, or else the host's, without AVX if numba avoids it."""
    if numba.config.CPU_FEATURES is not None:
        return frozenset(word[1:] for word in numba.config.CPU_FEATURES.split(",") if word.startswith("+"))
    try:
        host = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this CPU
        return frozenset()
    return frozenset(
        name for name, there in host.items() if there and (numba.config.ENABLE_AVX or not name.startswith("avx"))
    )


def cpu_has(*features: str) -> bool:
    """Whether kernels may use all of these x86 features."""
    return set(features) <= cpu_features()


def chosen(*features: str) -> bool:
    """Whether to take the code for these features: numba may use them, and KWAY_PORTABLE does not forbid it.

    KWAY_PORTABLE=1 keeps to the code that every CPU can run; the answers are the same. It is read at each choice, not
    when a kernel is compiled: compiled kernels are kept on disk and hold both ways.
    """
    return cpu_has(*features) and os.environ.get("KWAY_PORTABLE", "0") in ("", "0")


@intrinsic
def ctz(typing_context, word):
    """Position of the lowest bit set in a uint64 that is not zero."""

    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), emit


@intrinsic
def popcount(typing_context, word):
    """How many bits of a uint64 are set."""

    def emit(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), emit


@intrinsic
def touch(typing_context, address):
    """Prefetch the cache line at the address."""

    def emit(context, builder, signature, arguments):
        Assembler(builder).prefetch(arguments[0])
        return context.get_dummy_value()

    return types.void(types.uintp), emit


@kernel
def touch_row(matrix, row, first_byte, last_byte):
    """Prefetch bytes first..last of one row."""
    start = matrix.ctypes.data + row * matrix.strides[0]
    for byte in range(first_byte, last_byte, 64):
        touch(np.uint64(start + byte))
