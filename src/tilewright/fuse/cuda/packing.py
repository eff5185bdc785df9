"""Where the lanes of a warp read and write, as tables; weights in the order they read them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.pictures import Picture
from tilewright.fuse.cuda.sums import NARROW, TILE, Shares, Sink, offset, pairs_of, runs_of
from tilewright.model.layers import Convolution
from tilewright.model.network import Parameters, Stage

Table = NDArray[np.int32]


class Images(NamedTuple):
    """So many, each a row of an operand: words from one's input, and output, to the next one's."""

    number: int
    read: int
    written: int


def tables(
    shares: Shares,
    source: Picture,
    sink: Sink,
    added: Sink | None,
    images: Images | None = None,
) -> Table:
    """Where each row of each tile begins: words of the input, then of the output, then of what is
    added to the sums. The one sum of several `images` is a tile."""
    down, right = offset(source, shares.geometry.window)
    begins = [
        source.place(y + down, x + right) for tile in shares.tiles for y, x in shares.read(tile)
    ]
    if images:
        order = [*range(0, TILE, 2), *range(1, TILE, 2)]
        there = [row if row < images.number else 0 for row in order]
        end = sink.place(0, 0)
        ends = [end + row * images.written if row < images.number else -1 for row in order]
        return np.array([begins[0] + row * images.read for row in there] + ends, np.int32)
    ends = []
    for tile in shares.tiles:
        if shares.geometry.pool:
            ends += [
                -1 if top is None else sink.place(top[0] // 2, top[1] // 2) for top in tile[:8]
            ]
        else:
            ends += [-1 if top is None else sink.place(*top) for top in tile]
    if added is not None:
        ends += [0 if top is None else added.place(*top) for tile in shares.tiles for top in tile]
    return np.array(begins + ends, np.int32)


Packer = Callable[[NDArray[np.float32]], Words]


def pack_all(
    given: Parameters,
    places: Mapping[str, int],
    arithmetic: Arithmetic,
    packers: Mapping[str, Packer],
) -> Words:
    """A kernel's parameters where it looks for them, weights in the order that a layer reads."""
    packed = np.zeros(places["all"], np.uint32)
    for name, packer in packers.items():
        weight = given[f"{name}.weight"]
        arithmetic.check_weights(name, weight)
        words = packer(weight)
        at = places[f"{name}.weight"]
        packed[at : at + len(words)] = words
        bias = given.get(f"{name}.bias")
        if bias is not None:
            at = places[f"{name}.bias"]
            packed[at : at + len(bias)] = bias.view(np.uint32)
    return packed


