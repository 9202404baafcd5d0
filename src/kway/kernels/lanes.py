"""Instructions that numba has no function for, and the features of this CPU.

    ctz(word)              position of the lowest bit that is set (word > 0)
    popcount(word)         number of bits that are set
    touch(address)         prefetch a cache line
    touch_row(A, j, a, b)  prefetch the bytes a..b (exclusive) of row j
    cpu_has(features)      whether kernels are compiled for a CPU with these features
    chosen(features)       the same, but False if KWAY_PORTABLE=1 allows only code that every CPU can run

The compiled code embeds no absolute addresses, so kernels can be cached on disk and used by other processes.
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
    """Return the features that numba compiles for: NUMBA_CPU_FEATURES, or those of the host that numba uses."""
    if numba.config.CPU_FEATURES is not None:
        return _enabled_features(numba.config.CPU_FEATURES)
    try:
        host = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this CPU
        return frozenset()
    return frozenset(
        name
        for name, is_present in host.items()
        if is_present and (numba.config.ENABLE_AVX or not name.startswith("avx"))
    )


def _enabled_features(setting: str) -> frozenset[str]:
    """Return the features that a setting such as "+avx2, -fma" enables.

    >>> sorted(_enabled_features("+avx2, +bmi,-fma"))
    ['avx2', 'bmi']
    """
    names = (name.strip() for name in setting.split(","))
    return frozenset(name[1:] for name in names if name.startswith("+"))


def cpu_has(*features: str) -> bool:
    """Return whether kernels may use all of these x86 features."""
    return set(features) <= cpu_features()


def chosen(*features: str) -> bool:
    """Return whether to run the code path that needs these CPU features: the CPU has them, KWAY_PORTABLE is not set.

    With KWAY_PORTABLE=1, only code that every CPU can run is used, with the same results. The variable is read at each
    call, not when a kernel is compiled, because cached kernels contain the code of both cases.
    """
    return cpu_has(*features) and os.environ.get("KWAY_PORTABLE", "0") in ("", "0")


@intrinsic
def ctz(typing_context, word):
    """Return the position of the lowest bit that is set in a uint64 > 0."""

    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), emit


@intrinsic
def popcount(typing_context, word):
    """Return the number of bits that are set in a uint64."""

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
    """Prefetch the bytes first_byte..last_byte (exclusive) of one row.

    This is a hint. The last cache line may be missed, because rows need not start at a cache line.
    """
    start = matrix.ctypes.data + row * matrix.strides[0]
    for byte in range(first_byte, last_byte, 64):
        touch(np.uint64(start + byte))
