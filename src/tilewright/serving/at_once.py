"""All launches of a call by one function of machine code, and so by one call out of Python.

A call of a function of C costs Python a fifth of a microsecond, and as much again for each two of
its arguments; around it the interpreter's lock is given away, and eight threads that call queue for
it. So everything that launches take lies in one block of memory, and a small function made by LLVM
goes through it: it asks whether the stream is captured, where that matters, and launches kernel
after kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from llvmlite.binding import ExecutionEngine

from tilewright.fuse.cpu.build import compile_code, compiled_folder, host

# Words of 64 bits at a block's beginning: the stream, where images and outputs lie, the driver's
# functions that ask for captures (0: not asked) and launch, and where the launches end. They come
# next: each a function, two halves of a word for each two of grid, block and shared bytes, and the
# address of its arguments' addresses.
STREAM, IMAGES, OUTPUTS, ASK, LAUNCH, END, HEAD = range(7)
LAUNCH_WORDS = 6
# What comes back where the driver would say what was wrong, when nothing was launched.
CAPTURED = -1

CODE = f"""
define i32 @launch_all(ptr %block) {{
entry:
  %status = alloca i32
  %stream = load ptr, ptr %block
  %ask.place = getelementptr i64, ptr %block, i64 {ASK}
  %ask = load ptr, ptr %ask.place
  %launch.place = getelementptr i64, ptr %block, i64 {LAUNCH}
  %launch = load ptr, ptr %launch.place
  %end.place = getelementptr i64, ptr %block, i64 {END}
  %end = load ptr, ptr %end.place
  %first = getelementptr i64, ptr %block, i64 {HEAD}
  %asks = icmp ne ptr %ask, null
  br i1 %asks, label %question, label %each

question:
  store i32 0, ptr %status
  %refused = call i32 %ask(ptr %stream, ptr %status)
  %answered = icmp eq i32 %refused, 0
  br i1 %answered, label %answer, label %over

answer:
  %captured = load i32, ptr %status
  %free = icmp eq i32 %captured, 0
  br i1 %free, label %each, label %over

each:
  %at = phi ptr [ %first, %entry ], [ %first, %answer ], [ %next, %launched ]
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
  br i1 %more, label %each, label %over

over:
  %result = phi i32 [ %refused, %question ], [ {CAPTURED}, %answer ],
    [ %error, %each ], [ 0, %launched ]
  ret i32 %result
}}
"""


@cache
def _engine() -> ExecutionEngine:
    """Owns the code, which is used as long as the process lives."""
    return compile_code(CODE, host(), compiled_folder())


@cache
def launch_all() -> Callable[[ctypes.c_void_p], int]:
    """Takes a block's address; gives 0, the driver's error, or that the stream is captured."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(_engine().get_function_address("launch_all"))