def expanded(stage: Stage, weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """A convolution's weights as if it had neither groups nor taps that are apart: with zeros."""
    layer = stage.layer
    if not isinstance(layer, Convolution) or (layer.groups, layer.dilation) == (1, (1, 1)):
        return weight
    filters, channels, *_ = weight.shape
    full = np.zeros((filters, channels * layer.groups, *layer.extent), np.float32)
    each = filters // layer.groups
    for group in range(layer.groups):
        own = slice(group * each, (group + 1) * each)
        full[own, group * channels : (group + 1) * channels,
             :: layer.dilation[0], :: layer.dilation[1]] = weight[own]  # fmt: skip
    return full


def pack_channels(arithmetic: Arithmetic, weight: NDArray[np.float32]) -> Words:
    """Weights of filters that see one channel each, as floats: tap by tap, filters side by side."""
    filters, taps = len(weight), weight[0].size
    rounded = values_of(arithmetic, arithmetic.operands(_even(weight.reshape(filters, taps).T)))
    return _even(rounded).view(np.uint32).ravel()


def values_of(arithmetic: Arithmetic, words: Words) -> NDArray[np.float32]:
    """Operands as floats."""
    return words.view(np.float16 if arithmetic.per_word == 2 else np.float32).astype(np.float32)


def _even(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """An even number of columns."""
    return np.ascontiguousarray(np.pad(values, ((0, 0), (0, values.shape[1] % 2))))


def pack(
    shares: Shares, source: Picture, stage: Stage, warpgroup: bool, given: NDArray[np.float32]
) -> Words:
    """Weights in the order the lanes of a warp read them, step by step; or as matrices that tensor
    cores read, if it is a `warpgroup` that computes."""
    weight = expanded(stage, given)
    arithmetic, geometry = shares.arithmetic, shares.geometry
    channels = geometry.source[0]
    taps_y, taps_x = geometry.window.taps
    filters = shares.all_columns * 8
    full_weight = np.zeros((filters, channels, taps_y, taps_x), np.float32)
    full_weight[: shares.filters] = weight.reshape(-1, channels, taps_y, taps_x)
    if shares.narrow:
        # Lane t has the column's t-th filter, and zeros.
        full_weight[-8:] = full_weight[-8:].reshape(2, NARROW, channels, taps_y, taps_x).transpose(
            1, 0, 2, 3, 4).reshape(8, channels, taps_y, taps_x)  # fmt: skip
    count, full, half = runs_of(shares, source)
    per_word = arithmetic.per_word

    def gathered(run: int, first: int, size: int) -> Words:
        """Words of a step, for (filter, row of taps, word)."""
        values = np.zeros((filters, taps_y, size, per_word), np.float32)
        for word in range(size):
            for part in range(per_word):
                kx, channel = _term(source, per_word, run, first + word, part)
                if kx < taps_x and channel < channels:
                    values[:, :, word, part] = full_weight[:, channel, :, kx]
        return arithmetic.operands(values).reshape(filters, taps_y, size)

    blocks: list[Words] = []
    step = arithmetic.step
    pairs = pairs_of(shares, source)
    for run in range(count):
        for index in range(full):
            words = gathered(run, index * step, step)
            if pairs:  # lane t has words 2t and 2t+1 of a row, where it would have t and t+4
                words = words.reshape(filters, taps_y, 4, 2).swapaxes(2, 3).reshape(words.shape)
            made = matrices(words) if warpgroup else _in_lanes(shares, words)
            blocks.append(made)
    for run in range(count):
        for index in range(half):
            first = full * step + index * (step // 2)
            blocks.append(_in_lanes(shares, gathered(run, first, step // 2)))
    return np.concatenate(blocks)


def _in_lanes(shares: Shares, words: Words) -> Words:
    return fragments(words, shares.arithmetic.tensor, shares.twice)


def _term(source: Picture, per_word: int, run: int, word: int, part: int) -> tuple[int, int]:
    """The tap along x and the channel that lie in a part of a word of a run."""
    if source.tight:
        return divmod(word * per_word + part, source.channels)
    if source.contiguous:
        pixel, inside = divmod(word, source.words)
        return pixel, inside * per_word + part
    # Words after a pixel's last belong to no channel.
    return run, word * per_word + part


def in_pieces(words: Words) -> Words:
    """Rows of words, a multiple of 32 each, as (row, chunk, piece, word): pieces of 16 bytes change
    places in a chunk of 8 as tensor cores look for them there, piece p of a row to p ^ row % 8."""
    split = words.reshape(len(words), -1, 8, 4)
    found = np.empty_like(split)
    for row, piece in itertools.product(range(8), repeat=2):
        found[row::8, :, piece ^ row] = split[row::8, :, piece]
    return found


def matrices(words: Words) -> Words:
    """(filter, row of taps, word) as matrices of 8 filters by 4 words, for each row of taps."""
    filters, taps_y, size = words.shape
    split = words.reshape(filters // 8, 8, taps_y, size // 4, 4)
    return split.transpose(2, 0, 3, 1, 4).ravel()


def fragments(words: Words, tensor: bool, twice: bool = False) -> Words:
    """(filter, row of taps, word) in the order of lanes, for each row of taps and 8 filters."""
    filters, taps_y, size = words.shape
    if tensor:
        # Lane 4g+t has filter g's words t and t+4, or the t-th.
        split = words.reshape(filters // 8, 8, taps_y, size // 4, 4)
        return split.transpose(2, 0, 1, 4, 3).ravel()
    # Lane t has filters 2t and 2t+1, word by word; or one filter's words and the other's, so that a
    # word is in the same bank of registers as the picture's.
    split = words.reshape(filters // 8, 4, 2, taps_y, size)
    return split.transpose((3, 0, 1, 2, 4) if twice else (3, 0, 1, 4, 2)).ravel()
