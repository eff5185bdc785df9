"""LLVM code of several threads, executed step by step in any order that the memory model allows.

Threads are generators that stop before every atomic access; a random schedule says who goes on.
An atomic load may give any value that the thread cannot know to be out of date, as on a machine
whose stores arrive late. What one thread knows of another goes by vector clocks, as in C++'s memory
model: a release store hands on all that its thread knows, an acquire load takes it in. A plain
access that is not ordered with another one to the same word, of which one writes, is a race.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

VALUE, WORD = r"([%@]?[\w.]+)", r"(?:ptr|i64|i32|i1)"
FORMS = {
    "phi": rf"phi {WORD} (.*)",
    "gep": rf"getelementptr (i8|i64), ptr {VALUE}, i64 {VALUE}",
    "atomic_load": rf"load atomic i64, ptr {VALUE} (\w+), align \d+",
    "load": rf"load {WORD}, ptr {VALUE}",
    "atomic_store": rf"store atomic i64 {VALUE}, ptr {VALUE} (\w+), align \d+",
    "store": rf"store {WORD} {VALUE}, ptr {VALUE}",
    "rmw": rf"atomicrmw add ptr {VALUE}, i64 {VALUE} (\w+)",
    "exchange": rf"cmpxchg ptr {VALUE}, i64 {VALUE}, i64 {VALUE} (\w+) monotonic(?:, align \d+)?",
    "extract": rf"extractvalue {{ i64, i1 }} {VALUE}, (\d)",
    "compare": rf"icmp (\w+) i64 {VALUE}, {VALUE}",
    "arithmetic": rf"(add|sub|mul|and|or|shl|lshr) i64 {VALUE}, {VALUE}",
    "select": rf"select i1 {VALUE}, {WORD} {VALUE}, {WORD} {VALUE}",
    "branch": rf"br (?:i1 {VALUE}, label %([\w.]+), )?label %([\w.]+)",
    "ret": rf"ret (?:void|{WORD} {VALUE})",
    "call": rf"call (?:void|{WORD}) {VALUE}\((.*)\)",
}
ARITHMETIC = {
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "and": int.__and__,
    "or": int.__or__, "shl": int.__lshift__, "lshr": int.__rshift__,
}  # fmt: skip
COMPARISONS = {"slt": int.__lt__, "sle": int.__le__, "sge": int.__ge__, "eq": int.__eq__}
IDLE = ("@llvm.x86.sse2.pause", "@llvm.aarch64.hint", "@sched_yield")


class Wrong(AssertionError):
    """What threads must not do to each other."""


@dataclass
class Function:
    parameters: list[str]
    blocks: dict[str, list[tuple[str, str, tuple[str, ...]]]]


def parsed(code: str) -> dict[str, Function]:
    """Functions by their names; blocks of (result, form, operands)."""
    functions = {}
    code = re.sub(r";.*", "", code)
    for name, parameters, body in re.findall(
        r"define [\w ]+ (@\w+)\(([^)]*)\) nounwind \{(.*?)\n\}", code, re.DOTALL
    ):
        blocks: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {"entry": []}
        current = blocks["entry"]
        for line in re.sub(r",\n\s{10,}", ", ", body).splitlines():
            line = line.strip()
            if line.endswith(":"):
                current = blocks[line[:-1]] = []
            elif line:
                result, _, rest = line.rpartition(" = ") if line.startswith("%") else ("", "", line)
                current.append((result, *_form(rest)))
        functions[name] = Function(re.findall(r"%[\w.]+", parameters), blocks)
    return functions


def _form(text: str) -> tuple[str, tuple[str, ...]]:
    for name, pattern in FORMS.items():
        if found := re.fullmatch(pattern, text):
            return name, found.groups()
    raise ValueError(f"not understood: {text}")


@dataclass
class Plain:
    """A word that one thread at a time works on."""

    value: int = 0
    written: tuple[int, int] | None = None
    read: dict[int, int] = field(default_factory=dict)


@dataclass
class Stored:
    """A value of an atomic word: who stored it when, and what he let others know."""

    value: int
    by: int
    at: int
    known: list[int]


class Memory:
    """The words that threads share, and what each thread knows."""

    def __init__(self, threads: int, random: Random) -> None:
        self.random = random
        self.clocks = [[0] * threads for _ in range(threads)]
        self.plain: dict[int, Plain] = {}
        self.history: dict[int, list[Stored]] = {}
        self.seen: dict[tuple[int, int], int] = {}
        self.unknown = [0] * threads

    def read(self, thread: int, at: int) -> int:
        word = self._plain(thread, at)
        word.read[thread] = self._tick(thread)
        return word.value

    def write(self, thread: int, at: int, value: int) -> None:
        word = self._plain(thread, at)
        for other, when in word.read.items():
            self._ordered(thread, other, when, at)
        word.value, word.written, word.read = value, (thread, self._tick(thread)), {}

    def load(self, thread: int, at: int, order: str) -> int:
        history, first = self._history(at), self.seen.get((thread, at), 0)
        known = self.clocks[thread]
        for index in range(len(history) - 1, first, -1):
            if known[history[index].by] >= history[index].at:
                first = index
                break
        latest = len(history) - 1
        index = latest if self.random.random() < 0.7 else self.random.randint(first, latest)
        return self._take_in(thread, at, index, order)

    def store(self, thread: int, at: int, value: int, order: str) -> None:
        self._append(thread, at, value, order, self.unknown)

    def change(self, thread: int, at: int, order: str, new) -> int:
        """Replace the latest value by `new(value)`, if that is not None; returns what it was."""
        history = self._history(at)
        before = history[-1]
        replacement = new(before.value)
        if replacement is None:
            return self._take_in(thread, at, len(history) - 1, "monotonic")
        self._take_in(thread, at, len(history) - 1, order)
        self._append(thread, at, replacement, order, before.known)
        return before.value

    def _append(self, thread: int, at: int, value: int, order: str, known: list[int]) -> None:
        when = self._tick(thread)
        if order in ("release", "acq_rel"):
            known = list(map(max, known, self.clocks[thread]))
        history = self._history(at)
        history.append(Stored(value, thread, when, known))
        self.seen[thread, at] = len(history) - 1

    def _take_in(self, thread: int, at: int, index: int, order: str) -> int:
        stored = self._history(at)[index]
        self.seen[thread, at] = index
        if order in ("acquire", "acq_rel"):
            self.clocks[thread] = list(map(max, self.clocks[thread], stored.known))
        return stored.value

    def _history(self, at: int) -> list[Stored]:
        return self.history.setdefault(at, [Stored(0, 0, 0, self.unknown)])

    def _plain(self, thread: int, at: int) -> Plain:
        word = self.plain.setdefault(at, Plain())
        if word.written is not None:
            self._ordered(thread, *word.written, at)
        return word

    def _ordered(self, thread: int, other: int, when: int, at: int) -> None:
        if self.clocks[thread][other] < when:
            raise Wrong(f"threads {thread} and {other} race for word {at}")

    def _tick(self, thread: int) -> int:
        self.clocks[thread][thread] += 1
        return self.clocks[thread][thread]


class Processor:
    """Executes functions for threads. `natives` are generators at addresses that code calls."""

    def __init__(self, functions: dict[str, Function], memory: Memory, natives: dict) -> None:
        self.functions, self.memory, self.natives = functions, memory, natives

    def call(self, thread: int, name: str, *arguments: int):
        """A generator that ends with the function's result."""
        function = self.functions[name]
        values = dict(zip(function.parameters, arguments, strict=True))
        label, came_from = "entry", ""

        def value(token: str):
            return values[token] if token.startswith("%") else int(token)

        while True:
            for result, form, operands in function.blocks[label]:
                match form, operands:
                    case "branch", (condition, then, other):
                        taken = then if condition and value(condition) else other
                        came_from, label = label, taken
                        break
                    case "ret", (token,):
                        return None if token is None else value(token)
                    case "phi", (choices,):
                        pairs = re.findall(rf"\[ {VALUE}, %([\w.]+) \]", choices)
                        (token,) = (token for token, source in pairs if source == came_from)
                        values[result] = value(token)
                    case "call", (callee, text):
                        given = [value(part.split()[-1]) for part in text.split(",") if part]
                        if callee in IDLE:
                            yield "idle"
                        elif callee.startswith("@"):
                            values[result] = yield from self.call(thread, callee, *given)
                        else:
                            yield from self.natives[value(callee)](thread, *given)
                    case _:
                        if form in ("atomic_load", "atomic_store", "rmw", "exchange"):
                            yield "access"
                        values[result] = self._simple(thread, form, operands, value)
            else:
                raise ValueError(f"block {label} of {name} does not end")

    def _simple(self, thread: int, form: str, operands: tuple[str, ...], value):
        memory = self.memory
        match form, operands:
            case "gep", (type_, base, index):
                return value(base) + value(index) * (8 if type_ == "i64" else 1)
            case "load", (at,):
                return memory.read(thread, value(at))
            case "store", (new, at):
                return memory.write(thread, value(at), value(new))
            case "atomic_load", (at, order):
                return memory.load(thread, value(at), order)
            case "atomic_store", (new, at, order):
                return memory.store(thread, value(at), value(new), order)
            case "rmw", (at, more, order):
                return memory.change(thread, value(at), order, lambda old: old + value(more))
            case "exchange", (at, expected, new, order):
                wanted = value(expected)
                old = memory.change(
                    thread, value(at), order, lambda now: value(new) if now == wanted else None
                )
                return old, int(old == wanted)
            case "extract", (pair, index):
                return value(pair)[int(index)]
            case "compare", (how, left, right):
                return int(COMPARISONS[how](value(left), value(right)))
            case "arithmetic", (how, left, right):
                return ARITHMETIC[how](value(left), value(right))
            case "select", (condition, left, right):
                return value(left) if value(condition) else value(right)
        raise ValueError(f"unknown form {form}")


def run(threads: list, random: Random, most: int = 20_000) -> None:
    """All threads to their ends, in turns of random lengths."""
    alive = dict(enumerate(threads))
    switching, current = random.choice((0.05, 0.3, 0.9)), 0
    for _ in range(most):
        if not alive:
            return
        if current not in alive or random.random() < switching:
            current = random.choice(list(alive))
        try:
            if next(alive[current]) == "idle":
                current = random.choice(list(alive))
        except StopIteration:
            del alive[current]
    raise Wrong("threads that never end")
