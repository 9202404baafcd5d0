"""Assembler: short names for the LLVM instructions of which register tiles consist.

Numba passes an LLVM builder to an intrinsic. Every tile of kway is emitted by the methods of this class. Addresses are
64-bit integers, so rows may be anywhere in memory and may be read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()


def number_bytes(kind: ir.Type) -> int:
    """Return the bytes of a float or double."""
    return 4 if kind == F32 else 8


def type_suffix(kind: ir.VectorType) -> str:
    """Return the suffix of LLVM names for a vector of floats, such as v8f32."""
    return f"v{kind.count}f{8 * number_bytes(kind.element)}"


class Assembler:
    """LLVM builder with the operations that tiles need; addresses are 64-bit integers."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def number(self, value: int) -> ir.Constant:
        """Return a 64-bit constant."""
        return ir.Constant(I64, value)

    def at(self, base: Any, index: Any, stride: Any = 1) -> Any:
        """Return the address base + index * stride; index and stride are numbers or values."""
        index, stride = (self.number(v) if isinstance(v, int) else v for v in (index, stride))
        return self.builder.add(base, self.builder.mul(index, stride))

    def load(self, address: Any, kind: ir.Type, align: int) -> Any:
        """Load a value of this type from the address, which is a multiple of `align`."""
        value = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        value.align = align
        return value

    def store(self, value: Any, address: Any, align: int) -> None:
        """Store the value at the address, which is a multiple of `align`."""
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer())).align = align

    def splat(self, value: Any, lanes: int) -> Any:
        """Return a vector with the value in every lane."""
        kind = ir.VectorType(value.type, lanes)
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(
            first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
        )

    def same(self, kind: ir.VectorType, value: int) -> ir.Constant:
        """Return a constant vector of one integer."""
        return ir.Constant(kind, [value] * kind.count)

    def call(self, name: str, result: ir.Type, arguments: list[Any]) -> Any:
        """Call an LLVM intrinsic by name."""
        signature = ir.FunctionType(result, [value.type for value in arguments])
        declared = self.builder.module.globals.get(name)
        return self.builder.call(declared or ir.Function(self.builder.module, signature, name), arguments)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c of vectors, rounded once."""
        return self.call(f"llvm.fma.{type_suffix(a.type)}", a.type, [a, b, c])

    def first_lanes(self, count: Any, lanes: int) -> Any:
        """Return the mask of the first `count` lanes."""
        numbers = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))
        return self.builder.icmp_signed("<", numbers, self.splat(count, lanes))

    def load_masked(self, address: Any, kind: ir.VectorType, mask: Any) -> Any:
        """Load the lanes of the mask; the other lanes are zero."""
        pointer = self.builder.inttoptr(address, kind.as_pointer())
        zero, align = ir.Constant(kind, [0.0] * kind.count), ir.Constant(I32, number_bytes(kind.element))
        return self.call(f"llvm.masked.load.{type_suffix(kind)}.p0", kind, [pointer, align, mask, zero])

    def prefetch(self, address: Any) -> None:
        """Prefetch a cache line (read, locality 2, data); an address outside the array is harmless."""
        pointer = self.builder.inttoptr(address, I8.as_pointer())
        read_locality_data = [ir.Constant(I32, value) for value in (0, 2, 1)]
        self.call("llvm.prefetch.p0", ir.VoidType(), [pointer, *read_locality_data])

    def loop(
        self, rounds: Any, values: list[Any], body: Callable[[Any, list[Any]], list[Any]], perhaps_none: bool = False
    ) -> list[Any]:
        """Return the values after `rounds` rounds of values = body(round, values); they stay in registers.

        rounds must be at least 1; with perhaps_none=True, whose branch makes the scan of codes 10% slower, at least 0.
        """
        b, before = self.builder, self.builder.block
        inside, after = b.append_basic_block("round"), b.append_basic_block("rounds_done")
        if perhaps_none:
            b.cbranch(b.icmp_signed("<", self.number(0), rounds), inside, after)
        else:
            b.branch(inside)
        b.position_at_end(inside)
        index, current = b.phi(I64), [b.phi(value.type) for value in values]
        new = body(index, current)
        next_index, end = b.add(index, self.number(1)), b.block
        for phi, start, following in zip([index, *current], [self.number(0), *values], [next_index, *new]):
            phi.add_incoming(start, before)
            phi.add_incoming(following, end)
        b.cbranch(b.icmp_signed("<", next_index, rounds), inside, after)
        b.position_at_end(after)
        if not perhaps_none:
            return new
        results = [b.phi(value.type) for value in values]
        for phi, start, following in zip(results, values, new):
            phi.add_incoming(start, before)
            phi.add_incoming(following, end)
        return results


def nothing(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit no code: for an intrinsic that this CPU lacks and that is never called."""
    return context.get_dummy_value()
