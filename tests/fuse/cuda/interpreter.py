"""Whole-network kernels, run in NumPy: word by word, thread by thread, as the CUDA text does it.

The same list of steps is run that the text is printed from (`Program`): the interpreter
knows what each building block of the kernels does with its arguments, and which thread does it. A
wrong address, width or table gives wrong numbers here as it would on a GPU; a barrier too few, or a
fetch that was not waited for, is a `Mistake` (`memory`). One group of a block is run, on one image
after the other; threads of other groups fetch their share of the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.dense_interpreter import run_dense
from tests.fuse.cuda.group import Group
from tests.fuse.cuda.instructions import (
    FLOAT,
    activate,
    halves,
    maximum,
    operand_columns,
    probabilities,
    products,
    rounded_halves,
    values,
)
from tests.fuse.cuda.memory import EVERYBODY, POISON, Memory, Mistake, part
from tests.fuse.cuda.panels_interpreter import PROCESSORS, in_panels, run_panels
from tests.fuse.cuda.patches_interpreter import run_patches
from tests.fuse.cuda.tiles_interpreter import run_tiles
from tilewright.fuse.cuda.arriving import Arriving
from tilewright.fuse.cuda.behind import Behind
from tilewright.fuse.cuda.cut import Kernel
from tilewright.fuse.cuda.panels import Panels
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.pools import Pools
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Source, Stack
from tilewright.fuse.cuda.steps import (
    Arrived,
    Barrier,
    Blank,
    Border,
    Channels,
    Clear,
    Committed,
    Convolve,
    Each,
    FetchImage,
    FetchParameters,
    Fill,
    Given,
    Join,
    Outside,
    Part,
    Program,
    Softmax,
    Step,
    Target,
    Together,
    Windows,
)
from tilewright.fuse.cuda.steps_dense import dense_program
from tilewright.fuse.cuda.steps_patches import patches_program
from tilewright.fuse.cuda.steps_tiles import tiles_program
from tilewright.fuse.cuda.tiles import Tiles
from tilewright.model.layers import AveragePool, Pixels
from tilewright.model.network import Network

Array = NDArray[Any]
SOURCES: dict[str, Source] = {"uint8": "uint8", "float32": "float32", "uint32": "words"}


def interpret(
    kernels: Sequence[Kernel], network: Network, images: Array, shares: bool = True
) -> Array:
    """The output of every image, in float32; sums may be shared where images are few, or not."""
    made = {-1: images}
    x = images
    for plan in kernels:
        taken = [made[each] for each in plan.inputs]
        if isinstance(plan, Stack):
            steps = program(plan, network.input, SOURCES[str(taken[0].dtype)])
            x = run_program(steps, plan, network, *taken)
        elif isinstance(plan, Panels):
            given, count = network.parameters, len(images)
            x = run_panels(plan, given, network.input, taken[0], count, shares)
        elif isinstance(plan, Tiles):
            x = _spread(plan, network, taken, len(images), shares)
        elif isinstance(plan, Behind):
            x = run_behind(plan, taken)
        elif isinstance(plan, Pools):
            x = run_pools(plan, taken[0])
        elif isinstance(plan, Arriving):
            x = run_arriving(plan, taken[0], network.input)
        elif isinstance(plan, Patches):
            x = run_patches(patches_program(plan), plan.parameters(network.parameters), *taken)
        else:
            x = run_dense(dense_program(plan), plan.parameters(network.parameters), taken[0])
        made[plan.last] = x
    return x.reshape(len(images), *network.output_shape)


def run_behind(plan: Behind, taken: Sequence[Array]) -> Array:
    """Words of pixels behind each other, as the next kernel reads them."""
    count = len(taken[0])
    pixels = [each.view(np.uint32).reshape(count, plan.pixels, -1) for each in taken]
    words = np.concatenate(pixels, -1)
    return _passed_on(plan, values(words, plan.arithmetic.per_word))


def run_arriving(plan: Arriving, given: Array, pixels: Pixels) -> Array:
    """Pixels' values as words, a pixel's channels behind each other."""
    channels = plan.operation.source[0]
    values_of = given.astype(FLOAT)
    if given.dtype == np.uint8:
        scale, shift = (np.reshape(np.array(each, FLOAT), (-1, 1, 1))
                        for each in (pixels.scales, pixels.shifts))  # fmt: skip
        exact = given.astype(np.float64) * scale.astype(np.float64) + shift.astype(np.float64)
        values_of = exact.astype(FLOAT)
    flat = values_of.reshape(len(given), channels, -1).transpose(0, 2, 1)
    empty = np.zeros((*flat.shape[:2], -channels % plan.arithmetic.per_word), FLOAT)
    return _passed_on(plan, np.concatenate([flat, empty], -1))


def run_pools(plan: Pools, given: Array) -> Array:
    """A pooling's results as words: columns of all windows, one after another."""
    count, (_, height, width) = len(given), plan.operation.source
    pixels = values(
        given.view(np.uint32).reshape(count, height, width, -1), plan.arithmetic.per_word
    )
    layer, size = plan.layer, plan.operation.result[1:]
    average = isinstance(layer, AveragePool)
    nothing = np.full((count, *size, pixels.shape[-1]), 0 if average else -np.inf, FLOAT)
    found = own = nothing
    y, x = (np.arange(size[axis]) * layer.stride[axis] - layer.padding[axis] for axis in range(2))
    places = np.zeros(size, int)
    for kx, ky in np.ndindex(*layer.size[::-1]):
        own = own if ky else nothing
        rows, columns = (y + ky)[:, None], x + kx
        some = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        next_ = pixels[:, rows.clip(0, height - 1), columns.clip(0, width - 1)]
        with np.errstate(over="ignore", invalid="ignore"):
            join = np.add if average else maximum("joined")
            own = np.where(some[..., None], join(own, next_), own)
            found = join(found, own) if ky == layer.size[0] - 1 else found
        places += some
    if average:
        assert isinstance(layer, AveragePool)
        if layer.count_padding:
            ends = (np.minimum(first + layer.size[axis], side + layer.padding[2 + axis]) - first
                    for axis, (first, side) in enumerate(((y, height), (x, width))))  # fmt: skip
            places = np.multiply.outer(*ends)
        found = found / places[..., None].astype(FLOAT)
    return _passed_on(plan, found)


