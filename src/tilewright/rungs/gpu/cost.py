"""What a kernel of a design has to do at least: operations, loads, every buffer touched once."""

from __future__ import annotations

import math

from tilewright.model.network import Stage
from tilewright.rungs.gpu.design import Design, Work
from tilewright.trace import Cost


def cost(stage: Stage, design: Design, work: Work, images: int) -> Cost:
    """Of one of a layer's kernels, launched for so many images."""
    # Where nobody says how often its loops turn, the kernel that alone has the weights does it all.
    alone = len(design.works) == 1 or [w for w in design.works if w.has_weights] == [work]
    flops = 2 * images * multiply_adds(work) or (images * stage.flops if alone else 0)
    covered = work.covered(images)
    return Cost(
        flops,
        _once_bytes(stage, design, work, images),
        covered * (work.traffic.global_loads + work.traffic.shared_loads),
        covered * work.index_operations,
    )


def multiply_adds(work: Work) -> int:
    """For one image: kernels that take weights do one for each turn of their loops."""
    extents = [loop.extent for loop in work.loops]
    return math.prod(extents) if extents and work.has_weights else 0


def _once_bytes(stage: Stage, design: Design, work: Work, images: int) -> int:
    """Every buffer of a kernel once. One of several that share the filters has its part of them."""
    total = sum(map(multiply_adds, design.works))
    part = multiply_adds(work) / total if total and work.has_weights else 1.0
    shapes = {name.rpartition(".")[2]: shape for name, shape in stage.parameter_shapes.items()}
    sizes = {
        "x": images * stage.layer.input_bytes * math.prod(stage.input_shape),
        "out": part * images * 4 * math.prod(stage.output_shape),
        **{name: part * 4 * math.prod(shape) for name, shape in shapes.items()},
        **{name: images * 4 * size for name, size in design.scratch.items()},
        **{name: 4 * size for name, size in design.workspace.items()},
    }
    used = {*work.arguments, *(("weight",) if work.has_weights else ())}
    return round(sum(sizes.get(name, 0) for name in used))
