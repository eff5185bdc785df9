"""Work shared by threads in machine code: tickets that whoever has time takes.

A job is a list of phases, each a function and a range of units cut into tickets. Tickets are
numbered through the whole job. `lead` makes a job known, takes tickets until none is left and
returns when all are done; `help`, on other threads, takes tickets of any job made known until there
has been none for a while. Nobody waits for a helper: one that sleeps, or is late, has taken no
ticket, and the leader does the work itself. Only a thread that holds a ticket can be waited for.

Python may be interrupted before and after any call, by a signal's handler that raises, but not
within `lead`. So it is one call from taking the helpers to giving them back: whatever happens
outside, no helper works for a caller who has gone, and none is kept by him.

The ticket word holds the number of the job, how many tickets it has and which is the next. A ticket
is taken by exchanging the whole word, so that one who still looks at an older job cannot take
anything from a newer one; and while a ticket is out its job cannot end, so what was read of the job
before the exchange was right.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from tilewright.fuse.cpu.build import compile_code, compiled_folder, host, is_arm

# Bits for the next ticket and for the number of tickets; the rest numbers the jobs.
TICKET_BITS = 20
MOST_TICKETS = 2**TICKET_BITS - 1
# Rounds of waiting before the system is asked to let another thread run: one that holds a ticket
# may be waiting for this core.
ROUNDS_BEFORE_YIELD = 1024
# The end of a job: no ticket has this number.
END = 2**62
# 64-bit words of the control block; what is often written has a cache line of its own.
CONTROL_WORDS = 32
DONE, JOB, IMAGES, OUT, TICKS, SCRATCH, STRIDE, BUSY = 8, 16, 17, 18, 19, 20, 21, 24


@dataclass(frozen=True)
class Record:
    """A phase as `take` reads it, a 64-bit word each.

    `start` is its first ticket; its tickets may be begun when `needs` are done. A ticket is the
    next `step` units from `first` on, up to `last`. `own_scratch` is 1 where every thread works in
    its own part of the scratch memory, 0 where all work in the leader's, which is the first; its
    address is given in any case. The shifts lead to the phase's images.
    """

    start: int
    needs: int
    function: int
    weights: int
    own_scratch: int
    shift_images: int
    shift_out: int
    first: int
    step: int
    last: int


RECORD_WORDS = len(Record.__dataclass_fields__)


def _word(name: str, base: str, index: int, type_: str = "i64") -> str:
    return (
        f"  %{name}.at = getelementptr i64, ptr %{base}, i64 {index}\n"
        f"  %{name} = load {type_}, ptr %{name}.at"
    )


def _code() -> str:
    pause = (
        ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)")
        if is_arm()
        else ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()")
    )
    record = list(Record.__dataclass_fields__)
    fields = "\n".join(
        _word(name, "record", index, "ptr" if name in ("function", "weights") else "i64")
        for index, name in enumerate(record)
        if name != "start"
    )
    arguments = {
        "job": JOB, "images": IMAGES, "out": OUT, "ticks": TICKS, "scratch": SCRATCH,
        "stride": STRIDE,
    }  # fmt: skip
    stores = "\n".join(
        f"  %{name}.at = getelementptr i64, ptr %control, i64 {index}\n"
        f"  store {'i64' if name == 'stride' else 'ptr'} %{name}, ptr %{name}.at"
        for name, index in arguments.items()
    )
    mask = MOST_TICKETS
    return f"""
{pause[0]}
declare i32 @sched_yield()

define internal i64 @wait(i64 %rounds) nounwind {{
  {pause[1]}
  %more = add i64 %rounds, 1
  %part = and i64 %more, {ROUNDS_BEFORE_YIELD - 1}
  %long = icmp eq i64 %part, 0
  br i1 %long, label %yield, label %end
yield:
  %ignored = call i32 @sched_yield()
  br label %end
end:
  ret i64 %more
}}

; Compute a ticket that has been taken.
define internal void @compute(ptr %control, i64 %ticket, i64 %worker) nounwind {{
entry:
{_word("job", "control", JOB, "ptr")}
{_word("images", "control", IMAGES, "ptr")}
{_word("out", "control", OUT, "ptr")}
{_word("ticks", "control", TICKS, "ptr")}
{_word("scratch", "control", SCRATCH, "ptr")}
{_word("stride", "control", STRIDE)}
  %done.at = getelementptr i64, ptr %control, i64 {DONE}
  br label %search
search:
  %record = phi ptr [ %job, %entry ], [ %next, %search ]
  %next = getelementptr i64, ptr %record, i64 {RECORD_WORDS}
  %next.start = load i64, ptr %next
  %later = icmp sle i64 %next.start, %ticket
  br i1 %later, label %search, label %found
found:
  %start = load i64, ptr %record
{fields}
  br label %test
test:
  %rounds = phi i64 [ 0, %found ], [ %rounds.more, %pause ]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %ready = icmp sge i64 %done, %needs
  br i1 %ready, label %begin, label %pause
pause:
  %rounds.more = call i64 @wait(i64 %rounds)
  br label %test
begin:
  %number = sub i64 %ticket, %start
  %shift = mul i64 %number, %step
  %from = add i64 %first, %shift
  %beyond = add i64 %from, %step
  %fits = icmp slt i64 %beyond, %last
  %to = select i1 %fits, i64 %beyond, i64 %last
  %mine = mul i64 %worker, %own_scratch
  %memory.shift = mul i64 %mine, %stride
  %memory = getelementptr i8, ptr %scratch, i64 %memory.shift
  %source = getelementptr i8, ptr %images, i64 %shift_images
  %target = getelementptr i8, ptr %out, i64 %shift_out
  call void %function(ptr %source, ptr %target, ptr %weights, ptr %memory, ptr %scratch, ptr %ticks,
                      i64 %from, i64 %to)
  %before = atomicrmw add ptr %done.at, i64 1 acq_rel
  ret void
}}