def _passed_on(plan: Passing, found: Array) -> Array:
    """Values as the next kernel reads them, after activations."""
    count, made = len(found), activate(found, plan.operation.after)
    if plan.to == "TW_TO_HALVES":
        return np.ascontiguousarray(rounded_halves(made)).view(np.uint32).reshape(count, -1)
    if plan.to == "TW_TO_OPERANDS":
        return plan.arithmetic.operands(made[..., None]).reshape(count, -1)
    return np.ascontiguousarray(made, FLOAT).view(np.uint32).reshape(count, -1)


def _spread(
    plan: Tiles, network: Network, taken: Sequence[Array], images: int, shares: bool
) -> Array:
    made = tiles_program(plan, network.input, SOURCES[str(taken[0].dtype)])
    parts = plan.parts(images, PROCESSORS) if shares else 1
    blocks = plan.row_blocks(images), plan.column_blocks, parts
    x = run_tiles(made, plan.parameters(network.parameters), *taken[:1], blocks, *taken[1:])
    if plan.gives == "output" or plan.softmax is not None:
        return x.view(FLOAT)
    return np.where(x == POISON, 0, x).astype(np.uint32)  # memory is emptied first, as above


def run_program(
    made: Program, plan: Stack, network: Network, images: Array, *others: Array
) -> Array:
    """A kernel's steps, and what it is given besides: the plan's tables and packed parameters."""
    machine = Machine(made, plan.parameters(network.parameters), plan.tables[0])
    machine.others = [np.ascontiguousarray(each).reshape(len(each), -1) for each in others]
    if plan.gives == "output":
        return machine.run(images, POISON).view(FLOAT)
    # Between kernels, words after an image's last must be numbers: memory is emptied first.
    rows = machine.run(images, 0)
    return in_panels(rows) if made.panels else rows


def named(step: Step | Blank) -> str:
    """As the list of steps has it: `Convolve 1`."""
    index = getattr(step, "index", None)
    return type(step).__name__ if index is None else f"{type(step).__name__} {index}"


