"""A schedule written out as LLVM code.

One internal function for each group of layers, named after them (one for all that compute the
same), and for each type of pixels an entry

    void network_u8(images, out, weights, scratch, ticks, first, last)

that computes the images `first` to `last` (`many`, `few`). The weights lie in the order they are
used. All shapes are constants. The CPU's clock is read between the groups and what each took is
added to `ticks`: for the input, then each group. That is one reading for all the work of a group on
a block of images.
"""

from __future__ import annotations

from tilewright.fuse.cpu.entry import PIXEL_TYPES, normalisation, pictures_of, symbols
from tilewright.fuse.cpu.few import entries_of_few
from tilewright.fuse.cpu.groups import group_function
from tilewright.fuse.cpu.many import entry_of_many
from tilewright.fuse.cpu.parameters import layout
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.model.network import Network


def generate(network: Network, plan: Schedule, clock: str) -> str:
    """The whole module; `clock` is the LLVM intrinsic that reads the CPU's counter."""
    lanes = plan.target.lanes
    attributes = f'nounwind "prefer-vector-width"="{32 * lanes}"'
    vector = f"<{lanes} x float>"
    parts = [
        f"declare i64 @{clock}()",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare {vector} @llvm.maximum.v{lanes}f32({vector}, {vector})\n",
    ]
    if constants := normalisation(network.input):
        parts.append(constants)
    names, apart = symbols(plan), -layout(plan).slot
    for index, group in enumerate(plan.groups):
        if names.index(names[index]) == index:
            *before, after = pictures_of(plan, index)
            parts.append(
                group_function(group, names[index], plan.target, attributes, before, after, apart)
            )
    write = entry_of_many if plan.lanes_are == "images" else entries_of_few
    for suffix in PIXEL_TYPES:
        parts.append(write(network, plan, attributes, suffix, clock))
    return "\n".join(parts)
