"""All launches of a call by one function of machine code, and so by one call out of Python.

A call of a function of C costs Python a fifth of a microsecond, and as much again for each two of
its arguments; around it the interpreter's lock is given away, and eight threads that call queue for
it. So everything that launches take lies in one block of memory, and a small function made by LLVM
goes through it: it asks whether the stream is captured, where that matters, and launches kernel
after kernel; for arrays of the host, between a copy to the GPU and one back. Callers who come back
with the same memory, as servers do, are worth a graph: one of the driver's, which is launched in
half the time of one kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from llvmlite.binding import ExecutionEngine

from tilewright.fuse.cpu.build import compile_code, compiled_folder, host

# Words of 64 bits at a block's beginning: the stream, where images and outputs lie; the GPU's
# context, and the driver's functions that give the thread's, ask for captures (0: not asked),
# launch and replay; where the launches end; images and outputs of the last call, how often they
# came again, and how often is enough. Then some graphs (0: none yet), each with its images and
# outputs. The launches come next: each a function, halves of words for grid, block and shared
# bytes, and the address of its arguments' addresses.
(
    STREAM, IMAGES, OUTPUTS, CONTEXT, CURRENT, ASK, LAUNCH, REPLAY, END, LAST_IMAGES, LAST_OUTPUTS,
    REPEATS, ENOUGH, FIRST_GRAPH,
) = range(14)  # fmt: skip
GRAPHS, GRAPH_WORDS = 4, 3
HEAD = FIRST_GRAPH + GRAPHS * GRAPH_WORDS
LAUNCH_WORDS = 6
# What comes back where the driver would say what was wrong. Nothing was launched, as the stream is
# captured, or as the thread works in no context yet or on another GPU, whose default streams have
# the same numbers. And: all was, for the same addresses often enough to make a graph of it.
CAPTURED, ELSEWHERE, REPEATED = -1, -2, -3


def _word(name: str, index: int, kind: str = "ptr", of: str = "block") -> str:
    return f"""%{name}.place = getelementptr i64, ptr %{of}, i64 {index}
  %{name} = load {kind}, ptr %{name}.place"""


def _graph(number: int) -> str:
    """The one found before, or this one if it is made for these images and outputs."""
    first = FIRST_GRAPH + GRAPH_WORDS * number
    before = f"%found{number - 1}" if number else "null"
    return f"""
  {_word(f"graph{number}", first)}
  {_word(f"images{number}", first + 1, "i64")}
  {_word(f"outputs{number}", first + 2, "i64")}
  %of.images{number} = icmp eq i64 %images, %images{number}
  %of.outputs{number} = icmp eq i64 %outputs, %outputs{number}
  %fits{number} = and i1 %of.images{number}, %of.outputs{number}
  %found{number} = select i1 %fits{number}, ptr %graph{number}, ptr {before}"""


CODE = f"""
define i32 @launch_all(ptr %block) {{
entry:
  %status = alloca i32
  %found = alloca ptr
  {_word("stream", STREAM)}
  {_word("context", CONTEXT)}
  {_word("current", CURRENT)}
  {_word("ask", ASK)}
  store ptr null, ptr %found
  %lost = call i32 %current(ptr %found)
  %now = load ptr, ptr %found
  %here = icmp eq ptr %now, %context
  %asks = icmp ne ptr %ask, null
  br i1 %here, label %inside, label %over

inside:
  br i1 %asks, label %question, label %ready

question:
  store i32 0, ptr %status
  %refused = call i32 %ask(ptr %stream, ptr %status)
  %answered = icmp eq i32 %refused, 0
  br i1 %answered, label %answer, label %over

answer:
  %captured = load i32, ptr %status
  %free = icmp eq i32 %captured, 0
  br i1 %free, label %ready, label %over

ready:
  {_word("images", IMAGES, "i64")}
  {_word("outputs", OUTPUTS, "i64")}
  {"".join(map(_graph, range(GRAPHS)))}
  {_word("launch", LAUNCH)}
  {_word("end", END)}
  %first = getelementptr i64, ptr %block, i64 {HEAD}
  %fits = icmp ne ptr %found{GRAPHS - 1}, null
  br i1 %fits, label %once, label %each

once:
  {_word("replay", REPLAY)}
  %replayed = call i32 %replay(ptr %found{GRAPHS - 1}, ptr %stream)
  br label %over

each:
  %at = phi ptr [ %first, %ready ], [ %next, %launched ]
  %kernel = load ptr, ptr %at
  {
    "".join(
        f'''%size{index}.place = getelementptr i32, ptr %at, i64 {2 + index}
  %size{index} = load i32, ptr %size{index}.place
  '''
        for index in range(7)
    )
}%arguments.place = getelementptr i64, ptr %at, i64 {LAUNCH_WORDS - 1}
  %arguments = load ptr, ptr %arguments.place
  %error = call i32 %launch(
    ptr %kernel, {", ".join(f"i32 %size{index}" for index in range(7))},
    ptr %stream, ptr %arguments, ptr null)
  %done = icmp eq i32 %error, 0
  br i1 %done, label %launched, label %over

launched:
  %next = getelementptr i64, ptr %at, i64 {LAUNCH_WORDS}
  %more = icmp ult ptr %next, %end
  br i1 %more, label %each, label %count

count:
  {_word("last.images", LAST_IMAGES, "i64")}
  {_word("last.outputs", LAST_OUTPUTS, "i64")}
  {_word("repeats", REPEATS, "i64")}
  {_word("enough", ENOUGH, "i64")}
  store i64 %images, ptr %last.images.place
  store i64 %outputs, ptr %last.outputs.place
  %same.images = icmp eq i64 %images, %last.images
  %same.outputs = icmp eq i64 %outputs, %last.outputs
  %same = and i1 %same.images, %same.outputs
  %one.more = add i64 %repeats, 1
  %counted = select i1 %same, i64 %one.more, i64 0
  store i64 %counted, ptr %repeats.place
  %often = icmp uge i64 %counted, %enough
  %never = icmp eq i64 %enough, 0
  %yes = select i1 %never, i1 false, i1 %often
  %told = select i1 %yes, i32 {REPEATED}, i32 0
  br label %over

over:
  %result = phi i32 [ {ELSEWHERE}, %entry ], [ %refused, %question ], [ {CAPTURED}, %answer ],
    [ %replayed, %once ], [ %error, %each ], [ %told, %count ]
  ret i32 %result
}}
"""

# Words of a passage through the host's memory: the launches' block; the driver's function that
# copies to the GPU, where to, from where and how many bytes; the same for the way back; and the
# function that waits for a stream (0: nobody waits).
(
    BLOCK, SEND, SENT, PIXELS, SENT_BYTES, FETCH, FETCHED, RESULTS, FETCHED_BYTES, WAIT, PASSAGE
) = range(11)  # fmt: skip

PASSAGE_CODE = f"""
define i32 @pass_through(ptr %passage) {{
entry:
  {_word("block", BLOCK, of="passage")}
  {_word("stream", STREAM)}
  {_word("send", SEND, of="passage")}
  {_word("sent", SENT, of="passage")}
  {_word("pixels", PIXELS, of="passage")}
  {_word("sent.bytes", SENT_BYTES, "i64", of="passage")}
  %unsent = call i32 %send(ptr %sent, ptr %pixels, i64 %sent.bytes, ptr %stream)
  %is.sent = icmp eq i32 %unsent, 0
  br i1 %is.sent, label %compute, label %over

compute:
  %launched = call i32 @launch_all(ptr %block)
  %failed = icmp ne i32 %launched, 0
  %fresh = icmp ne i32 %launched, {REPEATED}
  %wrong = and i1 %failed, %fresh
  br i1 %wrong, label %over, label %fetch

fetch:
  {_word("fetch.function", FETCH, of="passage")}
  {_word("fetched", FETCHED, of="passage")}
  {_word("results", RESULTS, of="passage")}
  {_word("fetched.bytes", FETCHED_BYTES, "i64", of="passage")}
  %unfetched = call i32 %fetch.function(
    ptr %fetched, ptr %results, i64 %fetched.bytes, ptr %stream)
  %is.fetched = icmp eq i32 %unfetched, 0
  br i1 %is.fetched, label %fetching, label %over

fetching:
  {_word("wait", WAIT, of="passage")}
  %waits = icmp ne ptr %wait, null
  br i1 %waits, label %until, label %over

until:
  %unfinished = call i32 %wait(ptr %stream)
  %finished = icmp eq i32 %unfinished, 0
  %last = select i1 %finished, i32 %launched, i32 %unfinished
  br label %over

over:
  %result = phi i32 [ %unsent, %entry ], [ %launched, %compute ], [ %unfetched, %fetch ],
    [ %launched, %fetching ], [ %last, %until ]
  ret i32 %result
}}
"""


@cache
def _engine() -> ExecutionEngine:
    """Owns the code, which is used as long as the process lives."""
    return compile_code(CODE + PASSAGE_CODE, host(), compiled_folder())


@cache
def launch_all() -> Callable[[ctypes.c_void_p], int]:
    """Takes a block's address; gives 0, the driver's error, or one of the above."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(_engine().get_function_address("launch_all"))


@cache
def pass_through() -> Callable[[ctypes.c_void_p], int]:
    """Takes a passage's address; gives what `launch_all` does."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(_engine().get_function_address("pass_through"))
