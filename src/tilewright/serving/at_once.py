"""All launches of a call by one function of machine code, and so by one call out of Python.

Around a call out of Python the interpreter's lock is given away, and eight threads that call queue
for it. So everything that launches take lies in one block of memory, and a small function made by
LLVM goes through it: it asks whether the stream is captured, where that matters, and launches
kernel after kernel; for arrays of the host, between a copy to the GPU and one back.

A graph of the driver's is launched in less time than one kernel. Some are kept, each for the images
and outputs of a call before: callers come back with the same memory, as servers do. For any other
the oldest is moved there, by telling the driver what the kernels that read images or write outputs
take now (NVIDIA H200, 2026-11-16: one kernel 5.8 µs, four 20, eleven 51; as a graph all of them
3.6, moved 4.2 to 4.9).
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.serving import machine_code

# Words of 64 bits at a block's beginning: the stream, where images and outputs lie; the GPU's
# context, and the driver's functions that give the thread's, ask for captures (0: not asked),
# launch, replay and move; where the launches end; how often they were launched one by one, and how
# often is enough (0: never); the graph that will be the next. Then the graphs (0: none yet), each
# with its images and outputs.
(
    STREAM, IMAGES, OUTPUTS, CONTEXT, CURRENT, ASK, LAUNCH, REPLAY, MOVE, END, TIMES, ENOUGH, NEXT,
    FIRST_GRAPH,
) = range(14)  # fmt: skip
GRAPHS, GRAPH_WORDS = 4, 3
HEAD = FIRST_GRAPH + GRAPHS * GRAPH_WORDS
# The launches come next. Each begins as the driver wants it for a graph (CUDA_KERNEL_NODE_PARAMS):
# a function, halves of words for grid, block and shared bytes, the address of its arguments'
# addresses, and zeros; then come its place in graphs, and what moves it.
ARGUMENTS, NODE, MOVED_BY, LAUNCH_WORDS = 5, 9, 10, 11
BY_IMAGES, BY_OUTPUTS = 1, 2
# What comes back where the driver would say what was wrong. Nothing was launched, as the stream is
# captured, or as the thread works in no context yet or on another GPU, whose default streams have
# the same numbers. And: all was, often enough to make the next graph.
CAPTURED, ELSEWHERE, OFTEN = -1, -2, -3


def word(name: str, index: int, kind: str = "ptr", of: str = "block") -> str:
    """Machine code that reads a word of a block."""
    return f"""%{name}.place = getelementptr i64, ptr %{of}, i64 {index}
  %{name} = load {kind}, ptr %{name}.place"""


def _graph(number: int) -> str:
    """The one found before, or this one if it is made for these images and outputs."""
    first = FIRST_GRAPH + GRAPH_WORDS * number
    before = f"%found{number - 1}" if number else "null"
    return f"""
  {word(f"graph{number}", first)}
  {word(f"images{number}", first + 1, "i64")}
  {word(f"outputs{number}", first + 2, "i64")}
  %of.images{number} = icmp eq i64 %images, %images{number}
  %of.outputs{number} = icmp eq i64 %outputs, %outputs{number}
  %fits{number} = and i1 %of.images{number}, %of.outputs{number}
  %found{number} = select i1 %fits{number}, ptr %graph{number}, ptr {before}"""


CODE = f"""
define i32 @launch_all(ptr %block) {{
entry:
  %status = alloca i32
  %found = alloca ptr
  {word("stream", STREAM)}
  {word("context", CONTEXT)}
  {word("current", CURRENT)}
  {word("ask", ASK)}
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
  {word("images", IMAGES, "i64")}
  {word("outputs", OUTPUTS, "i64")}
  {"".join(map(_graph, range(GRAPHS)))}
  {word("end", END)}
  %first = getelementptr i64, ptr %block, i64 {HEAD}
  %fits = icmp ne ptr %found{GRAPHS - 1}, null
  br i1 %fits, label %once, label %other

once:
  %graph = phi ptr [ %found{GRAPHS - 1}, %ready ], [ %oldest, %all.moved ]
  {word("replay", REPLAY)}
  %replayed = call i32 %replay(ptr %graph, ptr %stream)
  br label %over

other:
  {word("next", NEXT, "i64")}
  %number = mul i64 %next, {GRAPH_WORDS}
  %graphs = getelementptr i64, ptr %block, i64 {FIRST_GRAPH}
  %slot = getelementptr i64, ptr %graphs, i64 %number
  %oldest = load ptr, ptr %slot
  %movable = icmp ne ptr %oldest, null
  br i1 %movable, label %move, label %each

move:
  {word("set", MOVE)}
  {word("old.images", 1, "i64", of="slot")}
  {word("old.outputs", 2, "i64", of="slot")}
  %other.images = icmp ne i64 %images, %old.images
  %other.outputs = icmp ne i64 %outputs, %old.outputs
  %by.images = select i1 %other.images, i64 {BY_IMAGES}, i64 0
  %by.outputs = select i1 %other.outputs, i64 {BY_OUTPUTS}, i64 0
  %by = or i64 %by.images, %by.outputs
  store i64 0, ptr %old.images.place  ; nobody's, should the driver refuse
  store i64 0, ptr %old.outputs.place
  br label %moving

moving:
  %from = phi ptr [ %first, %move ], [ %behind, %moved ]
  {word("node", NODE, of="from")}
  {word("moved.by", MOVED_BY, "i64", of="from")}
  %behind = getelementptr i64, ptr %from, i64 {LAUNCH_WORDS}
  %reasons = and i64 %moved.by, %by
  %moves = icmp ne i64 %reasons, 0
  br i1 %moves, label %tell, label %moved

tell:
  %unmoved = call i32 %set(ptr %oldest, ptr %node, ptr %from)
  %is.moved = icmp eq i32 %unmoved, 0
  br i1 %is.moved, label %moved, label %over

moved:
  %still = icmp ult ptr %behind, %end
  br i1 %still, label %moving, label %all.moved

all.moved:
  store i64 %images, ptr %old.images.place
  store i64 %outputs, ptr %old.outputs.place
  %following = add i64 %next, 1
  %around = urem i64 %following, {GRAPHS}
  store i64 %around, ptr %next.place
  br label %once

each:
  %at = phi ptr [ %first, %other ], [ %after, %launched ]
  %kernel = load ptr, ptr %at
  {word("launch", LAUNCH)}
  {
    "".join(
        f'''%size{index}.place = getelementptr i32, ptr %at, i64 {2 + index}
  %size{index} = load i32, ptr %size{index}.place
  '''
        for index in range(7)
    )
}{word("arguments", ARGUMENTS, of="at")}
  %error = call i32 %launch(
    ptr %kernel, {", ".join(f"i32 %size{index}" for index in range(7))},
    ptr %stream, ptr %arguments, ptr null)
  %done = icmp eq i32 %error, 0
  br i1 %done, label %launched, label %over

launched:
  %after = getelementptr i64, ptr %at, i64 {LAUNCH_WORDS}
  %more = icmp ult ptr %after, %end
  br i1 %more, label %each, label %count

count:
  {word("times", TIMES, "i64")}
  {word("enough", ENOUGH, "i64")}
  %counted = add i64 %times, 1
  store i64 %counted, ptr %times.place
  %often = icmp uge i64 %counted, %enough
  %ever = icmp ne i64 %enough, 0
  %yes = and i1 %often, %ever
  %told = select i1 %yes, i32 {OFTEN}, i32 0
  br label %over

over:
  %result = phi i32 [ {ELSEWHERE}, %entry ], [ %refused, %question ], [ {CAPTURED}, %answer ],
    [ %replayed, %once ], [ %unmoved, %tell ], [ %error, %each ], [ %told, %count ]
  ret i32 %result
}}
"""

# The same from Python: with addresses of images and outputs, and a stream.
AT_CODE = f"""
define ptr @launch_at(ptr %self, ptr %given, i64 %count) {{
entry:
  %block = call ptr @PyLong_AsVoidPtr(ptr %self)
  {
    "".join(
        f'''%object{number}.place = getelementptr ptr, ptr %given, i64 {number}
  %object{number} = load ptr, ptr %object{number}.place
  %value{number} = call ptr @PyLong_AsVoidPtr(ptr %object{number})
  %word{number} = getelementptr i64, ptr %block, i64 {place}
  store ptr %value{number}, ptr %word{number}
  '''
        for number, place in enumerate((IMAGES, OUTPUTS, STREAM))
    )
}%wrong = call ptr @PyErr_Occurred()
  %right = icmp eq ptr %wrong, null
  br i1 %right, label %launch, label %refused

refused:  ; no number
  ret ptr null

launch:
  %thread = call ptr @PyEval_SaveThread()
  %error = call i32 @launch_all(ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  %long = sext i32 %error to i64
  %number = call ptr @PyLong_FromLong(i64 %long)
  ret ptr %number
}}
"""


def launch_at(block: int) -> Callable[[int, int, int], int]:
    """Takes addresses of images and outputs, and a stream; gives 0, the driver's error, or one of
    the above."""
    found: Callable[[int, int, int], int] = machine_code.function(
        "launch_at", CODE + AT_CODE, block
    )
    return found
