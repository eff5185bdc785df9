"""The ticket code's memory orders: its LLVM text executed by threads in any order, and broken."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from random import Random

import pytest

from tests.fuse.cpu.interleaved import Memory, Processor, Wrong, parsed, run
from tilewright.fuse.cpu import tickets
from tilewright.fuse.cpu.tickets import BUSY, CONTROL_WORDS, END, RECORD_WORDS, Record

HELPERS, JOBS = 2, 3
TEAM = 0x1000
ALONE, PREPARE, FINISH = 101, 102, 103  # addresses of functions
UNITS, PARTS = 3, 2
STRIDE = 8 * 64


class Scene:
    """Leaders who have jobs, one after the other, and helpers.

    A job has three phases: units that go by themselves, each in its thread's own scratch memory;
    parts of one unit, by several threads on the leader's; and a last one that needs all parts.
    """

    def __init__(self, functions, leaders: int, seed: int) -> None:
        self.random = Random(seed)
        self.memory = Memory(leaders + HELPERS, self.random)
        natives = {ALONE: self.alone, PREPARE: self.prepare, FINISH: self.finish}
        self.processor = Processor(functions, self.memory, natives)
        self.leaders = leaders
        self.computed: Counter[tuple[int, int, int]] = Counter()

    def play(self) -> None:
        leaders = [self.leader(thread) for thread in range(self.leaders)]
        helpers = [self.helper(self.leaders + h, 1 + h) for h in range(HELPERS)]
        run([*leaders, *helpers], self.random)
        if self.memory.history[TEAM + 8 * BUSY][-1].value:
            raise Wrong("the helpers are not given back")

    def leader(self, thread: int):
        memory, own = self.memory, TEAM + 8 * CONTROL_WORDS * (1 + thread)
        for turn in range(JOBS):
            job = 1 + thread * JOBS + turn
            base = 0x100000 * (1 + thread)  # the same place each time, as memory is used again
            words, image, out, scratch = (base + shift for shift in (0, 0x1000, 0x2000, 0x3000))
            records = [
                Record(0, 0, ALONE, job, 1, 0, 0, 0, 1, UNITS),
                Record(UNITS, UNITS, PREPARE, job, 0, 0, 0, 0, 1, PARTS),
                Record(UNITS + PARTS, UNITS + PARTS, FINISH, job, 0, 0, 0, 0, 1, 1),
                Record(END, *[0] * (RECORD_WORDS - 1)),
            ]
            for index, word in enumerate(word for each in records for word in astuple(each)):
                memory.write(thread, words + 8 * index, word)
            memory.write(thread, image, job)
            total = UNITS + PARTS + 1
            yield from self.processor.call(
                thread, "@lead", TEAM, own, words, total, image, out, 0, scratch, STRIDE
            )
            # What was computed is there, and all memory is the caller's again.
            wanted = {(job, ALONE, unit) for unit in range(UNITS)} | {(job, FINISH, 0)}
            wanted |= {(job, PREPARE, unit) for unit in range(PARTS)}
            found = Counter({key: n for key, n in self.computed.items() if key[0] == job})
            if found != Counter(wanted):
                raise Wrong(f"job {job}: {found}")
            for unit in range(UNITS + 1):
                if memory.read(thread, out + 8 * unit) != job:
                    raise Wrong(f"job {job}: result {unit}")
                memory.write(thread, out + 8 * unit, -1)
            memory.write(thread, image, -1)
            for worker in range(1 + HELPERS):
                memory.write(thread, scratch + STRIDE * worker, -1)
            for index in range(RECORD_WORDS * len(records)):
                memory.write(thread, words + 8 * index, -1)

    def helper(self, thread: int, worker: int):
        for _ in range(4):
            patience = self.random.randint(0, 12)
            yield from self.processor.call(thread, "@help", TEAM, worker, patience)

    def alone(self, thread, image, out, job, scratch, shared, ticks, first, last):
        for unit in range(first, last):
            yield from self.begin(thread, image, job, ALONE, unit)
            self.memory.write(thread, scratch, unit)
            yield "access"
            if self.memory.read(thread, scratch) != unit:
                raise Wrong("scratch memory of another")
            self.memory.write(thread, out + 8 * unit, job)

    def prepare(self, thread, image, out, job, scratch, shared, ticks, first, last):
        for unit in range(first, last):
            yield from self.begin(thread, image, job, PREPARE, unit)
            self.memory.write(thread, scratch + 8 * (1 + unit), job)

    def finish(self, thread, image, out, job, scratch, shared, ticks, first, last):
        yield from self.begin(thread, image, job, FINISH, 0)
        for unit in range(PARTS):
            if self.memory.read(thread, scratch + 8 * (1 + unit)) != job:
                raise Wrong("a phase before the one it needs")
        self.memory.write(thread, out + 8 * UNITS, job)

    def begin(self, thread, image, job, phase, unit):
        if self.memory.read(thread, image) != job:
            raise Wrong("a job with another's image")
        self.computed[job, phase, unit] += 1
        yield "access"


def search(code: str, seeds: int) -> None:
    functions = parsed(code)
    for seed in range(seeds):
        Scene(functions, 1 + seed % 2, seed).play()


def test_in_any_order_every_ticket_is_computed_once_with_its_own_data():
    search(tickets._code(), 100)


def test_helpers_do_take_tickets():
    """Else nothing above is tried."""
    functions, by = parsed(tickets._code()), Counter()

    class Watched(Scene):
        def begin(self, thread, image, job, phase, unit):
            by[thread >= self.leaders, phase] += 1
            return super().begin(thread, image, job, phase, unit)

    for seed in range(30):
        Watched(functions, 1, seed).play()
    assert min(by[helped, phase] for helped in (0, 1) for phase in (ALONE, PREPARE, FINISH)) > 5


TAKE = "%swap = cmpxchg ptr %control, i64 %word, i64 %after acq_rel monotonic"
RESET = "  store atomic i64 0, ptr %done.at monotonic, align 8\n"
PUBLISH = "  store atomic i64 %word, ptr %control release, align 64\n"
GIVE_BACK = "  store atomic i64 0, ptr %busy.at release, align 8\n"
ADD = "%before = atomicrmw add ptr %done.at, i64 1 acq_rel"
WORK = "  call void @work(ptr %control)\n"
NEEDS = "%ready = icmp sge i64 %done, %needs"
ALL = "%ready = icmp sge i64 %done, %total"
LOOK = "%word = load atomic i64, ptr %control acquire, align 64"
DONE = "%done = load atomic i64, ptr %done.at acquire, align 8"
BROKEN = {
    "a ticket is taken without exchanging the whole word": [
        (f"  {TAKE}\n  %taken = extractvalue {{ i64, i1 }} %swap, 1\n",
         "  store atomic i64 %after, ptr %control release, align 64\n  %taken = icmp eq i64 0, 0\n")
    ],
    "done is reset after the job is known": [(RESET, ""), (PUBLISH, PUBLISH + RESET)],
    "the job is known before its data": [(PUBLISH, PUBLISH.replace("release", "monotonic"))],
    "a ticket is taken without what its job's leader knows": [
        (LOOK, LOOK.replace("acquire", "monotonic")),
        (TAKE, TAKE.replace("acq_rel", "monotonic")),
    ],
    "a ticket is done before its results are": [(ADD, ADD.replace("acq_rel", "monotonic"))],
    "what is done is believed but not seen": [(DONE, DONE.replace("acquire", "monotonic"))],
    "no waiting for the phase before": [(NEEDS, "%ready = icmp sge i64 %done, 0")],
    "no waiting for the last tickets": [(ALL, "%ready = icmp sge i64 %done, 0")],
    "the helpers are kept": [(GIVE_BACK, "")],
    "the helpers are given back too early": [(GIVE_BACK, ""), (WORK, GIVE_BACK + WORK)],
    "the helpers are given back without what was done": [
        (GIVE_BACK, GIVE_BACK.replace("release", "monotonic"))
    ],
    "the helpers are taken without asking": [
        ("%free = extractvalue { i64, i1 } %swap, 1", "%free = icmp eq i64 0, 0")
    ],
    "the helpers are taken without what was done": [
        ("i64 0, i64 1 acquire monotonic", "i64 0, i64 1 monotonic monotonic")
    ],
    "all work in the leader's scratch memory": [
        ("%mine = mul i64 %worker, %own_scratch", "%mine = mul i64 0, %own_scratch")
    ],
    "none works in the leader's scratch memory": [
        ("%mine = mul i64 %worker, %own_scratch", "%mine = mul i64 %worker, 1")
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_broken_code_is_caught(what):
    code = tickets._code()
    for old, new in BROKEN[what]:
        assert old in code
        code = code.replace(old, new)
    with pytest.raises(Wrong):
        search(code, 400)