; Take the next ticket and compute it; 0 if there was none.
define internal i1 @take(ptr %control, i64 %worker) nounwind {{
entry:
  br label %look
look:
  %word = load atomic i64, ptr %control acquire, align 64
  %next = and i64 %word, {mask}
  %shifted = lshr i64 %word, {TICKET_BITS}
  %total = and i64 %shifted, {mask}
  %left = icmp slt i64 %next, %total
  br i1 %left, label %try, label %none
try:
  %after = add i64 %word, 1
  %swap = cmpxchg ptr %control, i64 %word, i64 %after acq_rel monotonic
  %taken = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %taken, label %yes, label %look
yes:
  call void @compute(ptr %control, i64 %next, i64 %worker)
  ret i1 1
none:
  ret i1 0
}}

define internal void @announce(ptr %control, ptr %job, i64 %total, ptr %images, ptr %out,
                               ptr %ticks, ptr %scratch, i64 %stride) nounwind {{
entry:
{stores}
  %done.at = getelementptr i64, ptr %control, i64 {DONE}
  store atomic i64 0, ptr %done.at monotonic, align 8
  %old = load atomic i64, ptr %control monotonic, align 64
  %job.number = lshr i64 %old, {2 * TICKET_BITS}
  %job.next = add i64 %job.number, 1
  %job.bits = shl i64 %job.next, {2 * TICKET_BITS}
  %total.bits = shl i64 %total, {TICKET_BITS}
  %word = or i64 %job.bits, %total.bits
  store atomic i64 %word, ptr %control release, align 64
  ret void
}}

define internal void @work(ptr %control) nounwind {{
entry:
  %done.at = getelementptr i64, ptr %control, i64 {DONE}
  br label %take
take:
  %more = call i1 @take(ptr %control, i64 0)
  br i1 %more, label %take, label %last
last:
  %word = load atomic i64, ptr %control monotonic, align 64
  %shifted = lshr i64 %word, {TICKET_BITS}
  %total = and i64 %shifted, {mask}
  br label %test
test:
  %rounds = phi i64 [ 0, %last ], [ %rounds.more, %pause ]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %ready = icmp sge i64 %done, %total
  br i1 %ready, label %end, label %pause
pause:
  %rounds.more = call i64 @wait(i64 %rounds)
  br label %test
end:
  ret void
}}

; A job from beginning to end: with the helpers who look at the team's control block, unless
; another leader has them, else alone with a control block of one's own.
define void @lead(ptr %team, ptr %own, ptr %job, i64 %total, ptr %images, ptr %out, ptr %ticks,
                  ptr %scratch, i64 %stride) nounwind {{
entry:
  %busy.at = getelementptr i64, ptr %team, i64 {BUSY}
  %swap = cmpxchg ptr %busy.at, i64 0, i64 1 acquire monotonic, align 8
  %free = extractvalue {{ i64, i1 }} %swap, 1
  %control = select i1 %free, ptr %team, ptr %own
  call void @announce(ptr %control, ptr %job, i64 %total, ptr %images, ptr %out, ptr %ticks,
                      ptr %scratch, i64 %stride)
  call void @work(ptr %control)
  br i1 %free, label %give.back, label %end
give.back:
  store atomic i64 0, ptr %busy.at release, align 8
  ret void
end:
  ret void
}}

; Take tickets until there has been none for a while.
define void @help(ptr %control, i64 %worker, i64 %patience) nounwind {{
entry:
  br label %look
look:
  %rounds = phi i64 [ 0, %entry ], [ 0, %look ], [ %rounds.more, %pause ]
  %some = call i1 @take(ptr %control, i64 %worker)
  br i1 %some, label %look, label %idle
idle:
  %patient = icmp slt i64 %rounds, %patience
  br i1 %patient, label %pause, label %end
pause:
  {pause[1]}
  %rounds.more = add i64 %rounds, 1
  br label %look
end:
  ret void
}}
"""


class Tickets:
    """The machine code, to be called without the GIL, as ctypes does."""

    def __init__(self) -> None:
        self.engine = compile_code(_code(), host(), compiled_folder())
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        address = self.engine.get_function_address
        leading = ctypes.CFUNCTYPE(None, *[pointer] * 3, number, *[pointer] * 4, number)
        helping = ctypes.CFUNCTYPE(None, pointer, number, number)
        self.lead, self.help = leading(address("lead")), helping(address("help"))
