"""Kernels against the ceilings of their device: what they reached, and what holds them up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.limits import FEW_BLOCKS, Rates, held_up, limit
from tilewright.profiling.result import NO_TIME, Ceilings, Profile
from tilewright.profiling.tally import Row
from tilewright.trace import Cost

# A larger share of its time with page faults being served, and they hold a kernel up.
MOSTLY = 0.5


@dataclass(frozen=True)
class Facts:
    """A kernel of some layers: its rates, and as shares of the device's ceilings where known."""

    row: Row
    flops: int  # of all launches, counting every tap
    executed: int  # the same without taps that the rung leaves out
    bytes: int  # of all launches, every buffer once
    flop_share: float | None
    byte_share: float | None
    limit: str

    @property
    def flop_rate(self) -> float:
        return _rate(self.flops, self.row.seconds)

    @property
    def executed_rate(self) -> float:
        """What the share of the peak is of."""
        return _rate(self.executed, self.row.seconds)

    @property
    def byte_rate(self) -> float:
        return _rate(self.bytes, self.row.seconds)

    @property
    def intensity(self) -> float | None:
        return self.flops / self.bytes if self.bytes else None


def roofline(profile: Profile) -> list[Facts]:
    """Every kernel whose work is known, most expensive first."""
    found = [(row, work(profile, row)) for row in profile.of("kernel")]
    facts = [_facts(profile, row, *known) for row, known in found if known is not None]
    return sorted(facts, key=lambda each: -each.row.seconds)


def work(profile: Profile, row: Row) -> tuple[int, int, int] | None:
    """FLOP, those executed, and bytes of a kernel: its own account, or that of its layers if it
    did them alone.
    """
    if row.flops is not None and row.least_bytes is not None:
        return row.flops, row.flops, row.least_bytes
    others = [other for other in profile.of("kernel") if set(other.layers) & set(row.layers)]
    known = {layer.name: layer for layer in profile.layers}
    if others != [row] or not set(row.layers) <= set(known) or not row.layers:
        return None
    if profile.stopped:  # in the middle of a batch: nobody counted its images
        return None
    layers = [known[name] for name in row.layers]
    flops = profile.images * sum(layer.flops for layer in layers)
    executed = flops
    if profile.skips_taps and all(layer.inside_flops is not None for layer in layers):
        executed = profile.images * sum(layer.inside_flops or 0 for layer in layers)
    # What is between fused layers need not leave the registers; weights are read in each launch.
    ends = profile.images * (layers[0].input_bytes + layers[-1].output_bytes)
    return flops, executed, ends + row.calls * sum(layer.parameter_bytes for layer in layers)


def rates(ceilings: Ceilings) -> Rates:
    return Rates(
        ceilings.flops, ceilings.bytes, ceilings.loads, ceilings.index_operations,
        ceilings.processors,
    )  # fmt: skip


def _facts(profile: Profile, row: Row, flops: int, executed: int, size: int) -> Facts:
    ceilings = profile.ceilings
    rate, moved = _rate(executed, row.seconds), _rate(size, row.seconds)
    flop_share = _share(rate, ceilings.flops) if ceilings else None
    byte_share = _share(moved, ceilings.bytes) if ceilings else None
    cost = Cost(executed, size, row.loads, row.index_operations)
    words = _limit(profile, row, cost)
    return Facts(row, flops, executed, size, flop_share, byte_share, words)


def _rate(amount: int, seconds: float) -> float:
    """An amount a second; none of a time that no clock can tell from zero."""
    return amount / seconds if seconds > NO_TIME else 0.0


def _share(rate: float, ceiling: float | None) -> float | None:
    """Of a ceiling; one of less than 1 a second, which a file may name, is none."""
    return rate / ceiling if ceiling is not None and ceiling >= 1 else None


def _limit(profile: Profile, row: Row, cost: Cost) -> str:
    """What holds the kernel up, in words: the limit that `explain` names, if it is reached."""
    if row.faulted > MOSTLY * row.seconds > NO_TIME:
        return f"page faults: {100 * row.faulted / row.seconds:.0f} % of the time"
    ceilings = profile.ceilings
    on_gpu = profile.device.is_gpu
    blocks = max((math.prod(grid) for grid, _ in row.shapes), default=None) if on_gpu else None
    bound = limit(cost, rates(ceilings), blocks) if ceilings is not None else None
    if bound is not None and bound.name == FEW_BLOCKS and ceilings is not None:
        return f"{FEW_BLOCKS}: {blocks} for {ceilings.processors}"
    if bound is None or ceilings is None or ceilings.flops is None or ceilings.bytes is None:
        return "not known: no ceilings"
    seconds = row.seconds if row.seconds > NO_TIME else 0.0
    return held_up(bound, seconds, row.calls, on_gpu)
