"""A convolution computed with a mistake in it, one mistake after the other, in float64.

A kernel whose output equals one of these has made that mistake: that is evidence, not a guess.
`mistakes` yields what would come out of a case, each computed when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.truth.diagnose import words
from tilewright.truth.diagnose.case import SIDES, Array, Case, Numbers


@dataclass(frozen=True)
class Mistake:
    """A word, a sentence, and what comes out; NaN where that is not known."""

    word: str
    text: str
    output: Array


def mistakes(case: Case) -> Iterator[Mistake]:
    """Everything that can be computed without looking at what the kernel gave."""
    yield from _bias(case)
    yield from _kernels(case)
    yield from _layouts(case)
    yield from _lengths(case)
    yield from _windows(case)
    yield from _borders(case)
    yield from _left_out(case)
    yield from _others(case)


def _bias(case: Case) -> Iterator[Mistake]:
    if not case.bias.any():
        return
    yield Mistake(words.BIAS, "without the bias", case.right - case.column)
    yield Mistake(words.BIAS_TWICE, "with the bias added twice", case.right + case.column)
    taps = "with the bias added once for every tap"
    count = case.weight[0].size
    yield Mistake(words.BIAS_TWICE, taps, case.right + (count - 1) * case.column)
    channels = "with the bias added once for every input channel"
    more = case.weight.shape[1] - 1
    yield Mistake(words.BIAS_TWICE, channels, case.right + more * case.column)
    for shift, which in ((1, "the filter before"), (-1, "the filter behind")):
        other = np.roll(case.bias, shift)[:, None, None]
        yield Mistake(
            words.BIAS_OTHER, f"with the bias of {which}",
            case.sums() + other,
        )  # fmt: skip
    yield Mistake(words.BIAS_OTHER, "with the bias of filter 0 for all", case.sums() + case.bias[0])


def _kernels(case: Case) -> Iterator[Mistake]:
    """The right weights at the wrong place of the kernel."""
    weight = case.weight
    filters, channels, taps_y, taps_x = weight.shape

    def with_weight(word: str, text: str, other: Array) -> Mistake:
        return Mistake(word, text, case.sums(other) + case.column)

    yield with_weight(
        words.FLIPPED,
        "with the kernel turned around in y and x (a convolution as in mathematics; networks use "
        "correlation)",
        weight[:, :, ::-1, ::-1],
    )
    yield with_weight(words.FLIPPED, "with the kernel upside down", weight[:, :, ::-1])
    yield with_weight(words.FLIPPED, "with the kernel's left and right swapped", weight[..., ::-1])
    swapped = weight.reshape(filters, channels, taps_x, taps_y).transpose(0, 1, 3, 2)
    yield with_weight(words.TRANSPOSED, "with y and x of the kernel swapped", swapped)
    by_channel = weight.reshape(channels, filters, taps_y, taps_x).transpose(1, 0, 2, 3)
    yield with_weight(
        words.CHANNELS, "with weights read as [channel][filter], not [filter][channel]", by_channel
    )
    yield with_weight(words.CHANNELS, "with the input channels in reverse order", weight[:, ::-1])
    for shift in (1, -1):
        rolled = np.roll(weight, shift, axis=1)
        yield with_weight(
            words.CHANNELS, "with the weights of the neighbouring input channel", rolled
        )
    first = np.repeat(weight[:, :1], channels, axis=1)
    yield with_weight(words.CHANNELS, "with channel 0's weights for all channels", first)
    same = np.repeat(weight[:1], filters, axis=0)
    yield with_weight(words.FILTERS, "with filter 0's weights for all filters", same)


def _layouts(case: Case) -> Iterator[Mistake]:
    """Pictures read or written with another order of their axes."""
    images, channels, height, width = case.x.shape
    turned = case.x.reshape(images, channels, width, height).transpose(0, 1, 3, 2)
    yield Mistake(
        words.TRANSPOSED, "with y and x of the input swapped",
        case.sums(x=turned) + case.column,
    )  # fmt: skip
    last = case.x.reshape(images, height, width, channels).transpose(0, 3, 1, 2)
    yield Mistake(
        words.CHANNELS, "with the input read as [y][x][channel], not [channel][y][x]",
        case.sums(x=last) + case.column,
    )  # fmt: skip
    yield Mistake(
        words.CHANNELS, "with channel 0 of the input in place of all channels",
        case.sums(x=np.repeat(case.x[:, :1], channels, axis=1)) + case.column,
    )  # fmt: skip

    def output(*axes: int) -> Array:
        order = case.right.transpose(0, *axes)
        return np.ascontiguousarray(order).reshape(case.right.shape)

    yield Mistake(words.TRANSPOSED, "with y and x of the output swapped", output(1, 3, 2))
    yield Mistake(words.FILTERS, "written as [y][x][filter], not [filter][y][x]", output(2, 3, 1))


def _lengths(case: Case) -> Iterator[Mistake]:
    """Rows taken to be longer or shorter than they are."""
    height, width = case.x.shape[2:]
    sizes = {"the output's width": case.sizes[1], "the height": height,
             "the width with padding": width + 2 * case.layer.padding[1]}  # fmt: skip
    for name, length in sizes.items():
        if length != width:
            other = _resliced(case.x, (height, length), width)
            yield Mistake(
                words.ROW_LENGTH, f"if a row of the input is taken to be as long as {name}",
                case.sums(x=other) + case.column,
            )  # fmt: skip
    taps_y, taps_x = case.weight.shape[2:]
    if taps_y != taps_x:
        for rows, row in ((taps_y, taps_y), (taps_x, taps_x)):
            other = _resliced(case.weight, (rows, row), taps_x, taps_y)
            yield Mistake(
                words.ROW_LENGTH, f"if the kernel is taken to be {rows}x{row}",
                case.sums(other) + case.column,
            )  # fmt: skip


def _resliced(
    values: Array, plane: tuple[int, int], width: int, height: int | None = None
) -> Array:
    """The same memory read with planes of another size; NaN beyond its end."""
    rows = values.shape[2] if height is None else height
    first = np.arange(values.shape[0] * values.shape[1])[:, None, None] * (plane[0] * plane[1])
    place = first + np.arange(rows)[:, None] * plane[1] + np.arange(width)
    known = place < values.size
    read = np.where(known, values.reshape(-1)[np.where(known, place, 0)], np.nan)
    return read.reshape(*values.shape[:2], rows, width)


def _windows(case: Case) -> Iterator[Mistake]:
    """Windows that begin elsewhere."""
    layer = case.layer

    def moved(word: str, text: str, starts: tuple[Numbers, Numbers]) -> Mistake:
        return Mistake(word, text, case.sums(starts=starts) + case.column)

    (stride_y, stride_x), (pad_y, pad_x) = layer.stride, layer.padding[:2]
    if layer.stride != (1, 1):
        yield moved(words.STRIDE, "with a stride of 1", case.starts(stride=(1, 1)))
        for stride in ((stride_y, 1), (1, stride_x), (stride_y, stride_y), (stride_x, stride_x)):
            if stride not in (layer.stride, (1, 1)):
                text = f"with a stride of {stride[0]} in y and {stride[1]} in x"
                yield moved(words.STRIDE, text, case.starts(stride=stride))
    if stride_y != stride_x:
        swapped = case.starts(stride=(stride_x, stride_y))
        yield moved(words.STRIDE, "with the strides of y and x swapped", swapped)
    if any(layer.padding):
        yield moved(words.PADDING, "without the padding", case.starts(padding=(0, 0)))
        if pad_y and pad_x:
            yield moved(words.PADDING, "without the padding in y", case.starts(padding=(0, pad_x)))
            yield moved(words.PADDING, "without the padding in x", case.starts(padding=(pad_y, 0)))
    if pad_y != pad_x:
        yield moved(
            words.PADDING, "with the padding of y and x swapped",
            case.starts(padding=(pad_x, pad_y)),
        )  # fmt: skip
        for pad in (pad_y, pad_x):
            text = f"with a padding of {pad} in both y and x"
            yield moved(words.PADDING, text, case.starts(padding=(pad, pad)))
    for by_y in (-1, 0, 1):
        for by_x in (-1, 0, 1):
            if by_y or by_x:
                text = f"of windows that begin {_offset(by_y, by_x)}"
                starts = case.starts(padding=(pad_y - by_y, pad_x - by_x))
                yield moved(words.PADDING, text, starts)


def _offset(by_y: int, by_x: int) -> str:
    parts = []
    if by_y:
        parts.append(f"one row {'lower' if by_y > 0 else 'higher'}")
    if by_x:
        parts.append(f"one column further {'right' if by_x > 0 else 'left'}")
    return " and ".join(parts)


def _borders(case: Case) -> Iterator[Mistake]:
    """Taps outside the picture that are not left out, or some inside that are."""
    pad_y, pad_x = case.layer.padding[:2]
    if pad_y or pad_x:
        padded = (SIDES[:2] if pad_y else ()) + (SIDES[2:] if pad_x else ())
        choices: list[tuple[str, ...]] = [*((side,) for side in padded), padded]
        choices += [SIDES[:2], SIDES[2:]] if pad_y and pad_x else []
        for untested in choices:
            where = " and ".join(untested) if untested != SIDES else "any side"
            yield Mistake(
                words.BORDER_TEST,
                f"if taps beyond {where} of the picture are not left out: what lies next in memory "
                "is taken for zeros",
                case.sums(untested=frozenset(untested)) + case.column,
            )
    ends: tuple[tuple[str, tuple[slice | int, ...]], ...] = (
        ("first row", (slice(None), slice(None), 0)),
        ("last row", (slice(None), slice(None), -1)),
        ("first column", (slice(None), slice(None), slice(None), 0)),
        ("last column", (slice(None), slice(None), slice(None), -1)),
    )
    for name, where_zero in ends:
        less = case.x.copy()
        less[where_zero] = 0
        yield Mistake(
            words.PADDING, f"if the {name} of the picture is taken for padding",
            case.sums(x=less) + case.column,
        )  # fmt: skip


def _left_out(case: Case) -> Iterator[Mistake]:
    """Some of the products. What each channel and each tap brings is computed once."""
    channels, taps_y, taps_x = case.weight.shape[1:]
    if channels > 1:
        parts = _parts(case, 1)
        for channel in range(channels):
            yield Mistake(
                words.CHANNEL_MISSING, f"without input channel {channel}",
                case.right - parts[channel],
            )  # fmt: skip
        for first in range(1, channels - 1):
            yield Mistake(
                words.CHANNEL_MISSING, f"without the input channels from {first} on",
                case.right - parts[first:].sum(0),
            )  # fmt: skip
    for axis, name, count in ((2, "row", taps_y), (3, "column", taps_x)):
        if count > 1:
            parts = _parts(case, axis)
            for index in range(count):
                yield Mistake(
                    words.TAP_MISSING, f"without {name} {index} of the kernel",
                    case.right - parts[index],
                )  # fmt: skip
    for ky in range(taps_y):
        for kx in range(taps_x):
            yield Mistake(
                words.TAP_MISSING, f"without the tap at y {ky}, x {kx} of the kernel",
                case.right - _tap(case, ky, kx),
            )  # fmt: skip
    if taps_y * taps_x * channels > 1:
        yield Mistake(
            words.TAP_MISSING, "without the last tap of the last channel",
            case.right - _tap(case, taps_y - 1, taps_x - 1, channels - 1),
        )  # fmt: skip


def _parts(case: Case, axis: int) -> Array:
    """What each index along an axis of the weights brings to the sums."""
    parts = []
    for index in range(case.weight.shape[axis]):
        alone = np.zeros(case.weight.shape)
        np.moveaxis(alone, axis, 0)[index] = np.moveaxis(case.weight, axis, 0)[index]
        parts.append(case.sums(alone))
    return np.stack(parts)


def _tap(case: Case, ky: int, kx: int, channel: int | None = None) -> Array:
    channels = slice(None) if channel is None else slice(channel, channel + 1)
    first_y, first_x = case.starts()
    seen = case.taken(first_y + ky, first_x + kx)[:, channels]
    weight = case.weight[:, channels, ky, kx]
    brought: Array = np.einsum("fc,icyx->ifyx", weight, seen, optimize=True)
    return brought


def _others(case: Case) -> Iterator[Mistake]:
    yield Mistake(
        words.ACTIVATION, "with a ReLU behind it, which is a layer of its own",
        np.maximum(case.right, 0),
    )  # fmt: skip
    yield Mistake(
        words.ACTIVATION, "with a tanh behind it, which is a layer of its own",
        np.tanh(case.right),
    )  # fmt: skip
    yield Mistake(words.SIGN, "with the opposite sign", -case.right)
    yield Mistake(words.SIGN, "with products subtracted", case.column - case.sums())
    nothing = np.zeros_like(case.right)
    yield Mistake(words.NO_SUM, "if no product is added: the bias alone", nothing + case.column)
    yield Mistake(words.NO_SUM, "if nothing is added at all: zeros", nothing)
    for bits, name in ((11, "fp16 or TF32 (11 bits)"), (8, "bf16 (8 bits)")):
        yield Mistake(
            words.PRECISION, f"of operands rounded to {name}",
            case.sums(rounded(case.weight, bits), x=rounded(case.x, bits))
            + case.column,
        )  # fmt: skip


def rounded(values: Array, bits: int) -> Array:
    """To a mantissa of so many bits."""
    mantissa, exponent = np.frexp(values)
    fewer: Array = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
    return fewer
