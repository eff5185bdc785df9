"""Operations of one kernel that branch: which pictures there are, how long, and where they lie.

A picture lives from the operation that writes it to the last one that reads it; places are given by
lives, the largest pictures first. What is added to a convolution's sums, and read by nobody
afterwards, is overwritten by the results where it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.pictures import Picture, plain
from tilewright.fuse.cuda.stack import Layout, Phase, Taken
from tilewright.fuse.cuda.sums import Shares, Sink, into, planes, source_picture
from tilewright.model.layers import Shape

# How the sums of an operation are shared out.
Share = Callable[[Operation], Shares]


def inputs_of(part: Sequence[Operation]) -> tuple[int, ...]:
    """What operations of a kernel take from outside; the pixels first."""
    inside = {each.index for each in part}
    outside = dict.fromkeys(taken for each in part for taken in each.takes if taken not in inside)
    return tuple(sorted(outside, key=lambda taken: taken >= 0))


def is_chain(part: Sequence[Operation]) -> bool:
    """Whether each takes the one before it; the last may add what another kernel gave."""
    first, last = part[0], part[-1]
    return all(
        each.kind != "join"
        and not each.direct
        and (each is first or each.takes[0] == each.index - 1)
        and (len(each.takes) == 1 or each is last)
        for each in part
    ) and (not last.added or _from_outside(first, last))


def _from_outside(first: Operation, last: Operation) -> bool:
    """Whether what is added lies in device memory, and not better where the first reads it."""
    return last.takes[1] < first.index and (first is last or last.takes[1] != first.takes[0])


@dataclass
class _Held:
    """A picture, with who reads it through windows and when it is needed."""

    born: int  # the place of the operation that writes it first; -1: it is filled
    dies: int
    windows: list[Operation] = field(default_factory=list)
    source: Operation | None = None  # that gives the shape, if nobody has a window on it
    shape: Shape = ()
    read_until: int = -1  # the index of the last operation that takes one of its values
    softmax: bool = False
    pixels: bool = False
    readers: int = 0


def phases_of(
    part: Sequence[Operation],
    arithmetic: Arithmetic,
    generation: Generation,
    groups: int,
    share: Share,
) -> tuple[tuple[Phase, ...], Layout] | None:
    """The phases of operations that branch, and where their pictures lie; None: nowhere, in so many
    groups."""
    inputs = inputs_of(part)
    shares = {each.index: share(each) for each in part if each.kind == "sum"}
    held, pictures_of = _held(part, inputs, shares)
    pictures = tuple(_picture(each, arithmetic, generation, shares) for each in held)
    places, words = _placed(held, pictures)
    if 4 * groups * words > generation.shared_bytes:
        return None
    filled = tuple(inputs.index(value) for value in inputs if value in pictures_of)

    def taken(value: int) -> Taken:
        if value in pictures_of:
            return Taken(True, pictures_of[value])
        return Taken(False, inputs.index(value))

    phases = []
    for each in part:
        number = None if each is part[-1] else pictures_of[each.index]
        target = None if number is None else pictures[number]
        reads = tuple(map(taken, each.takes))
        source = pictures[reads[0].number] if reads[0].held else plain(arithmetic, each.source)
        added = None
        if each.added:
            held_too = reads[1].held
            added = pictures[reads[1].number] if held_too else plain(arithmetic, each.result)
        softmax = number is not None and held[number].softmax
        own = shares.get(each.index)
        phases.append(_phase(each, arithmetic, source, target, softmax, own, reads, number, added))
    return tuple(phases), Layout(pictures, places, filled, words)


# The same operations are tried together with more and more of those that follow.
@lru_cache(maxsize=50_000)
def _phase(
    each: Operation,
    arithmetic: Arithmetic,
    source: Picture,
    target: Picture | None,
    softmax: bool,
    shares: Shares | None,
    reads: tuple[Taken, ...],
    gives: int | None,
    added: Picture | None,
) -> Phase:
    sink = _sink(each, target, arithmetic, softmax)
    other = None if added is None else into(added, arithmetic, rounded=False)
    return Phase(each, source, target, sink, shares, True, reads, gives, other)


def _held(
    part: Sequence[Operation], inputs: tuple[int, ...], shares: dict[int, Shares]
) -> tuple[list[_Held], dict[int, int]]:
    """All pictures, and which of them each value is in."""
    held: list[_Held] = []
    pictures_of: dict[int, int] = {}
    windows = {each.takes[0] for each in part if each.kind != "join" and not each.direct}
    last = {value: each.index for each in part for value in each.takes}
    for value in inputs:
        if value in windows:
            pictures_of[value] = len(held)
            held.append(_Held(-1, -1, read_until=last[value]))
    for place, each in enumerate(part):
        for position, value in enumerate(each.takes):
            if value in pictures_of:
                one = held[pictures_of[value]]
                one.dies, one.readers = place, one.readers + 1
                if each.kind != "join" and position == 0:
                    one.windows.append(each)
                    one.pixels = each.forms[0] == "pixels" and one.born < 0
                    one.softmax = each.kind == "softmax"
        if each is part[-1]:
            break
        if _in_place(each, pictures_of, held, shares):
            pictures_of[each.index] = pictures_of[each.takes[1]]
            held[pictures_of[each.index]].readers += 1
        else:
            pictures_of[each.index] = len(held)
            held.append(_Held(place, place, source=each))
        one = held[pictures_of[each.index]]
        one.shape, one.read_until = each.result, max(one.read_until, last.get(each.index, -1))
    return held, pictures_of


def _in_place(
    each: Operation,
    pictures_of: dict[int, int],
    held: Sequence[_Held],
    shares: dict[int, Shares],
) -> bool:
    """Whether results may lie where what is added to them was: nobody needs it any more, and no row
    is computed twice."""
    if not each.added or each.takes[1] not in pictures_of:
        return False
    number = pictures_of[each.takes[1]]
    own = shares[each.index]
    return (
        held[number].read_until <= each.index
        and pictures_of.get(each.takes[0]) != number
        and own.blocks * own.rows == own.needed[0]
    )


def _picture(
    held: _Held, arithmetic: Arithmetic, generation: Generation, shares: dict[int, Shares]
) -> Picture:
    if not held.windows:
        return plain(arithmetic, held.shape)
    if held.softmax or (held.source is not None and held.source.kind == "softmax"):
        return plain(arithmetic, held.windows[0].source, floats=True)
    down, right = 0, 0
    for each in held.windows:
        if each.kind != "each":
            around = each.window.around
            down, right = max(down, around[0]), max(right, around[1])
    sums = [each for each in held.windows if each.kind == "sum"]
    if not sums:
        return plain(arithmetic, held.windows[0].source, padding=(down, right))
    loaded = held.pixels and held.readers == 1
    return source_picture(shares[sums[0].index], loaded, generation.unaligned, (down, right))


def _sink(each: Operation, target: Picture | None, arithmetic: Arithmetic, softmax: bool) -> Sink:
    if target is None:
        if each.gives == "output":
            return planes(each.result)
        return into(plain(arithmetic, each.result), arithmetic, each.only_sums)
    return planes(each.result) if softmax else into(target, arithmetic, each.only_sums)


def _placed(held: Sequence[_Held], pictures: Sequence[Picture]) -> tuple[tuple[int, ...], int]:
    """Where each picture begins, and how many words they take together."""
    places: dict[int, int] = {}
    for number in sorted(range(len(held)), key=lambda each: -pictures[each].size):
        own, at = held[number], 0
        others = sorted(
            (places[other], places[other] + pictures[other].size)
            for other in places
            if held[other].born <= own.dies and own.born <= held[other].dies
        )
        for begin, end in others:
            if at + pictures[number].size <= begin:
                break
            at = max(at, end)
        places[number] = at
    ends = [place + pictures[number].size for number, place in places.items()]
    return tuple(places[number] for number in range(len(held))), max(ends, default=0)
