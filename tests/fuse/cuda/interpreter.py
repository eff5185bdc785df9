"""Whole-network kernels, run in NumPy: word by word, lane by lane, as the CUDA text does it.

The interpreter knows what the building blocks do (`stack.cuh`, `dense.cuh`) and takes everything
else from the plan that the text is generated from: tables, packed weights, pictures, places in
shared memory. A mistake in any of these gives wrong numbers here as it would on a GPU. What becomes
of NaN and of numbers too large for a half depends on single instructions: those are read from the
text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.cut import Kernel
from tilewright.fuse.cuda.dense import Dense
from tilewright.fuse.cuda.emit import text
from tilewright.fuse.cuda.pictures import Picture, runs
from tilewright.fuse.cuda.stack import Phase, Stack
from tilewright.model.layers import Pixels
from tilewright.model.network import Network, Parameters

Array = NDArray[Any]
FLOAT = np.float32


def interpret(kernels: list[Kernel], network: Network, images: Array) -> Array:
    """The output of every image, in float32."""
    x: Array = images
    pixels = network.input
    for plan in kernels:
        if isinstance(plan, Stack):
            x = StackMachine(plan, network.parameters, pixels).run(x)
        else:
            x = run_dense(plan, network.parameters, x)
    return x.reshape(len(images), *network.output_shape)


def values(words: Array, per_word: int) -> Array:
    """Words as numbers; the last axis grows by what a word holds."""
    kind = np.float16 if per_word == 2 else np.float32
    return np.ascontiguousarray(words, np.uint32).view(kind).astype(FLOAT)


@cache
def body(function: str) -> str:
    """What a building block does, as text."""
    pattern = rf"^__device__[^\n]* {function}\([^{{]*\{{(.*?)(\n\}}|; \}})$"
    found = re.search(pattern, text("stack.cuh"), re.M | re.S)
    assert found, f"stack.cuh has no {function}"
    return found[1]


def maximum(function: str) -> Any:
    """The maximum that a building block takes: C's, which prefers any number to NaN, or PTX's."""
    if "fmaxf(" in body(function):
        return np.fmax
    assert "maximum(" in body(function)
    assert "max.NaN.f32" in body("maximum")
    return np.maximum


def rounded_halves(x: Array) -> Array:
    """As `pack` makes them of floats: what is too large is infinity, and that may become NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = x.astype(np.float16)
        if "fma.rn.f16x2" in body("pack"):  # times zero, plus itself
            found = found * np.float16(0) + found
    return found


def halves(low: Array, high: Array) -> Array:
    pair = rounded_halves(np.stack([low, high], -1))
    return np.ascontiguousarray(pair).view(np.uint32)[..., 0]


def activate(x: Array, kinds: tuple[str, ...]) -> Array:
    for kind in kinds:
        x = maximum("relu")(x, FLOAT(0)) if kind == "relu" else np.tanh(x)
    return x.astype(FLOAT)


def probabilities(scores: Array) -> Array:
    """Of rows of scores."""
    with np.errstate(invalid="ignore"):
        most = maximum("softmax").reduce(scores, -1, keepdims=True)
        powers = np.exp(scores - maximum("softmax")(most, np.finfo(FLOAT).min))
        return (powers / powers.sum(-1, keepdims=True)).astype(FLOAT)


