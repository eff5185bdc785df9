"""What the threads of a stack's kernel do, as a typed list: the form between plan and text.

`program` makes it from a plan, `emit_stack` prints it as CUDA, and the tests' interpreter runs it
in NumPy, thread by thread. A step is a call of a building block in `sums.cuh`, `pictures.cuh` or
`branches.cuh`; it holds all that the block is told: addresses (in words, of a group's own memory if
not said otherwise) and the constants of its struct, whose names are those of `STRUCT` in capitals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.stack import Rows, Source, Strip
from tilewright.fuse.cuda.sums import To
from tilewright.model.layers import Elementwise, Pixels
from tilewright.model.layers.multiply import Reach
from tilewright.model.layers.take import Places

PoolStep = Literal["", "max", "max of each", "average"]


@dataclass(frozen=True)
class Clear:
    """Zeros: what steps read around pictures must be numbers."""

    words: int
    threads: int


@dataclass(frozen=True)
class FetchParameters:
    """Bytes of the parameters on their way to shared memory, by all threads of a block: the first;
    or ahead of the layers that need them, those from word `at` on.

    Fetches go 16 bytes at a time, past registers (cp.async), and where the GPU can, those ahead as
    one; `Arrived` waits for them.
    """

    bytes: int
    threads: int
    at: int = 0


@dataclass(frozen=True)
class FetchImage:
    """An image's bytes on their way to where `Fill` reads them: this item's, or the next one's.

    They go 4 at a time if images do not all begin on 16.
    """

    at: int
    bytes: int
    threads: int
    ahead: bool


@dataclass(frozen=True)
class Committed:
    """What every thread has fetched until now, and since the last time, is waited for together."""


@dataclass(frozen=True)
class Arrived:
    """Every thread waits for what it has fetched itself, or for all but what was committed last.
    The others see it after a barrier; tensor cores read `matrices` of it. And every thread waits
    for parameters that are fetched `ahead`."""

    matrices: bool = False
    but_last: bool = False
    ahead: bool = False


@dataclass(frozen=True)
class Barrier:
    """All threads of a group wait for each other, or all of the block."""

    threads: int
    block: bool = False


@dataclass(frozen=True)
class Given:
    """One of a kernel's inputs in device memory: `size` bytes, floats or words are an image's."""

    number: int
    source: Source
    size: int


@dataclass(frozen=True)
class Fill:
    """Pixels, or words of another kernel, into the first picture; rows outside the image are zero.

    `form`: value by value, four pixels of three channels at a time, word by word, or four pixels as
    one (`fold`).
    """

    form: Literal["values", "threes", "words", "fours"]
    staged: int | None  # where the image was fetched to; None: it is read from device memory
    at: int
    rows: Rows | None  # of a strip
    pixels: Pixels | None  # what bytes mean
    threads: int
    channels: int
    height: int
    width: int
    source_height: int
    whole: bool
    left: int
    pitch: int
    words: int
    row: int
    tight: bool
    copy: int
    floats: bool
    round: bool
    each: int  # words of another kernel that a thread copies at once
    index: int = 0  # of the picture
    given: Given | None = None  # which of the kernel's inputs, if not the first
    STRUCT: ClassVar[tuple[str, ...]] = (
        "threads", "channels", "height", "width", "source_height", "whole", "left", "pitch",
        "words", "row", "tight", "copy", "floats", "round", "each",
    )  # fmt: skip


@dataclass(frozen=True)
class Border:
    """Zeros around a picture, and in gaps that steps read, as far as others were written there."""

    index: int  # of the phase that reads the picture
    at: int
    around: bool  # whether there is anything around its pixels
    tight: bool  # counted in halves then
    threads: int
    row: int
    copy: int
    top: int
    height: int
    left: int
    right: int
    width: int
    pitch: int
    words: int
    gap: int
    after: int
    dirty: int
    STRUCT: ClassVar[tuple[str, ...]] = (
        "threads", "row", "copy", "top", "height", "left", "right", "width", "pitch", "words",
        "gap", "after", "dirty",
    )  # fmt: skip

    @property
    def needed(self) -> bool:
        return self.around and self.dirty > 0


@dataclass(frozen=True)
class Blank:
    """Zeros in rows of a strip's picture that lie outside the whole one."""

    index: int
    at: int
    rows: Rows
    threads: int
    height: int
    row: int
    source_height: int
    STRUCT: ClassVar[tuple[str, ...]] = ("threads", "height", "row", "source_height")


