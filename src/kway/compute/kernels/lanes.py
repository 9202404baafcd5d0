"""Machine instructions that numba has no name for, and what this CPU can do.

    ctz(word)              position of the lowest bit that is set (word > 0)
    touch(address)         ask for a cache line before it is needed
    touch_row(A, j, a, b)  the same for bytes a..b of row j
    Assembler              short names for the LLVM vector instructions that the tiles are written in

Nothing here holds an address, so compiled kernels can be kept on disk and used by another process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from kway.compute.kernels.jit import kernel

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()


@cache
def cpu_features() -> frozenset[str]:
    """Features numba compiles for: the host's, or those of NUMBA_CPU_FEATURES."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(word[1:] for word in str(features).split(",") if word.startswith("+"))


def has(*features: str) -> bool:
    """Whether kernels may use all of these x86 features."""
    return set(features) <= cpu_features()


def portable_asked() -> bool:
    """KWAY_PORTABLE=1 keeps to the code that every CPU can run; the answers are the same."""
    return os.environ.get("KWAY_PORTABLE", "0") not in ("", "0")


class Assembler:
    """LLVM builder with the few moves a tile needs; addresses are 64-bit integers."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def number(self, value: int) -> ir.Constant:
        """A 64-bit constant."""
        return ir.Constant(I64, value)

    def at(self, base: Any, index: Any, stride: Any) -> Any:
        """Address base + index * stride; index and stride are numbers or values."""
        index, stride = (self.number(v) if isinstance(v, int) else v for v in (index, stride))
        return self.builder.add(base, self.builder.mul(index, stride))

    def load(self, address: Any, kind: ir.Type, align: int) -> Any:
        """The value of this type at the address, which is a multiple of `align`."""
        value = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        value.align = align
        return value

    def store(self, value: Any, address: Any, align: int) -> None:
        """Write the value at the address, which is a multiple of `align`."""
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer())).align = align

    def splat(self, value: Any, lanes: int) -> Any:
        """The value in every lane."""
        kind = ir.VectorType(value.type, lanes)
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(
            first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
        )

    def same(self, kind: ir.VectorType, value: int) -> ir.Constant:
        """A constant vector of one integer."""
        return ir.Constant(kind, [value] * kind.count)

    def call(self, name: str, result: ir.Type, arguments: list[Any]) -> Any:
        """One of LLVM's named instructions."""
        signature = ir.FunctionType(result, [value.type for value in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, signature, name), arguments)

    def loop(self, rounds: Any, values: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
        """Values after `rounds` >= 1 times values = body(round, values); they stay in registers."""
        b, before = self.builder, self.builder.block
        inside, after = b.append_basic_block("round"), b.append_basic_block("rounds_done")
        b.branch(inside)
        b.position_at_end(inside)
        index, held = b.phi(I64), [b.phi(value.type) for value in values]
        new = body(index, held)
        following = b.add(index, self.number(1))
        for phi, start, again in zip([index, *held], [self.number(0), *values], [following, *new]):
            phi.add_incoming(start, before)
            phi.add_incoming(again, b.block)
        b.cbranch(b.icmp_signed("<", following, rounds), inside, after)
        b.position_at_end(after)
        return new


@intrinsic
def ctz(typing_context, word):
    """Position of the lowest bit set in a uint64 that is not zero."""

    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), emit


@intrinsic
def touch(typing_context, address):
    """Prefetch the cache line at the address (LLVM: read, locality 2, data)."""

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], I8.as_pointer())
        how = [ir.Constant(I32, value) for value in (0, 2, 1)]
        Assembler(builder).call("llvm.prefetch.p0", ir.VoidType(), [pointer, *how])
        return context.get_dummy_value()

    return types.void(types.uintp), emit


@kernel
def touch_row(matrix, row, first_byte, last_byte):
    """Prefetch bytes first..last of one row."""
    start = matrix.ctypes.data + row * matrix.strides[0]
    for byte in range(first_byte, last_byte, 64):
        touch(np.uint64(start + byte))