def unfolded(sums: Array) -> list[Array]:
    """Of columns that hold four positions of filters, the sums of each position, by filters."""
    fours = sums.shape[-1] // 32
    two_each = sums[..., : 32 * fours].reshape(*sums.shape[:-1], fours, 4, 8)
    one_each = sums[..., 32 * fours :].reshape(*sums.shape[:-1], -1, 4, 2)
    return [
        np.concatenate(
            [
                two_each[..., position, :].reshape(*sums.shape[:-1], -1),
                *(
                    one_each[..., row, :, position % 2]
                    for row in range(position // 2, one_each.shape[-3], 2)
                ),
            ],
            -1,
        )
        for position in range(4)
    ]


class Machine(Group):
    """A group that runs steps."""

    def run(self, images: Array, found_there: int) -> Array:
        """Words of every image's result, in memory that was filled with some word."""
        made = self.made
        self.images = np.ascontiguousarray(images).reshape(len(images), -1)
        if made.source != "words" and self.images.shape[1] != made.image_size:
            raise Mistake(f"images of {self.images.shape[1]} values are not {made.image_size}")
        results = [Memory("a result", made.result_words, found_there) for _ in images]
        self.results, self.turn, self.visible = results, 0, False
        self.out, self.offset = results[0], 0
        self.steps(made.once, "once")
        for self.item, self.out in enumerate(results):
            for self.start in made.strip.starts if made.strip else (0,):
                unit = made.strip.unit if made.strip else 1
                self.offset = self.start // unit * made.result_row
                self.steps(made.item, "item")
                self.out.meet(made.threads)
        return np.stack([each.words for each in results])

    def steps(self, steps: Sequence[Step | Blank], of: str) -> None:
        """`of`: what they are called in the program."""
        for number, step in enumerate(steps):
            name = f"{of}[{number}]"
            for memory in (self.shared, self.out):
                memory.begin(f"{name} {named(step)}")
            self.step(step, name)

    def step(self, step: Step | Blank, name: str) -> None:
        match step:
            case Clear():
                i = np.arange(step.words)
                self.shared.write(self.own + i, np.uint32(0), i % step.threads)
            case FetchParameters():
                self.fetch(step.at, step.bytes, step.threads, self.parameters[step.at :])
            case Committed():
                self.shared.commit()
            case FetchImage():
                item = self.item + step.ahead
                if item < len(self.images):
                    if self.made.image_size % (4 if step.bytes % 16 else 16):
                        raise Mistake("images do not begin where they are fetched from")
                    image = self.images[item].view(np.uint32)
                    self.fetch(self.own + step.at, step.bytes, step.threads, image)
            case Arrived():
                late = any(isinstance(each, FetchParameters) and each.at for each in self.made.once)
                if step.ahead != (late and not step.but_last):
                    raise Mistake("parameters ahead are not waited for, or there are none")
                self.shared.arrive(int(step.but_last))
                self.visible |= step.matrices
            case Barrier():
                size = self.made.threads if step.block else self.made.group_threads
                if step.threads != size:
                    raise Mistake(f"a barrier of {step.threads} threads where {size} come")
                self.shared.meet(size)
            case Fill():
                self.fill(step)
            case Border():
                if step.needed:
                    self.border(step)
            case Blank():
                i = np.arange(step.height * step.row)
                source = step.rows.first(self.start) + i // step.row
                i = i[(source < 0) | (source >= step.source_height)]
                self.shared.write(self.own + step.at + i, np.uint32(0), i % step.threads)
            case Outside():
                if step.happens(self.start):
                    self.steps(step.steps, f"{name}.steps")
            case Convolve():
                self.convolve(step)
            case Channels():
                self.channels(step)
            case Each():
                self.each(step)
            case Windows():
                self.windows(step)
            case Join():
                self.join(step)
            case Softmax():
                self.softmax(step)
            case Together():
                self.turn += 1
                if self.turn == step.most or self.item + 1 == len(self.images):
                    self.steps(step.steps, f"{name}.steps")
                    self.turn = 0
            case unknown:
                assert_never(unknown)

    def fetch(self, to: int, size: int, threads: int, source: Array) -> None:
        if size % 4:
            raise Mistake(f"{size} bytes are not fetched 4 at a time")
        words = 1 if size % 16 else 4
        i = np.arange(size // (4 * words))
        self.shared.fetch(to + words * i, part(source, 0, words * len(i)), i % threads, words)

    # ---- sums -------------------------------------------------------------------------------

    def convolve(self, step: Convolve) -> None:
        size = self.arithmetic.step
        # Where in a row of taps each step begins, and how many words it takes.
        begins = [
            (run * step.pitch + index * size, size)
            for run in range(step.runs)
            for index in range(step.full)
        ] + [
            (run * step.pitch + step.full * size + index * (size // 2), size // 2)
            for run in range(step.runs)
            for index in range(step.half)
        ]
        reach = np.concatenate([begin + np.arange(words) for begin, words in begins])
        columns, bias = self.weights(step), self.bias(step)
        weighted = columns.any((0, 2))  # steps read words after the last of a run, too
        for warp in range(step.warps):
            for unit in range(warp, step.units, step.warps):
                split, tile = self.unit(step, unit)
                first = 8 * split * step.columns
                last = first + 8 * step.columns
                tops = part(self.tables, step.tables + 16 * tile, 16)
                rows = self.read_rows(step, tops, begins, reach, warp)
                out = self.left_out(step, tile, rows)[:, self.places(step, tile) >= 0]
                if out[..., weighted].any():
                    raise Mistake("rows are left out that are not zeros")
                sums = np.zeros((step.rows, 16, last - first)) + bias[first:last]
                with np.errstate(over="ignore", invalid="ignore"):
                    for ky in range(step.taps_y):
                        end = ky + (step.rows - 1) * step.stride_y + 1
                        taken = rows[ky : end : step.stride_y]
                        sums += products(taken, columns[ky][:, first:last], self.arithmetic)
                    sums = sums.astype(FLOAT)
                self.store(step, sums, tile, split * step.columns, warp)

    @staticmethod
    def unit(step: Convolve, unit: int) -> tuple[int, int]:
        """Its share of the filters, and its positions."""
        if not step.beside:
            return divmod(unit, step.tiles)
        alike = 4 if step.warpgroup else 1  # warps that have the same filters
        block, own = divmod(unit, alike)
        tile, split = divmod(block, step.units // step.tiles)
        return split, tile * alike + own

    def left_out(self, step: Convolve, tile: int, rows: Array) -> Array:
        """Rows of input that a tile at the top or at the bottom does not read."""
        if step.above and tile < step.tops:
            return rows[: step.above]
        below = step.below if tile >= step.bottoms else 0
        return rows[len(rows) - below :]

    def places(self, step: Convolve, tile: int) -> Array:
        """Where results of the 16 rows of an operand go; below zero: nowhere. Of neighbours that
        are pooled both have the same."""
        positions = 8 if step.pool and not step.folded else 16
        at = step.tables + 16 * step.tiles + tile * positions
        return np.resize(part(self.tables, at, positions), 16)

    def weights(self, step: Convolve) -> Array:
        """(Row of taps, value of the sum, filter), from the order in which lanes read them."""
        size, parts, at = self.arithmetic.step, [], step.weights
        for words, count in ((size, step.runs * step.full), (size // 2, step.runs * step.half)):
            if count == 0:
                continue
            length = count * step.taps_y * step.all_columns * 8 * words
            width = words // 4 if self.arithmetic.tensor else 2 * words  # of a lane
            if at % width:
                raise Mistake(f"{width} words of weights at once from word {at}")
            if step.weights_shared:
                block = self.shared.read(np.arange(at, at + length), EVERYBODY)
            else:
                block = part(self.parameters, at, length)
            if step.warpgroup:
                block = self.lanes_of_matrices(step, block)
            if step.twice:  # a lane's filters, one after the other, where it would have its words
                block = block.reshape(-1, 2, words).swapaxes(1, 2).ravel()
            found = operand_columns(block, count * step.taps_y, step.all_columns, self.arithmetic)
            if step.pairs and words == size:
                # The lane that has words 2t and 2t+1 multiplies them by what lie as t and t+4.
                split = found.reshape(len(found), 2, 4, self.arithmetic.per_word, -1)
                found = split.swapaxes(1, 2).reshape(found.shape)
            if step.narrow:
                # Lane t has the last column's t-th filter, and zeros.
                by_lanes = found[..., -8:].reshape(*found.shape[:-1], 4, 2)
                found[..., -8:] = by_lanes.swapaxes(-1, -2).reshape(*found.shape[:-1], 8)
            found = found.reshape(count, step.taps_y, -1, 8 * step.all_columns)
            parts.append(np.concatenate(found, 1).astype(np.float64))
            at += length
        return np.concatenate(parts, 1)

    def lanes_of_matrices(self, step: Convolve, block: Array) -> Array:
        """Matrices of 8 filters by 4 words that tensor cores read, as lanes would have them."""
        uneven = step.units % step.warps or step.warps % 4 or (self.made.group_threads % 128)
        split = step.columns < step.all_columns and step.tiles % 4
        if uneven or split or step.half or step.stride_y > 1 or step.weights % 4:
            raise Mistake("four warps do not have the same to do")
        if not (self.visible and step.weights_shared):
            raise Mistake("tensor cores do not see the weights")
        return block.reshape(-1, 2, 32).transpose(0, 2, 1).ravel()

    def bias(self, step: Convolve) -> Array:
        at = np.arange(step.bias, step.bias + 8 * step.all_columns, 2)
        return self.shared.read(at, EVERYBODY, width=2).ravel().view(FLOAT)

    def read_rows(
        self, step: Convolve, tops: Array, begins: list[tuple[int, int]], reach: Array, warp: int
    ) -> Array:
        """What a unit reads: (row of the input, row of an operand, value), each word once."""
        row = np.arange(16)
        lines = self.own + step.at + np.arange(step.input_rows)[:, None] * step.row + tops
        if self.arithmetic.tensor:
            # Lane 4g+t reads words t and t+4 of rows g and g+8, or 2t and 2t+1.
            pairs = [step.pairs and size == 8 for _, size in begins for _ in range(size)]
            word = np.concatenate([np.arange(size) for _, size in begins])
            own = np.where(pairs, word // 2, word % 4)
            if ((lines[..., None] + reach)[..., pairs][..., ::2] % 2).any():
                raise Mistake("two words at once from an odd one")
            lanes = 32 * warp + 4 * (row % 8)[:, None] + own
            words = self.shared.read(lines[..., None] + reach, lanes)
        else:
            for begin, size in begins:
                if size == 2 and ((lines + begin) % 2).any():
                    raise Mistake("two words at once from an odd one")
            words = self.shared.read(lines[..., None] + reach, EVERYBODY)
        if step.rounds:
            words = self.arithmetic.operands(words.view(FLOAT))
        return values(words, self.arithmetic.per_word).astype(np.float64)

    def store(self, step: Convolve, sums: Array, tile: int, column: int, warp: int) -> None:
        """The results of a unit: (row, row of an operand, filter)."""
        places = self.places(step, tile)[: 8 if step.pool and not step.folded else 16]
        if step.pool:
            # Rows g and g+8 of an operand are neighbours; so are two rows of sums.
            windows = [sums[0::2, :8], sums[0::2, 8:], sums[1::2, :8], sums[1::2, 8:]]
            if step.folded:
                windows = unfolded(sums)
            if step.pool == "max":
                found = activate(maximum("pooled").reduce(windows), step.before)
            elif step.pool == "max of each":
                found = maximum("pooled").reduce([activate(x, step.before) for x in windows])
            else:
                found = sum(activate(each, step.before) for each in windows) * FLOAT(0.25)
            found = activate(found, step.activations)
        elif step.added:
            with np.errstate(over="ignore", invalid="ignore"):
                more = self.added(step, tile, column, warp)
                found = activate(activate(sums, step.before) + more, step.activations)
        else:
            found = activate(sums, step.activations)
        # Filters of which a lane has two, and those of which it has one.
        pairs = 8 * (step.columns // 4 if step.folded else step.columns - step.narrow)
        found, single = found[..., :pairs], found[..., pairs : pairs + 4]
        first = (2 if step.folded else 8) * column
        lanes = (
            32 * warp + 4 * (np.arange(len(places)) % 8)[:, None] + np.arange(4 * step.columns) % 4
        )
        at = places[:, None] + np.arange(len(found))[:, None, None] * step.target.out_row
        low, high = found[..., 0::2], found[..., 1::2]
        channel = first + 2 * np.arange(low.shape[-1])
        kept = places >= 0
        at, low, high = at[:, kept], low[:, kept], high[:, kept]
        if single.size:
            last = first + pairs + np.arange(4)
            self.put_one(step.target, at, last, single[:, kept], lanes[kept][:, :4])
        lanes = lanes[:, : low.shape[-1]]
        if step.target.wide:
            # Two columns at once where there are two, with all their filters.
            most = (step.target.filters - first) // 8 // 2 * 2
            count = 4 * min(step.columns // 2 * 2, most) if step.target.wide == 2 else len(channel)
            some, rest = slice(count), slice(count, None)
            self.put_wide(step.target, at, channel[some], low[..., some], high[..., some],
                          lanes[kept][:, some])  # fmt: skip
            self.put(step.target, at, channel[rest], low[..., rest], high[..., rest],
                     lanes[kept][:, rest])  # fmt: skip
        else:
            self.put(step.target, at, channel, low, high, lanes[kept])

    def added(self, step: Convolve, tile: int, column: int, warp: int) -> Array:
        """What is added to the sums of a unit: (row, row of an operand, filter)."""
        assert step.added
        row = np.arange(16)
        places = part(self.tables, step.tables + 32 * step.tiles + 16 * tile, 16)
        ends = part(self.tables, step.tables + 16 * step.tiles + 16 * tile, 16)
        filters = 8 * column + np.arange(8 * step.columns)
        at = places + np.arange(step.rows)[:, None] * step.added.row
        at, filters = np.broadcast_arrays(at[..., None], filters)
        own = np.arange(8 * step.columns) // 2 % 4
        if step.narrow:
            own[-8:] = np.arange(8) % 4
        lanes = 32 * warp + 4 * (row % 8)[:, None] + own
        lanes = np.broadcast_to(lanes, at.shape)
        there = filters < step.target.filters
        # Columns that are no picture's read the first one's, and are not kept.
        there = there & (ends >= 0)[:, None]
        found = np.zeros(at.shape, FLOAT)
        word = at[there] + filters[there] // self.arithmetic.per_word
        if step.added.given is None:
            assert step.added.at is not None
            words = self.shared.read(self.own + step.added.at + word, lanes[there])
        else:
            image = self.given(step.added.given.number)
            words = part(image, 0, len(image))[word + self.start * step.added.row]
        both = values(words[:, None], self.arithmetic.per_word)
        side = filters[there] % self.arithmetic.per_word
        found[there] = np.take_along_axis(both, side[:, None], 1)[:, 0]
        return found

    # ---- results ----------------------------------------------------------------------------

    def memory(self, at: int | None) -> tuple[Memory, int]:
        return (self.out, self.offset) if at is None else (self.shared, self.own + at)

    def place(self, target: Target) -> tuple[Memory, int]:
        memory, base = self.memory(target.at)
        return memory, base + self.turn * target.apart

    def put(
        self, target: Target, at: Array, channel: Array, low: Array, high: Array, lanes: Array
    ) -> None:
        """Two neighbouring channels of positions."""
        memory, base = self.place(target)
        at, channel, lanes = np.broadcast_arrays(base + at, channel, lanes)[:3]
        at, lanes = np.broadcast_to(at, low.shape), np.broadcast_to(lanes, low.shape)
        channel = np.broadcast_to(channel, low.shape)
        some = channel < target.filters
        at, channel, lanes, low, high = (each[some] for each in (at, channel, lanes, low, high))
        if target.to == "TW_TO_HALVES":
            memory.write(at + channel // 2, halves(low, high), lanes)
            return
        if target.to == "TW_TO_OPERANDS":
            low, high = self.arithmetic.operands(low), self.arithmetic.operands(high)
        else:
            low, high = low.view(np.uint32), high.view(np.uint32)
        if target.paired:
            memory.write(at + channel, np.stack([low, high], -1), lanes, width=2)
            return
        plane = target.plane if target.to == "TW_TO_FLOATS" else 1
        memory.write(at + channel * plane, low, lanes)
        both = channel + 1 < target.filters
        memory.write((at + (channel + 1) * plane)[both], high[both], lanes[both])

    def put_one(
        self, target: Target, at: Array, channel: Array, value: Array, lanes: Array
    ) -> None:
        """Single channels of positions."""
        memory, base = self.place(target)
        if target.to == "TW_TO_HALVES":  # of a last word both are written
            some = np.broadcast_to(channel < -(-target.filters // 2) * 2, value.shape)
            half, lanes = 2 * (base + at) + channel, np.broadcast_to(lanes, value.shape)
            memory.write_halves(
                half[some], rounded_halves(value).view(np.uint16)[some], lanes[some]
            )
            return
        some = np.broadcast_to(channel < target.filters, value.shape)
        floats = target.to == "TW_TO_FLOATS"
        at = base + at + channel * (target.plane if floats else 1)
        words = value.astype(FLOAT).view(np.uint32) if floats else self.arithmetic.operands(value)
        memory.write(at[some], words[some], np.broadcast_to(lanes, value.shape)[some])

    def put_wide(
        self, target: Target, at: Array, channel: Array, low: Array, high: Array, lanes: Array
    ) -> None:
        """Four columns at once: lanes 4g to 4g+3 exchange words until each has four in a row; or
        two, of which the even lanes get the first, the odd ones the second."""
        memory, base = self.place(target)
        packed = halves(low, high)
        if target.wide == 2:
            t = np.arange(4)
            for n in range(0, packed.shape[-1], 8):
                one, two = packed[..., n : n + 4], packed[..., n + 4 : n + 8]
                got = np.where(t % 2, one, two)[..., t ^ 1]
                words = np.where(t % 2, [got, two], [one, got])
                to = base + at + channel[n] // 2 + 4 * (t % 2) + t - t % 2
                memory.write(to, np.moveaxis(words, 0, -1), np.broadcast_to(lanes[:, :4], to.shape),
                             width=2)  # fmt: skip
            return
        for n in range(0, packed.shape[-1], 16):
            # (..., lane t, its word of column n+k)
            words = packed[..., n : n + 16].reshape(*packed.shape[:-1], 4, 4).swapaxes(-1, -2)
            words = words.copy()
            for reach in (1, 2):
                sent = words.copy()
                for t in range(4):
                    for k in range(4):
                        if not k & reach:
                            # A lane keeps what is on its side, and gets what its partner sent.
                            mine = k if t & reach else k | reach
                            theirs = k | reach if t & reach else k
                            words[..., t, mine] = sent[..., t ^ reach, theirs]
            to = base + at + channel[n] // 2 + 4 * np.arange(4)
            memory.write(to, words, np.broadcast_to(lanes[:, :4], to.shape), width=4)

    # ---- everything else --------------------------------------------------------------------

    def each(self, step: Each) -> None:
        thread, channel, y, x, place = self.outputs(step)
        # Of a word with two halves the second is read, too, where there is no such channel.
        halves_too = self.arithmetic.per_word == 2 and not step.floats
        both = (channel + 1 < step.target.filters) | halves_too
        window = []
        for ky in range(step.taps_y):
            for kx in range(step.taps_x):
                pixel = (y * step.stride_y + ky) * step.row + (x * step.stride_x + kx) * step.pitch
                at = step.at + pixel
                low = self.value(at, channel, thread, step.floats, step.given)
                high = np.zeros_like(low)
                high[both] = self.value(
                    at[both], channel[both] + 1, thread[both], step.floats, step.given
                )
                window.append(np.stack([low, high], -1))
        if step.average:
            found = (np.sum(window, 0, FLOAT) / FLOAT(len(window))).astype(FLOAT)
        else:
            found = maximum("take_in").reduce(window)
        found = activate(found, step.activations)
        self.put(step.target, place, channel, found[:, 0], found[:, 1], thread)

    def outputs(self, step: Each | Windows | Join) -> tuple[Array, Array, Array, Array, Array]:
        """Thread, channel, row and column of all outputs, two at a time, and where they go."""
        pairs = (step.target.filters + 1) // 2
        i = np.arange(step.out_y * step.out_x * pairs)
        y, x = i // pairs // step.out_x, i // pairs % step.out_x
        place = step.target.origin + y * step.target.out_row + x * step.target.out_pixel
        return i % step.threads, i % pairs * 2, y, x, place

    def value(
        self, at: Array, channel: Array, thread: Array, floats: bool, given: Given | None = None
    ) -> Array:
        """Of a channel of pixels that begin at these words of the group's memory, or of an image
        that is given."""
        per_word = 1 if floats else self.arithmetic.per_word
        place = at + channel // per_word
        if given is None:
            words = self.shared.read(self.own + place, thread)
        else:
            words = part(self.given(given.number), 0, given.size)[place]
        return values(words[:, None], per_word)[np.arange(len(words)), channel % per_word]

    def channels(self, step: Channels) -> None:
        thread, filter_, y, x, place = self.above_each_other(step)
        pairs = (step.target.filters + 1) // 2
        weights, taps = self.read_parameters(step), step.taps_y * step.taps_x
        bias = self.shared.read(step.bias + filter_, EVERYBODY, width=2).view(FLOAT)
        found = [bias[:, 0].astype(np.float64), bias[:, 1].astype(np.float64)]
        for k in range(taps):
            row = y * step.stride_y + k // step.taps_x * step.apart_y
            column = x * step.stride_x + k % step.taps_x * step.apart_x
            at = step.at + row * step.row + column * step.pitch
            for side in range(2):
                own = np.minimum(filter_ + side, step.target.filters - 1) // step.multiple
                pixel = self.value(at, own, thread, False)
                pixel = (
                    values(self.arithmetic.operands(pixel[:, None]), 1)[:, 0]
                    if (self.arithmetic.rounds)
                    else pixel
                )
                with np.errstate(over="ignore", invalid="ignore"):
                    found[side] += pixel * weights[k * 2 * pairs + filter_ + side].astype(float)
        low, high = (activate(each.astype(FLOAT), step.activations) for each in found)
        self.put(step.target, place, filter_, low, high, thread)

    def above_each_other(self, step: Channels) -> tuple[Array, Array, Array, Array, Array]:
        """The same as `outputs`, where a thread has several above each other: the last of them
        begin earlier, and leave out what others have."""
        pairs = (step.target.filters + 1) // 2
        strips = -(-step.out_y // step.tall)
        i = np.repeat(np.arange(strips * step.out_x * pairs), step.tall)
        own = i // pairs // step.out_x * step.tall
        y = np.minimum(own, step.out_y - step.tall) + np.arange(len(i)) % step.tall
        i, y = i[y >= own], y[y >= own]
        x = i // pairs % step.out_x
        place = step.target.origin + y * step.target.out_row + x * step.target.out_pixel
        return i % step.threads, i % pairs * 2, y, x, place

    def read_parameters(self, step: Channels) -> Array:
        size = step.taps_y * step.taps_x * ((step.target.filters + 1) // 2) * 2
        if step.weights % 2:
            raise Mistake(f"two words of weights at once from word {step.weights}")
        if step.weights_shared:
            at = np.arange(step.weights, step.weights + size)
            return self.shared.read(at, EVERYBODY).view(FLOAT)
        return part(self.parameters, step.weights, size).view(FLOAT)

    def windows(self, step: Windows) -> None:
        thread, channel, y, x, place = self.outputs(step)
        first = step.rows.first(self.start) if step.rows else 0
        top, left = first + y * step.stride_y - step.top, x * step.stride_x - step.left
        found = [np.full(len(y), 0 if step.average else -np.inf, FLOAT) for _ in range(2)]
        count = np.zeros(len(y), int)
        for ky in range(step.taps_y):
            for kx in range(step.taps_x):
                row, column = top + ky, left + kx
                some = (row >= 0) & (row < step.height) & (column >= 0) & (column < step.width)
                count += some
                at = step.at + (row - first) * step.row + column * step.pitch
                for side in range(2):
                    kept = some & (channel + side < step.target.filters)
                    next_ = self.value(
                        at[kept], (channel + side)[kept], thread[kept], step.floats, step.given
                    )
                    with np.errstate(over="ignore", invalid="ignore"):
                        found[side][kept] = (
                            found[side][kept] + next_
                            if step.average
                            else maximum("take_in")(found[side][kept], next_)
                        )
        if step.average:
            if step.counts_padding:
                count = (np.minimum(top + step.taps_y, step.height + step.counted_y) - top) * (
                    np.minimum(left + step.taps_x, step.width + step.counted_x) - left
                )
            found = [(each / count.astype(FLOAT)).astype(FLOAT) for each in found]
        found[1][channel + 1 >= step.target.filters] = 0
        low, high = (activate(each, step.activations) for each in found)
        self.put(step.target, place, channel, low, high, thread)

    def join(self, step: Join) -> None:
        thread, channel, y, x, place = self.outputs(step)
        found = []
        for side in range(2):
            multiplied, before = step.how == "multiplied", 0
            total = np.full(len(y), float(multiplied), FLOAT)
            for each in step.parts:
                own = each.features // (step.out_y * step.out_x)
                c = channel + side - before
                behind = step.how == "behind"
                some = (c >= 0) & (c < own) if behind else c < step.target.filters
                value = self.joined(step, each, c[some], y[some], x[some], thread[some])
                with np.errstate(over="ignore", invalid="ignore"):
                    total[some] = total[some] * value if multiplied else total[some] + value
                before += own if behind else 0
            total[channel + side >= step.target.filters] = 0
            found.append(activate(total, step.activations))
        self.put(step.target, place, channel, found[0], found[1], thread)

    def joined(self, step: Join, of: Part, c: Array, y: Array, x: Array, thread: Array) -> Array:
        if of.reach == "channel":
            x, y = np.zeros_like(x), np.zeros_like(y)
        elif of.reach == "place":
            c = np.zeros_like(c)
        if of.chosen is not None:
            y, x = (np.array(each)[at] for each, at in zip(of.chosen, (y, x), strict=True))
        if of.flat:
            place = c if of.reach == "channel" else (c * step.out_y + y) * step.out_x + x
            row, x = np.divmod(place, of.width)
            c, y = np.divmod(row, of.height)
        if of.given is None:
            assert of.at is not None
            at = of.at + y * of.row + x * of.pitch
            return self.value(at, c, thread, of.floats)
        image = self.given(of.given.number)
        if of.planes:
            return self.pixel_value(of.pixels, image[(c * of.height + y) * of.width + x], c)
        at = y * of.row + x * of.pitch + c // self.arithmetic.per_word
        words = values(image[at][:, None], self.arithmetic.per_word)
        return words[np.arange(len(c)), c % self.arithmetic.per_word]

    def softmax(self, step: Softmax) -> None:
        i = np.arange(step.size)
        if not step.apart:
            scores = self.shared.read(self.own + step.at + i, i % 32).view(FLOAT)
            memory, base = self.memory(step.target)
            memory.write(base + i, probabilities(scores).view(np.uint32), i % 32)
        for image in range(self.turn if step.apart else 0):
            lane = 32 * (image % self.made.warps) + i % 32
            at = self.own + step.at + image * step.apart
            scores = self.shared.read(at + i, lane).view(FLOAT)
            result = self.results[self.item - (self.turn - 1 - image)]
            result.write(i, probabilities(scores).view(np.uint32), lane)