@dataclass(frozen=True)
class Outside:
    """Steps for strips only whose picture, `height` rows of it, has rows outside the whole one."""

    rows: Rows
    height: int
    steps: tuple[Blank | Barrier, ...]

    def happens(self, start: int) -> bool:
        first = self.rows.first(start)
        return first < 0 or first > self.rows.height - self.height


Wide = Literal[0, 2, 4]


@dataclass(frozen=True)
class Target:
    """Where results go, and how: `at` is None for the item's result in device memory.

    Those of several images are held `apart` words from each other, if they are.
    """

    at: int | None
    paired: bool  # two operands are written at once
    wide: Wide  # columns of halves that are
    filters: int
    to: To
    plane: int
    out_row: int
    out_pixel: int
    origin: int
    apart: int = 0
    STRUCT: ClassVar[tuple[str, ...]] = (
        "paired", "wide", "filters", "to", "plane", "out_row", "out_pixel", "origin"
    )  # fmt: skip


@dataclass(frozen=True)
class Added:
    """What is added to sums: it lies at `at` of the group's memory, or is `given`."""

    at: int | None
    given: Given | None
    row: int  # words from row to row


@dataclass(frozen=True)
class Convolve:
    """Sums of products, then bias, activations, pooling and the write of results."""

    index: int
    at: int
    weights: int  # words from the first of the parameters, as is `bias`
    weights_shared: bool
    bias: int
    tables: int
    target: Target
    before: tuple[Elementwise, ...]
    activations: tuple[Elementwise, ...]  # after pooling
    warps: int
    tiles: int
    units: int
    rows: int
    columns: int
    all_columns: int
    taps_y: int
    stride_y: int
    input_rows: int
    tops: int  # how many tiles are at the top of the picture: the first of all
    above: int  # rows of input, zeros, that those leave out
    bottoms: int  # the first of the tiles at the bottom
    below: int  # rows that those leave out
    row: int
    pitch: int
    runs: int
    full: int
    half: int
    rows_first: bool
    unroll: int
    pool: PoolStep
    rounds: bool  # what is read is rounded to operands first
    pairs: bool  # of a whole step a lane reads two words of a row at once, on tensor cores
    twice: bool  # a lane has two sums of each, of even words and of odd ones, without them
    added: Added | None
    narrow: bool = False  # the last column has one filter of each lane
    folded: bool = False  # sums of a pooling window are in columns, not beside each other (`fold`)
    warpgroup: int = 0  # rows of sums that four warps compute at a time; 0: each its own
    beside: bool = False  # units of the same positions, which share the filters, follow each other
    STRUCT: ClassVar[tuple[str, ...]] = (
        "warps", "tiles", "units", "rows", "columns", "all_columns", "taps_y", "stride_y",
        "input_rows", "tops", "above", "bottoms", "below", "row", "pitch", "runs", "full", "half",
        "rows_first", "unroll", "pool", "rounds", "pairs", "twice", "narrow", "folded", "warpgroup",
        "beside",
    )  # fmt: skip


@dataclass(frozen=True)
class Each:
    """Pooling over any window, or none, and activations, two channels a thread at a time."""

    index: int
    at: int
    target: Target
    activations: tuple[Elementwise, ...]
    threads: int
    row: int
    pitch: int
    floats: bool
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    average: bool
    out_y: int
    out_x: int
    given: Given | None = None  # in device memory, if it is read there
    STRUCT: ClassVar[tuple[str, ...]] = (
        "threads", "row", "pitch", "floats", "taps_y", "taps_x", "stride_y", "stride_x",
        "average", "out_y", "out_x",
    )  # fmt: skip


