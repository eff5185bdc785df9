"""The fused kernel's schedule and speed as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.fuse.cpu.explain import Explanation
from tilewright.fuse.cpu.shares import Shares
from tilewright.model.network import Network
from tilewright.views import units
from tilewright.views.table import table


def report(network: Network, explanation: Explanation) -> Iterator[RenderableType]:
    yield (
        f"{network.name} as one function for this CPU ({explanation.level}: vectors of "
        f"{explanation.lanes} {explanation.lanes_are}), "
        f"measured peak {explanation.peak / 1e9:.0f} GFLOP/s\n{_division(explanation.shares)}\n"
    )
    rows = table(
        "Groups of layers", "\nlayers", "\nregister tile", ">\nsums", ">loads\nper FMA",
        ">MFLOP\nnominal", ">MFLOP\nexecuted", ">\nGFLOP/s", ">of\npeak", "%of\ntime",
    )  # fmt: skip
    for group in (*explanation.groups, explanation.total):
        first, last = group.layers[0], group.layers[-1]
        busy = group.executed_flops > 0
        rows.add_row(
            first if first == last else f"{first}..{last}",
            group.tile,
            units.count(group.accumulators) if group.accumulators else "-",
            units.fixed(group.loads_per_fma, 2) if group.accumulators else "-",
            units.fixed(group.nominal_flops / 1e6, 2) if busy else "-",
            units.fixed(group.executed_flops / 1e6, 2) if busy else "-",
            units.fixed(group.rate / 1e9, 0) if busy else "-",
            units.share(group.rate / explanation.peak) if busy else "-",
            units.share(group.seconds / explanation.total.seconds),
        )
    yield rows
    yield (
        "\nexecuted: without the taps that fall outside the image; of Winograd's algorithm, its "
        "products. GFLOP/s and share of the peak are of these. Times include the activation and "
        "pooling of a group; the total includes how pixels become vectors."
    )


def _division(shares: Shares) -> str:
    """How the images of a batch are divided, in words."""
    at_once = "one by one" if shares.rows == 1 else f"up to {shares.rows} at a time"
    parts = (
        (shares.many, "as lanes of vectors"),
        (shares.alone - shares.many, f"{at_once}, each on a core"),
        (shares.images - shares.alone, f"{at_once}, each on all cores"),
    )
    return f"batch of {shares.images}: " + ", ".join(f"{n} {how}" for n, how in parts if n)
