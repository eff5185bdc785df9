"""The layers that are not convolutions, on a GPU: the same kernels on every rung.

One thread an output, but for fully connected layers, a product in register tiles over the batch,
and softmax, a thread an image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Elementwise,
    FullyConnected,
    MaxPool,
    Multiply,
    Pixels,
    Pooling,
    Softmax,
    Table,
    Take,
)
from tilewright.model.layers.elementwise import literal
from tilewright.model.layers.take import place_of
from tilewright.model.network import Stage
from tilewright.rungs.gpu.design import (
    BLOCK_THREADS,
    Design,
    Loop,
    Traffic,
    Work,
    source,
    tiles,
)

FC_IMAGES, FC_DEPTH, FC_EACH = 64, 16, 4
# A sum is split over as many blocks as keep a large GPU busy with one image, each with a few steps
# to do; what they leave to be added up is a small part of what they read.
FC_BLOCKS, FC_LEAST, FC_SHARE = 128, 2 * FC_DEPTH, 1 / 4
SOFTMAX_IMAGES = 64


DIALECT: Table[Callable[[Stage, Any], Design]] = Table("dialect")


def other_layer(stage: Stage) -> Design:
    return DIALECT.find(stage)(stage, stage.layer)


@DIALECT.of(Pixels)
def _pixels(stage: Stage, layer: Pixels) -> Design:
    plane = math.prod(layer.shape[1:])
    design = _flat(stage, "layer_normalise", "normalise.cl", {"PLANE": plane})
    return _with_macros(
        design,
        f"TW_SCALE(channel) ({_by_channel(layer.scales)})",
        f"TW_SHIFT(channel) ({_by_channel(layer.shifts)})",
    )


def _by_channel(numbers: tuple[float, ...]) -> str:
    """The number of a channel, as an expression."""
    if len(set(numbers)) == 1:
        return literal(numbers[0])
    *others, last = map(literal, numbers)
    cases = "".join(f"channel == {index} ? {each} : " for index, each in enumerate(others))
    return cases + last


@DIALECT.family(Elementwise)
def _elementwise(stage: Stage, layer: Elementwise) -> Design:
    design = _flat(stage, f"layer_{layer.kind}", "elementwise.cl", {})
    return _with_macros(design, f"TW_FUNCTION(x) ({layer.expression()})")


def _with_macros(design: Design, *macros: str) -> Design:
    (work,) = design.works
    text = "".join(f"#define {macro}\n" for macro in macros) + work.source.text
    return Design((replace(work, source=replace(work.source, text=text)),))


def _flat(stage: Stage, name: str, file: str, constants: dict[str, int | float]) -> Design:
    """Every output depends on the input at its own place."""
    size = math.prod(stage.output_shape)
    kernel = source(name, file, (BLOCK_THREADS, 1, 1), {"SIZE": size, **constants})
    loops = (Loop("value", size, "block and thread"),)
    traffic = Traffic(global_loads=size * stage.layer.input_bytes / 4, stores=size)
    return Design((Work(kernel, ("x", "out"), tiles(size, BLOCK_THREADS), 1, loops, traffic),))


def other_argument(number: int) -> str:
    """The name of an input after the first, which is x."""
    return f"x{number}"


@DIALECT.of(Add)
def _add(stage: Stage, layer: Add) -> Design:
    """Two at a time: the first two into the output, then each other one to it."""
    size = math.prod(stage.output_shape)
    works = []
    for number in range(1, len(stage.sources)):
        first = number == 1
        name, file = ("layer_add", "add.cl") if first else ("layer_add_to", "add_to.cl")
        arguments = ("x", "x1", "out") if first else (other_argument(number), "out")
        works.append(
            Work(
                source(name, file, (BLOCK_THREADS, 1, 1), {"SIZE": size}), arguments,
                tiles(size, BLOCK_THREADS), 1, (Loop("value", size, "block and thread"),),
                Traffic(global_loads=2 * size, stores=size),
            )
        )  # fmt: skip
    return Design(tuple(works))


@DIALECT.of(Multiply)
def _multiply(stage: Stage, layer: Multiply) -> Design:
    size, (first, second) = math.prod(stage.output_shape), stage.input_shapes
    reach, plane = layer.reach((first, second)), math.prod(first[1:])
    other = {"value": "index", "channel": f"(index) / {plane}", "place": f"(index) % {plane}"}
    kernel = source(
        "layer_multiply", "multiply.cl", (BLOCK_THREADS, 1, 1),
        {"SIZE": size, "OTHER_SIZE": math.prod(second)},
    )  # fmt: skip
    work = Work(
        kernel, ("x", "x1", "out"), tiles(size, BLOCK_THREADS), 1,
        (Loop("value", size, "block and thread"),), Traffic(global_loads=2 * size, stores=size),
    )  # fmt: skip
    return _with_macros(Design((work,)), f"TW_OTHER(index) ({other[reach]})")


@DIALECT.of(Concat)
def _concat(stage: Stage, layer: Concat) -> Design:
    """Every input is copied to its place."""
    whole, first, works = math.prod(stage.output_shape), 0, []
    for number, shape in enumerate(stage.input_shapes):
        size = math.prod(shape)
        constants: dict[str, int | float] = {"SIZE": size, "WHOLE": whole, "FIRST": first}
        works.append(
            Work(
                source("layer_concat", "concat.cl", (BLOCK_THREADS, 1, 1), constants),
                (other_argument(number) if number else "x", "out"),
                tiles(size, BLOCK_THREADS), 1, (Loop("value", size, "block and thread"),),
                Traffic(global_loads=size, stores=size),
            )
        )  # fmt: skip
        first += size
    return Design(tuple(works))


@DIALECT.of(MaxPool, AveragePool)
def _pooling(stage: Stage, layer: Pooling) -> Design:
    channels, height, width = stage.input_shape
    _, out_y, out_x = stage.output_shape
    size = channels * out_y * out_x
    constants: dict[str, int | float] = {
        "CHANNELS": channels, "HEIGHT": height, "WIDTH": width, "OUT_Y": out_y, "OUT_X": out_x,
        "TAPS_Y": layer.size[0], "TAPS_X": layer.size[1],
        "STRIDE_Y": layer.stride[0], "STRIDE_X": layer.stride[1],
        "PAD_Y": layer.padding[0], "PAD_X": layer.padding[1], "CLIPPED": int(bool(layer.specials)),
        "AVERAGE": int(isinstance(layer, AveragePool)),
    }  # fmt: skip
    if isinstance(layer, AveragePool) and layer.specials:
        counted = layer.padding[2:] if layer.count_padding else (0, 0)
        constants |= {
            "COUNTED_Y": counted[0], "COUNTED_X": counted[1],
            "COUNTS_PADDING": int(layer.count_padding),
        }  # fmt: skip
    window = math.prod(layer.size)
    work = Work(
        source("layer_pool", "pool.cl", (BLOCK_THREADS, 1, 1), constants),
        ("x", "out"),
        blocks=tiles(size, BLOCK_THREADS),
        loops=(
            Loop("output", size, "block and thread"),
            Loop("window", window, "sequential"),
        ),
        traffic=Traffic(global_loads=size * window, stores=size),
    )
    return Design((work,))


@DIALECT.of(Take)
def _take(stage: Stage, layer: Take) -> Design:
    (channels, height, width), (_, out_y, out_x) = stage.input_shape, stage.output_shape
    size = channels * out_y * out_x
    constants: dict[str, int | float] = {
        "CHANNELS": channels, "HEIGHT": height, "WIDTH": width, "OUT_Y": out_y, "OUT_X": out_x,
    }  # fmt: skip
    work = Work(
        source("layer_take", "take.cl", (BLOCK_THREADS, 1, 1), constants), ("x", "out"),
        tiles(size, BLOCK_THREADS), 1, (Loop("value", size, "block and thread"),),
        Traffic(global_loads=size, stores=size),
    )  # fmt: skip
    return _with_macros(
        Design((work,)),
        f"TW_ROW(y) ({place_of(layer.rows, 'y')})",
        f"TW_COLUMN(x) ({place_of(layer.columns, 'x')})",
    )


@DIALECT.of(FullyConnected)
def _fully_connected(stage: Stage, layer: FullyConnected) -> Design:
    """Long sums are split over blocks: a layer with few outputs would leave most of a GPU idle."""
    inputs, outputs = math.prod(stage.input_shape), layer.outputs
    across = 16 if outputs <= 16 else 64
    blocks = tiles(outputs, across)
    wanted = min(FC_BLOCKS // blocks, inputs // FC_LEAST, int(FC_SHARE * inputs / outputs))
    part = tiles(tiles(inputs, max(1, wanted)), FC_DEPTH) * FC_DEPTH
    parts = tiles(inputs, part)
    constants: dict[str, int | float] = {
        "INPUTS": inputs, "OUTPUTS": outputs, "ACROSS": across, "IMAGES": FC_IMAGES,
        "DEPTH": FC_DEPTH, "EACH": FC_EACH, "PARTS": parts, "PART_INPUTS": part, "TILES": blocks,
    }  # fmt: skip
    depth = tiles(inputs, FC_DEPTH) * FC_DEPTH
    multiply = Work(
        source(
            "layer_fc", "fc.cl", (across // FC_EACH, FC_IMAGES // FC_EACH, 1), constants,
            shared_floats=FC_DEPTH * (FC_IMAGES + across + 8),
        ),
        ("x", "weight", "bias", "out" if parts == 1 else "parts", "images"),
        blocks=blocks * parts,
        images_per_block=FC_IMAGES,
        loops=(
            Loop("output", outputs, "block, thread and registers"),
            Loop("input", inputs, "block, then sequential, staged in shared memory"),
        ),
        traffic=Traffic(
            global_loads=blocks * depth * (1 + across / FC_IMAGES),
            shared_loads=blocks * depth * across / FC_EACH / 2,
            stores=outputs * parts,
        ),
    )  # fmt: skip
    if parts == 1:
        return Design((multiply,))
    add = Work(
        source("layer_fc_sum", "fc_sum.cl", (FC_IMAGES, 1, 1), constants),
        ("parts", "bias", "out"),
        blocks=tiles(outputs, FC_IMAGES),
        loops=(Loop("output", outputs, "block and thread"), Loop("part", parts, "sequential")),
        traffic=Traffic(global_loads=outputs * (parts + 1), stores=outputs),
    )
    return Design((multiply, add), {"parts": outputs * parts})


@DIALECT.of(Softmax)
def _softmax(stage: Stage, layer: Softmax) -> Design:
    (size,) = stage.output_shape
    work = Work(
        source("layer_softmax", "softmax.cl", (SOFTMAX_IMAGES, 1, 1), {"SIZE": size}),
        ("x", "out", "images"),
        blocks=1,
        images_per_block=SOFTMAX_IMAGES,
        loops=(Loop("feature", size, "sequential"),),
        traffic=Traffic(global_loads=3 * size, stores=2 * size),
    )
    return Design((work,))
