"""What a kernel of a design has to do at least: operations, loads, every buffer touched once."""

from __future__ import annotations

import math

from tilewright.ladder.gpu.design import Design, Work
from tilewright.model.network import Stage
from tilewright.trace import Cost


def cost(stage: Stage, design: Design, work: Work, images: int) -> Cost:
    """Of one of a layer's kernels, launched for so many images."""
    alone = len(design.works) == 1
    flops = 2 * images * multiply_adds(work) or (images * stage.flops if alone else 0)
    # A block that is not full loads as if it were.
    covered = work.grid(images)[2] * work.images_per_block
    return Cost(
        flops,
        _once_bytes(stage, design, work, images),
        covered * (work.traffic.global_loads + work.traffic.shared_loads),
        covered * work.index_operations,
    )


def multiply_adds(work: Work) -> int:
    """For one image: kernels that take weights do one for each turn of their loops."""
    return math.prod(loop.extent for loop in work.loops) if work.has_weights else 0


def _once_bytes(stage: Stage, design: Design, work: Work, images: int) -> int:
    """Every buffer of a kernel once. One of several that share the filters has its part of them."""
    total = sum(map(multiply_adds, design.works))
    part = multiply_adds(work) / total if work.has_weights else 1.0
    shapes = {name.rpartition(".")[2]: shape for name, shape in stage.parameter_shapes.items()}
    sizes = {
        "x": images * stage.layer.input_bytes * math.prod(stage.input_shape),
        "out": part * images * 4 * math.prod(stage.output_shape),
        **{name: part * 4 * math.prod(shape) for name, shape in shapes.items()},
        **{name: images * 4 * size for name, size in design.scratch.items()},
    }
    used = {*work.arguments, *(("weight",) if work.has_weights else ())}
    return round(sum(sizes.get(name, 0) for name in used))