class StackMachine:
    """A group's shared memory, and the phases that work on it. Images come one after the other."""

    def __init__(self, plan: Stack, parameters: Parameters, pixels: Pixels) -> None:
        self.plan, self.pixels = plan, pixels
        self.parameters = plan.parameters(parameters)
        self.tables, self.table_places = plan.tables
        self.own = np.zeros(plan.group_words, np.uint32)

    def run(self, images: Array) -> Array:
        plan = self.plan
        kind = FLOAT if plan.gives == "output" else np.uint32
        results = np.zeros((len(images), plan.result_words), kind)
        for image, result in zip(images, results, strict=True):
            for start in plan.strip.starts if plan.strip else (0,):
                self.item(image, result.view(np.uint32), start)
        return results

    def item(self, image: Array, result: Array, start: int) -> None:
        plan, strip = self.plan, self.plan.strip
        first = plan.phases[0].source
        row = strip.pictures[0].first(start) if strip else 0
        self.fill(image, first, row)
        self.border(0)
        offset = start // strip.unit * plan.phases[-1].sink.row if strip else 0
        for index, phase in enumerate(plan.phases):
            target = result[offset:]
            if phase.target is not None:
                target = self.own[plan.place(index + 1) :]
            source = self.own[plan.place(index) :]
            if phase.operation.kind == "sum":
                self.convolve(phase, source, target)
            elif phase.operation.kind == "each":
                self.each(phase, source, target)
            else:
                size = phase.operation.source[2]
                target[:size] = probabilities(source[:size].view(FLOAT)).view(np.uint32)
            if phase.target is not None:
                self.border(index + 1)
                self.blank(index + 1, start)

    def fill(self, image: Array, picture: Picture, first_row: int) -> None:
        strip, arithmetic = self.plan.strip, self.plan.arithmetic
        height = strip.source[1] if strip else picture.height
        if image.dtype == np.uint32:
            grid = image[: height * picture.width * picture.words]
            grid = grid.reshape(height, picture.width, picture.words)
        else:
            grid = image.reshape(picture.channels, height, picture.width).astype(FLOAT)
            if image.dtype == np.uint8:
                grid = (grid * FLOAT(self.pixels.scale) + FLOAT(self.pixels.shift)).astype(FLOAT)
            grid = grid.transpose(1, 2, 0)
        base = self.own[self.plan.place(0) + picture.padding[0] * picture.row :]
        for y in range(picture.height):
            inside = 0 <= first_row + y < height
            line = grid[first_row + y] if inside else np.zeros_like(grid[0])
            for x in range(picture.width):
                self._pixel(base[y * picture.row :], picture, x, line[x], arithmetic)

    def _pixel(
        self, row: Array, picture: Picture, x: int, pixel: Array, arithmetic: Arithmetic
    ) -> None:
        across = x + picture.padding[1]
        if picture.tight:
            place = across * picture.channels
            bits = rounded_halves(pixel).view(np.uint16)
            as_halves = row.view(np.uint16)
            as_halves[place : place + len(bits)] = bits
            for c, half in enumerate(bits):
                if place + c > 0:
                    as_halves[2 * picture.copy + place + c - 1] = half
            return
        at = across * picture.pitch
        if pixel.dtype == np.uint32:
            words = pixel
        elif picture.floats:
            words = pixel.view(np.uint32)
        elif arithmetic.per_word == 2:
            even = np.append(pixel, FLOAT(0))[: 2 * picture.words]
            words = halves(even[0::2], even[1::2])
        elif self.plan.phases[0].shares:
            words = arithmetic.operands(pixel)
        else:
            words = np.ascontiguousarray(pixel).view(np.uint32)
        row[at : at + len(words)] = words

    def border(self, index: int) -> None:
        """Zeros around a picture, as far as others were written there."""
        picture, dirty = self.plan.phases[index].source, self.plan.dirty(index)
        if not (self.plan.around(index) and dirty):
            return
        gap, after = self.plan.gaps(index)
        unit = 2 if picture.tight else 1
        memory = self.own[self.plan.place(index) :]
        row, top = picture.row * unit, picture.padding[0]
        step = picture.channels if picture.tight else picture.pitch
        for copy in range(2 if picture.copy else 1):
            at = memory[copy * picture.copy :]
            at = at.view(np.uint16) if picture.tight else at
            reach = max(0, (dirty - copy * picture.copy) * unit)
            left = max(0, picture.padding[1] * step - copy)
            right = (picture.padding[1] + picture.width) * step - copy
            at[: min(top * row, reach)] = 0
            below = (top + picture.height) * row
            at[below : max(below, min(below + top * row, reach))] = 0
            for y in range(max(0, min(picture.height, reach // row + 1 - top))):
                line = at[(top + y) * row : (top + y + 1) * row]
                line[:left] = 0
                line[right:] = 0
                for x in range(picture.width if gap else 0):
                    end = left + x * picture.pitch + picture.words
                    line[end : end + gap] = 0
            end = below + top * row
            at[end : max(end, min(end + after * unit, reach))] = 0

    def blank(self, index: int, start: int) -> None:
        """Zeros where a strip's picture has rows that the whole one has not."""
        if self.plan.strip is None:
            return
        picture, rows = self.plan.phases[index].source, self.plan.strip.pictures[index]
        memory = self.own[self.plan.place(index) :]
        for y in range(picture.height):
            if not 0 <= rows.first(start) + y < rows.height:
                memory[y * picture.row : (y + 1) * picture.row] = 0

    def convolve(self, phase: Phase, source: Array, target: Array) -> None:
        shares, operation = phase.shares, phase.operation
        assert shares
        arithmetic, name = self.plan.arithmetic, operation.names[0]
        taps_y, taps_x = operation.window.taps
        count, full, half = runs(arithmetic, phase.source, taps_x, shares.reads)
        at = self.plan.parameter_words[f"{name}.weight"]
        weights = self.parameters[at:]
        at = self.plan.parameter_words[f"{name}.bias"]
        bias = self.parameters[at : at + 8 * shares.all_columns].view(FLOAT)
        tables = self.tables[self.table_places[name] :]
        places = tables[shares.tile_count * 16 :]
        each_place = 8 if operation.pool else 16
        step = arithmetic.step
        for unit in range(shares.units):
            tile, split = unit % shares.tile_count, unit // shares.tile_count
            begins = tables[tile * 16 : tile * 16 + 16]
            first = split * shares.columns
            sums = np.zeros((shares.rows, 16, 8 * shares.columns), FLOAT)
            sums += bias[8 * first : 8 * (first + shares.columns)]
            offset = 0
            for run in range(count):
                for index in range(full):
                    words = run * phase.source.pitch + index * step
                    size = taps_y * shares.all_columns * 8 * step
                    block = weights[offset : offset + size]
                    self._step(shares, phase.source, source, begins, words, block, first, sums)
                    offset += size
            for run in range(count):
                for index in range(half):
                    words = run * phase.source.pitch + full * step + index * (step // 2)
                    size = taps_y * shares.all_columns * 8 * step // 2
                    block = weights[offset : offset + size]
                    self._step(shares, phase.source, source, begins, words, block, first, sums)
                    offset += size
            ends = places[tile * each_place : (tile + 1) * each_place]
            self._store(phase, sums, ends, 8 * first, target)

    def _step(
        self, shares: Any, picture: Picture, source: Array, begins: Array, words: int,
        block: Array, first: int, sums: Array,
    ) -> None:  # fmt: skip
        """The products of some words of every row of taps with every row of sums."""
        arithmetic, window = shares.arithmetic, shares.geometry.window
        taps_y, stride_y = window.taps[0], window.stride[0]
        b = operand_columns(block, taps_y, shares.all_columns, arithmetic)
        size = b.shape[1]
        per_word = arithmetic.per_word
        reach = begins[:, None] + words + np.arange(size // per_word)
        for j in range(shares.input_rows):
            a = values(source[reach + j * picture.row], per_word)
            for ky in range(taps_y):
                r, odd = divmod(j - ky, stride_y)
                if j < ky or odd or r >= shares.rows:
                    continue
                columns = b[ky][:, 8 * first : 8 * (first + shares.columns)]
                with np.errstate(over="ignore", invalid="ignore"):
                    sums[r] += (a @ columns).astype(FLOAT)

    def _store(self, phase: Phase, sums: Array, ends: Array, first: int, target: Array) -> None:
        operation = phase.operation
        if operation.pool:
            # Rows g and g+8 of an operand are neighbours; so are two rows of sums.
            windows = [sums[0::2, :8], sums[0::2, 8:], sums[1::2, :8], sums[1::2, 8:]]
            if operation.pool == "max":
                found = activate(maximum("pooled").reduce(windows), operation.before)
            else:
                found = sum(activate(each, operation.before) for each in windows) * FLOAT(0.25)
            found = activate(found, operation.after)
        else:
            found = activate(sums, operation.before + operation.after)
        for row, place in enumerate(ends):
            if place >= 0:
                for y in range(len(found)):
                    at = place + y * phase.sink.row
                    self._put(phase, target, at, first, found[y, row])

    def _put(self, phase: Phase, target: Array, place: int, channel: int, found: Array) -> None:
        found = found[: max(0, phase.operation.result[0] - channel)]
        put(phase.sink.to, phase.sink.plane, self.plan.arithmetic, target, place, channel, found)

    def each(self, phase: Phase, source: Array, target: Array) -> None:
        operation, picture = phase.operation, phase.source
        channels, out_y, out_x = operation.result
        (taps_y, taps_x), (stride_y, stride_x) = operation.window.taps, operation.window.stride
        per_word = 1 if picture.floats else self.plan.arithmetic.per_word

        def pixel(y: int, x: int) -> Array:
            at = y * picture.row + x * picture.pitch
            return values(source[at : at + picture.words], per_word)[:channels]

        for y in range(out_y):
            for x in range(out_x):
                window = [
                    pixel(y * stride_y + ky, x * stride_x + kx)
                    for ky in range(taps_y)
                    for kx in range(taps_x)
                ]
                if operation.pool == "average":
                    found = (np.sum(window, 0, FLOAT) / FLOAT(len(window))).astype(FLOAT)
                else:
                    found = maximum("each").reduce(window)
                place = phase.sink.place(0, 0) + y * phase.sink.row + x * phase.sink.pixel
                self._put(phase, target, place, 0, activate(found, operation.after))


def put(
    to: str, plane: int, arithmetic: Arithmetic, target: Array, place: int, channel: int,
    found: Array,
) -> None:  # fmt: skip
    """Channels of one position, from an even one on."""
    if to == "TW_TO_HALVES":
        even = np.append(found, FLOAT(0))[: (len(found) + 1) // 2 * 2]
        words = halves(even[0::2], even[1::2])
        target[place + channel // 2 : place + channel // 2 + len(words)] = words
    else:
        words = arithmetic.operands(found) if to == "TW_TO_OPERANDS" else found.view(np.uint32)
        places = place + (channel + np.arange(len(found))) * (
            1 if to == "TW_TO_OPERANDS" else plane
        )
        target[places] = words


def operand_columns(block: Array, rows: int, columns: int, arithmetic: Arithmetic) -> Array:
    """Packed weights as (row of taps, value of a step, filter), by the layout of lanes."""
    if not arithmetic.tensor:
        size = len(block) // (rows * columns * 8)
        lanes = block.view(FLOAT).reshape(rows, columns, 4, size, 2)
        plain = np.zeros((rows, size, columns * 8), FLOAT)
        for t in range(4):
            for part in range(2):
                plain[:, :, 2 * t + part :: 8] = lanes[:, :, t, :, part].transpose(0, 2, 1)
        return plain
    registers = len(block) // (rows * columns * 32)
    lanes = block.reshape(rows, columns, 32, registers)
    words = np.zeros((rows, 4 * registers, columns * 8), np.uint32)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for register in range(registers):
            words[:, t + 4 * register, g::8] = lanes[:, :, lane, register]
    # Words hold neighbouring values of the same filter.
    spread = values(np.ascontiguousarray(words.transpose(0, 2, 1)), arithmetic.per_word)
    return spread.transpose(0, 2, 1)


def run_dense(plan: Dense, parameters: Parameters, features: Array) -> Array:
    """Fully connected layers on many images at once, a block's after the other."""
    packed = plan.parameters(parameters)
    blocks = range(0, len(features), plan.images)
    return np.concatenate(
        [dense_block(plan, packed, features[first : first + plan.images]) for first in blocks]
    )


def dense_block(plan: Dense, packed: Array, features: Array) -> Array:
    """Rows of all layers but the first lie in two places of shared memory, used in turn."""
    arithmetic, count, last = plan.arithmetic, len(features), len(plan.layers)
    first_place, _ = plan.row_places
    shared = np.zeros(sum(plan.row_places), np.uint32)

    def rows_of(index: int) -> Array:
        """A view of what layer `index` reads."""
        at, row = first_place if index % 2 else 0, plan.row(index)
        return shared[at : at + plan.images * row].reshape(plan.images, row)[:count]

    for index, layer in enumerate(plan.layers):
        name, columns = layer.names[0], plan.all_columns(index)
        steps = plan.words // arithmetic.step if index == 0 else plan.steps(index)
        depth = steps * arithmetic.step
        at = plan.parameter_words[f"{name}.weight"]
        weights = operand_columns(packed[at : at + depth * columns * 8], steps, columns, arithmetic)
        at = plan.parameter_words[f"{name}.bias"]
        bias = packed[at : at + 8 * columns].view(FLOAT)
        words = features[:, :depth] if index == 0 else rows_of(index)[:, :depth]
        given = values(words, arithmetic.per_word)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = (given @ weights.reshape(given.shape[1], -1) + bias)[:, : layer.summed[0]]
        found = activate(sums, layer.before + layer.after)
        if index + 1 == last:
            break
        to = "TW_TO_HALVES" if arithmetic.per_word == 2 else "TW_TO_OPERANDS"
        target = rows_of(index + 1)
        if plan.emptied(index + 1):
            first, size = plan.gap(index + 1)
            target[:, first : first + size] = 0
        for row, line in zip(found, target, strict=True):
            put(to, 1, arithmetic, line, 0, 0, row)
    return probabilities(found) if plan.softmax else found
