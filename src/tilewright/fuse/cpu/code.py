"""A small writer of LLVM code: functions, loops, vectors.

Text is written directly, because building it from objects takes several times as long as compiling
it. A value is its name (`%12`) or a constant; every method returns the name of its result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tilewright.fuse.cpu import elementary
from tilewright.fuse.cpu.tiles import Target

Value = str


class Function:
    """A function under construction, for a CPU; `lanes` is the width of its vectors."""

    def __init__(
        self, name: str, arguments: Sequence[str], target: Target, attributes: str
    ) -> None:
        self.lanes, self.register = target.lanes, target.register
        self.vector = f"<{self.lanes} x float>"
        self.whole = f"<{self.lanes} x i32>"
        self.count = 0
        self.block = "entry"
        self.name = name.partition("@")[2]
        self.tables: list[str] = []
        self.lines = [f"define {name}({', '.join(arguments)}) {attributes} {{", "entry:"]

    def text(self) -> str:
        return "\n".join([*self.tables, *self.lines, "  ret void", "}", ""])

    def op(self, code: str) -> Value:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {code}")
        return f"%v{self.count}"

    def do(self, code: str) -> None:
        self.lines.append(f"  {code}")

    # Whole numbers and addresses

    def add(self, a: Value, b: Value | int) -> Value:
        return self.op(f"add i64 {a}, {b}") if b not in (0, "0") else a

    def mul(self, a: Value, b: Value | int) -> Value:
        return self.op(f"mul i64 {a}, {b}") if b != 1 else a

    def smaller(self, a: Value, b: Value) -> Value:
        less = self.op(f"icmp slt i64 {a}, {b}")
        return self.op(f"select i1 {less}, i64 {a}, i64 {b}")

    def larger(self, a: Value, b: Value) -> Value:
        more = self.op(f"icmp sgt i64 {a}, {b}")
        return self.op(f"select i1 {more}, i64 {a}, i64 {b}")

    def over(self, a: Value, b: int) -> Value:
        """a / b, rounded up where that is above zero."""
        return self.op(f"sdiv i64 {self.add(a, b - 1)}, {b}") if b != 1 else a

    def at(self, pointer: Value, index: Value | int, type_: str = "float") -> Value:
        """The address `index` elements on."""
        if index == 0:
            return pointer
        return self.op(f"getelementptr {type_}, ptr {pointer}, i64 {index}")

    # Memory

    def table(self, numbers: Sequence[int]) -> Value:
        """The address of whole numbers that are known, for `entry`."""
        name, kind = f"@{self.name}.table{len(self.tables)}", f"[{len(numbers)} x i64]"
        entries = ", ".join(f"i64 {each}" for each in numbers)
        self.tables.append(f"{name} = internal constant {kind} [{entries}]")
        return name

    def entry(self, table: Value, index: Value) -> Value:
        return self.op(f"load i64, ptr {self.at(table, index, 'i64')}")

    def load(self, pointer: Value, index: Value | int = 0) -> Value:
        """The vector that starts `index` floats behind an address, aligned as a whole."""
        return self.op(f"load {self.vector}, ptr {self.at(pointer, index)}, align {self.align}")

    def store(self, value: Value, pointer: Value, index: Value | int = 0) -> None:
        place = self.at(pointer, index)
        self.do(f"store {self.vector} {value}, ptr {place}, align {self.align}")

    def load_some(self, count: int, pointer: Value, index: Value | int = 0) -> Value:
        """The first `count` lanes from an address of any float; the others may hold anything."""
        row = f"<{count} x float>"
        found = self.op(f"load {row}, ptr {self.at(pointer, index)}, align 4")
        places = ", ".join(f"i32 {min(lane, count - 1)}" for lane in range(self.lanes))
        return self.op(f"shufflevector {row} {found}, {row} poison, {self.whole} <{places}>")

    def store_some(self, count: int, value: Value, pointer: Value, index: Value | int = 0) -> None:
        """The first `count` lanes of a vector, to an address of any float."""
        if count < self.lanes:
            places = ", ".join(f"i32 {lane}" for lane in range(count))
            value = self.op(
                f"shufflevector {self.vector} {value}, {self.vector} poison, "
                f"<{count} x i32> <{places}>"
            )
        self.do(f"store <{count} x float> {value}, ptr {self.at(pointer, index)}, align 4")

    def spread(self, pointer: Value, index: Value | int = 0) -> Value:
        """One float in every lane; it may lie at any address."""
        return self.splat_of(self.op(f"load float, ptr {self.at(pointer, index)}, align 1"))

    def fetch(self, pointer: Value, index: Value | int = 0) -> None:
        """Have a line come to the second cache that will be read soon, if it is there at all."""
        self.do(f"call void @llvm.prefetch.p0(ptr {self.at(pointer, index)}, i32 0, i32 2, i32 1)")

    def forget(self, known: Sequence[Value] = ()) -> None:
        """Whatever is read after this is read again, even if some register may still hold it, and
        not before the values in `known` are computed.

        Left to itself, LLVM keeps every activation that a later tap will use, and reads the next
        ones before the sums that need the last: it runs out of registers and spills. A load is
        cheaper than that.
        """
        registers = f"{self.register}," * len(known)
        values = ", ".join(f"{self.vector} {value}" for value in known)
        self.do(f'call void asm sideeffect "", "{registers}~{{memory}}"({values})')

    def splat_of(self, scalar: Value) -> Value:
        first = self.op(f"insertelement {self.vector} poison, float {scalar}, i32 0")
        zeros = "zeroinitializer"
        return self.op(
            f"shufflevector {self.vector} {first}, {self.vector} poison, {self.whole} {zeros}"
        )

    @property
    def align(self) -> int:
        return 4 * self.lanes

    # Arithmetic

    def constant(self, value: float) -> Value:
        """The same float in every lane."""
        return "<" + ", ".join([f"float {float_text(value)}"] * self.lanes) + ">"

    def whole_constant(self, value: int) -> Value:
        return "<" + ", ".join([f"i32 {value}"] * self.lanes) + ">"

    def binary(self, name: str, a: Value, b: Value) -> Value:
        return self.op(f"{name} {self.vector} {a}, {b}")

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, fused where the CPU can. llvm.fma would call a library where it cannot."""
        return self.binary("fadd contract", self.binary("fmul contract", a, b), c)

    def sum(self, a: Value, b: Value) -> Value:
        return self.binary("fadd", a, b)

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger one, NaN if either is.

        Of zeros with different signs it may be either (nsz): on x86 that is three instructions
        instead of five, seven instead of seventeen with plain SSE. On ARM it is one.
        """
        name = f"@llvm.maximum.v{self.lanes}f32"
        return self.op(f"call nsz {self.vector} {name}({self.vector} {a}, {self.vector} {b})")

    def at_least(self, x: Value, bound: float) -> Value:
        """x or the bound; NaN stays NaN, at the price of one instruction."""
        less = self.op(f"fcmp olt {self.vector} {x}, {self.constant(bound)}")
        return self.select(less, self.constant(bound), x)

    def at_most(self, x: Value, bound: float) -> Value:
        greater = self.op(f"fcmp ogt {self.vector} {x}, {self.constant(bound)}")
        return self.select(greater, self.constant(bound), x)

    def below_zero(self, x: Value) -> Value:
        """Which lanes are negative, for `select`; NaN is not."""
        return self.op(f"fcmp olt {self.vector} {x}, {self.constant(0)}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        flags = f"<{self.lanes} x i1>"
        return self.op(f"select {flags} {condition}, {self.vector} {a}, {self.vector} {b}")

    def below(self, first: Value, bound: int) -> Value:
        """Which lanes are below a bound, if they are numbered from `first` on."""
        number = self.op(f"trunc i64 {first} to i32")
        start = self.op(f"insertelement {self.whole} poison, i32 {number}, i32 0")
        zeros = "zeroinitializer"
        start = self.op(
            f"shufflevector {self.whole} {start}, {self.whole} poison, {self.whole} {zeros}"
        )
        count = "<" + ", ".join(f"i32 {lane}" for lane in range(self.lanes)) + ">"
        numbers = self.op(f"add {self.whole} {start}, {count}")
        return self.op(f"icmp slt {self.whole} {numbers}, {self.whole_constant(bound)}")

    def joined(self, values: Sequence[Value]) -> Value:
        """A part of each, in turn: the first lanes of the first, the last of the last."""
        size = self.lanes // len(values)
        whole = values[0]
        for index, value in enumerate(values[1:], start=1):
            order = [i + self.lanes * (i // size == index) for i in range(self.lanes)]
            places = ", ".join(f"i32 {place}" for place in order)
            whole = self.op(
                f"shufflevector {self.vector} {whole}, {self.vector} {value}, "
                f"{self.whole} <{places}>"
            )
        return whole

    def part(self, x: Value, index: int, parts: int) -> Value:
        """One of the equal parts of a vector, in its first lanes."""
        size = self.lanes // parts
        places = ", ".join(f"i32 {index * size + lane % size}" for lane in range(self.lanes))
        return self.op(
            f"shufflevector {self.vector} {x}, {self.vector} poison, {self.whole} <{places}>"
        )

    def across(self, combine: Callable[[Value, Value], Value], x: Value) -> Value:
        """All lanes combined, in every lane."""
        distance = self.lanes // 2
        while distance:
            order = ", ".join(f"i32 {lane ^ distance}" for lane in range(self.lanes))
            other = self.op(
                f"shufflevector {self.vector} {x}, {self.vector} poison, {self.whole} <{order}>"
            )
            x = combine(x, other)
            distance //= 2
        return x

    def exp(self, x: Value) -> Value:
        return elementary.exp(self, x)

    def tanh(self, x: Value) -> Value:
        return elementary.tanh(self, x)

    # Control

    @contextmanager
    def loop(self, first: Value | int, last: Value | int, step: Value | int = 1) -> Iterator[Value]:
        """The body runs with the index from `first` up to, not including, `last`."""
        with self.carried_loop(first, last, [], step) as (index, _, _):
            yield index

    @contextmanager
    def rounds(self, count: int) -> Iterator[Value]:
        """The body runs so often; no loop for a single time."""
        if count == 1:
            yield "0"
            return
        with self.loop(0, count) as index:
            yield index

    @contextmanager
    def carried_loop(
        self, first: Value | int, last: Value | int, start: Sequence[Value], step: Value | int = 1
    ) -> Iterator[tuple[Value, list[Value], list[Value]]]:
        """A loop that carries vectors: the body takes the second list and replaces its items.

        After the loop, the third list holds their last values.
        """
        self.count += 1
        name = f"l{self.count}"
        before = self.block
        self.do(f"br label %{name}.test")
        self.lines.append(f"{name}.test:")
        place = len(self.lines)
        index = f"%{name}.i"
        carried = [f"%{name}.c{k}" for k in range(len(start))]
        self.lines += ["" for _ in range(1 + len(start))]
        go = self.op(f"icmp slt i64 {index}, {last}")
        self.do(f"br i1 {go}, label %{name}.body, label %{name}.end")
        self.lines.append(f"{name}.body:")
        self.block = f"{name}.body"
        current = list(carried)
        yield index, current, carried
        after = self.op(f"add nsw i64 {index}, {step}")
        self.do(f"br label %{name}.test")
        self.lines[place] = (
            f"  {index} = phi i64 [ {first}, %{before} ], [ {after}, %{self.block} ]"
        )
        for k, (old, new) in enumerate(zip(start, current, strict=True)):
            self.lines[place + 1 + k] = (
                f"  {carried[k]} = phi {self.vector} [ {old}, %{before} ], [ {new}, %{self.block} ]"
            )
        self.lines.append(f"{name}.end:")
        self.block = f"{name}.end"

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """The body runs if the condition is true; it leaves no values behind."""
        self.count += 1
        name = f"w{self.count}"
        self.do(f"br i1 {condition}, label %{name}.then, label %{name}.end")
        self.lines.append(f"{name}.then:")
        self.block = f"{name}.then"
        yield
        self.do(f"br label %{name}.end")
        self.lines.append(f"{name}.end:")
        self.block = f"{name}.end"

    def accumulate(
        self,
        count: int,
        sums: list[Value],
        body: Callable[[Value, list[Value]], None],
    ) -> list[Value]:
        """`sums` after `count` rounds of `body`, which replaces them; no loop for a single one."""
        if count == 1:
            body("0", sums)
            return sums
        with self.carried_loop(0, count, sums) as (index, current, carried):
            body(index, current)
        return carried


def float_text(value: float) -> str:
    """A float32 the way LLVM reads it without rounding."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return f"0x{bits:016X}"