@dataclass(frozen=True)
class Windows:
    """Pooling whose windows stick out of the picture, and activations.

    `top` and `left` are as far as they do before it; `rows` says where a strip begins.
    """

    index: int
    at: int
    target: Target
    activations: tuple[Elementwise, ...]
    rows: Rows | None
    threads: int
    row: int
    pitch: int
    floats: bool
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    top: int
    left: int
    height: int
    width: int
    average: bool
    counted_y: int  # rows and columns beyond the picture that count as values
    counted_x: int
    counts_padding: bool
    out_y: int
    out_x: int
    given: Given | None = None  # in device memory, if it is read there
    STRUCT: ClassVar[tuple[str, ...]] = (
        "threads", "row", "pitch", "floats", "taps_y", "taps_x", "stride_y", "stride_x", "top",
        "left", "height", "width", "average", "counted_y", "counted_x", "counts_padding", "out_y",
        "out_x",
    )  # fmt: skip


@dataclass(frozen=True)
class Channels:
    """Sums over one channel for each filter, and activations: of two filters and `tall` outputs
    above each other a thread at a time."""

    index: int
    at: int
    weights: int  # words from the first of the parameters, as is `bias`
    weights_shared: bool
    bias: int
    target: Target
    activations: tuple[Elementwise, ...]
    threads: int
    row: int
    pitch: int
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    apart_y: int  # from tap to tap
    apart_x: int
    multiple: int  # filters of a channel
    tall: int
    out_y: int
    out_x: int
    STRUCT: ClassVar[tuple[str, ...]] = (
        "threads", "row", "pitch", "taps_y", "taps_x", "stride_y", "stride_x", "apart_y",
        "apart_x", "multiple", "tall", "out_y", "out_x",
    )  # fmt: skip


How = Literal["added", "multiplied", "behind", "chosen"]


@dataclass(frozen=True)
class Part:
    """One of what is joined: a picture in shared memory or in words, or planes of values.

    Values are looked up by their place among all `channels` x `height` x `width` of it, if that is
    not the shape of the results (`flat`). A number of it is for a value of the results, for all of
    a channel or all of a place (`reach`). Where results are chosen rows and columns of it, these
    are `chosen`.
    """

    at: int | None
    given: Given | None
    pixels: Pixels | None  # what bytes mean
    channels: int
    height: int
    width: int
    row: int
    pitch: int
    floats: bool
    flat: bool
    reach: Reach
    chosen: tuple[Places, Places] | None = None
    STRUCT: ClassVar[tuple[str, ...]] = (
        "channels", "height", "width", "row", "pitch", "floats", "flat"
    )  # fmt: skip

    @property
    def features(self) -> int:
        return self.channels * self.height * self.width

    @property
    def planes(self) -> bool:
        """Whether it lies in device memory channel by channel."""
        return self.given is not None and self.given.source != "words"


@dataclass(frozen=True)
class Join:
    """Values of several pictures added up, multiplied, or behind each other, or chosen ones of a
    single picture; two channels at a time."""

    index: int
    parts: tuple[Part, ...]
    how: How
    target: Target
    activations: tuple[Elementwise, ...]
    threads: int
    out_y: int
    out_x: int
    STRUCT: ClassVar[tuple[str, ...]] = ("threads", "out_y", "out_x")


@dataclass(frozen=True)
class Softmax:
    """Scores into probabilities, by the group's first warp.

    If scores of several images are held, `apart` words from each other, warps take turns.
    """

    at: int
    target: int | None
    size: int
    apart: int = 0


@dataclass(frozen=True)
class Together:
    """Steps for several images whose features are held: after `most`, and after the last one."""

    most: int
    steps: tuple[Convolve | Barrier | Softmax, ...]


Step = (
    Clear | FetchParameters | FetchImage | Committed | Arrived | Barrier | Fill | Border | Outside
    | Convolve | Channels | Each | Windows | Join | Softmax | Together
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A stack's kernel: what happens once, and what happens to every item.

    An item is an image, or a strip of one. Shared memory has the parameters first, then each
    group's own memory.
    """

    arithmetic: Arithmetic
    source: Source
    threads: int
    groups: int
    warps: int  # of a group
    shared_words: int
    group_words: int
    image_size: int  # bytes, floats or words of an image in device memory
    result_words: int
    result_row: int  # words of a row of the last result
    panels: bool  # results go to where a fully connected layer reads them (`panels`)
    strip: Strip | None
    once: tuple[Step, ...]
    item: tuple[Step, ...]
    more: tuple[Source, ...] = ()  # types of further inputs

    @property
    def group_threads(self) -> int:
        return 32 * self.warps
