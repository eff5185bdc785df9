"""Whole-network kernels as tables: how the network was cut, who computes what, what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from tilewright.fuse.cuda.explain import Facts
from tilewright.model.network import Network
from tilewright.rungs.gpu.explain import Target
from tilewright.rungs.rung import Rung
from tilewright.views import units
from tilewright.views.explain_gpu import assumptions
from tilewright.views.table import table


def report(
    rung: Rung,
    network: Network,
    kernels: Sequence[Facts],
    at: Target,
    batch: int | None,
    few_up_to: int,
) -> Iterator[RenderableType]:
    yield f"{rung.label} on {network.name}: {rung.idea}"
    yield assumptions(at)
    count = len(kernels)
    sizes = "" if batch is None else f" for a batch of {units.count(batch)}"
    yield f"\n{network.name} is cut into {count} kernel{'s' if count > 1 else ''}{sizes}"
    if batch is None and few_up_to:
        yield (
            f"batches of up to {few_up_to} images have kernels of their own: --batch {few_up_to} "
            "shows them"
        )
    for kernel in kernels:
        yield f"\n{kernel.name}: {' '.join(kernel.layers)}"
        rows = table(
            f"Work of {kernel.name}",
            "layers",
            "unit of a warp",
            ">units",
            ">used",
            ">turns",
            "weights in",
        )
        for share in kernel.shares:
            rows.add_row(
                " ".join(share.operation.names) or "values", share.unit, units.count(share.units),
                "" if share.used is None else units.share(share.used),
                "" if share.turns is None else units.fixed(share.turns, 2), share.weights,
            )  # fmt: skip
        yield rows
        yield f"  {kernel.arrangement}"
        yield f"  {kernel.memory}"
        if kernel.compiled:
            compiled = kernel.compiled
            yield (
                f"  {compiled.registers} registers a thread, {compiled.spilled_bytes:,} bytes "
                f"spilled; {units.digits(kernel.flops / 1e6)} MFLOP an image"
            )
    yield (
        "\nunits: pieces of work of an image. used: multiply-adds that are the network's, of those "
        "issued; the rest meets zeros. turns: reads of shared memory that one read of 8 rows "
        "takes; 1 is best."
    )
