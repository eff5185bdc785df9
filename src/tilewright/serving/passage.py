"""A passage through the host's memory in machine code: there, through the kernels, and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from tilewright.serving import at_once, machine_code
from tilewright.serving.at_once import OFTEN, STREAM, word

# Words of a passage: the launches' block; the driver's function that copies to the GPU, where to,
# from where and how many bytes; the same for the way back; and the function that waits for a stream
# (0: nobody waits).
(
    BLOCK, SEND, SENT, PIXELS, SENT_BYTES, FETCH, FETCHED, RESULTS, FETCHED_BYTES, WAIT, WORDS
) = range(11)  # fmt: skip

CODE = f"""
define i32 @pass_through(ptr %passage) {{
entry:
  {word("block", BLOCK, of="passage")}
  {word("stream", STREAM)}
  {word("send", SEND, of="passage")}
  {word("sent", SENT, of="passage")}
  {word("pixels", PIXELS, of="passage")}
  {word("sent.bytes", SENT_BYTES, "i64", of="passage")}
  %unsent = call i32 %send(ptr %sent, ptr %pixels, i64 %sent.bytes, ptr %stream)
  %is.sent = icmp eq i32 %unsent, 0
  br i1 %is.sent, label %compute, label %over

compute:
  %launched = call i32 @launch_all(ptr %block)
  %failed = icmp ne i32 %launched, 0
  %fresh = icmp ne i32 %launched, {OFTEN}
  %wrong = and i1 %failed, %fresh
  br i1 %wrong, label %over, label %fetch

fetch:
  {word("fetch.function", FETCH, of="passage")}
  {word("fetched", FETCHED, of="passage")}
  {word("results", RESULTS, of="passage")}
  {word("fetched.bytes", FETCHED_BYTES, "i64", of="passage")}
  %unfetched = call i32 %fetch.function(
    ptr %fetched, ptr %results, i64 %fetched.bytes, ptr %stream)
  %is.fetched = icmp eq i32 %unfetched, 0
  br i1 %is.fetched, label %fetching, label %over

fetching:
  {word("wait", WAIT, of="passage")}
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
def pass_through() -> Callable[[ctypes.c_void_p], int]:
    """Takes a passage's address; gives what `launch_at` does."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(
        machine_code.address_of("pass_through", at_once.CODE + CODE)
    )
