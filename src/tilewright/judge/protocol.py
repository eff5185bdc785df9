"""What judge and worker say to each other: messages of a length and MessagePack, through two pipes.

The judge asks, the worker does; most requests have no answer, and what went wrong with them is said
at the next that has. A worker in which a kernel ran may say anything: what the judge reads is
bounded, and has one of the shapes below or none. Who is answered has given a ticket.
"""

from __future__ import annotations

import secrets
import struct
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from tilewright.judge.allowance import Allowance
from tilewright.runtime.dialect import Grid, Limits, Source

LENGTH = struct.Struct("<I")
MOST_ANSWER = 2**17
WORDS = 2**15  # of a compiler's log
# Classes of errors that come across. Lost: the worker can do nothing more, as a GPU's driver does
# nothing for a process whose kernel went wrong.
Class = Literal[
    "TilewrightError", "DoesNotFit", "DeviceFault", "MemoryError", "KernelDoesNotCompile", "Lost"
]
Line = Annotated[int, Meta(ge=1, le=10**7)]


class Begin(Struct, tag=True, frozen=True):
    device: str
    scratch: str
    kept: str | None
    native: bool
    window: int
    allowance: Allowance


class Piece(Struct, array_like=True, frozen=True):
    """Bytes of a buffer."""

    buffer: int
    offset: int
    size: int


class Allocate(Struct, tag=True, frozen=True):
    """A buffer of the device's; `shared` is where it lies in the window, if it must."""

    buffer: int
    size: int
    shared: int | None = None


class Free(Struct, tag=True, frozen=True):
    buffers: list[int]


class Write(Struct, tag=True, frozen=True):
    """From a place in the window."""

    piece: Piece
    place: int


class Read(Struct, tag=True, frozen=True):
    """To a place in the window. Answered."""

    ticket: int
    piece: Piece
    place: int


class Copy(Struct, tag=True, frozen=True):
    target: Piece
    source: Piece


class Compile(Struct, tag=True, frozen=True):
    """Answered. `constant` is the buffer that the kernel's constant memory is called."""

    ticket: int
    kernel: int
    constant: int
    source: Source


class Launch(Struct, tag=True, frozen=True):
    kernel: int
    grid: Grid
    arguments: list[Piece | int]


class Record(Struct, tag=True, frozen=True):
    """Whether a GPU's own clock is read: the next answer to a wait says what kernels took."""

    on: bool


class Flush(Struct, tag=True, frozen=True):
    """Give up what kernels have asked a GPU to keep in its cache."""


class Wait(Struct, tag=True, frozen=True):
    """Until all is done. Answered."""

    ticket: int


Answered = Read | Compile | Wait
Request = Allocate | Free | Write | Read | Copy | Compile | Launch | Record | Flush | Wait


class Ready(Struct, tag=True, frozen=True):
    limits: Limits
    description: Annotated[str, Meta(max_length=500)]


class Done(Struct, tag=True, frozen=True):
    """`seconds` are a GPU's own, if they were recorded."""

    ticket: int
    seconds: Annotated[float, Meta(ge=0.0)] = 0.0


class Complaint(Struct, array_like=True, frozen=True):
    """A compiler's, at a line of the user's file."""

    line: Line
    column: Line | None
    text: Annotated[str, Meta(max_length=1000)]


class Failed(Struct, tag=True, frozen=True):
    ticket: int
    kind: Class
    words: Annotated[str, Meta(max_length=WORDS)]
    complaints: Annotated[list[Complaint], Meta(max_length=100)] = []


Answer = Ready | Done | Failed

START = 0  # the ticket of the first answer of all


def _plain(value: object) -> int | float:
    """A number of NumPy's, which constants of kernels may be."""
    if isinstance(value, np.generic) and isinstance(plain := value.item(), int | float):
        return plain
    raise TypeError(f"{value!r} is no number")


encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
decode_begin = msgspec.msgpack.Decoder(Begin).decode
decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_answer = msgspec.msgpack.Decoder(Answer).decode


def ticket() -> int:
    """One that cannot be guessed."""
    return secrets.randbits(62)


def frame(message: Begin | Request | Answer) -> bytes:
    content = encode(message)
    return LENGTH.pack(len(content)) + content


def answer_in(held: bytearray) -> Answer | None:
    """The answer at the start of what came, taken out of it; None if it is not whole yet.

    ValueError, of which msgspec's errors are, if it is none.
    """
    if len(held) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack_from(held)
    if size > MOST_ANSWER:
        raise ValueError(f"an answer of {size:,} bytes")
    if len(held) < LENGTH.size + size:
        return None
    content = bytes(held[LENGTH.size : LENGTH.size + size])
    del held[: LENGTH.size + size]
    answer: Answer = _decode_answer(content)
    return answer
